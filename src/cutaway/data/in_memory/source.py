"""Sources of data given in Python: objects, optionally with splits, and their conversion by type.

`to_container` dispatches on the type of an object: lists with one example per item (dictionaries, texts, Pillow images,
arrays, rows, token ids), NumPy arrays and PyTorch tensors, (X, y), Datasets of PyTorch, and by their attributes tables
of any library and graphs of PyTorch Geometric.

An array has one dimension more than an example: (n, F) rows of a table, (n, T, F) series, (n, C, H, W) or (n, H, W, C)
images. Its kind is inferred later from the kinds that the model accepts.

PyTorch Datasets, map style and iterable, are read into memory once, before training. An item is (x, y), only x, or a
dictionary of cells. x is a tensor, an array, a Pillow image or a text. Random transforms are therefore applied only
once.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, singledispatch
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from ...core.config import as_text
from ...core.errors import DataError, IncompatibleSettingError, PythonDataError, printable, shorten_repr
from ...core.files import READ_AT_MOST, total_memory
from ..dataset_base import to_numpy
from ..graphs.graph_files import NOT_READ, read_data, read_edges, to_array
from ..images.image_files import reject_unreadable
from ..settings import DataSettings
from ..splits import SPLITS
from ..tables.table_files import not_unicode, rows_table
from ..text.tokenizers import reject_surrogates
from .container import (
    Array,
    Columns,
    ExampleContainer,
    Graphs,
    Images,
    Numbers,
    Texts,
    as_frame,
    as_ids,
    decode_images,
    is_hugging_face,
    is_series,
    may_be_token_ids,
    read_ids,
    to_polars_series,
)

NAMED_SPLITS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "dev": "val", "test": "test"}
TAKEN = (
    "(X, y) of NumPy or PyTorch; a table of pandas, polars or Arrow with target=COLUMN; a list of dictionaries or of "
    "texts; lists of token ids, as (ids, y); images of Pillow, as (images, y); a Dataset of PyTorch or Hugging Face; a "
    "graph of PyTorch Geometric or a list of them; or a dictionary of such splits, train, val and test"
)


class InMemorySource:
    """Data given in Python, read once on first use. Two sources are equal only if they are the same object."""

    def __init__(
        self, train: Any, val: Any = None, test: Any = None, weights: NDArray[np.float64] | None = None
    ) -> None:
        """Initialize from the objects of the splits. `weights` are sample weights of the examples of `train`, (n,)."""
        self.weights = weights
        self._objects = {name: one for name, one in zip(SPLITS, (train, val, test)) if one is not None}

    def __repr__(self) -> str:
        return f"InMemorySource({', '.join(f'{name}={type(one).__name__}' for name, one in self._objects.items())})"

    def read(self) -> InMemorySource:
        """Read the data now, so that errors are raised before anything else, and return the source."""
        _ = self.splits
        return self

    @cached_property
    def splits(self) -> dict[str, ExampleContainer]:
        """The examples of each split, train first, all in containers of one type.

        Raises DataError for unreadable data, naming the split if there are several.
        """
        found: dict[str, ExampleContainer] = {}
        for name, thing in self._objects.items():
            try:
                found[name] = parse_object(thing)
            except DataError as error:
                if len(self._objects) == 1:
                    raise
                raise PythonDataError(f"In {name}: {error}") from error
        if any(isinstance(held, Texts) and held.ids for held in found.values()):
            found = {name: as_ids(held) for name, held in found.items()}
        first = found["train"]
        for name, other in found.items():
            if isinstance(first, Texts) and isinstance(other, Texts) and first.ids != other.ids:
                raise PythonDataError(f"Of train and {name}, one holds token ids and one texts: give both in one form.")
            if type(other) is not type(first):
                raise PythonDataError(
                    f"train is {describe_type(self._objects['train'])} and {name} {describe_type(self._objects[name])}:"
                    " give both in one form."
                )
            if (other.target is None) != (first.target is None):
                has, lacks = (name, "train") if first.target is None else ("train", name)
                raise PythonDataError(f"{has} has targets and {lacks} has none: give both as (X, y).")
        if isinstance(first, Graphs) and not first.graphs.many and len(found) > 1:
            raise PythonDataError(
                "The splits of one graph are masks of its nodes: its own train_mask, val_mask and test_mask."
            )
        return found

    @property
    def train(self) -> ExampleContainer:
        """The examples of the training split, or all examples if there are no splits."""
        return self.splits["train"]

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of the content of all splits."""
        said = "".join(f"{name} {held.digest}\n" for name, held in self.splits.items())
        if self.weights is not None:
            said += f"weights {hashlib.sha256(self.weights.tobytes()).hexdigest()}\n"
        return hashlib.sha256(said.encode()).hexdigest()

    def kind(self, settings: DataSettings, takes: Sequence[str] = ()) -> str:
        """Infer the kind of data; `takes` are the kinds that the model accepts, which decide if several are possible.

        Raises DataError if an array has dimensions that no kind has.
        """
        held = self.train
        if isinstance(held, Columns):
            columns = {"text": settings.text, "series": settings.forecast, "graph": settings.smiles}
            return next((kind for kind, column in columns.items() if column), "table")
        if isinstance(held, Numbers):
            if may_be_token_ids(held) and "text" in takes:
                said = settings.vocab_size != DataSettings().vocab_size
                if said or not {"table", "series"} & set(takes):  # tables and series may hold integers too
                    return "text"
            return kind_of_array(held, takes)
        return "text" if isinstance(held, Texts) else "image" if isinstance(held, Images) else "graph"


