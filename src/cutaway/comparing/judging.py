"""From trained models to what can be said of them: scores, differences, what each costs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch

from ..data.sets import DataSet, Split
from ..data.task_sequence import part_of
from ..errors import CutawayError
from ..files import read_json
from ..training.run import Run
from .baselines import baselines_for
from .contestants import Contestant
from .contributions import Compared, Values
from .progress import CompareProgress
from .statistics import differences, measure
from .timing import in_turns
from .worker import COST


@dataclass
class Judged:
    """What is known of one model."""

    name: str
    contributions: Values  # (seeds, examples)
    seconds: float  # of a training
    parameters: int | None
    macs: int | None
    answers: Callable[[], object] | None  # for one example, to be timed
    simple: bool = False
    explanation: str = ""
    more: dict[str, Any] = field(default_factory=dict)


def judged(
    models: Sequence[Contestant], runs: Mapping[str, Sequence[Run]], baselines: bool, progress: CompareProgress
) -> dict[str, Any]:
    """What compare.json says of one data set: every model's score on the test split, and every pair's difference."""
    first = models[0]
    name = "test" if "test" in first.data.splits else "val"
    split, compared = first.data.splits[name], first.compared
    all_judged = [_network(one, runs[one.model], name) for one in models]
    if baselines:
        all_judged += _simple(first.data, first, split, compared, progress)
    higher, finish = compared.higher_is_better, compared.finish
    contributions = {one.name: one.contributions for one in all_judged}
    pairs = differences(contributions, higher, finish)
    timed = [one for one in all_judged if one.answers is not None]
    latency = dict(zip((one.name for one in timed), in_turns([one.answers for one in timed if one.answers])))
    rows = [
        {
            "name": one.name,
            "simple": one.simple,
            "explanation": one.explanation,
            **asdict(measure(one.contributions, finish)),
            "scores": [_score(row, finish) for row in one.contributions],
            "seconds": one.seconds,
            "parameters": one.parameters,
            "macs": one.macs,
            "milliseconds": latency.get(one.name),
            **one.more,
        }
        for one in all_judged
    ]
    notes = [compared.note] if compared.note else []
    if name == "val":
        notes.append("There is no test split: the validation split, which chose the weights, judges, and flatters.")
    seeds = max(len(one.contributions) for one in all_judged)
    if seeds == 1:
        notes.append("One training of each says nothing of other trainings: seeds=5 does.")
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
        "models": sorted(rows, key=lambda row: (math.isnan(row["value"]), -row["value"] if higher else row["value"])),
        "differences": [asdict(pair) for pair in pairs],
        "notes": notes,
        "own_settings": own,
    }


def _score(row: Values, finish: Callable[[Values], Values] | None) -> float:
    mean = row.mean()
    return float(finish(mean) if finish else mean)


def _network(one: Contestant, runs: Sequence[Run], name: str) -> Judged:
    """A network, by its runs."""
    split, answered = one.data.splits[name], []
    for run in runs:
        results = run.results(split)
        answered.append(one.compared.of(*results))
    joules = [read_json(run.folder / COST)["joules"] for run in runs if (run.folder / COST).is_file()]
    known = [value for value in joules if value is not None]
    model = runs[0].place.model(runs[0].model, learns=False)
    (batch,) = split.batches([torch.arange(1)])
    inputs, _ = runs[0].place.batch(batch)

    @torch.inference_mode()
    def answers() -> object:
        return model(*inputs)

    return Judged(
        one.model,
        np.stack(answered),
        float(np.mean([run.about["seconds"] for run in runs])),
        one.parameters,
        one.macs,
        answers,
        more={
            "joules": sum(known) / len(known) if known else None,
            "epochs": [run.about["epochs_done"] for run in runs],
            "bytes": sum(p.nbytes for p in model.parameters()),
            "runs": [str(run.folder) for run in runs],
        },
    )


def _simple(
    data: DataSet, first: Contestant, split: Split, compared: Compared, progress: CompareProgress
) -> list[Judged]:
    """The simple models, each fitted once: chance has little part in them."""
    found = []
    for baseline in baselines_for(data, first.task):
        began = time.perf_counter()
        try:
            fitted = baseline.fit(data, 0)
        except (CutawayError, ValueError) as error:
            progress.note(f"{baseline.name} could not be fitted: {error}")
            continue
        seconds = time.perf_counter() - began
        contributions = compared.of(fitted.outputs(split), split.target)  # type: ignore[arg-type]  # it is labelled
        one = None if data.spec.kind in ("graph", "series") else part_of(split, torch.arange(1))
        found.append(
            Judged(
                baseline.name,
                contributions[None],
                seconds,
                None,
                None,
                partial(fitted.outputs, one) if one is not None else None,
                simple=True,
                explanation=baseline.explanation,
            )
        )
    return found
