"""Folders of images with a mask each: the class of every pixel."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...errors import SettingError
from ...spec import ImageSizes, Mask
from ..assembly import Origin, assemble
from ..folders import Found, fingerprint_of
from ..sets import DataSet
from ..settings import DataSettings
from ..splits import complete_split
from . import masks
from .files import look_at
from .mask_preprocessing import MaskPreprocessing, held, streamed
from .prepared import image_notes, sampled
from .preprocessing import fit_preprocessing


def open_masks(path: Path, settings: DataSettings, sizes: ImageSizes) -> DataSet:
    """Read a folder of images with masks, as `open_folder` reads one of class folders."""
    if settings.missing == "fill":
        raise SettingError("missing=fill is for tables: an image without a mask is left out with missing=drop.")
    found = masks.find(path, settings.missing)
    seen = look_at(found.images)
    values, digests = masks.counted(found, [s.facts.size for s in seen])
    classes = masks.classes_of(found, values)
    indices = complete_split(np.zeros(len(seen), np.int64), ("image",), found.splits, settings)
    read = sampled(found.images, seen, indices, lambda _: Mask(classes), settings, sizes, beside=1)
    fitted = fit_preprocessing(read.spec, read.images, settings.resize, read.own_size)
    preprocessing = MaskPreprocessing(**vars(fitted))
    splits = (
        held(found, indices, values, preprocessing)
        if read.held
        else {name: streamed(found, rows, values, preprocessing, settings.workers) for name, rows in indices.items()}
    )
    fingerprint = fingerprint_of([*found.names, *found.names], [*(s.digest for s in seen), *digests])
    origin = Origin(path.resolve().name, str(path), fingerprint, found.notes)
    named = Found(classes, found.images, found.names, np.zeros(len(seen), np.int64))
    absent = masks.absent_notes(values[:, : len(classes)], classes, indices)
    notes = [*absent, *image_notes(named, seen, indices, read.spec.channels), read.enlarged]
    return assemble(origin, settings, indices, preprocessing, splits, notes)
