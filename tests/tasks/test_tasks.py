"""Tasks: losses as PyTorch has them, metrics as scikit-learn has them."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.metrics as sk
import torch
import torch.nn.functional as F

from cutaway.core.errors import SettingError
from cutaway.core.spec import Classes, TableSpec, Value
from cutaway.tasks import classification
from cutaway.tasks.classification import Classification
from cutaway.tasks.regression import Regression
from cutaway.tasks.task import task_for


@pytest.fixture
def outputs() -> torch.Tensor:
    return torch.randn(200, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.fixture
def target() -> torch.Tensor:
    return torch.randint(0, 3, (200,), generator=torch.Generator().manual_seed(1))


THREE = Classes(("a", "b", "c"), "letter")


def test_the_loss_is_torchs_weighted_mean(outputs: torch.Tensor, target: torch.Tensor) -> None:
    weights = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    task = Classification(THREE, class_weights=weights, label_smoothing=0.1)
    ours = task.loss(outputs, target) / task.loss_denominator(target)
    assert torch.allclose(ours, F.cross_entropy(outputs, target, weight=weights, label_smoothing=0.1))


def test_metrics_are_scikit_learns(outputs: torch.Tensor, target: torch.Tensor) -> None:
    task = Classification(THREE)
    said, was = outputs.argmax(1).numpy(), target.numpy()
    metrics, details = task.metrics(outputs, target), task.details(outputs, target)["classes"]
    assert metrics["accuracy"].value == sk.accuracy_score(was, said)
    assert metrics["balanced_accuracy"].value == pytest.approx(sk.balanced_accuracy_score(was, said))
    assert metrics["macro_f1"].value == pytest.approx(sk.f1_score(was, said, average="macro"))
    assert metrics["loss"].value == pytest.approx(sk.log_loss(was, outputs.softmax(1).numpy()))
    assert details["confusion"] == sk.confusion_matrix(was, said).tolist()
    precision, recall, f1, count = sk.precision_recall_fscore_support(was, said)
    for k, row in enumerate(details["per_class"]):
        got = [row["precision"]["value"], row["recall"]["value"], row["f1"]["value"], row["count"]]
        assert got == pytest.approx([precision[k], recall[k], f1[k], count[k]])
        assert row["f1"]["low"] <= row["f1"]["value"] <= row["f1"]["high"]


def test_the_five_likeliest_of_more_than_five_classes() -> None:
    outputs = torch.randn(300, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    target = torch.randint(0, 8, (300,), generator=torch.Generator().manual_seed(1))
    metric = Classification(Classes(tuple("abcdefgh"), "letter")).metrics(outputs, target)["top5_accuracy"]
    assert metric.value == sk.top_k_accuracy_score(target, outputs, k=5)
    assert metric.low < metric.value < metric.high
    five = Classification(Classes(tuple("abcde"), "letter"))
    assert "top5_accuracy" not in five.metrics(outputs[:, :5], target.clamp(max=4))


def test_a_class_that_is_absent_is_unknown_and_not_zero(outputs: torch.Tensor) -> None:
    target = torch.zeros(200, dtype=torch.int64)
    rows = Classification(THREE).details(outputs, target)["classes"]["per_class"]
    assert rows[1]["recall"]["value"] is None
    assert rows[1]["precision"]["value"] == 0


def test_one_output_decides_between_two_classes() -> None:
    task = Classification(Classes(("no", "yes"), "answer"))
    outputs = torch.tensor([[2.0], [-1.0]])
    assert task.decide(outputs).tolist() == [1, 0]
    probabilities = task.probabilities(outputs)
    assert probabilities is not None
    assert torch.allclose(probabilities, torch.tensor([[0.1192, 0.8808], [0.7311, 0.2689]]).double(), atol=1e-4)
    rows = task.predictions(outputs)
    assert [r["answer"] for r in rows] == ["yes", "no"]
    assert rows[0]["probability"] == pytest.approx(0.8808, abs=1e-4)


def test_a_perceptrons_scores_are_not_called_probabilities() -> None:
    rows = Classification(Classes(("no", "yes")), "perceptron").predictions(torch.tensor([[3.0]]))
    assert rows == [{"class": "yes", "score yes": 3.0}]


def test_the_worst_mistakes_are_the_losses(outputs: torch.Tensor, target: torch.Tensor) -> None:
    rows = Classification(THREE).example_results(outputs, target)
    assert [r["loss"] for r in rows] == pytest.approx(F.cross_entropy(outputs, target, reduction="none").tolist())
    assert sum(r["wrong"] for r in rows) == (outputs.argmax(1) != target).sum()


def test_regression_is_in_the_targets_units() -> None:
    task = Regression(Value("price", mean=100.0, scale=10.0))
    outputs, target = torch.tensor([[1.0], [0.0], [-1.0]]), torch.tensor([1.5, 0.0, -2.0])
    error = np.array([-5.0, 0.0, 10.0])
    metrics = task.metrics(outputs, target)
    assert metrics["rmse"].value == pytest.approx(np.sqrt((error**2).mean()))
    assert metrics["mae"].value == pytest.approx(np.abs(error).mean())
    assert metrics["r2"].value == pytest.approx(sk.r2_score([115, 100, 80], [110, 100, 90]))
    assert task.fast_metrics(outputs, target)["rmse"] == pytest.approx(metrics["rmse"].value)
    assert task.predictions(outputs)[0] == {"price": 110.0}
    assert task.details(outputs, target)["values"]["actual"] == pytest.approx([115, 100, 80])
    assert task.baseline(torch.tensor([0.0, 0.0]), target)["value"] == pytest.approx(10 * np.sqrt((1.5**2 + 4) / 3))


@pytest.mark.parametrize("loss", Regression.LOSSES)
def test_the_fused_sum_is_the_sum_of_losses(loss: str) -> None:
    task, outputs, target = Regression(Value(), loss), torch.randn(50, 1).double(), torch.randn(50).double()
    assert torch.allclose(task.loss(outputs, target), task.losses(outputs, target).sum())


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_what_a_step_learns_from_is_the_sum_of_the_losses(columns: int, weighted: bool) -> None:
    """A step's loss is summed within one kernel: its gradient is bit for bit that of the sum of each example's."""
    classes = THREE if columns == 3 else Classes(("a", "b"), "letter")
    weights = torch.tensor([0.5, 1.0, 2.0][: len(classes.names)]) if weighted else None
    task = Classification(classes, class_weights=weights, label_smoothing=0.1)
    outputs, target = torch.randn(50, columns), torch.randint(0, len(classes.names), (50,))
    one, other = (outputs.clone().requires_grad_() for _ in range(2))
    total, each = task.loss(one, target), task.training_losses(other, target).sum()
    assert torch.allclose(total, each)
    total.backward(torch.full_like(total, 1 / 50))
    (each * (1 / 50)).backward()
    assert torch.equal(one.grad, other.grad)  # type: ignore[arg-type]


def test_a_loss_that_does_not_fit_the_target_is_rejected() -> None:
    classes, value = TableSpec(("a",), THREE), TableSpec(("a",), Value())
    with pytest.raises(SettingError, match="Invalid loss=cross_entropy for numbers: must be one of mse"):
        task_for(value, "cross_entropy")
    with pytest.raises(SettingError, match="label_smoothing"):
        task_for(value, label_smoothing=0.1)
    assert task_for(classes, "mse").name == "classification"
    assert task_for(value).name == "regression"


def test_squared_error_on_classes_compares_with_one_hot_rows(outputs: torch.Tensor, target: torch.Tensor) -> None:
    task = Classification(THREE, "half_squared_error")
    expected = 0.5 * (outputs - F.one_hot(target, 3)).square().sum()
    assert torch.allclose(task.loss(outputs, target), expected)


@pytest.mark.parametrize("loss", Classification.LOSSES)
def test_losses_of_many_classes_are_made_for_some_examples_after_others(
    loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(0)
    outputs, target = torch.randn(23, 5, generator=generator), torch.randint(0, 5, (23,), generator=generator)
    weighs = loss == "cross_entropy"
    weights, names = torch.tensor([1.0, 2.0, 0.5, 1.0, 3.0]), tuple("abcde")
    task = Classification(Classes(names), loss, 0.1 if weighs else 0.0, weights if weighs else None)
    whole, each, metrics = task.loss(outputs, target), task.losses(outputs, target), task.metrics(outputs, target)
    seen: list[int] = []
    plain, learned, entropy = task._reported_losses, task.training_losses, task._cross_entropy
    monkeypatch.setattr(task, "_reported_losses", lambda o, t: (seen.append(len(o)), plain(o, t))[1])
    monkeypatch.setattr(task, "training_losses", lambda o, t: (seen.append(len(o)), learned(o, t))[1])
    monkeypatch.setattr(task, "_cross_entropy", lambda o, t, **how: (seen.append(len(o)), entropy(o, t, **how))[1])
    monkeypatch.setattr(classification, "CELLS", 20)
    assert torch.equal(task.loss(outputs, target), whole)
    assert torch.equal(task.losses(outputs, target), each)
    assert task.metrics(outputs, target) == metrics
    assert max(seen) == 4
    seen.clear()
    task.loss(outputs.requires_grad_(), target)  # of what is learned from all is kept, and at once is quicker
    assert seen[0] == 23
