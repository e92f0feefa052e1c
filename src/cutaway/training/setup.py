"""Setup of a training: settings are resolved, data opened, and model, task and device made ready.

    settings of the user ─┐
    card of the model ────┼─ resolve_config ─ open the data ─ build the model ─ finalize_config ─ task, device
    pretrained weights ───┘

`train`, `check`, `quantize` and `cutaway plan` share it. `resolve_config` does the part that precedes opening the data.
`finalize_config` completes the settings once data, model and weights are known, and returns those that a run records.

Invalid or ineffective settings are rejected by name and never ignored. Settings that do not apply to a kind of data are
rejected when the data is opened (`data.modalities`); this module checks what depends on both data and model. Only
settings that the user typed are checked for an effect: a model's card may contain settings for several optimizers, and
a resumed run keeps its original settings.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..checkpoints.custom import CustomPreset, preset_for
from ..checkpoints.deferred_init import DeferredInit, NeedsMaterialization
from ..checkpoints.hub import fetch, is_hub
from ..checkpoints.word_vectors import Vectors, load_into_embedding
from ..core.config import as_text, build, field_names, pick, shorten, split_model_settings, unknown_setting
from ..core.errors import DataError, IncompatibleSettingError, MissingSettingError, ModelError, SettingError, join
from ..core.extras import is_installed, missing_package_text, require
from ..core.memory_budget import build_on_meta, reject_too_large
from ..core.spec import Boxes, Context, Episodes, GeneratedImage, Horizon, ImageSizes, ImageSpec, Transcript, Value
from ..data.dataset_base import DataSet, Split
from ..data.modalities import KINDS
from ..data.open_data import infer_kind, open_data, open_validated, reading_hint
from ..data.settings import DataSettings
from ..data.text.tokenizer_files import AUTO, OF_ITS_OWN
from ..data.text.tokenizers import KINDS as TOKENIZERS
from ..data.text.word2vec_dataset import ContextSplit
from ..models.base import SupportsState, as_base_model
from ..models.registry import Preset
from ..nn.modules import NORMS, resize
from ..tasks.task import LEARNED_BY, Task, target_types, task_for
from .batches import class_weights, padding_notes
from .chunked_head import build_chunked_head
from .compression import prune_channels, reject_for_pruning, reject_for_qat
from .config import TrainSettings
from .device import (
    DeviceContext,
    find_device,
    for_sharded_weights,
    free_memory,
    num_sharing_processes,
    reject_without_compiler,
    select_device,
)
from .evaluation import is_stateful
from .objectives.choice import OBJECTIVES, add_training_modules
from .objectives.distillation import Teacher
from .objectives.supervised import Attack
from .optim import layer_depths, match_frozen, output_layers, training_bytes
from .output_check import check_outputs, drop_too_long_transcripts
from .parallel import max_shards, may_start_sharded, reject_for_processes, reject_for_recompute, reject_parallel
from .pretrained_weights import (
    LoadedWeights,
    WeightsSource,
    attach_origin,
    find_weights,
    load_pretrained,
    pruned_shapes,
    settings_note,
)


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
    if asked.training.tensorboard:
        require("tensorboard", "tensorboard=true")

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
    for module, purpose in getattr(task, "LIBRARIES", ()):
        require(module, purpose)
    if hasattr(data.splits["train"], "texts") and not is_installed("sacrebleu"):
        data.notes.append(f"BLEU is left out: {missing_package_text('sacrebleu', 'it')}")
    reject_for_task(asked.training, data_settings, data, found, network, task)
    teacher = Teacher(settings, data, task, mixed=data_settings.mixup > 0) if settings.teacher else None
    reject_for_processes(settings, data, network, found.name)
    place = select_device(
        settings.device, settings.precision, settings.channels_last, network, settings.tensor_parallel
    )
    reject_for_recompute(settings, network, OBJECTIVES[settings.objective].weighable)
    reject_parallel(settings, network, place)
    place = for_sharded_weights(settings, place)
    reject_incompatible(settings, data.splits["train"])
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
        raise IncompatibleSettingError(
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
        raise IncompatibleSettingError(f"vectors={shorten(path)} is for the words of text: leave it out.")
    with torch.no_grad():
        said = load_into_embedding(embedding, tokenizer.tokens, Vectors.load(path), torch.Generator().manual_seed(seed))
        second = getattr(model, "static_embedding", None)
        if isinstance(second, nn.Embedding):  # a second channel, which stays frozen
            second.load_state_dict(embedding.state_dict())
    return said


SHORT_STEPS, SHORT_BATCH = 400, 16  # for a series with few windows: least steps, largest batch
WORD_STEPS, WORD_EPOCHS = 3000, 100  # for word vectors of a short text: least steps, in at most so many epochs
# Card settings for classification, which do not apply to training on views, since these have no labels.
SUPERVISED = ("flip", "crop", "color_jitter", "cutout", "mixup", "label_smoothing", "class_weights", "loss", "tta")
# Fractions of links, as in T. N. Kipf, M. Welling, 2016 <https://arxiv.org/abs/1611.07308>.
LINKS_HELD_OUT: dict[str, Any] = {"val": 0.05, "test": 0.1}
LAYER_DECAY = 0.8  # with pretrained weights, as in K. Clark et al., ELECTRA, 2020 <https://arxiv.org/abs/2003.10555>


# --- resolution of settings ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ResolvedConfig:
    """Settings of a training that are known before the data is opened."""

    training: TrainSettings
    data: DataSettings
    model: dict[str, Any]  # model settings
    typed: dict[str, Any]  # model settings that the user typed
    joint_vocab: bool | None  # as typed, before the model's requirement
    sizes: ImageSizes  # image sizes that the model accepts
    begun: WeightsSource | None  # pretrained weights, if there are any
    length_typed: bool  # whether the user set the length of training or the batch size

    @property
    def tokenizer(self) -> str:
        """Return the kind of tokenizer, or its absolute path."""
        named = self.data.tokenizer
        return named if named in (AUTO, *TOKENIZERS) else str(Path(named).expanduser().resolve())


def resolve_config(found: Preset, source: Any, given: Mapping[str, Any], resumed: bool) -> ResolvedConfig:
    """Resolve the settings before the data is opened: those `given` override those of the card.

    Model settings are given as `model.KEY`. The number of threads is set here, since preprocessing depends on it.
    Raises CutawayError for errors that the user can fix.
    """
    if source is None:
        words = "Data is missing: give a path, the name of a data set, or data in Python: train(MODEL, DATA)."
        raise DataError(words, code=MissingSettingError.code)
    training, data = _split_groups(found, given)
    if training.threads:
        torch.set_num_threads(training.threads)
    if training.compile:
        reject_without_compiler(find_device(training.device))
    kind = infer_kind(source, data, found.takes)
    weights, vectors = training.weights, training.vectors
    if weights and isinstance(found, CustomPreset):
        raise IncompatibleSettingError(
            f"weights={shorten(weights)} is for named models: {found.name} is a custom module and"
            " is trained from its current weights. Load yours into it, and leave weights out."
        )
    if weights and is_hub(weights) and not resumed:
        weights = fetch(weights).pinned  # pinned to a commit, which the run records
    begun = find_weights(weights, found) if weights and not resumed else None
    like_weights = _tokenizer_of_weights(begun, given) if "tokenizer" in KINDS[kind].settings else {}
    wishes = _required_by_model(found, kind, data)
    found.reject_kind(kind, lambda: reading_hint(source, kind, found.takes, found.targets))
    typed = found.parse(split_model_settings(given)[0])
    model = {**(begun.settings(found) if begun else {}), **typed}
    if kind == "image" and data.image_size and "image_size" in found.setting_names:
        model.setdefault("image_size", data.image_size)
    return ResolvedConfig(
        replace(training, weights=weights, vectors=absolute_path(vectors), teacher=absolute_path(training.teacher)),
        replace(data, **like_weights, **wishes),
        model,
        typed,
        data.joint_vocab,
        found.image_sizes(found.configure(settings=model)),
        begun,
        any(key in given for key in ("epochs", "max_steps", "batch_size")),
    )


def absolute_path(path: str | None) -> str | None:
    """Return the path as an absolute path, or None."""
    return None if path is None else str(Path(path).expanduser().resolve())


def _split_groups(found: Preset, given: Mapping[str, Any]) -> tuple[TrainSettings, DataSettings]:
    """Return the settings of training and of data: those given override those of the card.

    Raises UnknownName or SettingError.
    """
    own = {**found.card.settings, **(found.card.fine_tuning if given.get("weights") else {})}
    if "batch_size" in given and "batch_tokens" not in given:
        own.pop("batch_tokens", None)  # from the card; the user's batch_size replaces it
    if given.get("tasks"):
        own.pop("patience", None)
    if given.get("objective") in LEARNED_BY:
        own = {key: value for key, value in own.items() if key not in SUPERVISED}
    flat = {**own, **split_model_settings(given)[1]}
    known = field_names(DataSettings, TrainSettings)
    for key in flat:
        if key not in known:
            raise unknown_setting(key, [*known, *(f"model.{k}" for k in found.setting_names)])
    training = build(TrainSettings, pick(flat, TrainSettings))
    data = build(DataSettings, pick(flat, DataSettings))
    if data.links:
        data = replace(data, **{k: v for k, v in LINKS_HELD_OUT.items() if k not in flat})
    return training, data


def _tokenizer_of_weights(begun: WeightsSource | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tokenizer settings of the weights, unless the user gave another tokenizer.

    The card's settings for fitting a tokenizer are then reset to their defaults.
    """
    if begun is None or begun.tokenizer is None or given.get("tokenizer", AUTO) != AUTO:
        return {}
    usual = {f.name: f.default for f in fields(DataSettings) if f.name in OF_ITS_OWN and f.name not in given}
    return {"tokenizer": str(begun.tokenizer.resolve()), **usual}


