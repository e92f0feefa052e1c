"""A model fitted to a data set, ready to learn: what `train` and `check` have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..data.lengths import bucketed, padding
from ..data.opening import kind_of, open_data, read_otherwise
from ..data.sets import DataSet
from ..data.settings import DataSettings
from ..data.text.fitting import AUTO, OF_ITS_OWN
from ..data.text.tokenizers import KINDS
from ..errors import ModelError, SettingError
from ..interop.hub import fetch, is_hub
from ..interop.word_vectors import Vectors, take_vectors
from ..models.contract import Advances, contract_of
from ..models.registry import Preset, preset
from ..settings import as_text, build, keys, short, unknown_setting
from ..spec import Classes, ImageSizes, ImageSpec, PairSpec
from ..tasks.task import Task, task_for
from .applicable import refuse_without_effect
from .evaluation import carries
from .layers import frozen, heads
from .learning_memory import refuse_too_large_to_learn
from .placement import Placement, find_device, find_place, refuse_without_compiler
from .settings import TrainSettings
from .tokens import words_of
from .weights import Source, Taken, find_weights, keep_origin, take_weights

TOKENIZED = ("text", "seq2seq")  # kinds of data that a tokenizer cuts
WORTH_SAYING = 0.01  # fraction of padding from which on it is told
LAYER_DECAY = 0.8  # where weights are taken, as in K. Clark et al., ELECTRA, 2020 <https://arxiv.org/abs/2003.10555>


@dataclass
class Prepared:
    """Everything that the loop needs, and where it comes from."""

    preset: Preset
    data: DataSet
    model: nn.Module
    task: Task
    place: Placement
    settings: TrainSettings
    data_settings: DataSettings
    model_settings: dict[str, Any]
    sizes: ImageSizes  # of images, as the data was asked for
    taken: Taken | None = None  # the weights that the model begins with, where it does with those of a file


def prepare(model: str, source: Any, given: Mapping[str, Any], resumed: bool = False) -> Prepared:
    """Open the data, fit the model's config to it, build the model from the seed, choose task and place.

    `given` is the flat list of settings, a model's own as `model.KEY`. The weights of a run that is `resumed` are in
    its checkpoint, and none are taken from the file that it began with. Raises what a person can fix.
    """
    refuse_module(model)
    found = preset(model)
    model_settings = {k.removeprefix("model."): v for k, v in given.items() if k.startswith("model.")}
    own = {**found.card.settings, **(found.card.fine_tuning if given.get("weights") else {})}
    if "batch_size" in given and "batch_tokens" not in given:
        own.pop("batch_tokens", None)  # of the card; what is typed wins, and the one stands instead of the other
    flat = {**own, **{k: v for k, v in given.items() if not k.startswith("model.")}}
    known = keys(DataSettings, TrainSettings)
    for key in flat:
        if key not in known:
            raise unknown_setting(key, [*known, *(f"model.{k}" for k in found.setting_names)])
    settings = build(TrainSettings, {k: v for k, v in flat.items() if k in keys(TrainSettings)})
    data_settings = build(DataSettings, {k: v for k, v in flat.items() if k in keys(DataSettings)})
    if settings.threads:
        torch.set_num_threads(settings.threads)  # first of all: what is fitted on the data depends on it too

    if settings.compile:
        refuse_without_compiler(find_device(settings.device))
    kind = kind_of(source, data_settings)
    if settings.weights and is_hub(settings.weights) and not resumed:
        settings = replace(settings, weights=fetch(settings.weights).pinned)  # the commit, which a run records
    begun = find_weights(settings.weights, found) if settings.weights and not resumed else None
    if begun and kind in TOKENIZED:
        data_settings = _as_the_weights_were_cut(data_settings, begun, given)
    joint = data_settings.joint_vocab
    data_settings = _as_the_model_asks(data_settings, kind, found)
    found.refuse_kind(kind, read_otherwise(kind, found.takes, found.targets))
    typed = found.parse(model_settings)
    parsed = {**(begun.settings(found) if begun else {}), **typed}
    if "image_size" in found.setting_names and data_settings.image_size and kind == "image":
        parsed.setdefault("image_size", data_settings.image_size)
    sizes = found.image_sizes(found.configure(settings=parsed))
    data = open_data(source, data_settings, sizes, found.targets)
    _refuse_unfit(settings, data)
    data_settings = _with_whole_path(_as_the_sides_are_cut(data_settings, data, joint))
    data.notes += _padding_notes(data, settings)
    if begun:
        parsed |= _rows(data, data_settings, settings, begun, typed)
    config = found.configure(data.spec, parsed)
    refuse_too_large_to_learn(found, config, settings)
    torch.manual_seed(settings.seed)
    network = found.build(config, settings.memory_fraction)
    if settings.compile and carries(network, data.splits["train"]):
        raise SettingError(
            f"compile=true compiles what answers for one batch by itself, and {model} carries its state from batch to "
            "batch: leave compile out, or add stateful=false."
        )
    taken = None
    if begun and settings.weights:
        taken = take_weights(network, found, settings.weights)
        taken = replace(taken, notes=(*_built_like(found, parsed, typed, begun), *taken.notes))
    elif settings.weights:
        keep_origin(network, found, settings.weights)
    if settings.vectors:
        settings = replace(settings, vectors=str(Path(settings.vectors).expanduser().resolve()))
        if not resumed:
            data.notes.append(_take_vectors(network, data, settings))
    settings = _settled(settings, network, taken)
    if not resumed:
        refuse_without_effect(given, settings, data_settings, data, network)
    loss = settings.loss or (contract_of(network).loss if isinstance(data.spec.target, Classes) else None) or None
    words = getattr(data.preprocessing, "words", None)
    task = task_for(data.spec, loss, settings.label_smoothing, _class_weights(data, settings), words)
    settings = _monitored(settings, task, data)
    if data_settings.mixup and task.loss_name in ("perceptron", "map"):
        raise SettingError(
            f"mixup blends classes, and {model} learns by loss={task.loss_name}, which takes one class an example: "
            "leave mixup out, or take loss=cross_entropy."
        )
    if settings.loss_chunk and words_of(network, task) is None:
        raise SettingError(
            f"loss_chunk={settings.loss_chunk} is for attention models that give each token as many outputs as there "
            f"are words, and {model} on this data does not: leave it out."
        )
    place = find_place(settings.device, settings.precision, settings.channels_last, network)
    return Prepared(found, data, network, task, place, settings, data_settings, parsed, sizes, taken)


def refuse_module(model: object) -> None:
    """Raise ModelError for a model that is no name: an nn.Module, for one."""
    if not isinstance(model, str):
        raise ModelError(
            f"A model is named, as `cutaway list` names them, and this is an object of type {type(model).__name__}: "
            "modules of one's own are not trained here. cutaway.look(model, x) looks inside any of them."
        )


def _as_the_model_asks(settings: DataSettings, kind: str, found: Preset) -> DataSettings:
    """The settings with what the model wants where they leave it open: a state carried from step to step, texts in a
    frame, one vocabulary for both sides of a pair. Raises SettingError for stateful=true where there is no state."""
    network, advances = found.network, issubclass(found.network, Advances)
    if kind == "text" and settings.stateful and not advances:
        raise SettingError(f"stateful=true carries a state from step to step, and {found.name} has none: leave it out.")
    asked = {
        "text": {"stateful": advances, "special_tokens": network.special_tokens},
        "seq2seq": {"joint_vocab": network.joint_vocab},
    }
    wanted = [key for key, wants in asked.get(kind, {}).items() if wants and getattr(settings, key) is None]
    return replace(settings, **dict.fromkeys(wanted, True))  # type: ignore[arg-type]  # they are yes or no


def _as_the_weights_were_cut(settings: DataSettings, begun: Source, given: Mapping[str, Any]) -> DataSettings:
    """The settings with the tokenizer that the weights were learned with, unless another one was given; what a card
    says of how one is to be fitted is no matter then."""
    if begun.tokenizer is None or given.get("tokenizer", AUTO) != AUTO:
        return settings
    usual: dict[str, Any] = {f.name: f.default for f in fields(DataSettings)}
    usual = {key: usual[key] for key in OF_ITS_OWN if key not in given}
    return replace(settings, tokenizer=str(begun.tokenizer.resolve()), **usual)


def _with_whole_path(settings: DataSettings) -> DataSettings:
    """The settings with the tokenizer's path as it is seen from everywhere."""
    if settings.tokenizer in (AUTO, *KINDS):
        return settings
    return replace(settings, tokenizer=str(Path(settings.tokenizer).expanduser().resolve()))


