"""Checkpoints from one format to another, for `cutaway convert`, and models out of either, for `cutaway.load`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from ..data.preprocessing import preprocessing_from_json
from ..data.sets import Preprocessing
from ..errors import FileError, ModelError
from ..files import exists, read_json, reject_address, reject_irregular, reject_overwriting, write_text
from ..models.origin import origin_of
from ..models.registry import preset
from ..models.saving import CONFIG, load_model, save_model
from ..spec import Classes, PairSpec, Value
from .hub import here
from .huggingface.folders import read_folder, write_folder
from .huggingface.reading import is_folder
from .huggingface.vocabulary import Vocabulary, of_folder, of_pairs, of_tokenizer
from .torchvision import likely_preset, read_checkpoint, read_state_dict, write_checkpoint
from .word_vectors import Vectors

PREPROCESSING = "preprocessing.json"
PROBLEMS: Mapping[type, str] = {Classes: "single_label_classification", Value: "regression"}  # transformers' names


@dataclass(frozen=True)
class Conversion:
    """What was done."""

    preset: str
    key_map: Mapping[str, str]  # a key in IN → its key in OUT
    notes: tuple[str, ...] = ()


def convert(source: Path, target: Path, to: str, name: str | None = None, overwrite: bool = False) -> Conversion:
    """Read `source` (a model's or run's folder, a Hugging Face folder, hub:ORG/NAME, or torchvision's file) and write
    `target` in the format `to`.

    `name` is the preset, which torchvision's files do not say. Raises FileError where `target` exists (with `overwrite`
    a file may, a folder never), or `source` is not what it should be, and ModelError where the other format has no such
    network.
    """
    if target.is_dir() or (target.exists() and to in ("cutaway", "huggingface")):
        raise FileError(f"{target} exists and is not written over. Give another name, or move it away.")
    reject_overwriting(target, [source], overwrite)
    source = here(source)
    reject_absent(source)
    if to == "word2vec":
        return _to_word2vec(source, target)
    if to == "cutaway":
        return _to_cutaway(source, target, name)
    if not source.is_dir():
        raise FileError(f"{source} is a file already, not one of Cutaway's folders, which is what becomes one.")
    if to == "huggingface":
        return _to_huggingface(source, target, name)
    model, written, notes = _from_folder(source, name)
    return Conversion(written, write_checkpoint(model, target), notes)


def _to_cutaway(source: Path, target: Path, name: str | None) -> Conversion:
    """Make a model's folder of a Hugging Face folder, its tokenizer beside it, or of torchvision's file."""
    if source.is_dir():
        if _is_ours(source):
            raise FileError(f"{source} is one of Cutaway's folders already. To copy it, copy the folder.")
        found = read_folder(source, name)
        vocabulary = of_folder(source)
        save_model(found.model, target, found.preset)
        for file, text in vocabulary.files.items() if vocabulary else ():
            write_text(target / file, text)
        return Conversion(found.preset.name, found.key_map, found.notes)
    if name is None:
        likely = likely_preset(read_state_dict(source))
        said = f"; its tensors are {likely}'s: add --model {likely}." if likely else ": add --model NAME."
        raise FileError(f"{source} does not say which network it is for{said}")
    loaded = read_checkpoint(source, name)
    save_model(loaded.model, target, preset(name))
    return Conversion(name, loaded.key_map, loaded.notes)


def _to_huggingface(source: Path, target: Path, name: str | None) -> Conversion:
    """Make a Hugging Face folder of a run's or model's folder, with its tokenizer where that has a form there."""
    if is_folder(source):
        raise FileError(f"{source} is a Hugging Face folder already. To copy it, copy the folder.")
    model, written, said = _from_folder(source, name)
    folder = _model_folder(source)
    vocabulary = of_folder(folder)
    if vocabulary and origin_of(model):  # the folder that it came from said what its tokens are
        vocabulary = Vocabulary(vocabulary.files, {})
    labels: tuple[str, ...] = ()
    problem: str | None = None
    notes: tuple[str, ...] = ()
    if (folder / PREPROCESSING).is_file():
        preprocessing = preprocessing_from_json(read_json(folder / PREPROCESSING))
        labels = getattr(preprocessing.spec.target, "names", ())
        problem = PROBLEMS.get(type(preprocessing.spec.target))
        vocabulary, notes = _vocabulary(preprocessing, model)
    return Conversion(written, write_folder(model, written, target, vocabulary, labels, problem), (*said, *notes))


def _vocabulary(preprocessing: Preprocessing, model: nn.Module) -> tuple[Vocabulary | None, tuple[str, ...]]:
    """The tokenizer of a run as Hugging Face has it, and what is to be said where it has no form there."""
    spec, longest = preprocessing.spec, getattr(model.config, "context_length", None)
    found: Vocabulary | None
    if isinstance(spec, PairSpec):
        tokenizer = preprocessing.source_tokenizer  # type: ignore[attr-defined]  # that of both sides
        found = of_pairs(tokenizer, spec, longest)
    else:
        tokenizer = getattr(preprocessing, "tokenizer", None)
        found = of_tokenizer(tokenizer, spec, longest) if tokenizer is not None else None
    if tokenizer is None or (found and found.files):
        return found, ()
    where = " of pairs" if isinstance(spec, PairSpec) else ""
    said = f"No tokenizer.json is written: a tokenizer of {tokenizer.kind}{where} has no form there."
    return found, (f"{said} Token ids are those of {PREPROCESSING}.",)


def _to_word2vec(source: Path, target: Path) -> Conversion:
    """Write the vectors of a run's words. Raises FileError where `source` is no run, ModelError where it has none."""
    if not (source / "model" / CONFIG).is_file():
        raise FileError(f"{source} is not a run, whose words and vectors could be written: give a run's folder.")
    model, name, _ = _from_folder(source, None)
    preprocessing = preprocessing_from_json(read_json(source / "model" / PREPROCESSING))
    embedding, tokenizer = getattr(model, "embedding", None), getattr(preprocessing, "tokenizer", None)
    if not isinstance(embedding, nn.Embedding) or tokenizer is None:
        raise ModelError(f"{source} is a run of {name}, which has no vectors of words.")
    vectors = Vectors.of(embedding, tokenizer.tokens)
    vectors.save(target)
    return Conversion(name, {"embedding.weight": f"{len(vectors):,} words, {vectors.matrix.shape[1]} numbers each"})


