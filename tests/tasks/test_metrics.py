"""Every metric held to scikit-learn's, on whatever comes: classes that are absent, never said or alone, constants, one
example. Where scikit-learn puts a number in the place of nothing, the metric here is unknown (NaN)."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import sklearn.metrics as sk
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutaway.core.spec import Classes, Horizon, Tags, Value
from cutaway.data.dataset_base import IGNORED
from cutaway.statistics.intervals import Metric
from cutaway.tasks.classification import Classification
from cutaway.tasks.forecasting import Forecasting
from cutaway.tasks.regression import Regression
from cutaway.tasks.tagging import Tagging
from cutaway.tasks.task import HIGHER_IS_BETTER, KINDS

FEW = settings(max_examples=25, deadline=None, derandomize=True)
VERY_FEW = settings(FEW, max_examples=6)  # metrics that are resampled one by one
NAN = float("nan")


@st.composite
def labelled(draw: st.DrawFn) -> tuple[int, list[int], list[int]]:
    """How many classes there are, and what examples were and were taken for: some classes are never either."""
    classes = draw(st.integers(2, 6))
    count = draw(st.integers(1, 30))
    some = st.sampled_from(sorted(draw(st.sets(st.integers(0, classes - 1), min_size=1))))
    others = st.sampled_from(sorted(draw(st.sets(st.integers(0, classes - 1), min_size=1))))
    return (
        classes,
        draw(st.lists(some, min_size=count, max_size=count)),
        draw(st.lists(others, min_size=count, max_size=count)),
    )


def one_hot(said: list[int], classes: int) -> Tensor:
    return 3 * torch.nn.functional.one_hot(torch.tensor(said), classes).double()


def is_within(metric: Metric) -> bool:
    return metric.note.startswith("no interval: ") or metric.low <= metric.value <= metric.high


def expected_of(was: list[int], said: list[int]) -> dict[str, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of classes that are only said
        return {
            "accuracy": sk.accuracy_score(was, said),
            "balanced_accuracy": sk.balanced_accuracy_score(was, said),
            "macro_f1": sk.f1_score(was, said, average="macro", zero_division=0),
        }


@FEW
@given(labelled())
def test_metrics_of_classes(drawn: tuple[int, list[int], list[int]]) -> None:
    classes, was, said = drawn
    task = Classification(Classes(tuple("abcdef"[:classes]), "letter"))
    outputs, target = one_hot(said, classes), torch.tensor(was)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metrics = task.metrics(outputs, target)
        rows = task.details(outputs, target)["classes"]["per_class"]
    for name, value in expected_of(was, said).items():
        assert metrics[name].value == pytest.approx(value, abs=1e-12), name
        assert is_within(metrics[name]), name
    labels = list(range(classes))
    expected_loss = sk.log_loss(was, outputs.softmax(1).numpy(), labels=labels)
    assert metrics["loss"].value == pytest.approx(expected_loss, rel=1e-9)
    assert task.fast_metrics(outputs, target)["accuracy"] == pytest.approx(metrics["accuracy"].value)
    found = sk.precision_recall_fscore_support(was, said, labels=labels, zero_division=np.nan)
    for k, row in enumerate(rows):
        for name, column in zip(("precision", "recall", "f1"), found):
            value = NAN if row[name]["value"] is None else row[name]["value"]
            assert value == pytest.approx(float(column[k]), abs=1e-12, nan_ok=True), (name, k)
        assert row["count"] == found[3][k]


@FEW
@given(labelled())
def test_metrics_of_two_classes_by_one_score(drawn: tuple[int, list[int], list[int]]) -> None:
    was, said = ([k % 2 for k in split] for split in drawn[1:])
    task = Classification(Classes(("no", "yes"), "answer"))
    scores = torch.tensor(said)[:, None] * 4.0 - 1.5
    metrics = task.metrics(scores, torch.tensor(was))
    for name, value in expected_of(was, said).items():
        assert metrics[name].value == pytest.approx(value, abs=1e-12), name
    assert metrics["loss"].value == pytest.approx(
        sk.log_loss(was, scores[:, 0].double().sigmoid().numpy(), labels=[0, 1]), rel=1e-6
    )


@VERY_FEW
@given(labelled(), st.integers(1, 5))
def test_metrics_of_tags(drawn: tuple[int, list[int], list[int]], length: int) -> None:
    classes, was, said = drawn
    task = Tagging(Tags(("O", "B-x", "I-x", "B-y", "I-y", "B-z")[:classes]))
    rows = -(-len(was) // length)
    target = torch.full((rows * length,), IGNORED)
    target[: len(was)] = torch.tensor(was)
    outputs = torch.zeros(rows * length, classes)
    outputs[: len(said)] = one_hot(said, classes).float()
    target, outputs = target.view(rows, length), outputs.view(rows, length, classes)
    kept = task.summarize_outputs(outputs, target)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metrics = task.metrics(kept, target)
    for name, value in expected_of(was, said).items():
        assert metrics[name].value == pytest.approx(value, abs=1e-12), name
        assert is_within(metrics[name]), name
    probabilities = one_hot(said, classes).softmax(1).numpy()
    assert metrics["loss"].value == pytest.approx(sk.log_loss(was, probabilities, labels=range(classes)), rel=1e-5)


values = st.floats(-1e3, 1e3, width=32)


@VERY_FEW
@given(st.lists(st.tuples(values, values), min_size=2, max_size=30), st.floats(0.1, 1e4), st.floats(-1e4, 1e4))
def test_metrics_of_numbers(pairs: list[tuple[float, float]], scale: float, mean: float) -> None:
    said, was = (torch.tensor(split, dtype=torch.float64) for split in zip(*pairs))
    task = Regression(Value("price", mean=mean, scale=scale))
    actual, predicted = (task.in_units(split).numpy() for split in (was, said))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metrics = task.metrics(said[:, None], was)
    near = {"rel": 1e-9, "abs": 1e-9 * scale}
    assert metrics["rmse"].value == pytest.approx(sk.root_mean_squared_error(actual, predicted), **near)
    assert metrics["mae"].value == pytest.approx(sk.mean_absolute_error(actual, predicted), **near)
    assert task.fast_metrics(said[:, None], was)["rmse"] == pytest.approx(metrics["rmse"].value, **near)
    if np.ptp(actual) > 1e-6 * (1 + abs(mean)):
        assert metrics["r2"].value == pytest.approx(sk.r2_score(actual, predicted), rel=1e-6, abs=1e-9)
    assert is_within(metrics["rmse"])


@VERY_FEW
@given(st.floats(0.1, 1e4), st.floats(-1e4, 1e4), st.floats(-3, 3), st.integers(1, 12))
def test_r2_of_a_constant_is_unknown(scale: float, mean: float, value: float, count: int) -> None:
    """scikit-learn says 1 or 0 of it; there is no variance that could be explained. Rounding makes none either."""
    target = torch.full((count,), value, dtype=torch.float64)
    task = Regression(Value("price", mean=mean, scale=scale))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metrics = task.metrics(target[:, None] + 0.1, target)
    assert all(map(np.isnan, (metrics["r2"].value, metrics["r2"].low, metrics["r2"].high)))
    assert metrics["r2"].to_json() == {"value": None, "low": None, "high": None}
    assert metrics["mae"].value == pytest.approx(0.1 * scale)


@VERY_FEW
@given(st.lists(st.tuples(values, values), min_size=6, max_size=6), st.sets(st.integers(0, 5), max_size=5))
def test_metrics_of_forecasts(pairs: list[tuple[float, float]], absent: set[int]) -> None:
    """Two windows of three steps, of which some were not measured."""
    said, was = (torch.tensor(split, dtype=torch.float64) for split in zip(*pairs))
    was[list(absent)] = NAN
    task = Forecasting(Horizon(columns=("x",), steps=3, mean=(2.0,), scale=(5.0,), season_length=1, naive=()))
    metrics = task.metrics(said.view(2, 3), was.view(2, 3))
    there = ~was.isnan().numpy()
    actual, predicted = 5 * was.numpy()[there], 5 * said.numpy()[there]
    assert metrics["rmse"].value == pytest.approx(sk.root_mean_squared_error(actual, predicted), rel=1e-9, abs=1e-9)
    assert metrics["mae"].value == pytest.approx(sk.mean_absolute_error(actual, predicted), rel=1e-9, abs=1e-9)


def test_every_metric_that_can_decide_has_a_direction() -> None:
    """A new metric must be put on one side: one that nobody put would be minimized."""
    lower = {
        "loss", "perplexity", "bits_per_token", "bits_per_dimension", "rmse", "mae", "mse", "token_error", "word_error",
        "character_error", "sequence_error",
    }  # fmt: skip
    for kind in KINDS.values():
        named = getattr(kind, "monitors", ())
        assert set(named) <= lower | HIGHER_IS_BETTER, kind
        assert getattr(kind, "headline", "loss") in lower | HIGHER_IS_BETTER, kind
    assert not lower & HIGHER_IS_BETTER
