"""What a search gives: cells found at random, by evolution, REINFORCE and DARTS; settings beside the defaults."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import cutaway
from cutaway.core.metric_names import metric as words_of
from cutaway.models.cellnet import LARGEST, parse_cell
from cutaway.runs.run import Run

from .intervals import student


def cells(recipe: dict[str, Any]) -> dict[str, Any]:
    """The accuracy of cells found at random less that of cells that DARTS found at the same cost, as a row of results:
    the mean over the seeds, with Student's interval of the paired differences.

    Cost is what both have: multiply-adds of the forward passes of all training, of the supernet too. The cells are
    trained alike, and each search's winner is tested once.
    """
    fixed, ways = recipe["settings"], recipe["ways"]
    scores: dict[str, list[float]] = {way: [] for way in (*ways, "all 3×3")}
    work: dict[str, list[float]] = {way: [] for way in ways}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    idle: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in recipe["seeds"]:
            own = {**fixed, "seed": seed, "split_seed": seed}
            for way, how in ways.items():
                found = cutaway.search(
                    recipe["model"],
                    recipe["data"],
                    space=recipe["space"],
                    out=Path(folder) / f"{way}-{seed}",
                    **recipe["how"],
                    **how,
                    **own,
                )
                scores[way].append(_tested(found.run))
                work[way].append(sum(row["work"] for row in found.trials))
                seconds[way].append(sum(row["seconds"] for row in found.trials))
                if way == "darts":
                    assert found.best is not None, "the search has ended"
                    operations = parse_cell(found.best["model.arch"])
                    idle.append(float(sum(not operation.startswith("nor_conv") for operation in operations)))
                print(
                    way, seed, found.best and found.best["model.arch"], scores[way][-1], work[way][-1], seconds[way][-1]
                )
            whole = cutaway.train(
                recipe["model"], recipe["data"], out=Path(folder) / f"whole-{seed}", **{"model.arch": LARGEST}, **own
            )
            scores["all 3×3"].append(_tested(whole))
    gains = [a - b for a, b in zip(scores["random"], scores["darts"])]
    costs = [[f"multiply-adds of {way}, ×10⁹", mean(work[way]) / 1e9, "number"] for way in ways]
    times = [[f"seconds of {way}", mean(seconds[way]), "number"] for way in ways]
    told = [[f"accuracy of {way}", mean(values), "accuracy"] for way, values in scores.items()]
    beside = [*told, ["of 6 edges of darts without weights", mean(idle), "number"], *costs, *times]
    return _row(recipe, gains, beside, whole.about, sum(map(sum, seconds.values())))


def settings(recipe: dict[str, Any]) -> dict[str, Any]:
    """By how much the settings that a search has found are better than the defaults, as a row of results: the mean over
    the seeds, with Student's interval of the paired differences. Each seed has a split of its own, and each search
    tests its winner alone."""
    gains, scores, seconds = [], {"searched": [], "defaults": []}, 0.0
    name = recipe["measured"]
    with tempfile.TemporaryDirectory() as folder:
        for seed in recipe["seeds"]:
            own = {**recipe["settings"], "seed": seed, "split_seed": seed}
            usual = cutaway.train(recipe["model"], recipe["data"], out=Path(folder) / f"usual-{seed}", **own)
            how = {**recipe["how"], **own}
            out = Path(folder) / f"search-{seed}"
            found = cutaway.search(recipe["model"], recipe["data"], space=recipe["space"], out=out, **how)
            scores["defaults"].append(usual.evaluate()[name].value)
            scores["searched"].append(found.run.evaluate()[name].value)
            seconds += sum(row["seconds"] for row in found.trials) + float(usual.about["seconds"])
            print(seed, found.best, scores)
            sign = 1 if found.higher_is_better else -1
            gains.append(sign * (scores["searched"][-1] - scores["defaults"][-1]))
        about = found.run.about
    said = words_of(name)[0]
    beside = [[f"{said} {way}", mean(values), name] for way, values in scores.items()]
    return _row(recipe, gains, beside, about, seconds)


def mean(values: list[float]) -> float:
    """The mean."""
    return sum(values) / len(values)


def _tested(run: Run) -> float:
    return run.evaluate()["accuracy"].value


def _row(
    recipe: Mapping[str, Any], gains: list[float], beside: list[list[Any]], about: Mapping[str, Any], seconds: float
) -> dict[str, Any]:
    return {
        "command": f"python -m recipes {recipe['name']}",
        **student(gains),
        "runs": len(gains),
        "count": about["data"]["splits"]["test"],
        "split": "test",
        "beside": beside,
        "seconds": seconds,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"{about['machine']['threads']} threads, cpu, PyTorch {torch.__version__}",
    }
