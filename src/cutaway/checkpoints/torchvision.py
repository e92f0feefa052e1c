"""torchvision's checkpoints: reading them into our models and writing them back, tensor for tensor.

A checkpoint is a state dict, in a `.pth` file (a pickle, read only through PyTorch's `weights_only` reader, which makes
tensors and plain values and nothing else) or in a `.safetensors` file. Which network a file is for is not written in
it; the caller names the preset, and the shapes tell channels, classes, image size and whether auxiliary heads are
there. Which of our keys is which of torchvision's is in `names/`, as renamings of ours; reading turns them around.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ..core.errors import FileError, ModelError
from ..core.files import reject_address, replacing
from ..core.memory_budget import shaped
from ..models.registry import Preset, preset, presets
from .names import torchvision_key, torchvision_names
from .saving import put_weights, reject_not_finite

SUFFIXES = (".pth", ".pt", ".safetensors")
COUNTER = "num_batches_tracked"  # absent in files older than PyTorch 0.4.1
WRAPPERS = ("module.", "_orig_mod.")  # DataParallel and torch.compile put these before every key

# What a file tells by itself, or what no weight depends on: two networks that differ in these alone are the same here.
TOLD = ("in_channels", "num_classes", "image_size", "auxiliary", "dropout", "recompute")

# What files in circulation call some tensors, and what the same tensors are called since.
FORMER = (
    (r"(denselayer\d+\.(?:norm|conv))\.([12]\.)", r"\1\2"),  # DenseNet, of when names could have dots
    (r"(mlp\.)linear_1\.", r"\g<1>0."),  # ViT, before torchvision 0.14
    (r"(mlp\.)linear_2\.", r"\g<1>3."),
)


# torchvision builds these with transform_input=True, which no key shows, where it loads its own weights into them.
TRANSFORMED = ("googlenet", "inception-v3")


@dataclasses.dataclass(frozen=True)
class StateDict:
    """What a file holds: named tensors, on the CPU."""

    tensors: Mapping[str, Tensor]  # under the file's own names
    prefix: str = ""  # what a wrapper put before each of them
    notes: tuple[str, ...] = ()  # what a person should know of it


@dataclasses.dataclass(frozen=True)
class Loaded:
    """A model made from a checkpoint."""

    model: nn.Module
    preset: Preset
    key_map: Mapping[str, str]  # the checkpoint's key → ours
    notes: tuple[str, ...] = ()  # what a person should know of it


def read_checkpoint(path: str | os.PathLike[str], name: str) -> Loaded:
    """The model of the preset `name` with the weights of a torchvision checkpoint, in eval mode.

    Torch's random state is left as it was. Raises ModelError where torchvision has no such network, FileError where
    the file is no state dict, or not this network's: it names the first missing, unexpected and misshapen key.
    """
    found = _known(name)
    file = read_state_dict(path)
    config = _config_of(file, found)
    key_map, problems = _matched(file, found, config)
    if problems:
        raise FileError(f"{path} does not fit {name}: {'; '.join(problems)}. {_way_out(file, name)}")
    reject_not_finite({theirs: file.tensors[theirs] for theirs in key_map}, path)
    with torch.random.fork_rng(devices=[]):
        model = found.build(config)
    counters = {k: torch.tensor(0) for k in model.state_dict() if k.endswith(COUNTER) and k not in key_map.values()}
    put_weights(model, {ours: file.tensors[theirs] for theirs, ours in key_map.items()} | counters, path)
    notes = file.notes
    if counters:
        notes += (f"{len(counters)} counters {COUNTER}, which old files do not have, begin at 0; no output uses them.",)
    if name in TRANSFORMED:
        notes += (
            f"If these are the weights that torchvision publishes for {name}, images are normalised for them with mean "
            "0.5 and standard deviation 0.5 in every channel.",
        )
    return Loaded(model.eval(), found, key_map, notes)


def write_checkpoint(model: nn.Module, path: str | os.PathLike[str]) -> dict[str, str]:
    """Write a model as torchvision does, to a `.pth` or `.safetensors` file that its own network loads; gives the
    key map, ours → torchvision's. Raises ModelError where torchvision has no such network, FileError where the file
    cannot be written."""
    path = Path(path)
    name = preset_of(model)
    if path.suffix not in SUFFIXES:
        raise FileError(f"{path} has no suffix that says what to write: give {', '.join(SUFFIXES)}.")
    key_map = {ours: torchvision_key(name, ours) for ours in model.state_dict()}
    state = {key_map[ours]: v.detach().cpu().contiguous() for ours, v in model.state_dict().items()}
    with replacing(path) as temporary:
        try:
            if path.suffix == ".safetensors":
                save_file(state, temporary, {"format": "pt"})
            else:
                torch.save(state, temporary)
        except (SafetensorError, RuntimeError) as error:  # a full disk, for one
            raise OSError(str(error)) from error
    return key_map


def preset_of(model: nn.Module) -> str:
    """The preset whose weights torchvision's network of that name takes, whatever the model's channels, classes and
    image size. Raises ModelError where torchvision has no such network."""
    for name in torchvision_names():
        same = preset(name)
        if isinstance(model, same.module.Model):
            config: Any = model.config
            free = {field: getattr(config, field) for field in TOLD if hasattr(config, field)}
            if dataclasses.replace(same.config, **free) == config:
                return name
    raise ModelError(
        f"torchvision has no network like this {type(model).__name__}. It has: {', '.join(torchvision_names())}, with "
        "any number of input channels and classes and no other setting changed."
    )


# --- files --------------------------------------------------------------------------------------------------------


def read_state_dict(path: str | os.PathLike[str]) -> StateDict:
    """The named tensors of a `.pth` or `.safetensors` file, on the CPU.

    A state dict that is one entry of what the file holds is taken out, and what a wrapper put before the keys is set
    apart; both are said in `notes`. Raises FileError where there is no state dict, or more than one.
    """
    found = _read(Path(path))
    notes: tuple[str, ...] = ()
    if not _is_state_dict(found):
        entries = [k for k, v in found.items() if _is_state_dict(v)] if isinstance(found, Mapping) else []
        if len(entries) != 1:
            several = f", and those under {' and '.join(map(str, entries))} could each be it" if entries else ""
            raise FileError(
                f"{path} is not a state dict, a table of named tensors: it holds {_described(found)}{several}. "
                "Save the model's state_dict() alone."
            )
        notes = (f"The weights are those under {entries[0]!r}; what the file has beside them is not taken over.",)
        found = found[entries[0]]
    prefix = _wrapping(found)
    if prefix:
        notes += (f"Every key begins with {prefix!r}, which a wrapper put there; it is left out.",)
    return StateDict(dict(found), prefix, notes)


def _read(path: Path) -> Any:
    if not path.is_file():
        reject_address(path)
        raise FileError(f"There is no file {path}.")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a file can be broken in any way, and each reader has its own words for it
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if "Weights only load failed" in reason:
            reason = "it holds more than tensors and plain values, or is cut short; what it holds was not run"
        raise FileError(f"{path} is not a checkpoint that can be read: {reason}.") from error


def _is_state_dict(found: Any) -> bool:
    return (
        isinstance(found, Mapping)
        and len(found) > 0
        and all(isinstance(k, str) and isinstance(v, Tensor) for k, v in found.items())
    )


def _described(found: Any) -> str:
    if isinstance(found, Mapping):
        return f"the keys {', '.join(map(str, list(found)[:5]))}" if found else "nothing"
    return f"one {type(found).__name__}"


def _wrapping(keys: Mapping[str, Any]) -> str:
    """What wrappers put before every key; several can stand around each other."""
    prefix = ""
    while more := next((w for w in WRAPPERS if all(k.startswith(prefix + w) for k in keys)), ""):
        prefix += more
    return prefix


# --- whose tensors are whose --------------------------------------------------------------------------------------


def _matched(file: StateDict, found: Preset, config: Any) -> tuple[dict[str, str], list[str]]:
    """Which key of the file is which of ours, and what is wrong, in the file's own names: nothing where it fits."""
    shapes = _shapes(found, config)
    key_map = {theirs: ours for theirs, ours in _ours(file, found, config).items() if ours in shapes}
    taken = set(key_map.values())
    missing = [torchvision_key(found.name, k) for k in shapes if k not in taken and not k.endswith(COUNTER)]
    unexpected = [k for k in file.tensors if k not in key_map]
    misshapen = [k for k, ours in key_map.items() if file.tensors[k].shape != shapes[ours]]
    problems = []
    if missing:
        said = f"the first {file.prefix}{missing[0]}"
        problems.append(f"{len(missing)} of the network's {len(shapes)} tensors are missing, {said}")
    if unexpected:
        problems.append(f"{len(unexpected)} are not the network's, the first {unexpected[0]}")
    if misshapen:
        first = misshapen[0]
        there, here = tuple(file.tensors[first].shape), tuple(shapes[key_map[first]])
        problems.append(f"{len(misshapen)} have another shape, the first {first}: {there} where the network has {here}")
    return key_map, problems


