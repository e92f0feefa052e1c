"""Views of series: what each augmentation leaves as it is, and that all of it comes from the generator."""

from __future__ import annotations

import pytest
import torch
from torch import Generator, Tensor

from cutaway.data import augment
from cutaway.data.augment import SeriesViews, add_jitter, random_resized_part, scale_variables


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def series(n: int = 6, steps: int = 40, features: int = 3) -> Tensor:
    """Random walks, (n, T, F)."""
    return torch.randn(n, steps, features, generator=seeded(9), dtype=torch.float64).cumsum(1)


def test_two_views_of_each_series_come_from_the_generator_alone() -> None:
    x, make = series(), SeriesViews()
    one, other = make(x, seeded(1))
    assert one.shape == other.shape == x.shape
    assert one.dtype == x.dtype
    assert not any(torch.equal(a, b) for a, b in zip(one, other))
    assert all(torch.equal(a, b) for a, b in zip(make(x, seeded(1)), (one, other)))
    assert not torch.equal(make(x, seeded(2))[0], one)


def test_a_part_of_a_straight_line_is_a_straight_line_within_it(monkeypatch: pytest.MonkeyPatch) -> None:
    line = torch.linspace(0, 1, 41, dtype=torch.float64).view(1, 41, 1).expand(50, 41, 2)
    part = random_resized_part(line, seeded())
    steps = part.diff(dim=1)
    assert torch.allclose(steps, steps[:, :1].expand_as(steps), rtol=0, atol=1e-12)
    length = part[:, -1, 0] - part[:, 0, 0]
    assert 0.6 <= length.min() < 0.65
    assert 0.95 < length.max() <= 1
    assert part.min() >= 0
    assert part.max() <= 1
    monkeypatch.setattr(augment, "PART", (1.0, 1.0))
    assert torch.allclose(random_resized_part(series(), seeded()), series(), rtol=0, atol=1e-12)


def test_each_variable_has_a_scale_of_its_own_and_noise_is_as_large_as_it_is_said() -> None:
    x = series(200)
    factor = scale_variables(x, seeded()) / x
    assert torch.allclose(factor, factor[:, :1].expand_as(factor))
    assert 0.8 <= factor.min() < 0.82
    assert 1.23 < factor.max() <= 1.25
    assert factor[0, 0].unique().numel() == 3
    assert float((add_jitter(x, seeded()) - x).std()) == pytest.approx(augment.JITTER, rel=0.02)


def test_one_step_is_a_series() -> None:
    x = torch.ones(2, 1, 1)
    assert torch.equal(random_resized_part(x, seeded()), x)
