"""Training step by step: the loop of `cutaway train`, held by hand, and changed while it goes on.

The updates are those of `training/trainer.py`, from the same seed in the same order, so that the weights after an epoch
are bit for bit those of `cutaway train` with the same settings. What a person changes is written down with its step:
done again at the same steps it gives the same weights again.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...core.config import as_text, build
from ...core.errors import SettingError, TrainingError, UnknownName
from ...training.checkpoint import State, newest
from ...training.config import TrainSettings
from ...training.config_checks import reject_unfit
from ...training.optimizers import build_optimizers
from ...training.progress import Progress
from ...training.setup import Prepared
from ...training.trainer import Trainer
from .fitting import reject_large_steps
from .history import POINTS, Curves, Snapshots
from .setup import Built, with_data, with_settings
from .shared_memory import Layout
from .state import Change

LIVE = ("lr", "weight_decay", "batch_size", "optimizer", "momentum", "grad_clip")  # besides data and the model's own
DRAWN = ("noise", "count")
SELDOM = 10  # steps between validations, at least
DEAR = 2  # times as many training examples as a validation has lie between two of them: they take a sixth of the time
QUICK = 2e8  # parameters times examples up to which a validation is no wait worth speaking of


class Live:
    """One model in training."""

    def __init__(self, built: Built, folder: Path) -> None:
        """`folder` is where a trainer could write; nothing is written while it is held by hand."""
        self.folder, self.run, self.notes = folder, built.run, list(built.notes)
        self._first = built.ready
        self._layout = Layout(self._first.model)
        self._weights = self._layout.copy()  # as they begin
        self._random = torch.get_rng_state()
        self.begin()

    def begin(self) -> None:
        """Put everything back to where it was opened."""
        self._layout.read(self._weights)
        torch.set_rng_state(self._random)
        self.ready = dataclasses.replace(self._first)
        self.trainer = self._trainer(self.ready)
        reject_large_steps(self.trainer, self.settings)
        self.ended = False  # whether the schedule has come to its end since this was last looked at
        self.log: list[Change] = []
        self._take_up()
        self.layout = Layout(self.trainer.model)
        self.snapshots = Snapshots(self.layout.size)
        self._running: Iterator[bool] | None = None
        self._seen = (self.state.loss_sum, self.state.counted)
        self._turned, self._epoch_length = self.step, math.inf
        self._validated = self.step
        self.at: int | None = None  # the step whose snapshot is looked at; None: what stands now
        self.rows: list[dict[str, Any]] = []  # of metrics.csv, where what was trained is saved
        self.measured: tuple[Any, dict[str, float]] = (None, {})  # on the validation split, and when
        self._revision = 0  # of what was changed by hand: metrics of before are no longer true
        self._snap()

    # --- where it stands --------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The loop's own counts."""
        return self.trainer.state

    @property
    def step(self) -> int:
        """Updates that are done."""
        return self.state.update

    @property
    def settings(self) -> TrainSettings:
        """As they are now."""
        return self.trainer.settings

    def write(self, row: Tensor) -> None:
        """Copy the weights that are looked at into the row."""
        if self.at is None:
            self.layout.write(row)
        else:
            row.copy_(self.snapshots.rows[self.at])

    def metrics(self, patient: bool) -> dict[str, float]:
        """The last metrics on the validation split; with `patient` those of the weights that are looked at, where they
        take no time worth speaking of. `measured_at` says of which step they are."""
        now = (self.step, self.at, self._revision)
        if patient and self.measured[0] != now and self._quick():
            self._validate(now)
        if patient and self.measured[0] != now:
            return {}
        return self.measured[1]

    @property
    def measured_at(self) -> int | None:
        """The step whose weights the last metrics are of; None where there are none."""
        when = self.measured[0]
        return None if when is None else when[0] if when[1] is None else when[1]

    # --- forward ----------------------------------------------------------------------------------------------

    def advance(self) -> bool:
        """Do one update; whether it ended the epoch. Raises TrainingError where a number is not finite."""
        self.at = None
        if self._running is None:
            self._running = self.trainer.epoch()
        last = next(self._running, None)
        if last is None:  # it was taken up where an epoch had no more to do
            self._turn()
            return True
        self._count()
        step = self.step
        if self.curves.due(step) and self._epoch_length > 4 * self.curves.every:
            self.trainer.look()
            self._count()
            self.curves.close(step)
        if self.snapshots.due(step):
            self._snap()
        if last:
            self._turn()
        elif self._is_time_to_validate():
            self._validate_now()
        return last

    def _is_time_to_validate(self) -> bool:
        """Whether to validate within an epoch: after as many examples as make it cheap, and at the beginning, when the
        metrics change fastest, whenever the steps have doubled."""
        if self.trainer.val is None:
            return False
        since = self.step - self._validated
        cheap = math.ceil(DEAR * len(self.trainer.val) / max(1, self.settings.batch_size or len(self.trainer.train)))
        return since >= max(SELDOM, 2 * self.curves.every, min(cheap, max(self._validated, cheap // 4)))

    def _validate_now(self) -> None:
        """Validate, and give the curves a point."""
        self._validate((self.step, None, self._revision))
        self._validated = self.step
        self.curves.measured(self.step, self.measured[1]["loss"])
        self.rows.append(self.row(self.measured[1]))
        if len(self.rows) > POINTS:
            self.rows = self.rows[::-2][::-1]

    def row(self, scores: dict[str, float]) -> dict[str, Any]:
        """A row of metrics.csv, as it stands now."""
        loss = {"train_loss": self.curves.latest}
        val = {f"val_{key}": value for key, value in scores.items()}
        return {"epoch": self.state.epoch + 1, "step": self.step, "lr": self.state.lr, **loss, **val, "seconds": 0.0}

    def _turn(self) -> None:
        """End the epoch. It is validated unless that was done a moment ago."""
        self.trainer.look()
        self._count()
        self._epoch_length, self._turned = self.step - self._turned, self.step
        if self.curves.due(self.step):
            self.curves.close(self.step)
        if self.trainer.val is not None and self.step - self._validated >= 2 * self.curves.every:
            self._validate_now()
        self.trainer.next_epoch()
        self._seen, self._running = (0.0, 0.0), None
        if self.settings.schedule != "constant" and self.state.epoch >= self.trainer.sequence.epochs:
            self._go_on_beyond()

    def _go_on_beyond(self) -> None:
        """What comes after the end of a schedule is training at its full rate."""
        self.ended = True
        self.trainer.settings = dataclasses.replace(self.settings, schedule="constant")
        self.notes.append(
            f"The schedule of {self.trainer.sequence.epochs} epochs has come to its end. "
            f"Play goes on at the constant rate lr={as_text(self.settings.lr)}."
        )

    def _count(self) -> None:
        """Give the curves what the last update lost."""
        state = self.state
        self.curves.add(state.loss_sum - self._seen[0], state.counted - self._seen[1])
        self._seen = (state.loss_sum, state.counted)

    # --- back -------------------------------------------------------------------------------------------------

    def seek(self, step: int) -> None:
        """Look at the snapshot nearest to that step. Nothing that was learned is lost: the next update goes on from
        the newest weights."""
        nearest = self.snapshots.nearest(step)
        newest = nearest is None or abs(step - self.step) <= abs(step - nearest)
        self.at = None if newest else nearest

    def _snap(self) -> None:
        self.snapshots.keep(self.step, self.layout.copy)

    # --- changes ----------------------------------------------------------------------------------------------

    def change(self, key: str, value: str) -> None:
        """Change a setting, from the next update on. Raises SettingError for one that a running training cannot have,
        and what the setting itself rejects."""
        if ";" in value:
            raise SettingError(f"{key}={value} cannot be: a value has no semicolon.")
        if key.startswith("model."):
            self._remodel(with_settings(self.ready, {key.removeprefix("model."): value}))
        elif key in DRAWN:
            self._redraw(with_data(self.ready, {key: value}))
        elif key in LIVE:
            self._resettle(key, value)
        else:
            raise SettingError(f"{key} cannot change while a model trains: open it anew with {key}={value}.")
        self._changed(Change(self.step, key, value))

    def weighed(self, name: str, index: tuple[int, ...]) -> float:
        """One weight as it is now. Raises UnknownName, and SettingError for a place that cannot be."""
        return float(self._weight(name, index).detach()[index])

    def weigh(self, name: str, index: tuple[int, ...], value: float) -> None:
        """Set one weight by hand. Raises UnknownName, and SettingError for a place or a number that cannot be."""
        weight = self._weight(name, index)
        if not math.isfinite(value) or abs(value) > 1e6:
            raise SettingError(f"{value:g} cannot be a weight: it is a number from -1 000 000 to 1 000 000.")
        with torch.no_grad():
            weight[index] = value
        self._changed(Change(self.step, name, repr(value), index))

    def _weight(self, name: str, index: tuple[int, ...]) -> Tensor:
        """The parameter of that name, which has that place."""
        parameters = dict(self.trainer.model.named_parameters())
        if name not in parameters:
            raise UnknownName("weight", name, parameters)
        weight = parameters[name]
        inside = len(index) == weight.ndim and all(0 <= i < size for i, size in zip(index, weight.shape))
        if not inside:
            raise SettingError(f"{name} has no place [{','.join(map(str, index))}]: its shape is {list(weight.shape)}.")
        return weight

    def do_again(self, change: Change) -> None:
        """A change out of a log."""
        if change.index is None:
            self.change(change.key, change.value)
        else:
            self.weigh(change.key, change.index, float(change.value))

    def _changed(self, change: Change) -> None:
        """Write it down; of several at one step for one thing the last is enough."""
        same = [c for c in self.log if (c.step, c.key, c.index) == (change.step, change.key, change.index)]
        self.log = [c for c in self.log if c not in same] + [change]
        self.at = None
        self._revision += 1
        self._snap()

    def _resettle(self, key: str, value: str) -> None:
        """Another setting of training."""
        trainer, given = self.trainer, dataclasses.asdict(self.settings)
        settings = build(TrainSettings, {**given, key: value})
        if key == "batch_size":
            settings = dataclasses.replace(settings, batch_tokens=0)
        reject_unfit(settings, trainer.train)
        if key == "batch_size":
            reject_large_steps(trainer, settings)
        if key in ("optimizer", "weight_decay", "momentum", "grad_clip"):
            optimizers = build_optimizers(trainer.model, settings)  # rejects what cannot be
            if key == "optimizer":
                trainer.optimizers = optimizers
        trainer.settings = settings
        for group in (group for optimizer in trainer.optimizers for group in optimizer.param_groups):
            if key == "weight_decay" and group["decays"]:
                group["weight_decay"] = settings.weight_decay
            if key == "momentum" and group.get("momentum"):
                group["momentum"] = settings.momentum
        if key == "batch_size":
            self._epoch_anew()

    def _redraw(self, ready: Prepared) -> None:
        """The same data set, drawn anew."""
        trainer, splits = self.trainer, ready.data.splits
        self.ready = dataclasses.replace(ready, model=self.ready.model)
        trainer.train = trainer.place.hold(splits["train"])
        trainer.val = trainer.place.hold(splits["val"]) if "val" in splits else None
        self._epoch_anew()

    def _remodel(self, ready: Prepared) -> None:
        """The same weights in a model of other settings, and everything else as it stands."""
        old, self.ready = self.trainer, dataclasses.replace(ready, settings=self.settings)
        self.trainer = self._trainer(self.ready)
        self.trainer.state, self.trainer.objective.carried = old.state, old.objective.carried
        self.trainer.objective.remember(old.objective.remembered())
        for new, before in zip(self.trainer.optimizers, old.optimizers):
            new.load_state_dict(before.state_dict())
        if self.trainer.average and old.average:
            self.trainer.average.load(old.average.weights)
        self.layout, self._running = Layout(self.trainer.model), None

    def _epoch_anew(self) -> None:
        """Begin the running epoch again: its batches are others now."""
        state = self.state
        state.batch, state.loss_sum, state.counted = 0, 0.0, 0.0
        self._seen, self._running = (0.0, 0.0), None

    # --- beginning --------------------------------------------------------------------------------------------

    def _trainer(self, ready: Prepared) -> Trainer:
        given = (ready.model, ready.data, ready.task, ready.settings, ready.place, self.folder, Progress(False))
        return Trainer(*given, teacher=ready.teacher)

    def _take_up(self) -> None:
        """Begin, or go on where the run that was opened has its checkpoint, with its curves."""
        trainer, run = self.trainer, self.run
        checkpoints = run.folder / "checkpoints" if run is not None else self.folder
        if run is not None and newest(checkpoints) is not None:
            trainer.checkpoints = checkpoints
            trainer.resume()
            trainer.checkpoints = self.folder
        elif run is None:
            trainer.begin()
        self.curves = Curves(self.step)
        for row in trainer.state.history:
            self.curves.train.append((row["step"], row["train_loss"]))
            if row.get("val_loss") is not None:
                self.curves.measured(row["step"], row["val_loss"])
        trainer.state.history = []  # the curves hold it, in bounds
        finished = self.state.epoch >= trainer.sequence.epochs
        if self.settings.schedule != "constant" and finished:
            self._go_on_beyond()
            self.ended = False

    def _validate(self, when: Any) -> None:
        """Metrics on the validation split, of what is looked at. Nothing of the training changes by it."""
        assert self.trainer.val is not None
        if self.at is None:
            with torch.random.fork_rng([]):
                self.measured = (when, self.trainer.validate(self.trainer.val))
            return
        now = self.layout.copy()
        try:
            self.layout.read(self.snapshots.rows[self.at])
            average, self.trainer.average = self.trainer.average, None
            self.measured = (when, self.trainer.validate(self.trainer.val))
        finally:
            self.trainer.average = average
            self.layout.read(now)

    def _quick(self) -> bool:
        """Whether a validation can be waited for."""
        val = self.trainer.val
        return val is not None and len(val) * sum(p.numel() for p in self.trainer.model.parameters()) <= QUICK


def words_of(error: TrainingError) -> str:
    """What a person is told when a number was not finite; there are no checkpoints here to go back to."""
    return f"{str(error).replace(' There is no checkpoint yet.', '')} Then begin again."


__all__ = ["DRAWN", "LIVE", "Live", "words_of"]