def _required_by_model(found: Preset, kind: str, data: DataSettings) -> dict[str, Any]:
    """Return the data settings that the model requires and the user left open.

    These are a state carried from step to step, special tokens around texts, one vocabulary for both sides of a pair,
    and edge attributes. Raises SettingError for stateful=true if the model has no state, and for edge_attr=true if it
    does not take edge attributes.
    """
    network, own = found.network, KINDS[kind].settings
    advances = issubclass(network, SupportsState)
    if "stateful" in own and data.stateful and not advances:
        raise IncompatibleSettingError(
            f"stateful=true carries a state from step to step, and {found.name} has none: leave it out."
        )
    if "edge_attr" in own and data.edge_attr and not network.edge_attr:
        raise IncompatibleSettingError(
            f"edge_attr=true describes edges, and {found.name} takes nodes alone: leave it out."
        )
    wants = {"stateful": advances, "special_tokens": network.special_tokens, "joint_vocab": network.joint_vocab}
    wants["edge_attr"] = network.edge_attr
    return {key: True for key, wanted in wants.items() if wanted and key in own and getattr(data, key) is None}


def resolve_model_settings(asked: ResolvedConfig, data: DataSet) -> dict[str, Any]:
    """Return the model settings, with the vocabulary size of the weights if it exceeds that of their tokenizer.

    Raises SettingError if the tokenizer does not match the weights in size.
    """
    begun, tokenizer = asked.begun, asked.tokenizer
    ids, rows = getattr(data.spec, "vocab_size", None), begun and getattr(begun.config, "vocab_size", None)
    if begun is None or not ids or not rows or "vocab_size" in asked.typed or ids == rows:
        return asked.model
    if begun.tokenizer is not None and tokenizer == str(begun.tokenizer.resolve()) and ids < rows:
        return {**asked.model, "vocab_size": rows}
    which = f"the tokenizer in {tokenizer}"
    if tokenizer in (AUTO, *TOKENIZERS):
        which = f"the tokenizer that was fitted on {data.name}"
    way = "leave tokenizer out" if begun.tokenizer else "give theirs as tokenizer=FILE"
    raise IncompatibleSettingError(
        f"weights={asked.training.weights} has vectors of {rows:,} tokens ({begun.file}), and {which} has {ids:,}: "
        f"they do not belong together. The model would take one word for another; {way}."
    )


