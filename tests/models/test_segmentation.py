"""U-Net, FCN and DeepLabV3: counts, sizes, dilation, what is special about each. Their oracles are compared with all
others."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from cutaway.core.errors import ModelError
from cutaway.core.memory_budget import build_on_meta
from cutaway.core.spec import ImageSpec, Mask
from cutaway.inspect.layers import layer_table
from cutaway.models import deeplabv3, fcn, resnet, unet
from cutaway.models.registry import preset
from cutaway.verify import OracleMissing
from cutaway.verify.libraries import torchvision_models

TARGET = Mask(("ground", "cat", "dog"))
FAMILIES = (unet, fcn, deeplabv3)
PRESETS = [name for module in FAMILIES for name in module.PRESETS]
SMALL = {"layers": (1, 1, 2, 1), "width": 4, "stem": "cifar", "num_classes": 3}


@pytest.mark.parametrize("name", PRESETS)
def test_counts_are_those_of_the_card(name: str) -> None:
    found = preset(name)
    held = found.card.published
    layers = layer_table(build_on_meta(found, found.config), torch.empty(1, *held.at, device="meta"))
    assert (layers.parameters, layers.multiply_adds) == (held.parameters, held.multiply_adds)


@pytest.mark.parametrize(
    ("name", "weights"), [("fcn", "FCN_ResNet50_Weights"), ("deeplabv3", "DeepLabV3_ResNet50_Weights")]
)
def test_counts_are_torchvisions(name: str, weights: str) -> None:
    try:
        segmentation = torchvision_models("segmentation")
    except OracleMissing as missing:
        pytest.skip(str(missing))
    meta = getattr(segmentation, weights).DEFAULT.meta
    held = preset(f"{name}-resnet50").card.published
    assert held.parameters == meta["num_params"]
    auxiliary = 65 * 65 * (1024 * 256 * 9 + 256 * 21)  # the head that is not run in evaluation
    assert held.multiply_adds is not None
    assert round((held.multiply_adds + auxiliary) / 1e9, 3) == meta["_ops"]


def test_a_unet_counted_level_by_level() -> None:
    """Of the paper's figure: 3×3 twice on either side, 2×2 on the way up, 1×1 at the end; a bias for each channel."""
    widths = [64, 128, 256, 512, 1024]
    down = sum(9 * (a * b + b * b) + 2 * b for a, b in zip([1, *widths], widths))
    up = sum(4 * 2 * w * w + w + 9 * (2 * w * w + w * w) + 2 * w for w in widths[:-1])
    assert preset("unet").card.published_parameters == down + up + 64 * 2 + 2


def test_dilation_keeps_the_map_and_looks_further() -> None:
    config = resnet.Config(layers=(1, 2, 2, 2), width=4)
    x = torch.randn(1, 3, 64, 64)
    plain, dilated = resnet.Backbone(config, 0).eval(), resnet.Backbone(config, 2).eval()
    assert plain(x)[1].shape[2:] == (2, 2)
    assert [y.shape[2:] for y in dilated(x)] == [(8, 8), (8, 8)]
    rates = [block.conv2.dilation[0] for stage in (dilated.layer3, dilated.layer4) for block in stage]
    assert rates == [1, 2, 2, 4]
    assert plain.state_dict().keys() == dilated.state_dict().keys()


@pytest.mark.parametrize("name", ["fcn", "deeplabv3"])
def test_the_auxiliary_head_answers_in_training_alone(name: str) -> None:
    module: Any = {"fcn": fcn, "deeplabv3": deeplabv3}[name]
    config = module.Config(**SMALL)
    model = module.Model(config)
    x = torch.randn(2, 3, 13, 18)
    assert [y.shape for y in model(x)] == [(2, 3, 13, 18)] * 2
    assert model.eval()(x).shape == (2, 3, 13, 18)
    assert model.features(x).shape[2:] == (7, 9)
    without = module.Model(dataclasses.replace(config, auxiliary=False))
    assert without(x).shape == (2, 3, 13, 18)
    with pytest.raises(ModelError, match=r"^Invalid layers="):
        module.Config(layers=(2,))


def test_deeplab_learns_from_a_last_batch_of_one_image() -> None:
    model = deeplabv3.DeepLabV3(deeplabv3.Config(**SMALL, dim=4, rates=(1, 2)))
    logits, _ = model(torch.randn(1, 3, 16, 16))
    logits.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.classifier.parameters())


def test_a_unet_rejects_sizes_that_do_not_come_back() -> None:
    model = unet.UNet(unet.Config(width=2, levels=2, num_classes=3, in_channels=3)).eval()
    assert model(torch.randn(1, 3, 8, 12)).shape == (1, 3, 8, 12)
    with pytest.raises(ModelError, match=r"these are 10×12: height and width must be multiples of 4"):
        model(torch.randn(1, 3, 10, 12))
    sizes = preset("unet").image_sizes(preset("unet").config)
    assert sizes.choose(None, (100, 70)) == (112, 80)
    assert sizes.choose(None, None) == (512, 512)


@pytest.mark.parametrize("name", PRESETS)
def test_it_fits_masks(name: str) -> None:
    config = preset(name).configure(ImageSpec(2, 64, 64, TARGET))
    assert (config.in_channels, config.num_classes) == (2, 3)


@pytest.mark.parametrize(("field", "value"), [("levels", 0), ("norm", "layer"), ("dropout", 1.0), ("width", 0)])
def test_values_that_cannot_be_are_rejected_by_name(field: str, value: Any) -> None:
    with pytest.raises(ModelError, match=rf"^Invalid {field}="):
        unet.Config(**{field: value})
