"""Python objects as data sets, and as new examples of a run.

Data sets are built by the same functions as from files. Given splits are concatenated; missing splits are drawn from
the training split. Arrays and Pillow images are image data: bytes are treated like image files, and other numbers are
not rounded. New examples, with or without targets, are prepared like the run's training split.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from ...core.errors import (
    DataError,
    DataMismatchError,
    IncompatibleSettingError,
    NotEnoughDataError,
    PythonDataError,
    SettingError,
)
from ...core.spec import Classes, GeneratedImage, ImageSizes, ImageSpec, SeriesSpec, Target, Unlabelled, Value, Views
from ..build import DatasetBuilder, DataSource, DuplicateKeys, ExampleClasses, build_dataset
from ..dataset_base import IN_MEMORY, DataSet, Preprocessing, Split, TensorSplit
from ..episodes import to_episodes
from ..findings import duplicate_warning, missing_class_findings
from ..graphs.transforms import GraphPreprocessing
from ..images.dataset import (
    SAMPLE,
    build_in_memory_splits,
    choose_channels,
    choose_size,
    prepare_in_memory,
    split_images,
)
from ..images.image_files import as_pixels, read_image
from ..images.transforms import (
    ArrayPreprocessing,
    ImagePreprocessing,
    Levels,
    Shape,
    build_image_target,
    fit_preprocessing,
    reject_non_finite,
    scale_for_generation,
)
from ..modalities import reject_changed
from ..series.dataset import series_dataset
from ..series.transforms import ForecastPreprocessing, SeriesPreprocessing
from ..settings import DataSettings
from ..splits import Rows, sample_rows
from ..tables.column_roles import Labels, check_learnable, read_labels, read_targets
from ..tables.dataset import table_dataset
from ..tables.delimited import KEPT, Form
from ..tables.table_files import Table, concatenate_tables, frame_table
from ..tables.transforms import TablePreprocessing
from ..text.text_files import TextFile
from ..text.tokenizers import IDS
from ..text.transforms import TextPreprocessing
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
    example_digests,
    example_names,
)
from .source import TARGET, InMemorySource, as_columns, describe_type, is_graph, parse_object

OF_CSV = ("separator", "decimal", "encoding", "header", "quoting")
IN_FILES = (*OF_CSV, "memory", "workers")
OF_FORECASTS = (
    "forecast", "ignore", "time", "lookback", "horizon", "season_length", "known_future", "gaps", "id", "missing",
    "calendar", "missing_values", *OF_CSV,
)  # fmt: skip
UNLABELLED = "X has no targets, and this model needs them: give (X, y)."


def open_in_memory(
    given: InMemorySource, kind: str, settings: DataSettings, sizes: ImageSizes, targets: tuple[type[Target], ...]
) -> DataSet:
    """Build the data set of Python objects, read as data of this kind. Raises DataError, SettingError, UnknownName."""
    first = given.train
    origin = DataSource(
        first.name,
        IN_MEMORY,
        given.fingerprint,
        [n for held in given.splits.values() for n in held.notes],
        given.weights,
    )
    if isinstance(first, Graphs):
        return _graphs(given, origin, settings)
    if kind == "text" and not isinstance(first, Columns):
        return _texts(given, origin, settings, targets)
    if kind in ("series", "image") and isinstance(first, Numbers | Images):
        return _arrays(given, kind, origin, settings, sizes, targets)
    return _columns(given, kind, origin, settings)


def to_table(held: ExampleContainer, target: str = "", form: Form = KEPT) -> tuple[Table, str | None]:
    """Return columns as a table with the targets as its last column, and that column's name.

    `target` is the name to use, and `form` defines the words for missing cells. Raises DataError if a column already
    has that name.
    """
    held = as_columns(held)
    assert isinstance(held, Columns)
    frame, name = held.frame, None
    if held.target is not None:
        name = target or held.target.name or TARGET
        if name in frame.columns:
            raise PythonDataError(
                f"X has a column {name!r}, which is what y is called.", fix="Name y otherwise, or take it out of X."
            )
        frame = frame.with_columns(held.target.alias(name))
    typed = [cells for cells in held.frame if cells.dtype.is_float() or _is_exact(cells)]
    numbers = {cells.name: cells.cast(pl.Float64).fill_nan(None) for cells in typed}
    return replace(frame_table(frame, form=form), numbers=numbers), name


def _is_exact(cells: pl.Series) -> bool:
    """Return whether these are whole numbers that a float64 can represent; ids of 18 digits stay text."""
    if cells.dtype not in (pl.Int64, pl.UInt64):
        return cells.dtype.is_integer()
    return bool(cells.eq_missing(cells.cast(pl.Float64).cast(cells.dtype, strict=False)).all())


def _columns(given: InMemorySource, kind: str, origin: DataSource, settings: DataSettings) -> DataSet:
    """Build a data set of named columns: a table, texts, a series or molecules, depending on the settings."""
    why = "is for files, and this table is in memory"
    reject_changed(settings, IN_FILES, why)
    target = as_columns(given.train).target
    if target is not None:
        if settings.target is not None:
            raise IncompatibleSettingError(
                f"target={settings.target} names a column, and y is the target: leave one of them out."
            )
        name = target.name or TARGET
        settings = replace(settings, target=name, types=(*settings.types, *_typed(target, name, settings)))
    elif settings.target is None and kind == "table" and not isinstance(given.train, Columns):
        raise PythonDataError(UNLABELLED)
    form = Form.from_settings(settings)
    tables: dict[str, Table] = {}
    for split, held in given.splits.items():  # all splits use the units of the first, train
        tables[split], _ = to_table(held, settings.target or "", form)
        form = replace(form, units=next(iter(tables.values())).form.units)
    table, rows = concatenate_tables(tables)
    splits = rows if len(rows) > 1 else None
    if kind == "table":
        data = table_dataset(table, origin, settings, splits)
        first = as_columns(given.train)
        if isinstance(first, Columns) and first.unnamed:
            assert isinstance(data.preprocessing, TablePreprocessing)
            data.preprocessing = replace(data.preprocessing, width=first.frame.width)
        return data
    if kind == "text":
        from ..text.dataset import table_dataset as text_dataset

        return text_dataset(table, origin, settings, splits)
    if kind == "graph":
        from ..graphs.dataset import graph_dataset
        from ..graphs.molecules import read_molecules

        if splits is not None:
            raise SettingError("val= and test= of molecules are fractions, and no tables: give one with all of them.")
        graphs = read_molecules(table, settings.smiles or "", table.form, settings.missing == "drop")
        return graph_dataset(graphs, origin, settings)
    if splits is not None and len(splits) < 3:
        raise IncompatibleSettingError(
            "A series is split in time: give val and test both, which follow train, or neither."
        )
    borders = [int(own[-1]) + 1 for own in splits.values()] if splits is not None else None
    return series_dataset(table, origin, settings, borders)


def _typed(target: pl.Series, name: str, settings: DataSettings) -> list[str]:
    """Return the entry of `types` for a target with a floating-point type, unless the user gave one."""
    if any(word.rpartition(":")[0].strip() == name for word in settings.types):
        return []
    return [f"{name}:number"] if target.dtype.is_float() else []


def _texts(
    given: InMemorySource, origin: DataSource, settings: DataSettings, targets: tuple[type[Target], ...]
) -> DataSet:
    """Build a data set of texts or token ids with one target each, or of documents for language modelling."""
    splits = {split: as_ids(held) for split, held in given.splits.items()}
    first = splits["train"]
    assert isinstance(first, Texts)
    if first.target is not None:
        from ..text.dataset import dataset_from_columns
        from ..text.text_files import TEXT
        from ..text.tokenizers import IDS

        reject_changed(settings, ("text", "target", "group", *OF_CSV), "is for tables, and this is (texts, y)")
        name = first.target.name or TARGET
        tables = {
            split: frame_table(
                pl.DataFrame({TEXT: _list(held)}).with_columns(held.target.alias(name)),
                form=Form.from_settings(settings),
            )
            for split, held in splits.items()
            if held.target is not None
        }
        table, rows = concatenate_tables(tables)
        own, cut = rows if len(rows) > 1 else None, IDS if first.ids else "words"
        return dataset_from_columns(table, TEXT, name, None, origin, settings, own, cut)
    if first.ids:
        raise PythonDataError(
            "These are token ids without targets, and a language is learned from texts: give (ids, y), or the texts."
        )
    from ..text.corpus import predicts_context, texts_dataset
    from ..text.text_files import TextFile, join_texts
    from ..text.word2vec_dataset import context_dataset

    reject_changed(settings, ("text", "target", "group", *OF_CSV), "is for tables, and these are texts alone")
    read = {
        split: [TextFile(f"text {i + 1}", text) for i, text in enumerate(_list(held)) if text.strip()]
        for split, held in splits.items()
    }
    for split, found in read.items():
        if not found:
            raise NotEnoughDataError(f"The texts of {split} are all empty.")
    if predicts_context(targets):
        return context_dataset({s: join_texts([f"{r.text}\n" for r in of]) for s, of in read.items()}, origin, settings)
    return texts_dataset(read, origin, settings, targets)


def _list(held: ExampleContainer) -> list[str]:
    assert isinstance(held, Texts)
    return list(held.texts)


def _graphs(given: InMemorySource, origin: DataSource, settings: DataSettings) -> DataSet:
    """Build a data set of one graph, or of several graphs, which may come in splits."""
    from ..graphs.dataset import graph_dataset
    from ..graphs.splits import merge_graphs

    reject_changed(settings, ("smiles", *OF_CSV), "is for tables, and this is a graph")
    parts = {split: held.graphs for split, held in given.splits.items() if isinstance(held, Graphs)}
    graphs = parts["train"]
    if len(parts) > 1:
        together, rows = concatenate_tables(
            {split: part.targets or _no_targets(split) for split, part in parts.items()}
        )
        names = example_names(given.splits, list(parts), "graph")
        whole = merge_graphs([replace(part, title="the graphs") for part in parts.values()])
        graphs = replace(whole, title="the graphs", graph_names=names, targets=together, splits=rows)
    return graph_dataset(graphs, origin, settings)


def _no_targets(split: str) -> Table:
    raise DataMismatchError(f"The graphs of {split} have no y: there is nothing to compare predictions with.")


def _arrays(
    given: InMemorySource,
    kind: str,
    origin: DataSource,
    settings: DataSettings,
    sizes: ImageSizes,
    targets: tuple[type[Target], ...],
) -> DataSet:
    """Build a data set of series or images with one target each, or without for unsupervised models."""
    splits = given.splits
    held = _concatenate(splits)
    names = example_names(splits, list(splits), "image" if kind == "image" else "series")
    ends = np.cumsum([0, *map(len, splits.values())])
    own = {split: np.arange(a, b) for split, a, b in zip(splits, ends, ends[1:])} if len(splits) > 1 else None
    labels = _read_targets(held, names, Form.from_settings(settings))
    classes: tuple[str, ...] = ()
    numbers: Array = np.zeros(len(held), np.int64)
    if labels is None:
        if not any(issubclass(target, Unlabelled | GeneratedImage) for target in targets):
            raise PythonDataError(UNLABELLED)
    elif labels.numeric:
        check_learnable(labels, np.arange(len(held)), splits=1)
    else:
        fitted = labels.fit(np.arange(len(held)))
        classes, numbers = fitted.classes, labels.tensor(fitted, np.arange(len(held))).numpy()
    value = (lambda rows: _values(labels, rows)) if labels is not None and labels.numeric else None
    if kind == "image":
        assert isinstance(held, Numbers | Images)
        return open_images(held, numbers, classes, value, own, names, origin, settings, sizes, targets)
    assert isinstance(held, Numbers)
    return _series(held, numbers, classes, value, own, names, origin, settings, targets)


def _values(labels: Labels, train: Rows) -> tuple[Value, Array]:
    """Fit the target on the training rows, and return it with all values standardised by it, (n,) float32."""
    target = labels.fit(train)
    assert isinstance(target, Value)
    return target, labels.tensor(target, np.arange(len(labels.table))).numpy()


def _read_targets(held: ExampleContainer, names: Sequence[str], form: Form) -> Labels | None:
    """Return the targets of all examples. Raises DataError that names the examples without one."""
    if held.target is None:
        return None
    column = held.target.name or TARGET
    table = replace(frame_table(held.target.alias(column).to_frame(), form=form), called=tuple(names))
    labels = read_labels(table, column, "number" if held.target.dtype.is_float() else "category")
    if problems := list(labels.problems().values()):
        raise PythonDataError(
            f"{len(problems):,} of {len(held):,} examples have no target.", problems, "Fill them in, or take them out."
        )
    return labels


def _concatenate(splits: dict[str, ExampleContainer]) -> ExampleContainer:
    """Concatenate the examples of all splits. Raises DataError if their shapes differ."""
    each = list(splits.values())
    target = None if each[0].target is None else pl.concat([_common(held.target, each) for held in each])
    if isinstance(each[0], Images):
        images = tuple(image for held in each if isinstance(held, Images) for image in held.images)
        return replace(each[0], target=target, images=images)
    arrays = [held.values for held in each if isinstance(held, Numbers)]
    for name, array in zip(splits, arrays):
        if array.shape[1:] != arrays[0].shape[1:]:
            raise PythonDataError(
                f"Examples of train have the shape {arrays[0].shape[1:]}, and of {name} {array.shape[1:]}."
            )
    assert isinstance(each[0], Numbers)
    return replace(each[0], target=target, values=arrays[0] if len(arrays) == 1 else np.concatenate(arrays))


def _common(target: pl.Series | None, each: Sequence[ExampleContainer]) -> pl.Series:
    """Return a split's targets under the name of the training targets, as text or floats if the types differ."""
    first = each[0].target
    assert target is not None
    assert first is not None
    types = {held.target.dtype for held in each if held.target is not None}
    if len(types) > 1:
        numeric = all(dtype.is_numeric() for dtype in types)
        target = target.cast(pl.Float64 if numeric else pl.String)
    return target.alias(first.name)


