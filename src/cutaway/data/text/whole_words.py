"""Detection of tokens that continue the word of the previous token.

In WordPiece these begin with ##. In other tokenizers they begin with a letter or digit, without a blank before it, and
follow a token that ends with one. So the subwords of a word belong together, and signs are separate.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt

from .tokenizers import Tokenizer

Flags = npt.NDArray[np.bool_]


def continues_word(tokenizer: Tokenizer, ids: npt.NDArray[np.int64]) -> Flags:
    """Return a mask (n,) of tokens that continue the word of the previous one, for consecutive ids (n,)."""
    prefix, by_bytes = _token_notation(tokenizer)
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
    """Return whether the first subword of a word includes the blank before it, so that an isolated word is split
    differently.
    """
    return _token_notation(tokenizer)[1]


def _token_notation(tokenizer: Tokenizer) -> tuple[str, bool]:
    """Return the prefix of continuing subwords, or empty; and whether tokens are bytes."""
    document: Any = tokenizer.to_json().get("library")
    if document is None:
        return "", False
    library = json.loads(document)
    prefix = (library["model"].get("continuing_subword_prefix") or "") if library["model"] else ""
    return prefix, "ByteLevel" in json.dumps([library.get("pre_tokenizer"), library.get("decoder")])


def _in_word(letter: str, by_bytes: bool) -> bool:
    """Return whether it is a letter or digit; for bytes, also whether it is part of a character beyond ASCII."""
    code = ord(letter)
    if not by_bytes or code < 127:
        return letter.isalnum()
    # GPT-2 writes a printable byte as the character with its number, and the others from U+0100 on, in order: the first
    # 34 of these are blanks and control characters, the rest parts of characters beyond ASCII.
    return code < 256 or code - 256 >= 34