def finalize_config(
    asked: ResolvedConfig, data: DataSet, network: nn.Module, taken: LoadedWeights | None
) -> tuple[TrainSettings, DataSettings]:
    """Return the final settings that a run records.

    Values that depend on the `taken` weights are filled in, paths are made absolute, and the metric to monitor gets the
    task's name for it (val_loss, as in metrics.csv, becomes loss). Raises SettingError if nothing is left to train.
    """
    settings, weights = _extend_short_training(asked, data), asked.training.weights
    alone, decay = settings.freeze_epochs, settings.layer_decay
    if alone is None:
        episodes = isinstance(data.spec.target, Episodes)  # there is no head for fixed classes
        alone = 1 if taken and taken.new and settings.epochs > 1 and not episodes else 0
    if alone and not weights:
        raise IncompatibleSettingError(
            f"freeze_epochs={alone} keeps the backbone as it begins, and without weights it begins at random: "
            "give weights=FILE, or leave it out."
        )
    if alone > settings.epochs:
        raise IncompatibleSettingError(
            f"freeze_epochs={alone} are of the epochs={settings.epochs} of the whole training: give more of those."
        )
    if not any(p.requires_grad for p in network.parameters()):
        raise ModelError(f"{type(network).__name__} has no parameter that learns: none has requires_grad.")
    still = match_frozen(network, settings.freeze)
    learning = {name for name, p in network.named_parameters() if p.requires_grad} - still
    if not learning or (
        alone and not any(name.startswith(f"{head}.") for head in output_layers(network) for name in learning)
    ):
        what = "the head" if learning else "the model"
        raise IncompatibleSettingError(
            f"freeze={shorten(as_text(settings.freeze))} leaves nothing of {what} to learn: freeze less."
        )
    training = replace(
        settings,
        weights=weights if weights is not None and is_hub(weights) else absolute_path(weights),
        freeze_epochs=alone,
        layer_decay=decay if decay is not None else LAYER_DECAY if weights else 1.0,
        monitor=settings.monitor and settings.monitor.removeprefix("val_"),
    )
    joint = getattr(data.spec, "joint_vocab", asked.data.joint_vocab)  # the data overrides the model's requirement
    return training, replace(asked.data, tokenizer=asked.tokenizer, joint_vocab=joint)