def _series(
    held: Numbers,
    numbers: Array,
    classes: Sequence[str],
    value: Any,
    own: dict[str, Rows] | None,
    names: Sequence[str],
    origin: DataSource,
    settings: DataSettings,
    targets: tuple[type[Target], ...],
) -> DataSet:
    """Build a data set of whole series (n, T, F), or (n, T) of one variable, with one target each."""
    reject_changed(settings, OF_FORECASTS, "is for series in tables, and these are arrays")
    series = held.values.astype(np.float64)
    series = series[:, :, None] if series.ndim == 2 else series  # (n, T, F)
    reject_non_finite(series)
    return ArraySeriesBuilder(
        series, ExampleClasses(numbers, classes, own), value, names, origin, settings, targets
    ).build()


class ArraySeriesBuilder(DatasetBuilder[SeriesPreprocessing, TensorSplit]):
    """The steps from whole series (n, T, F), with one target each, to their data set."""

    noun = "series"

    def __init__(
        self,
        series: Array,
        classes: ExampleClasses,
        value: Any,
        names: Sequence[str],
        origin: DataSource,
        settings: DataSettings,
        targets: tuple[type[Target], ...],
    ) -> None:
        super().__init__(origin, settings)
        self.series, self.classes, self.value, self.names, self.requested = series, classes, value, names, targets

    def fit(self) -> SeriesPreprocessing:
        """Fit the scale of each variable, and of numeric targets."""
        train, names = self.indices["train"], tuple(self.classes.names)
        target: Any = Views(names) if Views in self.requested else Classes(names)
        self.values: Array = self.classes.labels
        if self.value is not None:
            target, self.values = self.value(train)
        return SeriesPreprocessing.fitted(
            SeriesSpec(self.series.shape[1], self.series.shape[2], target), self.series[train]
        )

    def encode(self, split: str, rows: Rows) -> TensorSplit:
        """Return the series in memory."""
        target, names = torch.from_numpy(self.values[rows]), [self.names[i] for i in rows]
        return TensorSplit(self.preprocessing.prepare(self.series[rows]), target, names)

    def notes(self) -> list[str]:
        """Return findings on absent classes."""
        target = self.preprocessing.spec.target
        by_split = {split: part.target for split, part in self.splits.items() if part.target is not None}
        return missing_class_findings(by_split, target) if target.classes else []

    def duplicate_keys(self) -> DuplicateKeys:
        """Return a digest of each series."""
        return DuplicateKeys(example_digests(self.series), self.names.__getitem__)


