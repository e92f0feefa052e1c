"""Regularized evolution and the grid as samplers of Optuna's kind, without a training."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from cutaway.experiments.search.samplers import RegularizedEvolution, distributions, draw_value, pruner_for, sampler_for
from cutaway.experiments.search.space import parse_space
from cutaway.experiments.settings import SearchSettings
from cutaway.models.registry import preset

SPACE = {
    "lr": FloatDistribution(1e-4, 1e-1, log=True),
    "width": IntDistribution(1, 4),
    "op": CategoricalDistribution(("a", "b", "c")),
}


def searched(score: Callable[[dict[str, Any]], float], trials: int, population: int, tournament: int) -> Any:
    study = optuna.create_study(direction="maximize")
    for n in range(trials):
        study.sampler = RegularizedEvolution(SPACE, population, tournament, seed=n)
        trial = study.ask(fixed_distributions=SPACE)
        study.tell(trial, score(trial.params))
    return study.get_trials()


def test_a_child_is_its_parent_with_one_setting_changed() -> None:
    trials = searched(lambda params: params["width"] - params["lr"], 30, population=6, tournament=3)
    for n, child in enumerate(trials[6:], 6):
        living = trials[n - 6 : n]
        changed = [sum(child.params[k] != one.params[k] for k in SPACE) for one in living]
        assert 1 in changed, "its parent is among the last six, and one setting is another"


def test_the_oldest_is_forgotten_however_good_it_was() -> None:
    space = {f"x{i}": FloatDistribution(0, 1) for i in range(8)}
    study = optuna.create_study(direction="maximize")
    for n in range(40):
        study.sampler = RegularizedEvolution(space, population=3, tournament=3, seed=n)
        study.tell(study.ask(fixed_distributions=space), 0.0 if n else 1e9)
    first, *_, last = study.get_trials()
    assert sum(last.params[k] != first.params[k] for k in space) > 3, "without age it would be the parent of all"


def test_with_a_tournament_of_many_the_parent_is_the_best_of_the_living() -> None:
    trials = searched(lambda params: params["width"], 20, population=4, tournament=200)
    for n, child in enumerate(trials[4:], 4):
        best = max(one.value for one in trials[n - 4 : n])
        parents = [one for one in trials[n - 4 : n] if one.value == best]
        assert any(sum(child.params[k] != one.params[k] for k in SPACE) == 1 for one in parents)


@pytest.mark.parametrize("name", SPACE)
def test_what_is_drawn_is_within_and_not_what_was(name: str) -> None:
    one, source = SPACE[name], random.Random(0)
    values = [draw_value(one, source) for _ in range(400)]
    assert all(one._contains(one.to_internal_repr(value)) for value in values)
    assert all(draw_value(one, source, unlike=values[0]) != values[0] for _ in range(50))
    if name == "lr":
        assert 0.4 < sum(value < 10**-2.5 for value in values) / 400 < 0.6, "evenly by the logarithm"
    if name == "width":
        assert all(60 < values.count(n) < 140 for n in range(1, 5)), "both ends as often as the others"


def test_a_grid_goes_on_with_what_was_not_tried() -> None:
    space = parse_space(preset("mlp"), {"optimizer": "adam,sgd", "batch_size": "3,4"}, {})
    settings = SearchSettings(sampler="grid")
    tried: list[dict[str, Any]] = []
    for n in range(4):
        study = optuna.create_study(sampler=sampler_for(settings, space, n, tried))
        tried.append(study.ask(fixed_distributions=distributions(space)).params)
    assert len({str(sorted(one.items())) for one in tried}) == 4


def test_pruners_are_optunas() -> None:
    names = ("median", "hyperband", "none")
    assert [type(pruner_for(name, 10)).__name__ for name in names] == ["MedianPruner", "HyperbandPruner", "NopPruner"]


def test_the_ends_of_whole_numbers_are_as_likely_as_those_between() -> None:
    source = random.Random(0)
    counts = Counter(draw_value(IntDistribution(1, 4), source) for _ in range(4_000))
    assert sorted(counts) == [1, 2, 3, 4]
    assert all(900 < count < 1_100 for count in counts.values())