def kind_of_array(held: Numbers, takes: Sequence[str]) -> str:
    """Infer the kind of an array that holds no token ids, for a model that accepts the kinds in `takes`.

    (n, F) are rows of a table, or series of one variable; (n, T, F) are series, or grey images if they are bytes; (n,
    C, H, W) and (n, H, W, C) are images.
    """
    shape = held.values.shape
    both = {2: ("table", "series"), 3: ("series", "image"), 4: ("image",)}.get(len(shape))
    if both is None:
        raise PythonDataError(
            f"X has the shape {shape}. Arrays are rows of a table (n, F), series (n, T, F), or images (n, C, H, W), "
            "(n, H, W, C) or, grey, (n, H, W)."
        )
    if len(shape) == 3 and held.values.dtype == "uint8":
        both = both[::-1]
    return next((kind for kind in both if kind in takes), both[0])


def parse_object(thing: Any) -> ExampleContainer:
    """Read an object into a container. Raises DataError if it is not supported, or has no examples."""
    try:
        held = to_container(thing)
    except UnicodeEncodeError as error:
        raise PythonDataError(f"A text of the data cannot be read: {not_unicode(error)}.") from None
    except RecursionError:
        raise PythonDataError("The data is a list that is nested too deeply, or holds itself.") from None
    if held is None:
        raise unsupported_object_error(thing)
    if isinstance(held, Texts):
        for text in held.texts:
            reject_surrogates(text)
    if not len(held):
        raise PythonDataError(f"The data is empty: {describe_type(thing)} without an example.")
    return held


@singledispatch
def to_container(thing: Any) -> ExampleContainer | None:
    """Convert an object to a container by its type; None for an unsupported type.

    Types of libraries that are not imported here (pandas, Arrow, Hugging Face, PyTorch Geometric) are recognised by
    their attributes. Another type is supported by a converter that is registered with `to_container.register`.
    """
    if is_series(thing):
        return to_container(to_polars_series(thing, "X").to_list())
    if (frame := as_frame(thing)) is not None:
        images = decode_images(frame) if is_hugging_face(thing) else None
        return images or Columns(name="dataset" if is_hugging_face(thing) else "frame", frame=frame)
    return read_graphs(thing)


@to_container.register
def _(thing: ExampleContainer) -> ExampleContainer:
    return thing


@to_container.register(np.ndarray)
@to_container.register(torch.Tensor)
def _(thing: Array | torch.Tensor) -> ExampleContainer:
    return read_array(thing)


@to_container.register(Dataset)
@to_container.register(DataLoader)
def _(thing: Any) -> ExampleContainer | None:
    return to_container.dispatch(object)(thing) or read_dataset(thing)


@to_container.register
def _(thing: list) -> ExampleContainer | None:  # type: ignore[type-arg]
    return read_list(thing)


