"""Learning from one's own verified solutions: expert iteration and group-relative policy gradients."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

import cutaway
from cutaway.core.errors import ModelError, SettingError
from cutaway.data.dataset_base import IGNORED
from cutaway.data.text.puzzles import END
from cutaway.runs.run import Run
from cutaway.training.objectives.reinforcement import GRPO, Attempts, ExpertIteration, SelfTraining, advantages
from cutaway.training.setup import setup_training

from ..conftest import stopping

pytestmark = pytest.mark.slow  # processes, or runs that are trained

SMALL = {
    "model.dim": 48, "model.layers": 2, "model.heads": 2, "model.dropout": 0.0, "max_samples": 2000,
    "batch_size": 64, "epochs": 16, "lr": 4e-3, "tensorboard": False,
}  # fmt: skip
# At this temperature some tries fail however well a processor let the network learn.
OWN = {
    "batch_size": 16, "max_samples": 64, "epochs": 1, "lr": 1e-3, "freeze_epochs": 0, "tensorboard": False,
    "temperature": 2.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A network that solves some sums and not others."""
    found = cutaway.train("gpt2", "addition", out=tmp_path_factory.mktemp("own") / "run", **SMALL)
    assert found.evaluate()["solved"].value > 0.3
    return found


def objective_of(
    run: Run, kind: type[SelfTraining], **settings: Any
) -> tuple[SelfTraining, tuple[Tensor, ...], Tensor]:
    """The objective, on the run's network in float64, and a batch."""
    name = "grpo" if kind is GRPO else "star"
    ready = setup_training("gpt2", "addition", {**OWN, "weights": str(run.folder), "objective": name, **settings})
    train = ready.data.splits["train"]
    found = kind(ready.model.double(), ready.task, ready.settings, train, ready.data)
    (batch,) = train.batches([torch.arange(16)])
    return found, batch.inputs, batch.target


def gradients(model: torch.nn.Module, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(model.parameters())))


@pytest.mark.slow
def test_tries_are_the_networks_own_and_are_judged(run: Run) -> None:
    objective, _, _ = objective_of(run, ExpertIteration, group_size=6)
    tries = objective.tries(torch.arange(16), Generator().manual_seed(3))
    kind, preprocessing = objective.problems.kind, objective.problems.preprocessing
    assert torch.equal(torch.zeros(16).index_add(0, tries.problem, tries.times), torch.full((16,), 6.0))
    assert 0 < tries.reward.mean() < 1
    for k in range(len(tries.ids)):
        solution = tries.target[k][tries.target[k] != IGNORED].tolist()
        problem = objective.problems.problem(int(tries.problem[k]))
        text = preprocessing.words(solution)
        assert bool(tries.reward[k]) == kind.judge(problem, "reversed", text).solved
        asked = preprocessing.encode(kind.ask(problem, "reversed"))
        assert tries.ids[k][tries.mask[k]].tolist() == [*asked, *solution][:-1]
        assert END not in solution[:-1]
    again = objective.tries(torch.arange(16), Generator().manual_seed(3))
    assert all(torch.equal(one, other) for one, other in zip(tries, again))
    assert not torch.equal(tries.times, objective.tries(torch.arange(16), Generator().manual_seed(4)).times)


def test_expert_iteration_learns_the_right_ones_alone(run: Run) -> None:
    objective, inputs, target = objective_of(run, ExpertIteration)
    found = objective.loss(inputs, target, torch.arange(16), Generator().manual_seed(1))
    tries = objective.tries(torch.arange(16), Generator().manual_seed(1))
    total, tokens = torch.zeros((), dtype=torch.float64), 0
    for k in range(len(tries.ids)):
        if tries.reward[k]:
            row = tries.target[k]
            logits = objective.model(tries.ids[k : k + 1][:, : int(tries.mask[k].sum())])[0]
            row = row[: len(logits)]
            total = total + F.cross_entropy(logits, row, ignore_index=IGNORED, reduction="sum")
            tokens += int((row != IGNORED).sum())
    count = objective.task.loss_denominator(target)
    for one, other in zip(
        gradients(objective.model, found.total / count), gradients(objective.model, total / tokens), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)
    wrong = 1 - float((tries.reward * tries.times).sum() / tries.times.sum())
    assert found.loss.item() / count == pytest.approx(wrong)