def _extend_short_training(asked: ResolvedConfig, data: DataSet) -> TrainSettings:
    """Return settings with enough steps for a short series or text, unless the user set the length or the batch size.

    A number of epochs that suits a long series or text is only a few steps of a short one. A forecast is trained for at
    least 400 steps. Word vectors are trained for at least 3,000 steps in at most 100 epochs: they begin near 0, and
    after fewer steps all of them still have nearly the same direction.
    """
    settings, train = asked.training, data.splits["train"]
    if asked.length_typed:
        return settings
    if isinstance(train, ContextSplit):
        steps = len(train.plan(settings.batch_size or len(train), torch.Generator()))
        epochs = min(math.ceil(WORD_STEPS / steps), WORD_EPOCHS)
        if epochs > settings.epochs:
            data.notes.append(
                f"The text is short, {steps:,} steps an epoch: unless epochs, max_steps or batch_size is given, "
                f"training has {WORD_STEPS:,} steps in at most {WORD_EPOCHS} epochs, here epochs={epochs}."
            )
        return replace(settings, epochs=max(epochs, settings.epochs))
    windows = len(train)
    batch = min(settings.batch_size or windows, windows)
    if not isinstance(data.spec.target, Horizon) or settings.epochs * math.ceil(windows / batch) >= SHORT_STEPS:
        return settings
    batch = min(batch, SHORT_BATCH)
    epochs = math.ceil(SHORT_STEPS / math.ceil(windows / batch))
    data.notes.append(
        f"The training split has few windows, {windows:,}: unless epochs, max_steps or batch_size is given, training "
        f"has {SHORT_STEPS:,} steps at least, here epochs={epochs} with batch_size={batch}."
    )
    return replace(settings, batch_size=batch, epochs=max(epochs, settings.epochs))


