"""Tokenizers that others fitted: a tokenizer.json of the `tokenizers` library, with the ids that it has; and those of
runs and model folders of this library.

What a text holds is never taken for a token that is none of text: `[MASK]` in it is a bracket, a word and a bracket.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import FileError
from ...files import exists, read_bytes, refuse_address
from .tokenizers import KINDS, PRETRAINED, OnLibrary, Tokenizer, library_from, tokenizer_from_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

TOKENIZER, PREPROCESSING = "tokenizer.json", "preprocessing.json"
HELD = (TOKENIZER, PREPROCESSING, f"model/{PREPROCESSING}", f"model/{TOKENIZER}")  # where a folder may hold one
BESIDE = ("special_tokens_map.json", "tokenizer_config.json")  # files that say which token is which
ROLES = {  # what a token is for, how those files call it, and its usual names
    "padding": (("pad_token",), ("[PAD]", "<pad>")),
    "unknown": (("unk_token",), ("[UNK]", "<unk>")),
    "begin": (("cls_token", "bos_token"), ("[CLS]", "<s>", "<|endoftext|>")),
    "end": (("sep_token", "eos_token"), ("[SEP]", "</s>", "<|endoftext|>")),
    "mask": (("mask_token",), ("[MASK]", "<mask>")),
}
MOST_IDS = 10_000_000  # no vocabulary is larger; each id takes a row of the model
WAYS = (
    "Give a tokenizer.json of the `tokenizers` library, a folder that holds one, or a run of cutaway. Of older files "
    "(vocab.txt, vocab.json and merges.txt, sentencepiece) transformers' `AutoTokenizer.from_pretrained(FOLDER)` makes "
    "one, by its `save_pretrained`."
)
GAPS = 100_000  # ids that may stand for nothing: an id costs memory, here and in every embedding


class Pretrained(OnLibrary):
    """A tokenizer with its own ids. Texts are encoded without the tokens that stand around them."""

    kind = PRETRAINED
    lower = False  # what it does to text is its own

    def __init__(self, library: Library, special: Mapping[str, int | None]) -> None:
        """`special` are the ids of `padding`, `unknown`, `begin`, `end` and `mask`, None for what it lacks."""
        library.no_truncation()
        library.no_padding()
        library.encode_special_tokens = True  # such a token in a text is text
        self._library = library
        ids = library.get_vocab(with_added_tokens=True)
        if len(ids) < 3:
            raise ValueError(f"a tokenizer of {len(ids)} tokens")
        if max(ids.values()) > GAPS + 2 * len(ids):
            raise ValueError(f"a tokenizer of {len(ids):,} tokens with an id of {max(ids.values()):,}")
        if not 0 <= max(ids.values()) < MOST_IDS:
            raise ValueError(f"ids up to {max(ids.values()):,}, for {len(ids):,} tokens")
        self.tokens = [""] * (1 + max(ids.values()))  # an id without a token has an empty one
        for token, i in ids.items():
            self.tokens[i] = token
        self.padding, self.unknown, self.begin, self.end, self.mask = (special[role] for role in ROLES)
        found = library.get_added_tokens_decoder()
        self.special = {i for i, token in found.items() if token.special} | {
            i for i in special.values() if i is not None
        }
        if any(not 0 <= i < len(self.tokens) for i in self.special):
            raise ValueError("a tokenizer whose special tokens have no ids")
        self._hidden = self.special - {self.unknown}
        # Some mark the beginning of what they are given, and would mark that of every piece of a text.
        how = f"{library.normalizer!r} {library.pre_tokenizer!r}"
        self.by_pieces = not any(mark in how for mark in ("Metaspace", "Prepend", "add_prefix_space=True"))

    def decode(self, ids: Iterable[int]) -> str:
        """The text, without tokens that are none of it."""
        return self._library.decode([i for i in ids if i not in self._hidden], skip_special_tokens=False)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values that `tokenizer_from_json` reads back."""
        special = {role: getattr(self, role) for role in ROLES}
        return {"kind": self.kind, "lower": self.lower, "library": self._library.to_str(), "special": special}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Pretrained:
        """The tokenizer that `to_json` wrote. Raises KeyError, TypeError or ValueError where the document is none."""
        special = {role: None if data["special"][role] is None else int(data["special"][role]) for role in ROLES}
        return cls(library_from(data["library"], PRETRAINED), special)


def open_path(path: Path) -> Tokenizer:
    """The tokenizer in a file or folder. Raises FileError where there is none, or a broken one."""
    if not exists(path):
        refuse_address(path)
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
            return _of_library(file, document)
        return tokenizer_from_json(_own(file, document))
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise FileError(
            f"{file} is no tokenizer that can be read: {type(error).__name__} {error}. Was it edited, or cut short?"
        ) from error


def specials(library: Library, said: Mapping[str, Any]) -> dict[str, int | None]:
    """The ids of the tokens that are no text: as the files beside a tokenizer name them, or by their usual names.

    One that stands for the unknown and for an end too, as GPT-2's does, is not counted as unknown: nothing is unknown
    there.
    """
    added = {token.content: i for i, token in library.get_added_tokens_decoder().items()}
    found: dict[str, int | None] = {}
    for role, (keys, names) in ROLES.items():
        told = [library.token_to_id(name) for key in keys if (name := _content(said.get(key)))]
        usual = [added[name] for name in names if name in added]
        found[role] = next((i for i in (*told, *usual) if i is not None), None)
    own = getattr(library.model, "unk_token", None)
    if found["unknown"] is None and own:
        found["unknown"] = library.token_to_id(own)
    if found["unknown"] in (found["begin"], found["end"]):
        found["unknown"] = None
    return found


def _of_library(file: Path, document: Mapping[str, Any]) -> Pretrained:
    """The tokenizer of a file of the `tokenizers` library, with what the files beside it say."""
    library = library_from(json.dumps(document), PRETRAINED)
    said: dict[str, Any] = {}
    for name in BESIDE:
        if (beside := file.parent / name).is_file():
            said = {**_read(beside), **said}
    return Pretrained(library, specials(library, said))


def _own(file: Path, document: dict[str, Any]) -> dict[str, Any]:
    """The document of a tokenizer in that of a preprocessing, or the document itself. Raises FileError."""
    if document.get("kind") in (*KINDS, PRETRAINED):
        return document
    if isinstance(found := document.get("tokenizer"), dict):
        return found
    if document.get("kind") == "pairs":
        source, target = document["source"], document["target"]
        if isinstance(source, dict) and target in (None, source):
            return source
        raise FileError(
            f"{file} holds two tokenizers, one for each side of its pairs. Give a run whose sides share one "
            "(joint_vocab=true), or one of text."
        )
    raise FileError(f"{file} is about {document.get('kind', 'no')} data, and holds no tokenizer. {WAYS}")


def _read(file: Path) -> dict[str, Any]:
    """What a JSON file holds. Raises FileError where it is no JSON object."""
    try:
        document = json.loads(read_bytes(file))
    except RecursionError as error:
        raise FileError(f"{file} nests its values too deep to be a tokenizer.") from error
    except ValueError as error:
        raise FileError(f"{file} is not JSON: {error}. Was it cut short, or is it another kind of file?") from error
    if not isinstance(document, dict):
        raise FileError(f"{file} is JSON, and no tokenizer: it holds a {type(document).__name__}. {WAYS}")
    return document


def _content(token: Any) -> str:
    """A token as such a file writes it: its text, or an object that holds the text."""
    if isinstance(token, Mapping):
        token = token.get("content")
    return token if isinstance(token, str) else ""
