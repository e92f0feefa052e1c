"""Callbacks: which hooks run when, their errors, their state in checkpoints, and what must not change."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import cutaway
from cutaway.checkpoints.saving import read_tensors
from cutaway.core.errors import SettingError, TrainingError
from cutaway.estimators import Classifier
from cutaway.training.callbacks import HOOKS, Callback, Interrupted, collect_states, restore_states
from cutaway.training.checkpoint import TrainingState, load_checkpoint
from cutaway.training.trainer import Trainer

from .conftest import fitted, network, stopping

Make = Callable[..., Trainer]


class Events(Callback):
    """Every call of a hook, with where training stands."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, int, int]] = []


def _noted(hook: str) -> Callable[[Events, TrainingState], None]:
    def note(self: Events, state: TrainingState) -> None:
        self.seen.append((hook, state.epoch, state.batch, state.update))

    return note


for _hook in HOOKS:
    setattr(Events, _hook, _noted(_hook))


def test_every_hook_runs_in_order_with_accumulated_gradients_and_two_epochs(make_trainer: Make) -> None:
    events = Events()
    # 97 rows in batches of 32, 32 and 33: two steps an epoch, the second of which has one batch.
    trainer = make_trainer(epochs=2, batch_size=32, accumulate=2, save_minutes=1e9, callbacks=[events])
    trainer.fit()
    assert [event for event in events.seen if event[0] != "on_checkpoint"] == [
        ("on_train_start", 0, 0, 0),
        ("on_epoch_start", 0, 0, 0),
        ("on_step_end", 0, 2, 1),
        ("on_step_end", 0, 3, 2),
        ("on_validation_end", 0, 3, 2),
        ("on_epoch_end", 1, 0, 2),
        ("on_epoch_start", 1, 0, 2),
        ("on_step_end", 1, 2, 3),
        ("on_step_end", 1, 3, 4),
        ("on_validation_end", 1, 3, 4),
        ("on_epoch_end", 2, 0, 4),
        ("on_train_end", 2, 0, 4),
    ]
    checkpoints = [at for at, event in enumerate(events.seen) if event[0] == "on_checkpoint"]
    assert [events.seen[at][1:] for at in checkpoints] == [(1, 0, 2), (2, 0, 4)]
    assert all(events.seen[at - 1][0] == "on_epoch_end" for at in checkpoints)


def test_metrics_of_a_validation_are_in_the_history_when_its_hook_runs(make_trainer: Make) -> None:
    losses: list[float] = []

    class Losses(Callback):
        def on_validation_end(self, state: TrainingState) -> None:
            losses.append(state.history[-1]["val_loss"])

    trainer = make_trainer(epochs=3, callbacks=[Losses()])
    trainer.fit()
    assert losses == [row["val_loss"] for row in trainer.state.history if "val_loss" in row]
    assert len(losses) >= 3


def test_a_callback_sees_the_trainer(make_trainer: Make) -> None:
    biases: list[torch.Tensor] = []

    class Bias(Callback):
        def on_step_end(self, state: TrainingState) -> None:
            biases.append(self.trainer.model[3].bias.detach().clone())

    trainer = make_trainer(epochs=1, callbacks=[Bias()])
    trainer.fit()
    assert len(biases) == trainer.state.update
    assert torch.equal(biases[-1], trainer.model[3].bias)  # type: ignore[index]
    assert not torch.equal(biases[-2], biases[-1])


@pytest.mark.parametrize("hook", HOOKS)
def test_an_exception_names_the_callback_and_the_hook(make_trainer: Make, hook: str) -> None:
    class Breaks(Callback):
        pass

    def fail(self: Breaks, state: TrainingState) -> None:
        raise ZeroDivisionError("by nothing")

    setattr(Breaks, hook, fail)
    with pytest.raises(TrainingError, match=f"callback Breaks failed in {hook}: ZeroDivisionError: by nothing"):
        make_trainer(epochs=1, callbacks=[Breaks()]).fit()


