"""Which tokens go on with the word of the token before them.

Of WordPiece those that begin with ##; of all others those that begin with a letter or digit, without a blank before
it, after a token that ends with one. So the subwords of a word belong together, and signs stand alone.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt

from .tokenizers import Tokenizer

Flags = npt.NDArray[np.bool_]


def continuing(tokenizer: Tokenizer, ids: npt.NDArray[np.int64]) -> Flags:
    """True where a token goes on with the word of the one before it, (n,), of ids (n,) that follow one another."""
    prefix, by_bytes = _writing(tokenizer)
    if tokenizer.kind == "words":
        return np.zeros(len(ids), np.bool_)
    if prefix:
        return np.array([t.startswith(prefix) and t != prefix for t in tokenizer.tokens], np.bool_)[ids]
    opens = np.array([bool(t) and _in_word(t[0], by_bytes) for t in tokenizer.tokens], np.bool_)[ids]
    closes = np.array([bool(t) and _in_word(t[-1], by_bytes) for t in tokenizer.tokens], np.bool_)[ids]
    found = np.zeros(len(ids), np.bool_)
    found[1:] = opens[1:] & closes[:-1]
    return found


def marks_blanks(tokenizer: Tokenizer) -> bool:
    """Whether the subword that begins a word holds the blank before it, so that a word alone is cut in another way."""
    return _writing(tokenizer)[1]


def _writing(tokenizer: Tokenizer) -> tuple[str, bool]:
    """The prefix of subwords that go on with a word, empty where there is none; and whether tokens are bytes."""
    document: Any = tokenizer.to_json().get("library")
    if document is None:
        return "", False
    library = json.loads(document)
    prefix = (library["model"].get("continuing_subword_prefix") or "") if library["model"] else ""
    return prefix, "ByteLevel" in json.dumps([library.get("pre_tokenizer"), library.get("decoder")])


def _in_word(letter: str, by_bytes: bool) -> bool:
    """Whether it is a letter or a digit; of bytes, also one that is part of a character beyond ASCII."""
    code = ord(letter)
    if not by_bytes or code < 127:
        return letter.isalnum()
    # GPT-2 writes a byte as the character of its number where that can be seen, and the others from U+0100 on, in their
    # order: the first 34 of these are blanks and control characters, the rest parts of characters beyond ASCII.
    return code < 256 or code - 256 >= 34
