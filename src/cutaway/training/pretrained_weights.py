"""Loading of pretrained weights from a Cutaway run or model, a Hugging Face folder or a torchvision checkpoint.

All tensors of the same name and shape are loaded, including buffers. Only the head may have another number of classes,
and in a text model it may be of another kind: its layers that do not match keep their initialization. A network that is
built on another one (`built_on`: FCN on a ResNet) takes that one's weights for its backbone, and all later layers keep
their initialization. Any other mismatch is rejected, so that no layer starts from random weights unnoticed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from ..checkpoints.deferred_init import materialized_tensors
from ..checkpoints.hub import download_hint, resolve_path
from ..checkpoints.huggingface import find_family
from ..checkpoints.huggingface.folders import Folder, is_folder
from ..checkpoints.match_config import Origin, origin_from_json
from ..checkpoints.saving import (
    INDEX,
    WEIGHTS,
    find_mismatches,
    read_weights,
    reject_not_finite,
    reject_pickle,
    weights_file,
)
from ..checkpoints.torchvision import COUNTER, likely_preset, read_checkpoint, read_state_dict
from ..core.config import as_text
from ..core.errors import FileError, WeightsMismatchError
from ..core.files import exists, missing_file_error, open_regular, read_json, require_regular_file
from ..core.memory_budget import build_on_meta
from ..core.spec import current_kind
from ..models.base import as_base_model
from ..models.registry import Preset, find, presets
from ..nn.modules import Shapes
from .optim import HEAD, LAYERS, auxiliary_head, output_layers

# Config fields that follow from the shapes of tensors.
DATA_FIELDS = ("in_channels", "in_features", "num_classes", "target_vocab_size", "image_size", "auxiliary")
# Config fields that the data determines, which are not taken from the weights.
TASK_FIELDS = (
    "vocab_size",
    "head",
    "pooling",
    "tie_weights",
    "horizon",
    "known_future",
    "steps",
    "graph_level",
    "output",
)
UNLABELLED = ("views", "patches")  # kinds of targets without labels
TOKENIZERS = ("tokenizer.json", "preprocessing.json")  # files next to weights that may hold a tokenizer


@dataclasses.dataclass(frozen=True)
class WeightsSource:
    """Location and metadata of the weights at weights=PATH, before any tensor is loaded."""

    file: Path  # file of the weights, or their index
    config: Any = None  # config of their model; None if unknown
    tokenizer: Path | None = None  # tokenizer file of the weights
    resized: Shapes = dataclasses.field(default_factory=dict)  # shapes after channel pruning (nn.modules)

    def settings(self, preset: Preset) -> dict[str, Any]:
        """Return the model settings that the weights require: those that differ from the preset's, and context length.

        Settings that the data determines are not among them.
        """
        if self.config is None:
            return {}
        names = [name for name in preset.setting_names if name not in (*DATA_FIELDS, *TASK_FIELDS)]
        theirs = {name: getattr(self.config, name) for name in names}
        return {k: v for k, v in theirs.items() if k == "context_length" or v != getattr(preset.config, k)}


@dataclasses.dataclass(frozen=True)
class LoadedWeights:
    """Record of the weights that a model was initialized with."""

    path: str  # of the file
    sha256: str  # of its content
    tensors: int  # number of loaded tensors
    new: tuple[str, ...]  # layers or auxiliary heads that are not in the file or have other classes
    notes: tuple[str, ...]  # notes for the user


def load_pretrained(model: nn.Module, preset: Preset, path: str) -> LoadedWeights:
    """Load the weights at `path` into the model, and return a record of them.

    `path` is the folder of a run or a model, a Hugging Face folder, or a file. Raises FileError if the file cannot be
    read or does not match the model, and ModelError if torchvision has no such network.
    """
    file = _find_file(path, preset)
    if (base := _backbone_preset(file, preset)) is not None:
        return _take_backbone(model, preset, file, base)
    found, notes = _read(file, model, preset)
    found = as_base_model(model).adapt_state(found)
    own = model.state_dict()
    of_text = bool(getattr(getattr(model, "config", None), "vocab_size", 0))
    new = (
        tuple(output_layers(model))
        if _is_self_supervised(file)
        else _new_layers(own, found, output_layers(model), of_text)
    )
    wanted = {key: value for key, value in own.items() if not _belongs(key, new)}
    # An auxiliary head in the file may be missing in the model, since it is used in training alone. So may
    # the head of another kind of a text model.
    offered = {
        k: v
        for k, v in found.items()
        if not _belongs(k, new) and (k in own or not (auxiliary_head(k) or (of_text and _belongs(k, (HEAD,)))))
    }
    _reject_misfits(file, model, wanted, offered)
    reject_not_finite(offered, file)
    _copy_tensors(model, offered)
    attach_origin(model, preset, path)
    notes = (_loaded_note(file, preset, own, wanted, found, new), *notes)
    return LoadedWeights(str(file.absolute()), sha256_of_weights(file), len(wanted), new, notes)


def _take_backbone(model: nn.Module, preset: Preset, file: Path, base: Preset) -> LoadedWeights:
    """Load the weights of `base`, which the model is built on, into that child of the model, without the head."""
    assert preset.network.built_on is not None
    child, _ = preset.network.built_on
    body = model.get_submodule(child)
    found, notes = _read(file, body, base)
    own = body.state_dict()
    ends = tuple(output_layers(build_on_meta(base, base.config)))
    # Frozen norms have no batch counters.
    offered = {k: v for k, v in found.items() if k in own or not (_belongs(k, ends) or k.endswith(COUNTER))}
    _reject_misfits(file, body, own, offered)
    reject_not_finite(offered, file)
    _copy_tensors(body, offered)
    new = tuple(name for name, part in model.named_children() if name != child and part.state_dict())
    said = (
        f"The backbone of the {preset.name} begins with the weights of {file}, a {base.name}: {len(own)} of "
        f"the model's {len(model.state_dict())} tensors. New: {', '.join(new)}."
    )
    return LoadedWeights(str(file.absolute()), sha256_of_weights(file), len(own), new, (said, *notes))


@torch.no_grad()
def _copy_tensors(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy the tensors into the model's parameters and buffers of these names."""
    own = model.state_dict()
    for name, tensor in tensors.items():
        own[name].copy_(tensor)


