"""Candidates of a comparison on one data set: accepting models, metrics, budgets, and hyperparameter trials.

The hyperparameter search before a comparison has the same number of trials for each model, on the validation split.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...checkpoints.factory import ModuleBuilder, new_model
from ...core.config import as_text
from ...core.errors import CutawayError, DataError, UnknownName
from ...data.dataset_base import DataSet
from ...data.settings import DataSettings
from ...inspect.example_inputs import inputs_for
from ...inspect.layers import layer_table
from ...models.registry import Preset
from ...tasks.task import Task
from ...training.setup import setup_training
from ..search.config import require_optuna
from ..search.trial import DataCache
from .contributions import ComparisonMetric, metric_for_task
from .result import CompareProgress

COPIES = 4  # of the weights while AdamW trains: weights, gradients and two moments
LENGTHS = ("minutes", "max_steps", "epochs")
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
            found.append(_contestant(model, source, given, macs, opened))
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


def _contestant(
    model: Preset, source: Any, given: Mapping[str, Any], macs: float | None, opened: DataCache
) -> Candidate:
    started, settings = new_model(model, given)
    ready = setup_training(started, source, settings, opened=opened)
    table = layer_table(ready.model.eval(), *inputs_for(ready.model, ready.data.spec))
    cost = table.multiply_adds if table.complete else None
    own = dict(given)
    if macs is not None:
        if not cost:
            raise CutawayError(f"the multiply-adds of {model.name} are not known, and the budget is macs={macs:g}")
        own["max_steps"] = max(1, round(macs / (cost * (ready.settings.batch_size or len(ready.data.splits["train"])))))
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
        table.parameters,
        cost,
        COPIES * sum(p.nbytes for p in ready.model.parameters()),
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


def with_budget(given: Mapping[str, Any], macs: float | None, examples: int) -> tuple[dict[str, Any], str]:
    """Return the settings with a budget that is the same for all models, and a description of the budget."""
    asked = {key: given[key] for key in LENGTHS if key in given}
    if macs is not None:
        return {**given}, f"{macs:.3g} multiply-adds of forward passes for each training"
    if not asked:
        epochs = max(EPOCHS, min(STEPS, math.ceil(STEPS * BATCH / max(1, examples))))  # an epoch has at least one step
        return {**given, "epochs": epochs}, f"{epochs} epochs for each training"
    words = {"minutes": "minutes", "max_steps": "optimizer steps", "epochs": "epochs"}
    return {**given}, f"{' and '.join(f'{value} {words[key]}' for key, value in asked.items())} for each training"


SPACE = {"lr": "1e-4..1e-2:log", "weight_decay": "1e-5..1e-1:log"}
MODEL_SPACE = {"dropout": "0..0.5"}  # searched if the model has it


def tune_settings(one: Candidate, source: Any, folder: Path, trials: int, progress: CompareProgress) -> dict[str, Any]:
    """Return the settings of the best trial of a model. Interrupted trials are continued.

    No trial uses the test split. Raises SettingError if Optuna is not installed.
    """
    require_optuna()
    from ..search.progress import SearchProgress
    from ..search.study import search

    space = {key: value for key, value in SPACE.items() if key not in one.given}
    own = one.preset.setting_names
    space |= {f"model.{key}": value for key, value in MODEL_SPACE.items() if key in own}
    if not space:
        raise CutawayError(
            "Invalid trials: lr and weight_decay are both fixed, so nothing is left to search. Leave one of them out."
        )
    fixed = {key: value for key, value in one.given.items() if key != "tensorboard"}
    found = search(
        (one.model, one.preset.make) if isinstance(one.preset, ModuleBuilder) else one.model,
        source,
        {**fixed, **space, "trials": trials, "seed": 0},
        out=folder / "search",
        progress=SearchProgress(progress.shown),
        crowned=False,
    )
    best = found.best
    if best is None:
        progress.note(f"{one.model}: no trial finished; the default settings of the model are used.")
        return {}
    progress.note(f"{one.model}: " + ", ".join(f"{key}={best[key]:.4g}" for key in space) + f", of {trials} trials")
    return {key: best[key] for key in space}
