"""Construction of a data set, the last step for every kind of data.

All kinds follow the same steps. `dataset.py` of a kind's folder reads the source, splits the examples, fits the
preprocessing on the training split, applies it to every split, and calls `assemble`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.files import open_regular
from ..core.spec import ImageSpec
from .augment import make_augment
from .dataset_base import DataSet, Preprocessing, Split
from .modalities import OF_CAPTIONS, reject_changed
from .settings import DataSettings
from .splits import Rows, split_hash


@dataclass(frozen=True)
class DataSource:
    """The origin of a data set."""

    name: str  # short, for the run's folder: the set's name or the file's stem
    source: str  # as the user gave it
    fingerprint: str  # sha256 of the content that was read
    notes: Sequence[str] = ()  # messages about it for the user

    @classmethod
    def of_file(cls, path: Path) -> DataSource:
        """Return the origin of a single file."""
        with open_regular(path) as file:
            return cls(path.stem, str(path), hashlib.file_digest(file, "sha256").hexdigest())


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
    """Build the data set.

    `split` is the rows of each split, or a hash of other data that determines the split. Notes that are None or empty
    are dropped.
    """
    spec = preprocessing.spec
    if isinstance(spec, ImageSpec) and not spec.target.written:
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
    )
