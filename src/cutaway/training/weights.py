"""Weights to start from: a run or model of ours, or a checkpoint of torchvision's, taken into a model of the same kind.

Everything of the same name and shape is taken, buffers too. The head alone may be of another number of classes: it
stays as it was initialised. Anything else that does not fit is refused, so that no layer begins at random unnoticed.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from ..errors import FileError
from ..interop.torchvision import read_checkpoint
from ..models.registry import Preset
from ..models.saving import WEIGHTS, read_tensors
from ..settings import as_text
from .layers import LAYERS, auxiliary, heads

FITTED = ("in_channels", "in_features", "num_classes", "image_size", "auxiliary")  # of a Config: what shapes tell


@dataclasses.dataclass(frozen=True)
class Taken:
    """What a model began with."""

    path: str  # of the file
    sha256: str  # of its content
    tensors: int  # that were taken, of those that the model has
    new: tuple[str, ...]  # the layers, or whole auxiliary heads, that were not in the file or are of other classes
    notes: tuple[str, ...]  # sentences a person should read


def take_weights(model: nn.Module, preset: Preset, path: str) -> Taken:
    """Put the weights at `path` (a run's or model's folder, or a file) into the model, and say what was taken.

    Raises FileError where the file cannot be read or does not fit the model, ModelError where torchvision has no such
    network.
    """
    file = _file(Path(path).expanduser())
    found, notes = _read(file, model, preset)
    adapt = getattr(model, "adapt_state", None)  # positions of another image size, for one
    if adapt is not None:
        found = adapt(found)
    own = model.state_dict()
    new = _new(own, found, heads(model))
    wanted = {key: value for key, value in own.items() if not _belongs(key, new)}
    # An auxiliary head in the file that the model was built without is no loss: it answers in training alone.
    offered = {k: v for k, v in found.items() if not _belongs(k, new) and (k in own or not auxiliary(k))}
    _refuse_misfits(file, model, wanted, offered)
    model.load_state_dict({**own, **offered})
    notes = (_said(file, preset, own, wanted, found, new), *notes)
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    return Taken(str(file.resolve()), digest, len(wanted), new, notes)


def _file(path: Path) -> Path:
    """The file that holds the weights: the path itself, or that of a run's or model's folder."""
    if path.is_file():
        return path
    if not path.is_dir():
        raise FileError(f"There is nothing at weights={path}: give a run's or model's folder, or a file of weights.")
    folder = path / "model" if (path / "run.json").is_file() else path
    if not (folder / WEIGHTS).is_file():
        raise FileError(
            f"weights={path} is a folder without a model: it has no {(folder / WEIGHTS).relative_to(path)}. Give a run "
            "whose first epoch has ended, a model's folder, or a file."
        )
    return folder / WEIGHTS


def _read(file: Path, model: nn.Module, preset: Preset) -> tuple[Mapping[str, Tensor], tuple[str, ...]]:
    """The named tensors of the file under our names, and what a person should know of them."""
    if not _is_ours(file):
        loaded = read_checkpoint(file, preset.name)
        return loaded.model.state_dict(), loaded.notes
    tensors, meta = read_tensors(file)
    if "preset" not in meta:
        raise FileError(f"{file} is a checkpoint of a run that goes on, not a model: give the run's folder.")
    if meta["preset"] != preset.name:
        raise FileError(
            f"{file} holds a {meta['preset']}, and this is a {preset.name}: give weights of a {preset.name}, or train "
            f"a {meta['preset']}."
        )
    theirs, ours = meta["config"], dataclasses.asdict(model.config)  # type: ignore[call-overload]  # every Model has one
    changed = [
        f"{key} {as_text(_plain(theirs[key]))} there, {as_text(_plain(value))} here"
        for key, value in ours.items()
        if key not in FITTED and key in theirs and _plain(theirs[key]) != _plain(value)
    ]
    notes = (f"The model of these weights had other settings: {'; '.join(changed)}.",) if changed else ()
    return tensors, notes


def _is_ours(file: Path) -> bool:
    """Whether Cutaway wrote the file, as its header says."""
    try:
        with safe_open(file, framework="pt") as opened:
            return "cutaway" in (opened.metadata() or {})
    except (SafetensorError, OSError):
        return False


def _new(own: Mapping[str, Tensor], found: Mapping[str, Tensor], ends: list[str]) -> tuple[str, ...]:
    """The heads whose classes are others than in the file, and the auxiliary heads that it has not."""
    other_classes = [
        end
        for end in ends
        if any(
            key in found and found[key].shape != value.shape and found[key].shape[1:] == value.shape[1:]
            for key, value in own.items()
            if _belongs(key, (end,))
        )
    ]
    absent = {auxiliary(key) for key in own} - {auxiliary(key) for key in found} - {""}
    return (*other_classes, *sorted(absent))


def _refuse_misfits(file: Path, model: nn.Module, wanted: Mapping[str, Tensor], offered: Mapping[str, Tensor]) -> None:
    """Raise FileError that names the first missing, unexpected and misshapen tensor; or says that the channels differ,
    where that is all."""
    missing = [k for k in wanted if k not in offered]
    unexpected = [k for k in offered if k not in wanted]
    misshapen = [k for k in wanted if k in offered and offered[k].shape != wanted[k].shape]
    if not (missing or unexpected or misshapen):
        return
    layers = [name for name, module in model.named_modules() if isinstance(module, LAYERS)]
    if not (missing or unexpected) and layers and misshapen == [f"{layers[0]}.weight"]:
        there, here = offered[misshapen[0]].shape, wanted[misshapen[0]].shape
        if there[0] == here[0] and there[2:] == here[2:]:
            _refuse_other_inputs(file, layers[0], there, here)
    problems = []
    if missing:
        problems.append(f"{len(missing)} of the model's tensors are missing, the first {missing[0]}")
    if unexpected:
        problems.append(f"{len(unexpected)} are not the model's, the first {unexpected[0]}")
    if misshapen:
        first = misshapen[0]
        shapes = f"{tuple(offered[first].shape)} where the model has {tuple(wanted[first].shape)}"
        problems.append(f"{len(misshapen)} have another shape, the first {first}: {shapes}")
    raise FileError(
        f"{file} does not fit the model: {'; '.join(problems)}. The head alone may differ, in its number of classes: "
        "give the model the settings (model.KEY=value) that it had, or weights of this model."
    )


def _refuse_other_inputs(file: Path, layer: str, there: tuple[int, ...], here: tuple[int, ...]) -> None:
    if len(here) != 4:
        raise FileError(
            f"{file} learned from {there[1]} inputs an example, and this data has {here[1]}: its layer {layer} cannot "
            "be taken. Give data with the same columns, or train without weights."
        )
    colors = {1: "color=grey", 3: "color=rgb"}
    raise FileError(
        f"{file} learned from images with in_channels={there[1]}, and these have in_channels={here[1]}: its layer "
        f"{layer} cannot be taken. Give such images{', by ' + colors[there[1]] if there[1] in colors else ''}."
    )


def _said(
    file: Path,
    preset: Preset,
    own: Mapping[str, Tensor],
    wanted: Mapping[str, Tensor],
    found: Mapping[str, Tensor],
    new: tuple[str, ...],
) -> str:
    """One sentence: what was taken and what is new."""
    said = f"The {preset.name} begins with the weights of {file}: {len(wanted)} of its {len(own)} tensors"
    if not new:
        return f"{said}, the head too, since it has as many outputs."
    reasons = []
    for end in new:
        there = found.get(f"{end}.weight")
        of = "not in the file" if there is None else f"{len(there)} outputs there, {len(own[f'{end}.weight'])} here"
        reasons.append(f"{end} ({of})")
    return f"{said}. New: {', '.join(reasons)}."


def _belongs(key: str, modules: tuple[str, ...]) -> bool:
    return any(key.startswith(f"{module}.") for module in modules)


def _plain(value: Any) -> Any:
    """A config's value as JSON keeps it, with tuples for lists."""
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value