def _rows(
    data: DataSet, settings: DataSettings, training: TrainSettings, begun: Source, typed: Mapping[str, Any]
) -> dict[str, int]:
    """The vocabulary of the model, where the weights have rows for more tokens than their tokenizer has.

    Raises SettingError where the tokenizer does not belong to the weights: one of another size.
    """
    ids, rows = getattr(data.spec, "vocab_size", None), getattr(begun.config, "vocab_size", None)
    if not ids or not rows or "vocab_size" in typed or ids == rows:
        return {}
    own = begun.tokenizer is not None and settings.tokenizer == str(begun.tokenizer.resolve())
    if own and ids < rows:
        return {"vocab_size": rows}
    if settings.tokenizer in (AUTO, *KINDS):
        which = f"the tokenizer that was fitted on {data.name} has {ids:,}"
    else:
        which = f"the tokenizer in {settings.tokenizer} has {ids:,}"
    way = "leave tokenizer out" if begun.tokenizer else "give theirs as tokenizer=FILE"
    raise SettingError(
        f"weights={training.weights} has vectors of {rows:,} tokens ({begun.file}), and {which}: they do not belong "
        f"together. The model would take one word for another; {way}."
    )


def _built_like(found: Preset, parsed: Mapping[str, Any], typed: Mapping[str, Any], begun: Source) -> list[str]:
    """A sentence on the model's settings that are those of the weights; none where they are the preset's."""
    taken = {k: v for k, v in parsed.items() if k in begun.settings(found) and k not in typed}
    other = {k: v for k, v in taken.items() if v != getattr(found.config, k)}
    if not other:
        return []
    said = ", ".join(f"{key}={as_text(value)}" for key, value in other.items())
    return [f"The {found.name} is built as that of the weights: {said}."]


