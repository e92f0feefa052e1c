"""NASNet: counts, both cells against their equations, padding, factorized reduction, drop path, sizes of images."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cutaway.core.errors import ModelError
from cutaway.core.spec import Classes, ImageSpec
from cutaway.inspect.layers import layer_table
from cutaway.models.nasnet import (
    CARD,
    PRESETS,
    Config,
    FactorizedReduction,
    NASNet,
    NormalCell,
    ReductionCell,
    SeparableConv,
    max_3x3,
    mean_3x3,
    pad_for_stride_2,
)

from .contract import assert_keeps_the_contract

TINY = Config(cells=1, width=4, stem="cifar", stem_width=6, num_classes=3, dropout=0.0)


@pytest.mark.parametrize(
    ("name", "millions", "mega"),  # the paper's tables 1 to 3: 3.3M; 5.3M and 564M; 88.9M, with statistics, and 23.8B
    [("cifar", 3.3, 526), ("mobile", 5.3, 564), ("large", 88.9, 23_783)],
)
def test_counts_are_the_published_ones(name: str, millions: float, mega: int) -> None:
    held, config = CARD.published[f"nasnet-a-{name}"], PRESETS[f"nasnet-a-{name}"]
    with torch.device("meta"):
        model = NASNet(config)
        layers = layer_table(model, torch.empty(1, *held.at))
    assert (layers.parameters, layers.multiply_adds, layers.complete) == (held.parameters, held.multiply_adds, True)
    statistics = sum(b.numel() for n, b in model.named_buffers() if "running" in n)
    assert layers.multiply_adds is not None
    assert round((layers.parameters + statistics * (name == "large")) / 1e6, 1) == millions
    assert round(layers.multiply_adds / 1e6) == mega


def test_the_plan_is_that_of_the_paper() -> None:
    steps = PRESETS["nasnet-a-mobile"].plan
    kinds = "".join("R" if step.reduces else "N" for step in steps)
    assert kinds == "RR" + "NNNN" + "R" + "NNNN" + "R" + "NNNN"
    assert [step.filters for step in steps if step.reduces] == [11, 22, 88, 176]
    assert [step.keeps for step in PRESETS["nasnet-a-large"].plan if step.reduces] == [False, False, True, True]
    with torch.device("meta"):
        assert NASNet(PRESETS["nasnet-a-mobile"]).head.in_features == 1056
        assert NASNet(PRESETS["nasnet-a-large"]).head.in_features == 4032
        assert NASNet(PRESETS["nasnet-a-cifar"]).head.in_features == 768


def test_it_keeps_the_contract() -> None:
    torch.manual_seed(0)
    assert_keeps_the_contract(NASNet(TINY), torch.randn(4, 3, 12, 9), 3)


def test_the_cell_after_a_reduction_gets_the_map_that_its_setting_names() -> None:
    inputs: list[tuple[Tensor, Tensor]] = []
    for skip in (False, True):
        model = NASNet(dataclasses.replace(TINY, skip_reduction=skip)).eval()
        inputs.clear()
        for cell in model.cells:
            cell.register_forward_hook(lambda module, args, output: inputs.append(args))
        with torch.no_grad():
            model(torch.randn(1, 3, 8, 8))
        (reduction_x, reduction_before), (x, before) = inputs[1:3]
        assert before is (reduction_before if skip else reduction_x)
        assert isinstance(model.cells[2].fit_previous, FactorizedReduction)
        assert inputs[3][1] is x  # the cell after that takes the reduction's output


def test_a_normal_cell_is_the_sums_of_figure_4() -> None:
    torch.manual_seed(0)
    cell = NormalCell(5, nn.Identity(), 4, 0.0, 1e-3).eval()
    x, p = torch.randn(2, 5, 7, 6), torch.randn(2, 4, 7, 6)
    with torch.no_grad():
        h, y = cell.fit(x), cell(x, p)
        expected = [
            p,
            cell.sep1_h(h) + cell.sep1_p(p),
            cell.sep2_a(p) + cell.sep2_b(p),
            mean_3x3(h) + p,
            2 * mean_3x3(p),
            cell.sep5_h(h) + h,
        ]
    torch.testing.assert_close(y, torch.cat(expected, 1))
    kernels = [s.depthwise1.kernel_size[0] for s in cell.modules() if isinstance(s, SeparableConv)]
    assert kernels == [5, 3, 5, 3, 3]


def test_a_reduction_cell_leaves_out_the_sum_that_two_others_use() -> None:
    torch.manual_seed(0)
    cell = ReductionCell(5, nn.Identity(), 4, 0.0, 1e-3).eval()
    x, p = torch.randn(2, 5, 7, 6), torch.randn(2, 4, 7, 6)
    with torch.no_grad():
        h, y = cell.fit(x), cell(x, p)
        y1 = cell.sep1_h(h) + cell.sep1_p(p)
        y2 = max_3x3(h) + cell.sep2_p(p)
        expected = [
            y2,
            mean_3x3(h, 2) + cell.sep3_p(p),
            mean_3x3(y1) + y2,
            cell.sep5_y1(y1) + max_3x3(h),
        ]
    torch.testing.assert_close(y, torch.cat(expected, 1))
    assert y.shape == (2, 16, 4, 3)


def test_separable_convolutions_are_applied_twice_with_relu_before_each() -> None:
    torch.manual_seed(0)
    conv, x = SeparableConv(3, 4, 5, 1, 1e-5).eval(), torch.randn(2, 3, 6, 6)
    with torch.no_grad():
        scale = (1 + 1e-5) ** 0.5
        y = F.conv2d(x.relu(), conv.depthwise1.weight, padding=2, groups=3)
        y = F.conv2d(y, conv.pointwise1.weight) / scale
        y = F.conv2d(y.relu(), conv.depthwise2.weight, padding=2, groups=4)
        torch.testing.assert_close(conv(x), F.conv2d(y, conv.pointwise2.weight) / scale)


@pytest.mark.parametrize("side", [1, 2, 5, 6])
def test_windows_of_stride_2_have_tensorflows_padding(side: int) -> None:
    x = torch.arange(1.0, side + 1).expand(1, 1, side, side)  # each row 1, 2, …
    starts = range(-1 if side % 2 else 0, side, 2)  # of windows of 3: the padding of an even side is at its end
    rows = [[i for i in range(start, start + 3) if 0 <= i < side] for start in starts][: -(-side // 2)]
    assert max_3x3(x)[0, 0, 0].tolist() == [row[-1] + 1 for row in rows]
    means = torch.tensor([sum(row) / len(row) + 1 for row in rows])
    torch.testing.assert_close(mean_3x3(x, stride=2)[0, 0, 0], means)
    kernel = torch.zeros(1, 1, 3, 3)
    kernel[..., 1, :] = 1  # sums along a row
    sums = F.conv2d(pad_for_stride_2(x, 3), kernel, stride=2)[0, 0, 0]
    assert sums.tolist() == [sum(row) + len(row) for row in rows]


def test_factorized_reduction_reads_pixels_on_both_diagonal_grids() -> None:
    reduction = FactorizedReduction(1, 2, 0.0).eval()
    with torch.no_grad():
        for path in (reduction.path1, reduction.path2):
            nn.init.ones_(path.weight)
        y = reduction(torch.arange(1.0, 26).view(1, 1, 5, 5))[0]
    assert y[0].tolist() == [[1, 3, 5], [11, 13, 15], [21, 23, 25]]
    assert y[1].tolist() == [[7, 9, 0], [17, 19, 0], [0, 0, 0]]


def test_drop_path_rises_with_the_cell_and_drops_operations_of_each_image_in_training() -> None:
    model = NASNet(dataclasses.replace(TINY, drop_path_rate=0.4))
    assert [cell.drop_path_rate for cell in model.cells] == pytest.approx([0.4 * i / 5 for i in range(1, 6)])
    torch.manual_seed(0)
    cell = NormalCell(4, nn.Identity(), 4, 0.4, 1e-3).eval()
    x = torch.randn(1, 4, 3, 3).expand(1000, -1, -1, -1)
    with torch.no_grad():
        kept = cell(x, x)
        cell.training = True  # its normalizations stay in evaluation mode
        y = cell(x, x)
    assert torch.equal(y[:, :4], kept[:, :4])  # p, which no operation changes
    dropped = (y[:, 20:] - cell.fit(x)).abs().flatten(1).amax(1) < 1e-6  # y₅ without s₃(h)
    assert abs(float(dropped.double().mean()) - 0.4) < 0.07  # 4.5 standard errors
    assert not torch.equal(y[:, 20:], kept[:, 20:])


def test_it_fits_data_and_rejects_small_images() -> None:
    fitted = Config.for_spec(Config(), ImageSpec(1, 64, 64, Classes(("a", "b"))))
    assert (fitted.in_channels, fitted.num_classes) == (1, 2)
    model = NASNet(dataclasses.replace(TINY, stem="imagenet")).eval()
    assert model(torch.randn(1, 3, 32, 33)).shape == (1, 3)
    with pytest.raises(ModelError, match=r"at least 32×32 pixels, and these are 31×32"):
        model(torch.randn(1, 3, 31, 32))
    assert NASNet(TINY).eval()(torch.randn(1, 3, 4, 5)).shape == (1, 3)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("cells", 0), ("width", 0), ("width", 6), ("stem", "small"), ("stem_width", 0), ("dropout", 1.0)],
        *[("drop_path_rate", -0.1), ("drop_path_rate", 1.0), ("in_channels", 0), ("num_classes", 0)],
    ],
)
def test_values_that_cannot_be_are_rejected_by_name(field: str, value: Any) -> None:
    with pytest.raises(ModelError, match=rf"^Invalid {field}="):
        Config(**{field: value})
