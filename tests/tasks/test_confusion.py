"""Metrics over classes: scikit-learn's, on what is odd too, and never more memory than examples ask for."""

from __future__ import annotations

import json
import tracemalloc
import warnings

import numpy as np
import pytest
import sklearn.metrics as sk
import torch

from cutaway.spec import Classes, Tags
from cutaway.tasks import confusion as confusion_module
from cutaway.tasks.classification import Classification
from cutaway.tasks.confusion import Confusion
from cutaway.tasks.tagging import Tagging
from cutaway.views.run.classes import confusion as confusion_view
from cutaway.views.run.classes import per_class


def drawn(n: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    actual = rng.integers(0, classes, n)
    return actual, np.where(rng.random(n) < 0.6, actual, rng.integers(0, classes, n))


@pytest.mark.parametrize(
    ("actual", "predicted"),
    [
        drawn(200, 5),
        drawn(30, 12),  # some classes are absent on one side, some on both
        ([0, 0, 1, 1], [0, 2, 1, 1]),  # one is predicted and never occurs
        ([0, 1, 2, 2], [1, 1, 1, 1]),  # one answer to everything
        ([2, 2, 2], [2, 2, 2]),
        ([1, 1, 1], [0, 2, 2]),
        ([3], [3]),
        ([3], [0]),
    ],
)
def test_metrics_are_scikit_learns(actual: np.ndarray, predicted: np.ndarray) -> None:
    actual, predicted = np.array(actual), np.array(predicted)
    confusion = Confusion(actual, predicted, 12)
    found = confusion.metrics()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's, where a class is absent
        balanced = sk.balanced_accuracy_score(actual, predicted)
    assert found["accuracy"].value == pytest.approx(sk.accuracy_score(actual, predicted))
    assert found["balanced_accuracy"].value == pytest.approx(balanced)
    assert found["macro_f1"].value == pytest.approx(sk.f1_score(actual, predicted, average="macro"))
    for metric in found.values():
        assert 0 <= metric.low <= metric.value <= metric.high <= 1
    names = tuple("abcdefghijkl")
    details = confusion.details(names)
    assert details["confusion"] == sk.confusion_matrix(actual, predicted, labels=range(12)).tolist()
    precision, recall, f1, count = sk.precision_recall_fscore_support(
        actual, predicted, labels=range(12), zero_division=np.nan
    )
    for k, row in enumerate(details["per_class"]):
        got = [np.nan if row[m]["value"] is None else row[m]["value"] for m in ("precision", "recall", "f1")]
        assert [row["name"], row["count"]] == [names[k], count[k]]
        assert got == pytest.approx([precision[k], recall[k], f1[k]], nan_ok=True)


@pytest.mark.parametrize("many", [0, 10**9])
def test_intervals_are_those_of_resampled_examples(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of drawing, by the counts of cells and by examples, give the intervals of the bootstrap."""
    monkeypatch.setattr(confusion_module, "MANY", many)
    monkeypatch.setattr(confusion_module, "AT_A_TIME", 97)  # some resamples at a time are as all at once
    actual, predicted = drawn(300, 6, seed=1)
    found = Confusion(actual, predicted, 6).metrics()["macro_f1"]
    rng, scores = np.random.default_rng(5), []
    for _ in range(200):
        i = rng.integers(0, 300, 300)
        scores.append(sk.f1_score(actual[i], predicted[i], average="macro"))
    low, high = np.percentile(scores, [2.5, 97.5])
    assert found.low == pytest.approx(low, abs=0.02)
    assert found.high == pytest.approx(high, abs=0.02)


@pytest.mark.parametrize("classes", [1_000, 250_000])
def test_memory_is_that_of_the_examples_and_not_of_a_matrix_of_classes(
    classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A matrix of 250 000 classes would take 500 GB, and its resamples a thousand times as much."""
    monkeypatch.setattr(confusion_module, "RESAMPLES", 200)
    actual, predicted = drawn(3000, classes)
    tracemalloc.start()
    try:
        Confusion(actual, predicted, classes).metrics()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 * 8 * confusion_module.AT_A_TIME


def test_a_document_of_many_classes_holds_the_commonest_and_the_report_says_so() -> None:
    classes = 3000
    actual, predicted = drawn(20_000, classes)
    predicted[:50], actual[:50] = 7, 5
    names = tuple(f"c{i}" for i in range(classes))
    found = Confusion(actual, predicted, classes).details(names)
    assert len(json.dumps(found)) < 2_000_000
    assert "confusion" not in found
    assert len(found["cells"]) == confusion_module.SHOWN_CELLS
    first = found["cells"][0]
    assert first[:2] == ["c5", "c7"]
    assert first[2] == int(((actual == 5) & (predicted == 7)).sum())
    assert first[3] == int((actual == 5).sum())
    counts = np.bincount(actual, minlength=classes)
    assert len(found["per_class"]) == confusion_module.SHOWN_CLASSES
    assert min(row["count"] for row in found["per_class"]) >= np.sort(counts)[-confusion_module.SHOWN_CLASSES]
    view = confusion_view(found)
    assert view["summary"].startswith("Most often, c5 was taken for c7: ")
    assert "1\u202f000 have most examples" in per_class(found, "test")["says"]


def test_tags_and_classes_have_the_same_metrics() -> None:
    names = tuple(f"t{i}" for i in range(9))
    actual, predicted = (torch.from_numpy(x) for x in drawn(60, 9))
    kept = torch.stack([predicted.float(), torch.ones(60), torch.ones(60)], 1).view(6, 10, 3)
    tagged = Tagging(Tags(names)).metrics(kept, actual.view(6, 10))
    classified = Classification(Classes(names)).metrics(torch.nn.functional.one_hot(predicted, 9).float(), actual)
    for key in ("accuracy", "balanced_accuracy", "macro_f1"):
        assert tagged[key] == classified[key]
