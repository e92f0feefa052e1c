"""Conversion of checkpoints between formats (`cutaway convert`), and loading of models from them (`cutaway.load`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from ..core.errors import (
    AlreadyExistsError,
    FileError,
    ModelError,
    NotARunError,
    WeightsMismatchError,
)
from ..core.files import (
    exists,
    missing_file_error,
    read_json,
    reject_overwriting,
    require_regular_file,
    write_text,
)
from ..core.spec import Classes, ImageSpec, PairSpec, Tokens, Value
from ..data.dataset_base import Preprocessing
from ..data.modalities import read_preprocessing
from ..models.registry import preset
from ..nn.low_precision import reject_integers
from .diffusers import is_diffusers, read_diffusers, write_diffusers
from .hub import resolve_path
from .huggingface.folders import is_folder, read_folder, write_folder
from .huggingface.lora_adapters import merge_adapter
from .huggingface.tokenizer_files import Vocabulary, read_vocabulary, to_vocabulary, vocabulary_for_targets
from .match_config import get_origin
from .saving import CONFIG, load_model, save_model
from .torchvision import likely_preset, read_checkpoint, read_state_dict, write_checkpoint
from .word_vectors import Vectors

PREPROCESSING = "preprocessing.json"
FOLDERS = ("cutaway", "huggingface", "diffusers")  # formats whose checkpoints are folders
PROBLEMS: Mapping[type, str] = {Classes: "single_label_classification", Value: "regression"}  # transformers' names


@dataclass(frozen=True)
class Conversion:
    """Result of a conversion."""

    preset: str
    key_map: Mapping[str, str]  # a key in IN → its key in OUT
    notes: tuple[str, ...] = ()


def convert(
    source: Path,
    target: Path,
    to: str,
    name: str | None = None,
    overwrite: bool = False,
    adapter: Path | None = None,
) -> Conversion:
    """Convert a checkpoint.

    Args:
        source: A model's or run's folder, a Hugging Face folder, hub:ORG/NAME, a diffusers folder, or a torchvision
            file.
        target: File or folder to write.
        to: Format of `target`.
        name: Preset. Torchvision files do not contain it.
        overwrite: Whether an existing file is replaced. A folder never is.
        adapter: PEFT adapter that is merged into the weights of a Hugging Face folder, with `to="cutaway"`.

    Returns:
        The preset, the key map and notes.

    Raises:
        FileError: If `target` exists, or `source` is not valid.
        ModelError: If the other format has no such network.
    """
    if target.is_dir() or (target.exists() and to in FOLDERS):
        raise AlreadyExistsError(f"{target} already exists. Choose another name, or move it away.")
    reject_overwriting(target, [source], overwrite)
    source = resolve_path(source)
    reject_absent(source)
    if adapter is not None and (to != "cutaway" or not source.is_dir()):
        raise FileError(
            f"--adapter {adapter} is for a Hugging Face folder that is converted --to cutaway. Convert that first; the "
            "folder that comes of it has every other form."
        )
    if to == "word2vec":
        return _to_word2vec(source, target)
    if to == "cutaway":
        return _to_cutaway(source, target, name, adapter)
    if not source.is_dir():
        raise AlreadyExistsError(
            f"{source} is a file already, not one of Cutaway's folders, which is what becomes one."
        )
    if to == "huggingface":
        return _to_huggingface(source, target, name)
    if to == "diffusers":
        return _to_diffusers(source, target, name)
    model, written, notes = _from_folder(source, name)
    reject_integers(model, source)
    return Conversion(written, write_checkpoint(model, target), notes)


def _to_cutaway(source: Path, target: Path, name: str | None, adapter: Path | None = None) -> Conversion:
    """Convert a checkpoint to a model's folder.

    The source is a Hugging Face folder, whose tokenizer is kept, a diffusers folder or a torchvision file.
    """
    if is_diffusers(source):
        theirs = read_diffusers(source, name)
        save_model(theirs.model, target, theirs.preset)
        return Conversion(theirs.preset.name, theirs.key_map, theirs.notes)
    if source.is_dir():
        if _is_ours(source):
            raise AlreadyExistsError(f"{source} is one of Cutaway's folders already. To copy it, copy the folder.")
        found = read_folder(source, name)
        notes = found.notes
        if adapter is not None:
            changed = merge_adapter(found.model, found.preset.name, adapter)
            notes = (*notes, f"What {adapter} has learned is added to the weights of {changed} layers.")
        vocabulary = read_vocabulary(source)
        save_model(found.model, target, found.preset)
        for file, text in vocabulary.files.items() if vocabulary else ():
            write_text(target / file, text)
        return Conversion(found.preset.name, found.key_map, notes)
    if name is None:
        likely = likely_preset(read_state_dict(source))
        said = f"; its tensors are {likely}'s: add --model {likely}." if likely else ": add --model NAME."
        raise FileError(f"{source} does not say which network it is for{said}")
    loaded = read_checkpoint(source, name)
    save_model(loaded.model, target, preset(name))
    return Conversion(name, loaded.key_map, loaded.notes)


def _to_huggingface(source: Path, target: Path, name: str | None) -> Conversion:
    """Convert a run's or model's folder to a Hugging Face folder, with its tokenizer if it has that format."""
    if is_folder(source):
        raise AlreadyExistsError(f"{source} is a Hugging Face folder already. To copy it, copy the folder.")
    model, written, said = _from_folder(source, name)
    reject_integers(model, source)
    folder = _model_folder(source)
    vocabulary = read_vocabulary(folder)
    if vocabulary and get_origin(model):  # the original folder defines the special tokens
        vocabulary = Vocabulary(vocabulary.files, {})
    labels: tuple[str, ...] = ()
    problem: str | None = None
    notes: tuple[str, ...] = ()
    if (folder / PREPROCESSING).is_file():
        preprocessing = read_preprocessing(folder / PREPROCESSING)
        labels = getattr(preprocessing.spec.target, "names", ())
        problem = PROBLEMS.get(type(preprocessing.spec.target))
        vocabulary, notes = _vocabulary(preprocessing, model)
    return Conversion(written, write_folder(model, written, target, vocabulary, labels, problem), (*said, *notes))


def _to_diffusers(source: Path, target: Path, name: str | None) -> Conversion:
    """Convert a run's or model's folder to a diffusers folder."""
    if is_diffusers(source):
        raise AlreadyExistsError(f"{source} is a folder of diffusers already. To copy it, copy the folder.")
    model, written, notes = _from_folder(source, name)
    reject_integers(model, source)
    file, sides = _model_folder(source) / PREPROCESSING, None
    if file.is_file() and isinstance(spec := read_preprocessing(file).spec, ImageSpec):
        sides = (spec.height, spec.width)
    return Conversion(written, write_diffusers(model, target, sides), notes)


def _vocabulary(preprocessing: Preprocessing, model: nn.Module) -> tuple[Vocabulary | None, tuple[str, ...]]:
    """Return the tokenizer of a run in Hugging Face's format, and a note if it does not have that format."""
    spec, longest = preprocessing.spec, getattr(model.config, "context_length", None)
    found: Vocabulary | None
    if isinstance(spec.target, Tokens):
        known: Any = preprocessing
        # Pairs have one tokenizer for both sides.
        tokenizer = known.source_tokenizer if isinstance(spec, PairSpec) else known.target_tokenizer
        found = vocabulary_for_targets(tokenizer, spec.target, longest)
    else:
        tokenizer = getattr(preprocessing, "tokenizer", None)
        found = to_vocabulary(tokenizer, spec, longest) if tokenizer is not None else None
    if tokenizer is None or (found and found.files):
        return found, ()
    where = "" if not isinstance(spec.target, Tokens) else " of pairs" if isinstance(spec, PairSpec) else " of captions"
    said = f"No tokenizer.json is written: a tokenizer of {tokenizer.kind}{where} has no form there."
    return found, (f"{said} Token ids are those of {PREPROCESSING}.",)