def test_a_callback_ends_training_after_a_step_and_the_epoch_gets_its_row(make_trainer: Make) -> None:
    class Enough(Callback):
        def on_step_end(self, state: TrainingState) -> None:
            if state.update == 8:
                state.stopped = "enough"

    trainer = make_trainer(epochs=5, batch_size=16, callbacks=[Enough()])
    trainer.fit()
    assert trainer.state.stopped == "enough"
    assert (trainer.state.update, trainer.state.epoch) == (8, 2)
    rows = trainer.state.history
    assert (rows[-1]["epoch"], rows[-1]["step"]) == (2, 8)
    assert [row["step"] for row in rows] == sorted({row["step"] for row in rows})
    assert all(math.isfinite(row["train_loss"]) for row in rows)


def test_a_callback_without_effect_changes_nothing(make_trainer: Make) -> None:
    plain = fitted(lambda: make_trainer(dropout=0.3, ema=0.9))
    watched = fitted(lambda: make_trainer(dropout=0.3, ema=0.9, callbacks=[Events()]))
    for p, q in zip(plain.model.parameters(), watched.model.parameters(), strict=True):
        assert torch.equal(p, q)


class Noise(Callback):
    """A callback whose state decides how training goes on: noise on the weights that grows with a running sum."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(7)
        self.total, self.seen, self.worst = torch.zeros(()), 0, -math.inf

    def on_step_end(self, state: TrainingState) -> None:
        self.seen += 1
        with torch.no_grad():
            for weight in self.trainer.model.parameters():
                noise = torch.randn(weight.shape, generator=self.generator)
                weight += 1e-3 * (1 + self.total.sigmoid()) * noise / self.seen
                self.total += noise.sum()

    def on_epoch_end(self, state: TrainingState) -> None:
        self.worst = max(self.worst, state.history[-1]["train_loss"])

    def state_dict(self) -> dict[str, Any]:
        return {
            "random": self.generator.get_state(),
            "sums": {"total": self.total, "seen": self.seen},
            "more": [self.worst, None, "text", True],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.generator.set_state(state["random"])
        self.total, self.seen = state["sums"]["total"], state["sums"]["seen"]
        self.worst = state["more"][0]
        assert state["more"][1:] == [None, "text", True]


@pytest.mark.parametrize("stop_at", [1, 4, 6, 9, 18])
def test_a_resumed_run_with_a_stateful_callback_is_bit_identical(make_trainer: Make, stop_at: int) -> None:
    def make() -> Trainer:
        return make_trainer(dropout=0.3, ema=0.9, callbacks=[Noise()])

    whole, again = fitted(make), fitted(make, stop_at)
    for p, q in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(p, q)
    assert whole.average is not None
    assert again.average is not None
    assert all(torch.equal(whole.average.weights[k], again.average.weights[k]) for k in whole.average.weights)
    ours, theirs = (trainer.own_callbacks[0] for trainer in (whole, again))
    assert isinstance(ours, Noise)
    assert isinstance(theirs, Noise)
    assert (ours.seen, ours.worst) == (theirs.seen, theirs.worst)
    assert torch.equal(ours.total, theirs.total)
    assert [{**r, "seconds": 0} for r in whole.state.history] == [{**r, "seconds": 0} for r in again.state.history]


def test_without_its_state_the_run_would_end_otherwise(make_trainer: Make) -> None:
    """The test above can fail: the callback's state does matter."""

    class Forgets(Noise):
        def load_state_dict(self, state: dict[str, Any]) -> None:
            pass

    whole = fitted(lambda: make_trainer(callbacks=[Forgets()]))
    again = fitted(lambda: make_trainer(callbacks=[Forgets()]), 6)
    assert not all(torch.equal(p, q) for p, q in zip(whole.model.parameters(), again.model.parameters()))


def test_two_callbacks_of_one_class_keep_their_own_state() -> None:
    class Number(Callback):
        def __init__(self, value: float) -> None:
            self.value = value

        def state_dict(self) -> dict[str, Any]:
            return {"value": self.value}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.value = state["value"]

    states, tensors = collect_states([Number(1), Number(math.inf), Callback()])
    assert states.keys() == {"Number", "Number-2"}
    assert not tensors
    new = [Number(0), Number(0)]
    restore_states(new, states, tensors)
    assert [one.value for one in new] == [1, math.inf]