LEVELS = 255
BYTES = "is for images of bytes, and these are arrays of numbers"


def to_channels_first(images: Numbers) -> Array:
    """Return an array of images (n, h, w), (n, C, h, w) or (n, h, w, C) as (n, C, h, w).

    The layout is guessed from the sizes. Unclear tensors have channels first; so have arrays, unless the last dimension
    is 1, 3 or 4 and the others are not a number of channels.
    """
    values = images.values
    if values.ndim == 3:
        return values[:, None]
    first, last = values.shape[1], values.shape[3]
    if images.channels_first:
        is_last = last in (1, 3) and first > 4
    else:
        is_last = last in (1, 3, 4) and (first not in (1, 3) or first > values.shape[2] > last)
    return values.transpose(0, 3, 1, 2) if is_last else values


def to_uint8(values: Array) -> Array | None:
    """Return images (n, C, h, w) as levels 0…255 if this is exact; None otherwise.

    The values must be such levels, or exactly these divided by 255, with one or three channels.
    """
    if values.shape[1] not in (1, 3):
        return None
    if values.dtype == np.uint8:
        return values
    if values.dtype == bool:
        return values.astype(np.uint8) * np.uint8(LEVELS)
    if values.dtype.kind in "iu":
        return values.astype(np.uint8) if values.size and values.min() >= 0 and values.max() <= LEVELS else None
    if not values.size or not (values.min() >= 0 and values.max() <= 1):  # NaN is neither
        return None
    levels = np.rint(values * LEVELS)
    exact = np.array_equal((levels / LEVELS).astype(values.dtype), values) or np.array_equal(
        levels.astype(values.dtype) / np.asarray(LEVELS, values.dtype), values
    )
    return levels.astype(np.uint8) if exact else None


