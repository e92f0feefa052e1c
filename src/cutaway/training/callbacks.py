"""Callbacks: everything optional around the training loop, and the base class for your own.

    class Callback:          calls, in this order
        on_train_start       once, before the first step of a session
        on_epoch_start       before the first step of an epoch
        on_step_end          after each optimizer step
        on_validation_end    after each validation, once its metrics are in state.history[-1]
        on_epoch_end         after each epoch
        on_checkpoint        after a checkpoint
        on_train_end         once, after the last epoch

Weight averaging often improves the validation score. An exponential moving average over all updates:

    w̄ ← d w̄ + (1 − d) w   after every update, d = min(decay, (1 + s) / (10 + s)) at update s

B. Polyak, A. Juditsky, Acceleration of stochastic approximation by averaging, 1992. The rising d is that of
TensorFlow's ExponentialMovingAverage: early weights are soon forgotten. Buffers (batch norm's statistics) are copied.

Or the mean of the weights after the last epochs: A. Vaswani et al., 2017, section 6.1, average the last 5 checkpoints
<https://arxiv.org/abs/1706.03762>.

Snapshots are copies of the weights during training, to look back at earlier states.

Rows of metrics.csv, the log of training:

    epoch,step,lr,train_loss,val_loss,val_accuracy,seconds
    1,7,0.001,2.251,,,0.41          within epoch 1: the columns of validation are empty, or filled as at the end
    1,14,0.00098,1.873,1.702,0.53,0.8
    1,20,0.00096,1.544,1.498,0.61,1.2   the last row of an epoch, with validation

`epoch` is the current epoch, counted from 1; the last row of each epoch is its end. `step` is the number of optimizer
steps, `lr` the learning rate of the last one, `train_loss` the mean loss of the steps since the previous row, and
`seconds` the training time, over all sessions. Every epoch ends with a row. If that gives fewer than 20 rows, there are
rows within epochs too: one for each twentieth of the training, by steps or by the time budget, whichever has progressed
further. Validation is run for these rows if it is cheap.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..checkpoints.saving import read_tensors, write_tensors
from ..core.errors import FileError, ResumeError, SettingError, TrainingError, WriteError
from ..core.extras import is_installed, require
from ..core.files import error_reason, is_unmoved, write_csv
from ..core.log import log, redirect
from ..core.metric_names import column_name, metric
from ..distributed.tensor_parallel import gather_tensors, load, shard_like
from .checkpoint import TrainingState, save_weights, task_weights_path
from .notebook import NotebookBar, in_notebook

if TYPE_CHECKING:
    import rich.progress


# --- the base class -----------------------------------------------------------------------------------------------


class Callback:
    """Base class of callbacks, whose methods are called during training with its state.

    Override the methods that you need, and pass objects of your class to `cutaway.train(callbacks=[...])`. Each method
    gets the `TrainingState`: `epoch` and `update` count finished epochs and optimizer steps, `batch` the finished
    batches of the current epoch, `lr` is the last learning rate, and `history` the rows of metrics.csv. Set
    `state.stopped` to a reason to end training after the current step or epoch.

    If several processes train, the methods are called in each of them, and the first one's state is saved.

    Attributes:
        trainer: The trainer, a weak proxy that is set before training starts: `trainer.model`, `trainer.settings`,
            `trainer.optimizers`, and `trainer.train_loss`, the mean training loss of the current epoch.
    """

    trainer: Any = None

    def on_train_start(self, state: TrainingState) -> None:
        """Run before the first step, also when a run is resumed.

        Args:
            state: Progress of training.
        """

    def on_epoch_start(self, state: TrainingState) -> None:
        """Run before the first step of an epoch, also of an epoch that is resumed.

        Args:
            state: Progress of training.
        """

    def on_step_end(self, state: TrainingState) -> None:
        """Run after each optimizer step, which may have several batches (gradient accumulation).

        Args:
            state: Progress of training.
        """

    def on_validation_end(self, state: TrainingState) -> None:
        """Run after each validation. Its metrics are in `state.history[-1]`, as `val_loss`, for example.

        Args:
            state: Progress of training.
        """

    def on_epoch_end(self, state: TrainingState) -> None:
        """Run after each epoch and its validation. `state.epoch` already counts it.

        Args:
            state: Progress of training.
        """

    def on_checkpoint(self, state: TrainingState) -> None:
        """Run after a checkpoint was saved.

        Args:
            state: Progress of training.
        """

    def on_train_end(self, state: TrainingState) -> None:
        """Run after the last epoch, before the model is evaluated. `state.stopped` is the reason for the end.

        Args:
            state: Progress of training.
        """

    def state_dict(self) -> dict[str, Any]:
        """Return the state to save with each checkpoint and restore when a run is resumed; empty by default.

        Returns:
            A dictionary of tensors, numbers, strings, None, and lists and dictionaries of them.
        """
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what `state_dict` returned when the checkpoint was saved.

        Args:
            state: The saved dictionary, in which tuples have become lists. Tensors are on the CPU.
        """