@to_container.register
def _(thing: tuple) -> ExampleContainer | None:  # type: ignore[type-arg]
    if len(thing) > 2 and _several_lengths(thing):
        raise PythonDataError(
            f"Data is a tuple of {len(thing)}, and (X, y) has two.",
            fix="Give your own splits as separate arguments, as in train(model, (X, y), test=(X_test, y_test)).",
        )
    if len(thing) != 2 or isinstance(thing[0], str):
        return read_list(thing)
    x, y = thing
    held = to_container(x)
    if y is None:
        return held
    if held is None:
        raise unsupported_object_error(x, "X")
    if held.target is not None or isinstance(held, Graphs):
        raise PythonDataError(f"X is {describe_type(x)}, which has its own targets: give it alone.")
    return replace(held, target=parse_targets(y, len(held)))


def _several_lengths(things: tuple[Any, ...]) -> bool:
    """Return whether these arrays have different shapes and so cannot be examples."""
    return len({shape for thing in things if (shape := getattr(thing, "shape", None)) is not None}) > 1


def unsupported_object_error(thing: Any, what: str = "Data") -> DataError:
    """Return the error for an unsupported object, with the list of supported ones."""
    if isinstance(thing, Iterator):
        return PythonDataError(
            f"{what} cannot be {describe_type(thing)}, which can be read once alone.", fix="Give list(DATA)."
        )
    return PythonDataError(f"{what} cannot be {describe_type(thing)}. It is the name of a data set, a path, {TAKEN}.")


def describe_type(thing: Any) -> str:
    """Return the name of an object in a sentence: an object of type torch.Tensor."""
    name = f"{type(thing).__module__.split('.')[0]}.{type(thing).__name__}".removeprefix("builtins.")
    return f"an object of type {name}"


def to_source(data: Any, val: Any = None, test: Any = None) -> tuple[Any, dict[str, Any]]:
    """Return the source for training, and settings.

    A path or a name is returned as text, and objects as `InMemorySource`. `val` and `test` are splits or, as settings,
    fractions. Raises DataError for unsupported objects, and SettingError for splits next to a path.
    """
    fractions = {name: one for name, one in (("val", val), ("test", test)) if _is_fraction(one)}
    own = {name: one for name, one in (("val", val), ("test", test)) if one is not None and name not in fractions}
    if data is None or isinstance(data, str | os.PathLike):
        for name, one in own.items():
            raise IncompatibleSettingError(
                f"{name}= is {describe_type(one)}, and a split given as an object needs data given in Python too:"
                " give a fraction, or a folder of train/, val/ and test/."
            )
        return (None if data is None else os.fspath(data)), fractions
    if isinstance(data, InMemorySource):
        return data, fractions
    if isinstance(data, Mapping) and data and set(data) <= set(NAMED_SPLITS):
        named = {NAMED_SPLITS[key]: one for key, one in data.items()}
        if "train" not in named:
            raise PythonDataError(f"A dictionary of splits has train among them, and this one has {', '.join(data)}.")
        if named["train"] is None:
            raise PythonDataError("The training split is None: give its examples.")
        if twice := [name for name in own if name in named] or [name for name in data if len(named) < len(data)]:
            raise PythonDataError(f"The {NAMED_SPLITS.get(twice[0], twice[0])} split is given twice.")
        own = {**named, **own}
        data = own.pop("train")
    for name in fractions:
        if name in own:
            raise IncompatibleSettingError(
                f"{name}={as_text(fractions[name])} is a fraction, and {name} is given: leave it out."
            )
    return InMemorySource(data, own.get("val"), own.get("test")).read(), fractions


def _is_fraction(value: Any) -> bool:
    return isinstance(value, str | float | int) and not isinstance(value, bool)