def open_images(
    held: Images | Numbers,
    labels: Array,
    classes: Sequence[str],
    value: Callable[[Rows], tuple[Value, Array]] | None,
    given: Mapping[str, Rows] | None,
    names: Sequence[str],
    origin: DataSource,
    settings: DataSettings,
    sizes: ImageSizes,
    targets: tuple[type[Target], ...],
) -> DataSet:
    """Build the data set of images.

    `labels` (n,) are classes, class k named `classes[k]`. For numeric targets, `value` fits the target on the training
    rows and returns the standardised values (n,) of all.
    """
    reject_changed(settings, ("missing",), "is for files, and these images are in memory")
    indices, said = split_images(labels, classes, given, settings, targets)
    fitted: Target | None = None
    if value is not None:
        fitted, labels = value(indices["train"])

    def learned(shape: Shape) -> Any:
        return fitted or build_image_target(classes, shape, targets, settings)

    if isinstance(held, Images):
        preprocessing, splits, notes = _prepare_pillow(held, labels, indices, learned, names, settings, sizes)
    else:
        values = to_channels_first(held)
        pixels = to_uint8(values)
        asked = (labels, indices, learned, settings, sizes, names)
        if pixels is None:
            preprocessing, splits, notes = _prepare_arrays(values, *asked)
        else:
            preprocessing, splits, notes = prepare_in_memory(np.ascontiguousarray(pixels), *asked)
    splits = to_episodes(splits, preprocessing.spec.target, classes)
    return build_dataset(origin, settings, indices, preprocessing, splits, [*said, *notes])


