"""Containers for the examples of Python objects.

Token ids are a list of lists of any lengths, a list or an array of arrays, or one array (n, T).
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import polars.selectors as cs
import torch
from PIL import Image

from ...core.errors import DataError
from ..dataset_base import to_numpy
from ..graphs.raw import RawGraphs
from ..text.tokenizers import format_ids

Array = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class ExampleContainer(ABC):
    """Base class of the examples of one split. `target` are the targets, (n,), if they are separate from the values."""

    name: str  # short name of the object, for the run's folder: arrays, frame
    target: pl.Series | None = None
    notes: tuple[str, ...] = ()

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def content(self) -> Sequence[Any]:
        """Return the bytes, or arrays, that identify the values for hashing."""

    @property
    def digest(self) -> str:
        """The sha256 of values and targets."""
        digest = hashlib.sha256(type(self).__name__.encode())
        for part in (*self.content(), b"" if self.target is None else _text(self.target.to_frame())):
            digest.update(hashlib.sha256(part).digest())
        return digest.hexdigest()


@dataclass(frozen=True, kw_only=True)
class Columns(ExampleContainer):
    """A table of named columns."""

    frame: pl.DataFrame
    unnamed: bool = False  # whether it was an array without column names

    def __len__(self) -> int:
        return self.frame.height

    def content(self) -> Sequence[Any]:
        """Return the cells as text."""
        return [_text(self.frame)]


@dataclass(frozen=True, kw_only=True)
class Texts(ExampleContainer):
    """Texts, each an example or, without targets, a document."""

    texts: tuple[str, ...]
    ids: bool = False  # whether they are token ids separated by blanks

    def __len__(self) -> int:
        return len(self.texts)

    def content(self) -> Sequence[Any]:
        """Return the hash of each text."""
        kind = b"ids" if self.ids else b""
        return [kind + b"".join(hashlib.sha256(t.encode(errors="surrogatepass")).digest() for t in self.texts)]


@dataclass(frozen=True, kw_only=True)
class Numbers(ExampleContainer):
    """An array of integers or floats whose first dimension is the examples, (n, …)."""

    values: Array
    channels_first: bool = False  # whether channels come before height and width, as in PyTorch

    def __len__(self) -> int:
        return len(self.values)

    def content(self) -> Sequence[Any]:
        """Return shape, type and values."""
        values = np.ascontiguousarray(self.values)
        return [f"{values.shape} {values.dtype.str}".encode(), values]


@dataclass(frozen=True, kw_only=True)
class Images(ExampleContainer):
    """Pillow images of any sizes."""

    images: tuple[Image.Image, ...]

    def __len__(self) -> int:
        return len(self.images)

    def content(self) -> Sequence[Any]:
        """Return hashes of mode, size and pixels."""
        return [b"".join(hashlib.sha256(f"{i.mode} {i.size}".encode() + i.tobytes()).digest() for i in self.images)]


@dataclass(frozen=True, kw_only=True)
class Graphs(ExampleContainer):
    """One graph whose nodes are the examples, or a list of graphs that are one example each."""

    graphs: RawGraphs

    def __len__(self) -> int:
        return len(self.graphs.examples)

    def content(self) -> Sequence[Any]:
        """Return the digest computed by the reader."""
        sizes = b"" if self.graphs.graph is None else np.bincount(self.graphs.graph).astype("<i8").tobytes()
        return [self.graphs.digest.encode(), sizes]


def example_names(splits: dict[str, Any], names: Sequence[str], what: str) -> list[str]:
    """Return a display name for each example of several splits: image 3 of val."""
    if len(splits) == 1:
        return [f"{what} {i + 1}" for i in range(len(splits[names[0]]))]
    return [f"{what} {i + 1} of {name}" for name in names for i in range(len(splits[name]))]


def example_digests(examples: Iterable[Array]) -> list[bytes]:
    """Return a hash of each example, to find equal ones."""
    return [hashlib.sha256(example.tobytes()).digest() for example in examples]


def _text(frame: pl.DataFrame) -> bytes:
    spans = cs.duration()  # CSV cannot represent durations
    return frame.with_columns(spans.dt.total_microseconds()).write_csv().encode()


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
