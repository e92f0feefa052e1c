"""Folders of images with a mask each: the class of every pixel."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...errors import SettingError
from ...spec import ImageSizes, ImageSpec, Mask
from ..assembly import Origin, assemble
from ..folders import Found, fingerprint_of
from ..sets import DataSet
from ..settings import DataSettings
from ..splits import complete_split, draw
from . import masks
from .files import look_at
from .mask_preprocessing import MaskPreprocessing, held, streamed
from .prepared import MEBIBYTE, SAMPLE, channels_for, image_notes, size_for, training_images
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
    own_size, size, enlarged = size_for({s.facts.size for s in seen}, sizes, settings.image_size)
    spec = ImageSpec(channels_for([s.facts.grey for s in seen], settings.color), *size, Mask(classes))
    sample = draw(indices["train"], SAMPLE, seed=settings.split_seed)
    used = np.concatenate(list(indices.values()))
    fits = len(used) * (spec.channels + 1) * spec.height * spec.width <= settings.memory * MEBIBYTE
    others = [found.images[i] for i in np.setdiff1d(used, sample)] if fits else []
    images = training_images([found.images[i] for i in sample], others, spec)
    preprocessing = MaskPreprocessing(**vars(fit_preprocessing(spec, images, settings.resize, own_size)))
    splits = (
        held(found, indices, values, preprocessing)
        if fits
        else {name: streamed(found, rows, values, preprocessing, settings.workers) for name, rows in indices.items()}
    )
    fingerprint = fingerprint_of([*found.names, *found.names], [*(s.digest for s in seen), *digests])
    origin = Origin(path.resolve().name, str(path), fingerprint, found.notes)
    named = Found(classes, found.images, found.names, np.zeros(len(seen), np.int64))
    absent = masks.absent_notes(values[:, : len(classes)], classes, indices)
    notes = [*absent, *image_notes(named, seen, indices, spec.channels), enlarged]
    return assemble(origin, settings, indices, preprocessing, splits, notes)
