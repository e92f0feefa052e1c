"""Folders of images with a mask each: the class of every pixel."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...spec import ImageSizes, Mask
from ..assembly import Origin, assemble
from ..folders import Found, fingerprint_of
from ..sets import DataSet
from ..settings import DataSettings
from ..splits import complete_split
from ..unusable import look_through, reject_fill
from . import masks
from .files import Looks, look_at, packed
from .mask_preprocessing import MaskPreprocessing, held, streamed
from .prepared import image_notes, sampled
from .preprocessing import fit_preprocessing
from .sharded import SHARDED


def open_masks(path: Path, settings: DataSettings, sizes: ImageSizes) -> DataSet:
    """Read a folder of images with masks, as `open_folder` reads one of class folders."""
    reject_fill(settings)
    found = masks.find(path, settings.missing)
    usable = look_through(found.images, SHARDED, look_at, settings)
    if usable.notes:
        found.keep(usable.rows, usable.notes)
    looks = masks.look_through(found, [s.facts.size for s in usable.looks], settings.missing)
    if looks.notes:
        found.keep(looks.rows, looks.notes)
    seen = Looks(packed([usable.looks[i] for i in looks.rows]))
    values, digests = np.stack([counts for counts, _ in looks.looks]), [digest for _, digest in looks.looks]
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
