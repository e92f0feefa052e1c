"""One trial: draw settings, prepare, count costs and train, without the test split.

Only the outcome of a trial is kept. The winner is trained again as a run. On one machine the same settings and seed
give the same weights.
"""

from __future__ import annotations

import dataclasses
import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...checkpoints.factory import new_model
from ...core.config import as_text
from ...core.errors import ModelError, SettingError, TrainingError
from ...data.dataset_base import DataSet
from ...data.in_memory.source import InMemorySource
from ...data.open_data import open_validated
from ...inspect.example_inputs import inputs_for
from ...inspect.layers import layer_table
from ...models.registry import Preset
from ...runs.train import set_epochs_from_steps
from ...training.callbacks import Callback, Progress
from ...training.checkpoint import TrainingState
from ...training.config import TrainSettings
from ...training.memory import reject_step_beyond_memory
from ...training.setup import FOR_OPTIMIZERS, FOR_SCHEDULES, TrainingSetup, reject_incompatible, setup_training
from ...training.trainer import Trainer

FINISHED, PRUNED, REJECTED, DIVERGED = "finished", "pruned", "rejected", "diverged"


@dataclass
class Outcome:
    """Outcome of a trial."""

    state: str  # finished, pruned, rejected or diverged
    value: float | None = None  # metric on the validation split in the best epoch
    epochs: int = 0
    seconds: float = 0.0  # of training
    macs: int | None = None  # multiply-adds of an example; None if unknown
    parameters: int | None = None
    work: float = 0.0  # multiply-adds of all forward passes of training
    why: str = ""  # why it was rejected or ended

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, without the value, which Optuna stores."""
        return {key: value for key, value in dataclasses.asdict(self).items() if key != "value"}


class DataCache:
    """Cache of the last opened data set, for trials with the same data settings."""

    def __init__(self) -> None:
        self._asked: Any = None
        self._data: DataSet | None = None

    def __call__(self, *asked: Any) -> DataSet:
        """Return the result of `open_validated`, cached for equal arguments. Its notes and splits can be extended."""
        if self._data is None or self._asked != asked:
            self._asked, self._data = asked, open_validated(*asked)
        data = self._data
        return dataclasses.replace(data, notes=list(data.notes), splits=dict(data.splits))


class _Pruned(Exception):
    """The trial is pruned."""


class _Judge(Callback):
    """Callback that ends a trial whose scores are not good enough."""

    def __init__(self, judge: Callable[[int, float], bool]) -> None:
        self.judge = judge

    def on_epoch_end(self, state: TrainingState) -> None:
        """Raise _Pruned if the trial is not worth going on with."""
        score = self.trainer.scores.get(self.trainer.monitor)
        if score is not None and not self.judge(state.epoch, score) and state.epoch < self.trainer.settings.epochs:
            raise _Pruned


@dataclass
class Limits:
    """Maximum cost of a model."""

    macs: int | None = None
    parameters: int | None = None


@dataclass
class Trials:
    """Common parts of all trials."""

    preset: Preset
    source: str | InMemorySource
    fixed: Mapping[str, Any]
    limits: Limits
    opened: DataCache

    def ready(self, given: Mapping[str, Any]) -> TrainingSetup:
        """Prepare model and data with these settings. Raises SettingError if there is no validation split."""
        model, settings = new_model(self.preset, {**self.fixed, **drop_unused_settings(given, self.fixed, self.preset)})
        ready = setup_training(model, self.source, settings, opened=self.opened)
        if "val" not in ready.data.splits:
            raise _no_validation()
        reject_incompatible(ready.settings, ready.data.splits["train"])
        set_epochs_from_steps(ready, settings)
        return ready

    def run(self, given: Mapping[str, Any], folder: Path, judge: Callable[[int, float], bool]) -> Outcome:
        """Train with the settings `given` and the fixed ones.

        `judge` is called with each epoch and its score, and returns whether to continue. Files in `folder` are removed
        at the end.
        """
        try:
            ready = self.ready(given)
            outcome = self.count(ready)
            if outcome.why:
                return outcome
            reject_step_beyond_memory(ready)
        except (SettingError, ModelError) as error:
            return Outcome(REJECTED, why=str(error))
        checkpoints = folder / "checkpoints"
        try:
            return _train(ready, checkpoints, judge, outcome)
        finally:
            shutil.rmtree(checkpoints, ignore_errors=True)

    def count(self, ready: TrainingSetup) -> Outcome:
        """Return parameters and multiply-adds of an example, as in the report.

        `why` names the limit that is exceeded.
        """
        cost = costs(ready)
        counted = Outcome(FINISHED, macs=cost["macs"], parameters=cost["parameters"])
        for what, name, value, most in (
            ("MACs", "max_macs", counted.macs, self.limits.macs),
            ("parameters", "max_parameters", counted.parameters, self.limits.parameters),
        ):
            if most is not None and value is None:
                raise SettingError(
                    f"Invalid {name}: the multiply-adds of {self.preset.name} are not fully known. Leave it out."
                )
            if most is not None and value is not None and value > most:
                return dataclasses.replace(
                    counted, state=REJECTED, why=f"{value:,} {what} are more than {name}={most:,}"
                )
        return counted


def costs(ready: TrainingSetup, model: nn.Module | None = None) -> dict[str, int | None]:
    """Return parameters and multiply-adds of one example of the prepared model, or of another model for the same data.

    The random state of torch is not changed.
    """
    model = model or ready.model
    with torch.random.fork_rng(devices=[]):
        layers = layer_table(model, *inputs_for(model, ready.data.spec))
    return {"macs": layers.multiply_adds if layers.complete else None, "parameters": layers.parameters}


def _train(ready: TrainingSetup, checkpoints: Path, judge: Callable[[int, float], bool], counted: Outcome) -> Outcome:
    trainer = Trainer(
        ready.model, ready.data, ready.task, ready.settings, ready.place, checkpoints, Progress(shown=False),
        callbacks=[_Judge(judge)], teacher=ready.teacher,
    )  # fmt: skip
    state, why = FINISHED, ""
    try:
        trainer.begin()
        trainer.fit()
        why = trainer.state.stopped
    except _Pruned:
        state = PRUNED
    except TrainingError as error:
        state, why = DIVERGED, str(error)
    reached = trainer.mean.score if trainer.mean else trainer.state.best_score
    if state == FINISHED and (reached is None or not math.isfinite(reached)):
        state, why = DIVERGED, f"its validation {trainer.monitor} is not finite"
    an_epoch = max(1, len(trainer.batches_of(0)))
    seen = len(ready.data.splits["train"]) * (trainer.state.epoch + trainer.state.batch / an_epoch)
    return dataclasses.replace(
        counted,
        state=state,
        why=why,
        value=reached if reached is not None and math.isfinite(reached) else None,
        epochs=trainer.state.epoch,
        seconds=round(trainer.state.seconds, 3),
        work=seen * (counted.macs or 0),
    )


def drop_unused_settings(given: Mapping[str, Any], fixed: Mapping[str, Any], found: Preset) -> dict[str, Any]:
    """Return the drawn settings that the optimizer and schedule use, without momentum for adam, for example."""
    usual, card = TrainSettings(), found.card.settings
    dropped: set[str] = set()
    for what, wanting in (("optimizer", FOR_OPTIMIZERS), ("schedule", FOR_SCHEDULES)):
        this = as_text({**card, **fixed, **given}.get(what, getattr(usual, what)))
        dropped |= {key for key, fit in wanting.items() if this not in fit}
    return {key: value for key, value in given.items() if key not in dropped}


def _no_validation() -> SettingError:
    return SettingError("Invalid val=0: a search needs a validation split. Set e.g. val=0.2, or leave it out.")