Prepared = tuple[Any, dict[str, Split], list[str | None]]


def _prepare_arrays(
    values: Array,
    labels: Array,
    indices: dict[str, Rows],
    learned: Callable[[Shape], Any],
    settings: DataSettings,
    sizes: ImageSizes,
    names: Sequence[str],
) -> Prepared:
    """Prepare images of arbitrary numbers, resized if the model requires it."""
    reject_changed(settings, ("color", "color_jitter", "memory", "workers"), BYTES)
    images: Levels = np.ascontiguousarray(values, np.float32)
    reject_non_finite(images)
    own = (images.shape[2], images.shape[3])
    shape = (images.shape[1], *sizes.choose(settings.image_size, own))
    training = images[indices["train"]]
    preprocessing = ArrayPreprocessing.fitted(ImageSpec(*shape, learned(shape)), training, settings.resize)
    splits = {
        split: preprocessing.as_split(images[rows], torch.from_numpy(labels[rows]), [names[i] for i in rows])
        for split, rows in indices.items()
    }
    low, high = training.min(), training.max()
    told = f"The images are arrays of numbers from {low:.4g} to {high:.4g}, not of bytes, and are not rounded to these."
    alike = duplicate_warning(example_digests(images), indices, names.__getitem__, "images")
    return preprocessing, splits, [told, sizes.note(own, shape[1:], settings.image_size), alike]


