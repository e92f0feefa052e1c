"""Folders of class folders of images: photos/cats/1.jpg, or photos/train/cats/1.jpg beside val/ and test/."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ...errors import Problem
from ...spec import ANY_SIZE, Drawn, Episodes, ImageSizes, Target, Unlabelled
from ..assembly import Origin, assemble
from ..episodes import EpisodeSplit, in_episodes
from ..folders import IMAGES, Found, absent_notes, find, find_flat, has_captions, is_flat
from ..foreign import reject_flat, reject_layout
from ..sets import DataSet, Split
from ..settings import DataSettings
from ..shards.indexed_folders import read_folder
from ..shards.indexing import read_shards
from ..shards.tars import is_sharded
from ..unusable import reject_fill
from ..verifying import Progress
from . import boxes, masks
from .box_opening import open_boxes
from .dataset import split_of
from .drawing import DrawnSplit, target_of
from .files import Looks, look_at
from .mask_opening import open_masks
from .prepared import image_notes, prepared
from .sharded import SHARDED


def open_folder(
    path: Path, settings: DataSettings, sizes: ImageSizes = ANY_SIZE, targets: tuple[type[Target], ...] = ()
) -> DataSet:
    """Read a folder of class folders: look at every file, split, fit the preprocessing on the training split. One of
    images with masks, boxes or captions is read as such; `targets` are what is to be learned, where something says it.
    Models that draw images, or learn without labels, learn from a folder of images without classes too.

    Images are brought to a size that the model takes (`sizes`): their own, where all have one of at most 512. They are
    held in memory where that takes no more than settings.memory, and are read anew in every epoch where it does.
    Raises DataError that names every file or folder that cannot be used.
    """
    sharded = is_sharded(path)
    if not sharded and masks.are_masks(path, targets):
        return open_masks(path, settings, sizes)
    if not sharded and boxes.is_boxes(path):
        return open_boxes(path, settings, sizes)
    if not sharded and has_captions(path):
        from .captions import open_captions  # needs what only text needs

        return open_captions(path, settings, sizes)
    draws, apart = any(issubclass(target, Drawn) for target in targets), Episodes in targets
    needs_classes = not (draws or any(issubclass(target, Unlabelled) for target in targets))
    read = _shards if sharded else _folder
    found, seen, fingerprint = read(path, settings, needs_classes, apart)
    indices, said = split_of(found.labels, found.classes, found.splits, settings, targets)
    learned = partial(target_of, found.classes, targets=targets, settings=settings)
    preprocessing, splits, enlarged = prepared(found, seen, indices, learned, settings, sizes)
    spec, splits = preprocessing.spec, in_episodes(splits, preprocessing.spec.target, found.classes)
    origin = Origin(path.resolve().name, str(path), fingerprint, found.notes)
    absent = absent_notes(found.labels, found.classes, indices, "no images") if not apart else said
    notes = [*absent, *image_notes(found, seen, indices, spec.channels), enlarged]
    if draws and len(seen.sizes) > 1:
        notes.append(f"The images have several sizes: the middle of each is drawn at {spec.height}×{spec.width}.")
    return assemble(origin, settings, indices, preprocessing, splits, notes)


Read = tuple[Found[Any], Looks, str]  # images with their classes, what a look at each told, the fingerprint of them all


def _shards(path: Path, settings: DataSettings, needs_classes: bool, apart: bool) -> Read:
    """The images in tar shards."""
    reject_fill(settings)
    read = read_shards(path, SHARDED, needs_classes, settings.missing == "drop", apart)
    return read.found, Looks(read.looks), read.fingerprint


def _folder(path: Path, settings: DataSettings, needs_classes: bool, apart: bool) -> Read:
    """The images in class folders; in a folder itself where they need no classes."""
    flat = is_flat(path, IMAGES)
    if flat and needs_classes:
        reject_flat(path)
    elif needs_classes:
        reject_layout(path, needs_classes)
    least = 2 if needs_classes else 1
    read = read_folder(
        path,
        SHARDED,
        "flat" if flat else f"{least}{'-apart' * apart}",
        lambda: find_flat(path, IMAGES) if flat else find(path, IMAGES, least, apart),
        look_at,
        settings,
    )
    return read.found, Looks(read.looks), read.fingerprint


def verify(split: Split, progress: Progress | None = None) -> list[Problem]:
    """Every file of a split that cannot be decoded, with its cause. What is in memory has been decoded already."""
    read = split.images if isinstance(split, DrawnSplit) else split
    read = split.examples if isinstance(split, EpisodeSplit) else read
    damaged: Callable[[Progress | None], list[Problem]] | None = getattr(read, "damaged", None)
    return damaged(progress) if damaged is not None else []
