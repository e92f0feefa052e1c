"""Validation of training settings: invalid or ineffective settings are rejected by name and never ignored.

Settings that do not apply to a kind of data are rejected when the data is opened (`data.modalities`). This module
checks what depends on both data and model. Only settings that the user typed are checked for an effect: a model's
card may contain settings for several optimizers, and a resumed run keeps its original settings.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from ..core.config import as_text, shorten
from ..core.errors import SettingError, join
from ..core.memory_budget import reject_too_large
from ..core.spec import Boxes, Context, GeneratedImage, ImageSpec, Transcript
from ..data.dataset_base import DataSet, Split
from ..data.settings import DataSettings
from ..models.base import as_base_model
from ..models.registry import Preset
from ..tasks.task import Task
from .attacks import Attack
from .chunked_head import build_chunked_head
from .config import TrainSettings
from .device import find_device, free_memory, num_sharing_processes
from .evaluation import is_stateful
from .objectives.choice import reject_for_objective
from .optim import training_bytes
from .parameter_groups import NORMS, layer_depths, match_frozen
from .processes import max_shards
from .pruning import reject_for_pruning
from .qat import reject_for_qat
from .task_schedule import reject_loss_for_tasks

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


def reject_incompatible(settings: TrainSettings, split: Split) -> None:
    """Raise SettingError for settings that exclude one another or do not apply to this training split."""
    if settings.average_epochs and settings.ema:
        raise SettingError(
            f"average_epochs={settings.average_epochs} and ema={settings.ema:g} are two averages of the weights, and "
            "one is kept: give one of them."
        )
    if settings.batch_tokens and "tokens" not in inspect.signature(getattr(split, "plan", lambda: None)).parameters:
        raise SettingError(
            f"batch_tokens={settings.batch_tokens} is for texts of different lengths, but this data has batches of "
            "a fixed number of examples: give batch_size instead."
        )


def reject_for_data(settings: TrainSettings, data: DataSet, joint_vocab: bool | None) -> None:
    """Raise SettingError for a setting that does not apply to this data.

    `joint_vocab` is the value that the user typed.
    """
    spec = data.spec
    reject_for_objective(settings, data)
    reject_for_pruning(settings, tasks=data.tasks is not None)
    reject_for_qat(settings)
    if settings.sampling == "balanced" and not spec.target.classes:
        raise SettingError(
            f"sampling=balanced is for classes, and {spec.target.column} is "
            f"{'none' if isinstance(spec.target, Boxes) else 'a number'}: take sampling=shuffle."
        )
    if settings.sampling == "balanced" and settings.class_weights == "balanced":
        raise SettingError(
            "sampling=balanced and class_weights=balanced would each even out the classes, and both together favour "
            "the rare ones: give one of them."
        )
    if settings.sampling == "balanced" and hasattr(data.splits["train"], "plan"):
        raise SettingError(
            f"sampling=balanced draws examples one by one, and batches of {spec.kind} data are made in another way: "
            "class_weights=balanced weighs them instead."
        )
    if settings.tta and isinstance(spec.target, Boxes):
        raise SettingError(
            "tta=true takes the mean of the answers for an image and for its mirror image, and boxes stand elsewhere "
            "in that: leave it out."
        )
    if settings.tta and not isinstance(spec, ImageSpec):
        raise SettingError(f"tta mirrors images, and this is {spec.kind} data: leave it out.")
    if settings.tta and isinstance(spec.target, GeneratedImage):
        raise SettingError(
            "tta averages the answers to an image and to its mirror image, and images to draw have none."
        )
    if settings.tta and spec.target.written:
        raise SettingError("tta averages the answers to an image and to its mirror image, and captions have no mean.")
    usual = TrainSettings()
    for key in ("num_beams", "length_penalty"):
        value = getattr(settings, key)
        if value != getattr(usual, key) and not spec.target.written:
            raise SettingError(
                f"{key}={shorten(as_text(value))} is for pairs of sequences and captions, and this is {spec.kind} data:"
                " leave it out."
            )
    if settings.length_penalty != usual.length_penalty and type(spec.target) is Transcript:
        raise SettingError(
            f"length_penalty={settings.length_penalty:g} is for autoregressive decoding, but this model predicts "
            "a character or a blank at every frame: leave it out."
        )
    if joint_vocab and not getattr(spec, "joint_vocab", True):
        raise SettingError(
            "Invalid joint_vocab=true: the two sides of this data are tokenized differently and share no tokenizer. "
            "Add tokenizer=bpe, which tokenizes both alike, or leave out joint_vocab."
        )


def reject_for_task(
    settings: TrainSettings, data_settings: DataSettings, data: DataSet, preset: Preset, model: nn.Module, task: Task
) -> None:
    """Raise SettingError for a setting that this model does not support for this task.

    `settings` are those the user typed.
    """
    if settings.attack and (settings.teacher or settings.objective != "supervised" or data_settings.mixup):
        other = "teacher" if settings.teacher else "mixup" if data_settings.mixup else "objective"
        raise SettingError(f"attack={settings.attack} and {other} are not learned by together: give one of them.")
    if settings.attack:
        Attack(model, task, data.preprocessing, settings.attack, settings.attack_eps, settings.attack_steps)
    reject_loss_for_tasks(settings, data, task)
    if settings.compile and is_stateful(model, data.splits["train"]):
        raise SettingError(
            f"compile=true needs independent batches, but {preset.name} carries its state from "
            "batch to batch: leave compile out, or add stateful=false."
        )
    if settings.monitor is not None:
        asked = f"monitor={settings.monitor}"
        if "val" not in data.splits:
            raise SettingError(f"{asked} looks at the validation split, and val=0 leaves none: leave one of them out.")
        if settings.monitor.removeprefix("val_") not in task.monitors:
            raise SettingError(
                f"Invalid {asked} for {task.name}: must be one of {', '.join(task.monitors)} (on the validation split)."
            )
    if data_settings.mixup and task.loss_name in ("perceptron", "map"):
        raise SettingError(
            f"mixup blends classes, and {preset.name} learns by loss={task.loss_name}, which takes one class an "
            "example: leave mixup out, or take loss=cross_entropy."
        )
    if settings.loss_chunk and build_chunked_head(model, task) is None:
        raise SettingError(
            f"loss_chunk={settings.loss_chunk} is for attention models that give each token as many outputs as there "
            f"are words, and {preset.name} on this data does not: leave it out."
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
        raise SettingError(f"{key}={shorten(as_text(values[key]))} would change nothing: {why}.")


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
        yield "class_weights", f"it weighs classes, and {target.column} is none. Leave it out"
    if {"batch_size", "batch_tokens"} <= asked:
        yield "batch_size", f"batch_tokens={settings.batch_tokens} stands instead of it. Give one of them"
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
