"""Image sets that lie in memory: small enough to be read once, split, fitted and held as one tensor."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from ...spec import Episodes, ImageSizes, ImageSpec, Mask, Target
from ..assembly import Origin, assemble
from ..episodes import class_split, in_episodes
from ..guard.duplicates import straddle_note
from ..kinds import reject_changed
from ..sets import Batch, DataSet, Split, TensorSplit
from ..settings import DataSettings
from ..splits import Rows, complete_split
from .drawing import ImageTarget, OfImages, Shape, drawn, target_of
from .mask_preprocessing import MaskPreprocessing, MaskSplit
from .preprocessing import ImagePreprocessing, fit_preprocessing, from_minus_one
from .reading import Pixels, as_image

Labels = npt.NDArray[Any]  # (n, …): the class of each image, or its boxes

FLOAT_BYTES = 1 << 30  # a set that takes less than this as float32 is normalised once, a larger one batch by batch
CHUNK = 1024  # images whose levels are counted at a time


def image_dataset(
    pixels: Pixels,
    labels: Labels,
    classes: Sequence[str],
    origin: Origin,
    settings: DataSettings,
    sizes: ImageSizes,
    splits: Mapping[str, Rows] | None = None,
    targets: tuple[type[Target], ...] = (),
) -> DataSet:
    """A named image set: `pixels` (n, C, h, w), 0…255, `labels` (n,), class k named `classes[k]`.

    `splits` are those that the set comes with: a train and a test split, or nothing; what it has not is drawn from
    its training examples. `sizes` are those that the model takes, `targets` what it learns, where it says so.
    """
    reject_changed(settings, ("missing",), "is for files, and this set is whole")
    indices, said = split_of(labels, classes, splits, settings, targets)
    learned = partial(target_of, classes, targets=targets, settings=settings)
    preprocessing, held, notes = images_at_hand(pixels, labels, indices, learned, settings, sizes)
    held = in_episodes(held, preprocessing.spec.target, classes)
    return assemble(origin, settings, indices, preprocessing, held, [*said, *notes])


def split_of(
    labels: Rows,
    classes: Sequence[str],
    given: Mapping[str, Rows] | None,
    settings: DataSettings,
    targets: tuple[type[Target], ...],
) -> tuple[dict[str, Rows], list[str]]:
    """Train, val and test, and sentences on them: by example, or, where episodes are learned, by class."""
    if Episodes in targets:
        return class_split(labels, classes, given, settings)
    return complete_split(labels, classes, given, settings), []


def images_at_hand(
    pixels: Pixels,
    labels: Labels,
    indices: Mapping[str, Rows],
    learned: Callable[[Shape], OfImages],
    settings: DataSettings,
    sizes: ImageSizes,
    names: Sequence[str] = (),
) -> tuple[ImagePreprocessing, dict[str, Split], list[str | None]]:
    """The preprocessing fitted on the training images of `pixels` (n, C, h, w), the splits prepared with it, and notes
    on images that are enlarged or stand in two splits; what is `learned` of images (C, H, W), and what each is called,
    where it has a name."""
    read = at_hand(pixels, indices, learned, settings, sizes, names)
    preprocessing = from_minus_one(fit_preprocessing(read.spec, read.training, settings.resize, read.own_size))
    return preprocessing, in_memory(read.images, labels, indices, preprocessing, read.names, read.image), read.notes


class AtHand(NamedTuple):
    """What is known of images in memory before the preprocessing is fitted, and what it is fitted on."""

    images: Tensor  # uint8 (n, C, h, w), in the colours that were asked for
    spec: ImageSpec
    own_size: tuple[int, int]
    training: Iterator[Tensor]  # the training images, some at a time
    names: Sequence[str]
    image: Callable[[int], Image.Image]  # each as it was given
    notes: list[str | None]  # on images that are enlarged or stand in two splits


def at_hand(
    pixels: Pixels,
    indices: Mapping[str, Rows],
    learned: Callable[[Shape], ImageTarget],
    settings: DataSettings,
    sizes: ImageSizes,
    names: Sequence[str] = (),
) -> AtHand:
    """Choose a size and channels for `pixels` (n, C, h, w), 0…255; what is `learned` of images (C, H, W)."""
    images = in_colour(torch.from_numpy(pixels), settings.color)
    own_size = (images.shape[2], images.shape[3])
    size = sizes.choose(settings.image_size, own_size)
    shape = (images.shape[1], *size)
    training = (images[rows] for rows in in_chunks(torch.from_numpy(indices["train"])))
    names = names or [f"image {i}" for i in range(len(images))]
    straddle = straddle_note([hashlib.sha256(p).digest() for p in pixels], indices, names.__getitem__, "images")

    def image(i: int) -> Image.Image:
        return as_image(pixels[i].transpose(1, 2, 0))

    notes = [sizes.note(own_size, size, settings.image_size), straddle]
    return AtHand(images, ImageSpec(*shape, learned(shape)), own_size, training, names, image, notes)


def mask_dataset(
    pixels: Pixels,
    masks: Pixels,
    classes: Sequence[str],
    origin: Origin,
    settings: DataSettings,
    sizes: ImageSizes,
    splits: Mapping[str, Rows] | None = None,
) -> DataSet:
    """A named set of images with masks: `pixels` (n, C, h, w), 0…255, and `masks` (n, h, w), value k the class
    `classes[k]`; all else as of `image_dataset`."""
    reject_changed(settings, ("missing",), "is for files, and this set has a mask for every image")
    indices = complete_split(np.zeros(len(pixels), np.int64), ("image",), splits, settings)
    read = at_hand(pixels, indices, lambda _: Mask(tuple(classes)), settings, sizes)
    fitted = fit_preprocessing(read.spec, read.training, settings.resize, read.own_size)
    preprocessing = MaskPreprocessing(**vars(fitted))
    pairs = preprocessing.pairs(read.images, masks)
    counts = np.stack([np.bincount(mask.ravel(), minlength=256) for mask in masks])
    held: dict[str, Split] = {
        name: MaskSplit(
            pairs[torch.from_numpy(rows)],
            counts[rows],
            preprocessing,
            [read.names[i] for i in rows],
            lambda i, rows=rows: read.image(int(rows[i])),  # type: ignore[misc]
        )
        for name, rows in indices.items()
    }
    return assemble(origin, settings, indices, preprocessing, held, read.notes)


def in_memory(
    pixels: Tensor,
    labels: Labels,
    indices: Mapping[str, Rows],
    preprocessing: ImagePreprocessing,
    names: Sequence[str],
    image: Callable[[int], Image.Image],
) -> dict[str, Split]:
    """The splits of images (n, C, h, w): normalised once or, where that would be large, a batch at a time.

    `names` and `image` are of all n images.
    """
    spec, used = preprocessing.spec, sum(len(rows) for rows in indices.values())
    once = used * spec.channels * spec.height * spec.width * 4 < FLOAT_BYTES

    def as_split(rows: Rows) -> Split:
        own, target = pixels[torch.from_numpy(rows)], torch.from_numpy(labels[rows])
        inputs = preprocessing.prepare(own) if once else own
        held = TensorSplit(inputs, target, [names[i] for i in rows], lambda i: image(int(rows[i])))
        return drawn(held if once else PixelSplit(held, preprocessing), spec.target)

    return {name: as_split(rows) for name, rows in indices.items()}


class PixelSplit(Split):
    """A split that lies in memory as bytes; its images are brought to size and normalised a batch at a time."""

    def __init__(self, pixels: TensorSplit, preprocessing: ImagePreprocessing) -> None:
        self.target = pixels.target
        self._pixels = pixels
        self._preprocessing = preprocessing

    def __len__(self) -> int:
        return len(self._pixels)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Batches (N, C, H, W) in the given order; nothing is varied here, the loop augments whole batches."""
        for (pixels,), target in self._pixels.batches(order, seed):
            yield Batch((self._preprocessing.prepare(pixels),), target)

    def name(self, i: int) -> str:
        """What a person calls example i."""
        return self._pixels.name(i)

    def image(self, i: int) -> Image.Image | None:
        """Example i as it was given."""
        return self._pixels.image(i)


def in_colour(images: Tensor, color: str) -> Tensor:
    """uint8 images (n, C, h, w) in the colours that the setting asks for: auto, rgb or grey."""
    if color == "rgb" and images.shape[1] == 1:
        return images.expand(-1, 3, -1, -1)
    if color == "gray" and images.shape[1] == 3:
        # Luma as Pillow rounds it, so that files read by it later give the same pixels.
        return torch.cat([_luma(some) for some in in_chunks(images)])
    return images


def in_chunks(tensor: Tensor) -> Iterator[Tensor]:
    """The tensor in pieces of CHUNK along its first dimension."""
    return (tensor[start : start + CHUNK] for start in range(0, len(tensor), CHUNK))


def _luma(images: Tensor) -> Tensor:
    red, green, blue = images.int().unbind(1)
    return ((19595 * red + 38470 * green + 7471 * blue + 32768) >> 16).to(torch.uint8)[:, None]  # (n, 1, h, w)
