"""Views of images: what each augmentation leaves as it is, and that all of it comes from the generator."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from cutaway.data import augment
from cutaway.data.augment import (
    ImageViews,
    jitter_color,
    random_gaussian_blur,
    random_resized_crop,
    rotate_hue,
    to_gray,
)


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def images(n: int = 6, channels: int = 3, side: int = 12) -> Tensor:
    """Pixels 0…1, (n, C, H, W)."""
    return torch.rand(n, channels, side, side, generator=seeded(9), dtype=torch.float64)


@pytest.mark.parametrize(("channels", "side"), [(1, 12), (3, 12), (3, 64)])
def test_two_views_of_each_image_come_from_the_generator_alone(channels: int, side: int) -> None:
    mean, std = (0.4,) * channels, (0.2,) * channels
    x = (images(4, channels, side) - 0.4) / 0.2
    make = ImageViews(mean, std)
    one, other = make(x, seeded(1))
    assert one.shape == other.shape == x.shape
    assert one.dtype == x.dtype
    assert not any(torch.equal(a, b) for a, b in zip(one, other))
    assert all(torch.equal(a, b) for a, b in zip(make(x, seeded(1)), (one, other)))
    assert not torch.equal(make(x, seeded(2))[0], one)
    pixels = torch.cat([one, other]) * 0.2 + 0.4
    assert pixels.min() > -1e-12
    assert pixels.max() < 1 + 1e-12


def test_the_whole_image_is_a_part_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(augment, "AREA", (1.0, 1.0))
    monkeypatch.setattr(augment, "RATIO", (1.0, 1.0))
    x = images()
    assert torch.allclose(random_resized_crop(x, seeded()), x, rtol=0, atol=1e-12)


def test_a_part_lies_within_the_image_and_is_as_large_as_it_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(augment, "AREA", (0.25, 0.25))
    monkeypatch.setattr(augment, "RATIO", (1.0, 1.0))
    place = torch.linspace(-1, 1, 40, dtype=torch.float64)
    x = torch.stack(torch.meshgrid(place, place, indexing="ij")).expand(8, 2, 40, 40)  # where each pixel stands
    part = random_resized_crop(x, seeded())
    spread = (part.amax((2, 3)) - part.amin((2, 3))) / 2  # of the whole: 1
    assert torch.allclose(spread, torch.full_like(spread, 0.5), atol=0.05)
    assert part.abs().max() <= 1


def test_colours_are_changed_and_grey_stays_grey() -> None:
    x = images()
    changed = jitter_color(x, 0.5, seeded())
    assert changed.shape == x.shape
    assert not torch.allclose(changed, x, atol=0.01)
    same = to_gray(x).expand(-1, 3, -1, -1)
    without = jitter_color(same, 0.5, seeded())
    assert torch.allclose(without, without.mean(1, keepdim=True).expand_as(without), atol=1e-12)
    assert torch.allclose(jitter_color(x, 0.0, seeded()), x, atol=1e-12)


def test_a_third_of_the_circle_moves_red_to_green_to_blue() -> None:
    x = images()
    angle = torch.full((len(x), 1, 1, 1), 2 * math.pi / 3, dtype=x.dtype)
    assert torch.allclose(rotate_hue(x, angle), x.roll(1, 1), atol=1e-12)
    assert torch.allclose(rotate_hue(rotate_hue(x, angle), -angle), x, atol=1e-12)


def test_each_image_is_blurred_by_a_gaussian_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(augment, "SIGMA", (1.5, 1.5))
    x = images(2, 3, 40)
    place = torch.arange(-2, 3, dtype=x.dtype)
    kernel = (-(place[:, None] ** 2 + place**2) / (2 * 1.5**2)).exp()
    kernel = (kernel / kernel.sum()).expand(3, 1, 5, 5)
    expected = F.conv2d(F.pad(x, (2,) * 4, mode="reflect"), kernel, groups=3)
    assert torch.allclose(random_gaussian_blur(x, seeded()), expected, atol=1e-12)
    monkeypatch.setattr(augment, "SIGMA", (0.1, 2.0))
    twice = x[:1].expand(2, -1, -1, -1)
    one, other = random_gaussian_blur(twice, seeded())
    assert not torch.allclose(one, other)
