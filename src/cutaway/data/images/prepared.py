"""From image files to splits: brought to a size, normalised as the training images are, held or read anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from ...errors import DataError, Problem
from ...files import MEBIBYTE
from ...spec import ImageSizes, ImageSpec
from ..folders import Found
from ..guard.duplicates import straddle_note
from ..sets import Split
from ..settings import DataSettings
from ..shards.members import Stored, chosen
from ..splits import Rows, draw
from .dataset import in_memory
from .drawing import ImageTarget, OfImages, Shape, drawn
from .file_split import FileSplit, in_threads
from .files import Looks, unusable
from .preprocessing import ImagePreprocessing, fit_preprocessing, from_minus_one
from .reading import Size, as_pixels, covering, read_image, resized

LARGEST_OWN_SIZE = 512  # of images that stay as they are
SAMPLE = 1024  # training images from which mean and standard deviation are taken
File = Path | Stored


def prepared(
    found: Found[File],
    seen: Looks,
    indices: dict[str, Rows],
    learned: Callable[[Shape], OfImages],
    settings: DataSettings,
    sizes: ImageSizes,
) -> tuple[ImagePreprocessing, dict[str, Split], str | None]:
    """The preprocessing fitted on the training images, the splits prepared with it, and a sentence where images are
    enlarged though nobody asked; what is `learned` of images (C, H, W)."""
    read = sampled(found.files, seen, indices, learned, settings, sizes)
    fitted = fit_preprocessing(read.spec, read.images, settings.resize, read.own_size)
    preprocessing = from_minus_one(fitted)
    return preprocessing, splits_of(found, indices, preprocessing, read.held, settings.workers), read.enlarged


class Sampled(NamedTuple):
    """What is known of image files before the preprocessing is fitted, and what it is fitted on."""

    spec: ImageSpec
    own_size: Size | None  # the one size that all files have, where there is one
    images: Iterator[Tensor]  # uint8 (1, C, h, w), of training files
    held: bool  # whether all of them go into the memory that is allowed
    enlarged: str | None  # a sentence, where images are enlarged though nobody asked


def sampled(
    files: Sequence[File],
    seen: Looks,
    indices: dict[str, Rows],
    learned: Callable[[Shape], ImageTarget],
    settings: DataSettings,
    sizes: ImageSizes,
    beside: int = 0,
) -> Sampled:
    """Choose a size and channels for the files, and training images to fit the preprocessing on. What is `learned` of
    images (C, H, W) takes as much memory as so many channels `beside` them."""
    own_size, size, enlarged = size_for(seen.sizes, sizes, settings.image_size)
    shape = (channels_for(seen.column("grey"), settings.color), *size)
    spec = ImageSpec(*shape, learned(shape))
    sample = draw(indices["train"], SAMPLE, seed=settings.split_seed)
    used = np.concatenate(list(indices.values()))
    held = len(used) * (spec.channels + beside) * spec.height * spec.width <= settings.memory * MEBIBYTE
    others = [files[i] for i in np.setdiff1d(used, sample)] if held else []
    return Sampled(spec, own_size, training_images([files[i] for i in sample], others, spec), held, enlarged)


def splits_of(
    found: Found[File], indices: dict[str, Rows], preprocessing: ImagePreprocessing, held: bool, workers: int | None
) -> dict[str, Split]:
    """The splits, held in memory or read anew in every epoch."""
    return decoded(found, indices, preprocessing) if held else read_anew(found, indices, preprocessing, workers)


def size_for(own: set[Size], sizes: ImageSizes, asked: int | None) -> tuple[Size | None, Size, str | None]:
    """The one size that images of these sizes have, if there is one; the size that they are brought to; and a sentence,
    where they are enlarged though nobody asked."""
    own_size = next(iter(own)) if len(own) == 1 else None
    stays = own_size if own_size and max(own_size) <= LARGEST_OWN_SIZE else None
    size = sizes.choose(asked, stays)
    return own_size, size, sizes.note(stays, size, asked)


def channels_for(grey: Sequence[bool] | npt.NDArray[np.bool_], color: str) -> int:
    """1 for grey, 3 for RGB: what the setting says, else what most are."""
    return 1 if color == "gray" or (color == "auto" and 2 * np.sum(grey) > len(grey)) else 3


def training_images(files: Sequence[File], others: Sequence[File], spec: ImageSpec) -> Iterator[Tensor]:
    """uint8 (1, C, h, w) of each file, whole, and no larger than it enters the network.

    Raises DataError that names every file that cannot be decoded; where there is one, `others` are tried too.
    """

    def whole(file: File) -> Tensor | Problem:
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


def decoded(found: Found[File], indices: dict[str, Rows], preprocessing: ImagePreprocessing) -> dict[str, Split]:
    """The splits decoded once, at the size that they enter the network in."""
    kept = np.unique(np.concatenate(list(indices.values())))  # `max_samples` may have left files out
    files = [found.files[i] for i in kept]

    def fitted(file: File) -> np.ndarray[tuple[int, int, int], np.dtype[np.uint8]] | Problem:
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


def read_anew(
    found: Found[File], indices: dict[str, Rows], preprocessing: ImagePreprocessing, workers: int | None
) -> dict[str, Split]:
    """The splits read from their files, anew in every epoch."""
    return {
        split: drawn(
            FileSplit(
                chosen(found.files, rows),
                torch.from_numpy(found.labels[rows]),
                preprocessing,
                chosen(found.names, rows),
                workers,
            ),
            preprocessing.spec.target,
        )
        for split, rows in indices.items()
    }


def image_notes(found: Found[File], seen: Looks, indices: dict[str, Rows], channels: int) -> list[str | None]:
    """Sentences on files of several frames, colours that are lost, and images that stand in two splits."""
    notes: list[str | None] = []
    moving = chosen(found.names, np.flatnonzero(seen.column("moving")))
    if moving:
        notes.append(
            f"{len(moving):,} files have several frames or pages, and the first is read: {', '.join(moving[:3])}."
        )
    coloured = int(np.sum(~seen.column("grey")))
    if channels == 1 and coloured:
        notes.append(
            f"{coloured:,} of {len(seen):,} images are coloured and are read in grey; color=rgb keeps colours."
        )
    return [*notes, straddle_note(seen.alike, indices, found.names.__getitem__, "images")]
