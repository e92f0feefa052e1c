"""A tokenizer for text that is already tokenized: "12 7 431" is the tokens 12, 7 and 431."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...core.errors import DataError, Problem
from ..modalities import reject_changed
from ..settings import DataSettings

IDS = "ids"  # the kind of this tokenizer
HOW_CUT = ("tokenizer", "min_count", "lower", "special_tokens")  # settings of tokenization
Numbers = npt.NDArray[np.int64]


class Ids:
    """Given ids below `vocab_size`; if `padding` is 0, zeros at the ends of an example are padding.

    There are no unknown, begin or end ids, because the text was tokenized elsewhere.
    """

    kind: str = IDS
    lower: bool = False
    unknown: int | None = None
    begin: int | None = None
    end: int | None = None
    mask: int | None = None

    def __init__(self, vocab_size: int, padding: int | None = None) -> None:
        self.vocab_size, self.padding = vocab_size, padding

    @functools.cached_property
    def tokens(self) -> list[str]:
        """Each id as text."""
        return [str(i) for i in range(self.vocab_size)]

    def __len__(self) -> int:
        return self.vocab_size

    def encode(self, text: str) -> list[int]:
        """Parse the ids in a text, separated by blanks."""
        return self.encode_many([text])[0]

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode each of the texts."""
        flat, lengths = self.encode_flat(texts)
        return [ids.tolist() for ids in np.split(flat, lengths.cumsum()[:-1])]

    def encode_flat(self, texts: Sequence[str]) -> tuple[Numbers, Numbers]:
        """Return the concatenated ids of all texts, and the number of each.

        Raises DataError for anything but an id below `vocab_size`.
        """
        examples = [_written(text) for text in texts]
        beyond = {i: int(ids.max()) for i, ids in enumerate(examples) if len(ids) and ids.max() >= self.vocab_size}
        if beyond:
            first = next(iter(beyond))
            raise DataError(
                f"{len(beyond):,} of {len(texts):,} examples hold ids that are not in the vocabulary, of "
                f"{self.vocab_size:,} ids from 0. The first of them is example {first + 1}, with {beyond[first]}.",
                fix=f"Train with vocab_size={max(beyond.values()) + 1} or more: unless it is said, it is as large as "
                "the ids of the training split ask for.",
            )
        if self.padding == 0:
            examples = [np.trim_zeros(ids) for ids in examples]
        lengths = np.fromiter(map(len, examples), np.int64, count=len(examples))
        return np.concatenate([np.empty(0, np.int64), *examples]), lengths

    def decode(self, ids: Iterable[int]) -> str:
        """Return the ids separated by blanks, without padding."""
        return " ".join(str(i) for i in ids if i != self.padding)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values for `tokenizer_from_json`."""
        return {"kind": self.kind, "lower": self.lower, "vocab_size": self.vocab_size, "padding": self.padding}


def fit_ids(settings: DataSettings, texts: Iterable[str]) -> Ids:
    """Return the vocabulary of ids: of the configured size, or up to the largest id of the training split.

    0 is padding if all examples have the same length and zeros occur only at their ends. Raises SettingError for
    settings of tokenization.
    """
    reject_changed(settings, HOW_CUT, "says how texts are cut, and these are token ids")
    examples = [_written(text) for text in texts]
    one_length = len({len(ids) for ids in examples}) == 1
    within = any((np.trim_zeros(ids) == 0).any() for ids in examples)
    padded = one_length and not within and any((ids == 0).any() for ids in examples)
    asked = settings.vocab_size != DataSettings().vocab_size
    largest = max((int(ids.max()) for ids in examples if len(ids)), default=0)
    return Ids(settings.vocab_size if asked else largest + 1, 0 if padded else None)


def format_ids(ids: Sequence[int]) -> str:
    """Return ids as blank-separated text."""
    return " ".join(map(str, ids))


def _written(text: str) -> Numbers:
    try:
        return np.array(text.split(), np.int64)
    except (ValueError, OverflowError):
        raise DataError(
            "This is a text, and the run learned from token ids.",
            [Problem(repr(text[:60]), "it holds what is no id")],
            "Give lists of ids, as in [[3, 17, 5]].",
        ) from None
