"""Image data sets from folders: class folders, masks, boxes and captions.

photos/cats/1.jpg, or photos/train/cats/1.jpg with val/ and test/    classification
a mask for each image                                                 segmentation
COCO or YOLO boxes                                                    detection
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import Problem
from ...core.spec import ANY_SIZE, Episodes, GeneratedImage, ImageSizes, Mask, Target, Unlabelled
from ..build import DataSource, build_dataset
from ..dataset_base import DataSet, Split
from ..episodes import EpisodeSplit, to_episodes
from ..findings import duplicate_warning, reject_fill
from ..folders import (
    IMAGES,
    FolderContents,
    find_examples,
    find_flat,
    fingerprint_files,
    has_captions,
    is_flat,
    missing_class_notes,
)
from ..parallel import Progress
from ..settings import DataSettings
from ..splits import complete_split
from ..streaming.tars import inspect_files, is_sharded, read_folder, read_shards
from ..unsupported_formats import reject_flat, reject_layout
from . import detection, segmentation
from .build import build_splits, image_notes, prepare_splits, sample_image_files, split_images
from .detection import ONE, build_box_target, fit_boxes, pad_boxes
from .image_files import ImageFileInfo, ImageFileTable, inspect_images, pack_image_info
from .segmentation import MaskPreprocessing, decode_mask_splits, stream_mask_split
from .transforms import SHARDED, NoisyImageSplit, build_image_target, fit_preprocessing


def open_folder(
    path: Path, settings: DataSettings, sizes: ImageSizes = ANY_SIZE, targets: tuple[type[Target], ...] = ()
) -> DataSet:
    """Load a folder of class folders, or of images with masks, boxes or captions.

    Checks every file, splits the images and fits the preprocessing on the training split. `targets` are the target
    types that the model requests, if any. Generative models and models that learn without labels also accept a folder
    of images without classes.

    Images are resized to a size that the model accepts (`sizes`): their original size if all have the same one of at
    most 512. They are kept in memory if they fit into settings.memory, otherwise they are read in every epoch. Raises
    DataError that names every file or folder that cannot be used.
    """
    sharded = is_sharded(path)
    if not sharded and segmentation.is_mask_folder(path, targets):
        return open_masks(path, settings, sizes)
    if not sharded and detection.is_box_folder(path):
        return open_boxes(path, settings, sizes)
    if not sharded and has_captions(path):
        from .captioning import open_captions  # imported here because it depends on the text packages

        return open_captions(path, settings, sizes)
    draws, apart = any(issubclass(target, GeneratedImage) for target in targets), Episodes in targets
    needs_classes = not (draws or any(issubclass(target, Unlabelled) for target in targets))
    read = _shards if sharded else _folder
    found, seen, fingerprint = read(path, settings, needs_classes, apart)
    indices, split_notes = split_images(found.labels, found.classes, found.splits, settings, targets)
    learned = partial(build_image_target, found.classes, targets=targets, settings=settings)
    preprocessing, splits, enlarged = prepare_splits(found, seen, indices, learned, settings, sizes)
    spec, splits = preprocessing.spec, to_episodes(splits, preprocessing.spec.target, found.classes)
    origin = DataSource(path.resolve().name, str(path), fingerprint, found.notes)
    absent = missing_class_notes(found.labels, found.classes, indices, "no images") if not apart else split_notes
    notes = [*absent, *image_notes(found, seen, indices, spec.channels), enlarged]
    if draws and len(seen.sizes) > 1:
        notes.append(f"The images have several sizes: the middle of each is drawn at {spec.height}×{spec.width}.")
    return build_dataset(origin, settings, indices, preprocessing, splits, notes)


Read = tuple[FolderContents[Any], ImageFileTable, str]  # images with classes, the file properties, the fingerprint


def _shards(path: Path, settings: DataSettings, needs_classes: bool, apart: bool) -> Read:
    """Read the images in tar shards."""
    reject_fill(settings)
    read = read_shards(path, SHARDED, needs_classes, settings.missing == "drop", apart)
    return read.found, ImageFileTable(read.looks), read.fingerprint


def _folder(path: Path, settings: DataSettings, needs_classes: bool, apart: bool) -> Read:
    """Read the images in class folders, or directly in the folder if no classes are needed."""
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
        lambda: find_flat(path, IMAGES) if flat else find_examples(path, IMAGES, least, apart),
        inspect_images,
        settings,
    )
    return read.found, ImageFileTable(read.looks), read.fingerprint


def find_damaged(split: Split, progress: Progress | None = None) -> list[Problem]:
    """Return a problem for every file of a split that cannot be decoded. In-memory images were decoded before."""
    read = split.images if isinstance(split, NoisyImageSplit) else split
    read = split.examples if isinstance(split, EpisodeSplit) else read
    damaged: Callable[[Progress | None], list[Problem]] | None = getattr(read, "damaged", None)
    return damaged(progress) if damaged is not None else []


def open_masks(path: Path, settings: DataSettings, sizes: ImageSizes) -> DataSet:
    """Load a folder of images with masks. See `open_folder`."""
    reject_fill(settings)
    found = segmentation.find_pairs(path, settings.missing)
    usable = inspect_files(found.images, SHARDED, inspect_images, settings)
    if usable.notes:
        found.keep(usable.rows, usable.notes)
    looks = segmentation.inspect_masks(found, [s.facts.size for s in usable.looks], settings.missing)
    if looks.notes:
        found.keep(looks.rows, looks.notes)
    seen = ImageFileTable(pack_image_info([usable.looks[i] for i in looks.rows]))
    values, digests = np.stack([counts for counts, _ in looks.looks]), [digest for _, digest in looks.looks]
    classes = segmentation.class_names(found, values)
    indices = complete_split(np.zeros(len(seen), np.int64), ("image",), found.splits, settings)
    read = sample_image_files(found.images, seen, indices, lambda _: Mask(classes), settings, sizes, extra_channels=1)
    fitted = fit_preprocessing(read.spec, read.images, settings.resize, read.own_size)
    preprocessing = MaskPreprocessing(**vars(fitted))
    splits = (
        decode_mask_splits(found, indices, values, preprocessing)
        if read.held
        else {
            name: stream_mask_split(found, rows, values, preprocessing, settings.workers)
            for name, rows in indices.items()
        }
    )
    fingerprint = fingerprint_files([*found.names, *found.names], [*(s.digest for s in seen), *digests])
    origin = DataSource(path.resolve().name, str(path), fingerprint, found.notes)
    named = FolderContents(classes, found.images, found.names, np.zeros(len(seen), np.int64))
    absent = segmentation.absent_notes(values[:, : len(classes)], classes, indices)
    notes = [*absent, *image_notes(named, seen, indices, read.spec.channels), read.enlarged]
    return build_dataset(origin, settings, indices, preprocessing, splits, notes)


def open_boxes(path: Path, settings: DataSettings, sizes: ImageSizes) -> DataSet:
    """Load a folder of images with boxes. See `open_folder`."""
    reject_fill(settings)
    annotated = detection.read_annotations(path)
    usable = inspect_files(annotated.files, SHARDED, inspect_images, settings)
    if usable.notes:
        annotated.keep(usable.rows, usable.notes)
    seen = ImageFileTable(pack_image_info(usable.looks))
    own_sizes, classes = [s.facts.size for s in seen], annotated.classes
    rows, notes = annotated.boxes(own_sizes, classes, settings.missing == "drop")
    indices = complete_split(np.zeros(len(seen), np.int64), ONE, annotated.splits, settings)
    target = build_box_target(classes, rows, indices["train"])
    read = sample_image_files(annotated.files, seen, indices, lambda _: target, settings, sizes)
    preprocessing = fit_boxes(read.spec, read.images, settings, read.own_size)
    labels = pad_boxes([preprocessing.moved(own, own_sizes[i]) for i, own in enumerate(rows)])
    found = FolderContents(classes, annotated.files, annotated.names, labels)
    splits = build_splits(found, indices, preprocessing, read.held, settings.workers)
    origin = DataSource(path.resolve().name, str(path), _fingerprint(annotated, seen, rows), notes)
    straddle = duplicate_warning(seen.alike, indices, found.names.__getitem__, "images")
    all_notes = [*detection.absent_notes(rows, classes, indices), read.enlarged, straddle]
    return build_dataset(origin, settings, indices, preprocessing, splits, all_notes)


def _fingerprint(
    annotated: detection.AnnotatedImages, seen: Sequence[ImageFileInfo], rows: Sequence[detection.Rectangles]
) -> str:
    """Compute the sha256 of every image's name, content and boxes."""
    digests = [f"{s.digest} {hashlib.sha256(own.tobytes()).hexdigest()}" for s, own in zip(seen, rows)]
    return fingerprint_files(annotated.names, digests)
