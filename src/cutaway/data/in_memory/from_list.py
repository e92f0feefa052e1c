"""Readers of lists with one example per item: dictionaries, texts, Pillow images, arrays, rows, token ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import torch
from PIL import Image

from ...core.errors import DataError, shorten_repr
from ..images.image_files import reject_unreadable
from ..tables.table_files import rows_table
from .container import Columns, ExampleContainer, Images, Numbers, Texts
from .from_arrays import read_array, validate_array
from .from_pyg import is_graph, read_graphs
from .from_token_ids import read_ids


def read_list(thing: Any) -> ExampleContainer | None:
    """Read the examples of a list; None if the object is not a list. Raises DataError if the items differ in kind."""
    if not isinstance(thing, list | tuple) or not thing:
        return None
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
        raise DataError("X is a list of numbers: each example has several, and is a list of its own.")
    if all(isinstance(one, Sequence) and not isinstance(one, str) for one in thing):
        lengths = {len(one) for one in thing}
        if len(lengths) > 1:
            _reject_shapes([(len(one),) for one in thing])
        try:
            values = np.asarray(thing)
        except (ValueError, RecursionError):  # nested lists of different lengths, or recursive ones
            raise DataError("The rows of X hold lists of several lengths: each example has one shape.") from None
        return Numbers(name="rows", values=validate_array(values))
    kinds = {type(one).__name__: i for i, one in reversed(list(enumerate(thing)))}
    if len(kinds) > 1:
        told = ", ".join(f"{name} (example {i + 1})" for name, i in sorted(kinds.items(), key=lambda kind: kind[1]))
        raise DataError(f"A list of data holds examples of one kind, and this one mixes {told}.")
    return None


def rows_frame(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Return dictionaries as a table of text. Raises DataError if their keys differ, or a value is not a cell."""
    for i, row in enumerate(rows):
        for key, value in row.items():
            if isinstance(value, Mapping | list | tuple | set) or (np.ndim(value) > 0 if hasattr(value, "ndim") else 0):
                raise DataError(
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
    assert held is not None
    return held


def _reject_shapes(shapes: Sequence[tuple[int, ...]]) -> None:
    odd = next((i for i, shape in enumerate(shapes) if shape != shapes[0]), None)
    if odd is not None:
        way = "Cut or pad them; images of several sizes can be images of Pillow, which are brought to one."
        if len(shapes) == 2 and shapes[0][:1] == shapes[1][:1]:
            way = "If they are inputs and targets, give them as a tuple, (X, y)."
        raise DataError(
            f"Examples have one shape, and example 1 has {shapes[0]} where example {odd + 1} has {shapes[odd]}.",
            fix=way,
        )
