"""REINFORCE: the estimate against the exact policy gradient, what the controller learns, and the search with it."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
import torch
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from torch import Tensor

from cutaway.core.errors import SettingError
from cutaway.experiments.search.reinforce import (
    Controller,
    ControllerTrainer,
    Reinforce,
    Sample,
    list_options,
    policy_loss,
    train_controller,
)
from cutaway.experiments.search.result import Search

from .conftest import Stop, Stopping, alike

SIZES = (3, 2, 4)
ALL = list(itertools.product(*map(range, SIZES)))
SPACE = {f"edge {i}": CategoricalDistribution(("a", "b", "c", "d", "e")) for i in range(6)}
CHOICES = {"lr": ["0.01", "0.1"], "model.hidden_dims": "4..6", "optimizer": "adam,sgd"}
Small = Callable[..., Search]


def controller(scale: float = 1.0) -> Controller:
    torch.manual_seed(0)
    made = Controller(SIZES).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(scale * torch.randn_like(parameter))  # far from uniform
    return made


def rewards() -> list[float]:
    source = random.Random(1)
    return [source.gauss(0.9, 0.3) for _ in ALL]


def gradient(of: Controller, value: Tensor) -> Tensor:
    found = torch.autograd.grad(value, list(of.parameters()), allow_unused=True)
    return torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for p, g in zip(of.parameters(), found)])


@pytest.mark.parametrize("baseline", [0.0, 0.7])
def test_the_expected_estimate_is_the_exact_policy_gradient(baseline: float) -> None:
    policy = controller(0.5)
    probabilities = [policy.log_prob(chosen).exp() for chosen in ALL]
    exact = gradient(policy, torch.stack([p * r for p, r in zip(probabilities, rewards())]).sum())
    estimates = [gradient(policy, -policy_loss(policy, c, r, baseline)) for c, r in zip(ALL, rewards())]
    expected = torch.stack([p.detach() * g for p, g in zip(probabilities, estimates)]).sum(0)
    torch.testing.assert_close(expected, exact, rtol=1e-10, atol=1e-13)
    assert exact.abs().max() > 1e-3


def test_a_baseline_near_the_mean_reward_lowers_the_variance() -> None:
    policy = controller(0.5)
    p = torch.stack([policy.log_prob(chosen).exp() for chosen in ALL]).detach()

    def variance(baseline: float) -> float:
        rows = torch.stack([gradient(policy, policy_loss(policy, c, r, baseline)) for c, r in zip(ALL, rewards())])
        mean = (p[:, None] * rows).sum(0)
        return float((p[:, None] * (rows - mean) ** 2).sum())

    mean = sum(float(q) * r for q, r in zip(p, rewards()))
    assert variance(mean) < 0.5 * variance(0.0)


def test_it_is_a_distribution_and_later_choices_depend_on_earlier_ones() -> None:
    policy = controller()
    total = torch.stack([policy.log_prob(chosen).exp() for chosen in ALL]).sum()
    torch.testing.assert_close(total, torch.ones((), dtype=torch.float64))
    first, second = policy.log_probabilities([0, 0])[2], policy.log_probabilities([1, 0])[2]
    assert (first - second).abs().max() > 1e-3
    with torch.random.fork_rng(devices=[]):
        state = torch.get_rng_state()
        train_controller(SIZES, [], 0.1, 0.9, 0)
        assert torch.equal(torch.get_rng_state(), state), "the random numbers of the caller are untouched"


def test_samples_follow_the_probabilities() -> None:
    policy, generator = controller(0.5), torch.Generator().manual_seed(0)
    drawn = [tuple(policy.sample(generator)) for _ in range(500)]
    for chosen in ALL:
        p = float(policy.log_prob(chosen).detach().exp())
        assert abs(drawn.count(chosen) / 500 - p) < 4.5 * (p * (1 - p) / 500) ** 0.5 + 1 / 500, chosen


def log_prob(samples: list[Sample], chosen: tuple[int, ...]) -> float:
    return float(train_controller(SIZES, samples, 0.01, 0.9, 3).controller.log_prob(chosen).detach())


def test_a_step_raises_what_was_better_than_the_baseline_and_lowers_what_was_worse() -> None:
    good, bad = (0, 1, 2), (2, 0, 1)
    assert log_prob([(good, 0.5)], good) == log_prob([], good), "the first sample has nothing to compare with"
    for chosen, reward, sign in ((good, 0.9, 1), (bad, 0.1, -1)):
        assert sign * (log_prob([(good, 0.5), (chosen, reward)], chosen) - log_prob([(good, 0.5)], chosen)) > 0


def test_the_baseline_is_the_moving_average_of_the_rewards_before() -> None:
    trainer = ControllerTrainer(SIZES, 0.01, 0.8, 0)
    found = []
    for reward in (1.0, 3.0, 1.4):
        trainer.step(((0, 0, 0), reward))
        found.append(trainer.baseline)
    assert found == pytest.approx([1.0, 0.8 * 1.0 + 0.2 * 3.0, 1.4])


def test_a_controller_that_is_kept_is_that_of_the_whole_history() -> None:
    samples: list[Sample] = [((0, 0, 0), 1.0), ((1, 1, 1), 3.0), ((2, 0, 3), 1.5)]
    for count in range(4):
        kept = train_controller(SIZES, samples[:count], 0.01, 0.9, 0)
    assert train_controller(SIZES, samples, 0.01, 0.9, 0) is kept
    new = ControllerTrainer(SIZES, 0.01, 0.9, 0)
    for sample in samples:
        new.step(sample)
    assert all(torch.equal(a, b) for a, b in zip(kept.controller.parameters(), new.controller.parameters()))
    other = train_controller(SIZES, [samples[1]], 0.01, 0.9, 0)
    assert other.samples == [samples[1]]
    assert train_controller(SIZES, [samples[1]], 0.01, 0.9, 1) is not other


def study_of(trials: int, seed: int, lr: float, direction: str = "maximize") -> list[float]:
    """The values of trials of a space where each edge has a score of its own, drawn by one controller."""
    source = random.Random(seed)
    score = {name: {o: source.random() for o in one.choices} for name, one in SPACE.items()}
    study = optuna.create_study(direction=direction)
    for n in range(trials):
        study.sampler = Reinforce(SPACE, lr, 0.9, seed, n)
        trial = study.ask(fixed_distributions=SPACE)
        study.tell(trial, sum(score[name][o] for name, o in trial.params.items()))
    return [float(one.value or 0.0) for one in study.get_trials()]


@pytest.mark.parametrize(("direction", "sign"), [("maximize", 1), ("minimize", -1)])
def test_it_learns_where_an_untrained_controller_does_not(direction: str, sign: int) -> None:
    def gain(lr: float) -> float:
        values = study_of(60, 0, lr, direction)
        return sign * (sum(values[-15:]) - sum(values[:15])) / 15

    assert gain(0.03) > 0.8
    assert abs(gain(0.0)) < 0.5


def test_the_same_history_and_seed_give_the_same_sample() -> None:
    assert study_of(6, 1, 0.1) == study_of(6, 1, 0.1)
    assert study_of(6, 1, 0.1) != study_of(6, 2, 0.1)


def test_options_are_choices_and_integers() -> None:
    assert list_options(IntDistribution(2, 4)) == [2, 3, 4]
    assert list_options(SPACE["edge 0"]) == ["a", "b", "c", "d", "e"]
    with pytest.raises(AssertionError):
        list_options(FloatDistribution(0, 1))


def test_a_search_that_was_killed_continues_with_the_same_draws(small: Small, tmp_path: Path) -> None:
    given: dict[str, Any] = {"space": CHOICES, "sampler": "reinforce", "reinforce_lr": 0.1, "pruner": "none"}
    given |= {"epochs": 1, "trials": 3}
    whole = small("whole", **given)
    with pytest.raises(Stop):
        small("broken", Stopping(2), **given)
    assert alike(small("broken", **given)) == alike(whole)
    assert len(whole.trials) == 3
    assert {str(row["optimizer"]) for row in whole.trials} <= {"adam", "sgd"}


def test_a_search_of_an_older_version_is_continued(small: Small, tmp_path: Path) -> None:
    small("old", trials=1, epochs=1)
    path = tmp_path / "old" / "search.json"
    about = json.loads(path.read_text())
    for key in ("reinforce_lr", "reinforce_decay"):
        del about["search"][key]
    path.write_text(json.dumps(about))
    assert len(small("old", trials=1, epochs=1).trials) == 1
    with pytest.raises(SettingError, match="another search: sampler=tpe there, sampler=evolution here"):
        small("old", sampler="evolution", population=3, trials=1, epochs=1)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"sampler": "reinforce"}, r"Invalid lr=0.001..0.1:log for sampler=reinforce: must be a list of values"),
        ({"sampler": "reinforce", "space": CHOICES, "pruner": "median"}, "sampler=reinforce, which needs each trial"),
        ({"reinforce_lr": 0.1}, "Invalid reinforce_lr=0.1: only for sampler=reinforce, and sampler is tpe"),
        ({"sampler": "reinforce", "space": CHOICES, "reinforce_decay": 1.5}, "reinforce_decay"),
    ],
)
def test_bad_settings_are_rejected_by_name(small: Small, given: Any, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        small(**given)