def _ours(file: StateDict, found: Preset, config: Any) -> dict[str, str]:
    """The file's keys → ours, for those that the network has."""
    inverse = {torchvision_key(found.name, ours): ours for ours in _shapes(found, config)}
    renamed: dict[str, str] = {}
    for key in file.tensors:
        name = key.removeprefix(file.prefix)
        if name not in inverse:
            for pattern, replacement in FORMER:
                name = re.sub(pattern, replacement, name)
        if name in inverse and (name == key.removeprefix(file.prefix) or file.prefix + name not in file.tensors):
            renamed[key] = inverse[name]
    return renamed


def _config_of(file: StateDict, found: Preset) -> Any:
    """The preset's config with what the file tells. What it does not tell is left as it is: `_matched` says why."""
    config: Any = found.config
    if hasattr(config, "auxiliary"):
        with_heads, without = (dataclasses.replace(config, auxiliary=there) for there in (True, False))
        heads = _shapes(found, with_heads).keys() - _shapes(found, without).keys()
        there = not heads.isdisjoint(_ours(file, found, with_heads).values())
        config = with_heads if there else without
    sizes = {ours: tuple(file.tensors[theirs].shape) for theirs, ours in _ours(file, found, config).items()}
    own = _shapes(found, dataclasses.replace(config, auxiliary=False) if hasattr(config, "auxiliary") else config)
    told: dict[str, int] = {}
    stem = sizes.get(next(k for k, shape in own.items() if len(shape) >= 4), ())
    dense = [k for k, shape in own.items() if len(shape) == 2]
    convolutions = [k for k, shape in own.items() if len(shape) == 4]
    head = sizes.get(dense[-1] if dense else "head.weight" if "head.weight" in own else convolutions[-1], ())
    if len(stem) >= 4:  # of a convolution, 5 over frames too
        told["in_channels"] = stem[1]
    if len(head) == (2 if dense else 4):
        told["num_classes"] = head[0]
    if hasattr(config, "image_size"):
        told |= _image_size(sizes, found, config)
    try:
        return dataclasses.replace(config, **told)
    except ModelError:  # no channels, for one
        return config


