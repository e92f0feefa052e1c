"""Baselines for the score of a single run, limited to a fraction of its training time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from ...core.errors import CutawayError
from ...data.dataset_base import DataSet, SequenceSplit, Split
from ...data.task_sequence import subset
from ...runs.run import Run
from ...statistics.intervals import Metric
from ...tasks.classification import Classification
from ...tasks.regression import Regression
from ...tasks.task import HIGHER_IS_BETTER, Task
from ...training.schemas import read_evaluation, write_evaluation
from ...views.run.outcome import headline
from .baseline_models import load_sklearn
from .baselines import Baseline, baselines_for

FRACTION = 0.1  # of the training time, the limit for all baselines together
LEAST = 0.25  # seconds that must remain to start another baseline
FIRST, GROWTH = 32, 4  # training examples of the first timed fit, and the factor between fits
MARGIN = 1.3  # factor by which a fit may exceed the expected time
UNCUT = 2_000  # maximum training examples of data that cannot be subsampled for timing


def check_baselines(run: Run) -> None:
    """Fit baselines for a run's data and store their scores on the run's evaluation split in evaluation.json.

    All baselines together take at most a tenth of the training time. Nothing is done if there is no time, if the scores
    exist already, or if the data are no longer available.
    """
    evaluation = read_evaluation(run.folder)
    seconds = FRACTION * (run.about.get("seconds") or 0.0)
    if evaluation is None or "simple" in evaluation or seconds < LEAST:
        return
    if type(run.task) is not Classification and not isinstance(run.task, Regression):
        return
    try:
        data = run.data()
    except CutawayError:  # `cutaway evaluate RUN` reports it
        return
    load_sklearn()  # imported once, and not counted as fitting time
    end = time.perf_counter() + seconds
    split = data.splits.get(evaluation["split"])
    found = _scores(run.task, data, split, headline(evaluation), end) if split is not None else None
    if found:
        write_evaluation(run.folder, {**evaluation, "simple": found})


def _scores(task: Task, data: DataSet, split: Split, key: str, end: float) -> dict[str, Any] | None:
    """Return the scores of the baselines by the metric `key`, best first, and the names of those without time.

    Return None if none was fitted. The constant baseline is left out, because the run reports it already.
    """
    baselines = baselines_for(data, task)[1:]
    scored: list[tuple[Baseline, Metric]] = []
    left_out = []
    for baseline in reversed(baselines):  # boosting is the slowest
        metric = _score_by(baseline, task, data, split, key, end)
        if metric is None:
            left_out.append(baseline.name)
        else:
            scored.append((baseline, metric))
    sign = -1 if key in HIGHER_IS_BETTER else 1
    scored.sort(key=lambda one: sign * one[1].value)
    models = [{"name": b.name, "explanation": b.explanation, **m.to_json()} for b, m in scored]
    return {"metric": key, "models": models, "left_out": left_out} if models else None


def _score_by(baseline: Baseline, task: Task, data: DataSet, split: Split, key: str, end: float) -> Metric | None:
    """Return the score of a baseline, or None if it would not finish by `end`.

    It is fitted on more and more examples, as long as the next fit, extrapolated from the last two, fits into the
    remaining time.
    """
    total = len(data.splits["train"])
    timed: list[tuple[int, float]] = []  # (examples, seconds)
    for count in _sizes(data, total):
        if time.perf_counter() + _expected_seconds(timed, count) > end:
            return None
        began = time.perf_counter()
        part, asked = (
            (data, split) if count == total else (_subset(data, count), _sample(split, count * len(split) // total))
        )
        same = next((one for one in baselines_for(part, task) if one.name == baseline.name), None)
        if same is None or asked.target is None:
            return None
        try:
            outputs = same.fit(part, 0).outputs(asked)
        except (CutawayError, ValueError):  # too few examples
            if count == total:
                return None
        else:
            if count == total:
                return task.metrics(outputs, asked.target)[key]
        timed.append((count, time.perf_counter() - began))
    return None


def _expected_seconds(timed: Sequence[tuple[int, float]], count: int) -> float:
    """Return the expected seconds of a fit on `count` examples.

    It is a little more than the line through the last two fits.
    """
    if not timed:
        return LEAST
    (most, last), (fewer, before) = timed[-1], timed[-2] if len(timed) > 1 else (0, 0.0)
    return MARGIN * (last + max(0.0, (last - before) / (most - fewer)) * (count - most))


def _sizes(data: DataSet, total: int) -> Sequence[int]:
    """Return the numbers of training examples to fit on, in order. The last is all of them."""
    train = data.splits["train"]
    if hasattr(train, "plan") and not isinstance(
        train, SequenceSplit
    ):  # examples that belong together cannot be subsampled
        return [total] if total <= UNCUT else []
    sizes = [FIRST]
    while sizes[-1] * GROWTH < total:
        sizes.append(sizes[-1] * GROWTH)
    return [*(size for size in sizes if 2 * size <= total), total]


def _subset(data: DataSet, count: int) -> DataSet:
    return replace(data, splits={**data.splits, "train": _sample(data.splits["train"], count)})


def _sample(split: Split, count: int) -> Split:
    """Return `count` random examples of a split, at least one, in their original order."""
    order = torch.randperm(len(split), generator=torch.Generator().manual_seed(0))
    return subset(split, order[: max(1, count)].sort().values)
