"""Python objects as new examples of a run, prepared like its training split, with or without targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from torch import Tensor
from torch.utils.data import Dataset

from ...core.errors import DataError
from ...core.spec import Classes, Value
from ..dataset_base import Preprocessing, Split
from ..graphs.transforms import GraphPreprocessing
from ..images.transforms import ArrayPreprocessing, ImagePreprocessing
from ..series.transforms import ForecastPreprocessing, SeriesPreprocessing
from ..tables.delimited import KEPT, Form
from ..tables.table_files import frame_table
from ..tables.targets import read_targets
from ..tables.transforms import TablePreprocessing
from ..text.corpus_files import TextFile
from ..text.tokenizers import IDS
from ..text.transforms import TextPreprocessing
from .build import to_image_sources, to_table
from .container import Columns, ExampleContainer, Graphs, Images, Numbers, Texts, as_ids
from .from_dataframe import as_frame
from .source import TARGET, as_columns, describe_type, is_graph, parse_object


def is_collection(sources: Any, preprocessing: Preprocessing) -> bool:
    """Return whether the argument of `predict` is one object with examples, not a list of paths, rows or images."""
    if not isinstance(sources, list | tuple):
        return True
    first = sources[0] if sources else ""
    if is_graph(first):
        return isinstance(preprocessing, GraphPreprocessing) and preprocessing.spec.graph_level
    if isinstance(first, np.ndarray):
        return not isinstance(preprocessing, ImagePreprocessing | SeriesPreprocessing)
    return isinstance(first, Tensor | list | tuple)


def is_batch(thing: Any, preprocessing: Preprocessing) -> bool:
    """Return whether an object holds several examples, as for `train`, and is not a single example.

    A single example is a path, a text, a row, an image or, for series, one array (T, F).
    """
    if isinstance(thing, np.ndarray):
        if isinstance(preprocessing, ImagePreprocessing):
            return not (thing.ndim == 2 or (thing.ndim == 3 and thing.shape[2] in (3, 4)))
        return not (isinstance(preprocessing, SeriesPreprocessing) and thing.shape == preprocessing.spec.shape)
    return isinstance(thing, Tensor | Dataset | list | tuple) or is_graph(thing) or as_frame(thing) is not None


def prepare_inputs(thing: Any, preprocessing: Preprocessing) -> Any:
    """Return the inputs of an object in the form that `examples` of a run's preprocessing expects.

    Targets are ignored. Raises DataError if the object is of another kind than the run's data.
    """
    held = replace(_as_learned(parse_object(thing), preprocessing), target=None)
    if isinstance(held, Numbers) and _takes_rows(preprocessing):
        held = as_columns(held)
    if isinstance(held, Columns) and _takes_rows(preprocessing):
        return [to_table(_as_wide(held, preprocessing), form=_form(preprocessing))[0]]
    if isinstance(held, Texts):
        return [{"text": text} for text in held.texts]
    if isinstance(held, Graphs) and isinstance(preprocessing, GraphPreprocessing):
        return [held.graphs]
    if isinstance(held, Images | Numbers) and isinstance(preprocessing, ImagePreprocessing | ArrayPreprocessing):
        return to_image_sources(held, preprocessing)
    if isinstance(held, Numbers) and isinstance(preprocessing, SeriesPreprocessing):
        return _series(held, preprocessing)
    raise _other_kind(thing, preprocessing)


def prepare_labelled(thing: Any, preprocessing: Preprocessing) -> Split:
    """Return an object's examples with their targets, as a split.

    Raises DataError if there are no targets, or classes that were not in the training data.
    """
    held = _as_learned(parse_object(thing), preprocessing)
    target = preprocessing.spec.target
    if isinstance(held, Numbers) and _takes_rows(preprocessing):
        held = as_columns(held)
    if isinstance(held, Columns) and _takes_rows(preprocessing):
        if held.unnamed:
            _required(held)
        table = to_table(_as_wide(held, preprocessing), target.column, _form(preprocessing))[0]
        rows: Split = preprocessing.labelled(table)  # type: ignore[arg-type]  # those that take rows take tables
        return rows
    if isinstance(held, Texts) and isinstance(preprocessing, TextPreprocessing):
        column = preprocessing.column
        frame = pl.DataFrame({column: list(held.texts)}).with_columns(_required(held).alias(target.column))
        return preprocessing.labelled(frame_table(frame, form=_form(preprocessing)))
    if isinstance(held, Texts) and hasattr(preprocessing, "of_texts"):
        read = [TextFile(f"text {i + 1}", text) for i, text in enumerate(held.texts)]
        found: Split = preprocessing.of_texts(read)
        return found
    if isinstance(held, Graphs) and isinstance(preprocessing, GraphPreprocessing):
        return preprocessing.labelled(held.graphs)
    if isinstance(held, Images | Numbers) and isinstance(
        preprocessing, ImagePreprocessing | ArrayPreprocessing | SeriesPreprocessing
    ):
        assert isinstance(target, Classes | Value) or target.classes, "what arrays are trained for"
        prepared: Split = preprocessing.examples(prepare_inputs(held, preprocessing))
        prepared.target = _targets(_required(held), target)
        return prepared
    raise _other_kind(thing, preprocessing)


def _as_learned(held: ExampleContainer, preprocessing: Preprocessing) -> ExampleContainer:
    """Return token ids if the run was trained on token ids; other containers are returned unchanged.

    Raises DataError for token ids if the run was trained on texts, and the reverse.
    """
    of_ids = isinstance(preprocessing, TextPreprocessing) and preprocessing.tokenizer.kind == IDS
    held = as_ids(held) if of_ids else held
    if isinstance(held, Texts) and held.ids != of_ids:
        learned, given = ("token ids", "texts") if of_ids else (f"{preprocessing.spec.kind} data", "token ids")
        raise DataError(
            f"The run learned from {learned}, and these are {given}: give the same kind of data as in training."
        )
    return held


def _takes_rows(preprocessing: Preprocessing) -> bool:
    """Return whether a preprocessing reads rows of named columns."""
    graphs = isinstance(preprocessing, GraphPreprocessing) and bool(preprocessing.smiles)
    return graphs or isinstance(preprocessing, TablePreprocessing | TextPreprocessing | ForecastPreprocessing)


def _as_wide(held: Columns, preprocessing: Preprocessing) -> Columns:
    """Return the rows if an array has as many columns as in training; raise DataError otherwise.

    Columns of an array have no names by which an extra column would be noticed.
    """
    wide = getattr(preprocessing, "width", 0)
    if held.unnamed and wide and held.frame.width != wide:
        raise DataError(f"X has {held.frame.width} columns, and the model was trained on {wide}.")
    return held


def _form(preprocessing: Preprocessing) -> Form:
    """Return the format of the training table, or the default if the run was not trained on a table."""
    form: Form = getattr(preprocessing, "written", KEPT)
    return form


def _series(held: Numbers, preprocessing: SeriesPreprocessing) -> Sequence[Any]:
    """Return whole series, one array each. Raises DataError if their shape differs from training."""
    values = held.values[:, :, None] if held.values.ndim == 2 else held.values
    if values.shape[1:] != preprocessing.spec.shape:
        raise DataError(f"X has series of shape {values.shape[1:]}, and the model takes {preprocessing.spec.shape}.")
    return list(values)


def _required(held: ExampleContainer) -> pl.Series:
    if held.target is None:
        raise DataError("There is nothing to compare predictions with: give (X, y).")
    return held.target


def _targets(target: pl.Series, learned: Any) -> Tensor:
    """Convert targets as in training. Raises DataError for missing targets or unknown classes."""
    column = learned.column or TARGET
    return read_targets(frame_table(target.alias(column).to_frame()), column, learned)


def _other_kind(thing: Any, preprocessing: Preprocessing) -> DataError:
    kind, target = preprocessing.spec.kind, preprocessing.spec.target.column
    return DataError(
        f"The run learned the {target} of {kind} data, and this is {describe_type(thing)}, which holds none.",
        fix="Give the kind of object that it was trained on, or a path.",
    )
