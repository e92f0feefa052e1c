"""Balanced class weights are as precise as the training that they are for."""

from __future__ import annotations

import pytest
import torch

from cutaway.training.prepared import prepare


@pytest.mark.parametrize(("precision", "kind"), [("float64", torch.float64), ("float32", torch.float32)])
def test_class_weights_have_the_precision_that_is_trained_in(precision: str, kind: torch.dtype) -> None:
    ready = prepare("mlp", "iris", {"class_weights": "balanced", "precision": precision, "max_samples": 47})
    counts = ready.data.splits["train"].target.bincount()  # type: ignore[union-attr]
    exact = 47 / (3 * counts.double())
    weights = ready.task.class_weights  # type: ignore[attr-defined]
    assert weights.dtype == kind
    assert torch.equal(weights, exact.to(kind))
    assert len(set(counts.tolist())) > 1  # else the weights would be 1 in any precision
