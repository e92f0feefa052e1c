"""Calibration: the error by hand, and the temperature that another optimizer finds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from torch import Tensor

from cutaway.core.spec import Classes
from cutaway.tasks import classification as parts
from cutaway.tasks.classification import Classification, calibration, calibration_error, fit_temperature


def task_of(classes: int) -> Classification:
    return Classification(Classes(tuple("abcdefgh"[:classes]), "letter"))


def calibrated(classes: int, *given: Any) -> dict[str, Any]:
    return calibration(task_of(classes).probabilities, task_of(classes).target.names, *given)


def answers(classes: int, count: int, seed: int, sure: float = 1.0) -> tuple[Tensor, Tensor]:
    """Logits (n, K) or, of two classes, (n, 1), `sure` times as large as classes drawn by them ask for."""
    g = torch.Generator().manual_seed(seed)
    z = 2 * torch.randn(count, 1 if classes == 2 else classes, generator=g, dtype=torch.float64)
    p = both(z).softmax(1)
    return sure * z, torch.multinomial(p, 1, generator=g)[:, 0]


def both(z: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(z), z], 1) if z.shape[1] == 1 else z


@pytest.mark.parametrize("classes", [2, 3])
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), sure=st.floats(0.3, 4))
def test_the_temperature_is_where_the_cross_entropy_is_least(classes: int, seed: int, sure: float) -> None:
    z, target = answers(classes, 200, seed, sure)
    found = fit_temperature(z, target)
    assert found is not None
    least = minimize_scalar(
        lambda beta: float(F.cross_entropy(beta * both(z), target)), bounds=(1e-2, 1e2), options={"xatol": 1e-9}
    )
    assert found == pytest.approx(1 / least.x, rel=1e-4)


@pytest.mark.parametrize("sure", [0.5, 1.0, 3.0])
def test_scaling_undoes_what_made_answers_too_sure(sure: float) -> None:
    z, target = answers(3, 20_000, 0, sure)
    held_out = answers(3, 20_000, 1, sure)
    found = calibrated(3, z, target, held_out)
    scaled = found["scaled"]
    assert scaled["temperature"] == pytest.approx(sure, rel=0.05)
    assert scaled["error"]["value"] < 0.02
    assert sure == 1 or found["error"]["value"] > 3 * scaled["error"]["value"]
    assert found["brier"] >= scaled["brier"] - 1e-3


def test_where_no_temperature_is_best_none_is_said() -> None:
    right = torch.tensor([0, 1, 2])
    z = 5 * F.one_hot(right, 3).double()
    assert fit_temperature(z, right) is None  # ever colder is ever better
    assert fit_temperature(z, (right + 1) % 3) is None  # ever hotter is
    assert fit_temperature(z[:0], right[:0]) is None
    assert "scaled" not in calibrated(3, z, right, (z, right))
    assert "scaled" not in calibrated(3, z, right)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_error_is_the_same_in_pieces_and_by_hand(classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    z, target = answers(classes, 101, 3, 2.0)
    p = both(z).softmax(1).numpy()
    said = p[:, 1] if classes == 2 else p.max(1)
    so = target.numpy() == (1 if classes == 2 else p.argmax(1))
    in_bin = [(said > low) & (said <= low + 0.1) for low in np.arange(10) / 10]
    by_hand = sum(abs(said[rows].sum() - so[rows].sum()) for rows in in_bin) / len(said)
    whole = calibration_error(task_of(classes).probabilities, z, target)
    assert whole.value == pytest.approx(by_hand, rel=1e-9)
    assert whole.note == "no interval: binned calibration error is biased upwards"
    assert math.isnan(whole.low)
    monkeypatch.setattr(parts, "CALIBRATION_CELLS", 7)
    assert calibration_error(task_of(classes).probabilities, z, target) == whole


def test_the_highest_probabilities_have_a_bin_of_their_own() -> None:
    """0.85 that was so and 0.95 that was not: 0.15 and 0.95 off, which in one bin would cancel."""
    p = torch.tensor([0.85, 0.95], dtype=torch.float64)
    both = torch.stack([(1 - p).log(), p.log()], 1)
    found = parts.calibration_error(lambda outputs: outputs.softmax(1), both, torch.tensor([1, 0]))
    assert found.value == pytest.approx((0.15 + 0.95) / 2)