def _prepare_pillow(
    held: Images,
    labels: Array,
    indices: dict[str, Rows],
    learned: Callable[[Shape], Any],
    names: Sequence[str],
    settings: DataSettings,
    sizes: ImageSizes,
) -> Prepared:
    """Prepare Pillow images of any sizes, as if they were files."""
    reject_changed(settings, ("memory", "workers"), "is for image files, and these images are in memory")
    plain = [read_image(image, names[i]) for i, image in enumerate(held.images)]
    own, size, enlarged = choose_size({(i.height, i.width) for i in plain}, sizes, settings.image_size)
    shape = (choose_channels([image.mode == "L" for image in plain], settings.color), *size)
    spec = ImageSpec(*shape, learned(shape))

    def whole(i: int) -> torch.Tensor:
        return torch.from_numpy(as_pixels(read_image(plain[i], names[i], shape[0])).copy()).permute(2, 0, 1)[None]

    sample = sample_rows(indices["train"], SAMPLE, seed=settings.split_seed)
    preprocessing = scale_for_generation(fit_preprocessing(spec, map(whole, sample.tolist()), settings.resize, own))
    pixels = np.stack([preprocessing.pixels(image, names[i]) for i, image in enumerate(plain)])  # (n, H, W, C)
    levels = torch.from_numpy(pixels).permute(0, 3, 1, 2)  # (n, C, H, W)
    splits = build_in_memory_splits(levels, labels, indices, preprocessing, names, held.images.__getitem__)
    alike = duplicate_warning(
        example_digests(np.asarray(image) for image in plain), indices, names.__getitem__, "images"
    )
    return preprocessing, splits, [enlarged, alike]


def to_image_sources(held: Images | Numbers, preprocessing: Any) -> Sequence[Any]:
    """Return images as `examples` of a run's preprocessing expects them.

    Raises DataError if the run was trained on bytes and these are not bytes.
    """
    if isinstance(held, Images):
        return held.images
    values = to_channels_first(held)
    if isinstance(preprocessing, ArrayPreprocessing):
        return list(np.asarray(values, np.float32))
    pixels = to_uint8(values)
    if pixels is None:
        raise DataMismatchError(
            f"The run was trained on images of bytes, and these are numbers from {values.min():.4g} to "
            f"{values.max():.4g} with {values.shape[1]} channels.",
            fix="Give levels 0…255, or these divided by 255, of grey images or RGB.",
        )
    return [_picture(image) for image in pixels]


def _picture(pixels: Array) -> Image.Image:
    return Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))


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
        return _new_series(held, preprocessing)
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
        raise DataMismatchError(
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
        raise DataMismatchError(f"X has {held.frame.width} columns, and the model was trained on {wide}.")
    return held


def _form(preprocessing: Preprocessing) -> Form:
    """Return the format of the training table, or the default if the run was not trained on a table."""
    form: Form = getattr(preprocessing, "written", KEPT)
    return form


def _new_series(held: Numbers, preprocessing: SeriesPreprocessing) -> Sequence[Any]:
    """Return whole series, one array each. Raises DataError if their shape differs from training."""
    values = held.values[:, :, None] if held.values.ndim == 2 else held.values
    if values.shape[1:] != preprocessing.spec.shape:
        raise DataMismatchError(
            f"X has series of shape {values.shape[1:]}, and the model takes {preprocessing.spec.shape}."
        )
    return list(values)


def _required(held: ExampleContainer) -> pl.Series:
    if held.target is None:
        raise DataMismatchError("There is nothing to compare predictions with: give (X, y).")
    return held.target


def _targets(target: pl.Series, learned: Any) -> Tensor:
    """Convert targets as in training. Raises DataError for missing targets or unknown classes."""
    column = learned.column or TARGET
    return read_targets(frame_table(target.alias(column).to_frame()), column, learned)


def _other_kind(thing: Any, preprocessing: Preprocessing) -> DataError:
    kind, target = preprocessing.spec.kind, preprocessing.spec.target.column
    return DataMismatchError(
        f"The run learned the {target} of {kind} data, and this is {describe_type(thing)}, which holds none.",
        fix="Give the kind of object that it was trained on, or a path.",
    )
