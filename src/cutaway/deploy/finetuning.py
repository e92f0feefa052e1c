"""Further training of a run's model on the same data and split, for pruning and quantization."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.errors import SettingError
from ..data.dataset_base import IN_MEMORY
from ..runs.run import Run
from ..training.train import train_model

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


def reject_in_python(run: Run, what: str, as_in: str) -> None:
    """Raise SettingError if the model or the data of a run was given in Python.

    `what` names the operation, and `as_in` the line of Python that performs it.
    """
    about = run.about
    for in_python, part in ((about.get("own"), "model"), (about["data"]["source"] == IN_MEMORY, "data")):
        if in_python:
            raise SettingError(f"The {part} of {run.folder} was given in Python: {what} there, as {as_in}.")