def attach_origin(model: nn.Module, preset: Preset, path: str) -> None:
    """Attach the origin stored with the weights at `path` to the model, unless the file no longer exists."""
    try:
        origin = _read_origin(_find_file(path, preset))
    except FileError:
        return
    if origin is not None:
        model.origin = origin  # type: ignore[assignment]  # a plain attribute


def pruned_shapes(path: str, preset: Preset) -> Shapes:
    """Return the shapes that channel pruning gave the weights at `path`; empty if the file no longer exists."""
    try:
        return find_weights(path, preset).resized
    except FileError:
        return {}


def settings_note(
    preset: Preset, settings: Mapping[str, Any], typed: Mapping[str, Any], begun: WeightsSource
) -> list[str]:
    """Return a note on the model settings taken from the weights; none if they equal the preset's."""
    theirs = begun.settings(preset)
    other = {k: v for k, v in settings.items() if k in theirs and k not in typed and v != getattr(preset.config, k)}
    if not other:
        return []
    said = ", ".join(f"{key}={as_text(value)}" for key, value in other.items())
    return [f"The {preset.name} is built as that of the weights: {said}."]


def find_weights(path: str, preset: Preset) -> WeightsSource:
    """Find the weights at `path`, with their config and tokenizer. No tensor is read.

    Raises FileError if there are none, or they are of another model; ModelError if they are of a network of
    transformers that `preset` is not.
    """
    file = _find_file(path, preset)
    if _is_hugging_face(file):
        folder = Folder(file.parent)
        folder.preset(preset.name)
        return WeightsSource(file, folder.config, folder.tokenizer)
    if (base := _backbone_preset(file, preset)) is not None:
        written = (_read_metadata(file) or {}).get("config", {})
        theirs = {**vars(base.config), **{k: _to_tuples(v) for k, v in base.as_now(written).items()}}
        shared = {k: v for k, v in theirs.items() if k in preset.setting_names}
        return WeightsSource(file, dataclasses.replace(preset.config, **shared))
    meta = _read_metadata(file)
    if meta is None and find_family(preset.name) is not None:
        reject_pickle(file)
        Folder(file.parent)  # raises an error on what the folder lacks
        raise FileError(f"weights={path} is a file without a description of its network: give its folder.")
    if meta is None:
        return WeightsSource(file)
    _reject_other(file, meta, preset)
    if "quantized" in meta:
        raise FileError(
            f"{file} holds a quantized model, whose numbers are rounded, and training moves them by less than a step: "
            "begin with the run that it was made of."
        )
    theirs = {k: _to_tuples(v) for k, v in preset.as_now(meta["config"]).items() if k in preset.setting_names}
    resized = {name: tuple(shape) for name, shape in meta.get("resized", {}).items()}
    return WeightsSource(file, dataclasses.replace(preset.config, **theirs), _find_tokenizer(file), resized)


