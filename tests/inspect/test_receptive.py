"""Receptive fields: as far as the gradient reaches is as far as the formula says, in every convolutional network."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor, nn

from cutaway.core.errors import ModelError, UnknownName
from cutaway.core.memory_budget import build_on_meta
from cutaway.inspect.layers import layer_table
from cutaway.inspect.receptive_field import ORANGE, effective_field, gradient_extent, save_field
from cutaway.models.registry import Preset, create_model, presets
from cutaway.verify import compared_config

CONVOLUTIONAL = [p for p in presets().values() if p.module.CARD.family == "cnn" and p.takes == ("image",)]
FAMILIES = sorted({preset.module.__name__.rpartition(".")[2] for preset in CONVOLUTIONAL})


def smallest(family: str) -> tuple[Preset, Any]:
    """The preset of a family that is smallest as oracles compare it, and that config."""

    def size(found: tuple[Preset, Any]) -> int:
        return sum(p.numel() for p in build_on_meta(*found).parameters())

    compared = []
    for preset in CONVOLUTIONAL:
        if preset.module.__name__.rpartition(".")[2] == family:
            config = compared_config(preset.name, preset.config)
            fields = {f.name for f in dataclasses.fields(config)}
            compared.append((preset, dataclasses.replace(config, auxiliary=False) if "auxiliary" in fields else config))
    return min(compared, key=size)


@pytest.mark.parametrize("family", FAMILIES)
def test_in_every_network_the_gradient_reaches_as_far_as_the_formula_says(family: str) -> None:
    preset, config = smallest(family)
    side = getattr(config, "image_size", None) or max(112, getattr(config, "least_size", 1))
    shape = (config.in_channels, side, side)
    table = layer_table(build_on_meta(preset, config), torch.empty(1, *shape, device="meta"))
    fields = {
        name: row.receptive_field
        for name, row in table.blocks.items()
        # A map, and a field that the middle of the image holds whole.
        if len(row.shape) == 4 and row.receptive_field and row.receptive_field <= side // 2
    }
    widest = max(fields, key=lambda name: fields[name] or 0)
    assert gradient_extent(preset.build(config), shape, widest) == (fields[widest], fields[widest])
    # Squeeze-and-excitation sees the whole image from the first block on.
    assert (fields[widest] or 0) >= (7 if family == "efficientnet" else 8)


def test_resnet18_sees_435_pixels() -> None:
    model = create_model("resnet18", width=1, in_channels=1)  # how wide it is does not matter
    assert gradient_extent(model, (1, 448, 448), "layer4.1.conv2") == (435, 435)


class Reduces(nn.Module):
    """What the formula has no rule for, or what hides gradients: a maximum over everything, gates, dead units."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.gate = nn.Conv2d(1, 2, 3, padding=1), nn.Conv2d(2, 2, 1)
        nn.init.constant_(self.conv.bias, -100.0)  # no ReLU of it ever opens

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.conv(x))
        return x * torch.sigmoid(self.gate(x.amax((2, 3), keepdim=True)))


SMALL = {
    "dead units": (nn.Sequential(nn.Conv2d(1, 1, 3), *Reduces().children(), nn.ReLU()), (5, 5)),
    "a gate that sees everything": (Reduces(), (20, 20)),
    "kernel with two sides": (nn.Conv2d(1, 1, (3, 5), dilation=(2, 1)), (5, 5)),
    "maxima": (nn.Sequential(nn.Conv2d(1, 3, 3), nn.MaxPool2d(3, 2, 1, ceil_mode=True), nn.MaxPool2d(2)), (7, 7)),
    "dilated maxima": (nn.MaxPool2d(3, stride=1, dilation=2), (5, 5)),
    "adaptive maxima": (nn.AdaptiveMaxPool2d(5), (4, 4)),
    "saturation": (nn.Sequential(nn.Conv2d(1, 1, 3), nn.Hardtanh(), nn.Conv2d(1, 1, 3), nn.Tanh()), (5, 5)),
    "writing over the input": (nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(1, 1, 3)), (3, 3)),
    "a layer without weights": (nn.Identity(), (1, 1)),
}