def test_where_no_try_is_right_nothing_is_learned(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    objective, inputs, target = objective_of(run, ExpertIteration)
    once = objective.tries

    def none_right(index: Tensor, random: Generator) -> Attempts:
        return once(index, random)._replace(reward=torch.zeros(1))

    tries = once(torch.arange(16), Generator().manual_seed(1))
    monkeypatch.setattr(objective, "tries", lambda index, random: tries._replace(reward=torch.zeros_like(tries.reward)))
    del none_right
    found = objective.loss(inputs, target, torch.arange(16), Generator())
    assert all(not g.any() for g in gradients(objective.model, found.total))
    assert found.loss.item() == pytest.approx(objective.task.loss_denominator(target))


@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_the_gradient_is_that_of_the_equation_written_out(run: Run, beta: float) -> None:
    objective, inputs, target = objective_of(run, GRPO, kl_weight=beta, group_size=5)
    assert isinstance(objective, GRPO)
    with torch.no_grad():  # another reference than the network, as after some steps
        for p in objective.reference.parameters():
            p.add_(0.02 * torch.randn(p.shape, generator=Generator().manual_seed(1), dtype=p.dtype))
    found = objective.loss(inputs, target, torch.arange(16), Generator().manual_seed(1))
    tries = objective.tries(torch.arange(16), Generator().manual_seed(1))
    total = torch.zeros((), dtype=torch.float64)
    for problem in range(16):
        rows = [k for k in range(len(tries.ids)) if tries.problem[k] == problem]
        for k in rows:
            n = int(tries.mask[k].sum())
            ids, row = tries.ids[k : k + 1, :n], tries.target[k, :n]
            real = row != IGNORED
            log_p = objective.model(ids)[0].log_softmax(1)[real].gather(1, row[real][:, None])[:, 0]
            reference = objective.reference(ids)[0].log_softmax(1)[real].gather(1, row[real][:, None])[:, 0].detach()
            advantage = float(advantages(tries)[k])  # held to statistics below
            divergence = (reference - log_p).exp() - (reference - log_p) - 1
            # The gradient of ρ is that of ln p where it is 1.
            total = total - tries.times[k] * (advantage * log_p - beta * divergence).mean() / (16 * 5)
    count = objective.task.loss_denominator(target)
    for one, other in zip(
        gradients(objective.model, found.total / count), gradients(objective.model, total), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-13)


def test_groups_that_are_all_right_or_all_wrong_have_no_advantage() -> None:
    problem = torch.tensor([0, 0, 1, 1, 2])
    count, reward = torch.tensor([3.0, 1.0, 2.0, 2.0, 4.0]), torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0])
    found = advantages(Attempts(*(torch.empty(0),) * 3, problem, count, reward))
    assert found[2:].tolist() == [0, 0, 0]
    assert found[0].item() == pytest.approx(0.25 / statistics.stdev([1, 1, 1, 0]))
    assert found[1].item() == pytest.approx(-0.75 / statistics.stdev([1, 1, 1, 0]))


@pytest.mark.parametrize("objective", ["star", "grpo"])
def test_a_run_that_was_stopped_ends_as_one_that_was_not(tmp_path: Path, run: Run, objective: str) -> None:
    given = {**OWN, "weights": str(run.folder), "objective": objective, "group_size": 3}
    whole = cutaway.train("gpt2", "addition", out=tmp_path / "whole", **given).model.state_dict()
    with stopping(2):
        cutaway.train("gpt2", "addition", out=tmp_path / "stopped", **given)
    again = cutaway.train(resume=tmp_path / "stopped").model.state_dict()
    assert all(torch.equal(whole[key], again[key]) for key in whole)
    assert any(not torch.equal(whole[key], run.model.state_dict()[key]) for key in whole)


@pytest.mark.parametrize(
    ("model", "data", "given", "named"),
    [
        ("gpt2", "addition", {}, "begin with a run that has, weights=RUN"),
        ("mlp", "iris", {}, "verified by computing, and iris is table data"),
        ("gpt2", "addition", {"weights": "RUN", "compile": True}, "runs the model token by token"),
        ("gpt2", "addition", {"weights": "RUN", "kl_weight": 0.1}, "kl_weight=0.1"),
    ],
)
def test_what_cannot_be_is_refused(run: Run, model: str, data: str, given: dict[str, Any], named: str) -> None:
    given = {key: str(run.folder) if value == "RUN" else value for key, value in given.items()}
    with pytest.raises((SettingError, ModelError), match=named):
        setup_training(model, data, {"objective": "star", **given})
