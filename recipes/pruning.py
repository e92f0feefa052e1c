"""What a pruned network is worth beside the whole one: scores over sparsity and over channels; and lottery tickets.

After J. Frankle, M. Carbin, The lottery ticket hypothesis, 2018 <https://arxiv.org/abs/1803.03635>: a network is
trained, its smallest weights are pruned, those that are left go back to what they were before training, and so on,
round after round. What is left after so many rounds, the ticket, is trained beside the same connections with weights
with new random weights, and with the whole network.
"""

from __future__ import annotations

import csv
import statistics
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import cutaway
from cutaway.apps.cli.arguments import flatten
from cutaway.checkpoints.saving import save_model
from cutaway.deploy.compression import compare_runs, prune
from cutaway.models.registry import preset
from cutaway.training.compression import magnitude_masks, prunable_weights

from .intervals import student


def curve(recipe: dict[str, Any]) -> dict[str, Any]:
    """One training, then a pruning of it for each of `pruned`, which are settings of `cutaway prune`: the row is of the
    one that is `at`, and the others stand beside it, with how many times as fast they answer a batch of 32."""
    with tempfile.TemporaryDirectory() as folder:
        whole = cutaway.train(
            recipe["model"], recipe["data"], out=Path(folder) / "whole", **flatten(recipe["settings"])
        )
        asked = recipe["pruned"]
        runs = [whole, *(prune(whole, Path(folder) / str(i), settings) for i, settings in enumerate(asked))]
        found = compare_runs(runs)
        seconds, machine = sum(run.about["seconds"] for run in runs), whole.about["machine"]
        count = len(whole.data().splits["test"])
    names = ["whole", *(" ".join(f"{key}={value}" for key, value in settings.items()) for settings in asked)]
    at = names.index(recipe["at"])
    others: list[list[Any]] = []
    for name, one in zip(names, found):
        if name != recipe["at"]:
            others.append([name, one.score.value])
    others += [
        [f"{name}: times as fast at batch 32", found[0].milliseconds[32] / one.milliseconds[32], "times"]
        for name, one in zip(names, found)
        if "prune_channels" in name
    ]
    return {
        **found[at].score.to_json(),
        "command": f"python -m recipes {recipe['name']}",
        "count": count,
        "beside": others,
        "parameters": found[at].parameters,
        **_obtained(seconds, machine["threads"]),
    }


def lottery(recipe: dict[str, Any]) -> dict[str, Any]:
    """Tickets of one network for each of `seeds`: the row is how many points more the ticket has than its own
    connections with new random weights, after the whole training; beside it what all three have early and at the end,
    and when their validation loss is least."""
    found: dict[str, list[dict[str, float]]] = {"whole": [], "ticket": [], "random weights": []}
    seconds = 0.0
    for seed in recipe["seeds"]:
        with tempfile.TemporaryDirectory() as folder:
            runs = _tickets(recipe, seed, Path(folder))
            for name, of_kind in found.items():
                of_kind.append(_learned(runs[name], recipe["early"]))
            seconds += sum(run.about["seconds"] for run in runs.values())
            count, threads = runs["whole"].about["data"]["splits"]["test"], runs["whole"].about["machine"]["threads"]
    gains = [a["test"] - b["test"] for a, b in zip(found["ticket"], found["random weights"])]
    means = {name: {key: statistics.mean(row[key] for row in rows) for key in rows[0]} for name, rows in found.items()}
    return {
        **student(gains),
        "command": f"python -m recipes {recipe['name']}",
        "count": count,
        "runs": len(gains),
        "beside": [
            *([f"{name}, test", means[name]["test"], "accuracy"] for name in means),
            *(
                [f"{name}, validation after {recipe['early']} updates", means[name]["early"], "accuracy"]
                for name in means
            ),
            *([f"{name}, update of the least validation loss", means[name]["least"], "updates"] for name in means),
        ],
        **_obtained(seconds, threads),
    }


def _tickets(recipe: dict[str, Any], seed: int, folder: Path) -> dict[str, cutaway.Run]:
    """The whole network, the ticket and the same connections with new random weights, each trained."""
    given = {**flatten(recipe["settings"]), "seed": seed}
    found = preset(recipe["model"])
    own = {key.removeprefix("model."): value for key, value in given.items() if key.startswith("model.")}

    def drawn(number: int) -> nn.Module:
        torch.manual_seed(number)
        return found.build(found.configure(settings={**own, **recipe["shape"]}))

    def trained(model: nn.Module, name: str, sparsity: float) -> cutaway.Run:
        save_model(model, folder / f"{name}-begun", found)
        pruned = {"sparsity": sparsity, "prune_scope": "layer", "prune_until": 0.0} if sparsity else {}
        begun = {**given, **pruned, "weights": str(folder / f"{name}-begun"), "freeze_epochs": 0, "layer_decay": 1.0}
        return cutaway.train(recipe["model"], recipe["data"], out=folder / name, **begun)

    first = drawn(seed)
    masks = {name: torch.ones_like(weight, dtype=torch.bool) for name, weight in prunable_weights(first).items()}
    last = [*masks][-1]
    runs = {"whole": trained(_masked(first, masks), "whole", 0.0)}
    run = runs["whole"]
    for number in range(1, recipe["rounds"] + 1):
        learned = prunable_weights(run.model)
        for name, mask in masks.items():  # half as many of the last layer, as published
            rate = recipe["rate"] / 2 if name == last else recipe["rate"]
            fraction = 1 - (1 - rate) ** number
            (masks[name],) = magnitude_masks([learned[name].detach()], [mask], fraction)
        least = min(1 - mask.float().mean().item() for mask in masks.values())  # what is 0 stays so beyond that
        run = trained(_masked(drawn(seed), masks), f"round-{number}", least)
    runs["ticket"] = run
    runs["random weights"] = trained(_masked(drawn(seed + 1000), masks), "anew", least)
    return runs


@torch.no_grad()
def _masked(model: nn.Module, masks: dict[str, Tensor]) -> nn.Module:
    """The model with those weights alone."""
    for name, weight in prunable_weights(model).items():
        weight.mul_(masks[name])
    return model


def _learned(run: cutaway.Run, early: int) -> dict[str, float]:
    """How a run learned: its test accuracy, its validation accuracy early, and when its validation loss was least."""
    with (run.folder / "metrics.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["val_loss"]]
    return {
        "test": run.evaluate()["accuracy"].value,
        "early": next(float(row["val_accuracy"]) for row in rows if int(row["step"]) >= early),
        "least": float(min(rows, key=lambda row: float(row["val_loss"]))["step"]),
    }


def _obtained(seconds: float, threads: int) -> dict[str, Any]:
    return {
        "seconds": seconds,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"{threads} threads, cpu, PyTorch {torch.__version__}",
    }
