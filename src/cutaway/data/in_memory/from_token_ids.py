"""Readers of token ids: a list of lists of any lengths, a list or an array of arrays, or one array (n, T)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ...core.errors import DataError
from ..dataset_base import to_numpy
from ..text.tokenizers import format_ids
from .container import Array, ExampleContainer, Numbers, Texts

LARGEST = 2**22 - 1  # maximum token id: four times the largest vocabularies in use


def read_ids(sequences: Sequence[Any]) -> Texts | None:
    """Read integer sequences of any lengths as token ids; None for anything else. Raises DataError for negative ids."""
    examples = []
    for one in sequences:
        if isinstance(one, str) or not isinstance(one, Sequence | np.ndarray | torch.Tensor):
            return None
        ids = _whole(one)
        if ids is None:
            return None
        examples.append(ids)
    return _as_texts(examples)


def as_ids(held: ExampleContainer) -> ExampleContainer:
    """Return an integer array (n, T) as token ids; other containers are returned unchanged.

    Raises DataError for a negative id.
    """
    if isinstance(held, Numbers) and may_be_token_ids(held):
        texts = _as_texts(list(held.values))
        return Texts(name="tokens", target=held.target, notes=held.notes, texts=texts.texts, ids=True)
    return held


def may_be_token_ids(held: ExampleContainer) -> bool:
    """Return whether a container is an integer array (n, T)."""
    return isinstance(held, Numbers) and held.values.ndim == 2 and held.values.dtype.kind in "iu"


def _as_texts(examples: Sequence[Array]) -> Texts:
    for i, ids in enumerate(examples):
        if len(ids) and not (ids.min() >= 0 and ids.max() <= LARGEST):
            wrong = ids.min() if ids.min() < 0 else ids.max()
            raise DataError(
                f"Example {i + 1} holds the token {wrong}: ids are whole numbers from 0 to {LARGEST:,}.",
                fix="A vocabulary has an entry for each id up to the largest: number the tokens that occur from 0.",
            )
    return Texts(name="tokens", texts=tuple(format_ids(ids.tolist()) for ids in examples), ids=True)


def _whole(one: Any) -> Array | None:
    """Return one example as an integer array (T,); None if it is something else."""
    if isinstance(one, torch.Tensor):
        if one.is_floating_point() or one.is_complex():
            return None
        one = to_numpy(one)
    if not isinstance(one, np.ndarray):
        if any(isinstance(x, bool) or not isinstance(x, int | np.integer) or abs(int(x)) >= 2**62 for x in one):
            return None
        one = np.array(one, np.int64)
    return one if one.ndim == 1 and one.dtype.kind in "iu" else None
