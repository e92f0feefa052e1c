"""Scores, significance of differences, and costs of trained models."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch

from ...core.errors import CutawayError, SettingError
from ...data.dataset_base import Split
from ...data.task_sequence import subset
from ...runs.run import Run
from ...statistics.comparison import differences, measure
from ...statistics.intervals import too_few_windows
from ...training.cost_estimate import time_calls
from .baselines import baselines_for, load_sklearn
from .candidates import Candidate
from .contributions import Values
from .cost import counters, measure_cost
from .result import CompareProgress, CompareSettings
from .worker import COST, read_cost

DIVERGED = "its outputs are not finite: the training diverged; a smaller lr may help"


@dataclass
class ModelScore:
    """Scores and costs of one model."""

    name: str
    contributions: Values  # (seeds, examples)
    seconds: float  # of a training
    parameters: int | None
    macs: int | None
    answers: Callable[[], object] | None  # predicts one example, for timing
    simple: bool = False
    explanation: str = ""
    joules: float | None = None
    memory: int | None = None  # bytes
    more: dict[str, Any] = field(default_factory=dict)


def score_models(
    models: Sequence[Candidate],
    runs: Mapping[str, Sequence[Run]],
    settings: CompareSettings,
    progress: CompareProgress,
) -> dict[str, Any]:
    """Return the entry of one data set in compare.json.

    It has the test score of every model and the difference of every pair.
    """
    first = models[0]
    name = "test" if "test" in first.data.splits else "val"
    split, compared = first.data.splits[name], first.compared
    all_judged = [_network(one, runs[one.model], name) for one in models]
    if settings.baselines:
        all_judged += _baselines(first, split, settings.seeds, progress)
    finish, higher = compared.finish, compared.higher_is_better
    measured = {one.name: measure(one.contributions, finish) for one in all_judged}
    excluded = [name for name, interval in measured.items() if not math.isfinite(interval.value)]
    all_judged = [one for one in all_judged if one.name not in excluded]
    if not all_judged:
        raise SettingError(f"No model can be compared: {DIVERGED}.")
    contributions = {one.name: one.contributions for one in all_judged}
    pairs = differences(contributions, higher, finish)
    timed = [one for one in all_judged if one.answers is not None]
    latency = dict(zip((one.name for one in timed), time_calls([one.answers for one in timed if one.answers])))
    rows = [
        {
            "name": one.name,
            "simple": one.simple,
            "explanation": one.explanation,
            **measured[one.name].to_json(),
            "scores": [_score(row, finish) for row in one.contributions],
            "seconds": one.seconds,
            "parameters": one.parameters,
            "macs": one.macs,
            "milliseconds": latency.get(one.name),
            "joules": one.joules,
            "memory": one.memory,
            **one.more,
        }
        for one in all_judged
    ]
    several = all_judged[0].contributions.shape[1] > 1
    notes = [compared.note] if compared.note and several else []
    if name == "val":
        notes.append(
            "There is no test split: scores are on the validation split, which also selected the weights, so they are "
            "optimistic."
        )
    if not several:
        few = (
            f"There are {too_few_windows(len(split), compared.overlap)}"
            if len(split) > 1
            else "There is one test example"
        )
        notes.append(f"{few}: there are no intervals and no significance tests.")
    if max(len(one.contributions) for one in all_judged) == 1:
        notes.append("One training per model does not measure the variance between trainings: set seeds=5.")
    own = {one.model: one.own for one in models if one.own}
    return {
        "data_name": first.data.name,
        "task": first.task.name,
        "metric": compared.key,
        "higher_is_better": higher,
        "split": name,
        "count": len(split),
        "splits": {key: len(part) for key, part in first.data.splits.items()},
        "fingerprint": first.data.fingerprint,
        "split_hash": first.data.split_hash,
        "models": sorted(rows, key=lambda row: -row["value"] if higher else row["value"]),
        "differences": [_finite_or_none(asdict(pair)) for pair in pairs],
        "excluded": [{"model": name, "why": DIVERGED} for name in excluded],
        "notes": notes,
        "own_settings": own,
        "tells_joules": bool(counters()),
    }


def _finite_or_none(values: dict[str, Any]) -> dict[str, Any]:
    """Replace values that are not finite by None, because JSON has none."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}


def _score(row: Values, finish: Callable[[Values], Values] | None) -> float:
    mean = row.mean()
    return float(finish(mean) if finish else mean)


def _network(one: Candidate, runs: Sequence[Run], name: str) -> ModelScore:
    """Return the scores and costs of a network from its runs."""
    split, answered = one.data.splits[name], []
    for run in runs:
        results = run.results(split)
        answered.append(one.compared.of(*results))
    costs = [read_cost(run.folder / COST) for run in runs if (run.folder / COST).is_file()]
    model = runs[0].place.model(runs[0].model, learns=False)
    (batch,) = split.batches([torch.arange(1)])
    inputs, _ = runs[0].place.batch(batch)

    @torch.inference_mode()
    def answers() -> object:
        return model(*inputs)

    return ModelScore(
        one.model,
        np.stack(answered),
        float(np.mean([run.about["seconds"] for run in runs])),
        one.parameters,
        one.macs,
        answers,
        joules=_mean([cost["joules"] for cost in costs]),
        memory=max((cost["memory"] for cost in costs if cost["memory"] is not None), default=None),
        more={
            "epochs": [run.about["epochs_done"] for run in runs],
            "runs": [str(run.folder) for run in runs],
        },
    )


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of the known values."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _baselines(first: Candidate, split: Split, seeds: int, progress: CompareProgress) -> list[ModelScore]:
    """Fit the baselines, with as many seeds as the networks if they have randomness and once otherwise."""
    data, found = first.data, []
    load_sklearn()  # imported first, so that it is not counted
    for baseline in baselines_for(data, first.task):
        own_seeds = range(seeds if baseline.chance else 1)
        try:
            with measure_cost() as cost:
                fitted = [baseline.fit(data, seed) for seed in own_seeds]
        except (CutawayError, ValueError) as error:
            progress.note(f"{baseline.name} could not be fitted: {error}")
            continue
        assert split.target is not None, "the evaluated split has targets"
        answered = [first.compared.of(one.outputs(split), split.target) for one in fitted]
        example = None if data.spec.kind in ("graph", "series") else subset(split, torch.arange(1))
        answers = partial(fitted[0].outputs, example) if example is not None else None
        found.append(
            ModelScore(
                baseline.name,
                np.stack(answered),
                cost.seconds / len(fitted),
                None,
                None,
                answers,
                simple=True,
                explanation=baseline.explanation,
                joules=None if cost.joules is None else cost.joules / len(fitted),
                memory=cost.memory,
            )
        )
    return found
