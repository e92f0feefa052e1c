"""Setup of a model for a data set, ready for training or evaluation, as used by `train`, `check` and `quantize`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from ..checkpoints.custom import CustomPreset, preset_for
from ..checkpoints.deferred_init import DeferredInit, NeedsMaterialization
from ..checkpoints.word_vectors import Vectors, load_into_embedding
from ..core.config import shorten
from ..core.errors import SettingError
from ..core.memory_budget import build_on_meta
from ..core.spec import ImageSizes, Value
from ..data.dataset_base import DataSet
from ..data.open_data import open_data, open_validated
from ..data.settings import DataSettings
from ..models.base import as_base_model
from ..models.registry import Preset
from ..nn.modules import resize
from ..tasks.task import Task, target_types, task_for
from .batches import class_weights, padding_notes
from .config import TrainSettings
from .config_checks import reject_for_data, reject_for_task, reject_too_large_to_train, reject_without_effect
from .config_resolution import ResolvedConfig, finalize_config, resolve_config, resolve_model_settings
from .device import DeviceContext, for_sharded_weights, select_device
from .objectives.choice import OBJECTIVES, add_training_modules
from .objectives.distillation import Teacher
from .output_check import check_outputs, drop_too_long_transcripts
from .pretrained_weights import LoadedWeights, attach_origin, load_pretrained, pruned_shapes, settings_note
from .processes import may_start_sharded, reject_for_processes, reject_parallel
from .pruning import prune_channels
from .recompute import reject_for_recompute


@dataclass
class TrainingSetup:
    """Everything that the training loop needs: data, model, task, device and settings."""

    preset: Preset
    data: DataSet
    model: nn.Module
    config: Any  # of the model
    task: Task
    place: DeviceContext
    settings: TrainSettings
    data_settings: DataSettings
    model_settings: dict[str, Any]
    sizes: ImageSizes  # of images, as requested from the data
    teacher: Teacher | None = None  # teacher for distillation
    taken: LoadedWeights | None = None  # record of the pretrained weights
    deferred: DeferredInit | None = None  # deferred initialization, if the model is on the meta device


def setup_training(
    model: str | nn.Module,
    source: Any,
    given: Mapping[str, Any],
    resumed: bool = False,
    opened: Callable[..., DataSet] | None = None,
    shapes: bool = False,
) -> TrainingSetup:
    """Open the data, fit the model's config to it, build the model from the seed, and select task and device.

    `given` is the flat mapping of settings, with model settings as `model.KEY`. If a run is `resumed`, its weights come
    from the checkpoint and not from the file it started with. `opened` replaces `open_validated` for data that several
    trainings share. With `shapes` the model is built on the meta device, of any size. If processes may shard the model,
    its initialization is `deferred`, and no process holds it whole. Raises CutawayError for errors that the user can
    fix.
    """
    found = preset_for(model)
    asked = resolve_config(found, source, given, resumed)

    opened = opened or (open_data if resumed or shapes else open_validated)  # a resumed run has been checked already
    data = opened(source, asked.data, asked.sizes, target_types(found.targets, asked.training.objective), found.takes)
    reject_for_data(asked.training, data, asked.joint_vocab)
    data = OBJECTIVES[asked.training.objective].learned_from(data, asked.training)
    data.notes += padding_notes(data.splits["train"], asked.training)

    own = resolve_model_settings(asked, data)
    config = found.configure(data.spec, own)
    if isinstance(found, CustomPreset):
        config.channels_last = bool(asked.training.channels_last)
        check_outputs(found, data, asked.training)
    if not shapes:
        reject_too_large_to_train(found, config, asked.training)
    torch.manual_seed(asked.training.seed)
    deferred = (
        DeferredInit()
        if not shapes and may_start_sharded(asked.training) and not isinstance(found, CustomPreset)
        else None
    )
    try:
        network, taken = _build_model(found, config, asked, data, resumed, shapes, deferred)
    except NeedsMaterialization:  # it cannot be deferred
        torch.manual_seed(asked.training.seed)
        deferred = None
        network, taken = _build_model(found, config, asked, data, resumed, shapes, None)
    drop_too_long_transcripts(network, data, asked.data.missing)
    settings, data_settings = finalize_config(asked, data, network, taken)
    if isinstance(data.spec.target, Value) and "label_smoothing" not in given:
        settings = replace(settings, label_smoothing=0.0)  # the card's value is for classes
    if not resumed:
        reject_without_effect(given, settings, data_settings, data, network)
    loss = settings.loss or (as_base_model(network).loss if data.spec.target.classes else None) or None
    words = getattr(data.preprocessing, "words", None)
    task = task_for(data.spec, loss, settings.label_smoothing, class_weights(data, settings), words)
    reject_for_task(asked.training, data_settings, data, found, network, task)
    teacher = Teacher(settings, data, task, mixed=data_settings.mixup > 0) if settings.teacher else None
    reject_for_processes(settings, data, network, found.name)
    place = select_device(
        settings.device, settings.precision, settings.channels_last, network, settings.tensor_parallel
    )
    reject_for_recompute(settings, network, OBJECTIVES[settings.objective].weighable)
    reject_parallel(settings, network, place)
    place = for_sharded_weights(settings, place)
    learns = (task, place, settings, data_settings)
    return TrainingSetup(found, data, network, config, *learns, own, asked.sizes, teacher, taken, deferred)


def _build_model(
    found: Preset,
    config: Any,
    asked: ResolvedConfig,
    data: DataSet,
    resumed: bool,
    shapes: bool,
    deferred: DeferredInit | None,
) -> tuple[nn.Module, LoadedWeights | None]:
    """Build the model with its initial weights and training modules, and return it with a record of the weights.

    Raises NeedsNumbers if initialization cannot be `deferred`.
    """
    with deferred or nullcontext():
        fraction = 0 if deferred else asked.training.memory_fraction
        network = build_on_meta(found, config) if shapes else found.build(config, fraction)
        taken = _load_initial_weights(network, found, asked, data, resumed)
        if asked.training.prune_channels:
            data.notes.append(_prune_channels(network, data, asked.training))
        data.notes += add_training_modules(network, data.spec, asked.training)
    return network, taken


def _load_initial_weights(
    network: nn.Module, found: Preset, asked: ResolvedConfig, data: DataSet, resumed: bool
) -> LoadedWeights | None:
    """Load pretrained weights and word vectors into the model as requested, and return a record of the weights."""
    taken, path = None, asked.training.weights
    if path:
        resize(network, asked.begun.resized if asked.begun else pruned_shapes(path, found))
    if asked.begun and path:
        taken = load_pretrained(network, found, path)
        taken = replace(taken, notes=(*settings_note(found, asked.model, asked.typed, asked.begun), *taken.notes))
    elif path:
        attach_origin(network, found, path)
    if asked.training.vectors and not resumed:
        data.notes.append(_take_vectors(network, data, asked.training.vectors, asked.training.seed))
    return taken


def _prune_channels(model: nn.Module, data: DataSet, settings: TrainSettings) -> str:
    """Prune channels of the model before training, and return a note on the remaining weights."""
    if not settings.weights:
        raise SettingError(
            f"prune_channels={settings.prune_channels:g} takes channels out of a trained model, and without weights "
            "they are random: give weights=RUN, or leave it out."
        )
    before = sum(p.numel() for p in model.parameters())
    (batch,) = data.splits["train"].batches([torch.arange(2)])
    prune_channels(model, batch.inputs, settings.prune_channels)
    left = sum(p.numel() for p in model.parameters())
    return f"Channels pruned: {left:,} of {before:,} weights are left."


def _take_vectors(model: nn.Module, data: DataSet, path: str, seed: int) -> str:
    """Load word vectors into the model's embedding, and return a note on their number.

    Raises SettingError for a model or data without words.
    """
    embedding, tokenizer = getattr(model, "embedding", None), getattr(data.preprocessing, "tokenizer", None)
    if not isinstance(embedding, nn.Embedding) or tokenizer is None:
        raise SettingError(f"vectors={shorten(path)} is for the words of text: leave it out.")
    with torch.no_grad():
        said = load_into_embedding(embedding, tokenizer.tokens, Vectors.load(path), torch.Generator().manual_seed(seed))
        second = getattr(model, "static_embedding", None)
        if isinstance(second, nn.Embedding):  # a second channel, which stays frozen
            second.load_state_dict(embedding.state_dict())
    return said