def read_list(thing: Sequence[Any]) -> ExampleContainer | None:
    """Read the examples of a list; None if its items are unsupported. Raises DataError if they differ in kind."""
    if not thing:
        raise PythonDataError(f"The data is empty: {describe_type(thing)} without an example.")
    if all(isinstance(one, str) for one in thing):
        return Texts(name="texts", texts=tuple(thing))
    if all(isinstance(one, Mapping) for one in thing):
        return Columns(name="rows", frame=rows_frame(thing))
    if all(isinstance(one, Image.Image) for one in thing):
        for i, image in enumerate(thing):
            reject_unreadable(image, f"image {i + 1}")
        return Images(name="images", images=tuple(thing))
    if all(map(is_graph, thing)):
        return read_graphs(thing)
    if (ids := _ragged(thing)) is not None:
        return ids
    if all(isinstance(one, torch.Tensor | np.ndarray) for one in thing):
        return _stacked(thing)
    if all(isinstance(one, int | float | np.number) for one in thing):
        raise PythonDataError("X is a list of numbers: each example has several, and is a list of its own.")
    if all(isinstance(one, Sequence) and not isinstance(one, str) for one in thing):
        lengths = {len(one) for one in thing}
        if len(lengths) > 1:
            _reject_shapes([(len(one),) for one in thing])
        try:
            values = np.asarray(thing)
        except (ValueError, RecursionError):  # nested lists of different lengths, or recursive ones
            raise PythonDataError(
                "The rows of X are lists of different lengths: give all examples the same shape."
            ) from None
        return Numbers(name="rows", values=validate_array(values))
    kinds = {type(one).__name__: i for i, one in reversed(list(enumerate(thing)))}
    if len(kinds) > 1:
        told = ", ".join(f"{name} (example {i + 1})" for name, i in sorted(kinds.items(), key=lambda kind: kind[1]))
        raise PythonDataError(f"This list mixes {told}: all examples must be of one kind.")
    return None


