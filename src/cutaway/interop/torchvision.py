"""torchvision's checkpoints: reading them into our models and writing them back, key for key.

A checkpoint is a state dict, in a `.pth` file (a pickle, read only through PyTorch's `weights_only` reader, which makes
tensors and plain values and nothing else) or in a `.safetensors` file. Which network a file is for is not written in
it; the caller names the preset, and the shapes tell channels and classes.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ..errors import FileError, ModelError
from ..files import replacing
from ..models.registry import Preset, preset, presets
from ..models.saving import put_weights

# Presets that are torchvision's network, weight for weight under the same names. Not resnet50-v1 and its like:
# torchvision's weights would fit them and mean something else.
SAME_NAMES = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")
SUFFIXES = (".pth", ".pt", ".safetensors")
COUNTER = "num_batches_tracked"  # absent in files older than PyTorch 0.4.1


@dataclasses.dataclass(frozen=True)
class Loaded:
    """A model made from a checkpoint."""

    model: nn.Module
    preset: Preset
    key_map: Mapping[str, str]  # the checkpoint's key → ours
    notes: tuple[str, ...] = ()  # what a person should know of it


def read_checkpoint(path: str | os.PathLike[str], name: str) -> Loaded:
    """The model of the preset `name` with the weights of a torchvision checkpoint, in eval mode.

    Raises ModelError where torchvision has no such network, FileError where the file is no state dict, or not this
    network's: it names the first missing, unexpected and misshapen key.
    """
    found = _known(name)
    tensors = read_state_dict(path)
    try:
        config = dataclasses.replace(
            found.config,
            in_channels=tensors["conv1.weight"].shape[1],
            num_classes=tensors["fc.weight"].shape[0],
        )
    except (KeyError, IndexError):
        config = found.config  # what is wrong is named below
    model = found.build(config)
    counters = {k: torch.tensor(0) for k in model.state_dict() if k.endswith(COUNTER) and k not in tensors}
    put_weights(model, tensors | counters, path)
    notes: tuple[str, ...] = ()
    if counters:
        notes = (f"{len(counters)} counters {COUNTER}, which old files do not have, begin at 0; no output uses them.",)
    return Loaded(model.eval(), found, {k: k for k in tensors}, notes)


def write_checkpoint(model: nn.Module, path: str | os.PathLike[str]) -> dict[str, str]:
    """Write a model as torchvision does, to a `.pth` or `.safetensors` file that its own network loads; gives the
    key map, ours → torchvision's. Raises ModelError where torchvision has no such network, FileError where the file
    cannot be written."""
    path = Path(path)
    torchvision_name(model)
    if path.suffix not in SUFFIXES:
        raise FileError(f"{path} has no suffix that says what to write: give {', '.join(SUFFIXES)}.")
    state = {k: v.detach().cpu().contiguous() for k, v in model.state_dict().items()}
    with replacing(path) as temporary:
        try:
            if path.suffix == ".safetensors":
                save_file(state, temporary, {"format": "pt"})
            else:
                torch.save(state, temporary)
        except (SafetensorError, RuntimeError) as error:  # a full disk, for one
            raise OSError(str(error)) from error
    return {k: k for k in state}


def torchvision_name(model: nn.Module) -> str:
    """Which of torchvision's networks a model is, whatever its channels and classes. Raises ModelError if none."""
    config: Any = getattr(model, "config", None)
    for name in SAME_NAMES:
        same = preset(name)
        if isinstance(model, same.module.Model):
            free = {"in_channels": config.in_channels, "num_classes": config.num_classes}
            if dataclasses.replace(same.config, **free) == config:
                return name
    raise ModelError(
        f"torchvision has no network like this {type(model).__name__}. It has: {', '.join(SAME_NAMES)}, with any "
        "number of input channels and classes and no other setting changed."
    )


def read_state_dict(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The named tensors of a `.pth` or `.safetensors` file, on the CPU. Raises FileError where it is no such file."""
    path = Path(path)
    if not path.is_file():
        raise FileError(f"There is no file {path}.")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a file can be broken in any way, and each reader has its own words for it
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if "Weights only load failed" in reason:
            reason = "it holds more than tensors and plain values, or is cut short; what it holds was not run"
        raise FileError(f"{path} is not a checkpoint that can be read: {reason}.") from error
    if not isinstance(found, Mapping) or not found or not all(isinstance(v, Tensor) for v in found.values()):
        raise FileError(
            f"{path} is not a state dict, a table of named tensors: it holds {_described(found)}. "
            "Save the model's state_dict() alone."
        )
    return dict(found)


def _described(found: Any) -> str:
    if isinstance(found, Mapping):
        return f"the keys {', '.join(map(str, list(found)[:5]))}" if found else "nothing"
    return f"one {type(found).__name__}"


def _known(name: str) -> Preset:
    found = preset(name)
    if name not in SAME_NAMES:
        near = name.removesuffix("-v1")
        raise ModelError(
            f"torchvision has no checkpoint of {name}. "
            + (
                f"Its weights are those of {near}, the network with other strides: read them as {near}."
                if near in SAME_NAMES
                else f"It has them of: {', '.join(n for n in presets() if n in SAME_NAMES)}."
            )
        )
    return found