@pytest.mark.parametrize("name", SMALL)
def test_nothing_hides_a_path(name: str) -> None:
    model, expected = SMALL[name]
    assert gradient_extent(model, (1, 20, 20)) == expected


def test_a_series_has_one_axis() -> None:
    model = nn.Sequential(nn.Conv1d(2, 3, 5, stride=2), nn.MaxPool1d(2), nn.Conv1d(3, 3, 3))
    assert gradient_extent(model, (2, 64)) == (15,)
    assert gradient_extent(model, (2, 64), "1") == (7,)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["conv", "max", "mean"]), st.integers(1, 3), st.integers(1, 2), st.integers(1, 2)),
        min_size=1,
        max_size=4,
    )
)
def test_any_chain(chain: list[tuple[str, int, int, int]]) -> None:
    layers: list[nn.Module] = []
    for kind, k, s, d in chain:
        if kind == "conv":
            layers += [nn.Conv2d(1, 1, k, stride=s, dilation=d), nn.ReLU()]
        else:
            layers.append(nn.MaxPool2d(k, s, dilation=d) if kind == "max" else nn.AvgPool2d(k, s))
    model, side = nn.Sequential(*layers), 96
    field = layer_table(model, torch.zeros(1, 1, side, side)).blocks[""].receptive_field
    assert gradient_extent(model, (1, side, side)) == (field, field)


# --- the effective field ------------------------------------------------------------------------------------------


