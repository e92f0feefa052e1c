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
        20, "trainings in all, by all processes; those that are rejected untrained do not count", low=1
    )
    sampler: str = setting(
        "tpe",
        "how settings are drawn: tpe learns from the trials before, random does not, grid takes every combination of "
        "listed values, nsga2 searches the front of metric and MACs, evolution changes one setting of a good trial, "
        "darts learns the cells of cellnet by gradient",
        choices=SAMPLERS,
    )
    pruner: str = setting(
        "median",
        "which trials end early, by the validation metric of each epoch: median those that are worse than half of the "
        "others there, hyperband by its brackets",
        choices=PRUNERS,
    )
    max_macs: int | None = setting(
        None, "largest multiply-adds of an example: what has more is rejected untrained", low=1
    )
    max_parameters: int | None = setting(None, "most parameters: what has more is rejected untrained", low=1)
    population: int = setting(20, "evolution and nsga2: trials that new ones descend from", low=2)
    tournament: int = setting(
        5, "evolution: trials of the population, drawn at random, the best of which is changed", low=1
    )
    darts_epochs: int = setting(20, "darts: passes over the training split of the network of all operations", low=1)
    darts_lr: float = setting(3e-4, "darts: learning rate of the weights of operations", low=0.0)
    darts_order: int = setting(
        1, "darts: 1 takes the gradient at the weights there are, 2 at those that a step would lead to", low=1, high=2
    )


def reject_idle(settings: SearchSettings, typed: dict[str, object]) -> None:
    """Raise SettingError for a setting that the sampler does not use or support."""
    for key, samplers in FOR_SAMPLERS.items():
        if key in typed and settings.sampler not in samplers:
            raise SettingError(
                f"{key}={typed[key]} would change nothing: it is for sampler={' or '.join(samplers)}, and this is "
                f"{settings.sampler}. Leave it out."
            )
    if settings.sampler == "nsga2" and "pruner" in typed and settings.pruner != "none":
        raise SettingError(
            f"pruner={settings.pruner} ends trials by one metric, and sampler=nsga2 searches by two: leave pruner out."
        )


def require_optuna() -> None:
    """Raise SettingError if Optuna is not installed."""
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        raise SettingError(
            f"A search needs Optuna, which is not here ({error}): pip install 'cutaway[search]'."
        ) from error
