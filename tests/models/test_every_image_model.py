"""What every preset that takes images alone owes, in the form in which it is compared with its oracle."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from cutaway.core.errors import ModelError
from cutaway.core.spec import Classes, ImageSizes, ImageSpec, Mask
from cutaway.inspect.captures import capture
from cutaway.models.registry import presets
from cutaway.verify import compared_config

from .contract import assert_keeps_the_contract

IMAGES = [name for name, found in presets().items() if found.takes == ("image",) and Classes in found.targets]
OF_ANY_SIZE = [name for name in IMAGES if presets()[name].image_sizes(presets()[name].config).only is None]
NAMES = ("cat", "dog", "fish")


def fitted(name: str, channels: int = 3) -> tuple[nn.Module, ImageSizes]:
    """A preset for images of three classes, and the sizes that it takes."""
    found = presets()[name]
    config = compared_config(name, found.config)
    sizes = found.image_sizes(config)
    height, width = sizes.choose(None, (1, 1))
    target = Mask(NAMES) if found.targets == (Mask,) else Classes(NAMES)
    torch.manual_seed(0)
    return found.build(type(config).for_spec(config, ImageSpec(channels, height, width, target))), sizes


def pictures(n: int, channels: int, side: int) -> torch.Tensor:
    return torch.randn(n, channels, side, side, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", IMAGES)
def test_the_contract_with_any_channels_and_classes(name: str) -> None:
    model, sizes = fitted(name, channels=2)
    assert_keeps_the_contract(model, pictures(3, 2, sizes.only or sizes.enough(2 * sizes.least)), outputs=3)


@pytest.mark.parametrize("name", OF_ANY_SIZE)
def test_the_least_size_is_taken_and_a_smaller_one_is_rejected_by_it(name: str) -> None:
    model, sizes = fitted(name)
    least = sizes.enough(1)
    with torch.no_grad():
        assert model.eval()(pictures(1, 3, least)).shape[:2] == (1, 3)
        assert model(torch.randn(1, 3, least, sizes.enough(2 * least))).shape[:2] == (1, 3)  # not square
    if least > 1:
        with pytest.raises(ModelError, match=rf"at least {least}×{least}"):
            model(pictures(1, 3, least - 1))


@pytest.mark.parametrize("name", IMAGES)
def test_the_memory_format_changes_no_result(name: str) -> None:
    model, sizes = fitted(name)
    x = pictures(2, 3, sizes.only or sizes.enough(2 * sizes.least)).double()
    model = model.double().eval()
    with torch.no_grad():
        expected = model(x)
        last: Any = torch.channels_last
        torch.testing.assert_close(model.to(memory_format=last)(x.to(memory_format=last)), expected)


@pytest.mark.parametrize("name", IMAGES)
def test_maps_can_be_had_by_name_and_nothing_changes(name: str) -> None:
    model, sizes = fitted(name)
    x = pictures(2, 3, sizes.only or sizes.enough(2 * sizes.least))
    with torch.no_grad():
        expected = model.eval()(x)
        with capture(model) as seen:
            assert torch.equal(model(x), expected)
    called = [k for k, m in model.named_modules() if isinstance(m, nn.Conv2d) and not k.lower().startswith("aux")]
    assert set(called) <= set(seen["features"])
