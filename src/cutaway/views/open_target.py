"""Targets of `inspect`: a run, a preset, a folder, a file or a module, opened as a Subject.

Files of the user are preprocessed for models without a run too: images are supported for vision models, texts if there
is a tokenizer in the folder of the weights.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..checkpoints.convert import open_model as read_model
from ..checkpoints.hub import resolve_path
from ..checkpoints.huggingface.folders import is_folder, read_folder
from ..checkpoints.saving import CONFIG
from ..core.config import split_model_settings
from ..core.errors import DataError, FileError, SettingError, UnknownName
from ..core.files import reject_address
from ..core.spec import Classes, ImageSpec, Masked, NextToken, TextSpec, Value
from ..data.dataset_base import Preprocessing
from ..data.images.transforms import ImagePreprocessing
from ..data.modalities import read_preprocessing
from ..data.text.tokenizer_files import open_tokenizer
from ..data.text.transforms import TextPreprocessing
from ..inspect.example_inputs import example_shape, input_modality
from ..models.registry import Preset, presets
from ..runs.run import Run
from .subject import Subject, open_model, open_preset, open_run, with_examples, with_first

HEAD_ALONE = "head"  # the untrained part of a model from a folder without a head
RANDOM = "The examples are random numbers."
LARGE = 20_000_000  # parameters of a preset above which one random example is used


def open_subject(
    what: Run | nn.Module | str | os.PathLike[str],
    inputs: Sequence[Any] = (),
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Subject:
    """Open a target with these examples.

    `options` that begin with `model.` are settings of a preset; the others are for the views.

    Raises:
        CutawayError: If the user can fix the problem.
    """
    given = dict(options or {})
    settings, others = split_model_settings(given)
    asked = {key: str(value) for key, value in others.items()}
    if isinstance(what, nn.Module):
        _reject_settings(settings, "a model object")
        return _open_module(what, inputs, asked)
    if isinstance(what, Run):
        _reject_settings(settings, "a run")
        return open_run(what, inputs, asked)
    if not isinstance(what, str | os.PathLike):
        raise FileError(f"Invalid target of type {type(what).__name__}: must be a run, a model, or a path or name.")
    path = resolve_path(what)
    if path.exists():
        _reject_settings(settings, "a model with weights")
        if (path / "run.json").is_file():
            return open_run(Run(path), inputs, asked)
        return _from_files(path, inputs, asked, name)
    known = {p.name: p for p in presets().values()} | {p.file_name: p for p in presets().values()}
    if str(what) not in known:
        reject_address(what)
        raise UnknownName(
            "run, folder or model", str(what), presets(), "`cutaway list` shows the models; runs are in runs/."
        )
    subject = open_preset(str(what), settings, asked)
    if inputs:
        return _with_files(subject, inputs, None)
    large = sum(p.numel() for p in subject.model.parameters()) > LARGE
    return with_first(subject, 1) if large else subject


def _open_module(model: nn.Module, inputs: Sequence[Any], asked: Mapping[str, str]) -> Subject:
    """Open a module. Raises DataError for inputs that are not tensors."""
    if strange := next((x for x in inputs if not isinstance(x, Tensor)), None):
        raise DataError(
            f"Invalid example {strange!r}: examples of a model object must be tensors, as its forward takes them.",
            fix="To use files, give the folder of a run.",
        )
    subject = open_model(model, *inputs, options=asked)
    return subject if inputs else dataclasses.replace(subject, notes=(RANDOM,))  # it is unknown whether it was trained


def _from_files(path: Path, inputs: Sequence[Any], asked: Mapping[str, str], name: str | None) -> Subject:
    """Open a model folder, a Hugging Face folder, or a torchvision checkpoint.

    The user's files are the examples if there is preprocessing for them.
    """
    if path.is_dir() and not is_folder(path) and not (path / CONFIG).is_file():
        raise FileError(
            f"{path} is not a run or a model folder (Cutaway or Hugging Face): it has no run.json and no {CONFIG}. "
            "`cutaway train` creates runs, by default in runs/."
        )
    if path.is_file() and name is None:
        raise FileError(
            f"{path} is a file, not the folder of a run. For a torchvision checkpoint, name its model: `cutaway "
            f"inspect {path} --model NAME`."
        )
    untrained = ""
    if path.is_dir() and is_folder(path):
        found = read_folder(path, name)
        model, called, notes = found.model, found.preset.name, found.notes
        untrained = HEAD_ALONE if found.new else ""
    else:
        model, called, notes = read_model(path, name)
    subject = open_model(model, options=asked)
    subject = dataclasses.replace(subject, preset=presets()[called], notes=(*notes, RANDOM), untrained=untrained)
    return _with_files(subject, inputs, path if path.is_dir() else None, notes) if inputs else subject


def _with_files(subject: Subject, inputs: Sequence[Any], folder: Path | None, notes: Sequence[str] = ()) -> Subject:
    """Return the subject with the user's own files as examples."""
    way, told = find_preprocessing(subject.preset, subject.config, folder)
    split = way.examples([str(x) if isinstance(x, os.PathLike) else x for x in inputs])
    subject = dataclasses.replace(subject, preprocessing=way, notes=(*notes, *((told,) if told else ())))
    return with_examples(subject, split, range(len(split)))


