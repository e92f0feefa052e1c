"""Sources of data given in Python: objects, optionally with splits."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from ...core.config import as_text
from ...core.errors import DataError, SettingError
from ..settings import DataSettings
from ..splits import SPLITS
from ..tables.table_files import not_unicode
from ..text.subword_training import reject_surrogates
from .container import Columns, ExampleContainer, Graphs, Images, Numbers, Texts
from .from_arrays import parse_targets, read_array
from .from_dataframe import as_frame, decode_images, is_hugging_face, is_series, to_polars_series
from .from_list import read_list
from .from_pyg import read_graphs
from .from_token_ids import as_ids, may_be_token_ids
from .from_torch_dataset import read_dataset

NAMED_SPLITS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "dev": "val", "test": "test"}
TAKEN = (
    "(X, y) of NumPy or PyTorch; a table of pandas, polars or Arrow with target=COLUMN; a list of dictionaries or of "
    "texts; lists of token ids, as (ids, y); images of Pillow, as (images, y); a Dataset of PyTorch or Hugging Face; a "
    "graph of PyTorch Geometric or a list of them; or a dictionary of such splits, train, val and test"
)
READERS: tuple[Callable[[Any], ExampleContainer | None], ...] = (read_graphs, read_dataset, read_array, read_list)


class InMemorySource:
    """Data given in Python, read once on first use. Two sources are equal only if they are the same object."""

    def __init__(self, train: Any, val: Any = None, test: Any = None) -> None:
        self._objects = {name: one for name, one in zip(SPLITS, (train, val, test)) if one is not None}

    def __repr__(self) -> str:
        return f"Given({', '.join(f'{name}={type(one).__name__}' for name, one in self._objects.items())})"

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
                raise DataError(f"In {name}: {error}") from error
        if any(isinstance(held, Texts) and held.ids for held in found.values()):
            found = {name: as_ids(held) for name, held in found.items()}
        first = found["train"]
        for name, other in found.items():
            if isinstance(first, Texts) and isinstance(other, Texts) and first.ids != other.ids:
                raise DataError(f"Of train and {name}, one holds token ids and one texts: give both in one form.")
            if type(other) is not type(first):
                raise DataError(
                    f"train is {describe_type(self._objects['train'])} and {name} {describe_type(self._objects[name])}:"
                    " give both in one form."
                )
            if (other.target is None) != (first.target is None):
                has, lacks = (name, "train") if first.target is None else ("train", name)
                raise DataError(f"{has} has targets beside it and {lacks} has none: give both as (X, y).")
        if isinstance(first, Graphs) and not first.graphs.many and len(found) > 1:
            raise DataError(
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
        raise DataError(
            f"X has the shape {shape}. Arrays are rows of a table (n, F), series (n, T, F), or images (n, C, H, W), "
            "(n, H, W, C) or, grey, (n, H, W)."
        )
    if len(shape) == 3 and held.values.dtype == "uint8":
        both = both[::-1]
    return next((kind for kind in both if kind in takes), both[0])


def parse_object(thing: Any) -> ExampleContainer:
    """Read an object into a container. Raises DataError if it is not supported, or has no examples."""
    try:
        held = _read(thing)
    except UnicodeEncodeError as error:
        raise DataError(f"A text of the data cannot be read: {not_unicode(error)}.") from None
    except RecursionError:
        raise DataError("The data is a list that is nested too deeply, or holds itself.") from None
    if held is None:
        raise unsupported_object_error(thing)
    if isinstance(held, Texts):
        for text in held.texts:
            reject_surrogates(text)
    if not len(held):
        raise DataError(f"The data is empty: {describe_type(thing)} without an example.")
    return held


def _read(thing: Any) -> ExampleContainer | None:
    if isinstance(thing, ExampleContainer):
        return thing
    if isinstance(thing, list | tuple) and not thing:
        raise DataError(f"The data is empty: {describe_type(thing)} without an example.")
    if isinstance(thing, tuple) and len(thing) > 2 and _several_lengths(thing):
        raise DataError(
            f"Data is a tuple of {len(thing)}, and (X, y) has two.",
            fix="Splits of your own go beside it, as in train(model, (X, y), test=(X_test, y_test)).",
        )
    if isinstance(thing, tuple) and len(thing) == 2 and not isinstance(thing[0], str):
        x, y = thing
        held = _read(x)
        if y is None:
            return held
        if held is None:
            raise unsupported_object_error(x, "X")
        if held.target is not None or isinstance(held, Graphs):
            raise DataError(f"X is {describe_type(x)}, which has its own targets: give it alone.")
        return replace(held, target=parse_targets(y, len(held)))
    if is_series(thing):
        thing = to_polars_series(thing, "X").to_list()
    if (frame := as_frame(thing)) is not None:
        images = decode_images(frame) if is_hugging_face(thing) else None
        return images or Columns(name="dataset" if is_hugging_face(thing) else "frame", frame=frame)
    return next((held for read in READERS if (held := read(thing)) is not None), None)


def _several_lengths(things: tuple[Any, ...]) -> bool:
    """Return whether these arrays have different shapes and so cannot be examples."""
    return len({shape for thing in things if (shape := getattr(thing, "shape", None)) is not None}) > 1


def unsupported_object_error(thing: Any, what: str = "Data") -> DataError:
    """Return the error for an unsupported object, with the list of supported ones."""
    if isinstance(thing, Iterator):
        return DataError(
            f"{what} cannot be {describe_type(thing)}, which can be read once alone.", fix="Give list(DATA)."
        )
    return DataError(f"{what} cannot be {describe_type(thing)}. It is the name of a data set, a path, {TAKEN}.")


def describe_type(thing: Any) -> str:
    """Return the name of an object in a sentence: an object of type torch.Tensor."""
    name = f"{type(thing).__module__.split('.')[0]}.{type(thing).__name__}".removeprefix("builtins.")
    return f"an object of type {name}"


def to_source(data: Any, val: Any = None, test: Any = None) -> tuple[Any, dict[str, Any]]:
    """Return the source for training, and settings.

    A path or a name is returned as text, and objects as `Given`. `val` and `test` are splits or, as settings,
    fractions. Raises DataError for unsupported objects, and SettingError for splits next to a path.
    """
    fractions = {name: one for name, one in (("val", val), ("test", test)) if _is_fraction(one)}
    own = {name: one for name, one in (("val", val), ("test", test)) if one is not None and name not in fractions}
    if data is None or isinstance(data, str | os.PathLike):
        for name, one in own.items():
            raise SettingError(
                f"{name}= is {describe_type(one)}, and a split of one's own goes with data that is given in Python too:"
                " give a fraction, or a folder of train/, val/ and test/."
            )
        return (None if data is None else os.fspath(data)), fractions
    if isinstance(data, InMemorySource):
        return data, fractions
    if isinstance(data, Mapping) and data and set(data) <= set(NAMED_SPLITS):
        named = {NAMED_SPLITS[key]: one for key, one in data.items()}
        if "train" not in named:
            raise DataError(f"A dictionary of splits has train among them, and this one has {', '.join(data)}.")
        if named["train"] is None:
            raise DataError("The training split is None: give its examples.")
        if twice := [name for name in own if name in named] or [name for name in data if len(named) < len(data)]:
            raise DataError(f"The {NAMED_SPLITS.get(twice[0], twice[0])} split is given twice.")
        own = {**named, **own}
        data = own.pop("train")
    for name in fractions:
        if name in own:
            raise SettingError(f"{name}={as_text(fractions[name])} is a fraction, and {name} is given: leave it out.")
    return InMemorySource(data, own.get("val"), own.get("test")).read(), fractions


def _is_fraction(value: Any) -> bool:
    return isinstance(value, str | float | int) and not isinstance(value, bool)
