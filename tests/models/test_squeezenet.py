"""SqueezeNet: counts, both versions, Fire modules, sizes of images. Its oracle is torchvision's."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

from cutaway.checkpoints.torchvision import torchvision_key
from cutaway.core.errors import ModelError
from cutaway.core.memory_budget import build_on_meta
from cutaway.core.spec import Classes, ImageSpec
from cutaway.inspect.layers import layer_table
from cutaway.models.registry import preset
from cutaway.models.squeezenet import CARD, FIRES, PRESETS, Config, Fire, SqueezeNet
from cutaway.verify import oracle_for
from cutaway.verify.compare import BOUND, compare

from .contract import assert_keeps_the_contract

TINY = Config(width=16, squeeze_ratio=0.5, stem="cifar", num_classes=3, dropout=0.0)


@pytest.mark.parametrize("name", PRESETS)
def test_counts_are_the_published_ones(name: str) -> None:
    held = CARD.published[name]
    layers = layer_table(build_on_meta(preset(name), PRESETS[name]), torch.empty(1, *held.at, device="meta"))
    assert (layers.parameters, layers.multiply_adds, layers.complete) == (held.parameters, held.multiply_adds, True)
    ops = {"squeezenet-1.0": 0.819, "squeezenet-1.1": 0.349}[name]  # torchvision's metadata, in 10⁹
    assert round(layers.multiply_adds / 1e9, 3) == ops


def test_version_1_1_computes_less_than_half() -> None:
    both = [CARD.published[name] for name in PRESETS]
    assert both[0].multiply_adds / both[1].multiply_adds == pytest.approx(2.35, abs=0.01)  # "2.4x less"


def test_channels_are_those_of_table_1() -> None:
    config = PRESETS["squeezenet-1.0"]
    assert [config.expanded(i) for i in FIRES] == [128, 128, 256, 256, 384, 384, 512, 512]
    assert [config.squeezed(i) for i in FIRES] == [16, 16, 32, 32, 48, 48, 64, 64]
    assert (config.stem_channels, PRESETS["squeezenet-1.1"].stem_channels) == (96, 64)


def test_the_first_map_is_the_papers_for_227_pixels() -> None:
    model = build_on_meta(preset("squeezenet-1.0"), PRESETS["squeezenet-1.0"])
    assert model.conv1(torch.empty(1, 3, 227, 227, device="meta")).shape == (1, 96, 111, 111)
    assert model.features(torch.empty(1, 3, 227, 227, device="meta")).shape == (1, 512, 13, 13)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_it_keeps_the_contract(version: str) -> None:
    torch.manual_seed(0)
    model = SqueezeNet(dataclasses.replace(TINY, version=version))
    nn.init.normal_(model.head.weight, std=0.5)  # so that each logit is above 0 somewhere, and learns
    assert_keeps_the_contract(model, torch.randn(4, 3, 24, 30), 3)


def test_a_fire_module_squeezes_and_expands() -> None:
    fire = Fire(6, 2, 9)
    assert [tuple(p.shape) for p in (fire.squeeze.weight, fire.expand1x1.weight, fire.expand3x3.weight)] == [
        (2, 6, 1, 1),
        (5, 2, 1, 1),
        (4, 2, 3, 3),
    ]
    x = torch.randn(2, 6, 5, 7)
    y = fire(x)
    assert y.shape == (2, 9, 5, 7)
    s = (x.transpose(1, 3) @ fire.squeeze.weight[:, :, 0, 0].T + fire.squeeze.bias).relu()
    one = (s @ fire.expand1x1.weight[:, :, 0, 0].T + fire.expand1x1.bias).relu().transpose(1, 3)
    torch.testing.assert_close(y[:, :5], one)


def test_no_logit_is_negative_with_the_published_relu() -> None:
    torch.manual_seed(0)
    model = SqueezeNet(TINY).eval()
    nn.init.constant_(model.head.bias, -100.0)
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(model(x), torch.zeros(2, 3))
    model.config = dataclasses.replace(TINY, head_activation="identity")
    assert (model(x) < -50).all()


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("stem", ["imagenet", "cifar"])
def test_the_least_size_leaves_one_pixel(version: str, stem: str) -> None:
    config = dataclasses.replace(TINY, version=version, stem=stem)
    assert (
        config.least_size == {"1.0": {"imagenet": 21, "cifar": 14}, "1.1": {"imagenet": 17, "cifar": 10}}[version][stem]
    )
    model = SqueezeNet(config).eval()
    assert model.features(torch.randn(1, 3, config.least_size, config.least_size)).shape[2:] == (1, 1)
    with pytest.raises(ModelError, match=rf"at least {config.least_size}×{config.least_size} pixels"):
        model(torch.randn(1, 3, config.least_size - 1, 40))


@pytest.mark.parametrize("name", PRESETS)
def test_names_are_those_of_torchvision_in_either_version(name: str) -> None:
    at = {"squeezenet-1.0": 5, "squeezenet-1.1": 6}[name]
    assert torchvision_key(name, "fire4.squeeze.weight") == f"features.{at}.squeeze.weight"
    assert torchvision_key(name, "head.bias") == "classifier.1.bias"


@pytest.mark.parametrize(
    "changes",
    [
        {"width": 24, "squeeze_ratio": 0.5},
        {"stem": "cifar", "in_channels": 1, "num_classes": 3, "head_activation": "identity"},
    ],
)
@pytest.mark.parametrize("name", PRESETS)
def test_other_configs_are_the_oracles_too(name: str, changes: dict[str, Any]) -> None:
    torch.manual_seed(0)
    config = dataclasses.replace(PRESETS[name], **changes)
    measured = compare(SqueezeNet(config), oracle_for(name, config), torch.Generator().manual_seed(0))
    assert max(measured.outputs, measured.gradients) <= BOUND, measured.worst


def test_it_fits_data() -> None:
    fitted = Config.for_spec(Config(), ImageSpec(1, 64, 64, Classes(("a", "b"))))
    assert (fitted.in_channels, fitted.num_classes) == (1, 2)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("version", "2.0"),
        ("width", 0),
        ("squeeze_ratio", 0.0),
        ("stem", "small"),
        ("head_activation", "tanh"),
        ("dropout", 1.0),
        ("in_channels", 0),
        ("num_classes", 0),
    ],
)
def test_values_that_cannot_be_are_rejected_by_name(field: str, value: Any) -> None:
    with pytest.raises(ModelError, match=rf"^Invalid {field}="):
        Config(**{field: value})
