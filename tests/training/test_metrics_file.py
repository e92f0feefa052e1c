"""The rows of metrics.csv: every epoch ends with one, short trainings have some within, and they change nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cutaway.core.files import write_csv
from cutaway.data.dataset_base import DataSet
from cutaway.training import callbacks as rows_module
from cutaway.training import trainer as loop
from cutaway.training.callbacks import is_due
from cutaway.training.checkpoint import TrainingState
from cutaway.training.run_folder import read_metrics
from cutaway.training.trainer import Trainer

from .conftest import rows

Make = Callable[..., Trainer]


def test_an_epoch_of_many_steps_has_rows_within_it_and_the_last_is_its_end(make_trainer: Make) -> None:
    trainer = make_trainer(epochs=1, batch_size=2)  # 48 steps
    trainer.fit()
    history = trainer.state.history
    assert 20 <= len(history) <= 21
    assert {row["epoch"] for row in history} == {1}
    steps = [row["step"] for row in history]
    assert steps[-1] == 48
    assert {b - a for a, b in itertools.pairwise(steps)} <= {1, 2, 3}
    assert {"val_loss", "val_accuracy"} <= history[-1].keys()
    # 40 examples to validate on, 97 to learn from: twice as many lie between two validations at least
    validated = [row["step"] for row in history if "val_loss" in row]
    assert validated == [41, 48]
    assert validated == [row["step"] for row in history if "val_accuracy" in row]


def test_losses_of_rows_are_means_over_the_steps_since_the_row_before(make_trainer: Make) -> None:
    trainer, losses = make_trainer(epochs=2, batch_size=4, lr=0.01), []
    once = trainer.step

    def step(group: list, steps: int) -> None:  # type: ignore[type-arg]
        before = (trainer.state.loss_sum, trainer.state.counted)
        once(group, steps)
        losses.append((trainer.state.loss_sum - before[0], trainer.state.counted - before[1]))

    trainer.step = step  # type: ignore[method-assign]
    trainer.fit()
    begin = 0
    for row in trainer.state.history:
        sums, counts = zip(*losses[begin : row["step"]])
        assert row["train_loss"] == pytest.approx(sum(sums) / sum(counts), rel=1e-9)
        begin = row["step"]
    assert begin == len(losses)


@pytest.mark.parametrize(("epochs", "expected"), [(20, 20), (35, 35), (7, 21)])
def test_many_epochs_have_a_row_each(make_trainer: Make, epochs: int, expected: int) -> None:
    trainer = make_trainer(epochs=epochs, batch_size=8)  # 12 steps an epoch
    trainer.fit()
    assert expected <= len(trainer.state.history) <= expected + (epochs if epochs < 20 else 0)
    ends = {row["epoch"]: row["step"] for row in trainer.state.history}
    assert ends == {epoch: 12 * epoch for epoch in range(1, epochs + 1)}


def test_rows_within_an_epoch_change_nothing(make_trainer: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Validation puts batch norm and dropout into another mode for a while, and could draw random numbers."""

    def end(points: int) -> list[torch.Tensor]:
        monkeypatch.setattr(rows_module, "POINTS", points)
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(5, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Dropout(), torch.nn.Linear(8, 2)
        )
        trainer = make_trainer(model=model, epochs=1, batch_size=4, lr=0.01)
        validate = trainer.validate

        def drawing(*args: Any) -> dict[str, float]:
            torch.rand(3)
            return validate(*args)

        trainer.validate = drawing  # type: ignore[method-assign]
        trainer.fit()
        assert (len(trainer.state.history) > 10) == (points > 1)
        return list(model.state_dict().values())

    assert all(torch.equal(a, b) for a, b in zip(end(1), end(20), strict=True))


def test_with_a_time_budget_there_is_a_row_for_each_twentieth_of_it() -> None:
    state = TrainingState(history=[{"step": 100, "seconds": 3.1}])
    due = {seconds: is_due(standing(state, 110, seconds), 10**9, 10**6, 60.0) for seconds in (3.2, 5.9, 6.1, 50.0)}
    assert due == {3.2: False, 5.9: False, 6.1: True, 50.0: True}
    assert not is_due(standing(state, 10**5, 5.9), 10**9, 10**6, 0.0)  # without a budget nothing depends on time


def standing(state: TrainingState, update: int, seconds: float) -> TrainingState:
    state.update, state.seconds = update, seconds
    return state


def test_a_time_budget_that_ends_within_an_epoch_ends_with_one_row(
    make_trainer: Make, data: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    thousandths = itertools.count()  # a clock that no busy machine can hold up: an update takes 1 ms
    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda: next(thousandths) / 1000))
    data.splits["train"] = rows(20_000, seed=1)
    trainer = make_trainer(epochs=1000, batch_size=4, minutes=0.003)
    trainer.fit()
    steps = [row["step"] for row in trainer.state.history]
    assert steps == sorted(set(steps))
    assert steps[-1] == trainer.state.update
    assert len(steps) >= 5
    assert all(row["train_loss"] == row["train_loss"] for row in trainer.state.history)


def test_the_file_has_every_column_and_empty_cells_where_nothing_was_measured(tmp_path: Path) -> None:
    history = [{"epoch": 1, "step": 3, "seconds": 0.1}, {"epoch": 1, "step": 6, "val_loss": 0.5, "seconds": 0.2}]
    write_csv(tmp_path / "metrics.csv", history)
    assert (tmp_path / "metrics.csv").read_text() == "epoch,step,val_loss,seconds\n1,3,,0.1\n1,6,0.5,0.2\n"
    assert [row["val_loss"] for row in read_metrics(tmp_path / "metrics.csv")] == [None, 0.5]