FOR_OPTIMIZERS = {
    "momentum": ("momentum", "nesterov", "muon"),
    "betas": ("adam", "adamw", "muon"),
    "eps": ("adagrad", "rmsprop", "adadelta", "adam", "adamw", "muon"),
    "alpha": ("rmsprop",),
}
FOR_OBJECTIVES: dict[str, tuple[str, ...]] = {
    "ewc_lambda": ("ewc",),
    "fisher_samples": ("ewc",),
    "buffer": ("rehearsal",),
    "group_size": ("star", "grpo"),
    "kl_weight": ("grpo",),
    **dict.fromkeys(("ways", "shots", "queries"), ("maml", "prototypes")),
    **dict.fromkeys(("mask_ratio", "decoder_dim", "norm_pix_loss"), ("mae",)),
    **dict.fromkeys(("inner_lr", "inner_steps", "first_order"), ("maml",)),
}
TEMPERATURE_OBJECTIVES = ("simclr", "star", "grpo")  # objectives with a temperature
FOR_SCHEDULES = {
    "warmup": ("warmup-cosine", "noam", "wsd"),
    "gamma": ("step",),
    "milestones": ("step",),
    "decay": ("wsd",),
}


# --- checks of settings ----------------------------------------------------------------------------------------------

# Settings that would end the sequence early, or keep other weights than the last.
NOT_WITH_TASKS = ("max_steps", "minutes", "patience", "average_epochs", "ema", "freeze_epochs", "monitor", "lora")


def reject_incompatible(settings: TrainSettings, split: Split) -> None:
    """Raise SettingError for settings that exclude one another or do not apply to this training split."""
    if settings.average_epochs and settings.ema:
        raise IncompatibleSettingError(
            f"average_epochs={settings.average_epochs} and ema={settings.ema:g} are two averages of the weights, and "
            "one is kept: give one of them."
        )
    if settings.batch_tokens and "tokens" not in inspect.signature(getattr(split, "plan", lambda: None)).parameters:
        raise IncompatibleSettingError(
            f"batch_tokens={settings.batch_tokens} is for texts of different lengths, but this data has batches of "
            "a fixed number of examples: give batch_size instead."
        )


ADAPTIVE = ("adagrad", "rmsprop", "adam", "adamw")  # optimizers whose steps have about the size of lr
HIGH_LR, HIGH_LR_OF_SGD, LOW_LR = 0.1, 5.0, 1e-8
HIGH_SMOOTHING, LOW_CLIP = 0.5, 1e-3


def unusual_setting_notes(ready: TrainingSetup, typed: Mapping[str, Any]) -> list[str]:
    """Return one line for each typed setting whose value usually prevents learning.

    The defaults of a model's card are not questioned, nor is the learning rate of the perceptron rule, which only
    scales the weights, or of the Noam schedule, where it is a factor.

    Args:
        ready: The setup.
        typed: The settings that the user typed.
    """
    settings, found, count = ready.settings, [], len(ready.data.splits["train"])
    adaptive = settings.optimizer in ADAPTIVE
    if "lr" in typed and settings.schedule != "noam" and ready.task.loss_name != "perceptron":
        if settings.lr > (HIGH_LR if adaptive else HIGH_LR_OF_SGD):
            said = f"lr={settings.lr:g} is very high for optimizer={settings.optimizer}, training may diverge"
            found.append(f"{said}. Try lr={'0.001' if adaptive else '0.1'}.")
        elif settings.lr < LOW_LR:
            found.append(f"lr={settings.lr:g} is very low: the weights barely change. Try lr=0.001.")
    if "label_smoothing" in typed and settings.label_smoothing > HIGH_SMOOTHING:
        said = f"label_smoothing={settings.label_smoothing:g} is very high, the targets are mostly uniform"
        found.append(f"{said}. Try label_smoothing=0.1.")
    if "grad_clip" in typed and 0 < settings.grad_clip < LOW_CLIP:
        found.append(f"grad_clip={settings.grad_clip:g} is very low, gradients nearly vanish. Try grad_clip=1.")
    if "batch_size" in typed and settings.batch_size > 2 * count:
        said = f"batch_size={settings.batch_size:,} exceeds the {count:,} training examples, an epoch is one step"
        found.append(f"{said}. Try batch_size={max(1, min(64, count // 10))}.")
    return [f"Unusual setting: {line}" for line in found]


