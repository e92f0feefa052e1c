"""Average accuracy, forgetting and backward transfer, held to their definitions and to the bootstrap."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from cutaway.tasks.continual import accuracies, details, metrics

CHANCES = torch.tensor([[0.9, 0.2, 0.1], [0.6, 0.8, 0.3], [0.7, 0.4, 0.95]])  # R, rows are times


def drawn(n: int, seed: int = 0) -> Tensor:
    """Answers (3, 3n) that are right about as often as R says, n of each task."""
    chance = CHANCES.repeat_interleave(n, 1)
    return torch.rand(chance.shape, generator=torch.Generator().manual_seed(seed)) < chance


def test_they_are_those_of_the_papers() -> None:
    right = drawn(200)
    task = torch.arange(3).repeat_interleave(200)
    R = accuracies(right, task)
    assert R.tolist() == [
        [right[t, 200 * j : 200 * (j + 1)].double().mean().item() for j in range(3)] for t in range(3)
    ]
    found = metrics(right, task, torch.arange(600))
    assert found["average_accuracy"].value == pytest.approx(float(R[2].mean()))
    assert found["backward_transfer"].value == pytest.approx(float((R[2, :2] - R.diagonal()[:2]).mean()))
    assert found["forgetting"].value == pytest.approx(float((R[:2].max(0).values - R[2])[:2].mean()))
    assert details(right, task, ("a", "b", "c")) == {"tasks": {"names": ["a", "b", "c"], "accuracy": R.tolist()}}


def test_tasks_of_different_sizes_count_alike() -> None:
    right = torch.tensor([[True, True, True, False], [False, True, True, False]])
    found = metrics(right, torch.tensor([0, 1, 1, 1]), torch.arange(4))
    assert found["average_accuracy"].value == pytest.approx((0 + 2 / 3) / 2)
    assert found["backward_transfer"].value == -1
    assert found["forgetting"].value == 1


def test_where_the_end_is_the_only_time_there_is_an_average_alone() -> None:
    assert list(metrics(drawn(50)[2:], torch.arange(3).repeat_interleave(50), torch.arange(150))) == [
        "average_accuracy"
    ]


@pytest.mark.parametrize("permuted", [False, True])
def test_intervals_are_as_wide_as_the_bootstraps(permuted: bool) -> None:
    n = 300
    right, task = drawn(n, seed=2), torch.arange(3).repeat_interleave(n)
    if permuted:  # the same images in every task, and those that are hard are so in all: the interval must be wider
        hard = torch.rand(n, generator=torch.Generator().manual_seed(3)) < 0.3
        right = right & ~hard.repeat(3)
    original = torch.arange(3 * n) % (n if permuted else 3 * n)
    found = metrics(right, task, original)
    answers = right.view(3, 3, n).double().numpy()  # times, tasks, images

    def resampled(key: str, rows: np.ndarray) -> float:  # type: ignore[type-arg]
        rows = np.broadcast_to(rows, (3, n)) if permuted else rows.reshape(3, n) % n
        R = np.stack([answers[:, j, rows[j]].mean(1) for j in range(3)], 1)
        if key == "average_accuracy":
            return float(R[2].mean())
        if key == "backward_transfer":
            return float((R[2, :2] - R.diagonal()[:2]).mean())
        return float((R[:2].max(0) - R[2])[:2].mean())

    for key, ours in found.items():
        size, rng = n if permuted else 3 * n, np.random.default_rng(0)
        scores = [resampled(key, rng.integers(0, size, size)) for _ in range(1_000)]
        low, high = np.percentile(scores, [2.5, 97.5])
        assert ours.value == pytest.approx(resampled(key, np.arange(size)))
        assert ours.high - ours.low == pytest.approx(high - low, rel=0.15)


def test_a_task_of_one_example_has_no_interval_and_answers_that_never_change_no_difference() -> None:
    right = torch.tensor([[True] * 9, [True] * 9])
    task = torch.tensor([0, *[1] * 8])
    found = metrics(right, task, torch.arange(9))
    assert found["average_accuracy"].note == "no interval: its variance is unknown"
    even = metrics(torch.ones(2, 40), torch.arange(40) % 2, torch.arange(40))
    assert even["forgetting"].note == "no interval: all examples have the same value"
    assert 0.85 < even["average_accuracy"].low < even["average_accuracy"].high == 1
