"""FCOS: counts, locations, what it gives, fitting to data and rejections. Its oracle is in tests/verify."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from cutaway.core.errors import ModelError
from cutaway.core.spec import Boxes, Classes, ImageSpec
from cutaway.inspect.layers import preset_layer_table
from cutaway.models.fcos import CARD, FCOS, PRESETS, Config, FrozenBatchNorm2d
from cutaway.models.registry import preset
from cutaway.nn.boxes import decode

SMALL = Config(
    layers=(1, 1, 1, 1),
    block="basic",
    width=8,
    norm="batch",
    dim=16,
    head_layers=1,
    groups=4,
    in_channels=1,
    num_classes=3,
)


def detector(**changes: object) -> FCOS:
    torch.manual_seed(0)
    return FCOS(dataclasses.replace(SMALL, **changes)).eval()  # type: ignore[arg-type]  # settings


def pictures(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", PRESETS)
def test_counts_are_those_of_the_card(name: str) -> None:
    held = CARD.published[name]
    layers = preset_layer_table(preset(name), PRESETS[name], held.at)
    assert (layers.parameters, layers.multiply_adds, layers.complete) == (held.parameters, held.multiply_adds, True)


def test_each_location_says_where_it_is() -> None:
    y = detector()(pictures(2, 1, 100, 72))
    places = y[0, :, 8:]
    sizes = [(13, 9), (7, 5), (4, 3), (2, 2), (1, 1)]  # ⌈100 / s⌉ and ⌈72 / s⌉
    assert y.shape == (2, sum(h * w for h, w in sizes), 3 + 8)
    assert torch.equal(y[0, :, 8:], y[1, :, 8:])
    assert places[:, 2].unique(return_counts=True)[1].tolist() == [h * w for h, w in sizes]
    assert places[10].tolist() == [8, 8, 8]  # the second of the second row, at the corner of its cell
    assert detector(centred=True)(pictures(1, 1, 64, 64))[0, 0, 8:].tolist() == [4, 4, 8]
    assert (y[:, :, 3:7] >= 0).all()
    boxes = decode(y[:, :, 3:7], y[:, :, 8:])
    assert (boxes[..., 2:] >= boxes[..., :2]).all()


def test_what_a_location_says_moves_with_the_image() -> None:
    model, x = detector(layers=(1, 1), first_stage=2, extra_levels=0).double(), pictures(1, 1, 64, 160).double()
    # Far from the sides, a shift by one stride is a shift by one location. Group normalization sees the whole map, and
    # is taken out here.
    for module in model.modules():
        for name, child in module.named_children():
            if isinstance(child, torch.nn.GroupNorm):
                setattr(module, name, torch.nn.Identity())
    own, moved = model(x)[0, :, :8].view(8, 20, 8), model(x.roll(8, 3))[0, :, :8].view(8, 20, 8)
    torch.testing.assert_close(moved[:, 9:12], own[:, 8:11])
    assert not torch.allclose(moved[:, 9:12], own[:, 9:12])


def test_everything_learns_and_a_frozen_norm_does_not() -> None:
    model = detector(norm="frozen").train()
    assert any(isinstance(module, FrozenBatchNorm2d) for module in model.modules())
    assert not any(isinstance(module, torch.nn.BatchNorm2d) for module in model.modules())
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    outputs = model(pictures(2, 1, 128, 128))
    outputs[:, :, :8].backward(pictures(*outputs[:, :, :8].shape))
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in model.parameters())
    assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())
    assert model.features(pictures(2, 1, 64, 64)).shape == (2, 64 + 16 + 4 + 1 + 1, 16)


def test_a_class_is_rare_at_first_and_the_surest_place_is_explained() -> None:
    model = detector()
    outputs = model(pictures(2, 1, 64, 64))
    assert outputs[:, :, :3].sigmoid().mean().item() == pytest.approx(0.01, rel=0.1)
    assert torch.equal(model.explained(outputs), outputs[:, :, :3].max(1).values)


def test_places_are_told_in_full_under_autocast() -> None:
    model = detector(layers=(1, 1), first_stage=2, extra_levels=0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = model(pictures(1, 1, 32, 1600))
    assert y.dtype == torch.float32
    assert y[0, 199, 8] == 199 * 8


def test_a_config_fits_a_data_set() -> None:
    spec = ImageSpec(1, 64, 64, Boxes(("cat", "dog")))
    fitted = Config.for_spec(PRESETS["fcos-resnet18-small"], spec)
    assert (fitted.in_channels, fitted.num_classes) == (1, 2)
    with pytest.raises(ModelError, match=r"does not learn .* class: these models learn it: .*lenet5.* lists all"):
        preset("fcos-resnet50").configure(dataclasses.replace(spec, target=Classes(("cat", "dog"))))
    with pytest.raises(ModelError, match=r"resnet18 does not learn .* boxes: these models learn it: .*fcos-resnet50"):
        preset("resnet18").configure(spec)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dim": 18}, "Invalid dim=18: must be a multiple of groups=4"),
        ({"first_stage": 5}, "Invalid first_stage=5: must be at most 4"),
        ({"norm": "layer"}, "Invalid norm='layer'"),
    ],
)
def test_invalid_settings_are_rejected_by_name(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        detector(**changes)


def test_images_that_are_too_small_are_rejected() -> None:
    with pytest.raises(ModelError, match="FCOS needs images of at least 32×32 pixels, and these are 31×64"):
        detector()(pictures(1, 1, 31, 64))