def _find_file(given: str, preset: Preset) -> Path:
    """Return the file that holds the weights, or their index: the path itself, or a file in that folder.

    A folder on the Hugging Face Hub is downloaded.
    """
    path = resolve_path(given)
    if path.is_file():
        return path
    if not path.is_dir():
        if exists(path):
            require_regular_file(path)
        ways = f"weights= takes a run, the folder of a model, or a file of weights. {download_hint(preset.name)}"
        raise missing_file_error(given, "file or folder", ways.strip())
    if is_folder(path):
        files = Folder(path).files
        return files[0] if len(files) == 1 else path / INDEX
    folder = path / "model" if (path / "run.json").is_file() else path
    file = weights_file(folder)
    if not file.is_file():
        raise FileError(
            f"weights={path} is a folder without a model: it has no {file.relative_to(path)}. Give a run whose first "
            "epoch has ended, a model's folder, or a file."
        )
    return file


def _is_hugging_face(file: Path) -> bool:
    """Return whether the file holds the weights of a Hugging Face folder."""
    return file.name in (WEIGHTS, INDEX) and is_folder(file.parent)


def _is_self_supervised(file: Path) -> bool:
    """Return whether the weights were trained without labels, so that their head gives no predictions."""
    found = _read_json_object(file.parent / TOKENIZERS[1])
    for key in ("spec", "target"):
        inner = found.get(key)
        found = inner if isinstance(inner, dict) else {}
    return found.get("kind") in UNLABELLED


