"""Settings of a search. Settings of training, data and model are searched or fixed."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.config import setting
from ...core.errors import SettingError

SAMPLERS = ("tpe", "random", "grid", "nsga2", "evolution", "darts")
PRUNERS = ("median", "hyperband", "none")
FOR_SAMPLERS = {
    "population": ("evolution", "nsga2"),
    "tournament": ("evolution",),
    "darts_epochs": ("darts",),
    "darts_lr": ("darts",),
    "darts_order": ("darts",),
}


@dataclass(frozen=True)
class SearchSettings:
    """Settings of a search: the sampler, the pruner and the limits."""

    trials: int = setting(
        20, "total number of trainings over all processes; trials rejected before training do not count", low=1
    )
    sampler: str = setting(
        "tpe",
        "sampler: tpe models previous trials, random samples independently, grid runs all combinations of listed "
        "values, nsga2 searches the Pareto front of metric and MACs, evolution mutates one setting of a good trial, "
        "darts learns the cells of cellnet by gradient",
        choices=SAMPLERS,
    )
    pruner: str = setting(
        "median",
        "early stopping of trials by the validation metric of each epoch: median stops those that are worse than the "
        "median at that epoch, hyperband uses its brackets",
        choices=PRUNERS,
    )
    max_macs: int | None = setting(
        None, "maximum multiply-adds per example; larger models are rejected before training", low=1
    )
    max_parameters: int | None = setting(
        None, "maximum number of parameters; larger models are rejected before training", low=1
    )
    population: int = setting(20, "evolution and nsga2: population size", low=2)
    tournament: int = setting(
        5, "evolution: tournament size, random trials of the population whose best is mutated", low=1
    )
    darts_epochs: int = setting(20, "darts: training epochs of the supernet", low=1)
    darts_lr: float = setting(3e-4, "darts: learning rate of the architecture weights", low=0.0)
    darts_order: int = setting(
        1, "darts: 1 for the first-order approximation, 2 for the gradient after one virtual step", low=1, high=2
    )


def reject_idle(settings: SearchSettings, typed: dict[str, object]) -> None:
    """Raise SettingError for a setting that the sampler does not use or support."""
    for key, samplers in FOR_SAMPLERS.items():
        if key in typed and settings.sampler not in samplers:
            raise SettingError(
                f"Invalid {key}={typed[key]}: only for sampler={' or '.join(samplers)}, and sampler is "
                f"{settings.sampler}. Leave it out."
            )
    if settings.sampler == "nsga2" and "pruner" in typed and settings.pruner != "none":
        raise SettingError(
            f"Invalid pruner={settings.pruner}: not supported with the two metrics of sampler=nsga2. Leave it out."
        )


def require_optuna() -> None:
    """Raise SettingError if Optuna is not installed."""
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        raise SettingError(
            f"A search needs Optuna, which is not installed ({error}): pip install 'cutaway[search]'."
        ) from error
