"""A run that is to have so many updates has so many, with its schedule over them, in as many epochs as that takes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cutaway.checkpoints.saving import read_tensors
from cutaway.core.files import read_json
from cutaway.runs.train import train_model
from cutaway.training.batches import epochs_for_steps
from cutaway.training.callbacks import Progress
from cutaway.training.optim import lr_factor
from cutaway.training.trainer import Trainer

from .conftest import fitted

Make = Callable[..., Trainer]
GIVEN = {"max_samples": 200, "batch_size": 32, "tensorboard": False, "threads": 1, "save_minutes": 0}
QUIET = {"progress": Progress(shown=False)}


@pytest.mark.parametrize(
    ("updates", "epochs", "accumulate", "expected"),
    [(6, 9, 1, (1, 6)), (7, 9, 1, (2, 7)), (60, 3, 1, (3, 18)), (4, 9, 4, (2, 4)), (1, 9, 1, (1, 1))],
)
def test_epochs_are_as_many_as_the_updates_take(
    make_trainer: Make, updates: int, epochs: int, accumulate: int, expected: tuple[int, int]
) -> None:
    trainer = make_trainer(max_steps=updates, epochs=epochs, accumulate=accumulate)  # an epoch has 6 batches
    assert epochs_for_steps(trainer.train, trainer.settings) == expected
    trainer.fit()
    assert (trainer.state.epoch, trainer.state.update) == expected
    assert list(dict.fromkeys(row["epoch"] for row in trainer.state.history)) == list(range(1, expected[0] + 1))
    assert trainer.state.history[-1]["step"] == expected[1]
    whole = expected[1] == updates
    assert trainer.state.stopped == (f"all {updates} updates are done" if whole else "all epochs are done")


@pytest.mark.parametrize("epochs", [2, 9])
def test_the_schedule_is_laid_out_over_the_updates_there_are(make_trainer: Make, epochs: int) -> None:
    trainer = make_trainer(max_steps=15, epochs=epochs, schedule="cosine", lr=0.1)
    rates, once = [], trainer.step

    def step(group: list, steps: int) -> None:  # type: ignore[type-arg]
        once(group, steps)
        rates.append(trainer.state.lr)

    trainer.step = step  # type: ignore[method-assign]
    trainer.fit()
    count = min(15, 6 * epochs)
    assert rates == pytest.approx([0.1 * lr_factor(trainer.settings, s / count, count) for s in range(count)])


@pytest.mark.parametrize("stop_at", [3, 6, 8])
def test_a_stop_changes_nothing(make_trainer: Make, stop_at: int, tmp_path: Path) -> None:
    given = {"max_steps": 9, "epochs": 5, "dropout": 0.3}
    whole = fitted(lambda: make_trainer(folder=tmp_path / "whole", **given))
    again = fitted(lambda: make_trainer(folder=tmp_path / "again", **given), stop_at)
    assert (again.state.update, again.state.epoch) == (9, 2)
    assert all(torch.equal(p, q) for p, q in zip(whole.model.parameters(), again.model.parameters()))
    assert [{**r, "seconds": 0} for r in whole.state.history] == [{**r, "seconds": 0} for r in again.state.history]


def test_a_run_of_so_many_updates_goes_on_to_more_of_them(tmp_path: Path) -> None:
    run = train_model("lenet5-modern", "digits", {**GIVEN, "max_steps": 9}, out=tmp_path / "run", **QUIET)
    per_epoch = -(-run.about["data"]["splits"]["train"] // 32)
    about = read_json(run.folder / "run.json")
    assert about["settings"]["max_steps"] == 9
    assert about["settings"]["epochs"] == about["epochs_done"] == -(-9 // per_epoch)
    assert about["stopped"] == "all 9 updates are done"

    again = train_model(None, None, {}, resume=run.folder, **QUIET)  # it is over: nothing changes
    assert read_json(again.folder / "run.json")["epochs_done"] == about["epochs_done"]
    more = read_json(train_model(None, None, {"max_steps": 20}, resume=run.folder, **QUIET).folder / "run.json")
    assert more["stopped"] == "all 20 updates are done"
    assert read_tensors(run.folder / "checkpoints" / "last.safetensors")[1]["state"]["update"] == 20


def test_epochs_that_are_typed_are_the_bound(tmp_path: Path) -> None:
    run = train_model(
        "lenet5-modern", "digits", {**GIVEN, "max_steps": 900, "epochs": 2}, out=tmp_path / "run", **QUIET
    )
    assert run.about["epochs_done"] == run.about["settings"]["epochs"] == 2
    assert run.about["stopped"] == "all epochs are done"
    rows = (run.folder / "metrics.csv").read_text().splitlines()[1:]
    lr = [float(row.split(",")[2]) for row in rows]
    assert all(b < a for a, b in itertools.pairwise(lr))
    assert lr[-1] < 0.1 * max(lr)  # the schedule came to its end
