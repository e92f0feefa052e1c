"""Folders of class folders of images: photos/cats/1.jpg, or photos/train/cats/1.jpg beside val/ and test/."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ...errors import DataError, Problem, SettingError
from ...spec import ANY_SIZE, Classes, ImageSizes, ImageSpec, Mask, Target
from ..assembly import Origin, assemble
from ..folders import IMAGES, Found, absent_notes, find, fingerprint_of
from ..kinds import reject_changed
from ..sets import DataSet, Split
from ..settings import DataSettings
from ..splits import Rows, complete_split, draw, straddle_note
from . import boxes, masks
from .box_preprocessing import ONE, fit_boxes, padded, target_for
from .dataset import in_memory
from .file_split import FileSplit, Progress, in_threads
from .files import Seen, look_at, unusable
from .mask_preprocessing import MaskPreprocessing, MaskSplit, held, streamed
from .preprocessing import ImagePreprocessing, fit_preprocessing
from .reading import Size, as_pixels, covering, read_image, resized

LARGEST_OWN_SIZE = 512  # of images that stay as they are
SAMPLE = 1024  # training images from which mean and standard deviation are taken
MEBIBYTE = 1 << 20


def open_folder(
    path: Path, settings: DataSettings, sizes: ImageSizes = ANY_SIZE, targets: tuple[type[Target], ...] = ()
) -> DataSet:
    """Read a folder of class folders: look at every file, split, fit the preprocessing on the training split. One of
    images with masks or boxes is read as such; `targets` are what is to be learned, where something says it.

    Images are brought to a size that the model takes (`sizes`): their own, where all have one of at most 512. They are
    held in memory where that takes no more than settings.memory, and are read anew in every epoch where it does.
    Raises DataError that names every file or folder that cannot be used.
    """
    if masks.are_masks(path, targets):
        return _open_masks(path, settings, sizes)
    if boxes.is_boxes(path):
        return _open_boxes(path, settings, sizes)
    reject_changed(settings, ("missing",), "is for boxes and masks, and these are class folders")
    found = find(path, IMAGES)
    seen = look_at(found.files)
    indices = complete_split(found.labels, found.classes, found.splits, settings)
    own_size, size, enlarged = size_for({s.facts.size for s in seen}, sizes, settings.image_size)
    spec = ImageSpec(channels_for([s.facts.grey for s in seen], settings.color), *size, Classes(found.classes))
    sample = draw(indices["train"], SAMPLE, seed=settings.split_seed)
    used = np.concatenate(list(indices.values()))
    fits = len(used) * spec.channels * spec.height * spec.width <= settings.memory * MEBIBYTE
    others = [found.files[i] for i in np.setdiff1d(used, sample)] if fits else []
    preprocessing = fit_preprocessing(
        spec, _training_images([found.files[i] for i in sample], others, spec), settings.resize, own_size
    )
    if fits:
        splits = _held(found, indices, preprocessing)
    else:
        splits = _streamed(found, indices, preprocessing, settings.workers)
    fingerprint = fingerprint_of(found.names, [s.digest for s in seen])
    origin = Origin(path.resolve().name, str(path), fingerprint, found.notes)
    absent = absent_notes(found.labels, found.classes, indices, "no images")
    notes = [*absent, *_notes(found, seen, indices, spec.channels), enlarged]
    return assemble(origin, settings, indices, preprocessing, splits, notes)


def _open_masks(path: Path, settings: DataSettings, sizes: ImageSizes) -> DataSet:
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
    images = _training_images([found.images[i] for i in sample], others, spec)
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
    notes = [*absent, *_notes(named, seen, indices, spec.channels), enlarged]
    return assemble(origin, settings, indices, preprocessing, splits, notes)


def _open_boxes(path: Path, settings: DataSettings, sizes: ImageSizes) -> DataSet:
    """Read a folder of images with boxes, as `open_folder` reads one of class folders."""
    if settings.missing == "fill":
        raise SettingError("missing=fill is for tables: of boxes error names what cannot be, and drop leaves it out.")
    annotated = boxes.find(path)
    seen = look_at(annotated.files)
    own_sizes, classes = [s.facts.size for s in seen], annotated.classes
    rows, notes = annotated.boxes(own_sizes, classes, settings.missing == "drop")
    indices = complete_split(np.zeros(len(seen), np.int64), ONE, annotated.splits, settings)
    own_size, size, enlarged = size_for(set(own_sizes), sizes, settings.image_size)
    channels = channels_for([s.facts.grey for s in seen], settings.color)
    spec = ImageSpec(channels, *size, target_for(classes, rows, indices["train"]))
    sample = draw(indices["train"], SAMPLE, seed=settings.split_seed)
    used = np.concatenate(list(indices.values()))
    held = len(used) * spec.channels * spec.height * spec.width <= settings.memory * MEBIBYTE
    others = [annotated.files[i] for i in np.setdiff1d(used, sample)] if held else []
    files = [annotated.files[i] for i in sample]
    preprocessing = fit_boxes(spec, _training_images(files, others, spec), settings, own_size)
    labels = padded([preprocessing.moved(own, own_sizes[i]) for i, own in enumerate(rows)])
    found = Found(classes, annotated.files, annotated.names, labels)
    splits = (
        _held(found, indices, preprocessing) if held else _streamed(found, indices, preprocessing, settings.workers)
    )
    origin = Origin(path.resolve().name, str(path), _fingerprint(annotated, seen, rows), notes)
    straddle = straddle_note([s.digest for s in seen], indices, found.names.__getitem__, "images")
    said = [*boxes.absent_notes(rows, classes, indices), enlarged, straddle]
    return assemble(origin, settings, indices, preprocessing, splits, said)


def _fingerprint(annotated: boxes.Annotated, seen: Sequence[Seen], rows: Sequence[boxes.Rectangles]) -> str:
    """sha256 of every image's name, content and boxes."""
    digests = [f"{s.digest} {hashlib.sha256(own.tobytes()).hexdigest()}" for s, own in zip(seen, rows)]
    return fingerprint_of(annotated.names, digests)