def _as_the_sides_are_cut(settings: DataSettings, data: DataSet, typed: bool | None) -> DataSettings:
    """The settings with whether the sides of pairs share a tokenizer: what is `typed` must be so, what a model asks for
    gives way. Raises SettingError where the sides are cut differently and are to share one all the same."""
    if not isinstance(data.spec, PairSpec):
        return settings
    if typed and not data.spec.joint_vocab:
        raise SettingError(
            "joint_vocab=true cannot be: the two sides of this data are cut differently, and share no tokenizer. "
            "tokenizer=bpe cuts both alike; or leave joint_vocab out."
        )
    return replace(settings, joint_vocab=data.spec.joint_vocab)


def _refuse_unfit(settings: TrainSettings, data: DataSet) -> None:
    """Raise SettingError for a setting that this data gives no meaning to."""
    spec = data.spec
    if settings.sampling == "balanced" and not isinstance(spec.target, Classes):
        raise SettingError(
            f"sampling=balanced is for classes, and {spec.target.column} is a number: take sampling=shuffle."
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
    if settings.tta and not isinstance(spec, ImageSpec):
        raise SettingError(f"tta mirrors images, and this is {spec.kind} data: leave it out.")
    usual = TrainSettings()
    for key in ("num_beams", "length_penalty"):
        value = getattr(settings, key)
        if value != getattr(usual, key) and not isinstance(spec, PairSpec):
            raise SettingError(
                f"{key}={short(as_text(value))} is for pairs of sequences, and this is {spec.kind} data: leave it out."
            )


def _monitored(settings: TrainSettings, task: Task, data: DataSet) -> TrainSettings:
    """The settings with the metric that is to decide, as the task calls it: val_loss, as in metrics.csv, is loss too.

    Raises SettingError for one that this task has not, or without a split to validate on.
    """
    if settings.monitor is None:
        return settings
    asked = f"monitor={settings.monitor}"
    if "val" not in data.splits:
        raise SettingError(f"{asked} looks at the validation split, and val=0 leaves none: leave one of them out.")
    name = settings.monitor.removeprefix("val_")
    if name not in task.monitors:
        raise SettingError(
            f"{asked} cannot be: for {task.name}, choose from {', '.join(task.monitors)}, on the validation split."
        )
    return replace(settings, monitor=name)


def _take_vectors(model: nn.Module, data: DataSet, settings: TrainSettings) -> str:
    """Put word vectors into the model's embedding; a sentence on how many there were. Raises SettingError for a model
    or data without words."""
    embedding, tokenizer = getattr(model, "embedding", None), getattr(data.preprocessing, "tokenizer", None)
    if not isinstance(embedding, nn.Embedding) or tokenizer is None:
        raise SettingError(f"vectors={short(settings.vectors)} is for the words of text: leave it out.")
    assert settings.vectors is not None
    generator = torch.Generator().manual_seed(settings.seed)
    with torch.no_grad():
        said = take_vectors(embedding, tokenizer.tokens, Vectors.load(settings.vectors), generator)
        second = getattr(model, "static_embedding", None)
        if isinstance(second, nn.Embedding):  # a second channel, which keeps them as they are
            second.load_state_dict(embedding.state_dict())
    return said


def _padding_notes(data: DataSet, settings: TrainSettings) -> list[str]:
    """A sentence on how much of the training batches is padding, where examples have different lengths."""
    split = data.splits["train"]
    lengths: Tensor | None = getattr(split, "lengths", None)
    if lengths is None or hasattr(split, "carries") or lengths.min() == lengths.max():
        return []
    size, generator = settings.batch_size or len(split), torch.Generator().manual_seed(settings.seed)
    batches = bucketed(lengths, size, generator, settings.batch_tokens)
    if settings.batch_tokens:
        size = max(1, len(split) // len(batches))
    sorted_ = padding(lengths, batches)
    at_random = torch.randperm(len(split), generator=torch.Generator().manual_seed(0))
    shuffled = padding(lengths, torch.split(at_random, size))
    if shuffled < WORTH_SAYING:
        return []
    said = f"Lengths go from {int(lengths.min()):,} to {int(lengths.max()):,}."
    if shuffled - sorted_ < WORTH_SAYING:  # few batches, each with texts of every length
        return [f"{said} {100 * sorted_:.1f} % of the steps of a batch are padding."]
    return [
        f"{said} Batches are of nearly equal length: {100 * sorted_:.1f} % of their steps are padding, where batches "
        f"at random would have {100 * shuffled:.1f} %."
    ]


def _settled(settings: TrainSettings, model: nn.Module, taken: Taken | None) -> TrainSettings:
    """The settings with numbers for what was left to be chosen by the weights that were taken.

    Raises SettingError where that leaves nothing to learn.
    """
    alone, decay = settings.freeze_epochs, settings.layer_decay
    if alone is None:
        alone = 1 if taken and taken.new and settings.epochs > 1 else 0
    if alone and not settings.weights:
        raise SettingError(
            f"freeze_epochs={alone} keeps the backbone as it begins, and without weights it begins at random: "
            "give weights=FILE, or leave it out."
        )
    if alone > settings.epochs:
        raise SettingError(
            f"freeze_epochs={alone} are of the epochs={settings.epochs} of the whole training: give more of those."
        )
    still = frozen(model, settings.freeze)
    learning = {name for name, p in model.named_parameters() if p.requires_grad} - still
    if not learning or (alone and not any(name.startswith(f"{head}.") for head in heads(model) for name in learning)):
        what = "the head" if learning else "the model"
        raise SettingError(f"freeze={short(as_text(settings.freeze))} leaves nothing of {what} to learn: freeze less.")
    return replace(
        settings,
        weights=_as_recorded(settings.weights),
        freeze_epochs=alone,
        layer_decay=decay if decay is not None else LAYER_DECAY if settings.weights else 1.0,
    )


def _as_recorded(weights: str | None) -> str | None:
    """Where the weights came from, so that it means the same from anywhere."""
    return weights if weights is None or is_hub(weights) else str(Path(weights).expanduser().resolve())


def _class_weights(data: DataSet, settings: TrainSettings) -> Tensor | None:
    """Weights inverse to each class's fraction of the training split, 1 on average over its examples, in the precision
    that is trained in."""
    if settings.class_weights == "none" or not isinstance(data.spec.target, Classes):
        return None
    target = data.splits["train"].target
    assert target is not None
    counts = target.bincount(minlength=len(data.spec.target.names))
    precision = torch.float64 if settings.precision == "float64" else torch.float32
    return len(target) / (len(counts) * counts.clamp(min=1).to(precision))
