"""What pre-training gives: the same network fine-tuned with it and without it, seed by seed."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import cutaway
from cutaway.apps.cli.arguments import flatten
from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings
from cutaway.runs.run import Run

from .intervals import student

UNLABELLED = ("sst2", "names")  # sets whose training texts can be learned from without their labels: `first.unlabelled`


def train(recipe: dict[str, Any]) -> dict[str, Any]:
    """The gain in accuracy as a row of results: the mean over the seeds, with Student's interval of the paired gains.

    `first` is the pre-training, each table of `then` a fine-tuning, the first of which gives the value; `model` and its
    settings are those of all. Each table of `probes` is a training of the head alone, which there is none of without.
    """
    with tempfile.TemporaryDirectory() as folder:
        before, shared = recipe["first"], {f"model.{k}": v for k, v in recipe["settings"].get("model", {}).items()}
        source = before.get("data") or _texts(before["unlabelled"], Path(folder))
        first = cutaway.train(recipe["model"], source, out=Path(folder) / "first", **shared, **before["settings"])
        seconds, told = float(first.about["seconds"]), []
        if "knn_accuracy" in (own := first.evaluate()):
            told.append(["nearest neighbours, all labels", own["knn_accuracy"].value, "accuracy"])
        rows = []
        for probe in recipe.get("probes", ()):
            runs = [_tuned(recipe, probe, first, folder, seed) for seed in recipe["seeds"]]
            told.append([probe["name"], statistics.mean(run.evaluate()["accuracy"].value for run in runs), "accuracy"])
            seconds += sum(float(run.about["seconds"]) for run in runs)
        for stage in recipe["then"]:
            found = list(_compared(recipe, stage, first, shared, Path(folder) / f"then-{len(rows)}"))
            rows.append(student([taught - untaught for taught, untaught, _ in found]))
            seconds += sum(s for *_, s in found)
            with_it, without = (statistics.mean(scores) for scores in list(zip(*found))[:2])
            told += [[f"{stage['name']}, with", with_it, "accuracy"], ["without", without, "accuracy"]]
            if len(rows) > 1:
                low, high = (f"{100 * rows[-1][end]:+.1f}" for end in ("low", "high"))
                told.append([f"gain ({low} to {high})", rows[-1]["value"], "accuracy_gain"])
        about = first.about
    return {
        "command": f"python -m recipes {recipe['name']}",
        **rows[0],
        "runs": len(recipe["seeds"]),
        "count": recipe["then"][0]["settings"]["max_samples"],
        "split": "training examples",
        "beside": told,
        "parameters": about["parameters"],
        "seconds": seconds,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"{about['machine']['threads']} threads, cpu, PyTorch {torch.__version__}",
    }


def _tuned(recipe: dict[str, Any], stage: dict[str, Any], first: Run, folder: str, seed: int) -> Run:
    given = flatten(stage["settings"]) | {"seed": seed, "split_seed": seed, "weights": str(first.folder)}
    return cutaway.train(recipe["model"], stage["data"], out=Path(folder) / f"{stage['name']}-{seed}", **given)


def _compared(
    recipe: dict[str, Any], stage: dict[str, Any], first: Run, shared: dict[str, Any], folder: Path
) -> Iterator[tuple[float, float, float]]:
    """For each seed the accuracy with pre-training and without it, and the seconds that both took."""
    for seed in recipe["seeds"]:
        given = {"seed": seed, "split_seed": seed} | flatten(stage["settings"])
        if first.about["data"]["kind"] == "text":  # cut in the same way, so that nothing but the weights differs
            given["tokenizer"] = str(first.folder)
        runs = [
            cutaway.train(recipe["model"], stage["data"], out=folder / f"{seed}-{i}", **given, **beginning)
            for i, beginning in enumerate(({"weights": str(first.folder)}, shared))
        ]
        taught, untaught = (run.evaluate()["accuracy"].value for run in runs)
        yield taught, untaught, sum(float(run.about["seconds"]) for run in runs)


def _texts(name: str, folder: Path) -> str:
    """A file of the texts that the set trains on, with an empty line between them and no labels."""
    assert name in UNLABELLED, name
    split = open_data(name, DataSettings()).splits["train"]
    rows = [split.row(i) for i in range(len(split))]
    (folder / "texts.txt").write_text("\n\n".join(row["text"] for row in rows if row is not None), encoding="utf-8")
    return str(folder / "texts.txt")
