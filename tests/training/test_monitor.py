"""What decides which epoch is best, and when training ends early: the task's own score, or what `monitor` names."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cutaway.apps.cli.train import result_lines
from cutaway.core.errors import SettingError
from cutaway.core.files import read_json
from cutaway.core.spec import Classes, Context, Horizon, Masked, NextToken, Tags, Tokens, Value
from cutaway.runs.train import train_model
from cutaway.tasks.task import HIGHER_IS_BETTER, KINDS
from cutaway.training.callbacks import Progress
from cutaway.training.setup import setup_training
from cutaway.training.trainer import Trainer

from .conftest import fitted

Make = Callable[..., Trainer]
SCORES = [  # accuracy rises while the loss does, as where a network grows too sure
    {"accuracy": 0.5, "macro_f1": 0.3, "loss": 0.4},
    {"accuracy": 0.6, "macro_f1": 0.2, "loss": 0.5},
    {"accuracy": 0.7, "macro_f1": 0.4, "loss": 0.6},
    {"accuracy": 0.8, "macro_f1": 0.1, "loss": 0.7},
]


@pytest.mark.parametrize(
    ("monitor", "best", "ended"), [(None, 4, 4), ("accuracy", 4, 4), ("loss", 1, 3), ("macro_f1", 3, 4)]
)
@pytest.mark.parametrize("stop_at", [0, 2])
def test_the_best_epoch_and_early_stopping_go_by_it(
    make_trainer: Make, monitor: str | None, best: int, ended: int, stop_at: int
) -> None:
    def trainer() -> Trainer:
        made = make_trainer(epochs=4, batch_size=0, patience=2, monitor=monitor)
        made.validate = lambda split: SCORES[made.state.epoch]  # type: ignore[method-assign]
        return made

    running = fitted(trainer, stop_at)
    assert (running.state.best_epoch, running.state.epoch) == (best, ended)
    assert running.state.best_score == SCORES[best - 1][monitor or "accuracy"]
    if ended < 4:
        assert running.state.stopped == f"no better validation {monitor} in 2 epochs"


@pytest.mark.parametrize("monitor", ["macro_f1", "balanced_accuracy"])
def test_a_metric_that_is_not_quick_is_measured_where_it_is_monitored(make_trainer: Make, monitor: str) -> None:
    plain, trainer = make_trainer(), make_trainer(monitor=monitor)
    plain.fit()
    trainer.fit()
    ends = [
        row
        for row, following in itertools.pairwise([*trainer.state.history, {}])
        if following.get("epoch") != row["epoch"]
    ]
    assert all(0 <= row[f"val_{monitor}"] <= 1 for row in ends)
    assert trainer.state.best_score == max(row[f"val_{monitor}"] for row in ends)
    assert f"val_{monitor}" not in plain.state.history[-1]
    assert all(torch.equal(p, q) for p, q in zip(plain.model.parameters(), trainer.model.parameters()))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"monitor": "acc"}, "Invalid monitor=acc for classification: must be one of accuracy, balanced_accuracy, "
         r"macro_f1, loss \(on the validation split\)"),
        ({"monitor": "val_rmse"}, "must be one of accuracy"),
        ({"monitor": "loss", "val": 0}, "monitor=loss looks at the validation split, and val=0 leaves none"),
        ({"patience": 3, "val": 0}, "patience=3 would change nothing: no validation split"),
    ],
)  # fmt: skip
def test_what_there_is_not_is_rejected(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        setup_training("mlp", "iris", given)


def test_a_run_says_by_what_it_was_chosen(tmp_path: Path) -> None:
    given = {"epochs": 3, "tensorboard": False, "monitor": "val_loss", "average_epochs": 2}
    run = train_model("mlp", "iris", given, out=tmp_path / "run", progress=Progress(shown=False))
    about = read_json(run.folder / "run.json")
    assert about["best"]["metric"] == about["settings"]["monitor"] == "loss"
    rows = [row.split(",") for row in (run.folder / "metrics.csv").read_text().splitlines()]
    losses = {int(row[0]): float(row[rows[0].index("val_loss")]) for row in rows[1:]}  # the last of each epoch
    assert about["best"]["value"] == min(losses.values()) == losses[about["best"]["epoch"]]
    assert any("validation loss" in line for line in result_lines(run))


def test_the_kept_epoch_is_told_with_its_metric_and_value(tmp_path: Path) -> None:
    given = {"epochs": 3, "tensorboard": False, "threads": 1}
    run = train_model("softmax", "iris", {**given, "monitor": "macro_f1"}, out=tmp_path / "f1")
    best = read_json(run.folder / "run.json")["best"]
    said = f"Kept epoch {best['epoch']} of 3: best validation macro F1 {100 * best['value']:.2f} % (monitor=macro_f1)"
    assert result_lines(run).count(said) == 1
    run = train_model("softmax", "iris", {**given, "val": 0}, out=tmp_path / "plain")
    said = "Kept epoch 3 of 3: the last epoch, because there is no validation split"
    assert result_lines(run).count(said) == 1


def test_a_score_that_is_infinite_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trainer, "validate", lambda *args: {"loss": float("inf"), "accuracy": float("nan")})
    run = train_model(
        "mlp", "iris", {"epochs": 2, "tensorboard": False}, out=tmp_path / "r", progress=Progress(shown=False)
    )
    assert read_json(run.folder / "run.json")["best"] == {"epoch": 1, "metric": "accuracy", "value": None}


@pytest.mark.parametrize(
    "target",
    [
        Classes(("a", "b")),
        Value(),
        Tags(("B-x", "I-x", "O")),
        NextToken(5),
        Masked(5, 4),
        Context(5),
        Tokens(5, 1, 2, 4),
        Horizon(2, ("x",), (0.0,), (1.0,)),
    ],
    ids=lambda target: type(target).__name__,
)
def test_every_task_has_its_own_score_and_the_loss(target: Any) -> None:
    task = KINDS[type(target)](target)
    assert {task.default_monitor, "loss"} <= set(task.monitors)
    assert (task.default_monitor in HIGHER_IS_BETTER) == (task.default_monitor == "accuracy")