def rows_frame(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Return dictionaries as a table of text. Raises DataError if their keys differ, or a value is not a cell."""
    for i, row in enumerate(rows):
        for key, value in row.items():
            if isinstance(value, Mapping | list | tuple | set) or (np.ndim(value) > 0 if hasattr(value, "ndim") else 0):
                raise PythonDataError(
                    f"Row {i + 1} holds a {type(value).__name__} under {shorten_repr(key)}: a cell is a number, a text,"
                    " a date or yes/no.",
                    fix="Arrays with a target each are (X, y), or a torch Dataset of such pairs.",
                )
    plain = [{key: value.item() if hasattr(value, "item") else value for key, value in row.items()} for row in rows]
    return rows_table(plain).frame


def _ragged(examples: Sequence[Any]) -> ExampleContainer | None:
    """Read integer sequences of different lengths as token ids; None for anything else."""
    sized = all(hasattr(one, "__len__") and getattr(one, "ndim", 1) == 1 for one in examples)
    return read_ids(examples) if sized and len({len(one) for one in examples}) > 1 else None


def _stacked(arrays: Sequence[Any]) -> ExampleContainer:
    """Stack arrays of one shape."""
    _reject_shapes([tuple(array.shape) for array in arrays])
    if isinstance(arrays[0], torch.Tensor):
        held = read_array(torch.stack([torch.as_tensor(array) for array in arrays]))
    else:
        held = read_array(np.stack([np.asarray(array) for array in arrays]))
    return held


def _reject_shapes(shapes: Sequence[tuple[int, ...]]) -> None:
    odd = next((i for i, shape in enumerate(shapes) if shape != shapes[0]), None)
    if odd is not None:
        way = "Cut or pad them; images of several sizes can be images of Pillow, which are brought to one."
        if len(shapes) == 2 and shapes[0][:1] == shapes[1][:1]:
            way = "If they are inputs and targets, give them as a tuple, (X, y)."
        raise PythonDataError(
            f"Examples have one shape, and example 1 has {shapes[0]} where example {odd + 1} has {shapes[odd]}.",
            fix=way,
        )


TARGET = "target"  # default name of the target
HOW_TYPED = "Give it numbers, as by X.astype(float); columns of several types are a data frame."


def read_array(thing: Array | torch.Tensor) -> ExampleContainer:
    """Read the examples of an array.

    Raises DataError for an array of objects, or without examples.
    """
    if isinstance(thing, torch.Tensor):
        return Numbers(name="arrays", values=validate_array(to_numpy(thing)), channels_first=True)
    if thing.dtype.kind in "UT" and thing.ndim == 1:
        return Texts(name="texts", texts=tuple(map(str, thing.tolist())))
    if thing.dtype.kind == "O" and thing.ndim == 1 and all(isinstance(text, str) for text in thing):
        return Texts(name="texts", texts=tuple(thing.tolist()))
    of_lists = thing.dtype.kind == "O" and thing.ndim == 1  # as Keras's data sets have token ids
    ids = read_ids(thing.tolist()) if of_lists else None
    return ids or Numbers(name="arrays", values=validate_array(thing))


def validate_array(values: Array, what: str = "X") -> Array:
    """Return the array if it is numeric; raise DataError otherwise."""
    if values.dtype.kind not in "iufb":
        of = {"O": "objects, which can be anything", "c": "complex numbers"}.get(values.dtype.kind, "no numbers")
        raise PythonDataError(f"{what} is an array of {of} (dtype {values.dtype}).", fix=HOW_TYPED)
    if values.ndim > 1 and not all(values.shape[1:]):
        raise PythonDataError(f"{what} has the shape {values.shape}: each of its examples is empty.")
    if values.ndim < 2:
        raise PythonDataError(
            f"{what} has the shape {values.shape}, and its first dimension are the examples: each has none of its own.",
            fix="Of one number each, give X[:, None]; of one example, X[None].",
        )
    return values


def numbered_columns(values: Array) -> pl.DataFrame:
    """Return an array (n, F) as a table with the columns x0, x1, …"""
    return pl.DataFrame([pl.Series(f"x{k}", np.ascontiguousarray(values[:, k])) for k in range(values.shape[1])])


def as_columns(held: ExampleContainer) -> ExampleContainer:
    """Return a two-dimensional array as a table; other containers are returned unchanged."""
    if isinstance(held, Numbers) and held.values.ndim == 2:
        frame = numbered_columns(held.values)
        return Columns(name=held.name, target=held.target, notes=held.notes, frame=frame, unnamed=True)
    return held


def parse_targets(y: Any, count: int) -> pl.Series:
    """Return the targets of `count` examples as one column, as integers if all are whole.

    Raises DataError, with an explanation, if there is not exactly one per example.
    """
    name = str(getattr(y, "name", None) or TARGET)
    series = _as_series(y, name)
    if len(series) != count:
        raise PythonDataError(f"X holds {count:,} examples and y {len(series):,} targets: each example has one.")
    if series.dtype.is_float():
        series = series.fill_nan(None)
        present = series.drop_nulls()
        whole = len(present) and bool((present == present.round()).all()) and float(present.abs().max()) < 2**53  # type: ignore[arg-type]
        return series.cast(pl.Int64) if whole else series
    return series


def _as_series(y: Any, name: str) -> pl.Series:
    if is_series(y):
        return to_polars_series(y, name)
    if (frame := None if isinstance(y, np.ndarray | torch.Tensor | list | tuple) else as_frame(y)) is not None:
        if frame.width != 1:
            raise PythonDataError(f"y has {frame.width} columns, and each example has one target.")
        return frame.to_series()
    values = to_numpy(y) if isinstance(y, torch.Tensor) else _to_array(y)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        one_hot = values.ndim == 2 and values.dtype.kind in "iufb" and bool((values.sum(1) == 1).all())
        way = "Rows with a single 1 become classes by y.argmax(1)." if one_hot else "Give one of them, as in y[:, 0]."
        raise PythonDataError(f"y has the shape {values.shape}, and each example has one target, (n,).", fix=way)
    if values.dtype.kind == "O":
        strange = next((v for v in values if v is not None and not isinstance(v, str | int | float | bool)), None)
        if strange is not None:
            raise PythonDataError(f"y holds objects of type {type(strange).__name__}: targets are numbers or names.")
        missing = [v is None or v != v for v in values]
        return pl.Series(name, [None if gone else str(v) for v, gone in zip(values, missing)], dtype=pl.String)
    if values.dtype.kind not in "iufbUT":
        raise PythonDataError(f"y is an array of dtype {values.dtype}: targets are numbers or names.")
    return pl.Series(name, np.ascontiguousarray(values) if values.dtype.kind in "iufb" else values.tolist())


def _to_array(y: Any) -> Array:
    """Convert an iterable to an array."""
    if isinstance(y, np.ndarray):
        return y
    if hasattr(y, "__array__"):
        return np.asarray(y)
    if isinstance(y, str | bytes | dict) or not hasattr(y, "__iter__"):
        raise PythonDataError(f"Invalid y={shorten_repr(y)}: must hold one target for each example.")
    values = list(y)
    if values and all(isinstance(v, torch.Tensor) for v in values):
        values = [v.item() if v.ndim == 0 or v.numel() == 1 else v for v in values]
    try:
        found = np.asarray(values)
    except ValueError:  # of several shapes
        raise PythonDataError("y holds sequences of different lengths: give one target for each example.") from None
    mixed = found.dtype.kind in "UT" and not all(isinstance(v, str) for v in values)
    return np.array(values, dtype=object) if mixed else found


MOST = 1_000_000  # maximum examples of an iterable Dataset without a length
MOST_BYTES = 4 << 30  # and their maximum size
OBJECT = 64  # minimum bytes of an example
LARGER = "Larger data is trained on from files (`cutaway prepare`)."
ONCE = "The Dataset is read once, before training: what its transform draws at random is drawn once."


def read_dataset(thing: Any) -> ExampleContainer | None:
    """Read the examples of a Dataset; None if its items are unsupported.

    Raises DataError if it has no length or does not end, or for an item of another form.
    """
    if isinstance(thing, DataLoader):
        raise PythonDataError("This is a DataLoader, and data is split and batched here.", fix="Give loader.dataset.")
    name = type(thing).__name__
    if isinstance(thing, TensorDataset):
        items: Any = thing.tensors
        if len(items) > 2:
            raise PythonDataError(f"Its items have {len(items)} tensors: an item is (x, y), or x alone.")
        return _with_targets(read_array(items[0]), items[1] if len(items) == 2 else None, thing, note=False)
    items = list(_items(thing, name))
    if not items:
        raise PythonDataError(f"The {name} holds no example.")
    if all(map(is_graph, items)):
        return read_graphs(items[0] if len(items) == 1 else items)
    pairs = [isinstance(item, tuple | list) and len(item) == 2 for item in items]
    if all(pairs):
        return _with_targets(_inputs([x for x, _ in items], name), [y for _, y in items], thing)
    odd = next((i for i, item in enumerate(items) if isinstance(item, tuple | list)), None)
    if odd is not None:
        raise PythonDataError(
            f"Item {odd + 1} of the {name} holds {len(items[odd])} things: an item is (x, y), or x alone."
        )
    return _with_targets(_inputs(items, name), None, thing)


def _inputs(examples: list[Any], name: str) -> ExampleContainer:
    held = read_list([_tensors_to_numbers(x) for x in examples])
    if held is None:
        raise PythonDataError(
            f"The inputs of the {name} are of type {type(examples[0]).__name__}: they can be tensors, arrays, images "
            "of Pillow, texts or dictionaries of cells."
        )
    return held


def _tensors_to_numbers(x: Any) -> Any:
    """Convert one-element tensors in a dictionary to numbers. Other values are returned unchanged."""
    if isinstance(x, Mapping):
        return {key: v.item() if isinstance(v, torch.Tensor) and v.numel() == 1 else v for key, v in x.items()}
    return x


def _with_targets(held: ExampleContainer, y: Any, dataset: Any, note: bool = True) -> ExampleContainer:
    target = None if y is None else parse_targets(y, len(held))
    names = getattr(dataset, "classes", None)
    if target is not None and target.dtype.is_integer() and isinstance(names, list | tuple) and names:
        known = dict(enumerate(map(str, names)))
        if set(target.drop_nulls().unique()) <= set(known):
            target = target.replace_strict(known, default=None)
    notes = (*held.notes, *([ONCE] if note and not isinstance(held, Columns) else ()))
    return replace(held, name="dataset", target=target, notes=notes)


def _items(dataset: Any, name: str) -> Iterator[Any]:
    """Yield every item, in order.

    Raises DataError for a map-style Dataset without a length, for an iterable one that does not end, and for an
    unreadable item.
    """
    has_length = hasattr(dataset, "__len__")
    iterable = isinstance(dataset, IterableDataset)
    if not iterable and not has_length:
        raise PythonDataError(
            f"The {name} has no length, so that nobody knows when it ends.",
            fix="Give it a method __len__; or let it be an IterableDataset, which is read to its end.",
        )
    try:
        count = len(dataset) if has_length else 0
    except Exception as error:  # the Dataset's own __len__
        raise PythonDataError(f"The length of the {name} cannot be read: {printable(str(error))[:200]}.") from error
    each = iter(dataset) if iterable else (dataset[i] for i in range(count))
    bytes_read = 0
    for i in itertools.count():
        try:
            item = next(each)
        except StopIteration:
            return
        except Exception as error:
            raise PythonDataError(
                f"Item {i + 1} of the {name} cannot be read: {type(error).__name__}: {printable(str(error))[:200]}"
            ) from error
        things = item if isinstance(item, tuple | list) else (item,)
        held = sum(thing.nbytes for thing in things if hasattr(thing, "nbytes"))
        if i == 0 and count * max(held, OBJECT) > READ_AT_MOST * total_memory():
            raise PythonDataError(
                f"The {name} has {count:,} examples, which would take {count * max(held, OBJECT) / 2**30:,.0f} GiB: "
                f"data given in Python is held in memory, and {total_memory() / 2**30:.0f} GiB are here.",
                fix=LARGER,
            )
        bytes_read += held
        if iterable and not has_length and (i >= MOST or bytes_read > MOST_BYTES):
            raise PythonDataError(
                f"The {name} has not ended after {i:,} examples, and data given in Python is held in memory.",
                fix=f"Let it end, as by itertools.islice. {LARGER}",
            )
        yield item


BESIDE = ("x", "edge_attr", "y")  # attributes of nodes, edges and the graph


def is_graph(thing: Any) -> bool:
    """Return whether the object is PyTorch Geometric's Data, or has its attributes."""
    return hasattr(thing, "edge_index")


def read_graphs(thing: Any) -> Graphs | None:
    """Read a graph, or a list of graphs; None if the object is neither. Raises DataError if the graphs do not match."""
    if is_graph(thing):
        return Graphs(name="graph", graphs=read_data(thing))
    if isinstance(thing, list | tuple) and thing and all(map(is_graph, thing)):
        return Graphs(name="graphs", graphs=read_data(collate_graphs(thing)))
    return None


def collate_graphs(graphs: Sequence[Any]) -> Any:
    """Collate graphs into a batch like PyTorch Geometric: an object with the attributes of Data."""
    sizes = [_nodes(graph) for graph in graphs]
    starts = np.cumsum([0, *sizes])
    for i, size in enumerate(sizes):
        if not size:
            raise PythonDataError(f"Graph {i + 1} has no nodes: leave it out.")
    edges = [read_edges(graph, f"graph {i + 1}").reshape(2, -1) for i, graph in enumerate(graphs)]
    for i, (own, size) in enumerate(zip(edges, sizes)):
        if own.size and (own.min() < 0 or own.max() >= size):
            raise PythonDataError(
                f"edge_index of graph {i + 1} names node {own.max()}, and it has {size:,} nodes, from 0."
            )
    batch = SimpleNamespace(
        edge_index=np.concatenate([own + start for own, start in zip(edges, starts)], axis=1),
        num_nodes=int(starts[-1]),
        batch=np.repeat(np.arange(len(graphs)), sizes),
    )
    for name in BESIDE:
        found = [getattr(graph, name, None) for graph in graphs]
        absent = [i for i, one in enumerate(found) if one is None]
        if len(absent) == len(graphs):
            continue
        if absent:
            raise PythonDataError(f"Graph {absent[0] + 1} has no {name}, and others have: give it to all, or to none.")
        setattr(batch, name, _concatenate(name, [to_array(one) for one in found]))
    for name in NOT_READ:  # reported to the user
        setattr(batch, name, next((1 for graph in graphs if getattr(graph, name, None) is not None), None))
    return batch


def _concatenate(name: str, arrays: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Concatenate an attribute of all graphs."""
    if name == "y":
        many = next((i for i, y in enumerate(arrays) if y.size != 1), None)
        if many is not None:
            raise PythonDataError(
                f"y of graph {many + 1} has the shape {arrays[many].shape}: of a list of graphs each has one target.",
                fix="Targets of nodes are learned from one graph; give y[:, k] of several targets.",
            )
        return np.array([y.reshape(()) for y in arrays])
    flat = [array.reshape(len(array), -1) for array in arrays]
    odd = next((i for i, one in enumerate(flat) if one.shape[1] != flat[0].shape[1]), None)
    if odd is not None:
        first, other = flat[0].shape[1], flat[odd].shape[1]
        raise PythonDataError(f"{name} of graph 1 has {first} features, and of graph {odd + 1} it has {other}.")
    return np.concatenate(flat)


def _nodes(graph: Any) -> int:
    x = getattr(graph, "x", None)
    return len(x) if x is not None else int(getattr(graph, "num_nodes", 0) or 0)
