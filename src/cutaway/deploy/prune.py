"""From a run to one whose model is pruned: the same data, split and settings, learning on from its weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.errors import SettingError
from ..runs.run import Run
from .finetuning import learn_on, reject_in_python

HOW = ("sparsity", "prune_channels")


def prune(run: Run, out: str | Path, settings: Mapping[str, Any]) -> Run:
    """Prune a run's model while it learns on from its weights, and leave a run in `out`. `settings` are those of
    training: `sparsity` or `prune_pattern`, `prune_channels` or both, and what is to be other than in the run.

    Epochs are half as many as the run had, 0.3 times its learning rate, unless they are given. Raises what a person can
    fix.
    """
    if not any(float(settings.get(key, 0)) for key in HOW) and settings.get("prune_pattern", "none") == "none":
        raise SettingError(
            "Say how much is to be pruned: sparsity=0.8 sets 80 % of the weights to 0, prune_pattern=2:4 two of each "
            "four, and prune_channels=0.5 takes half of the channels out, which makes the network smaller and faster."
        )
    if "weights" in settings:
        raise SettingError(f"weights cannot be given: what is pruned are those of {run.folder}. Leave it out.")
    reject_in_python(run, "prune it", "train(model, data, sparsity=0.8)")
    return learn_on(run, out, {"epochs": max(1, round(run.about["epochs_done"] / 2))}, settings)