def reject_for_data(settings: TrainSettings, data: DataSet, joint_vocab: bool | None) -> None:
    """Raise SettingError for a setting that does not apply to this data.

    `joint_vocab` is the value that the user typed.
    """
    spec = data.spec
    _reject_for_objective(settings, data)
    reject_for_pruning(settings, tasks=data.tasks is not None)
    reject_for_qat(settings)
    if settings.sampling == "balanced" and not spec.target.classes:
        raise IncompatibleSettingError(
            f"sampling=balanced is for classes, and {spec.target.column} is "
            f"{'none' if isinstance(spec.target, Boxes) else 'a number'}: take sampling=shuffle."
        )
    if settings.sampling == "balanced" and settings.class_weights == "balanced":
        raise IncompatibleSettingError(
            "sampling=balanced and class_weights=balanced would each even out the classes, and both together favour "
            "the rare ones: give one of them."
        )
    if settings.sampling == "balanced" and hasattr(data.splits["train"], "plan"):
        raise IncompatibleSettingError(
            f"sampling=balanced draws examples one by one, and batches of {spec.kind} data are made in another way: "
            "class_weights=balanced weighs them instead."
        )
    if settings.tta and isinstance(spec.target, Boxes):
        raise IncompatibleSettingError(
            "tta=true takes the mean of the answers for an image and for its mirror image, and boxes stand elsewhere "
            "in that: leave it out."
        )
    if settings.tta and not isinstance(spec, ImageSpec):
        raise IncompatibleSettingError(f"tta mirrors images, and this is {spec.kind} data: leave it out.")
    if settings.tta and isinstance(spec.target, GeneratedImage):
        raise IncompatibleSettingError(
            "tta averages the answers to an image and to its mirror image, and images to draw have none."
        )
    if settings.tta and spec.target.written:
        raise IncompatibleSettingError(
            "tta averages the answers to an image and to its mirror image, and captions have no mean."
        )
    usual = TrainSettings()
    for key in ("num_beams", "length_penalty"):
        value = getattr(settings, key)
        if value != getattr(usual, key) and not spec.target.written:
            raise IncompatibleSettingError(
                f"{key}={shorten(as_text(value))} is for pairs of sequences and captions, and this is {spec.kind} data:"
                " leave it out."
            )
    if settings.length_penalty != usual.length_penalty and type(spec.target) is Transcript:
        raise IncompatibleSettingError(
            f"length_penalty={settings.length_penalty:g} is for autoregressive decoding, but this model predicts "
            "a character or a blank at every frame: leave it out."
        )
    if joint_vocab and not getattr(spec, "joint_vocab", True):
        raise IncompatibleSettingError(
            "Invalid joint_vocab=true: the two sides of this data are tokenized differently and share no tokenizer. "
            "Add tokenizer=bpe, which tokenizes both alike, or leave out joint_vocab."
        )


def _reject_for_objective(settings: TrainSettings, data: DataSet) -> None:
    """Raise SettingError for data or settings that the objective does not support."""
    objective = OBJECTIVES[settings.objective]
    objective.reject(settings, data)
    _reject_for_tasks(settings, data)
    if settings.snapshots and (objective.adds or settings.lora):
        raise IncompatibleSettingError(
            f"snapshots={settings.snapshots} keeps copies of a model as it will be, and objective=simclr, "
            "objective=mae and lora add to it until training ends: leave snapshots out."
        )


def _reject_for_tasks(settings: TrainSettings, data: DataSet) -> None:
    """Raise SettingError for settings that are incompatible with a sequence of tasks."""
    usual = TrainSettings()
    if data.tasks is None:
        return
    for key in NOT_WITH_TASKS:
        value = getattr(settings, key)
        if value and value != getattr(usual, key):
            raise IncompatibleSettingError(
                f"{key}={shorten(as_text(value))} cannot be used with tasks: each task has its own epochs, and "
                "the weights after the last one are kept. Leave it out."
            )


