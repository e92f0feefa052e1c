"""Token ids that a person has already, as a tokenizer: "12 7 431" is the tokens 12, 7 and 431, and stays so."""

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
HOW_CUT = ("tokenizer", "min_count", "lower", "special_tokens")  # settings of texts that are yet to be cut
Numbers = npt.NDArray[np.int64]


class Ids:
    """Ids as they are given, below `vocab_size`; where `padding` is 0, zeros at the ends of an example are none of it.

    No id is unknown, and none stands for a text's begin or end: whoever cut the texts knows.
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
        """Each id as a text."""
        return [str(i) for i in range(self.vocab_size)]

    def __len__(self) -> int:
        return self.vocab_size

    def encode(self, text: str) -> list[int]:
        """The ids that are written in a text, with blanks between them."""
        return self.encode_many([text])[0]

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` for each of the texts."""
        flat, lengths = self.encode_flat(texts)
        return [ids.tolist() for ids in np.split(flat, lengths.cumsum()[:-1])]

    def encode_flat(self, texts: Sequence[str]) -> tuple[Numbers, Numbers]:
        """The ids of all the texts one after another, and how many of each. Raises DataError for what is no id, or
        not below `vocab_size`."""
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
        """The ids with blanks between them; padding left out."""
        return " ".join(str(i) for i in ids if i != self.padding)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values that `tokenizer_from_json` reads back."""
        return {"kind": self.kind, "lower": self.lower, "vocab_size": self.vocab_size, "padding": self.padding}


def fit_ids(settings: DataSettings, texts: Iterable[str]) -> Ids:
    """The ids of the training split: as many as the settings say, else up to its largest.

    0 is padding where all examples are of one length and zeros stand at their ends alone, as whoever pads to a length
    has them. Raises SettingError for settings of texts that are not cut yet.
    """
    reject_changed(settings, HOW_CUT, "says how texts are cut, and these are token ids")
    examples = [_written(text) for text in texts]
    one_length = len({len(ids) for ids in examples}) == 1
    within = any((np.trim_zeros(ids) == 0).any() for ids in examples)
    padded = one_length and not within and any((ids == 0).any() for ids in examples)
    asked = settings.vocab_size != DataSettings().vocab_size
    largest = max((int(ids.max()) for ids in examples if len(ids)), default=0)
    return Ids(settings.vocab_size if asked else largest + 1, 0 if padded else None)


def written(ids: Sequence[int]) -> str:
    """Ids as the text that stands for them."""
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
