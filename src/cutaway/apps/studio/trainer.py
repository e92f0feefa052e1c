"""Training step by step: the loop of `cutaway train` under manual control, with settings that can change.

The updates are those of `training/trainer.py`, from the same seed and in the same order: the weights after an epoch are
bit-identical to those of `cutaway train` with the same settings. Changes are logged with their steps; replayed at the
same steps, they give the same weights.

The history is bounded: snapshots of weights and curves are recorded at a fixed interval of steps. When they are full,
every second entry is dropped and the interval doubles. Which entries are kept depends only on steps, never on time.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...core.config import as_text, build
from ...core.errors import IncompatibleSettingError, SettingError, TrainingError, UnknownName
from ...training.callbacks import Progress
from ...training.checkpoint import TrainingState, latest_checkpoint
from ...training.config import TrainSettings
from ...training.optim import build_optimizers
from ...training.setup import TrainingSetup, reject_incompatible
from ...training.trainer import Trainer
from .ipc import Layout
from .setup import Built, Change, reject_large_steps, with_data, with_settings

SNAPSHOTS = 200
SNAPSHOT_BYTES = 256 * 2**20
POINTS = 300


class Snapshots:
    """Snapshots of weights: at most 200 and 256 MiB; none for a model so large that not even four fit."""

    def __init__(self, size: int) -> None:
        """Set up the store; `size` is the size of one snapshot in bytes."""
        room = SNAPSHOT_BYTES // size
        self.most = min(SNAPSHOTS, room) if room >= 4 else 0
        self.every = 1
        self.rows: dict[int, Tensor] = {}

    def due(self, step: int) -> bool:
        """Return whether to keep the weights at this step."""
        return self.most > 0 and step % self.every == 0

    def keep(self, step: int, copy: Callable[[], Tensor]) -> None:
        """Keep the result of `copy`, and drop old snapshots if necessary."""
        if not self.most:
            return
        while step not in self.rows and len(self.rows) >= self.most:
            self.every *= 2
            first = min(self.rows)
            self.rows = {s: row for s, row in self.rows.items() if s % self.every == 0 or s == first}
            if step % self.every:
                return
        self.rows[step] = copy()

    def nearest(self, step: int) -> int | None:
        """Return the step of the nearest snapshot, or None."""
        return min(self.rows, key=lambda s: (abs(s - step), s), default=None)

    @property
    def steps(self) -> list[int]:
        """Steps of the snapshots, in order."""
        return sorted(self.rows)


class Curves:
    """Training and validation loss by step, at most 300 points each.

    A point of the training loss is the mean since the point before. Validation has its own points, at the steps where
    it was measured.
    """

    def __init__(self, step: int = 0) -> None:
        self.every, self.last = 1, step
        self.train: list[tuple[int, float | None]] = []
        self.val: list[tuple[int, float]] = []
        self._sum = self._counted = 0.0

    def add(self, loss: float, counted: float) -> None:
        """Add the loss of a step, as a sum over `counted` elements."""
        self._sum += loss
        self._counted += counted

    def due(self, step: int) -> bool:
        """Return whether a point of the training loss is due."""
        return step - self.last >= self.every

    def measured(self, step: int, val: float) -> None:
        """Add a point of the validation loss. When the curve is full, every second point is dropped, but never the
        newest."""
        self.val = [point for point in self.val if point[0] < step] + [(step, val)]
        if len(self.val) > POINTS:
            self.val = self.val[::-2][::-1]

    def close(self, step: int) -> None:
        """Add a point with the mean training loss since the last one."""
        self.train.append((step, self._sum / self._counted if self._counted else None))
        self.last, self._sum, self._counted = step, 0.0, 0.0
        if len(self.train) > POINTS:
            pairs = zip(self.train[::2], self.train[1::2])
            self.train = [_merged(a, b) for a, b in pairs] + self.train[len(self.train) // 2 * 2 :]
            self.every *= 2

    @property
    def latest(self) -> float | None:
        """Training loss of the last point, or None."""
        return self.train[-1][1] if self.train else None

    def to_json(self) -> dict[str, list[Any]]:
        """Return the columns step, train and val, with None where a step has only one of the two."""
        train, val = dict(self.train), dict(self.val)
        steps = sorted({*train, *val})
        return {
            "step": steps,
            "train": [round_digits(train.get(step)) for step in steps],
            "val": [round_digits(val.get(step)) for step in steps],
        }


def _merged(first: tuple[int, float | None], second: tuple[int, float | None]) -> tuple[int, float | None]:
    """Merge two neighbouring points into one at the second step."""
    known = [x for x in (first[1], second[1]) if x is not None]
    return second[0], sum(known) / len(known) if known else None


def round_digits(x: float | None) -> float | None:
    """Round a finite number to five significant digits; return None for other values."""
    return float(f"{x:.5g}") if x is not None and x - x == 0 else None


LIVE = (
    "lr",
    "weight_decay",
    "batch_size",
    "optimizer",
    "momentum",
    "grad_clip",
)  # in addition to data and model settings
DRAWN = ("noise", "count")
SELDOM = 10  # minimum steps between validations
DEAR = 2  # training examples between validations, as a multiple of the validation split: a sixth of the time
QUICK = 2e8  # parameters times examples up to which a validation is fast enough to wait for


class LiveTrainer:
    """A model in training."""

    def __init__(self, built: Built, folder: Path) -> None:
        """Set up training; `folder` is required by the trainer, but nothing is written to it."""
        self.folder, self.run, self.notes = folder, built.run, list(built.notes)
        self._first = built.ready
        self._layout = Layout(self._first.model)
        self._weights = self._layout.copy()  # the initial weights
        self._random = torch.get_rng_state()
        self.begin()

    def begin(self) -> None:
        """Reset everything to the state at opening."""
        self._layout.read(self._weights)
        torch.set_rng_state(self._random)
        self.ready = dataclasses.replace(self._first)
        self.trainer = self._trainer(self.ready)
        reject_large_steps(self.trainer, self.settings)
        self.ended = False  # whether the schedule has ended since this flag was last read
        self.log: list[Change] = []
        self._begin_or_resume()
        self.layout = Layout(self.trainer.model)
        self.snapshots = Snapshots(self.layout.size)
        self._running: Iterator[bool] | None = None
        self._seen = (self.state.loss_sum, self.state.counted)
        self._turned, self._epoch_length = self.step, math.inf
        self._validated = self.step
        self.at: int | None = None  # step of the displayed snapshot; None for the current weights
        self.rows: list[dict[str, Any]] = []  # rows of metrics.csv of a saved run
        self.measured: tuple[Any, dict[str, float]] = (
            None,
            {},
        )  # the time (step, at, revision) and the validation metrics
        self._revision = 0  # counts changes by hand, which make earlier metrics invalid
        self._snap()

    # --- state ------------------------------------------------------------------------------------------------

    @property
    def state(self) -> TrainingState:
        """State of the training loop."""
        return self.trainer.state

    @property
    def step(self) -> int:
        """Number of updates so far."""
        return self.state.update

    @property
    def settings(self) -> TrainSettings:
        """Current settings."""
        return self.trainer.settings

    def write(self, row: Tensor) -> None:
        """Copy the displayed weights into the row."""
        if self.at is None:
            self.layout.write(row)
        else:
            row.copy_(self.snapshots.rows[self.at])

    def metrics(self, patient: bool) -> dict[str, float]:
        """Return the last validation metrics.

        With `patient`, they are those of the displayed weights, measured now if that is fast, otherwise empty.
        `measured_at` is their step.
        """
        now = (self.step, self.at, self._revision)
        if patient and self.measured[0] != now and self._quick():
            self._validate(now)
        if patient and self.measured[0] != now:
            return {}
        return self.measured[1]

    @property
    def measured_at(self) -> int | None:
        """Step of the weights that the last metrics belong to, or None."""
        when = self.measured[0]
        return None if when is None else when[0] if when[1] is None else when[1]

    # --- forward ----------------------------------------------------------------------------------------------

    def advance(self) -> bool:
        """Do one update; return whether it ended the epoch. Raises TrainingError if a number is not finite."""
        self.at = None
        if self._running is None:
            self._running = self.trainer.epoch()
        last = next(self._running, None)
        if last is None:  # resumed at the end of an epoch
            self._end_epoch()
            return True
        self._record_loss()
        step = self.step
        if self.curves.due(step) and self._epoch_length > 4 * self.curves.every:
            self.trainer.sync_losses()
            self._record_loss()
            self.curves.close(step)
        if self.snapshots.due(step):
            self._snap()
        if last:
            self._end_epoch()
        elif self._is_time_to_validate():
            self._validate_now()
        return last

    def _is_time_to_validate(self) -> bool:
        """Return whether to validate within an epoch: after enough examples to make it cheap, and early in training,
        when metrics change fastest, whenever the number of steps has doubled."""
        if self.trainer.val is None:
            return False
        since = self.step - self._validated
        cheap = math.ceil(DEAR * len(self.trainer.val) / max(1, self.settings.batch_size or len(self.trainer.train)))
        return since >= max(SELDOM, 2 * self.curves.every, min(cheap, max(self._validated, cheap // 4)))

    def _validate_now(self) -> None:
        """Validate, and add a point to the curves."""
        self._validate((self.step, None, self._revision))
        self._validated = self.step
        self.curves.measured(self.step, self.measured[1]["loss"])
        self.rows.append(self.row(self.measured[1]))
        if len(self.rows) > POINTS:
            self.rows = self.rows[::-2][::-1]

    def row(self, scores: dict[str, float]) -> dict[str, Any]:
        """Return the current row of metrics.csv."""
        loss = {"train_loss": self.curves.latest}
        val = {f"val_{key}": value for key, value in scores.items()}
        return {"epoch": self.state.epoch + 1, "step": self.step, "lr": self.state.lr, **loss, **val, "seconds": 0.0}

    def _end_epoch(self) -> None:
        """End the epoch. Validate unless that happened a few steps ago."""
        self.trainer.sync_losses()
        self._record_loss()
        self._epoch_length, self._turned = self.step - self._turned, self.step
        if self.curves.due(self.step):
            self.curves.close(self.step)
        if self.trainer.val is not None and self.step - self._validated >= 2 * self.curves.every:
            self._validate_now()
        self.trainer.next_epoch()
        self._seen, self._running = (0.0, 0.0), None
        if self.settings.schedule != "constant" and self.state.epoch >= self.trainer.task_schedule.epochs:
            self._continue_at_constant_lr()

    def _continue_at_constant_lr(self) -> None:
        """Continue at the full learning rate after the end of a schedule."""
        self.ended = True
        self.trainer.settings = dataclasses.replace(self.settings, schedule="constant")
        self.notes.append(
            f"The schedule of {self.trainer.task_schedule.epochs} epochs is finished. "
            f"Play continues at the constant rate lr={as_text(self.settings.lr)}."
        )

    def _record_loss(self) -> None:
        """Add the loss of the last update to the curves."""
        state = self.state
        self.curves.add(state.loss_sum - self._seen[0], state.counted - self._seen[1])
        self._seen = (state.loss_sum, state.counted)

    # --- seek -------------------------------------------------------------------------------------------------

    def seek(self, step: int) -> None:
        """Display the snapshot nearest to a step. The next update still continues from the newest weights."""
        nearest = self.snapshots.nearest(step)
        newest = nearest is None or abs(step - self.step) <= abs(step - nearest)
        self.at = None if newest else nearest

    def _snap(self) -> None:
        self.snapshots.keep(self.step, self.layout.copy)

    # --- changes ----------------------------------------------------------------------------------------------

    def change(self, key: str, value: str) -> None:
        """Change a setting from the next update on.

        Raises SettingError for a setting that cannot change during training, and for an invalid value.
        """
        if ";" in value:
            raise SettingError(f"Invalid {key}={value}: must not contain a semicolon.")
        if key.startswith("model."):
            self._replace_model(with_settings(self.ready, {key.removeprefix("model."): value}))
        elif key in DRAWN:
            self._replace_data(with_data(self.ready, {key: value}))
        elif key in LIVE:
            self._change_setting(key, value)
        else:
            raise IncompatibleSettingError(
                f"{key} cannot change during training: open the model again with {key}={value}."
            )
        self._log_change(Change(self.step, key, value))

    def weighed(self, name: str, index: tuple[int, ...]) -> float:
        """Return the current value of one weight. Raises UnknownName, and SettingError for an invalid index."""
        return float(self._weight(name, index).detach()[index])

    def weigh(self, name: str, index: tuple[int, ...], value: float) -> None:
        """Set one weight by hand. Raises UnknownName, and SettingError for an invalid index or number."""
        weight = self._weight(name, index)
        if not math.isfinite(value) or abs(value) > 1e6:
            raise SettingError(f"Invalid weight {value:g}: must be from -1 000 000 to 1 000 000.")
        with torch.no_grad():
            weight[index] = value
        self._log_change(Change(self.step, name, repr(value), index))

    def _weight(self, name: str, index: tuple[int, ...]) -> Tensor:
        """Return the parameter with this name, after a check of the index."""
        parameters = dict(self.trainer.model.named_parameters())
        if name not in parameters:
            raise UnknownName("weight", name, parameters)
        weight = parameters[name]
        inside = len(index) == weight.ndim and all(0 <= i < size for i, size in zip(index, weight.shape))
        if not inside:
            raise SettingError(
                f"Invalid index [{','.join(map(str, index))}] of {name}: its shape is {list(weight.shape)}."
            )
        return weight

    def do_again(self, change: Change) -> None:
        """Replay a change from a log."""
        if change.index is None:
            self.change(change.key, change.value)
        else:
            self.weigh(change.key, change.index, float(change.value))

    def _log_change(self, change: Change) -> None:
        """Log a change; it replaces an earlier change of the same thing at the same step."""
        same = [c for c in self.log if (c.step, c.key, c.index) == (change.step, change.key, change.index)]
        self.log = [c for c in self.log if c not in same] + [change]
        self.at = None
        self._revision += 1
        self._snap()

    def _change_setting(self, key: str, value: str) -> None:
        """Change a training setting."""
        trainer, given = self.trainer, dataclasses.asdict(self.settings)
        settings = build(TrainSettings, {**given, key: value})
        if key == "batch_size":
            settings = dataclasses.replace(settings, batch_tokens=0)
        reject_incompatible(settings, trainer.train)
        if key == "batch_size":
            reject_large_steps(trainer, settings)
        if key in ("optimizer", "weight_decay", "momentum", "grad_clip"):
            optimizers = build_optimizers(trainer.model, settings)  # raises for invalid settings
            if key == "optimizer":
                trainer.optimizers = optimizers
        trainer.settings = settings
        for group in (group for optimizer in trainer.optimizers for group in optimizer.param_groups):
            if key == "weight_decay" and group["decays"]:
                group["weight_decay"] = settings.weight_decay
            if key == "momentum" and group.get("momentum"):
                group["momentum"] = settings.momentum
        if key == "batch_size":
            self._restart_epoch()

    def _replace_data(self, ready: TrainingSetup) -> None:
        """Replace the data with a new draw of the same data set."""
        trainer, splits = self.trainer, ready.data.splits
        self.ready = dataclasses.replace(ready, model=self.ready.model)
        trainer.train = trainer.place.keep_on_device(splits["train"])
        trainer.val = trainer.place.keep_on_device(splits["val"]) if "val" in splits else None
        self._restart_epoch()

    def _replace_model(self, ready: TrainingSetup) -> None:
        """Replace the model with one of other settings and the same weights; keep all other state."""
        old, self.ready = self.trainer, dataclasses.replace(ready, settings=self.settings)
        self.trainer = self._trainer(self.ready)
        self.trainer.state, self.trainer.objective.hidden_state = old.state, old.objective.hidden_state
        self.trainer.objective.load_state(old.objective.state())
        for new, before in zip(self.trainer.optimizers, old.optimizers):
            new.load_state_dict(before.state_dict())
        if self.trainer.average and old.average:
            self.trainer.average.load(old.average.weights)
        self.layout, self._running = Layout(self.trainer.model), None

    def _restart_epoch(self) -> None:
        """Restart the current epoch, because its batches have changed."""
        state = self.state
        state.batch, state.loss_sum, state.counted = 0, 0.0, 0.0
        self._seen, self._running = (0.0, 0.0), None

    # --- setup ------------------------------------------------------------------------------------------------

    def _trainer(self, ready: TrainingSetup) -> Trainer:
        given = (ready.model, ready.data, ready.task, ready.settings, ready.place, self.folder, Progress(False))
        return Trainer(*given, teacher=ready.teacher)

    def _begin_or_resume(self) -> None:
        """Initialize training, or resume from the checkpoint of the opened run, with its curves."""
        trainer, run = self.trainer, self.run
        checkpoints = run.folder / "checkpoints" if run is not None else self.folder
        if run is not None and latest_checkpoint(checkpoints) is not None:
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
        trainer.state.history = []  # the curves hold it, in bounded memory
        finished = self.state.epoch >= trainer.task_schedule.epochs
        if self.settings.schedule != "constant" and finished:
            self._continue_at_constant_lr()
            self.ended = False

    def _validate(self, when: Any) -> None:
        """Measure validation metrics of the displayed weights. The state of training does not change."""
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
        """Return whether a validation is fast enough to wait for."""
        val = self.trainer.val
        return val is not None and len(val) * sum(p.numel() for p in self.trainer.model.parameters()) <= QUICK


def error_message(error: TrainingError) -> str:
    """Return the message for a number that is not finite; there are no checkpoints here to return to."""
    return f"{str(error).replace(' There is no checkpoint yet.', '')} Then start again."


__all__ = ["DRAWN", "LIVE", "LiveTrainer", "error_message"]
