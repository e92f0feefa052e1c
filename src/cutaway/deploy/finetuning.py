"""A run's model that learns on, from its weights, on the same data and split: what pruning and quantization share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.errors import SettingError
from ..data.dataset_base import IN_MEMORY
from ..runs.run import Run
from ..training.train import fit

RATE = 0.3  # of the run's learning rate: what was learned is to be kept, and what was lost to be made up for
# What a run may have been trained with and its going on is not, unless it is asked for.
ANEW = (
    "weights", "vectors", "epochs", "max_steps", "minutes", "lr", "warmup", "patience", "freeze_epochs", "layer_decay",
    "ema", "average_epochs", "lora", "sparsity", "prune_channels", "prune_pattern", "prune_scope", "prune_until", "qat",
    "qat_group",
)  # fmt: skip


def learn_on(
    run: Run, out: str | Path | None, usual: Mapping[str, Any], settings: Mapping[str, Any], judged: bool = True
) -> Run:
    """Train a run's model on with the run's settings, but for `usual` ones, and `settings` before both; a run in `out`.
    Whether it is `judged` on the test split is as in `fit`. Raises what a person can fix."""
    about = run.about
    before = about["settings"]
    kept = {key: value for key, value in before.items() if key not in ANEW and value is not None}
    given = {
        **run.with_own_tokenizer(kept),
        "freeze_epochs": 0,
        "layer_decay": 1.0,
        "warmup": 0.05,
        "lr": RATE * before["lr"],
        **usual,
        **settings,
        "weights": str(run.folder),
    }
    return fit(about["model"], run.source, given, out=out, judged=judged)


def reject_in_python(run: Run, what: str, as_in: str) -> None:
    """Raise SettingError where the model or the data of a run was given in Python: `what` is to be
    done there, `as_in` this line."""
    about = run.about
    for in_python, part in ((about.get("own"), "model"), (about["data"]["source"] == IN_MEMORY, "data")):
        if in_python:
            raise SettingError(f"The {part} of {run.folder} was given in Python: {what} there, as {as_in}.")