def _to_word2vec(source: Path, target: Path) -> Conversion:
    """Write the word vectors of a run.

    Raises FileError if `source` is not a run, ModelError if it has no word vectors.
    """
    if not (source / "model" / CONFIG).is_file():
        raise NotARunError(f"{source} is not a run, whose words and vectors could be written: give a run's folder.")
    model, name, _ = _from_folder(source, None)
    preprocessing = read_preprocessing(source / "model" / PREPROCESSING)
    embedding, tokenizer = getattr(model, "embedding", None), getattr(preprocessing, "tokenizer", None)
    if not isinstance(embedding, nn.Embedding) or tokenizer is None:
        raise ModelError(f"{source} is a run of {name}, which has no vectors of words.")
    vectors = Vectors.from_embedding(embedding, tokenizer.tokens)
    vectors.save(target)
    return Conversion(name, {"embedding.weight": f"{len(vectors):,} words, {vectors.matrix.shape[1]} numbers each"})


def open_model(source: Path, name: str | None) -> tuple[nn.Module, str, tuple[str, ...]]:
    """Load a model in eval mode.

    Args:
        source: A run's or model's folder, a Hugging Face or diffusers folder, or a torchvision file.
        name: Preset. Only a torchvision file needs it.

    Returns:
        The model, its preset and notes.

    Raises:
        FileError: If `source` is none of these.
    """
    reject_absent(source)
    if name is not None:
        preset(name)  # an unknown name is reported before any problem of the file
    if source.is_dir() or name is None:
        return _from_folder(source, name)
    loaded = read_checkpoint(source, name)
    return loaded.model, preset(name).name, loaded.notes


def reject_absent(source: Path) -> None:
    """Raise FileError if there is no file or folder of that name."""
    if not exists(source):
        raise missing_file_error(source)
    if not source.is_dir():
        require_regular_file(source)


def _from_folder(source: Path, name: str | None) -> tuple[nn.Module, str, tuple[str, ...]]:
    """Return the model of a folder, its preset, which must be `name` if given, and notes.

    The folder is a model's, a run's, a Hugging Face or a diffusers folder.
    """
    if is_folder(source):
        found = read_folder(source, name)
        return found.model, found.preset.name, found.notes
    if is_diffusers(source):
        loaded = read_diffusers(source, name)
        return loaded.model, loaded.preset.name, loaded.notes
    folder = _model_folder(source)
    model, description = load_model(folder)
    written: str = description["preset"]
    if name is not None and name != written:
        raise WeightsMismatchError(f"{folder} holds a {written}, not a {name}: ask for {written}.")
    origin = get_origin(model)
    return model, written, origin.notes if origin else ()


def _model_folder(source: Path) -> Path:
    """Return the folder of the model, which is a subfolder of a run."""
    return source / "model" if (source / "model" / CONFIG).is_file() else source


def _is_ours(source: Path) -> bool:
    """Return whether a folder is a run's or a model's in Cutaway's format."""
    if (source / "run.json").is_file() or (source / "model" / CONFIG).is_file():
        return True
    said = read_json(source / CONFIG) if (source / CONFIG).is_file() else None
    return isinstance(said, dict) and "preset" in said and "model_type" not in said
