"""Drawn images as levels and as one picture, and the bound on how unlikely an image is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from cutaway.core.spec import ImageSpec, Noise
from cutaway.inference import image_generation
from cutaway.inference.image_generation import as_images, as_levels, classes_for, columns_for, image_grid


def test_levels_go_from_black_to_white_and_never_wrap() -> None:
    x = torch.tensor([-1.0, 1.0, -3.0, 3.0, 0.0, -1 + 2 / 255, 1 - 2 / 255, 0.5]).view(1, 1, 2, 4)
    assert as_levels(x).flatten().tolist() == [0, 255, 0, 255, 128, 1, 254, 191]
    assert as_levels(x.half()).flatten().tolist()[:4] == [0, 255, 0, 255]


def test_every_level_comes_back() -> None:
    levels = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    assert torch.equal(as_levels(levels.double() / 127.5 - 1), levels)


def test_images_keep_their_channels_rows_and_columns() -> None:
    levels = torch.arange(2 * 3 * 2 * 5, dtype=torch.uint8).view(2, 3, 2, 5)
    first, second = as_images(levels)
    assert first.size == (5, 2)
    assert first.mode == "RGB"
    assert np.array_equal(np.asarray(second), levels[1].permute(1, 2, 0).numpy())
    (grey,) = as_images(levels[:1, :1])
    assert grey.mode == "L"
    assert np.array_equal(np.asarray(grey), levels[0, 0].numpy())


def test_a_picture_holds_each_image_once_row_by_row() -> None:
    levels = torch.arange(1, 6, dtype=torch.uint8).view(5, 1, 1, 1).expand(5, 1, 3, 4)
    found = np.asarray(image_grid(levels, columns=2))
    assert found.shape[0] > 3 * 3
    assert found.shape[1] > 2 * 4
    places = {k: np.argwhere(found == k) for k in range(1, 6)}
    assert all(len(where) == 3 * 4 for where in places.values())
    firsts = {k: tuple(where[0]) for k, where in places.items()}
    assert firsts[1][0] == firsts[2][0] < firsts[3][0] == firsts[4][0] < firsts[5][0]
    assert firsts[1][1] == firsts[3][1] == firsts[5][1] < firsts[2][1]


def test_classes_come_in_turn_and_columns_follow_them() -> None:
    spec = ImageSpec(1, 4, 4, Noise(("a", "b", "c"), 16))
    assert classes_for(spec, 7, None).tolist() == [0, 1, 2, 0, 1, 2, 0]  # type: ignore[union-attr]
    assert classes_for(spec, 3, "c").tolist() == [2, 2, 2]  # type: ignore[union-attr]
    found = [columns_for(count, classes) for count, classes in ((12, 3), (2, 3), (40, 16), (40, 17), (40, 0), (5, 1))]
    assert found == [3, 2, 16, 8, 8, 5]


class Steps(nn.Module):
    """A network of ten timesteps."""

    config = SimpleNamespace(signal=torch.linspace(0.99, 0.01, 10))


@pytest.mark.parametrize("times", [1, 2, 4, 9, 50])
def test_the_terms_that_are_computed_stand_for_all(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Tensor] = []

    def term(predict: Any, x: Tensor, t: Tensor, noise: Tensor, signal: Tensor) -> Tensor:
        taken.append(t)
        return torch.where(t == 0, 100.0, 1.0)

    monkeypatch.setattr(image_generation, "bound_term", term)
    monkeypatch.setattr(image_generation, "prior_term", lambda x, signal: torch.full((len(x),), 1000.0))
    found = image_generation.variational_bound(Steps(), torch.zeros(3, 1, 2, 2), None, times)
    assert found.tolist() == [1000 + 100 + 9] * 3  # the prior, timestep 0, and nine others of 1 each
    assert len(taken) == 1 + min(times, 9)
    assert all(1 <= t.min() <= t.max() <= 9 for t in taken[1:])
