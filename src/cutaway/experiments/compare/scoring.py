"""Scores, significance of differences, and costs of trained models."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from ...core.errors import CutawayError, SettingError
from ...data.dataset_base import Split
from ...data.task_sequence import subset
from ...runs.run import Run
from ...statistics.comparison import Finish, differences, measure
from ...statistics.intervals import Values, too_few_windows
from ...training.cost_estimate import time_calls
from ..cost import measure_cost, read_counters
from ..settings import CompareSettings
from .baselines import baselines_for, load_sklearn
from .candidates import Candidate
from .result import CompareProgress
from .workers import COST_FILE, read_cost

DIVERGED = "its outputs are not finite: the training diverged; a smaller lr may help"


@dataclass
class ModelScore:
    """Scores and costs of one model."""

    name: str
    per_example: Values  # contributions to the metric, (seeds, examples)
    predict_one: Callable[[], object] | None  # for timing
    row: dict[str, Any]  # description and costs in compare.json


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
    scored = [_score_network(one, runs[one.model], name) for one in models]
    if settings.baselines:
        scored += _score_baselines(first, split, settings.seeds, progress)
    finish, higher = compared.finish, compared.higher_is_better
    measured = {one.name: measure(one.per_example, finish) for one in scored}
    excluded = [name for name, interval in measured.items() if not math.isfinite(interval.value)]
    scored = [one for one in scored if one.name not in excluded]
    if not scored:
        raise SettingError(f"No model can be compared: {DIVERGED}.")
    per_example = {one.name: one.per_example for one in scored}
    pairs = differences(per_example, higher, finish)
    timed = [one for one in scored if one.predict_one is not None]
    latency = dict(zip((one.name for one in timed), time_calls([one.predict_one for one in timed if one.predict_one])))
    rows = [
        {
            "name": one.name,
            **one.row,
            **measured[one.name].to_json(),
            "scores": [_mean_score(row, finish) for row in one.per_example],
            "milliseconds": latency.get(one.name),
        }
        for one in scored
    ]
    several = scored[0].per_example.shape[1] > 1
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
    if max(len(one.per_example) for one in scored) == 1:
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
        "tells_joules": bool(read_counters()),
    }


def _finite_or_none(values: dict[str, Any]) -> dict[str, Any]:
    """Replace values that are not finite by None, because JSON has none."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}


def _mean_score(row: Values, finish: Finish | None) -> float:
    mean = row.mean()
    return float(finish(mean) if finish else mean)


def _score_network(one: Candidate, runs: Sequence[Run], name: str) -> ModelScore:
    """Return the scores and costs of a network from its runs."""
    split = one.data.splits[name]
    per_example = [one.compared.per_example(*run.results(split)) for run in runs]
    costs = [read_cost(run.folder / COST_FILE) for run in runs if (run.folder / COST_FILE).is_file()]
    model = runs[0].place.model(runs[0].model, learns=False)
    (batch,) = split.batches([torch.arange(1)])
    inputs, _ = runs[0].place.batch(batch)

    @torch.inference_mode()
    def predict_one() -> object:
        return model(*inputs)

    return ModelScore(
        one.model,
        np.stack(per_example),
        predict_one,
        {
            "simple": False,
            "explanation": "",
            "seconds": float(np.mean([run.about["seconds"] for run in runs])),
            "parameters": one.parameters,
            "macs": one.macs,
            "joules": _mean([cost["joules"] for cost in costs]),
            "memory": max((cost["memory"] for cost in costs if cost["memory"] is not None), default=None),
            "epochs": [run.about["epochs_done"] for run in runs],
            "runs": [str(run.folder) for run in runs],
        },
    )


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of the known values."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _score_baselines(first: Candidate, split: Split, seeds: int, progress: CompareProgress) -> list[ModelScore]:
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
        per_example = [first.compared.per_example(one.outputs(split), split.target) for one in fitted]
        example = None if data.spec.kind in ("graph", "series") else subset(split, torch.arange(1))
        predict_one = partial(fitted[0].outputs, example) if example is not None else None
        found.append(
            ModelScore(
                baseline.name,
                np.stack(per_example),
                predict_one,
                {
                    "simple": True,
                    "explanation": baseline.explanation,
                    "seconds": cost.seconds / len(fitted),
                    "parameters": None,
                    "macs": None,
                    "joules": None if cost.joules is None else cost.joules / len(fitted),
                    "memory": cost.memory,
                },
            )
        )
    return found