def reject_for_task(
    settings: TrainSettings, data_settings: DataSettings, data: DataSet, preset: Preset, model: nn.Module, task: Task
) -> None:
    """Raise SettingError for a setting that this model does not support for this task.

    `settings` are those the user typed.
    """
    if settings.attack and (settings.teacher or settings.objective != "supervised" or data_settings.mixup):
        other = "teacher" if settings.teacher else "mixup" if data_settings.mixup else "objective"
        raise IncompatibleSettingError(
            f"attack={settings.attack} and {other} are not learned by together: give one of them."
        )
    if settings.attack:
        Attack(model, task, data.preprocessing, settings.attack, settings.attack_eps, settings.attack_steps)
    _reject_loss_for_tasks(settings, data, task)
    if settings.compile and is_stateful(model, data.splits["train"]):
        raise IncompatibleSettingError(
            f"compile=true needs independent batches, but {preset.name} carries its state from "
            "batch to batch: leave compile out, or add stateful=false."
        )
    if settings.monitor is not None:
        asked = f"monitor={settings.monitor}"
        if "val" not in data.splits:
            raise IncompatibleSettingError(
                f"{asked} looks at the validation split, and val=0 leaves none: leave one of them out."
            )
        if settings.monitor.removeprefix("val_") not in task.monitors:
            raise SettingError(
                f"Invalid {asked} for {task.name}: must be one of {', '.join(task.monitors)} (on the validation split)."
            )
    if data_settings.mixup and task.loss_name in ("perceptron", "map"):
        raise IncompatibleSettingError(
            f"mixup blends classes, and {preset.name} learns by loss={task.loss_name}, which takes one class an "
            "example: leave mixup out, or take loss=cross_entropy."
        )
    if settings.loss_chunk and build_chunked_head(model, task) is None:
        raise IncompatibleSettingError(
            f"loss_chunk={settings.loss_chunk} is for attention models that give each token as many outputs as there "
            f"are words, and {preset.name} on this data does not: leave it out."
        )


def _reject_loss_for_tasks(settings: TrainSettings, data: DataSet, task: Task) -> None:
    """Raise SettingError for a loss that is incompatible with a sequence of tasks."""
    if data.tasks is not None and task.loss_name == "perceptron":
        raise IncompatibleSettingError(
            "loss=perceptron ends training at the first epoch without a mistake, and tasks come one after another: "
            "take loss=cross_entropy."
        )
    if settings.objective == "ewc" and task.loss_name not in ("cross_entropy", "map"):
        raise IncompatibleSettingError(
            f"objective=ewc asks how likely each class is, which loss={task.loss_name} does not tell: take "
            "loss=cross_entropy."
        )


def reject_too_large_to_train(found: Preset, config: Any, settings: TrainSettings) -> None:
    """Raise ModelError if a model of that config does not fit into device memory for training.

    The memory includes gradients and optimizer state, divided by the number of shards if processes may shard the model.
    """
    device, parts = find_device(settings.device), max_shards(settings)
    free, shared = free_memory(device), num_sharing_processes(device)
    what = f" to learn with optimizer={settings.optimizer} (weights, gradients, optimizer state)"
    more = "more processes hold smaller ones"
    if parts == 1:
        more = "several devices hold it in parts with parallel=fsdp"
    reject_too_large(
        found,
        config,
        taken=lambda size: training_bytes(size, settings) // parts,
        free=None if free is None else free // shared,
        fraction=settings.memory_fraction,
        what=what if parts == 1 else f"{what}, in each of {parts} parts",
        way_out=f"; {more}; memory_fraction=0 trains anyway",
    )


def reject_without_effect(
    typed: Mapping[str, Any], settings: TrainSettings, data_settings: DataSettings, data: DataSet, model: nn.Module
) -> None:
    """Raise SettingError for the first of the `typed` settings that is not the default and would have no effect."""
    usual: dict[str, Any] = {**vars(TrainSettings()), **vars(DataSettings())}
    values: dict[str, Any] = {**vars(settings), **vars(data_settings)}
    asked = {key for key in typed if key in usual and values[key] != usual[key]}
    for key, why in _without_effect(asked, settings, data_settings, data, model):
        raise IncompatibleSettingError(f"{key}={shorten(as_text(values[key]))} would change nothing: {why}.")


