"""Candidates of a comparison on one data set: models that accept the data, metric, budget, and hyperparameter trials.

The metric is a function of a mean over test examples, so that models can be compared example by example. The
hyperparameter search before a comparison has the same number of trials for each model, on the validation split.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ...checkpoints.factory import ModuleBuilder, new_model
from ...core.config import as_text
from ...core.errors import CutawayError, DataError, IncompatibleSettingError, UnknownName
from ...data.dataset_base import DataSet
from ...data.settings import DataSettings
from ...models.registry import Preset
from ...statistics.comparison import Finish
from ...statistics.intervals import MAX_BLOCKS, MIN_BLOCKS, Values, block_sums
from ...tasks.classification import Classification
from ...tasks.forecasting import Forecasting
from ...tasks.language import Language
from ...tasks.regression import Regression
from ...tasks.task import Task
from ...training.setup import setup_training
from ..cost import count_cost
from ..experiment import DataCache
from ..settings import require_optuna
from .result import CompareProgress


@dataclass(frozen=True)
class ComparisonMetric:
    """Metric of a comparison: f(mean over examples of their contributions)."""

    key: str  # key of the metric
    higher_is_better: bool
    finish: Finish | None
    per_example: Callable[[Tensor, Tensor], Values]  # outputs and targets to contributions, (n,)
    note: str = ""  # note on the examples
    overlap: int = 1  # windows that begin within one horizon


def metric_for_task(task: Task) -> ComparisonMetric:
    """Return the metric for models of a task. Raises SettingError if its metric is not a mean over examples."""
    if type(task) is Classification:
        return ComparisonMetric(
            "accuracy", True, None, lambda outputs, target: _to_numpy(task.decide(outputs) == target)
        )
    if isinstance(task, Regression):

        def squared(outputs: Tensor, target: Tensor) -> Values:
            return _to_numpy(task.values(outputs) - task.in_units(target)) ** 2

        return ComparisonMetric("rmse", False, np.sqrt, squared)
    if isinstance(task, Forecasting):

        def of_blocks(outputs: Tensor, target: Tensor) -> Values:
            error = _to_numpy(outputs.double() - target.double()) * task.unit
            error = error.reshape(len(error), -1)
            squares, count = np.nansum(error**2, axis=1), (~np.isnan(error)).sum(1)
            sums = block_sums(np.stack([squares, count], 1), task.overlap)
            if len(sums) < MIN_BLOCKS:
                sums = sums.sum(0, keepdims=True)
            return np.asarray(sums[:, 0] * len(sums) / sums[:, 1].sum())

        note = (
            f"Windows overlap: {MIN_BLOCKS} to {MAX_BLOCKS} blocks of neighbors count as examples, as in "
            "`cutaway evaluate`."
        )
        return ComparisonMetric("rmse", False, np.sqrt, of_blocks, note, task.overlap)
    if type(task) is Language:
        return ComparisonMetric(
            "perplexity", False, np.exp, lambda kept, target: np.nanmean(_to_numpy(kept[..., 0]), axis=1)
        )
    raise IncompatibleSettingError(
        "compare supports classification, regression, forecasting and language modelling, and the task of this data "
        f"is {task.name}: train each model, and compare the intervals of `cutaway evaluate`."
    )


def _to_numpy(values: Tensor) -> Values:
    found: Values = values.double().cpu().numpy()
    return found


TRAINING_COPIES = 4  # of the weights while AdamW trains: weights, gradients and two moments
BUDGET_SETTINGS = ("minutes", "max_steps", "epochs")
EPOCHS, STEPS, BATCH = 20, 500, 64  # minimum budget unless one is given: few examples need more epochs


@dataclass
class Candidate:
    """Model that accepts the data."""

    preset: Preset
    data: DataSet
    task: Task
    compared: ComparisonMetric
    parameters: int
    macs: int | None  # of one example; None if unknown
    bytes: int  # of memory to train
    given: dict[str, Any]  # settings of its trainings, without the seed
    own: dict[str, str]  # data settings from its card that differ from the defaults

    @property
    def model(self) -> str:
        """Return the name of the model."""
        return self.preset.name


@dataclass(frozen=True)
class Excluded:
    """Model that does not accept the data, and the reason."""

    model: str
    why: str


def select_candidates(
    models: Sequence[Preset], source: Any, given: Mapping[str, Any], macs: float | None
) -> tuple[list[Candidate], list[Excluded]]:
    """Return the models that accept the data, and those that do not, with the reason.

    Raise the first error if no model accepts the data. Errors that concern all models, such as those of names, settings
    or the data itself, are always raised.
    """
    opened, found, excluded, first = DataCache(), [], [], None
    for model in models:
        try:
            found.append(_prepare_candidate(model, source, given, macs, opened))
        except (UnknownName, DataError):
            raise
        except CutawayError as error:
            excluded.append(Excluded(model.name, str(error)))
            first = first or error
    for other in found[1:]:
        if why := _incompatibility(found[0], other):
            excluded.append(Excluded(other.model, why))
    out = {one.model for one in excluded}
    found = [one for one in found if one.model not in out]
    if not found and first is not None:
        raise first
    return found, excluded


def _prepare_candidate(
    model: Preset, source: Any, given: Mapping[str, Any], macs: float | None, opened: DataCache
) -> Candidate:
    """Prepare a model for the data and return its cost and settings. Raises an error if it does not accept the data."""
    started, settings = new_model(model, given)
    ready = setup_training(started, source, settings, opened=opened)
    macs_per_example, parameters = count_cost(ready.model.eval(), ready.data.spec)
    own = dict(given)
    if macs is not None:
        if not macs_per_example:
            raise IncompatibleSettingError(
                f"the multiply-adds of {model.name} are not known, and the budget is macs={macs:g}"
            )
        batch_size = ready.settings.batch_size or len(ready.data.splits["train"])
        own["max_steps"] = max(1, round(macs / (macs_per_example * batch_size)))
    usual = DataSettings()
    different = {
        f.name: as_text(getattr(ready.data_settings, f.name))
        for f in dataclasses.fields(DataSettings)
        if f.name not in given and getattr(ready.data_settings, f.name) != getattr(usual, f.name)
    }
    return Candidate(
        model,
        ready.data,
        ready.task,
        metric_for_task(ready.task),
        parameters,
        macs_per_example,
        TRAINING_COPIES * sum(p.nbytes for p in ready.model.parameters()),
        own,
        different,
    )


def _incompatibility(first: Candidate, other: Candidate) -> str:
    """Return why two models cannot be compared; empty if they can."""
    if first.compared.key != other.compared.key:
        return f"its metric is {other.compared.key}, and that of {first.model} is {first.compared.key}"
    if first.data.split_hash != other.data.split_hash:
        return f"its split of the data differs from that of {first.model}"
    words = [getattr(one.data.spec, "vocab_size", None) for one in (first, other)]
    if first.compared.key == "perplexity" and words[0] != words[1]:
        return (
            f"its tokenizer ({words[1]:,} tokens) differs from that of {first.model} ({words[0]:,}), and perplexity is "
            "per token: set tokenizer=characters or bpe for all models"
        )
    return ""


def apply_budget(given: Mapping[str, Any], macs: float | None, examples: int) -> tuple[dict[str, Any], str]:
    """Return the settings with a budget that is the same for all models, and a description of the budget."""
    asked = {key: given[key] for key in BUDGET_SETTINGS if key in given}
    if macs is not None:
        return {**given}, f"{macs:.3g} multiply-adds of forward passes for each training"
    if not asked:
        epochs = max(EPOCHS, min(STEPS, math.ceil(STEPS * BATCH / max(1, examples))))  # an epoch has at least one step
        return {**given, "epochs": epochs}, f"{epochs} epochs for each training"
    words = {"minutes": "minutes", "max_steps": "optimizer steps", "epochs": "epochs"}
    return {**given}, f"{' and '.join(f'{value} {words[key]}' for key, value in asked.items())} for each training"


TUNED_SETTINGS = {"lr": "1e-4..1e-2:log", "weight_decay": "1e-5..1e-1:log"}
TUNED_MODEL_SETTINGS = {"dropout": "0..0.5"}  # searched if the model has it


def tune_settings(one: Candidate, source: Any, folder: Path, trials: int, progress: CompareProgress) -> dict[str, Any]:
    """Return the settings of the best trial of a model. Interrupted trials are continued.

    No trial uses the test split. Raises SettingError if Optuna is not installed.
    """
    require_optuna()
    from ..search.result import SearchProgress
    from ..search.study import search

    space = {key: value for key, value in TUNED_SETTINGS.items() if key not in one.given}
    own = one.preset.setting_names
    space |= {f"model.{key}": value for key, value in TUNED_MODEL_SETTINGS.items() if key in own}
    if not space:
        raise IncompatibleSettingError(
            "Invalid trials: lr and weight_decay are both fixed, so nothing is left to search. Leave one of them out."
        )
    fixed = {key: value for key, value in one.given.items() if key != "tensorboard"}
    found = search(
        (one.model, one.preset.make) if isinstance(one.preset, ModuleBuilder) else one.model,
        source,
        {**fixed, **space, "trials": trials, "seed": 0},
        out=folder / "search",
        progress=SearchProgress(progress.shown),
        train_winner=False,
    )
    best = found.best
    if best is None:
        progress.note(f"{one.model}: no trial finished; the default settings of the model are used.")
        return {}
    progress.note(f"{one.model}: " + ", ".join(f"{key}={best[key]:.4g}" for key in space) + f", of {trials} trials")
    return {key: best[key] for key in space}
