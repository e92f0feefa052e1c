"""Samplers of a search: Optuna's samplers, regularized evolution, REINFORCE, grid search and proposed values.

T. Akiba, S. Sano, T. Yanase, T. Ohta, M. Koyama, Optuna: a next-generation hyperparameter optimization framework, 2019.
<https://arxiv.org/abs/1907.10902>

Each trial has a new sampler, with a seed from the search's seed and the number of earlier draws. A search that was
killed therefore continues with the same draws.

Import of the optional dependency Optuna.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, TrialState

from ..settings import SearchSettings
from .reinforce import Reinforce
from .space import Choice, Searched, Space


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Return the parts of the space as Optuna distributions."""
    return {name: distribution(one) for name, one in space.parts().items()}


def distribution(one: Searched) -> BaseDistribution:
    """Convert a range or a choice to an Optuna distribution."""
    if isinstance(one, Choice):
        return CategoricalDistribution(one.options)
    if one.whole:
        return IntDistribution(int(one.low), int(one.high), log=one.log)
    return FloatDistribution(one.low, one.high, log=one.log)


def sampler_for(
    settings: SearchSettings, space: Space, seed: int, taken: Sequence[Mapping[str, Any]], search_seed: int = 0
) -> optuna.samplers.BaseSampler:
    """Return the sampler of one trial with its seed. `taken` are the parts of existing trials."""
    if settings.sampler == "grid":
        order = list(space.grid())
        random.Random(0).shuffle(order)  # the same for every trial
        return FixedValuesSampler(next(one for one in order if one not in taken))
    if settings.sampler == "evolution":
        return RegularizedEvolution(distributions(space), settings.population, settings.tournament, seed)
    if settings.sampler == "reinforce":
        lr, decay = settings.reinforce_lr, settings.reinforce_decay
        return Reinforce(distributions(space), lr, decay, search_seed, seed)
    if settings.sampler == "nsga2":
        return optuna.samplers.NSGAIISampler(population_size=settings.population, seed=seed % 2**32)
    if settings.sampler == "random":
        return optuna.samplers.RandomSampler(seed=seed % 2**32)
    return optuna.samplers.TPESampler(seed=seed % 2**32)


class FixedValuesSampler(optuna.samplers.BaseSampler):
    """Sampler that returns given values."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return an empty space, because nothing is drawn jointly."""
        return {}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return nothing, because nothing is drawn jointly."""
        return {}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return the proposed value."""
        return self.values[param_name]


class RegularizedEvolution(optuna.samplers.BaseSampler):
    """Aging evolution: mutate one setting of the best of a few recent trials, and forget the oldest.

    E. Real, A. Aggarwal, Y. Huang, Q. V. Le, Regularized evolution for image classifier architecture search, AAAI 2019,
    algorithm 1. <https://arxiv.org/abs/1802.01548> The population is a queue of the last P finished trials, and the
    first P are random. The parent is the best of S trials that are drawn with replacement. The child is the parent with
    one setting redrawn among its other values.
    """

    def __init__(self, space: Mapping[str, BaseDistribution], population: int, tournament: int, seed: int) -> None:
        self.space, self.population, self.tournament = dict(space), population, tournament
        self.random = random.Random(seed)

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the whole space, because a child inherits all settings."""
        return self.space

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the child of a parent, or nothing until the population is full; settings are then drawn at random."""
        finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if len(finished) < self.population:
            return {}
        best = max if study.direction == optuna.study.StudyDirection.MAXIMIZE else min
        living = finished[-self.population :]
        parent = best(self.random.choices(living, k=self.tournament), key=lambda one: float(one.value or 0.0))
        child = dict(parent.params)
        name = self.random.choice(sorted(self.space))
        child[name] = draw_value(self.space[name], self.random, unlike=child[name])
        return child

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Draw any value."""
        return draw_value(param_distribution, self.random)


def draw_value(one: BaseDistribution, source: random.Random, unlike: Any = None) -> Any:
    """Draw a value uniformly, or log-uniformly for a logarithmic range, that differs from `unlike`."""
    if isinstance(one, CategoricalDistribution):
        return source.choice([choice for choice in one.choices if choice != unlike])
    assert isinstance(one, IntDistribution | FloatDistribution), "a search space has numbers and choices"
    whole = isinstance(one, IntDistribution)
    low, high = (one.low - 0.5, one.high + 0.5) if whole else (one.low, one.high)
    while True:
        if one.log:
            value = math.exp(source.uniform(math.log(low), math.log(high)))
        else:
            value = source.uniform(low, high)
        value = min(max(round(value) if whole else value, one.low), one.high)
        if value != unlike:
            return value


def pruner_for(name: str, epochs: int) -> optuna.pruners.BasePruner:
    """Return the pruner of that name for trials of `epochs` epochs."""
    if name == "median":
        return optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=max(2, epochs // 5))
    if name == "hyperband":
        return optuna.pruners.HyperbandPruner(min_resource=1, max_resource=max(epochs, 2), reduction_factor=3)
    return optuna.pruners.NopPruner()