def _reject_settings(settings: Mapping[str, Any], of: str) -> None:
    """Raise SettingError if model settings are given for a model that exists already."""
    if settings:
        key = next(iter(settings))
        raise SettingError(
            f"Invalid model.{key}: only an untrained preset takes model settings, and this is {of}. Leave it out."
        )


PREPROCESSING, TOKENIZER = "preprocessing.json", "tokenizer.json"
LENGTH = 512  # most tokens that are read, if the model has no limit
# The mean and standard deviation of ImageNet's pixels, which torchvision's and most other networks were trained with.
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def find_preprocessing(preset: Preset, config: Any, folder: Path | None) -> tuple[Preprocessing, str]:
    """Return the preprocessing for a model without a run, and a sentence on its origin.

    A folder of Cutaway may contain its own preprocessing, and a folder of Hugging Face a tokenizer. Vision models get
    images of their size.

    Raises:
        DataError: If there is no preprocessing.
    """
    if folder is not None and (folder / PREPROCESSING).is_file():
        return read_preprocessing(folder / PREPROCESSING), ""
    kind = input_modality(preset, config)
    if kind == "image":
        return _images(preset, config)
    if kind == "text" and folder is not None and (folder / TOKENIZER).is_file():
        return _texts(config, folder / TOKENIZER), ""
    lacking = {
        "text": "no tokenizer",
        "seq2seq": "no tokenizers",
        "table": "no column encoders",
    }.get(kind, f"no preprocessing for {kind} data")
    raise DataError(
        f"{preset.name} has {lacking}, so INPUT cannot be files.",
        fix="Leave INPUT out for random examples, or train the model on your data and give the folder of the run.",
    )


def _images(preset: Preset, config: Any) -> tuple[Preprocessing, str]:
    channels, height, width = example_shape(preset, config)
    mean, std = IMAGENET if channels == 3 else ((0.5,) * channels, (0.5,) * channels)
    spec = ImageSpec(channels, height, width, _classes(config))
    made = ImagePreprocessing(spec, mean, std, "crop", (height, width), (0,) * channels)
    told = f"The images are cropped to {height} × {width} and normalized with ImageNet statistics, because the "
    return made, told + "preprocessing of this model is not known."


def _texts(config: Any, file: Path) -> Preprocessing:
    tokenizer = open_tokenizer(file)
    length = min(LENGTH, getattr(config, "context_length", None) or LENGTH)
    vocab_size, head = config.vocab_size, getattr(config, "head", "classes")
    target: Any = _classes(config)
    if head == "masked":
        target = Masked(vocab_size, tokenizer.mask or 0)
    elif head == "next":
        target = NextToken(vocab_size)
    framed = tokenizer.begin is not None and tokenizer.end is not None and tokenizer.begin != tokenizer.end
    frame = (tokenizer.begin, tokenizer.end) if framed else (None, None)
    return TextPreprocessing(TextSpec(vocab_size, length, target, *frame), tokenizer, length)


def _classes(config: Any) -> Classes | Value:
    count = getattr(config, "num_classes", 0) or 0
    return Classes(tuple(f"class {k}" for k in range(count))) if count > 1 else Value()
