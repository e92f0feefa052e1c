"""ConvNeXt: counts, widths, layer scale, stochastic depth, sizes of images. Its oracle is torchvision's."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cutaway.core.errors import ModelError
from cutaway.core.memory_budget import build_on_meta
from cutaway.core.spec import Classes, ImageSpec
from cutaway.inspect.layers import layer_table
from cutaway.models.convnext import CARD, PRESETS, Block, Config, ConvNeXt
from cutaway.models.registry import preset
from cutaway.training.config import TrainSettings
from cutaway.training.optim import build_optimizers

from .contract import assert_keeps_the_contract

TINY = Config(layers=(1, 2, 1), width=6, patch_size=2, drop_path_rate=0.0, num_classes=3)


@pytest.mark.parametrize(
    ("name", "millions", "billions"),  # the authors' release
    [("tiny", 28.6, 4.5), ("small", 50.2, 8.7), ("base", 88.6, 15.4)],
)
def test_counts_are_the_published_ones(name: str, millions: float, billions: float) -> None:
    name = f"convnext-{name}"
    held = CARD.published[name]
    layers = layer_table(build_on_meta(preset(name), PRESETS[name]), torch.empty(1, *held.at, device="meta"))
    assert (layers.parameters, layers.multiply_adds, layers.complete) == (held.parameters, held.multiply_adds, True)
    assert (round(layers.parameters / 1e6, 1), round(layers.multiply_adds / 1e9, 1)) == (millions, billions)


def test_it_keeps_the_contract() -> None:
    torch.manual_seed(0)
    assert_keeps_the_contract(ConvNeXt(TINY), torch.randn(4, 3, 16, 24), 3)


def test_channels_double_where_the_map_is_halved() -> None:
    model = ConvNeXt(TINY)
    x, shapes = torch.randn(1, 3, 17, 24), []
    for stage in model.stages:
        x = stage(x)
        shapes.append(tuple(x.shape[1:]))
    assert shapes == [(6, 8, 12), (12, 4, 6), (24, 2, 3)]


def test_the_branch_is_scaled_by_channel_and_added() -> None:
    block, x = Block(4, 1e-6, 0.0), torch.randn(2, 4, 9, 9)
    with torch.no_grad():
        assert 0 < (block(x) - x).abs().max() < 1e-4
        block.layer_scale.copy_(torch.tensor([0.0, 1.0, 2.0, 0.0])[:, None, None])
        branch = block(x) - x
        assert [bool(branch[:, c].any()) for c in range(4)] == [False, True, True, False]
        block.layer_scale.mul_(2)
        torch.testing.assert_close(block(x) - x, 2 * branch, rtol=1e-4, atol=1e-5)


def test_stochastic_depth_leaves_out_the_branch_of_an_image_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    block, x = Block(4, 1.0, 0.4).double(), torch.randn(1, 4, 5, 5, dtype=torch.float64)
    with torch.no_grad():
        branch = block.eval()(x) - x
        found = block.train()(x.expand(2000, -1, -1, -1)) - x
    left_out = (found == 0).flatten(1).all(1)
    torch.testing.assert_close(found[~left_out], (branch / 0.6).expand(int((~left_out).sum()), -1, -1, -1))
    assert abs(float(left_out.double().mean()) - 0.4) < 0.05  # 4.5 standard errors


def test_it_rises_from_no_branch_to_the_last() -> None:
    def rates(config: Config) -> list[float]:
        return [module.drop_path_rate for module in ConvNeXt(config).modules() if isinstance(module, Block)]

    assert rates(Config(layers=(1, 3, 1), width=2, drop_path_rate=0.4)) == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])
    assert rates(Config(layers=(1,), width=2, drop_path_rate=0.4)) == [0.0]


def test_weights_decay_and_gains_and_biases_do_not() -> None:
    model = ConvNeXt(TINY)
    (optimizer,) = build_optimizers(model, TrainSettings(weight_decay=0.05))
    decayed = {id(p) for group in optimizer.param_groups if group["weight_decay"] for p in group["params"]}
    names = {name for name, parameter in model.named_parameters() if id(parameter) in decayed}
    assert "stages.0.blocks.0.depthwise.weight" in names
    assert not [name for name in names if "layer_scale" in name or "norm" in name or "bias" in name]


def test_it_fits_data_and_rejects_small_images() -> None:
    fitted = Config.for_spec(Config(), ImageSpec(1, 64, 64, Classes(("a", "b"))))
    assert (fitted.in_channels, fitted.num_classes, fitted.least_size) == (1, 2, 32)
    model = ConvNeXt(TINY).eval()
    assert model(torch.randn(1, 3, 8, 9)).shape == (1, 3)
    with pytest.raises(ModelError, match=r"at least 8×8 pixels, and these are 7×8"):
        model(torch.randn(1, 3, 7, 8))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("layers", ()), ("layers", (3, 0)), ("width", 0), ("patch_size", 0), ("layer_scale", -1e-6)],
        *[("drop_path_rate", 1.0), ("in_channels", 0), ("num_classes", 0)],
    ],
)
def test_values_that_cannot_be_are_rejected_by_name(field: str, value: Any) -> None:
    with pytest.raises(ModelError, match=rf"^Invalid {field}="):
        Config(**{field: value})
