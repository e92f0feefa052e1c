"""Pretrained tokenizers: a tokenizer.json of the `tokenizers` library, with its own ids.

Text is never parsed as a special token: `[MASK]` in a text is a bracket, a word and a bracket.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .tokenizers import PRETRAINED, LibraryTokenizer, library_from

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

ROLES = {  # role of a token, its keys in those files, and its usual names
    "padding": (("pad_token",), ("[PAD]", "<pad>")),
    "unknown": (("unk_token",), ("[UNK]", "<unk>")),
    "begin": (("cls_token", "bos_token"), ("[CLS]", "<s>", "<|endoftext|>")),
    "end": (("sep_token", "eos_token"), ("[SEP]", "</s>", "<|endoftext|>")),
    "mask": (("mask_token",), ("[MASK]", "<mask>")),
}
MOST_IDS = 10_000_000  # no vocabulary is larger; each id takes a row of the model
GAPS = 100_000  # maximum unused ids: each costs memory, here and in every embedding


class Pretrained(LibraryTokenizer):
    """A tokenizer with its own ids. Texts are encoded without surrounding special tokens."""

    kind = PRETRAINED
    lower = False  # normalization is up to the library

    def __init__(self, library: Library, special: Mapping[str, int | None]) -> None:
        """Initialize with the ids of `padding`, `unknown`, `begin`, `end` and `mask`, None for missing ones."""
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
        # Some mark the start of their input, and would mark the start of every piece of a text.
        how = f"{library.normalizer!r} {library.pre_tokenizer!r}"
        self.by_pieces = not any(mark in how for mark in ("Metaspace", "Prepend", "add_prefix_space=True"))

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text without special tokens."""
        return self._library.decode([i for i in ids if i not in self._hidden], skip_special_tokens=False)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values for `tokenizer_from_json`."""
        special = {role: getattr(self, role) for role in ROLES}
        return {"kind": self.kind, "lower": self.lower, "library": self._library.to_str(), "special": special}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Pretrained:
        """Restore the tokenizer that `to_json` wrote. Raises ValueError if the document is inconsistent."""
        return cls(library_from(data["library"], PRETRAINED), {role: data["special"][role] for role in ROLES})


def special_token_ids(library: Library, said: Mapping[str, Any]) -> dict[str, int | None]:
    """Return the ids of special tokens, from the files next to the tokenizer or by their usual names.

    A token that is both unknown and an end, as in GPT-2, is not used as unknown, because nothing is unknown there.
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


def _content(token: Any) -> str:
    """Return a token's text from such a file, which stores it as text or in an object."""
    if isinstance(token, Mapping):
        token = token.get("content")
    return token if isinstance(token, str) else ""