def stack(depth: int, uniform: bool = False) -> nn.Sequential:
    """3×3 convolutions without padding effects in the middle; He's noise for weights, or all alike."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for i in range(depth):
        conv = nn.Conv2d(1 if i == 0 else 8, 8, 3, padding=1, bias=False)
        nn.init.constant_(conv.weight, 1.0) if uniform else nn.init.kaiming_normal_(conv.weight)
        layers += [conv] if uniform else [conv, nn.ReLU()]
    return nn.Sequential(*layers)


def spread(field: Tensor) -> float:
    """The standard deviation along one axis, in pixels."""
    row = field.sum(0).double()
    places = torch.arange(len(row), dtype=row.dtype)
    mean = (row * places).sum()
    return math.sqrt((row * (places - mean) ** 2).sum())


def test_it_sums_to_one_inside_the_theoretical_field() -> None:
    model = stack(5)
    field = effective_field(model, torch.randn(8, 1, 41, 41, generator=torch.Generator().manual_seed(0)))
    assert field.shape == (41, 41)
    assert field.sum().item() == pytest.approx(1)
    assert field.min() >= 0
    theoretical = field[15:26, 15:26]  # 5 · 2 + 1 = 11 pixels around the middle
    assert theoretical.sum().item() == pytest.approx(1)
    assert gradient_extent(model, (1, 41, 41)) == (11, 11)


def test_of_equal_weights_it_is_a_gaussian_by_the_central_limit() -> None:
    """n windows of 3 spread by √(2n/3): the binomial of a kernel (1 1 1)/3 applied n times, exactly."""
    depth, side = 12, 41
    field = effective_field(stack(depth, uniform=True).double(), torch.randn(1, 1, side, side).double())
    assert spread(field) == pytest.approx(math.sqrt(2 * depth / 3), rel=1e-9)
    places = torch.arange(side, dtype=torch.float64) - side // 2
    gaussian = torch.exp(-(places**2) / (2 * (2 * depth / 3)))
    gaussian = torch.outer(gaussian, gaussian)
    assert (field - gaussian / gaussian.sum()).abs().max() < 0.05 * field.max()


def test_of_a_rectified_network_it_is_roughly_a_gaussian_much_smaller_than_the_theoretical() -> None:
    depth, side = 16, 49
    inputs = torch.randn(48, 1, side, side, generator=torch.Generator().manual_seed(0))
    field = effective_field(stack(depth), inputs)
    theoretical = 2 * depth + 1
    sigma = spread(field)
    assert 4 * sigma < 0.7 * theoretical  # two standard deviations to either side
    places = torch.arange(side, dtype=torch.float32) - side // 2
    gaussian = torch.exp(-(places**2) / (2 * sigma**2))
    row = field.sum(0)
    assert torch.corrcoef(torch.stack([row, gaussian]))[0, 1] > 0.98
    # What weighs a tenth of the middle or more is a small part of what can be seen.
    assert (field > field.max() / 10).sum() < theoretical**2 / 3


def test_it_grows_with_the_root_of_the_depth() -> None:
    inputs = torch.randn(1, 1, 81, 81).double()
    spreads = [spread(effective_field(stack(n, uniform=True).double(), inputs)) for n in (4, 16)]
    assert spreads[1] / spreads[0] == pytest.approx(2, rel=1e-9)


@pytest.mark.parametrize("fails", [False, True])
def test_the_model_is_left_as_it_was(fails: bool) -> None:
    model = create_model("simplecnn", in_channels=1).train()
    model.get_submodule("bn2").eval()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    flags = [m.training for m in model.modules()]
    inputs = torch.randn(2, 3 if fails else 1, 16, 16)
    if fails:
        with pytest.raises(RuntimeError):
            effective_field(model, inputs, "conv2")
    else:
        effective_field(model, inputs, "conv2")
        gradient_extent(model, (1, 16, 16), "conv2")
    assert flags == [m.training for m in model.modules()]
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert not any(m._forward_hooks for m in model.modules())
    assert not inputs.requires_grad


def test_what_has_no_field_is_rejected() -> None:
    model = create_model("simplecnn", in_channels=1)
    with pytest.raises(UnknownName, match="conv2"):
        gradient_extent(model, (1, 16, 16), "conv3")
    with pytest.raises(ModelError, match=r"head returns \(1, 10\).*Use an earlier layer"):
        gradient_extent(model, (1, 16, 16), "head")
    idle = nn.Conv2d(1, 1, 3)
    idle.add_module("idle", nn.Identity())
    with pytest.raises(ModelError, match="idle is not called"):
        gradient_extent(idle, (1, 4, 4), "idle")
    with pytest.raises(ModelError, match="The gradient of the model is zero"):
        effective_field(Reduces(), torch.zeros(1, 1, 8, 8))


# --- the picture ----------------------------------------------------------------------------------------------------


def test_the_picture_is_the_field_with_a_frame(tmp_path: Path) -> None:
    field = torch.zeros(9, 11)
    field[4, 5], field[4, 6] = 0.8, 0.2
    save_field(field, tmp_path / "plain.png")
    with Image.open(tmp_path / "plain.png") as image:
        assert image.size == (11, 9)
        assert image.getpixel((5, 4)) == (255, 255, 255)
        assert image.getpixel((6, 4)) == (64, 64, 64)
        assert image.getpixel((0, 0)) == (0, 0, 0)
    save_field(field, tmp_path / "framed.png", extent=(5, 7))
    with Image.open(tmp_path / "framed.png") as image:
        framed = {(x, y) for x in range(11) for y in range(9) if image.getpixel((x, y)) == ORANGE}
    assert framed == {(x, y) for x in range(2, 9) for y in range(2, 7) if x in (2, 8) or y in (2, 6)}
    save_field(field, tmp_path / "framed.png", extent=(99, 99))  # larger than the image: its edge
    with Image.open(tmp_path / "framed.png") as image:
        assert image.getpixel((0, 0)) == image.getpixel((10, 8)) == ORANGE
    assert {p.name for p in tmp_path.iterdir()} == {"plain.png", "framed.png"}
