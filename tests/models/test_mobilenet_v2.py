"""MobileNetV2: counts, widths, the linear end of a block, sizes of images. Its oracle is torchvision's."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

from cutaway.core.errors import ModelError
from cutaway.core.memory_budget import build_on_meta
from cutaway.core.spec import Classes, ImageSpec
from cutaway.inspect.layers import layer_table
from cutaway.models.mobilenet_v2 import CARD, PRESETS, Config, InvertedResidual, MobileNetV2
from cutaway.models.registry import preset

from .contract import assert_keeps_the_contract

TINY = Config(width_mult=0.1, stem="cifar", num_classes=3, dropout=0.0)


def test_counts_are_the_published_ones() -> None:
    held = CARD.published["mobilenet-v2"]
    layers = layer_table(
        build_on_meta(preset("mobilenet-v2"), PRESETS["mobilenet-v2"]), torch.empty(1, *held.at, device="meta")
    )
    assert (layers.parameters, layers.multiply_adds, layers.complete) == (held.parameters, held.multiply_adds, True)
    assert (round(held.parameters / 1e5), round(held.multiply_adds / 1e6)) == (35, 301)  # the paper: 3.4M, 300M


@pytest.mark.parametrize(
    ("width_mult", "widths"),
    [(1.0, [32, 16, 24, 96, 160, 320]), (0.35, [16, 8, 8, 32, 56, 112]), (1.4, [48, 24, 32, 136, 224, 448])],
)
def test_widths_are_multiples_of_eight_near_what_was_asked(width_mult: float, widths: list[int]) -> None:
    config = Config(width_mult=width_mult)
    assert [config.width(channels) for channels in (32, 16, 24, 96, 160, 320)] == widths
    last = MobileNetV2(config).head.in_features
    assert last == (1792 if width_mult == 1.4 else 1280)


def test_it_keeps_the_contract() -> None:
    torch.manual_seed(0)
    assert_keeps_the_contract(MobileNetV2(TINY), torch.randn(4, 3, 16, 24), 3)


def test_the_end_of_a_block_is_linear_and_what_enters_is_added() -> None:
    block = InvertedResidual(8, 8, 6, 1).eval()
    with torch.no_grad():
        for parameter in block.bn.parameters():
            parameter.zero_()  # the branch adds nothing
        x = torch.randn(2, 8, 5, 5)
        assert torch.equal(block(x), x)
        nn.init.constant_(block.bn.bias, -9.0)
        assert torch.equal(block(x), x - 9)  # no ReLU follows
    assert not InvertedResidual(8, 8, 6, 2).residual
    assert not InvertedResidual(8, 16, 6, 1).residual
    assert InvertedResidual(8, 16, 1, 1).expand is None


def test_depthwise_convolution_keeps_channels_separate() -> None:
    block = InvertedResidual(4, 4, 6, 1)
    assert block.depthwise.conv.weight.shape == (24, 1, 3, 3)
    assert block.depthwise.conv.groups == 24


def test_it_fits_data_and_rejects_small_images() -> None:
    fitted = Config.for_spec(Config(), ImageSpec(1, 64, 64, Classes(("a", "b"))))
    assert (fitted.in_channels, fitted.num_classes) == (1, 2)
    model = MobileNetV2(dataclasses.replace(TINY, stem="imagenet")).eval()
    assert model(torch.randn(1, 3, 32, 33)).shape == (1, 3)
    with pytest.raises(ModelError, match=r"at least 32×32 pixels, and these are 31×32"):
        model(torch.randn(1, 3, 31, 32))
    assert MobileNetV2(TINY).eval()(torch.randn(1, 3, 8, 8)).shape == (1, 3)


@pytest.mark.parametrize(
    ("field", "value"),
    [("width_mult", 0.0), ("stem", "small"), ("dropout", 1.0), ("in_channels", 0), ("num_classes", 0)],
)
def test_values_that_cannot_be_are_rejected_by_name(field: str, value: Any) -> None:
    with pytest.raises(ModelError, match=rf"^Invalid {field}="):
        Config(**{field: value})
