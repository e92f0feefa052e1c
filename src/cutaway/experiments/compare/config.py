"""Settings of a comparison. Settings of training and data are given in addition and apply to all models."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.config import setting


@dataclass(frozen=True)
class CompareSettings:
    """Settings of a comparison."""

    seeds: int = setting(3, "trainings of each model, with seeds 0, 1, 2, …; 1 says nothing of other trainings", low=1)
    trials: int = setting(
        0,
        "settings that are tried for each model before (lr, weight decay, dropout), by Optuna on the validation split",
        low=0,
    )
    macs: float | None = setting(
        None, "budget: multiply-adds of all forward passes of a training, which become so many steps", low=1.0
    )
    jobs: int | None = setting(
        None, "trainings at a time; auto: 2 where memory and processors allow. Scores do not depend on it", low=1
    )
    baselines: bool = setting(True, "hold the models against simple ones of scikit-learn")
