"""Folders of images with boxes around the objects in them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...spec import ImageSizes
from ..assembly import Origin, assemble
from ..folders import Found, fingerprint_of
from ..guard.duplicates import straddle_note
from ..sets import DataSet
from ..settings import DataSettings
from ..splits import complete_split
from ..unusable import look_through, reject_fill
from . import boxes
from .box_preprocessing import ONE, fit_boxes, padded, target_for
from .files import Looks, Seen, look_at, packed
from .prepared import sampled, splits_of
from .sharded import SHARDED


def open_boxes(path: Path, settings: DataSettings, sizes: ImageSizes) -> DataSet:
    """Read a folder of images with boxes, as `open_folder` reads one of class folders."""
    reject_fill(settings)
    annotated = boxes.find(path)
    usable = look_through(annotated.files, SHARDED, look_at, settings)
    if usable.notes:
        annotated.keep(usable.rows, usable.notes)
    seen = Looks(packed(usable.looks))
    own_sizes, classes = [s.facts.size for s in seen], annotated.classes
    rows, notes = annotated.boxes(own_sizes, classes, settings.missing == "drop")
    indices = complete_split(np.zeros(len(seen), np.int64), ONE, annotated.splits, settings)
    target = target_for(classes, rows, indices["train"])
    read = sampled(annotated.files, seen, indices, lambda _: target, settings, sizes)
    preprocessing = fit_boxes(read.spec, read.images, settings, read.own_size)
    labels = padded([preprocessing.moved(own, own_sizes[i]) for i, own in enumerate(rows)])
    found = Found(classes, annotated.files, annotated.names, labels)
    splits = splits_of(found, indices, preprocessing, read.held, settings.workers)
    origin = Origin(path.resolve().name, str(path), _fingerprint(annotated, seen, rows), notes)
    straddle = straddle_note(seen.alike, indices, found.names.__getitem__, "images")
    said = [*boxes.absent_notes(rows, classes, indices), read.enlarged, straddle]
    return assemble(origin, settings, indices, preprocessing, splits, said)


def _fingerprint(annotated: boxes.Annotated, seen: Sequence[Seen], rows: Sequence[boxes.Rectangles]) -> str:
    """sha256 of every image's name, content and boxes."""
    digests = [f"{s.digest} {hashlib.sha256(own.tobytes()).hexdigest()}" for s, own in zip(seen, rows)]
    return fingerprint_of(annotated.names, digests)
