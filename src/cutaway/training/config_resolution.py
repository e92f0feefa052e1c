"""Resolution of training settings from the user's input, the model's card, the weights and the model's requirements.

`resolve_config` does the part that precedes opening the data. `finalize_config` completes it once data, model and
weights are known, and returns the settings that a run records.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..checkpoints.custom import CustomPreset
from ..checkpoints.hub import fetch, is_hub
from ..core.config import as_text, build, field_names, pick, shorten, split_model_settings, unknown_setting
from ..core.errors import DataError, ModelError, SettingError
from ..core.spec import Episodes, Horizon, ImageSizes
from ..data.dataset_base import DataSet
from ..data.modalities import KINDS
from ..data.open_data import infer_kind, reading_hint
from ..data.settings import DataSettings
from ..data.text.tokenizer_files import AUTO, OF_ITS_OWN
from ..data.text.tokenizers import KINDS as TOKENIZERS
from ..models.base import SupportsState
from ..models.registry import Preset
from ..tasks.task import LEARNED_BY
from .config import TrainSettings
from .device import find_device, reject_without_compiler
from .parameter_groups import match_frozen, output_layers
from .pretrained_weights import LoadedWeights, WeightsSource, find_weights

SHORT_STEPS, SHORT_BATCH = 400, 16  # for a series with few windows: least steps, largest batch
# Card settings for classification, which do not apply to training on views, since these have no labels.
SUPERVISED = ("flip", "crop", "color_jitter", "cutout", "mixup", "label_smoothing", "class_weights", "loss", "tta")
# Fractions of links, as in T. N. Kipf, M. Welling, 2016 <https://arxiv.org/abs/1611.07308>.
LINKS_HELD_OUT: dict[str, Any] = {"val": 0.05, "test": 0.1}
LAYER_DECAY = 0.8  # with pretrained weights, as in K. Clark et al., ELECTRA, 2020 <https://arxiv.org/abs/2003.10555>


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
        raise DataError("Data is missing: give a path, the name of a data set, or data in Python: train(MODEL, DATA).")
    training, data = _split_groups(found, given)
    if training.threads:
        torch.set_num_threads(training.threads)
    if training.compile:
        reject_without_compiler(find_device(training.device))
    kind = infer_kind(source, data, found.takes)
    weights, vectors = training.weights, training.vectors
    if weights and isinstance(found, CustomPreset):
        raise SettingError(
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
        raise SettingError(f"stateful=true carries a state from step to step, and {found.name} has none: leave it out.")
    if "edge_attr" in own and data.edge_attr and not network.edge_attr:
        raise SettingError(f"edge_attr=true describes edges, and {found.name} takes nodes alone: leave it out.")
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
    raise SettingError(
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
        raise SettingError(
            f"freeze_epochs={alone} keeps the backbone as it begins, and without weights it begins at random: "
            "give weights=FILE, or leave it out."
        )
    if alone > settings.epochs:
        raise SettingError(
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
        raise SettingError(
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
    """Return settings that train a forecast for at least 400 steps, unless the user set the length or the batch size.

    For a series with few windows, a number of epochs that suits a long series would be only a few steps.
    """
    settings, windows = asked.training, len(data.splits["train"])
    batch = min(settings.batch_size or windows, windows)
    if asked.length_typed or not isinstance(data.spec.target, Horizon):
        return settings
    if settings.epochs * math.ceil(windows / batch) >= SHORT_STEPS:
        return settings
    batch = min(batch, SHORT_BATCH)
    epochs = math.ceil(SHORT_STEPS / math.ceil(windows / batch))
    data.notes.append(
        f"The training split has few windows, {windows:,}: unless epochs, max_steps or batch_size is given, training "
        f"has {SHORT_STEPS:,} steps at least, here epochs={epochs} with batch_size={batch}."
    )
    return replace(settings, batch_size=batch, epochs=max(epochs, settings.epochs))
