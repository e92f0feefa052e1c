"""Hyperparameter search before a comparison, with the same number of trials for each model, on the validation split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...checkpoints.factory import ModuleBuilder
from ...core.errors import CutawayError
from ..search.optuna_import import require_optuna
from .candidates import Candidate
from .progress import CompareProgress

SPACE = {"lr": "1e-4..1e-2:log", "weight_decay": "1e-5..1e-1:log"}
MODEL_SPACE = {"dropout": "0..0.5"}  # searched if the model has it


def tune_settings(one: Candidate, source: Any, folder: Path, trials: int, progress: CompareProgress) -> dict[str, Any]:
    """Return the settings of the best trial of a model. Interrupted trials are continued.

    No trial uses the test split. Raises SettingError if Optuna is not installed.
    """
    require_optuna()
    from ..search.progress import SearchProgress
    from ..search.study import search

    space = {key: value for key, value in SPACE.items() if key not in one.given}
    own = one.preset.setting_names
    space |= {f"model.{key}": value for key, value in MODEL_SPACE.items() if key in own}
    if not space:
        raise CutawayError("trials has nothing to search: lr and weight_decay are both given. Leave one of them out.")
    fixed = {key: value for key, value in one.given.items() if key != "tensorboard"}
    found = search(
        (one.model, one.preset.make) if isinstance(one.preset, ModuleBuilder) else one.model,
        source,
        {**fixed, **space, "trials": trials, "seed": 0},
        out=folder / "search",
        progress=SearchProgress(progress.shown),
        crowned=False,
    )
    best = found.best
    if best is None:
        progress.note(
            f"{one.model}: no trial was trained to its end, and it is compared with the settings of its card."
        )
        return {}
    progress.note(f"{one.model}: " + ", ".join(f"{key}={best[key]:.4g}" for key in space) + f", of {trials} trials")
    return {key: best[key] for key in space}