def open_model(source: Path, name: str | None) -> tuple[nn.Module, str, tuple[str, ...]]:
    """The model of the preset `name`, in eval mode, from a run's or model's folder, a Hugging Face folder, which needs
    no name, or torchvision's file; its preset, and what a person should know of it. Raises FileError where `source` is
    not that."""
    reject_absent(source)
    if name is not None:
        preset(name)  # a name that does not exist is rejected as such, whatever the file is
    if source.is_dir() or name is None:
        return _from_folder(source, name)
    loaded = read_checkpoint(source, name)
    return loaded.model, preset(name).name, loaded.notes


def reject_absent(source: Path) -> None:
    """Raise FileError where there is nothing of that name."""
    if not exists(source):
        reject_address(source)
        raise FileError(f"There is no file or folder {source}.")
    if not source.is_dir():
        reject_irregular(source)


def _from_folder(source: Path, name: str | None) -> tuple[nn.Module, str, tuple[str, ...]]:
    """The model in a model's, a run's or a Hugging Face folder, its preset, which must be `name` where one is given,
    and what a person should know of it."""
    if is_folder(source):
        found = read_folder(source, name)
        return found.model, found.preset.name, found.notes
    folder = _model_folder(source)
    model, description = load_model(folder)
    written: str = description["preset"]
    if name is not None and name != written:
        raise FileError(f"{folder} holds a {written}, not a {name}: ask for {written}.")
    origin = origin_of(model)
    return model, written, origin.notes if origin else ()


def _model_folder(source: Path) -> Path:
    """The folder of the model itself: that of a run stands in it."""
    return source / "model" if (source / "model" / CONFIG).is_file() else source


def _is_ours(source: Path) -> bool:
    """Whether a folder is a run's, or a model's as it is saved here."""
    if (source / "run.json").is_file() or (source / "model" / CONFIG).is_file():
        return True
    return (source / CONFIG).is_file() and not is_folder(source) and "preset" in read_json(source / CONFIG)
