"""Checkpoints from one format to another, for `cutaway convert`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import FileError, ModelError
from ..models.registry import preset
from ..models.saving import CONFIG, load_model, save_model
from .torchvision import read_checkpoint, write_checkpoint


@dataclass(frozen=True)
class Conversion:
    """What was done."""

    preset: str
    key_map: Mapping[str, str]  # a key in IN → its key in OUT
    notes: tuple[str, ...] = ()


def convert(source: Path, target: Path, to: str, name: str | None = None) -> Conversion:
    """Read `source` (a model's or run's folder, or torchvision's file) and write `target` in the format `to`.

    `name` is the preset, which torchvision's files do not say. Raises FileError where `target` exists, or `source` is
    not what it should be, and ModelError where the other format has no such network.
    """
    if to == "huggingface":
        raise ModelError("No model here has a Hugging Face form yet: convert --to torchvision or --to cutaway.")
    if target.exists():
        raise FileError(f"{target} exists and is not written over. Give another name, or move it away.")
    if not source.exists():
        raise FileError(f"There is no file or folder {source}.")
    folder = _model_folder(source)
    if to == "torchvision":
        if folder is None:
            raise FileError(f"{source} is a file already, not one of Cutaway's folders, which is what becomes one.")
        model, description = load_model(folder)
        _agree(folder, description["preset"], name)
        return Conversion(description["preset"], write_checkpoint(model, target))
    if folder is not None:
        raise FileError(f"{source} is one of Cutaway's folders already. To copy it, copy the folder.")
    if name is None:
        raise FileError(f"{source} does not say which network it is for: add --model NAME, as in --model resnet18.")
    loaded = read_checkpoint(source, name)
    save_model(loaded.model, target, preset(name))
    return Conversion(name, loaded.key_map, loaded.notes)


def _model_folder(source: Path) -> Path | None:
    """The folder that holds the model, which can be a run's; None if `source` is a file."""
    if not source.is_dir():
        return None
    return source / "model" if (source / "model" / CONFIG).is_file() else source


def _agree(folder: Path, written: str, name: str | None) -> None:
    if name is not None and name != written:
        raise FileError(f"{folder} holds a {written}, not a {name}: leave --model out.")