HOOKS = (
    "on_train_start", "on_epoch_start", "on_step_end", "on_validation_end", "on_epoch_end", "on_checkpoint",
    "on_train_end",
)  # fmt: skip
Hooks = dict[str, list[Callable[[TrainingState], None]]]


def bind_hooks(callbacks: Iterable[Callback]) -> Hooks:
    """Return the methods to call for each hook, without those that the callbacks do not override."""
    hooks: Hooks = {hook: [] for hook in HOOKS}
    for callback in callbacks:
        for hook in HOOKS:
            method = getattr(callback, hook)
            if getattr(method, "__func__", None) is not getattr(Callback, hook):
                hooks[hook].append(method if _is_built_in(callback) else _named(callback, hook, method))
    return hooks


def _is_built_in(callback: Callback) -> bool:
    return type(callback).__module__.partition(".")[0] == __name__.partition(".")[0]


def _named(callback: Callback, hook: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a user's method, whose exceptions name the callback."""

    def call(*given: Any) -> Any:
        try:
            return method(*given)
        except Exception as error:
            raise TrainingError(
                f"The callback {type(callback).__name__} failed in {hook}: {type(error).__name__}: {error}"
            ) from error

    return call


def check_callbacks(callbacks: Any) -> list[Callback]:
    """Return the callbacks as a list. Raises SettingError for other objects."""
    if not isinstance(callbacks, list | tuple):
        raise SettingError(
            f"Invalid callbacks={type(callbacks).__name__}: must be a list, as in callbacks=[MyCallback()]."
        )
    for callback in callbacks:
        if not isinstance(callback, Callback):
            kind = f"the class {callback.__name__}" if isinstance(callback, type) else type(callback).__name__
            raise SettingError(
                f"Invalid callbacks: {kind} is not an object of a subclass of cutaway.Callback. Pass MyCallback(), "
                "where MyCallback derives from cutaway.Callback."
            )
    return [*callbacks]


# --- state in checkpoints -----------------------------------------------------------------------------------------

TENSOR, FLOAT = "$tensor", "$float"  # keys that mark tensors and non-finite numbers in JSON


def callback_names(callbacks: Sequence[Callback]) -> dict[str, Callback]:
    """Return the callbacks by the name of their class, with a number for further ones of the same class."""
    found: dict[str, Callback] = {}
    for callback in callbacks:
        name, count = type(callback).__name__, 1
        while (key := name if count == 1 else f"{name}-{count}") in found:
            count += 1
        found[key] = callback
    return found


def collect_states(callbacks: Sequence[Callback]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the states of the callbacks as plain JSON values, and the tensors in them.

    Callbacks without a state are left out. Raises TrainingError for values that cannot be saved.
    """
    states, tensors = {}, dict[str, Tensor]()
    for name, callback in callback_names(callbacks).items():
        if type(callback).state_dict is not Callback.state_dict:
            state = _named(callback, "state_dict", callback.state_dict)()
            states[name] = _named(callback, "state_dict", _pack)(state, name, tensors)
    return states, tensors


def restore_states(callbacks: Sequence[Callback], states: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Load the states of a checkpoint into the callbacks."""
    for name, callback in callback_names(callbacks).items():
        if name in states:
            _named(callback, "load_state_dict", callback.load_state_dict)(_unpack(states[name], tensors))


def reject_missing(callbacks: Sequence[Callback], states: Mapping[str, Any]) -> None:
    """Raise SettingError if the checkpoint holds the state of a callback that is not among the callbacks."""
    if missing := [name for name in states if name not in callback_names(callbacks)]:
        first = missing[0].partition("-")[0]
        raise ResumeError(
            f"The checkpoint holds the state of the callbacks {', '.join(missing)}, which are not given. Resume in "
            f"Python with the same callbacks, as in cutaway.train(resume=RUN, callbacks=[{first}()])."
        )


def _pack(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """Return the value as JSON, and put its tensors into `tensors`."""
    if isinstance(value, Tensor):
        tensors[path] = value.detach().cpu().clone()
        return {TENSOR: path}
    if isinstance(value, dict) and all(isinstance(key, str) and not key.startswith("$") for key in value):
        return {key: _pack(item, f"{path}.{key}", tensors) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_pack(item, f"{path}.{i}", tensors) for i, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        return {FLOAT: repr(float(value))}
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise TypeError(
        f"{path} is a {type(value).__name__}, which cannot be saved: a state has tensors, numbers, strings, None, "
        "lists, and dictionaries with strings as keys."
    )


def _unpack(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, dict):
        if TENSOR in value:
            return tensors[value[TENSOR]]
        return float(value[FLOAT]) if FLOAT in value else {key: _unpack(item, tensors) for key, item in value.items()}
    return [_unpack(item, tensors) for item in value] if isinstance(value, list | tuple) else value


# --- weights ------------------------------------------------------------------------------------------------------


class MovingAverage(Callback):
    """Exponential moving average of a model's weights."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.model = model
        self.weights = {k: v.detach().clone() for k, v in model.state_dict().items()}

    def on_step_end(self, state: TrainingState) -> None:
        """Update the average."""
        self.update(state.update - 1)

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Update the average with the weights after update number `step`, counted from 0."""
        d = min(self.decay, (1 + step) / (10 + step))
        parameters = dict(self.model.named_parameters(remove_duplicate=False))
        torch._foreach_lerp_([self.weights[k] for k in parameters], list(parameters.values()), 1 - d)
        for key, buffer in self.model.named_buffers():
            if key in self.weights:
                self.weights[key].copy_(buffer)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Use the averaged weights within this context."""
        with swap_weights(self.model, self.weights):
            yield

    def load(self, weights: dict[str, Tensor]) -> None:
        """Load a saved average."""
        for key, value in weights.items():
            self.weights[key].copy_(shard_like(value, self.weights[key]))


@dataclass(frozen=True)
class AverageRecord:
    """Record of the mean of the weights after the last epochs, which replaces the best weights if it was requested."""

    first: int  # epoch, counted from 1
    last: int
    score: float | None  # monitored metric on the validation split


class LastEpochs(Callback):
    """Checkpoint averaging: weights after each of the last epochs, in files next to the checkpoint, and their mean.

    Files that were written before a kill remain valid, and an epoch that is repeated writes the same file.
    """

    def __init__(self, folder: Path, epochs: int) -> None:
        """Initialize the folder. `epochs` is the number of epochs to keep."""
        self.folder, self.epochs = folder, epochs

    def on_epoch_end(self, state: TrainingState) -> None:
        """Write the weights after this epoch."""
        trainer = self.trainer
        self.keep(state.epoch, gather_tensors(trainer.model.state_dict(), trainer.place.writes))

    def on_train_end(self, state: TrainingState) -> None:
        """Write the mean of the weights after the last epochs, and evaluate it."""
        trainer = self.trainer
        trainer.place.all_gather(None)  # barrier: the first process has written the last file
        weights, first = self.mean(state.epoch)
        if trainer.place.writes:
            save_weights(self.folder / "average.safetensors", weights)
        score = None
        if trainer.val is not None:
            with swap_weights(trainer.model, weights):
                score = trainer.validate(trainer.val)[trainer.monitor]
        trainer.mean = AverageRecord(first, state.epoch, score)

    def keep(self, epoch: int, weights: dict[str, Tensor]) -> None:
        """Write the weights after this epoch, counted from 1, and remove those that are no longer needed."""
        if not weights:  # another process writes them
            return
        write_tensors(self._file(epoch), weights, {})
        self._file(epoch - self.epochs).unlink(missing_ok=True)

    def mean(self, epoch: int) -> tuple[dict[str, Tensor], int]:
        """Return the mean of the last weights up to this epoch, summed in double precision, and the first epoch in it.

        Statistics of batch norm are averaged too; counts are those of the last epoch.
        """
        first = max(1, epoch - self.epochs + 1)
        weights, _ = read_tensors(self._file(epoch))
        sums = {k: v.double() for k, v in weights.items() if v.is_floating_point()}
        for earlier in range(first, epoch):
            of_epoch, _ = read_tensors(self._file(earlier))
            for key, total in sums.items():
                total += of_epoch[key]
        count = epoch - first + 1
        return weights | {k: (total / count).to(weights[k].dtype) for k, total in sums.items()}, first

    def _file(self, epoch: int) -> Path:
        return self.folder / f"epoch-{epoch}.safetensors"


@contextlib.contextmanager
def swap_weights(model: nn.Module, weights: dict[str, Tensor]) -> Iterator[None]:
    """Use these weights in the model within this context, and restore its own on exit."""
    live = {k: v.detach().clone() for k, v in model.state_dict().items()}
    load(model, weights)
    try:
        yield
    finally:
        load(model, live)


FOLDER = "snapshots"  # in the run's folder


def snapshot_updates(updates: int, count: int) -> frozenset[int]:
    """Return the updates after which snapshots are written.

    There are `count` of them from 0 to the last of `updates`, denser at the start, where most changes happen: the k-th
    after updates · (k / (count − 1))².
    """
    if count == 0:
        return frozenset()
    return frozenset(round(updates * (k / max(1, count - 1)) ** 2) for k in range(count))


class Snapshots(Callback):
    """Writer of snapshots, each in its own file: RUN/snapshots/step-120.safetensors."""

    def __init__(self, run_folder: Path, at: frozenset[int], writes: bool = True) -> None:
        """Initialize the writer. Of several processes, only the one with `writes` writes files."""
        self.folder, self.at, self.writes = run_folder / FOLDER, at, writes

    def on_train_start(self, state: TrainingState) -> None:
        """Write the initial weights, unless the run is resumed."""
        if state.update == 0:
            self.keep(0, self.trainer.weights)

    def on_step_end(self, state: TrainingState) -> None:
        """Write the weights if a snapshot is due."""
        self.keep(state.update, self.trainer.weights)

    def keep(self, update: int, weights: Callable[[], Mapping[str, Tensor]]) -> None:
        """Write the weights if a snapshot is due after this update. Writing it again gives the same file."""
        if update in self.at:
            found = dict(weights())
            if self.writes:
                save_weights(self.folder / f"step-{update}.safetensors", found)


def list_snapshots(run_folder: Path) -> dict[int, Path]:
    """Return the snapshot files by update, in order."""
    found = {}
    for path in (run_folder / FOLDER).glob("step-*.safetensors"):
        if match := re.fullmatch(r"step-(\d+)\.safetensors", path.name):
            found[int(match[1])] = path
    return dict(sorted(found.items()))


class BestWeights(Callback):
    """The weights of the epoch with the best validation score, in checkpoints/best.safetensors."""

    def on_epoch_end(self, state: TrainingState) -> None:
        """Save the weights if they are the best so far. With a sequence of tasks the last ones are saved."""
        trainer = self.trainer
        scores = trainer.scores
        if scores and trainer.task_schedule.count == 1 and not self._is_better(scores, state):
            return
        state.best_epoch = state.epoch
        state.best_score, state.best_loss = scores.get(trainer.monitor), scores.get("loss")
        state.best_zeros = trainer.pruning.zeros if trainer.pruning else 0
        weights = trainer.weights()
        if trainer.place.writes:
            save_weights(trainer.checkpoints / "best.safetensors", weights)

    def _is_better(self, scores: Mapping[str, float], state: TrainingState) -> bool:
        """Return whether an epoch with these metrics is better than the best one so far.

        While a model is pruned, sparser weights are better. Otherwise the monitored metric decides, and then the loss,
        for metrics that are often equal, such as accuracy.
        """
        trainer = self.trainer
        if trainer.pruning and trainer.pruning.zeros > state.best_zeros:
            return True
        sign = 1 if trainer.higher_is_better else -1

        def rank(score: float | None, loss: float | None) -> tuple[float, ...]:
            known = (math.nan if score is None else sign * score, math.nan if loss is None else -loss)
            return tuple(-math.inf if math.isnan(x) else x for x in known)

        best = rank(state.best_score, state.best_loss)
        return rank(scores[trainer.monitor], scores["loss"]) > best or not state.best_epoch


class TaskWeights(Callback):
    """The weights at the end of each task of a sequence, for evaluation on the test split."""

    def on_epoch_end(self, state: TrainingState) -> None:
        """Save the weights if a task ends, and another one follows."""
        trainer, epoch = self.trainer, state.epoch - 1
        if trainer.task_schedule.ends_task(epoch) and trainer.place.writes:
            path = task_weights_path(trainer.checkpoints, trainer.task_schedule.task(epoch))
            save_weights(path, trainer.weights())


# --- the end of training ------------------------------------------------------------------------------------------

CONVERGED = "an epoch of the perceptron rule made no mistake"


class EarlyStopping(Callback):
    """End of training after `patience` epochs without a better validation score."""

    def __init__(self, patience: int) -> None:
        self.patience = patience

    def on_epoch_end(self, state: TrainingState) -> None:
        """Stop if the best epoch is too long ago."""
        if not state.stopped and state.epoch - state.best_epoch >= self.patience:
            state.stopped = f"no better validation {metric(self.trainer.monitor)[0]} in {self.patience} epochs"


class PerceptronConvergence(Callback):
    """End of training after an epoch of the perceptron rule without a mistake."""

    def on_epoch_end(self, state: TrainingState) -> None:
        """Stop if every example was seen, and no weight was corrected."""
        every_example_seen = self.trainer.settings.sampling == "shuffle"
        if every_example_seen and state.mistakes == state.mistakes_before:
            state.stopped = state.stopped or CONVERGED
        state.mistakes_before = state.mistakes


class TimeBudget(Callback):
    """End of training after the setting `minutes`."""

    def on_step_end(self, state: TrainingState) -> None:
        """Stop if the time is used up."""
        if self.trainer.out_of_time and not self.trainer.finished:
            state.stopped = f"the time budget of {self.trainer.settings.minutes:g} minutes is used up"


class Interrupted(KeyboardInterrupt):
    """Training was stopped by the user or the system, after writing a checkpoint. The message tells how to resume."""


class Interruption(Callback):
    """Checkpoint and end of the session after a signal, in all processes."""

    def on_step_end(self, state: TrainingState) -> None:
        """Save a checkpoint and raise Interrupted if any process was asked to stop."""
        if self.trainer.stop_requested:
            self.trainer.checkpoint_now()
            self.trainer.strategy.wait_for_checkpoint()
            raise Interrupted(self.trainer.checkpoints.parent)


class StopSignal:
    """Signal handler: Ctrl-C and SIGTERM stop a run after the current step, a second Ctrl-C at once."""

    def __init__(self) -> None:
        self.requested = False

    @contextmanager
    def listen(self) -> Iterator[None]:
        """Handle both signals within this context."""
        try:
            before = {s: signal.signal(s, self._ask) for s in (signal.SIGINT, signal.SIGTERM)}
        except ValueError:  # signals can only be handled in the main thread
            before = {}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:  # torchrun sends SIGTERM after the user's signal
            raise KeyboardInterrupt
        self.requested = True


# --- checkpoints --------------------------------------------------------------------------------------------------

SAVE_EVERY = 1.0  # least seconds of training between checkpoints at ends of epochs


class Checkpoints(Callback):
    """Checkpoints at ends of epochs, and every `save_minutes` within them."""

    def on_train_start(self, state: TrainingState) -> None:
        """Start to count."""
        self.saved = (state.seconds, state.epoch)

    def on_step_end(self, state: TrainingState) -> None:
        """Save a checkpoint if one is due, unless the epoch ends here."""
        trainer = self.trainer
        if state.seconds - self.saved[0] > 60 * trainer.settings.save_minutes and not trainer.finished:
            trainer.checkpoint_now()

    def on_epoch_end(self, state: TrainingState) -> None:
        """Save a checkpoint after the first epoch, after the last one, and if a second has passed since the last."""
        if not self.saved[1] or state.seconds - self.saved[0] > SAVE_EVERY or self.trainer.finished:
            self.trainer.checkpoint_now()

    def on_checkpoint(self, state: TrainingState) -> None:
        """Note when it was saved."""
        self.saved = (state.seconds, state.epoch)


# --- logs and progress --------------------------------------------------------------------------------------------

POINTS = 20  # smallest number of points on a curve, if there are that many steps
CHEAP = 2  # least training examples between two validations for each validation example


def is_due(state: TrainingState, total_updates: int, updates_per_epoch: int, seconds: float) -> bool:
    """Return whether a row within the epoch is due after the last step.

    `total_updates` and `updates_per_epoch` are those of the training, and `seconds` is the time budget, 0 for none.
    """
    if total_updates >= POINTS * updates_per_epoch and not seconds:  # there are enough epochs
        return False

    def twentieths(step: int, time: float) -> int:
        by_steps = step / total_updates if total_updates < POINTS * updates_per_epoch else 0.0
        return int(POINTS * max(by_steps, time / seconds if seconds else 0.0))

    last = state.history[-1] if state.history else {}
    return twentieths(state.update, state.seconds) > twentieths(last.get("step", 0), last.get("seconds", 0.0))


def is_cheap(state: TrainingState, updates_per_epoch: int, train: int, val: int) -> bool:
    """Return whether validation on `val` examples is cheap compared with training since the last validation.

    `train` is the number of examples in an epoch.
    """
    validated = (row["step"] for row in reversed(state.history) if any(key.startswith("val_") for key in row))
    return (state.update - next(validated, 0)) / updates_per_epoch * train >= CHEAP * val


def add_row(state: TrainingState, scores: Mapping[str, float]) -> dict[str, Any]:
    """Add a row for the current state, with the validation metrics if there are any."""
    counted = state.counted - state.row_counted
    row = {
        "epoch": state.epoch + 1,
        "step": state.update,
        "lr": state.lr,
        "train_loss": (state.loss_sum - state.row_loss_sum) / counted if counted else float("nan"),
        **{f"val_{key}": value for key, value in scores.items()},
        "seconds": round(state.seconds, 3),
    }
    state.row_loss_sum, state.row_counted = state.loss_sum, state.counted
    state.history.append(row)
    return row


class RowsWithinEpochs(Callback):
    """Rows of metrics.csv within epochs, without an effect on training or its random numbers."""

    def on_train_start(self, state: TrainingState) -> None:
        """Count the steps of the training."""
        self.total_updates, self.updates_per_epoch = self.trainer.total_updates(), self.trainer.updates_per_epoch()
        self.budget = 60 * (self.trainer.settings.minutes or 0)  # seconds; 0 is none

    def on_step_end(self, state: TrainingState) -> None:
        """Add a row if one is due, with validation if that is cheap."""
        trainer = self.trainer
        if not is_due(state, self.total_updates, self.updates_per_epoch, self.budget) or trainer.epoch_ends:
            return
        trainer.sync_losses()
        scores: dict[str, float] = {}
        if trainer.val is not None and is_cheap(state, self.updates_per_epoch, len(trainer.train), len(trainer.val)):
            with torch.random.fork_rng([trainer.place.device] if trainer.place.device.type == "cuda" else []):
                scores = trainer.validate(trainer.val)
        trainer.log(scores)


class MetricsFile(Callback):
    """Writer of metrics.csv, at most once a second."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows, self._written = 0, -math.inf  # rows that were seen; seconds of training at the last write

    def on_train_start(self, state: TrainingState) -> None:
        """Write the rows of earlier sessions."""
        self._rows = len(state.history)
        self.write(state)

    def on_step_end(self, state: TrainingState) -> None:
        """Write the file if there is a new row, and a second has passed."""
        if len(state.history) > self._rows:
            self._rows = len(state.history)
            if state.seconds - self._written >= SAVE_EVERY:
                self.write(state)
                self._written = state.seconds

    def on_epoch_end(self, state: TrainingState) -> None:
        """Write the file, as after a step."""
        self.on_step_end(state)

    def write(self, state: TrainingState) -> None:
        """Write all rows. Raises FileError if the file cannot be written."""
        if state.history:
            write_csv(self.path, state.history)


class TensorBoardWriter(Callback):
    """Writer of TensorBoard's event file, which does nothing if it is not `wanted`."""

    def __init__(self, folder: Path, wanted: bool | None) -> None:
        """Prepare to write to a folder; `wanted` is None for a file if TensorBoard is installed."""
        self.folder = folder
        self._rows = 0  # rows that were written
        self.writer: Any = None
        self._new: Any = None
        if wanted or (wanted is None and is_installed("tensorboard")):
            require("tensorboard", "tensorboard=true")
            from torch.utils.tensorboard import SummaryWriter

            self._new = SummaryWriter

    def __enter__(self) -> TensorBoardWriter:
        return self

    def __exit__(self, *error: object) -> None:
        if self.writer is None:
            return
        try:
            self.writer.close()
        except OSError as failed:
            if error[0] is None:  # do not hide the original error
                raise self._unwritten(failed) from failed

    def on_train_start(self, state: TrainingState) -> None:
        """Skip the rows of earlier sessions."""
        self._rows = len(state.history)

    def on_step_end(self, state: TrainingState) -> None:
        """Write new rows."""
        if len(state.history) > self._rows:
            for row in state.history[self._rows :]:
                self.write(row)
            self._rows = len(state.history)

    def on_epoch_end(self, state: TrainingState) -> None:
        """Write new rows."""
        self.on_step_end(state)

    def write(self, row: Mapping[str, Any]) -> None:
        """Add one point to the curve of every number in the row.

        Points that an earlier session wrote for this step and later ones, before it was killed, are hidden. Raises
        FileError if the file cannot be written.
        """
        try:
            if self._new is not None and not is_unmoved(self.folder):  # TensorBoard would create it again
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            if self._new is not None and self.writer is None:
                self.writer = self._new(self.folder, purge_step=row["step"])
            if self.writer is not None:
                for key, value in row.items():
                    if key not in ("epoch", "step"):
                        self.writer.add_scalar(key, value, row["step"], time.time())
        except OSError as failed:
            raise self._unwritten(failed) from failed

    def _unwritten(self, failed: OSError) -> FileError:
        return WriteError(
            f"TensorBoard's file in {self.folder} could not be written: {error_reason(failed)}. Free some space, "
            "or leave that file out (tensorboard=false)."
        )


DRAW_EVERY = 0.1  # seconds between updates of the bar
LINES = 20  # approximate number of lines for epochs, without a bar
SILENCE = 10.0  # seconds after which a line is printed in any case


class Progress(Callback):
    """Progress display of one run. It is a context manager, and every call is cheap.

    A terminal has a bar on standard error, and a notebook has one in the output of its cell. Elsewhere there are lines,
    which are messages of the logger "cutaway" (`core.log`).
    """

    def __init__(self, shown: bool = True) -> None:
        self.shown = shown
        self._bar: rich.progress.Progress | None = None
        self._cell: NotebookBar | None = None
        self._redirected = contextlib.ExitStack()
        self._said = time.perf_counter()  # time of the last update or line
        self._epoch, self._is_due = "", True
        self._offset = self._batches = self._total = 0

    def __enter__(self) -> Progress:
        self._said = time.perf_counter()
        if self.shown and in_notebook():
            self._cell = NotebookBar()
            self._cell.start()
            self._redirected.enter_context(redirect(self._print_in_cell))
        elif self.shown and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(bar_width=None),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(compact=True),
                console=Console(stderr=True),
            )
            self._bar.start()
            self._redirected.enter_context(redirect(self._print_above_bar))
            self._task = self._bar.add_task("", total=1, rate="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._redirected.close()
        if self._bar:
            self._bar.stop()
        if self._cell:
            self._cell.stop()

    def note(self, sentence: str) -> None:
        """Print a note at the start of training."""
        if self.shown:
            log(f"note: {sentence}")

    def on_epoch_start(self, state: TrainingState) -> None:
        """Start the display of an epoch."""
        self.epoch(state.epoch, self.trainer.task_schedule.epochs, len(self.trainer.plan), state.batch)

    def on_step_end(self, state: TrainingState) -> None:
        """Report a finished step."""
        self.step(state, self.trainer.train_loss)

    def on_epoch_end(self, state: TrainingState) -> None:
        """Report a finished epoch."""
        self.epoch_done(state.history[-1])

    def epoch(self, epoch: int, epochs: int, batches: int, done: int) -> None:
        """Start an epoch of `batches` batches, `done` of which are done."""
        self._epoch = f"epoch {epoch + 1}/{epochs}"
        self._began, self._first, self._batches = time.perf_counter(), done, batches
        self._offset, self._total = epoch * batches, epochs * batches
        self._is_due = (epoch + 1) * LINES // epochs > epoch * LINES // epochs

    def step(self, state: TrainingState, loss: float) -> None:
        """Report a finished step."""
        now = time.perf_counter()
        if not self.shown or now - self._said < (DRAW_EVERY if self._bar or self._cell else SILENCE):
            return
        self._said = now
        rate = f"{(state.batch - self._first) / max(now - self._began, 1e-9):.1f} steps/s"
        done, label = self._offset + state.batch, f"{self._epoch}  loss {loss:.4f}"
        if self._bar:
            self._bar.update(self._task, description=label, completed=done, total=self._total, rate=rate)
        elif self._cell:
            self._cell.update(label, rate, done, self._total)
        else:
            self._line(f"step {state.batch}/{self._batches}  loss {loss:.4f}  {rate}")

    def epoch_done(self, row: dict[str, Any]) -> None:
        """Report a finished epoch. Its line remains above the bar."""
        metrics = [f"{column_name(k)} {v:.5g}" for k, v in row.items() if k.startswith(("train_", "val_"))]
        if self._bar:
            from rich.markup import escape

            self._line("  ".join(metrics), markup=f"[dim]{self._epoch:>12}[/]  {escape('  '.join(metrics))}")
            self._bar.update(self._task, completed=self._offset + self._batches, total=self._total)
        elif self._cell:
            self._line("  ".join(metrics))
            self._cell.update(self._epoch, "", self._offset + self._batches, self._total)
        elif self.shown and (self._is_due or time.perf_counter() - self._said >= SILENCE):
            self._said = time.perf_counter()
            self._line("  ".join(metrics))

    def _line(self, said: str, **shown: str) -> None:
        log(f"{self._epoch:>12}  {said}", logging.INFO, **shown)

    def _print_above_bar(self, record: logging.LogRecord) -> None:
        """Print a message above the bar of the terminal."""
        assert self._bar is not None
        markup = getattr(record, "shown", {}).get("markup")
        text = record.getMessage() if markup is None else markup
        self._bar.console.print(text, markup=markup is not None, highlight=False)

    def _print_in_cell(self, record: logging.LogRecord) -> None:
        """Print a message below the bar of the notebook."""
        assert self._cell is not None
        self._cell.line(record.getMessage())