def _without_effect(
    asked: set[str], settings: TrainSettings, data_settings: DataSettings, data: DataSet, model: nn.Module
) -> Iterator[tuple[str, str]]:
    """Yield each of the settings in `asked` that has no effect, with the reason and a fix."""
    target, train = data.spec.target, data.splits["train"]
    chosen = (
        ("optimizer", FOR_OPTIMIZERS, settings.optimizer),
        ("schedule", FOR_SCHEDULES, settings.schedule),
        ("objective", FOR_OBJECTIVES, settings.objective),
    )
    for what, wanting, this in chosen:
        for key, fit in wanting.items():
            if key in asked and this not in fit:
                those = join(fit, "or")
                yield key, f"it is for {what}={those}, and this is {this}. Give one, or leave it out"
    if "class_weights" in asked and not target.classes:
        yield "class_weights", f"the target {target.column} has no classes. Leave it out"
    if {"batch_size", "batch_tokens"} <= asked:
        yield "batch_size", f"batch_tokens={settings.batch_tokens} replaces it. Give one of them"
    if "patience" in asked and "val" not in data.splits:
        yield "patience", "no validation split tells when training gets no better. Give val, or leave it out"
    if (
        "channels_last" in asked
        and settings.channels_last
        and not any(isinstance(m, nn.Conv2d) for m in model.modules())
    ):
        yield "channels_last", "this model has no convolutions of images. Leave it out"
    if "layer_decay" in asked and not any(layer_depths(model).values()):
        yield "layer_decay", "this model has no layers before its head. Leave it out"
    if "freeze" in asked:
        yield from _frozen_in_vain(settings, model)
    if "folds" in asked and data_settings.fold is None:
        yield "folds", "it is for cross-validation, which fold=1 asks for. Give fold too, or leave it out"
    if target.order:
        for key in sorted({"fold", "split_seed"} & asked):
            yield key, f"this data is split by its {target.order}, not at random. Leave it out"
    if not isinstance(target, Context) and data.spec.kind == "text":
        for key in sorted({"window", "subsample"} & asked):
            yield (
                key,
                f"it is for word vectors (word2vec), but the target here is {target.column}. Leave it out",
            )
    if "accumulate" in asked and hasattr(train, "x") and settings.batch_size in (0, len(train)):
        yield "accumulate", "the whole graph is one step of an epoch. Leave it out"
    if "eval_batch_size" in asked and hasattr(train, "x") and not data_settings.num_neighbors:
        yield "eval_batch_size", "a whole graph is evaluated at once. Leave it out"
    if settings.attack is None:
        for key in sorted({"attack_eps", "attack_steps"} & asked):
            yield key, "it is for adversarial training, which attack=pgd asks for. Give that too, or leave it out"
    if not settings.sparsity:
        for key in sorted({"prune_scope", "prune_until"} & asked):
            yield key, "it is for magnitude pruning, which sparsity=0.8 asks for. Give that too, or leave it out"
    if settings.qat == "none" and "qat_group" in asked:
        yield "qat_group", "it is for quantization-aware training, which qat=weight-only asks for. Give that too"
    if settings.lora is None:
        for key in sorted({"lora_alpha", "lora_layers"} & asked):
            yield key, "it is for low-rank adaptation, which lora=8 asks for. Give that too, or leave it out"
    if "teacher_weight" in asked and settings.teacher is None:
        yield "teacher_weight", "it is for distillation, which teacher=RUN asks for. Give that too, or leave it out"
    if "temperature" in asked and settings.teacher is None and settings.objective not in TEMPERATURE_OBJECTIVES:
        yield (
            "temperature",
            (
                f"it is for distillation (teacher=RUN) and objective={join(TEMPERATURE_OBJECTIVES, 'or')}. Give one of"
                " them too, or leave it out"
            ),
        )
    if "length_penalty" in asked and settings.num_beams == 1:
        yield (
            "length_penalty",
            "it is for beam search, and num_beams=1 keeps one beginning alone. Give more beams, or leave it out",
        )
    if (loss := settings.loss or as_base_model(model).loss) and target.classes:
        for key in sorted({"label_smoothing", "class_weights"} & asked if loss != "cross_entropy" else ()):
            yield key, f"it is for loss=cross_entropy, and this is {loss}. Give that, or leave it out"


def _frozen_in_vain(settings: TrainSettings, model: nn.Module) -> Iterator[tuple[str, str]]:
    """Yield patterns of `freeze` that match only modules without own weights, such as a head tied to the embedding."""
    weights = {name for name, _ in model.named_parameters()}
    norms = {name for name, module in model.named_modules() if isinstance(module, NORMS)}
    for pattern in settings.freeze:
        if not match_frozen(model, (pattern,)) & (weights | norms):
            yield (
                "freeze",
                f"{shorten(pattern)!r} has no weights of its own here, or shares those of another layer. Freeze that",
            )
