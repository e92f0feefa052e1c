"""Loading of tokenizers: from Cutaway's JSON, a tokenizer.json, a folder, or a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...core.errors import FileError, shorten
from ...core.files import exists, read_json, reject_address
from ...core.schema import Between, Tagged, find_mismatch
from ...core.spec import current_kind
from .pretrained import MOST_IDS, ROLES, Pretrained, special_token_ids
from .tokenizers import IDS, KINDS, PRETRAINED, Characters, Ids, Subwords, Tokenizer, Words, library_from

TOKENIZER, PREPROCESSING = "tokenizer.json", "preprocessing.json"
HELD = (TOKENIZER, PREPROCESSING, f"model/{PREPROCESSING}", f"model/{TOKENIZER}")  # possible locations in a folder
BESIDE = ("special_tokens_map.json", "tokenizer_config.json")  # files that define special tokens
# Classes of transformers that rebuild a part of their tokenizer from tokenizer_config.json: the classes, the part of
# tokenizer.json and its type, and field → its name in that part and its default.
BERTS = ("BertTokenizer", "BertTokenizerFast", "DistilBertTokenizer", "DistilBertTokenizerFast")
GPTS = tuple(f"{name}Tokenizer{fast}" for name in ("GPT2", "Roberta", "Bart") for fast in ("", "Fast"))
OF_BERT = {
    "do_lower_case": ("lowercase", True),
    "strip_accents": ("strip_accents", None),
    "tokenize_chinese_chars": ("handle_chinese_chars", True),
}
CONFIGURED: tuple[tuple[tuple[str, ...], str, str, Mapping[str, tuple[str, bool | None]]], ...] = (
    (BERTS, "normalizer", "BertNormalizer", OF_BERT),
    (GPTS, "pre_tokenizer", "ByteLevel", {"add_prefix_space": ("add_prefix_space", False)}),
)
CLASS_OF = {"bert": "BertTokenizer", "distilbert": "DistilBertTokenizer", "gpt2": "GPT2Tokenizer"} | {
    "roberta": "RobertaTokenizer", "bart": "BartTokenizer"
}  # fmt: skip
WAYS = (
    "Give a tokenizer.json of the `tokenizers` library, a folder that holds one, or a run of cutaway. Of older files "
    "(vocab.txt, vocab.json and merges.txt, sentencepiece) transformers' `AutoTokenizer.from_pretrained(FOLDER)` makes "
    "one, by its `save_pretrained`."
)


TOKENIZERS = Tagged(
    "kind",
    {
        PRETRAINED: {"library": str, "special": dict.fromkeys(ROLES, int | None)},
        IDS: {"vocab_size": Between(1, MOST_IDS), "padding": int | None},
        "characters": {"lower": bool, "tokens": [str, ...]},
        "words": {"lower": bool, "blanks": bool, "tokens": [str, ...]},
        "bpe": {"lower": bool, "library": str},
        "wordpiece": {"lower": bool, "library": str},
    },
)


def open_tokenizer(path: str | Path) -> Tokenizer:
    """Load the tokenizer of a tokenizer.json or a preprocessing.json, of a folder that holds one of these, or of a run.

    Raises FileError if none exists, or it is invalid.
    """
    path = Path(path).expanduser()
    if not exists(path):
        reject_address(path)
        raise FileError(f"There is no tokenizer {str(path)!r}, seen from {Path.cwd()}. {WAYS}")
    file = path
    if path.is_dir():
        held = next((path / name for name in HELD if (path / name).is_file()), None)
        if held is None:
            raise FileError(f"{path} holds no tokenizer: none of {', '.join(HELD)} is there. {WAYS}")
        file = held
    document = _read(file)
    try:
        if "model" in document and "kind" not in document:
            return _load_library(file, document)
        return tokenizer_from_json(_tokenizer_document(file, document))
    except ValueError as error:
        raise FileError(
            f"{file} is no tokenizer that can be read: {shorten(error, 200)}. Restore it from a copy."
        ) from error


def tokenizer_from_json(data: Any) -> Tokenizer:
    """Restore the tokenizer that `to_json` wrote. Raises ValueError if the document is invalid."""
    if fault := find_mismatch(data, TOKENIZERS):
        raise ValueError(fault)
    kind, lower = data["kind"], bool(data.get("lower"))
    if kind == PRETRAINED:
        return Pretrained.from_json(data)
    if kind == IDS:
        if data["padding"] not in (None, 0):
            raise ValueError(f"a padding of {data['padding']}, which is 0 where there is one")
        return Ids(data["vocab_size"], data["padding"])
    if kind == "characters":
        return Characters(list(data["tokens"]), lower)
    if kind == "words":
        return Words(list(data["tokens"]), lower, bool(data["blanks"]))
    return Subwords(kind, library_from(data["library"], kind), lower)


def _load_library(file: Path, document: Mapping[str, Any]) -> Pretrained:
    """Load a tokenizer of the `tokenizers` library, with the settings in the files next to it."""
    said: dict[str, Any] = {}
    for name in BESIDE:
        if (beside := file.parent / name).is_file():
            said = {**_read(beside), **said}
    library = library_from(json.dumps(_apply_config(file, document, said)), PRETRAINED)
    return Pretrained(library, special_token_ids(library, said))


def _apply_config(file: Path, document: Mapping[str, Any], said: Mapping[str, Any]) -> Mapping[str, Any]:
    """Apply the settings in tokenizer_config.json that some classes of transformers prefer to those of tokenizer.json.

    Raises FileError for a setting that is not true or false.
    """
    kind = said.get("tokenizer_class") or CLASS_OF.get(_model_type(file.parent / "config.json"), "")
    for classes, part, of, settings in CONFIGURED:
        found = document.get(part)
        if kind not in classes or not isinstance(found, dict) or found.get("type") != of:
            continue
        for field, (own, default) in settings.items():
            value = said.get(field, default)
            if not isinstance(value, bool) and not (value is None and default is None):
                where = file.parent / "tokenizer_config.json"
                raise FileError(f"{where} has {field}={json.dumps(value)}, where true or false belongs.")
            found = {**found, own: value}
        document = {**document, part: found}
    return document


def _model_type(file: Path) -> str:
    """Return the model_type in the config.json next to a tokenizer, or in that of its original weights."""
    try:
        said = _read(file) if file.is_file() else {}
    except FileError:  # reported when the model is opened
        return ""
    origin = said.get("origin")
    if isinstance(origin, dict) and isinstance(origin.get("config"), dict):
        said = origin["config"]
    kind = said.get("model_type")
    return kind if isinstance(kind, str) else ""


def _tokenizer_document(file: Path, document: dict[str, Any]) -> dict[str, Any]:
    """Return the document of the tokenizer in a preprocessing, or the document itself. Raises FileError."""
    if document.get("kind") in (*KINDS, PRETRAINED):
        return document
    if isinstance(found := document.get("tokenizer"), dict):
        return found
    if current_kind(document.get("kind")) == "seq2seq":
        source, target = document.get("source"), document.get("target")
        if isinstance(source, dict) and target in (None, source):
            return source
        raise FileError(
            f"{file} holds two tokenizers, one for each side of its pairs. Give a run whose sides share one "
            "(joint_vocab=true), or one of text."
        )
    raise FileError(f"{file} is about {shorten(document.get('kind', 'no'))} data, and holds no tokenizer. {WAYS}")


def _read(file: Path) -> dict[str, Any]:
    """Read a JSON object. Raises FileError if the file holds anything else."""
    document = read_json(file)
    if not isinstance(document, dict):
        raise FileError(f"{file} is JSON, and no tokenizer: it holds a {type(document).__name__}. {WAYS}")
    return document
