"""Construction of a data set: the sequence of steps that all kinds of data share.

    find → read         functions of `*_files.py`, called by `open_…` of a kind's `dataset.py`
    split               numbers of the examples of train, val and test, before any input is used
    fit                 the preprocessing, on the training split only
    encode              every split as tensors, or as files to read in every epoch
    report              duplicates across splits, then other findings and notes

A kind of data subclasses `DatasetBuilder`: its initializer receives the examples, its methods are the steps, and
`build` runs them in this order. Data with other steps (text as a stream, captions, puzzles, images of a torch
`Dataset`) calls `build_dataset`, the last step, itself.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl
import torch

from ..core.files import MEBIBYTE, open_regular
from ..core.spec import ImageSpec, ImageTokens
from .augment import make_augment
from .dataset_base import DataSet, Preprocessing, Split
from .findings import duplicate_warning
from .modalities import OF_CAPTIONS, reject_changed
from .settings import DataSettings
from .splits import Rows, complete_split, sample_rows, split_hash

P = TypeVar("P", bound=Preprocessing)
S = TypeVar("S", bound=Split)


@dataclass(frozen=True)
class DataSource:
    """The origin of a data set."""

    name: str  # short, for the run's folder: the set's name or the file's stem
    source: str  # as the user gave it
    fingerprint: str  # sha256 of the content that was read
    notes: Sequence[str] = ()  # messages about it for the user
    weights: npt.NDArray[np.float64] | None = None  # sample weights of all examples, (n,)

    @classmethod
    def of_file(cls, path: Path) -> DataSource:
        """Return the origin of a single file."""
        with open_regular(path) as file:
            return cls(path.stem, str(path), hashlib.file_digest(file, "sha256").hexdigest())


@dataclass(frozen=True)
class ExampleClasses:
    """The classes of all examples, which the split is stratified by, and predefined splits."""

    labels: Rows  # (n,) class numbers
    names: Sequence[str]  # of the classes
    splits: Mapping[str, Rows] | None = None  # absent ones are drawn from train
    groups: Rows | None = None  # (n,) examples of one group stay in one split

    @classmethod
    def without(cls, n: int, noun: str, splits: Mapping[str, Rows] | None = None) -> ExampleClasses:
        """Return one class for n examples that are not split by class; `noun` names an example."""
        return cls(np.zeros(n, np.int64), (noun,), splits)


class DuplicateKeys(NamedTuple):
    """A key of every example, which is equal for duplicates."""

    keys: Sequence[Any] | npt.NDArray[Any]
    name: Callable[[int], str]  # of an example
    aside: pl.DataFrame | None = None  # columns that are no inputs, in which duplicates may differ


class DatasetBuilder(ABC, Generic[P, S]):
    """The steps from examples that were read to a data set. A subclass has `fit`, `encode`, and what else differs.

    Each step can use the results of those before it: `indices`, `preprocessing` and `splits`.
    """

    noun = "examples"  # plural, in messages
    classes: ExampleClasses  # of all examples
    indices: dict[str, Rows]  # the numbers of the examples of each split
    preprocessing: P
    splits: dict[str, S]

    def __init__(self, origin: DataSource, settings: DataSettings) -> None:
        self.origin, self.settings = origin, settings

    def split(self) -> dict[str, Rows]:
        """Return the numbers of the examples of each split; stratified by class unless overridden."""
        known = self.classes
        return complete_split(known.labels, known.names, known.splits, self.settings, known.groups)

    @abstractmethod
    def fit(self) -> P:
        """Return the preprocessing, fitted on the training split."""

    def encode(self, split: str, rows: Rows) -> S:
        """Return the split with these examples."""
        raise NotImplementedError

    def encode_splits(self) -> dict[str, S]:
        """Return all splits; overridden, in place of `encode`, where they are encoded together."""
        return {split: self.encode(split, rows) for split, rows in self.indices.items()}

    def notes(self) -> Iterable[str | None]:
        """Return messages for the user; None entries are skipped."""
        return ()

    def duplicate_keys(self) -> DuplicateKeys | None:
        """Return the keys by which duplicates across splits are found; None if examples are not compared."""
        return None

    def columns(self) -> list[dict[str, str]]:
        """Return a line on each column of a table, as `DataSet.columns`."""
        return []

    def distributions(self) -> Callable[[], list[dict[str, Any]]]:
        """Return the function of `DataSet.distributions`. It outlives the builder, and should not refer to it."""
        return list

    def build(self) -> DataSet:
        """Split, fit, encode and report."""
        self.indices = self.split()
        self.preprocessing = self.fit()
        self.splits = self.encode_splits()
        return build_dataset(
            self.origin,
            self.settings,
            self.indices,
            self.preprocessing,
            self.splits,
            [self.check_duplicates(), *self.notes()],
            self.columns(),
            self.distributions(),
        )

    def check_duplicates(self) -> str | None:
        """Return a finding on duplicates across splits, or None."""
        found = self.duplicate_keys()
        return found and duplicate_warning(found.keys, self.indices, found.name, self.noun, aside=found.aside)

    @property
    def used(self) -> Rows:
        """The examples that are in a split; `max_samples` may have excluded others."""
        return np.unique(np.concatenate(list(self.indices.values())))

    def training_sample(self, count: int) -> Rows:
        """Return at most `count` training examples, drawn at random, to estimate statistics on."""
        return sample_rows(self.indices["train"], count, seed=self.settings.split_seed)

    def fits_into_memory(self, size: int) -> bool:
        """Return whether `size` bytes are at most settings.memory."""
        return size <= self.settings.memory * MEBIBYTE


def build_dataset(
    origin: DataSource,
    settings: DataSettings,
    split: Mapping[str, Rows] | str,
    preprocessing: Preprocessing,
    splits: Mapping[str, Split],
    notes: Iterable[str | None] = (),
    columns: Sequence[dict[str, str]] = (),
    distributions: Callable[[], list[dict[str, Any]]] = list,
) -> DataSet:
    """Assemble the data set from the results of all steps.

    `split` is the rows of each split, or a hash of other data that determines the split. Notes that are None or empty
    are dropped.
    """
    spec = preprocessing.spec
    has_captions = spec.target.written or (isinstance(spec.target, ImageTokens) and spec.target.words)
    if isinstance(spec, ImageSpec) and not has_captions:
        reject_changed(settings, OF_CAPTIONS, "is for images with captions, and these have none")
    mean, std = (getattr(preprocessing, name, ()) for name in ("mean", "std"))  # of images, which are normalised
    return DataSet(
        name=origin.name,
        source=origin.source,
        spec=spec,
        splits=dict(splits),
        preprocessing=preprocessing,
        fingerprint=origin.fingerprint,
        split_hash=split if isinstance(split, str) else split_hash(split),
        notes=[*origin.notes, *filter(None, notes)],
        columns=list(columns),
        augment=make_augment(settings, spec, mean, std),
        distributions=distributions,
        weights=None
        if origin.weights is None or isinstance(split, str)
        else torch.from_numpy(origin.weights[split["train"]]),
    )
