"""The bound on how unlikely an image is: every term of it counts, and once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cutaway.generation import images


class Steps(nn.Module):
    """A network of ten timesteps."""

    config = SimpleNamespace(signal=torch.linspace(0.99, 0.01, 10))


@pytest.mark.parametrize("times", [1, 2, 4, 9, 50])
def test_the_terms_that_are_computed_stand_for_all(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Tensor] = []

    def term(predict: Any, x: Tensor, t: Tensor, noise: Tensor, signal: Tensor) -> Tensor:
        taken.append(t)
        return torch.where(t == 0, 100.0, 1.0)

    monkeypatch.setattr(images, "bound_term", term)
    monkeypatch.setattr(images, "prior_term", lambda x, signal: torch.full((len(x),), 1000.0))
    found = images.bound(Steps(), torch.zeros(3, 1, 2, 2), None, times)
    assert found.tolist() == [1000 + 100 + 9] * 3  # the prior, timestep 0, and nine others of 1 each
    assert len(taken) == 1 + min(times, 9)
    assert all(1 <= t.min() <= t.max() <= 9 for t in taken[1:])