@pytest.mark.parametrize("value", [object(), {1: 2}, {"$tensor": 1}, {1, 2}])
def test_a_state_that_cannot_be_saved_is_named(make_trainer: Make, value: Any) -> None:
    class Odd(Callback):
        def state_dict(self) -> dict[str, Any]:
            return {"odd": value}

    with pytest.raises(TrainingError, match=r"callback Odd failed in state_dict: TypeError: Odd\.odd is a"):
        make_trainer(epochs=1, callbacks=[Odd()]).fit()


def test_checkpoints_without_states_hold_none(make_trainer: Make) -> None:
    trainer = make_trainer(epochs=1)
    trainer.fit()
    tensors, meta = read_tensors(trainer.checkpoints / "last.safetensors")
    assert meta["state"]["callbacks"] == {}
    assert not [name for name in tensors if name.startswith("callback")]
    del meta["state"]["callbacks"]  # as earlier versions wrote it
    assert load_checkpoint(trainer.checkpoints, network(), trainer.optimizers, None).state.callbacks == {}


# --- the public interface -----------------------------------------------------------------------------------------

GIVEN = {"epochs": 3, "tensorboard": False, "batch_size": 32}


def test_train_takes_callbacks_and_resumes_with_them_alone(tmp_path: Path) -> None:
    events = Events()
    cutaway.train("softmax", "iris", **GIVEN, out=tmp_path / "events", callbacks=[events])
    assert {hook for hook, *_ in events.seen} == set(HOOKS)
    whole = cutaway.train("softmax", "iris", **GIVEN, out=tmp_path / "whole", callbacks=[Noise()])
    with stopping(5):
        cutaway.train("softmax", "iris", **GIVEN, out=tmp_path / "again", callbacks=[Noise()])
    with pytest.raises(SettingError, match=r"state of the callbacks Noise.*callbacks=\[Noise\(\)\]"):
        cutaway.train(resume=tmp_path / "again")
    again = cutaway.train(resume=tmp_path / "again", callbacks=[Noise()])
    assert whole.model is not None
    for p, q in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(p, q)
    a, b = (read_tensors(run.folder / "checkpoints" / "last.safetensors")[0] for run in (whole, again))
    assert a.keys() == b.keys()
    assert all(torch.equal(a[key], b[key]) for key in a)
    assert any(key.startswith("callback.Noise") for key in a)


def test_an_exception_leaves_the_last_checkpoint_to_resume_from(tmp_path: Path) -> None:
    class Once(Callback):
        broken = True

        def on_step_end(self, state: TrainingState) -> None:
            if self.broken and state.epoch == 1:
                raise ValueError("of mine")

    with pytest.raises(TrainingError, match="callback Once failed in on_step_end: ValueError: of mine"):
        cutaway.train("softmax", "iris", **GIVEN, out=tmp_path / "run", callbacks=[Once()])
    run = cutaway.train(resume=tmp_path / "run")
    assert run.about["epochs_done"] == 3


def test_an_interruption_by_a_callback_is_one(tmp_path: Path) -> None:
    class Presses(Callback):
        def on_step_end(self, state: TrainingState) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as raised:
        cutaway.train("softmax", "iris", **GIVEN, out=tmp_path / "run", callbacks=[Presses()])
    assert not isinstance(raised.value, Interrupted)


@pytest.mark.parametrize(
    ("callbacks", "said"),
    [
        (Callback(), "Invalid callbacks=Callback: must be a list"),
        ([Callback], "the class Callback is not an object of a subclass of cutaway.Callback"),
        ([nn.Linear(1, 1)], "Linear is not an object"),
    ],
)
def test_other_objects_are_no_callbacks(tmp_path: Path, callbacks: Any, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        cutaway.train("softmax", "iris", **GIVEN, out=tmp_path / "run", callbacks=callbacks)
    assert not (tmp_path / "run").exists()


def test_started_processes_cannot_have_them(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="Invalid callbacks: processes=2 starts other processes"):
        cutaway.train("softmax", "iris", **GIVEN, processes=2, out=tmp_path / "run", callbacks=[Events()])


def test_an_estimator_takes_them() -> None:
    events, x = Events(), torch.randn(40, 3).numpy()
    Classifier("softmax", epochs=2, callbacks=[events]).fit(x, (x[:, 0] > 0).astype(int))
    assert [hook for hook, *_ in events.seen].count("on_epoch_end") == 2
    assert "on_train_end" in {hook for hook, *_ in events.seen}
