"""Metrics over classes: scikit-learn's, on what is odd too, and never more memory than examples ask for."""

from __future__ import annotations

import json
import tracemalloc
import warnings

import numpy as np
import pytest
import sklearn.metrics as sk
import torch

from cutaway.core.spec import Classes, Tags
from cutaway.tasks import classification as confusion_module
from cutaway.tasks.classification import Classification, Confusion
from cutaway.tasks.tagging import Tagging
from cutaway.views.run.classification import confusion as confusion_view
from cutaway.views.run.classification import per_class


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
        assert metric.note or 0 <= metric.low <= metric.value <= metric.high <= 1
    few = np.unique(actual, return_counts=True)[1].min() < 5 or set(predicted) - set(actual)
    assert found["macro_f1"].note == ("no interval: fewer than 5 examples of a class" if few else "")
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


@pytest.mark.parametrize("sentences", [None, 60])
def test_intervals_are_nearly_those_of_resampled_units(sentences: int | None) -> None:
    """Of examples, and of clusters of five that are right or wrong together, which say less."""
    actual, predicted = drawn(300, 6, seed=1)
    unit = np.arange(300)
    if sentences:
        unit = np.arange(300) % sentences
        wrong = np.random.default_rng(2).random(sentences) < 0.4
        predicted = np.where(wrong[unit], (actual + 1) % 6, actual)
    found = Confusion(actual, predicted, 6, unit if sentences else None, "sentence").metrics()
    rng, scores = np.random.default_rng(5), []
    members = [np.flatnonzero(unit == k) for k in range(unit.max() + 1)]
    for _ in range(300):
        i = np.concatenate([members[k] for k in rng.integers(0, len(members), len(members))])
        truth, said = actual[i], predicted[i]
        balanced = [(said[truth == k] == k).mean() for k in np.unique(truth)]
        scores.append((np.mean(truth == said), np.mean(balanced), sk.f1_score(truth, said, average="macro")))
    widths = np.diff(np.percentile(scores, [2.5, 97.5], axis=0), axis=0)[0]
    for key, width in zip(("accuracy", "balanced_accuracy", "macro_f1"), widths):
        assert found[key].high - found[key].low == pytest.approx(width, rel=0.2), key


def test_classes_in_few_sentences_have_no_interval_and_are_named() -> None:
    actual = np.array([0, 1] * 30)
    actual[40:44] = 2
    found = Confusion(actual, actual, 3, np.arange(60) // 4, "sentence")
    note = "no interval: fewer than 5 sentences of class 'c'"
    assert {key: m.note for key, m in found.metrics(("a", "b", "c")).items()} == {
        "accuracy": "", "balanced_accuracy": note, "macro_f1": note,
    }  # fmt: skip
    rows = found.details(("a", "b", "c"))["per_class"]
    assert [row["recall"].get("note", "") for row in rows] == ["", "", "no interval: fewer than 5 sentences with it"]


@pytest.mark.parametrize("classes", [1_000, 250_000])
def test_memory_is_that_of_the_examples_and_not_of_a_matrix_of_classes(classes: int) -> None:
    """A matrix of 250 000 classes would take 500 GB."""
    actual, predicted = drawn(3000, classes)
    tracemalloc.start()
    try:
        Confusion(actual, predicted, classes).metrics()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**26


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
    assert view["summary"].startswith("Most frequent confusion: c5 predicted as c7, ")
    assert "the 1\u202f000 with the most examples are shown" in per_class(found, "test")["says"]


def test_tags_and_classes_have_the_same_metrics() -> None:
    names = tuple(f"t{i}" for i in range(9))
    actual, predicted = (torch.from_numpy(x) for x in drawn(60, 9))
    kept = torch.stack([predicted.float(), torch.ones(60), torch.ones(60)], 1).view(6, 10, 3)
    tagged = Tagging(Tags(names)).metrics(kept, actual.view(6, 10))
    classified = Classification(Classes(names)).metrics(torch.nn.functional.one_hot(predicted, 9).float(), actual)
    for key in ("accuracy", "balanced_accuracy", "macro_f1"):
        assert tagged[key].value == pytest.approx(classified[key].value, rel=1e-12)
