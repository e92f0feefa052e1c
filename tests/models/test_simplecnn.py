"""The simple convolutional network: counts, every size of image, rejections. Its oracle is in tests/verify."""

from __future__ import annotations

import pytest
import torch

from cutaway import create_model
from cutaway.core.errors import ModelError
from cutaway.core.spec import Classes, ImageSpec
from cutaway.inspect.layers import layer_table
from cutaway.models.simplecnn import CARD, Config

from .contract import assert_keeps_the_contract


def test_counts_are_those_of_the_definition() -> None:
    # 3·32·9 + 2·32 + 32·64·9 + 2·64 + (1 024 + 1)·10, and 864·64² + 18 432·32² + 1 024·10 on 64×64
    counted = layer_table(create_model("simplecnn"), torch.empty(1, 3, 64, 64))
    assert (counted.parameters, counted.multiply_adds) == (29_738, 22_423_552)
    held = CARD.published["simplecnn"]
    assert (held.parameters, held.multiply_adds) == (29_738, 22_423_552)


@pytest.mark.parametrize(("height", "width"), [(8, 8), (9, 23), (28, 28), (64, 40)])
def test_the_contract_on_images_of_any_size(height: int, width: int) -> None:
    torch.manual_seed(0)
    assert_keeps_the_contract(create_model("simplecnn"), torch.randn(4, 3, height, width), outputs=10)


def test_the_same_weights_see_every_size() -> None:
    model = create_model("simplecnn", widths=(4, 6)).eval()
    assert model.features(torch.randn(1, 3, 100, 64)).shape == model.features(torch.randn(1, 3, 8, 8)).shape == (1, 96)


def test_a_batch_of_one_can_be_learned_from() -> None:
    assert create_model("simplecnn").train()(torch.randn(1, 3, 8, 8)).isfinite().all()


def test_too_small_an_image_names_the_least_size() -> None:
    with pytest.raises(ModelError, match=r"at least 8×8 pixels, and these are 7×20"):
        create_model("simplecnn")(torch.randn(1, 3, 7, 20))


def test_it_fits_itself_to_data() -> None:
    config = Config.for_spec(Config(), ImageSpec(1, 28, 28, Classes(("a", "b", "c"))))
    assert config == Config(in_channels=1, num_classes=3)


@pytest.mark.parametrize(("field", "value"), [("in_channels", 0), ("num_classes", 0), ("widths", (32,))])
def test_bad_settings_are_rejected_by_name(field: str, value: object) -> None:
    with pytest.raises(ModelError, match=f"{field}="):
        Config(**{field: value})
