"""Images that a model draws, told by a classifier: which class it reads in each, and how far its features of them are
from those of real images.

The Fréchet distance is that of `cutaway.tasks.image_generation`, of what the classifier's head sees. It is from one
half of the test split; the floor is that of as many real images of the other half, for a sample of n images is at a
distance above 0 even from itself drawn again.
"""

from __future__ import annotations

import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

import cutaway
from cutaway.apps.cli.arguments import flatten
from cutaway.data.dataset_base import Split
from cutaway.inference.image_generation import as_images
from cutaway.runs.run import Run
from cutaway.statistics.intervals import proportion
from cutaway.tasks.image_generation import frechet_distance

TOGETHER = 500  # images that the classifier sees at a time


def train(recipe: dict[str, Any]) -> dict[str, Any]:
    """A training of the classifier, `judge`, and one of the model, as a row of results."""
    with tempfile.TemporaryDirectory() as folder:
        about = recipe["judge"]
        judge = cutaway.train(about["model"], recipe["data"], out=Path(folder) / "judge", **flatten(about["settings"]))
        run = cutaway.train(recipe["model"], recipe["data"], out=Path(folder) / "run", **flatten(recipe["settings"]))
        return measured(recipe, run, judge)


def measured(recipe: dict[str, Any], run: Run, judge: Run) -> dict[str, Any]:
    """The row of two runs: the recipe's metric, of which `accuracy` is the classifier's of the classes asked for."""
    evaluation = json.loads((run.folder / "evaluation.json").read_text())
    asked = dict(recipe["drawn"])
    levels, classes, _ = run.sample_tensors(**asked)
    logits, features = seen(judge, judge.preprocessing.examples(as_images(levels)))
    _, real = seen(judge, judge.data().splits["test"])
    half = len(real) // 2
    beside: list[list[Any]] = [
        ["Fréchet distance of the drawn images", frechet_distance(features, real[:half]), "distance"],
        [
            f"of {asked['count']} real ones",
            frechet_distance(real[half : half + asked["count"]], real[:half]),
            "distance",
        ],
        ["the classifier's accuracy on real ones", judge.evaluate()["accuracy"].value, "accuracy"],
    ]
    metrics = {name: {k: found[k] for k in ("value", "low", "high")} for name, found in evaluation["metrics"].items()}
    split, count = evaluation["split"], evaluation["count"]
    if recipe["metric"] == "accuracy":
        hit = proportion(float((logits.argmax(1) == classes).sum()), len(levels))
        metrics["accuracy"] = {"value": hit.value, "low": hit.low, "high": hit.high}
        beside.append(["loss", evaluation["metrics"]["loss"]["value"], "loss"])
        split, count = "drawn images", len(levels)
    about = run.about
    return {
        "command": about["command"],
        **metrics[recipe["metric"]],
        "split": split,
        "count": count,
        "beside": beside,
        "parameters": about["parameters"],
        "seconds": about["seconds"],
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"{about['machine']['threads']} threads, {about['machine']['device']}, PyTorch "
        f"{about['versions']['torch']}",
    }


@torch.no_grad()
def seen(judge: Run, split: Split) -> tuple[Tensor, Tensor]:
    """The classifier's logits (N, K) and what its head sees (N, d) of images."""
    model = cast(Any, judge.model).eval()
    logits, features = [], []
    for index in torch.arange(len(split)).split(TOGETHER):
        ((x, *_), _) = next(iter(split.batches([index])))
        logits.append(model(x))
        features.append(model.features(x))
    return torch.cat(logits), torch.cat(features)
