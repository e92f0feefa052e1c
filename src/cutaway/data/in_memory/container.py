"""Containers for the examples of Python objects."""

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
from PIL import Image

from ..graphs.raw import RawGraphs

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
