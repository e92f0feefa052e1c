"""The four-block network of few-shot learning: counts, sizes of images, rejections. Its oracle is in tests/verify."""

from __future__ import annotations

import pytest
import torch

from cutaway import create_model
from cutaway.core.errors import ModelError
from cutaway.core.spec import Episodes, ImageSpec
from cutaway.inspect.layers import layer_table
from cutaway.models.conv4 import CARD, Config

from .contract import assert_keeps_the_contract


@pytest.mark.parametrize(
    ("name", "multiply_adds"),
    [
        # 576·28² + 36 864·(14² + 7² + 3²) + 64·5, and 576·14² + 36 864·(7² + 4² + 2²) + 64·5
        ("conv4", 9_815_360),
        ("conv4-strided", 2_656_832),
    ],
)
def test_counts_are_those_of_the_definition(name: str, multiply_adds: int) -> None:
    # 64·9 + 64 + 3·(64·64·9 + 64) + 4·2·64 + (64 + 1)·5
    counted = layer_table(create_model(name), torch.empty(1, 1, 28, 28))
    assert (counted.parameters, counted.multiply_adds) == (112_261, multiply_adds)
    held = CARD.published[name]
    assert (held.parameters, held.multiply_adds) == (112_261, multiply_adds)


@pytest.mark.parametrize("name", ["conv4", "conv4-strided"])
@pytest.mark.parametrize(("height", "width"), [(16, 16), (28, 28), (84, 40)])
def test_the_contract_on_images_of_any_size(name: str, height: int, width: int) -> None:
    torch.manual_seed(0)
    assert_keeps_the_contract(create_model(name), torch.randn(4, 1, height, width), outputs=5)


def test_pooling_needs_16_pixels_and_strides_do_not() -> None:
    with pytest.raises(ModelError, match=r"at least 16×16 pixels, and these are 15×20"):
        create_model("conv4")(torch.randn(1, 1, 15, 20))
    assert create_model("conv4-strided").eval()(torch.randn(1, 1, 1, 3)).shape == (1, 5)


def test_it_fits_itself_to_episodes() -> None:
    config = Config.for_spec(Config(), ImageSpec(3, 28, 28, Episodes(20, 1, 5)))
    assert config == Config(in_channels=3, num_classes=20)


@pytest.mark.parametrize(("field", "value"), [("in_channels", 0), ("width", 0), ("downsampling", "mean")])
def test_bad_settings_are_rejected_by_name(field: str, value: object) -> None:
    with pytest.raises(ModelError, match=f"{field}="):
        Config(**{field: value})  # type: ignore[arg-type]
