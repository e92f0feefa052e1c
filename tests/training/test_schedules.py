"""Schedules, each beside its formula or PyTorch's own."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cutaway.core.config import build
from cutaway.training.config import SCHEDULES, TrainSettings
from cutaway.training.optim import lr_factor

STEPS = 1000


def rates(**given: Any) -> list[float]:
    settings = build(TrainSettings, given)
    return [lr_factor(settings, s / STEPS, STEPS) for s in range(STEPS)]


def torchs(make: Any) -> list[float]:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler = make(optimizer)
    found = []
    for _ in range(STEPS):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


@given(st.sampled_from(SCHEDULES), st.floats(0, 1), st.integers(1, 10**6))
def test_a_factor_is_a_share(name: str, t: float, steps: int) -> None:
    assert 0.0 <= lr_factor(build(TrainSettings, {"schedule": name}), t, steps) <= 1.0


def test_cosine_is_torchs() -> None:
    expected = torchs(lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=STEPS))
    assert rates(schedule="cosine") == pytest.approx(expected, abs=1e-9)


def test_step_is_torchs() -> None:
    expected = torchs(lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [500, 750], gamma=0.1))
    assert rates(schedule="step") == pytest.approx(expected)


def test_one_cycle_is_torchs() -> None:
    expected = torchs(lambda o: torch.optim.lr_scheduler.OneCycleLR(o, max_lr=1.0, total_steps=STEPS + 1))
    assert rates(schedule="one-cycle") == pytest.approx(expected, abs=5e-3)


def test_noam_is_equation_3_scaled_to_one_at_its_peak() -> None:
    d, warmup = 512, 100
    paper = [d**-0.5 * min(s**-0.5, s * warmup**-1.5) for s in range(1, STEPS + 1)]
    assert rates(schedule="noam", warmup=0.1) == pytest.approx([p / max(paper) for p in paper])


@pytest.mark.parametrize(("d", "warmup", "steps"), [(512, 4000, 100_000), (256, 100, 2000), (64, 1, 10)])
def test_noam_has_the_papers_rate_at_every_update_counted_from_one(d: int, warmup: int, steps: int) -> None:
    given = build(TrainSettings, {"schedule": "noam", "warmup": warmup / steps})
    for step in {1, 2, max(1, warmup - 1), warmup, warmup + 1, steps // 2, steps}:
        paper = d**-0.5 * min(step**-0.5, step * warmup**-1.5)  # equation 3
        peak = (d * warmup) ** -0.5  # which is lr here
        assert peak * lr_factor(given, (step - 1) / steps, steps) == pytest.approx(paper, rel=1e-9)


def test_wsd_rises_stays_and_falls() -> None:
    found = rates(schedule="wsd", warmup=0.1, decay=0.2)
    assert found[0] == pytest.approx(0.01)
    assert found[99:800] == [1.0] * 701
    assert found[900] == pytest.approx(0.5)


def test_warmup_cosine_meets_its_two_parts() -> None:
    found = rates(schedule="warmup-cosine", warmup=0.1)
    assert found[99] == found[100] == 1.0
    assert found[550] == pytest.approx(0.5)
    assert found[-1] < 1e-5


def test_constant() -> None:
    assert set(rates(schedule="constant")) == {1.0}
    assert math.isclose(sum(rates(schedule="constant")), STEPS)


def test_linear_falls_to_a_ten_thousandth_as_in_word2vec() -> None:
    assert rates(schedule="linear") == pytest.approx([max(1 - s / STEPS, 1e-4) for s in range(STEPS)])
    assert lr_factor(build(TrainSettings, {"schedule": "linear"}), 1.0, STEPS) == 1e-4