def _read_json_object(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file next to the weights; empty if it does not exist or is not an object."""
    document = read_json(path) if path.is_file() else None
    return document if isinstance(document, dict) else {}


def _find_tokenizer(file: Path) -> Path | None:
    """Return the file next to Cutaway's weights that holds their single tokenizer, or None."""
    for name in TOKENIZERS:
        beside = file.parent / name
        if beside.is_file():
            document = _read_json_object(beside)
            source, target = document.get("source"), document.get("target")
            shared = current_kind(document.get("kind")) == "seq2seq" and target in (None, source)
            if name == TOKENIZERS[0] or "tokenizer" in document or shared:
                return beside
    return None


def _backbone_preset(file: Path, preset: Preset) -> Preset | None:
    """Return the preset of these weights, if it is the network that `preset` is built on; else None."""
    if preset.network.built_on is None or _is_hugging_face(file):
        return None
    network, meta = preset.network.built_on[1], _read_metadata(file)
    with materialized_tensors():
        name = likely_preset(read_state_dict(file), network) if meta is None else meta.get("preset")
    base = find(str(name))
    return base if base is not None and base.network is network else None


def _read(file: Path, model: nn.Module, preset: Preset) -> tuple[Mapping[str, Tensor], tuple[str, ...]]:
    """Return the tensors of the file under Cutaway's names, and notes on them."""
    if _is_hugging_face(file):
        shapes = {k: tuple(v.shape) for k, v in model.state_dict().items()}
        return Folder(file.parent).offered(shapes, getattr(model.config, "head", None))
    if _read_metadata(file) is None:
        with materialized_tensors():
            loaded = read_checkpoint(file, preset.name)
        return loaded.model.state_dict(), loaded.notes
    tensors, meta = read_weights(file)
    _reject_other(file, meta, preset)
    theirs = preset.as_now(meta["config"])
    ours = dataclasses.asdict(model.config)  # type: ignore[call-overload]  # every model has a config
    changed = [
        f"{key} {as_text(_to_tuples(theirs[key]))} there, {as_text(_to_tuples(value))} here"
        for key, value in ours.items()
        if key not in (*DATA_FIELDS, "vocab_size", "head")
        and key in theirs
        and _to_tuples(theirs[key]) != _to_tuples(value)
    ]
    notes = (f"The model of these weights had other settings: {'; '.join(changed)}.",) if changed else ()
    return tensors, notes


def _read_origin(file: Path) -> Origin | None:
    """Return the origin stored with the weights. Their new layers are cleared, since these are trained now."""
    if _is_hugging_face(file):
        return Folder(file.parent).origin()
    document = (_read_metadata(file) or {}).get("origin")
    return dataclasses.replace(origin_from_json(document), new=()) if document else None


def _read_metadata(file: Path) -> dict[str, Any] | None:
    """Return the metadata that Cutaway wrote in the header of the file; None for files of other programs."""
    try:
        if file.name == INDEX:
            found = read_json(file)["metadata"]["cutaway"]
        else:
            with safe_open(file, framework="pt") as opened:
                written = (opened.metadata() or {}).get("cutaway")
            found = None if written is None else json.loads(written)["meta"]
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _reject_other(file: Path, meta: Mapping[str, Any], preset: Preset) -> None:
    """Raise FileError if a file of Cutaway holds no model, or one of another preset."""
    if "preset" not in meta:
        raise WeightsMismatchError(f"{file} is a training checkpoint of a run, not a model: give the run's folder.")
    if meta["preset"] != preset.name:
        raise WeightsMismatchError(
            f"{file} holds a {meta['preset']}, and this is a {preset.name}: give weights of a {preset.name}"
            f"{_backbone_hint(preset)}, or train a {meta['preset']}."
        )


def _backbone_hint(preset: Preset) -> str:
    if preset.network.built_on is None:
        return ""
    network = preset.network.built_on[1]
    names = [base.name for base in presets().values() if base.network is network]
    return f" or, for its backbone, of a {network.__name__} ({', '.join(names[:3])}, …)"


def sha256_of_weights(file: Path) -> str:
    """Return the SHA-256 of the file in hexadecimal; for a Hugging Face index, that of the files it lists."""
    digest = hashlib.sha256()
    for part in Folder(file.parent).files if _is_hugging_face(file) else (file,):
        with open_regular(part) as content:
            while block := content.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def _new_layers(
    own: Mapping[str, Tensor], found: Mapping[str, Tensor], ends: list[str], of_text: bool
) -> tuple[str, ...]:
    """Return the heads with another number of classes than in the file, and the auxiliary heads that the file lacks.

    For a text model, whose head may be of another kind, these are all head layers that the file lacks in that shape.
    """
    if of_text and HEAD in ends:
        unlike = [k for k in own if _belongs(k, (HEAD,)) and (k not in found or found[k].shape != own[k].shape)]
        layers = dict.fromkeys(k.rpartition(".")[0] for k in own if _belongs(k, (HEAD,)))
        other = [layer for layer in layers if any(k.rpartition(".")[0] == layer for k in unlike)]
        return (HEAD,) if len(other) == len(layers) and other else tuple(other)
    other_classes = [
        end
        for end in ends
        if any(
            key in found and found[key].shape != value.shape and found[key].shape[1:] == value.shape[1:]
            for key, value in own.items()
            if _belongs(key, (end,))
        )
    ]
    absent = {auxiliary_head(key) for key in own} - {auxiliary_head(key) for key in found} - {""}
    return (*other_classes, *sorted(absent))


def _reject_misfits(file: Path, model: nn.Module, wanted: Mapping[str, Tensor], offered: Mapping[str, Tensor]) -> None:
    """Raise FileError with the first missing, unexpected and misshapen tensor, or for other input channels."""
    problems = find_mismatches(wanted, offered)
    if not problems:
        return
    layers = [name for name, module in model.named_modules() if isinstance(module, LAYERS)]
    misshapen = [k for k in wanted if k in offered and offered[k].shape != wanted[k].shape]
    if wanted.keys() == offered.keys() and layers and misshapen == [f"{layers[0]}.weight"]:
        there, here = offered[misshapen[0]].shape, wanted[misshapen[0]].shape
        if there[0] == here[0] and there[2:] == here[2:]:
            _reject_other_inputs(file, layers[0], there, here)
    raise WeightsMismatchError(
        f"{file} does not fit the model: {'; '.join(problems)}. The head alone may differ, in its number of classes: "
        "give the model the settings (model.KEY=value) that it had, or weights of this model."
    )


def _reject_other_inputs(file: Path, layer: str, there: tuple[int, ...], here: tuple[int, ...]) -> None:
    if len(here) != 4:
        raise WeightsMismatchError(
            f"{file} learned from {there[1]} inputs an example, and this data has {here[1]}: its layer {layer} cannot "
            "be taken. Give data with the same columns, or train without weights."
        )
    colors = {1: "color=gray", 3: "color=rgb"}
    raise WeightsMismatchError(
        f"{file} learned from images with in_channels={there[1]}, and these have in_channels={here[1]}: its layer "
        f"{layer} cannot be taken. Give such images{', by ' + colors[there[1]] if there[1] in colors else ''}."
    )


def _loaded_note(
    file: Path,
    preset: Preset,
    own: Mapping[str, Tensor],
    wanted: Mapping[str, Tensor],
    found: Mapping[str, Tensor],
    new: tuple[str, ...],
) -> str:
    """Return a sentence on which tensors were loaded and which layers are new."""
    said = f"The {preset.name} begins with the weights of {file}: {len(wanted)} of its {len(own)} tensors"
    if not new:
        return f"{said}, the head too, since it has as many outputs."
    reasons = []
    for end in new:
        there, here = found.get(f"{end}.weight"), own.get(f"{end}.weight")
        of = "not in the file"
        if there is not None and here is not None:
            of = f"{len(there)} outputs there, {len(here)} here" if len(there) != len(here) else "of another task there"
        elif any(_belongs(key, (HEAD,)) and key not in own for key in found):
            of = "of another kind there"
        reasons.append(f"{end} ({of})")
    return f"{said}. New: {', '.join(reasons)}."


def _belongs(key: str, modules: tuple[str, ...]) -> bool:
    return any(key.startswith(f"{module}.") for module in modules)


def _to_tuples(value: Any) -> Any:
    """Return a config value as JSON stores it, with tuples in place of lists."""
    return tuple(map(_to_tuples, value)) if isinstance(value, list | tuple) else value
