"""Checkpoints from one format to another, for `cutaway convert`, and models out of either, for `cutaway.load`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from ..data.preprocessing import preprocessing_from_json
from ..errors import FileError, ModelError
from ..files import read_json
from ..models.registry import preset
from ..models.saving import CONFIG, load_model, save_model
from .torchvision import likely_preset, read_checkpoint, read_state_dict, write_checkpoint
from .word_vectors import Vectors


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
    refuse_absent(source)
    if to == "word2vec":
        return _to_word2vec(source, target)
    if to == "torchvision":
        if not source.is_dir():
            raise FileError(f"{source} is a file already, not one of Cutaway's folders, which is what becomes one.")
        model, written = _from_folder(source, name)
        return Conversion(written, write_checkpoint(model, target))
    if source.is_dir():
        raise FileError(f"{source} is one of Cutaway's folders already. To copy it, copy the folder.")
    if name is None:
        likely = likely_preset(read_state_dict(source))
        found = f"; its tensors are {likely}'s: add --model {likely}." if likely else ": add --model NAME."
        raise FileError(f"{source} does not say which network it is for{found}")
    loaded = read_checkpoint(source, name)
    save_model(loaded.model, target, preset(name))
    return Conversion(name, loaded.key_map, loaded.notes)


def _to_word2vec(source: Path, target: Path) -> Conversion:
    """Write the vectors of a run's words. Raises FileError where `source` is no run, ModelError where it has none."""
    if not (source / "model" / CONFIG).is_file():
        raise FileError(f"{source} is not a run, whose words and vectors could be written: give a run's folder.")
    model, name = _from_folder(source, None)
    preprocessing = preprocessing_from_json(read_json(source / "model" / "preprocessing.json"))
    embedding, tokenizer = getattr(model, "embedding", None), getattr(preprocessing, "tokenizer", None)
    if not isinstance(embedding, nn.Embedding) or tokenizer is None:
        raise ModelError(f"{source} is a run of {name}, which has no vectors of words.")
    vectors = Vectors.of(embedding, tokenizer.tokens)
    vectors.save(target)
    return Conversion(name, {"embedding.weight": f"{len(vectors):,} words, {vectors.matrix.shape[1]} numbers each"})


def open_model(source: Path, name: str) -> tuple[nn.Module, tuple[str, ...]]:
    """The model of the preset `name`, in eval mode, from a run's or model's folder or from torchvision's file, and
    what a person should know of it. Raises FileError where `source` is not that."""
    refuse_absent(source)
    preset(name)  # a name that does not exist is refused as such, whatever the file is
    if source.is_dir():
        return _from_folder(source, name)[0], ()
    loaded = read_checkpoint(source, name)
    return loaded.model, loaded.notes


def refuse_absent(source: Path) -> None:
    """Raise FileError where there is nothing of that name."""
    if not source.exists():
        raise FileError(f"There is no file or folder {source}.")


def _from_folder(source: Path, name: str | None) -> tuple[nn.Module, str]:
    """The model in a model's or a run's folder, and its preset, which must be `name` where one is given."""
    folder = source / "model" if (source / "model" / CONFIG).is_file() else source
    model, description = load_model(folder)
    written: str = description["preset"]
    if name is not None and name != written:
        raise FileError(f"{folder} holds a {written}, not a {name}: ask for {written}.")
    return model, written