def _image_size(sizes: Mapping[str, tuple[int, ...]], found: Preset, config: Any) -> dict[str, int]:
    """The image size that a table of positions is for: it has a row for each patch, and the same few beside them."""
    step = config.size_step
    own = _shapes(found, config)
    larger = _shapes(found, dataclasses.replace(config, image_size=config.image_size + step))
    table = next(k for k, shape in own.items() if shape != larger[k])
    beside = own[table][1] - math.ceil(config.image_size / step) ** 2
    given = sizes.get(table, ())
    patches = given[1] - beside if len(given) == 3 else 0
    side = math.isqrt(max(patches, 0))
    return {"image_size": side * step} if patches > 0 and side**2 == patches else {}


@functools.cache
def _shapes(found: Preset, config: Any) -> Mapping[str, torch.Size]:
    """The network's tensors by our names, at no cost in memory."""
    return {k: v.shape for k, v in shaped(found, config).state_dict().items()}


def _way_out(file: StateDict, name: str) -> str:
    likely = likely_preset(file)
    if likely:
        return f"Its tensors are those of {likely}: read it as {likely}."
    if {k.removeprefix(file.prefix) for k in file.tensors} == set(_shapes(preset(name), preset(name).config)):
        return "Its names are Cutaway's own: give the folder that it stands in."
    return "It was written by another model, or not by torchvision, or is not whole."


def likely_preset(file: StateDict, network: type[nn.Module] | None = None) -> str | None:
    """The preset that the file's tensors fit, names and shapes, of those of one `network` or of all; None if there is
    none."""
    for name in torchvision_names():
        found = preset(name)
        if network in (None, found.network) and not _matched(file, found, _config_of(file, found))[1]:
            return name
    return None


def _known(name: str) -> Preset:
    found = preset(name)
    if name not in torchvision_names():
        near = name.removesuffix("-v1")
        raise ModelError(
            f"torchvision has no checkpoint of {name}. "
            + (
                f"Its weights are those of {near}, the network with other strides: read them as {near}."
                if near in torchvision_names()
                else f"It has them of: {', '.join(n for n in presets() if n in torchvision_names())}."
            )
        )
    return found
