"""Simple models beside the score of a single run: those that cost little beside its training."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from ...core.errors import CutawayError
from ...data.dataset_base import DataSet, SequenceSplit, Split
from ...data.task_sequence import part_of
from ...runs.run import Run
from ...statistics.intervals import Metric
from ...tasks.classification import Classification
from ...tasks.regression import Regression
from ...tasks.task import HIGHER_IS_BETTER, Task
from ...training.schemas import read_evaluation, write_evaluation
from ...views.run.outcome import headline
from .baseline_models import loaded
from .baselines import Baseline, baselines_for

FRACTION = 0.1  # of the training time, at most, for all of them together
LEAST = 0.25  # seconds that must be left for another one to be begun
FIRST, GROWTH = 32, 4  # training examples that a model is timed on first, and how many times more after that
MARGIN = 1.3  # by which a fit may take longer than expected
UNCUT = 2_000  # training examples, at most, of data that cannot be cut to time a model on a few


def hold_against_simple(run: Run) -> None:
    """Fit the simple models for a run's data, as many as take less than a tenth of its training time together, and
    keep in evaluation.json what each scores on the split that the run was judged by.

    Nothing is done where there is no time, where that is known already, or where the data is not at hand any more.
    """
    evaluation = read_evaluation(run.folder)
    seconds = FRACTION * (run.about.get("seconds") or 0.0)
    if evaluation is None or "simple" in evaluation or seconds < LEAST:
        return
    if type(run.task) is not Classification and not isinstance(run.task, Regression):
        return
    try:
        data = run.data()
    except CutawayError:  # which `cutaway evaluate RUN` says
        return
    loaded()  # once in a process, and no part of what fitting takes
    end = time.perf_counter() + seconds
    split = data.splits.get(evaluation["split"])
    found = _scores(run.task, data, split, headline(evaluation), end) if split is not None else None
    if found:
        write_evaluation(run.folder, {**evaluation, "simple": found})


def _scores(task: Task, data: DataSet, split: Split, key: str, end: float) -> dict[str, Any] | None:
    """What the models score by the metric `key`, best first, and which there was no time for; None where none was
    fitted. The constant one is known to the run already."""
    baselines = baselines_for(data, task)[1:]
    scored: list[tuple[Baseline, Metric]] = []
    left_out = []
    for baseline in reversed(baselines):  # boosting takes the longest
        metric = _in_time(baseline, task, data, split, key, end)
        if metric is None:
            left_out.append(baseline.name)
        else:
            scored.append((baseline, metric))
    sign = -1 if key in HIGHER_IS_BETTER else 1
    scored.sort(key=lambda one: sign * one[1].value)
    models = [{"name": b.name, "explanation": b.explanation, **m.to_json()} for b, m in scored]
    return {"metric": key, "models": models, "left_out": left_out} if models else None


def _in_time(baseline: Baseline, task: Task, data: DataSet, split: Split, key: str, end: float) -> Metric | None:
    """The model's score; None where it would not be done by the `end`.

    It is fitted on a few examples, and then on more and more, as long as what the next fit takes, by the last two, is
    left.
    """
    total = len(data.splits["train"])
    timed: list[tuple[int, float]] = []  # examples and seconds
    for count in _sizes(data, total):
        if time.perf_counter() + _expected(timed, count) > end:
            return None
        began = time.perf_counter()
        part, asked = (
            (data, split) if count == total else (_cut(data, count), _some(split, count * len(split) // total))
        )
        same = next((one for one in baselines_for(part, task) if one.name == baseline.name), None)
        if same is None or asked.target is None:
            return None
        try:
            outputs = same.fit(part, 0).outputs(asked)
        except (CutawayError, ValueError):  # what so few examples do not suffice for
            if count == total:
                return None
        else:
            if count == total:
                return task.metrics(outputs, asked.target)[key]
        timed.append((count, time.perf_counter() - began))
    return None


def _expected(timed: Sequence[tuple[int, float]], count: int) -> float:
    """The seconds that a fit on so many examples takes, a little more than the line through the last two says."""
    if not timed:
        return LEAST
    (most, last), (fewer, before) = timed[-1], timed[-2] if len(timed) > 1 else (0, 0.0)
    return MARGIN * (last + max(0.0, (last - before) / (most - fewer)) * (count - most))


def _sizes(data: DataSet, total: int) -> Sequence[int]:
    """How many training examples to fit on, one after another; the last is all of them."""
    train = data.splits["train"]
    if hasattr(train, "plan") and not isinstance(train, SequenceSplit):  # examples that go together cannot be cut
        return [total] if total <= UNCUT else []
    sizes = [FIRST]
    while sizes[-1] * GROWTH < total:
        sizes.append(sizes[-1] * GROWTH)
    return [*(size for size in sizes if 2 * size <= total), total]


def _cut(data: DataSet, count: int) -> DataSet:
    return replace(data, splits={**data.splits, "train": _some(data.splits["train"], count)})


def _some(split: Split, count: int) -> Split:
    """So many examples of a split, one at least, from all over it."""
    order = torch.randperm(len(split), generator=torch.Generator().manual_seed(0))
    return part_of(split, order[: max(1, count)].sort().values)
