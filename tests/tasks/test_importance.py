"""Permutation importance: what decides counts, what is one column is shuffled as one, and much is an even choice."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from cutaway.tasks import importance as module
from cutaway.tasks.importance import permutation_importance_report


def accuracy(outputs: Tensor, target: Tensor) -> float:
    """The fraction that is right."""
    return (outputs == target).double().mean().item()


def test_the_column_that_decides_counts_and_the_others_do_not() -> None:
    x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    found = permutation_importance_report(
        lambda x: (x[:, 1] > 0).long(), accuracy, x, (x[:, 1] > 0).long(), [("a", 1), ("b", 1), ("c", 1)]
    )
    assert found is not None
    assert found["columns"][0]["name"] == "b"
    assert 0.35 < found["columns"][0]["low"] <= found["columns"][0]["value"] <= found["columns"][0]["high"] < 0.65
    assert all(c == {"name": c["name"], "value": 0.0, "low": 0.0, "high": 0.0} for c in found["columns"][1:])


def test_the_inputs_of_a_category_are_shuffled_together() -> None:
    kinds = torch.randint(3, (90,), generator=torch.Generator().manual_seed(0))
    x = torch.cat([torch.nn.functional.one_hot(kinds, 3).float(), torch.zeros(90, 1)], 1)

    def answer(inputs: Tensor) -> Tensor:
        assert (inputs[:, :3].sum(1) == 1).all()  # never two values at once, never none
        return inputs[:, :3].argmax(1)

    before = x.clone()
    found = permutation_importance_report(answer, accuracy, x, kinds, [("kind", 3), ("nothing", 1)])
    assert found is not None
    assert found["columns"][0]["name"] == "kind"
    assert found["columns"][0]["value"] > 0.5
    assert torch.equal(x, before)
    assert found == permutation_importance_report(answer, accuracy, x, kinds, [("kind", 3), ("nothing", 1)])


def test_much_is_bounded_and_little_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    x, asked = torch.randn(500, 2), []

    def answer(inputs: Tensor) -> Tensor:
        asked.append(len(inputs))
        return (inputs[:, 0] > 0).long()

    monkeypatch.setattr(module, "PASSES", 400)
    target, columns = (x[:, 0] > 0).long(), [("a", 1), ("b", 1)]
    assert permutation_importance_report(answer, accuracy, x, target, columns)["rows"] == 40  # type: ignore[index]
    assert set(asked) == {40}
    assert permutation_importance_report(answer, accuracy, x[:, :1], target, columns[:1]) is None
    assert permutation_importance_report(answer, accuracy, x[:1], target[:1], columns) is None
    monkeypatch.setattr(module, "MOST_COLUMNS", 1)
    assert permutation_importance_report(answer, accuracy, x, target, columns) is None
