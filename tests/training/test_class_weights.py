"""Balanced class weights are as precise as the training that they are for."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cutaway.data.in_memory.source import InMemorySource
from cutaway.training.batches import balanced_order
from cutaway.training.setup import setup_training


@pytest.mark.parametrize(("precision", "kind"), [("float64", torch.float64), ("float32", torch.float32)])
def test_class_weights_have_the_precision_that_is_trained_in(precision: str, kind: torch.dtype) -> None:
    ready = setup_training("mlp", "iris", {"class_weights": "balanced", "precision": precision, "max_samples": 47})
    counts = ready.data.splits["train"].target.bincount()  # type: ignore[union-attr]
    exact = 47 / (3 * counts.double())
    weights = ready.task.class_weights  # type: ignore[attr-defined]
    assert weights.dtype == kind
    assert torch.equal(weights, exact.to(kind))
    assert len(set(counts.tolist())) > 1  # else the weights would be 1 in any precision


def test_the_rarest_class_weighs_most() -> None:
    x, y = np.random.default_rng(0).normal(size=(28, 2)), np.repeat(["a", "b", "c"], [4, 16, 8])
    ready = setup_training("mlp", InMemorySource((x, y)), {"class_weights": "balanced", "val": 0, "test": 0})
    weights = ready.task.class_weights.tolist()  # type: ignore[attr-defined]
    assert weights == pytest.approx([28 / (3 * 4), 28 / (3 * 16), 28 / (3 * 8)])
    order = balanced_order(torch.tensor([0] * 400 + [1] * 1600 + [3] * 800), torch.Generator().manual_seed(0))
    drawn = torch.stack([(order < 400).sum(), ((order >= 400) & (order < 2000)).sum(), (order >= 2000).sum()])
    assert (drawn - 2800 / 3).abs().max() < 100  # four standard deviations
    assert [len(set(order[part].tolist())) for part in (order < 400, order >= 2000)] > [350, 500]
