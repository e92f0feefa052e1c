"""Containers for the examples of Python objects, and the tables of other libraries that are read into them.

Token ids are a list of lists of any lengths, a list or an array of arrays, or one array (n, T).

Tables are pandas, Arrow, DuckDB, Hugging Face and any Arrow exporter. None of these libraries is imported. The columns
are read by the Arrow PyCapsule protocol, `__arrow_c_stream__`
<https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html>, or else by the dataframe interchange
protocol, `__dataframe__`. pandas is read column by column, because its Arrow export needs pyarrow and includes the
index as a column. Columns of images, as in Hugging Face Datasets, hold the bytes of a file, or its path.
"""

from __future__ import annotations

import hashlib
import io
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import polars.selectors as cs
import torch
from PIL import Image

from ...core.errors import DataError, Problem, PythonDataError, shorten_repr
from ..dataset_base import to_numpy
from ..graphs.splits import RawGraphs
from ..images.image_files import read_image
from ..tables.table_files import CELLS, cell_text, column_name, reject_column
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
            raise PythonDataError(
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


def as_frame(thing: Any) -> pl.DataFrame | None:
    """Return a table as a polars data frame; None if the object is not a table of any library.

    Raises:
        DataError: If two columns have the same name, or a column holds something that is not a cell. An image column of
            Hugging Face is allowed.
    """
    frame = _as_frame(thing)
    if frame is None:
        return None
    for name, dtype in frame.schema.items():
        if not holds_images(dtype):
            reject_column(name, dtype)
    return frame


def holds_images(dtype: pl.DataType) -> bool:
    """Return whether a column holds images as Hugging Face stores them: the bytes of a file, or its path."""
    return isinstance(dtype, pl.Struct) and {field.name for field in dtype.fields} == {"bytes", "path"}


def _as_frame(thing: Any) -> pl.DataFrame | None:
    if isinstance(thing, pl.DataFrame):
        return thing
    if isinstance(thing, pl.LazyFrame):
        raise PythonDataError("A LazyFrame holds no rows yet.", fix="Give frame.collect().")
    if is_hugging_face(thing):
        return _hugging_face(thing)
    if _is_pandas(thing):
        return _pandas_to_polars(thing)
    if isinstance(thing, type) or not (hasattr(thing, "__arrow_c_stream__") or hasattr(thing, "__dataframe__")):
        return None
    try:
        if hasattr(thing, "__arrow_c_stream__"):
            return pl.DataFrame(thing)
        return pl.from_dataframe(thing)
    except (
        pl.exceptions.PolarsError,
        TypeError,
        ValueError,
    ) as error:  # for example an Arrow array that is not a table
        raise PythonDataError(
            f"A {type(thing).__name__} cannot be read as a table: {str(error).splitlines()[0]}."
        ) from error


def is_hugging_face(thing: Any) -> bool:
    """Return whether the object is a Dataset of Hugging Face, which stores Arrow rows and describes its columns."""
    return hasattr(thing, "features") and hasattr(thing, "with_format") and hasattr(thing, "column_names")


def _is_pandas(thing: Any) -> bool:
    return type(thing).__name__ == "DataFrame" and hasattr(thing, "iloc") and hasattr(thing, "dtypes")


def _hugging_face(dataset: Any) -> pl.DataFrame:
    """Return the selected rows of a Hugging Face Dataset, in order, with class names in place of class numbers."""
    if not hasattr(dataset, "__len__"):
        raise PythonDataError(
            "A streaming dataset has no length and is read once.",
            fix="Give its rows as a list of dictionaries: list(dataset), or list(dataset.take(1000)).",
        )
    frame = pl.DataFrame(dataset.with_format("arrow")[:])
    for column, feature in dataset.features.items():
        names = getattr(feature, "names", None)
        if names is not None:  # a ClassLabel, in which −1 is no label
            known = dict(enumerate(names))
            frame = frame.with_columns(pl.col(column).replace_strict(known, default=None, return_dtype=pl.String))
    return frame


def _pandas_to_polars(frame: Any) -> pl.DataFrame:
    names = [column_name(name) for name in frame.columns]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise PythonDataError(
            f"Two columns of the data frame are named {shorten_repr(twice)}.", fix="Give each a name of its own."
        )
    return pl.DataFrame([to_polars_series(frame.iloc[:, k], name) for k, name in enumerate(names)])


def is_series(thing: Any) -> bool:
    """Return whether the object is a column of polars or pandas."""
    return isinstance(thing, pl.Series) or (hasattr(thing, "iloc") and getattr(thing, "ndim", 0) == 1)


def to_polars_series(series: Any, name: str) -> pl.Series:
    """Return a pandas or polars column as a polars column, with null for missing values."""
    if isinstance(series, pl.Series):
        return series.alias(name)
    values = series.to_numpy()
    if values.dtype.kind in "mM" and np.datetime_data(values.dtype)[0] not in ("D", "ms", "us", "ns"):
        values = values.astype(f"{values.dtype.kind}8[us]")  # polars has no other resolutions
    if values.dtype.kind in "iubmM":
        return pl.Series(name, values)
    if values.dtype.kind == "f":
        return pl.Series(name, values, nan_to_null=True)
    return objects_as_series(name, values, np.asarray(series.isna()))


def objects_as_series(name: str, values: Any, missing: Any = None) -> pl.Series:
    """Return Python objects as a column, numeric if all are numbers, else text.

    Raises DataError for an object that is not a cell.
    """
    cells = [None if gone else value for value, gone in zip(values, missing)] if missing is not None else list(values)
    for i, value in enumerate(cells):
        if not (value is None or np.ndim(value) == 0) or isinstance(value, dict | set):
            raise PythonDataError(
                f"Row {i + 1} of {name} holds a {type(value).__name__}: {CELLS}.",
                fix="Write it as several plain columns.",
            )
    return pl.Series(name, [cell_text(cell, i, name) for i, cell in enumerate(cells)], dtype=pl.String)


def decode_images(frame: pl.DataFrame) -> Images | None:
    """Return the images of a table with one image column and one target column; None if it has no images.

    Raises DataError that names every unreadable image, or if there are several other columns.
    """
    columns = [name for name, dtype in frame.schema.items() if holds_images(dtype)]
    if not columns:
        return None
    others = [name for name in frame.columns if name not in columns]
    if len(columns) > 1 or len(others) > 1:
        raise PythonDataError(
            f"Image data has one column of images and one of targets; this data has {', '.join(frame.columns)}.",
            fix=f"Choose two, as by dataset.select_columns([{columns[0]!r}, TARGET]).",
        )
    images, problems = [], []
    for i, cell in enumerate(frame[columns[0]]):
        try:
            images.append(_image(cell, f"image {i + 1}"))
        except DataError as error:
            problems += error.problems or [Problem(f"image {i + 1}", str(error))]
    if problems:
        raise PythonDataError(f"{len(problems):,} images cannot be read.", problems)
    return Images(name="dataset", target=frame[others[0]] if others else None, images=tuple(images))


def _image(cell: Any, name: str) -> Image.Image:
    if not cell or (cell["bytes"] is None and cell["path"] is None):
        raise PythonDataError("It is missing.", [Problem(name, "it is missing")])
    if cell["bytes"] is None:
        return read_image(Path(cell["path"]), name)
    try:
        image = Image.open(io.BytesIO(cell["bytes"]))
        image.load()
    except Exception as error:  # Pillow may raise any exception for a damaged file
        raise PythonDataError("Damaged:", [Problem(name, f"it is damaged or of no known form ({error})")]) from error
    return read_image(image, name)
