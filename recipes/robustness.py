"""What a classifier of images is worth under attack: accuracy over ε, the largest change of a pixel."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import cutaway
from cutaway.apps.cli.arguments import flatten
from cutaway.data.task_sequence import subset
from cutaway.training.objectives.supervised import AttackedSplit


def train(recipe: dict[str, Any]) -> dict[str, Any]:
    """One training, and its accuracy on the first `images` of the test split at every `eps`, by PGD of `steps` steps:
    the row is of the ε that is `at`, and the others stand beside it."""
    with tempfile.TemporaryDirectory() as folder:
        run = cutaway.train(recipe["model"], recipe["data"], out=Path(folder) / "run", **flatten(recipe["settings"]))
        test, found = subset(run.data().splits["test"], torch.arange(recipe["images"])), {}
        for eps in recipe["eps"]:
            split = test
            if eps:
                given = (run.task, run.preprocessing, run.place, "pgd", eps, recipe["steps"])
                split = AttackedSplit(test, run.place.model(run.model, learns=False), *given)
            found[eps] = run.task.metrics(*run.results(split))["accuracy"]
        about, at = run.about, recipe["at"]
    return {
        "command": f"python -m recipes {recipe['name']}",
        **found[at].to_json(),
        "split": "test",
        "count": recipe["images"],
        "beside": [[f"at ε = {eps:g}", m.value] for eps, m in found.items() if eps != at],
        "parameters": about["parameters"],
        "seconds": about["seconds"],
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"{about['machine']['threads']} threads, {about['machine']['device']}, PyTorch {torch.__version__}",
    }
