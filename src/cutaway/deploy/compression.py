"""Pruning and fine-tuning of a run, and the comparison of a compressed model with the original.

Pruning and quantization-aware training train the model of a run further on the same data and split. The compressed
model is compared with the original by score, size and inference time. Times are medians over rounds in which the
models take turns, so that a slowdown of the machine affects all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ..core.errors import IncompatibleSettingError, MissingSettingError, ResumeError
from ..data.dataset_base import IN_MEMORY
from ..runs.run import Run
from ..runs.train import train_model
from ..statistics.intervals import Metric
from ..tasks.task import headline_metric
from ..training.compression import measure_sparsity
from ..training.cost_estimate import time_calls

LR_FACTOR = 0.3  # fraction of the run's learning rate: enough to recover the loss without forgetting
# Settings of the run that further training does not inherit.
NOT_INHERITED = (
    "weights", "vectors", "epochs", "max_steps", "minutes", "lr", "warmup", "patience", "freeze_epochs", "layer_decay",
    "ema", "average_epochs", "lora", "sparsity", "prune_channels", "prune_pattern", "prune_scope", "prune_until", "qat",
    "qat_group",
)  # fmt: skip


def finetune(
    run: Run, out: str | Path | None, usual: Mapping[str, Any], settings: Mapping[str, Any], judged: bool = True
) -> Run:
    """Train a run's model further from its weights.

    Args:
        run: Run whose settings, data and split are used.
        out: Folder of the new run.
        usual: Settings that replace those of the run.
        settings: Settings that replace both.
        judged: Whether the new run is evaluated on the test split, as in `fit`.
    """
    about = run.about
    before = about["settings"]
    kept = {key: value for key, value in before.items() if key not in NOT_INHERITED and value is not None}
    given = {
        **run.with_own_tokenizer(kept),
        "freeze_epochs": 0,
        "layer_decay": 1.0,
        "warmup": 0.05,
        "lr": LR_FACTOR * before["lr"],
        **usual,
        **settings,
        "weights": str(run.folder),
    }
    return train_model(about["model"], run.source, given, out=out, judged=judged)


def reject_python_objects(run: Run, what: str, as_in: str) -> None:
    """Raise SettingError if the model or the data of a run was given in Python.

    `what` names the operation, and `as_in` the line of Python that performs it.
    """
    about = run.about
    for in_python, part in ((about.get("own"), "model"), (about["data"]["source"] == IN_MEMORY, "data")):
        if in_python:
            raise ResumeError(f"The {part} of {run.folder} was passed in Python: {what} in Python, e.g. {as_in}.")


PRUNE_SETTINGS = ("sparsity", "prune_channels")


def prune(run: Run, out: str | Path, settings: Mapping[str, Any]) -> Run:
    """Prune a run's model while it is trained further, and write a run to `out`.

    The epochs are half of the run's, with 0.3 times its learning rate, unless they are given.

    Args:
        run: Run to prune.
        out: Folder of the new run.
        settings: Settings of training: `sparsity` or `prune_pattern`, `prune_channels` or both, and any that differ
            from
            the run's.

    Returns:
        The new run.

    Raises:
        SettingError: If nothing is to be pruned, `weights` is given, or the model or data were given in Python.
    """
    if (
        not any(float(settings.get(key, 0)) for key in PRUNE_SETTINGS)
        and settings.get("prune_pattern", "none") == "none"
    ):
        raise MissingSettingError(
            "Missing amount of pruning: sparsity=0.8 sets 80 % of the weights to 0, prune_pattern=2:4 two of every "
            "four, and prune_channels=0.5 removes half of the channels, which makes the network smaller and faster."
        )
    if "weights" in settings:
        raise IncompatibleSettingError(f"Invalid weights: the weights of {run.folder} are pruned. Leave it out.")
    reject_python_objects(run, "prune it", "train(model, data, sparsity=0.8)")
    return finetune(run, out, {"epochs": max(1, round(run.about["epochs_done"] / 2))}, settings)


TIMED_BATCH_SIZES = (1, 32)  # batch sizes that are timed


@dataclass(frozen=True)
class ModelMeasurement:
    """Score and cost of one model."""

    run: str
    metric: str  # headline metric of the task
    score: Metric
    parameters: int
    sparsity: float  # fraction of zeros in the weights of linear, convolutional and recurrent layers
    bytes: int  # size of the weight files
    milliseconds: dict[int, float]  # by batch size: the median of several rounds

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**asdict(self), "score": self.score.to_json()}


def compare_runs(runs: Sequence[Run]) -> list[ModelMeasurement]:
    """Evaluate and time the models of runs on the same data. The test split is used if there is one."""
    data = runs[0].data()
    split = data.splits.get("test") or data.splits.get("val") or data.splits["train"]
    models = [run.place.model(run.model, learns=False) for run in runs]
    times: list[dict[int, float]] = [{} for _ in runs]
    for size in TIMED_BATCH_SIZES:
        (batch,) = split.batches([torch.arange(min(size, len(split)))])
        inputs, _ = runs[0].place.batch(batch)
        with torch.inference_mode():
            medians = time_calls([partial(model, *inputs) for model in models])
        for of_model, median in zip(times, medians):
            of_model[size] = median
    watch = headline_metric(runs[0].task)
    return [
        ModelMeasurement(
            str(run.folder),
            watch,
            run.evaluate()[watch],
            run.about["parameters"],
            measure_sparsity(model),
            sum(file.stat().st_size for file in Path(run.folder, "model").glob("*.safetensors")),
            milliseconds,
        )
        for run, model, milliseconds in zip(runs, models, times)
    ]
