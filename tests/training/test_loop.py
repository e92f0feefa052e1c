"""The loop does what a textbook's loop does, stops when it should, and goes on as if it had not stopped."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import cutaway
from cutaway.core.errors import TrainingError
from cutaway.data.dataset_base import DataSet
from cutaway.models.base import BaseModel
from cutaway.tasks.classification import Classification
from cutaway.training import trainer as loop
from cutaway.training.batches import balanced_order
from cutaway.training.checkpoint import TrainingState, load_weights
from cutaway.training.trainer import Trainer

from .conftest import fitted, network

Make = Callable[..., Trainer]


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))


def test_it_is_the_textbooks_loop(make_trainer: Make, data: DataSet) -> None:
    trainer = make_trainer(optimizer="sgd", lr=0.1, schedule="constant", precision="float64")
    trainer.fit()

    model = network().double()
    x, y = data.splits["train"].inputs.double(), data.splits["train"].target  # type: ignore[attr-defined]
    for epoch in range(3):
        for index in trainer.batches_of(epoch):
            model.zero_grad()
            (F.cross_entropy(model(x[index]), y[index], reduction="none").sum() / len(index)).backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad
    assert all(torch.allclose(p, q, rtol=0, atol=1e-12) for p, q in zip(trainer.model.parameters(), model.parameters()))


def test_four_batches_of_eight_are_one_of_thirty_two(make_trainer: Make) -> None:
    one = make_trainer(batch_size=32, precision="float64", lr=0.1, optimizer="sgd")
    four = make_trainer(batch_size=8, accumulate=4, precision="float64", lr=0.1, optimizer="sgd")
    one.fit()
    four.fit()
    assert one.state.update == four.state.update
    for p, q in zip(one.model.parameters(), four.model.parameters()):
        assert torch.allclose(p, q, rtol=1e-12, atol=1e-14)
    assert one.state.history[-1]["train_loss"] == pytest.approx(four.state.history[-1]["train_loss"], rel=1e-12)


def test_every_example_is_seen_once_an_epoch_in_another_order_each_time(make_trainer: Make) -> None:
    trainer = make_trainer()
    first, second = torch.cat(trainer.batches_of(0)), torch.cat(trainer.batches_of(1))
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(97))
    assert first.tolist() != second.tolist()
    assert first.tolist() == torch.cat(trainer.batches_of(0)).tolist()


def test_a_last_batch_of_one_joins_the_one_before(make_trainer: Make) -> None:
    assert [len(b) for b in make_trainer(batch_size=16).batches_of(0)] == [16, 16, 16, 16, 16, 17]
    assert len(make_trainer(batch_size=1).batches_of(0)) == 97
    assert [len(b) for b in make_trainer(batch_size=0).batches_of(0)] == [97]


def test_the_loss_is_the_mean_over_what_was_counted(make_trainer: Make) -> None:
    # Nothing is learned, so every batch sees the same weights.
    trainer = make_trainer(lr=0.0, epochs=20, precision="float64")
    trainer.fit()
    x, y = trainer.train.inputs.double(), trainer.train.target  # type: ignore[attr-defined]
    assert trainer.state.history[0]["train_loss"] == pytest.approx(
        F.cross_entropy(trainer.model(x), y).item(), rel=1e-12
    )


@pytest.mark.parametrize("stop_at", [1, 4, 6, 9])
@pytest.mark.parametrize(
    "given",
    [
        {"ema": 0.9, "optimizer": "adamw"},
        {"optimizer": "muon"},
        {"optimizer": "nesterov", "accumulate": 2},
        {"sampling": "balanced"},
    ],
)
def test_a_run_taken_up_again_ends_where_the_uninterrupted_one_ends(
    make_trainer: Make, stop_at: int, given: dict[str, object]
) -> None:
    whole, again = (fitted(lambda: make_trainer(dropout=0.3, **given), at) for at in (0, stop_at))
    assert same(whole.model, again.model)
    assert [{**r, "seconds": 0} for r in whole.state.history] == [{**r, "seconds": 0} for r in again.state.history]
    for key in ("best_epoch", "best_score", "best_loss"):
        assert getattr(whole.state, key) == getattr(again.state, key)
    if whole.average and again.average:
        assert all(torch.equal(whole.average.weights[k], again.average.weights[k]) for k in whole.average.weights)


def test_a_loss_that_is_not_finite_names_step_layer_and_checkpoint(make_trainer: Make) -> None:
    trainer = make_trainer(epochs=2)
    trainer.fit()
    good = (trainer.checkpoints / "last.safetensors").read_bytes()
    trainer.settings = make_trainer(epochs=3).settings
    trainer.task_schedule.epochs_per_task = 3
    trainer.state.stopped = ""
    with torch.no_grad():
        trainer.model[3].weight[0, 0] = math.nan  # type: ignore[index]
    with pytest.raises(TrainingError, match=r"after update 12, in epoch 3.*weights of 3\.weight.*last\.safetensors"):
        trainer.fit()
    assert (trainer.checkpoints / "last.safetensors").read_bytes() == good


def test_a_layer_that_overflows_is_named(make_trainer: Make) -> None:
    class Overflows(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 1e38 * 1e38

    model = nn.Sequential(nn.Linear(5, 4), Overflows(), nn.Linear(4, 2))
    with pytest.raises(TrainingError, match=r"update 1.*output of 1.*no checkpoint"):
        make_trainer(model=model).fit()


class RootAtZero(nn.Module):
    """Finite forward, infinite slope."""

    def forward(self, x: Tensor) -> Tensor:
        return (x - x).abs().sqrt() + x


@pytest.mark.parametrize("given", [{}, {"grad_clip": 1.0}, {"batch_size": 0, "epochs": 1}])
def test_a_gradient_that_is_not_finite_names_the_update_and_nothing_is_saved(
    make_trainer: Make, given: dict[str, float]
) -> None:
    trainer = make_trainer(model=nn.Sequential(nn.Linear(5, 4), RootAtZero(), nn.Linear(4, 2)), **given)
    with pytest.raises(TrainingError, match=r"update 1, in epoch 1.*gradient.*0\.weight.*no checkpoint"):
        trainer.fit()
    assert not list(trainer.checkpoints.glob("*"))


def test_patience_stops_and_the_best_weights_are_kept(make_trainer: Make) -> None:
    trainer = make_trainer(epochs=50, patience=2, lr=0.0)  # no epoch is better than the first
    trainer.fit()
    assert trainer.state.epoch == 3
    assert trainer.state.best_epoch == 1
    assert "2 epochs" in trainer.state.stopped


@pytest.mark.parametrize(
    ("scores", "losses", "higher", "kept"),
    [
        ((1.0, 1.0, 1.0), (0.7, 0.2, 0.3), True, 2),  # accuracy, F1, exact match, BLEU: where it cannot rise
        ((0.5, 0.9, 0.9, 0.8), (0.7, 0.6, 0.6, 0.1), True, 2),  # equal in both: the first
        ((0.0, 0.0, 0.0), (0.7, 0.2, 0.1), False, 3),  # an error
        ((0.9, 0.8), (0.7, 0.1), True, 1),  # the score comes first
        ((math.nan, 0.1, math.nan), (math.nan, 0.5, 0.1), True, 2),  # what is no number is no score
        ((math.nan, math.nan), (0.5, 0.4), False, 2),
    ],
)
@pytest.mark.parametrize("stop_at", [0, 2])
def test_of_equal_scores_the_smaller_loss_is_better(
    make_trainer: Make, tmp_path: Path, scores: Any, losses: Any, higher: bool, kept: int, stop_at: int
) -> None:
    given = {"epochs": len(scores), "batch_size": 0}

    def trainer() -> Trainer:
        made = make_trainer(folder=tmp_path, **given)
        made.higher_is_better = higher
        made.validate = lambda split: dict(  # type: ignore[method-assign]
            zip(("accuracy", "loss"), (scores[made.state.epoch], losses[made.state.epoch]))
        )
        return made

    running = fitted(trainer, stop_at)
    assert running.state.best_epoch == kept
    assert running.state.best_loss == losses[kept - 1]
    ends = load_weights(tmp_path / "checkpoints" / "best.safetensors")
    assert all(torch.equal(ends[k], v) for k, v in running.model.state_dict().items()) == (kept == len(scores))


def test_patience_counts_from_the_last_better_loss_of_equal_scores(make_trainer: Make) -> None:
    trainer = make_trainer(epochs=50, patience=3)
    losses = iter((0.5, 0.4, 0.3, 0.3, 0.3, 0.3))
    trainer.validate = lambda split: {"accuracy": 1.0, "loss": next(losses)}  # type: ignore[method-assign]
    trainer.fit()
    assert (trainer.state.epoch, trainer.state.best_epoch) == (6, 3)


def test_the_truth_table_of_xor_is_learned_with_confidence(tmp_path: Path) -> None:
    run = cutaway.train("mlp", "xor", tensorboard=False, out=tmp_path / "run")
    said = run.results(run.data().splits["test"])
    assert run.task.probabilities(said.outputs).max(1).values.min() > 0.99  # type: ignore[attr-defined]


def test_a_time_budget_ends_training(make_trainer: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer(epochs=100_000, minutes=0.01)
    hundredths = itertools.count()  # a clock that no busy machine can hold up: an update takes 10 ms
    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda: next(hundredths) / 100))
    trainer.fit()
    assert "time budget" in trainer.state.stopped
    assert trainer.state.seconds == pytest.approx(0.61)
    assert trainer.state.update == 61
    assert trainer.state.history[-1]["lr"] < 1e-4  # the schedule came to its end with the time


def test_full_batch_descent_never_rises(make_trainer: Make) -> None:
    trainer = make_trainer(batch_size=0, optimizer="sgd", lr=0.05, schedule="constant", epochs=30)
    trainer.fit()
    losses = [r["train_loss"] for r in trainer.state.history]
    assert all(b <= a for a, b in itertools.pairwise(losses))


def test_clipping_bounds_the_step(make_trainer: Make) -> None:
    trainer = make_trainer(optimizer="sgd", lr=1.0, grad_clip=1e-3, schedule="constant", batch_size=0, epochs=1)
    before = torch.cat([p.detach().flatten() for p in trainer.model.parameters()]).clone()
    trainer.fit()
    after = torch.cat([p.detach().flatten() for p in trainer.model.parameters()])
    assert (after - before).norm().item() == pytest.approx(1e-3, rel=1e-3)


class TwoHeaded(BaseModel):
    """In training a second head answers too."""

    auxiliary_weight = 0.3

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head, self.aux1 = nn.Linear(5, 8), nn.Linear(8, 2), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        x = self.body(x).relu()
        logits: Tensor = self.head(x)
        return (logits, self.aux1(x)) if self.training else logits


def test_auxiliary_heads_add_their_share_to_the_gradient_alone(make_trainer: Make, data: DataSet) -> None:
    trainer = make_trainer(
        model=TwoHeaded(), optimizer="sgd", lr=0.1, schedule="constant", batch_size=0, epochs=1, precision="float64"
    )
    trainer.fit()

    model = TwoHeaded().double()
    x, y = data.splits["train"].inputs.double(), data.splits["train"].target  # type: ignore[attr-defined]
    logits, auxiliary = model(x)
    main = F.cross_entropy(logits, y)
    (main + 0.3 * F.cross_entropy(auxiliary, y)).backward()
    for p, q in zip(trainer.model.parameters(), model.parameters()):
        assert q.grad is not None
        assert torch.allclose(p, q - 0.1 * q.grad, rtol=0, atol=1e-12)
    row = trainer.state.history[0]  # of the one step of the epoch
    assert row["train_loss"] == pytest.approx(main.item(), rel=1e-5)
    assert 0 <= row["val_accuracy"] <= 1


def test_the_layer_that_broke_is_found_in_a_network_of_two_heads(make_trainer: Make) -> None:
    trainer = make_trainer(model=TwoHeaded(), lr=0.0)
    trainer.model.head.register_forward_hook(lambda module, args, output: output * math.inf)
    with pytest.raises(TrainingError, match=r"update 1.*output of head"):
        trainer.fit()


def test_balanced_sampling_draws_every_class_as_often_and_every_example_of_it() -> None:
    target = torch.tensor([0] * 960 + [3] * 10 + [1] * 30)  # nothing is of class 2
    order = torch.cat([balanced_order(target, torch.Generator().manual_seed(seed)) for seed in range(30)])
    assert order.shape == (30_000,)
    counts = target[order].bincount(minlength=4)
    assert counts[2] == 0
    assert all(abs(int(counts[k]) - 10_000) < 5 * 10_000**0.5 for k in (0, 1, 3))
    of_the_rare = order[target[order] == 3].bincount(minlength=1000)[960:970]
    assert all(abs(int(n) - 1000) < 5 * 1000**0.5 for n in of_the_rare)
    assert len(order[target[order] == 1].unique()) == 30


def test_a_rare_class_is_learned_where_each_is_drawn_as_often(make_trainer: Make, data: DataSet) -> None:
    split = data.splits["train"]
    rare = torch.arange(97) >= 90  # seven examples, which overlap with the others
    x = torch.randn(97, 5, generator=torch.Generator().manual_seed(0))
    split.inputs, split.target = x + rare[:, None], rare.long()  # type: ignore[attr-defined]
    recall = {}
    for sampling in ("shuffle", "balanced"):
        trainer = make_trainer(model=nn.Linear(5, 2), sampling=sampling, epochs=20, lr=0.05)
        trainer.fit()
        assert trainer.state.update == 20 * 6  # as many steps, however they are drawn
        recall[sampling] = (trainer.model(split.inputs)[rare].argmax(1) == 1).double().mean().item()  # type: ignore[attr-defined]
    assert recall["balanced"] > recall["shuffle"] + 0.2


def test_balanced_epochs_differ_and_are_the_same_whenever_asked(make_trainer: Make) -> None:
    trainer = make_trainer(sampling="balanced", seed=3)
    first, second = torch.cat(trainer.batches_of(0)), torch.cat(trainer.batches_of(1))
    assert first.tolist() != second.tolist()
    assert first.tolist() == torch.cat(make_trainer(sampling="balanced", seed=3).batches_of(0)).tolist()
    assert first.tolist() != torch.cat(make_trainer(sampling="balanced", seed=4).batches_of(0)).tolist()


def test_a_balanced_epoch_without_a_mistake_shows_nothing(make_trainer: Make, data: DataSet) -> None:
    split = data.splits["train"]
    split.target = (split.inputs[:, 0] > 0).long()  # type: ignore[attr-defined]
    for sampling, stopped in (("shuffle", "made no mistake"), ("balanced", "all epochs")):
        model = nn.Linear(5, 1)
        with torch.no_grad():
            model.weight.copy_(torch.tensor([[1.0, 0, 0, 0, 0]]))
            model.bias.zero_()
        trainer = make_trainer(model=model, loss="perceptron", sampling=sampling, optimizer="sgd")
        assert isinstance(trainer.task, Classification)
        trainer.fit()
        assert stopped in trainer.state.stopped


def test_state_counts_start_at_nothing() -> None:
    assert TrainingState().epoch == TrainingState().update == 0
    assert not TrainingState().stopped
