"""ROC, precision–recall and calibration: scikit-learn's metrics, read off where they are drawn, and bounded."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, precision_score, recall_score, roc_auc_score
from torch import Tensor

from cutaway.core.spec import Classes
from cutaway.tasks import roc_curves as module
from cutaway.tasks.classification import Classification
from cutaway.tasks.roc_curves import GRID, scores


def task(*names: str, loss: str = "cross_entropy") -> Classification:
    """A task of these classes."""
    return Classification(Classes(names), loss)


def drawn(n: int, classes: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Outputs that lean to the right class, and the classes."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(classes, (n,), generator=generator)
    outputs = torch.randn(n, classes, generator=generator, dtype=torch.float64)
    return outputs + 1.5 * torch.nn.functional.one_hot(target, classes), target


@pytest.mark.parametrize("one", [False, True])
def test_of_two_classes_the_second_is_told_from_the_first(one: bool) -> None:
    outputs, target = drawn(200, 2)
    if one:
        outputs = outputs[:, 1:] - outputs[:, :1]
    found = scores(task("no", "yes"), outputs, target)
    (curve,) = found["discrimination"]["classes"]
    p, was = (outputs[:, 0].sigmoid() if one else outputs.softmax(1)[:, 1]).numpy(), target.numpy() == 1
    assert curve["name"] == "yes"
    assert curve["auc"]["value"] == pytest.approx(roc_auc_score(was, p))
    assert curve["average_precision"]["value"] == pytest.approx(average_precision_score(was, p))
    for m in (curve["auc"], curve["average_precision"]):
        assert 0 <= m["low"] < m["value"] < m["high"] <= 1
    said = p > 0.5
    operating = curve["operating"]
    assert operating["recall"] == pytest.approx(recall_score(was, said))
    assert operating["precision"] == pytest.approx(precision_score(was, said))
    assert operating["false_positives"] == pytest.approx((said & ~was).sum() / (~was).sum())
    # The best that can be had: at most so many false positives, or at least so much recall.
    thresholds = np.append(np.unique(p), 2)
    rates = np.array([((p >= t)[~was].mean(), (p >= t)[was].mean()) for t in thresholds])
    for x, y in zip(GRID, curve["roc"]):
        assert y == pytest.approx(rates[rates[:, 0] <= x + 1e-9, 1].max())
    assert curve["precision"][0] in (0.0, 1.0)
    assert curve["precision"][100] == pytest.approx(was.mean(), abs=0.2)
    assert curve["fraction"] == pytest.approx(was.mean())


def test_each_of_several_classes_is_held_against_all_others() -> None:
    outputs, target = drawn(300, 4)
    found = scores(task(*"abcd"), outputs, target)["discrimination"]
    p = outputs.softmax(1).numpy()
    for curve in found["classes"]:
        k = "abcd".index(curve["name"])
        assert curve["auc"]["value"] == pytest.approx(roc_auc_score(target.numpy() == k, p[:, k]))
        assert "operating" not in curve


def test_classes_that_are_absent_or_alone_have_no_curve() -> None:
    outputs, target = drawn(40, 3)
    target[target == 2] = 0
    found = scores(task(*"abc"), outputs, target)["discrimination"]
    assert {curve["name"] for curve in found["classes"]} == {"a", "b"}
    alone = scores(task(*"abc"), outputs, torch.zeros(40, dtype=torch.int64))
    assert "discrimination" not in alone
    assert alone["calibration"]["bins"]
    assert scores(task(*"abc"), outputs * torch.nan, target) == {}


def test_scores_that_are_no_probabilities_are_not_calibrated() -> None:
    outputs, target = drawn(60, 2)
    found = scores(task("no", "yes", loss="perceptron"), outputs[:, 1:] - outputs[:, :1], target)
    assert set(found) == {"discrimination"}
    assert found["discrimination"]["classes"][0]["operating"]["threshold"] == 0.0


@pytest.mark.parametrize("classes", [2, 5])
def test_the_calibration_error_is_the_mean_distance_of_its_bins(classes: int) -> None:
    outputs, target = drawn(500, classes)
    found = scores(task(*map(str, range(classes))), outputs, target)["calibration"]
    p = outputs.softmax(1)
    said = p[:, 1] if classes == 2 else p.max(1).values
    so = (target == 1) if classes == 2 else p.argmax(1) == target
    bins = (said * 10).long().clamp(max=9)
    distance = sum(
        abs((so[bins == b].double().mean() - said[bins == b].mean()).item()) * (bins == b).double().mean().item()
        for b in range(10)
        if (bins == b).any()
    )
    assert found["error"]["value"] == pytest.approx(distance)
    assert found["error"]["note"] == "no interval: binned calibration error is biased upwards"
    assert found["error"]["low"] is found["error"]["high"] is None
    assert sum(found["counts"]) == 500 == sum(b["count"] for b in found["bins"])
    assert found["of"] == ("1" if classes == 2 else None)


def test_many_rows_and_many_classes_are_an_even_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ROWS", 50)
    outputs, target = drawn(1000, 3)
    found = scores(task(*"abc"), outputs, target)
    assert found["discrimination"]["examples"] == found["calibration"]["examples"] == 50
    outputs, target = drawn(40, 400, seed=1)
    many = scores(task(*map(str, range(400))), outputs, target)["discrimination"]
    assert len(many["classes"]) <= module.MOST_CLASSES
    assert sum("roc" in curve for curve in many["classes"]) == module.DRAWN
    monkeypatch.setattr(module, "MOST_CELLS", 4000)
    assert scores(task(*map(str, range(400))), outputs, target)["calibration"]["examples"] == 10
