"""What a teacher gives: the same student with it and without it, seed by seed."""

from __future__ import annotations

import statistics
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import cutaway
from cutaway.apps.cli.arguments import flatten

from . import minilm
from .intervals import student


def train(recipe: dict[str, Any]) -> dict[str, Any]:
    """The gain in accuracy as a row of results: the mean over the seeds, with Student's interval of the paired gains.

    `teacher` is a model with its settings, `model` the student, which learns once by `settings` alone and once by
    those of `taught` too; both have the data and its split in common.
    """
    with tempfile.TemporaryDirectory() as folder:
        given = minilm.in_place(flatten(recipe["teacher"]["settings"]))
        teacher = cutaway.train(recipe["teacher"]["model"], recipe["data"], out=Path(folder) / "teacher", **given)
        seconds = float(teacher.about["seconds"])
        alone, taught = [], []
        for seed in recipe["seeds"]:
            beside = {**flatten(recipe["taught"]), "teacher": str(teacher.folder)}
            for scores, more in ((alone, {}), (taught, beside)):
                out = Path(folder) / f"{seed}-{len(more)}"
                settings = {**flatten(recipe["settings"]), "seed": seed, **more}
                run = cutaway.train(recipe["model"], recipe["data"], out=out, **settings)
                scores.append(run.evaluate()["accuracy"].value)
                seconds += float(run.about["seconds"])
        about, own = run.about, teacher.evaluate()["accuracy"].value
    return {
        "command": f"python -m recipes {recipe['name']}",
        **student([with_it - without for with_it, without in zip(taught, alone)]),
        "runs": len(taught),
        "count": about["data"]["splits"]["test"],
        "beside": [
            ["teacher", own, "accuracy"],
            ["student with it", statistics.mean(taught), "accuracy"],
            ["by labels alone", statistics.mean(alone), "accuracy"],
        ],
        "parameters": about["parameters"],
        "seconds": seconds,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"{about['machine']['threads']} threads, cpu, PyTorch {torch.__version__}",
    }
