"""Setup of the studio's training: the model and data of an opening, and a check of their memory.

The learner and the viewer both build them here.

The memory of a training step is extrapolated from two examples before the first full batch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ...core.config import as_text, build, parse, pick, split_model_settings
from ...core.errors import CutawayError, ModelError, SettingError
from ...core.memory_budget import format_bytes, free_memory
from ...core.spec import Context, Masked, NextToken, Solution, Target
from ...data.open_data import open_data
from ...data.settings import DataSettings
from ...models.registry import Preset, preset
from ...runs.run import Run
from ...training.config import TrainSettings
from ...training.memory import measure_activations
from ...training.run_folder import data_source
from ...training.setup import TrainingSetup, setup_training
from ...training.trainer import Trainer
from .state import ALWAYS, NOT_HERE, USUAL, Opening

RUNNING = (NextToken, Masked, Context)  # possible targets of a corpus of text


@dataclasses.dataclass
class Built:
    """The model, data and settings of an opening."""

    ready: TrainingSetup
    run: Run | None = None  # the run that the weights come from
    notes: tuple[str, ...] = ()


def build_side(opening: Opening) -> Built:
    """Build the model, its data and its training settings.

    For a run, these are the run's, with its saved weights; a different model is initialized, and trained on the run's
    data. Raises what reading and building raise.
    """
    if opening.run is None:
        return Built(setup_training(opening.model, opening.source, {**USUAL, **opening.given, **ALWAYS}))
    run = Run(opening.run)
    about = run.about
    source = data_source(about["data"])
    same = not opening.anew and opening.model == about["model"] and _same_model(run, opening.given)
    own = run.with_own_tokenizer(about["settings"])
    if not same:
        of_data = pick(own, DataSettings)
        built = Built(setup_training(opening.model, source, {**of_data, **USUAL, **opening.given, **ALWAYS}))
        built.notes = (
            "These are not the weights of the run: this model is trained from scratch on the data of the run.",
        )
    else:
        kept = {key: value for key, value in own.items() if key not in NOT_HERE}
        of_model = {f"model.{key}": value for key, value in about["model_settings"].items()}
        built = Built(
            setup_training(opening.model, source, {**kept, **of_model, **opening.given, **ALWAYS}, resumed=True), run
        )
        built.ready.model.load_state_dict(run.model.state_dict())
    run.reject_other(built.ready.data, "or open the studio without the run.")
    return built


def with_data(ready: TrainingSetup, changes: Mapping[str, Any]) -> TrainingSetup:
    """Return a copy with data drawn again under other settings. Raises SettingError if it no longer fits the model, and
    what reading raises."""
    given = {f.name: getattr(ready.data_settings, f.name) for f in dataclasses.fields(DataSettings)}
    settings = build(DataSettings, {**given, **changes})
    data = open_data(ready.data.source, settings, ready.sizes, ready.preset.targets)
    if data.spec.shape != ready.data.spec.shape or data.spec.target != ready.data.spec.target:
        said = ", ".join(f"{key}={value}" for key, value in changes.items())
        raise SettingError(f"{said} changes the shape of the data: open the model again.")
    return dataclasses.replace(ready, data=data, data_settings=settings)


def with_settings(ready: TrainingSetup, changes: Mapping[str, Any]) -> TrainingSetup:
    """Return a copy with other model settings and the same weights, such as another dropout or activation.

    Raises ModelError if the shapes of the weights would change, and all errors of the model's config.
    """
    found, parsed = ready.preset, {**ready.model_settings, **ready.preset.parse(changes)}
    config = found.configure(ready.data.spec, parsed)
    with torch.random.fork_rng([]):
        model = found.build(config)
    if _shapes(model) != _shapes(ready.model):
        said = " and ".join(f"model.{key}={as_text(value)}" for key, value in changes.items())
        raise ModelError(f"{said} changes the shape of the weights: open the model again.")
    model.load_state_dict(ready.model.state_dict())
    return dataclasses.replace(ready, model=model, model_settings=parsed)


def compatible_models(ready: TrainingSetup, names: list[Preset]) -> list[str]:
    """Return the models that can train on this data. For a corpus of text, the model determines the target."""
    spec = ready.data.spec
    targets: tuple[type[Target], ...] = (type(spec.target),)
    if isinstance(spec.target, Solution):
        targets = (NextToken,)
    elif isinstance(spec.target, RUNNING):
        targets = RUNNING
    return [p.name for p in names if spec.kind in p.takes and set(p.targets) & set(targets)]


def _same_model(run: Run, given: Mapping[str, Any]) -> bool:
    """Return whether the given settings are those of the run's model, including its seed."""
    found, config = preset(run.about["model"]), run.model.config
    try:
        asked = found.parse(split_model_settings(given)[0])
    except CutawayError:
        return False
    seed = parse("seed", given.get("seed", run.about["seed"]), int)
    return seed == run.about["seed"] and all(getattr(config, key) == value for key, value in asked.items())


def _shapes(model: nn.Module) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in model.state_dict().items()}


FEW = 2  # examples in the trial batch
FRACTION = 0.5  # of free memory for one step, at most: a second model may train at the same time
AND_BACK = 2  # activations of the forward pass, plus as much for gradients


def reject_large_steps(trainer: Trainer, settings: TrainSettings) -> None:
    """Raise SettingError if a training step would need too much memory. Neither the model nor random state changes."""
    free = free_memory()
    batches = trainer.batches_of(0)
    if free is None or not batches or settings.batch_tokens or not settings.batch_size:
        return  # batches of another kind have no fixed number of examples
    few = batches[0][:FEW]
    inputs, _ = trainer.place.batch(next(iter(trainer.train.batches([few]))))
    kept = measure_activations(trainer.model, inputs, trainer.place)
    needed = AND_BACK * kept * min(settings.batch_size, len(trainer.train)) / max(1, len(few))
    if needed > FRACTION * free:
        raise SettingError(
            f"A step of batch_size={settings.batch_size} examples would need about {format_bytes(int(needed))} of"
            f" memory with this model; {format_bytes(free)} are free, of which the studio uses at most half."
            " Use a narrower model or a smaller batch."
        )
