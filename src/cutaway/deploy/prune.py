"""Pruning of a run's model with further training on the same data, split and settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.errors import SettingError
from ..runs.run import Run
from .finetuning import finetune, reject_in_python

HOW = ("sparsity", "prune_channels")


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
    if not any(float(settings.get(key, 0)) for key in HOW) and settings.get("prune_pattern", "none") == "none":
        raise SettingError(
            "Missing amount of pruning: sparsity=0.8 sets 80 % of the weights to 0, prune_pattern=2:4 two of every "
            "four, and prune_channels=0.5 removes half of the channels, which makes the network smaller and faster."
        )
    if "weights" in settings:
        raise SettingError(f"Invalid weights: the weights of {run.folder} are pruned. Leave it out.")
    reject_in_python(run, "prune it", "train(model, data, sparsity=0.8)")
    return finetune(run, out, {"epochs": max(1, round(run.about["epochs_done"] / 2))}, settings)
