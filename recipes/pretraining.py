"""What masked-language pre-training gives: the same small network fine-tuned with it and without it, seed by seed."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import cutaway
from cutaway.commands.words import flatten


def train(recipe: dict[str, Any]) -> dict[str, Any]:
    """The gain in accuracy as a row of results: the mean over the seeds, with Student's interval of the paired gains.

    `first` is the pre-training, `then` the fine-tuning, `model` and its settings are those of both.
    """
    from .__main__ import student

    with tempfile.TemporaryDirectory() as folder:
        shared = {f"model.{key}": value for key, value in recipe["settings"]["model"].items()}
        name, before, after = recipe["model"], recipe["first"], recipe["then"]
        first = cutaway.train(name, before["data"], out=Path(folder) / "first", **shared, **before["settings"])
        seconds, gains, scores = float(first.about["seconds"]), [], {True: [], False: []}
        for seed in recipe["seeds"]:
            for taught in (True, False):
                # Both cut text in the same way, so that nothing but the weights at the beginning differs.
                given = flatten(after["settings"]) | {"tokenizer": str(first.folder), "seed": seed, "split_seed": seed}
                given |= {"weights": str(first.folder)} if taught else shared
                out = Path(folder) / f"{seed}-{taught}"
                run = cutaway.train(name, after["data"], out=out, **given)
                scores[taught].append(run.evaluate()["accuracy"].value)
                seconds += float(run.about["seconds"])
            gains.append(scores[True][-1] - scores[False][-1])
        about = first.about
    return {
        "command": f"python -m recipes {recipe['name']}",
        **student(gains),
        "runs": len(gains),
        "count": after["settings"]["max_samples"],
        "split": "training sentences",
        "beside": [
            ["accuracy with pre-training", sum(scores[True]) / len(gains)],
            ["without", sum(scores[False]) / len(gains)],
        ],
        "parameters": about["parameters"],
        "seconds": seconds,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"{about['machine']['threads']} threads, cpu, PyTorch {torch.__version__}",
    }
