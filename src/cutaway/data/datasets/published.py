"""Built-in data sets that are read from published files."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch

from ...core.errors import DataError
from ...core.spec import Classes, SeriesSpec, Views
from ..build import DataSource, build_dataset
from ..dataset_base import DataSet, TensorSplit
from ..images.build import image_dataset
from ..series.transforms import SeriesPreprocessing
from ..splits import complete_split
from ..tables.dataset import table_dataset
from ..tables.table_files import frame_table, read_table
from .catalog import NamedSet, Request
from .download import file_sha256
from .formats import checked_labels, read_cifar, read_labelled_idx, read_pickle

DIGITS = ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
GARMENTS = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
CIFAR_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR_FILE = 10_000  # images per file of CIFAR-10
# Redundant columns of the Titanic table, and columns derived from others (sex and age; sibsp, parch).
TITANIC_TWINS = (("survived", "alive"), ("pclass", "class"), ("embarked", "embark_town"))
TITANIC_DERIVED = ("who", "adult_male", "alone")


def open_idx(request: Request, classes: Sequence[str]) -> DataSet:
    """Load MNIST or a data set of the same format: four IDX files, a training and a test split."""
    place = request.place
    train, train_labels = read_labelled_idx(
        place / "train-images-idx3-ubyte.gz", place / "train-labels-idx1-ubyte.gz", len(classes)
    )
    test, test_labels = read_labelled_idx(
        place / "t10k-images-idx3-ubyte.gz", place / "t10k-labels-idx1-ubyte.gz", len(classes)
    )
    return image_dataset(
        np.concatenate([train, test])[:, None],  # (n, 1, 28, 28)
        np.concatenate([train_labels, test_labels]),
        classes,
        published_source(request),
        request.settings,
        request.sizes,
        _consecutive(len(train), len(test)),
        request.targets,
    )


def open_cifar10(request: Request) -> DataSet:
    """Load CIFAR-10, or the files of it that are available."""
    named, place = request.named, request.place
    files = [file for file in named.sums if (place / file).is_file()]  # the test file is the last
    read = [read_cifar(place / file) for file in files]
    *batches, test = (len(labels) for _, labels in read)
    sums = file_hashes(place, files)
    whole = {file: sums[file] for file, (_, labels) in zip(files, read) if len(labels) == CIFAR_FILE}
    notes = unpublished_notes(named, whole)
    if len(whole) < len(named.sums):
        absent = ", ".join(Path(file).name for file in named.sums if file not in files)
        notes.append(
            f"This is a part of CIFAR-10: {sum(batches):,} of 50,000 training images and {test:,} of 10,000 test "
            f"images{f' (not there: {absent})' if absent else ''}. Scores do not compare with published ones."
        )
    return image_dataset(
        np.concatenate([images for images, _ in read]),
        np.concatenate([labels for _, labels in read]),
        CIFAR_CLASSES,
        DataSource(request.name, request.name, hash_fingerprint(sums), notes),
        request.settings,
        request.sizes,
        _consecutive(sum(batches), test),
        request.targets,
    )


def open_mnist1d(request: Request) -> DataSet:
    """Load MNIST-1D: a pickle of arrays x (4 000, 40), y, x_test (1 000, 40), y_test."""
    (name,) = request.named.needed
    file = request.place / name
    content = read_pickle(file)
    try:
        series = np.concatenate([content["x"], content["x_test"]])[:, :, None].astype(np.float64)  # (n, 40, 1)
        numbers = np.concatenate([content["y"], content["y_test"]])
        count = len(content["x"])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DataError(f"{file} does not hold the arrays x, y, x_test and y_test of MNIST-1D ({error}).") from error
    if len(series) != len(numbers):
        raise DataError(f"{file} holds {len(series):,} series and {len(numbers):,} labels.")
    labels = checked_labels(numbers, len(DIGITS), file)
    indices = complete_split(labels, DIGITS, _consecutive(count, len(labels) - count), request.settings)
    spec = SeriesSpec(series.shape[1], 1, Views(DIGITS) if Views in request.targets else Classes(DIGITS))
    preprocessing = SeriesPreprocessing.fitted(spec, series[indices["train"]])
    splits = {
        split: TensorSplit(
            preprocessing.prepare(series[rows]), torch.from_numpy(labels[rows]), [f"series {i}" for i in rows]
        )
        for split, rows in indices.items()
    }
    return build_dataset(published_source(request), request.settings, indices, preprocessing, splits)


def open_csv(request: Request, notes: Sequence[str] = ()) -> DataSet:
    """Load a table from one CSV file."""
    (file,) = request.named.needed
    table = frame_table(read_table(request.place / file).frame, request.name)
    return table_dataset(table, published_source(request, notes), request.settings)


def open_titanic(request: Request) -> DataSet:
    """Load the Titanic table without redundant columns."""
    settings = request.settings
    twins = [other for pair in TITANIC_TWINS for other in pair if other != _preferred_column(pair, settings.target)]
    repeated = [column for column in (*twins, *TITANIC_DERIVED) if column != settings.target]
    note = (
        f"Left out: {', '.join(repeated)}. Each says in other words what another column says, or follows from others."
    )
    ignore = (*settings.ignore, *(column for column in repeated if column not in settings.ignore))
    return open_csv(dataclasses.replace(request, settings=dataclasses.replace(settings, ignore=ignore)), [note])


def _preferred_column(pair: tuple[str, str], target: str | None) -> str:
    """Return which of two equivalent columns to keep: the target, otherwise the first."""
    return pair[1] if pair[1] == target else pair[0]


def _consecutive(train: int, test: int) -> dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Return splits of a data set whose training examples come first."""
    return {"train": np.arange(train), "test": np.arange(train, train + test)}


def published_source(request: Request, notes: Sequence[str] = (), files: Sequence[str] = ()) -> DataSource:
    """Return the source of a data set read from these files, or from all that it needs.

    It has a note for each file whose hash differs from the published one, if that is known.
    """
    sums = file_hashes(request.place, files or request.named.needed)
    known = {file: sha256 for file, sha256 in sums.items() if file in request.named.sums}
    return DataSource(
        request.name, request.name, hash_fingerprint(sums), [*notes, *unpublished_notes(request.named, known)]
    )


def file_hashes(place: Path, files: Iterable[str]) -> dict[str, str]:
    """Compute the sha256 of each file."""
    return {file: file_sha256(place / file) for file in files}


def hash_fingerprint(sums: dict[str, str]) -> str:
    """Compute the sha256 of all files read."""
    return hashlib.sha256("".join(f"{sha256}  {file}\n" for file, sha256 in sums.items()).encode()).hexdigest()


def unpublished_notes(named: NamedSet, sums: dict[str, str]) -> list[str]:
    """Return a note for each file that differs from the published one."""
    return [
        f"{file} is not the published file: its sha256 is {sha256}, and that of the published one {named.sums[file]}."
        for file, sha256 in sums.items()
        if sha256 != named.sums[file]
    ]


OPENERS = {
    "mnist": partial(open_idx, classes=DIGITS),
    "fashion_mnist": partial(open_idx, classes=GARMENTS),
    "cifar10": open_cifar10,
    "mnist1d": open_mnist1d,
    "california_housing": open_csv,
    "titanic": open_titanic,
}
