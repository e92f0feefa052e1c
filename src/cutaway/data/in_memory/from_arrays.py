"""Readers of NumPy arrays and PyTorch tensors, and of the targets in (X, y).

An array has one dimension more than an example: (n, F) rows of a table, (n, T, F) series, (n, C, H, W) or (n, H, W, C)
images. Its kind is inferred later from the kinds that the model accepts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import torch

from ...core.errors import DataError, shorten_repr
from ..dataset_base import to_numpy
from .container import Array, Columns, ExampleContainer, Numbers, Texts
from .from_dataframe import as_frame, is_series, to_polars_series
from .from_token_ids import read_ids

TARGET = "target"  # default name of the target
HOW_TYPED = "Give it numbers, as by X.astype(float); columns of several types are a data frame."


def read_array(thing: Any) -> ExampleContainer | None:
    """Read the examples of an array; None if the object is not an array.

    Raises DataError for an array of objects, or without examples.
    """
    if isinstance(thing, torch.Tensor):
        return Numbers(name="arrays", values=validate_array(to_numpy(thing)), channels_first=True)
    if not isinstance(thing, np.ndarray):
        return None
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
        raise DataError(f"{what} is an array of {of} (dtype {values.dtype}).", fix=HOW_TYPED)
    if values.ndim > 1 and not all(values.shape[1:]):
        raise DataError(f"{what} has the shape {values.shape}: each of its examples is empty.")
    if values.ndim < 2:
        raise DataError(
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
        raise DataError(f"X holds {count:,} examples and y {len(series):,} targets: each example has one.")
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
            raise DataError(f"y has {frame.width} columns, and each example has one target.")
        return frame.to_series()
    values = to_numpy(y) if isinstance(y, torch.Tensor) else _to_array(y)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        one_hot = values.ndim == 2 and values.dtype.kind in "iufb" and bool((values.sum(1) == 1).all())
        way = "Rows with a single 1 become classes by y.argmax(1)." if one_hot else "Give one of them, as in y[:, 0]."
        raise DataError(f"y has the shape {values.shape}, and each example has one target, (n,).", fix=way)
    if values.dtype.kind == "O":
        strange = next((v for v in values if v is not None and not isinstance(v, str | int | float | bool)), None)
        if strange is not None:
            raise DataError(f"y holds objects of type {type(strange).__name__}: targets are numbers or names.")
        missing = [v is None or v != v for v in values]
        return pl.Series(name, [None if gone else str(v) for v, gone in zip(values, missing)], dtype=pl.String)
    if values.dtype.kind not in "iufbUT":
        raise DataError(f"y is an array of dtype {values.dtype}: targets are numbers or names.")
    return pl.Series(name, np.ascontiguousarray(values) if values.dtype.kind in "iufb" else values.tolist())


def _to_array(y: Any) -> Array:
    """Convert an iterable to an array."""
    if isinstance(y, np.ndarray):
        return y
    if hasattr(y, "__array__"):
        return np.asarray(y)
    if isinstance(y, str | bytes | dict) or not hasattr(y, "__iter__"):
        raise DataError(f"y is {shorten_repr(y)}: it holds one target for each example.")
    values = list(y)
    if values and all(isinstance(v, torch.Tensor) for v in values):
        values = [v.item() if v.ndim == 0 or v.numel() == 1 else v for v in values]
    try:
        found = np.asarray(values)
    except ValueError:  # of several shapes
        raise DataError("y holds sequences of several lengths: each example has one target.") from None
    mixed = found.dtype.kind in "UT" and not all(isinstance(v, str) for v in values)
    return np.array(values, dtype=object) if mixed else found
