"""LeNet-5 in its common form: counts, sizes, rejections. Its oracle is in tests/verify."""

from __future__ import annotations

import pytest
import torch

from cutaway import create_model
from cutaway.core.errors import ModelError
from cutaway.inspect.layers import layer_table

from .contract import assert_keeps_the_contract


def test_counts_are_those_of_the_common_form() -> None:
    counted = layer_table(create_model("lenet5-modern"), torch.empty(1, 1, 32, 32))
    assert (counted.parameters, counted.multiply_adds) == (61_706, 416_520)


@pytest.mark.parametrize(("size", "channels", "outputs"), [(32, 1, 10), (16, 3, 2), (33, 1, 1), (64, 3, 5)])
def test_the_contract(size: int, channels: int, outputs: int) -> None:
    torch.manual_seed(0)
    model = create_model("lenet5-modern", image_size=size, in_channels=channels, num_classes=outputs)
    assert_keeps_the_contract(model, torch.randn(64, channels, size, size), outputs)


def test_images_of_another_size_are_rejected() -> None:
    with pytest.raises(ModelError, match=r"built for images of 32×32 pixels, and these are 28×28"):
        create_model("lenet5-modern")(torch.randn(1, 1, 28, 28))
    with pytest.raises(ModelError, match="Invalid image_size=15: must be at least 16"):
        create_model("lenet5-modern", image_size=15)