def verify(split: Split, progress: Progress | None = None) -> list[Problem]:
    """Every file of a split that cannot be decoded, with its cause. What is in memory has been decoded already."""
    return split.damaged(progress) if isinstance(split, FileSplit | MaskSplit) else []


def size_for(own: set[Size], sizes: ImageSizes, asked: int | None) -> tuple[Size | None, Size, str | None]:
    """The one size that images of these sizes have, if there is one; the size that they are brought to; and a sentence,
    where they are enlarged though nobody asked."""
    own_size = next(iter(own)) if len(own) == 1 else None
    stays = own_size if own_size and max(own_size) <= LARGEST_OWN_SIZE else None
    size = sizes.choose(asked, stays)
    return own_size, size, sizes.note(stays, size, asked)


def channels_for(grey: Sequence[bool], color: str) -> int:
    """1 for grey, 3 for RGB: what the setting says, else what most are."""
    return 1 if color == "gray" or (color == "auto" and 2 * sum(grey) > len(grey)) else 3


def _training_images(files: Sequence[Path], others: Sequence[Path], spec: ImageSpec) -> Iterator[Tensor]:
    """uint8 (1, C, h, w) of each file, whole, and no larger than it enters the network.

    Raises DataError that names every file that cannot be decoded; where there is one, `others` are tried too.
    """

    def whole(file: Path) -> Tensor | Problem:
        def drawn_at(size: Size) -> Size:
            return min(size, covering(size, (spec.height, spec.width)))

        try:
            image = read_image(file, str(file), spec.channels, drawn_at)
        except DataError as error:
            return error.problems[0]
        pixels = as_pixels(resized(image, drawn_at((image.height, image.width))))
        return torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None]

    problems: list[Problem] = []
    for image in in_threads(whole, files):
        if isinstance(image, Problem):
            problems.append(image)
        else:
            yield image
    if problems:
        problems += [read for read in in_threads(whole, others) if isinstance(read, Problem)]
        raise unusable(problems, len(files) + len(others))


def _held(found: Found[Path], indices: dict[str, Rows], preprocessing: ImagePreprocessing) -> dict[str, Split]:
    """The splits decoded once, at the size that they enter the network in."""
    kept = np.unique(np.concatenate(list(indices.values())))  # `max_samples` may have left files out
    files = [found.files[i] for i in kept]

    def fitted(file: Path) -> np.ndarray[tuple[int, int, int], np.dtype[np.uint8]] | Problem:
        try:
            return preprocessing.pixels(file, str(file))
        except DataError as error:
            return error.problems[0]

    spec = preprocessing.spec
    pixels = np.empty((len(files), spec.height, spec.width, spec.channels), np.uint8)
    problems: list[Problem] = []
    for i, image in enumerate(in_threads(fitted, files)):
        if isinstance(image, Problem):
            problems.append(image)
        else:
            pixels[i] = image
    if problems:
        raise unusable(problems, len(files))

    def original(i: int) -> Image.Image:
        return read_image(files[i], str(files[i]))

    return in_memory(
        torch.from_numpy(pixels).permute(0, 3, 1, 2),  # (n, C, H, W)
        found.labels[kept],
        {split: np.searchsorted(kept, rows) for split, rows in indices.items()},
        preprocessing,
        [found.names[i] for i in kept],
        original,
    )


def _streamed(
    found: Found[Path], indices: dict[str, Rows], preprocessing: ImagePreprocessing, workers: int | None
) -> dict[str, Split]:
    """The splits read from their files, anew in every epoch."""
    return {
        split: FileSplit(
            [found.files[i] for i in rows],
            torch.from_numpy(found.labels[rows]),
            preprocessing,
            [found.names[i] for i in rows],
            workers,
        )
        for split, rows in indices.items()
    }


def _notes(found: Found[Path], seen: Sequence[Seen], indices: dict[str, Rows], channels: int) -> list[str | None]:
    notes: list[str | None] = []
    moving = [name for name, s in zip(found.names, seen) if s.facts.moving]
    if moving:
        notes.append(
            f"{len(moving):,} files have several frames or pages, and the first is read: {', '.join(moving[:3])}."
        )
    coloured = sum(not s.facts.grey for s in seen)
    if channels == 1 and coloured:
        notes.append(
            f"{coloured:,} of {len(seen):,} images are coloured and are read in grey; color=rgb keeps colours."
        )
    return [*notes, straddle_note([s.digest for s in seen], indices, found.names.__getitem__, "images")]
