"""Image data sets: class folders, masks and boxes, and arrays. Folders with captions are read by `captioning`.

photos/cats/1.jpg, or photos/train/cats/1.jpg with val/ and test/    classification
a mask for each image                                                 segmentation
COCO or YOLO boxes                                                    detection

Images are resized, normalised with training statistics, and held in memory or read from files in every epoch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from ...core.errors import DataError, Problem
from ...core.files import MEBIBYTE
from ...core.spec import ANY_SIZE, Episodes, GeneratedImage, ImageSizes, ImageSpec, Mask, Target, Unlabelled
from ..build import DataSource, build_dataset
from ..dataset_base import Batch, DataSet, Split, TensorSplit
from ..episodes import EpisodeSplit, split_by_class, to_episodes
from ..findings import duplicate_warning, reject_fill
from ..folders import IMAGES, FolderContents, find_examples, find_flat, fingerprint_files, is_flat, missing_class_notes
from ..modalities import reject_changed
from ..parallel import Progress
from ..settings import DataSettings
from ..splits import Rows, complete_split, sample_rows
from ..streaming.members import Stored, select_items
from ..streaming.tars import inspect_files, is_sharded, read_folder, read_shards
from ..unsupported_formats import reject_flat, reject_layout
from . import detection, segmentation
from .detection import ONE, Rectangles, build_box_target, fit_boxes, pad_boxes
from .image_files import (
    ImageFileInfo,
    ImageFileTable,
    Pixels,
    Size,
    as_image,
    as_pixels,
    inspect_images,
    pack_image_info,
    read_image,
    resize,
    size_covering,
    unusable_images_error,
)
from .segmentation import MaskPreprocessing, MaskSplit, decode_mask_splits, stream_mask_split
from .transforms import (
    SHARDED,
    FileSplit,
    ImagePreprocessing,
    ImageTarget,
    NoisyImageSplit,
    OfImages,
    Shape,
    build_image_target,
    fit_preprocessing,
    map_in_threads,
    scale_for_generation,
    with_noise,
)


def open_folder(
    path: Path, settings: DataSettings, sizes: ImageSizes = ANY_SIZE, targets: tuple[type[Target], ...] = ()
) -> DataSet:
    """Load a folder of class folders, or of images with masks or boxes.

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


LARGEST_OWN_SIZE = 512  # largest original size that images keep by default
SAMPLE = 1024  # training images used to estimate mean and standard deviation
File = Path | Stored


def prepare_splits(
    found: FolderContents[File],
    seen: ImageFileTable,
    indices: dict[str, Rows],
    learned: Callable[[Shape], OfImages],
    settings: DataSettings,
    sizes: ImageSizes,
) -> tuple[ImagePreprocessing, dict[str, Split], str | None]:
    """Fit the preprocessing on the training images and prepare the splits.

    `learned` returns the target for images of shape (C, H, W). The third result is a note if images are enlarged
    without a request by the user, else None.
    """
    read = sample_image_files(found.files, seen, indices, learned, settings, sizes)
    fitted = fit_preprocessing(read.spec, read.images, settings.resize, read.own_size)
    preprocessing = scale_for_generation(fitted)
    return preprocessing, build_splits(found, indices, preprocessing, read.held, settings.workers), read.enlarged


class ImageFileSample(NamedTuple):
    """Properties of image files before the preprocessing is fitted, and the images to fit it on."""

    spec: ImageSpec
    own_size: Size | None  # the common size of all files, or None
    images: Iterator[Tensor]  # uint8 (1, C, h, w), of training files
    held: bool  # True if all images fit into the allowed memory
    enlarged: str | None  # a note, if images are enlarged without a request by the user


def sample_image_files(
    files: Sequence[File],
    seen: ImageFileTable,
    indices: dict[str, Rows],
    learned: Callable[[Shape], ImageTarget],
    settings: DataSettings,
    sizes: ImageSizes,
    extra_channels: int = 0,
) -> ImageFileSample:
    """Choose a size and channels for the files, and training images to fit the preprocessing on.

    `learned` returns the target for images of shape (C, H, W). `extra_channels` counts the channels that the target
    takes in memory.
    """
    own_size, size, enlarged = choose_size(seen.sizes, sizes, settings.image_size)
    shape = (choose_channels(seen.column("grey"), settings.color), *size)
    spec = ImageSpec(*shape, learned(shape))
    sample = sample_rows(indices["train"], SAMPLE, seed=settings.split_seed)
    used = np.concatenate(list(indices.values()))
    held = len(used) * (spec.channels + extra_channels) * spec.height * spec.width <= settings.memory * MEBIBYTE
    others = [files[i] for i in np.setdiff1d(used, sample)] if held else []
    return ImageFileSample(spec, own_size, training_images([files[i] for i in sample], others, spec), held, enlarged)


def build_splits(
    found: FolderContents[File],
    indices: dict[str, Rows],
    preprocessing: ImagePreprocessing,
    held: bool,
    workers: int | None,
) -> dict[str, Split]:
    """Return the splits, decoded into memory or read from files in every epoch."""
    return (
        decode_splits(found, indices, preprocessing) if held else stream_splits(found, indices, preprocessing, workers)
    )


def choose_size(own: set[Size], sizes: ImageSizes, asked: int | None) -> tuple[Size | None, Size, str | None]:
    """Return the common size of the images (or None), the size that they are resized to, and a note or None.

    The note says that images are enlarged without a request by the user.
    """
    own_size = next(iter(own)) if len(own) == 1 else None
    stays = own_size if own_size and max(own_size) <= LARGEST_OWN_SIZE else None
    size = sizes.choose(asked, stays)
    return own_size, size, sizes.note(stays, size, asked)


def choose_channels(grey: Sequence[bool] | npt.NDArray[np.bool_], color: str) -> int:
    """Return 1 for grey or 3 for RGB: the value of the setting, or the majority of the images."""
    return 1 if color == "gray" or (color == "auto" and 2 * np.sum(grey) > len(grey)) else 3


def training_images(files: Sequence[File], others: Sequence[File], spec: ImageSpec) -> Iterator[Tensor]:
    """Yield uint8 (1, C, h, w) of each file, uncropped and no larger than the network's input requires.

    Raises DataError that names every file that cannot be decoded. If there is one, `others` are checked too.
    """

    def whole(file: File) -> Tensor | Problem:
        def drawing_size(size: Size) -> Size:
            return min(size, size_covering(size, (spec.height, spec.width)))

        try:
            image = read_image(file, str(file), spec.channels, drawing_size)
        except DataError as error:
            return error.problems[0]
        pixels = as_pixels(resize(image, drawing_size((image.height, image.width))))
        return torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None]

    problems: list[Problem] = []
    for image in map_in_threads(whole, files):
        if isinstance(image, Problem):
            problems.append(image)
        else:
            yield image
    if problems:
        problems += [read for read in map_in_threads(whole, others) if isinstance(read, Problem)]
        raise unusable_images_error(problems, len(files) + len(others))


def decode_splits(
    found: FolderContents[File], indices: dict[str, Rows], preprocessing: ImagePreprocessing
) -> dict[str, Split]:
    """Decode all splits once, at the input size of the network."""
    kept = np.unique(np.concatenate(list(indices.values())))  # `max_samples` may have excluded files
    files = [found.files[i] for i in kept]

    def fitted(file: File) -> np.ndarray[tuple[int, int, int], np.dtype[np.uint8]] | Problem:
        try:
            return preprocessing.pixels(file, str(file))
        except DataError as error:
            return error.problems[0]

    spec = preprocessing.spec
    pixels = np.empty((len(files), spec.height, spec.width, spec.channels), np.uint8)
    problems: list[Problem] = []
    for i, image in enumerate(map_in_threads(fitted, files)):
        if isinstance(image, Problem):
            problems.append(image)
        else:
            pixels[i] = image
    if problems:
        raise unusable_images_error(problems, len(files))

    def original(i: int) -> Image.Image:
        return read_image(files[i], str(files[i]))

    return build_in_memory_splits(
        torch.from_numpy(pixels).permute(0, 3, 1, 2),  # (n, C, H, W)
        found.labels[kept],
        {split: np.searchsorted(kept, rows) for split, rows in indices.items()},
        preprocessing,
        [found.names[i] for i in kept],
        original,
    )


def stream_splits(
    found: FolderContents[File], indices: dict[str, Rows], preprocessing: ImagePreprocessing, workers: int | None
) -> dict[str, Split]:
    """Return splits that read their files in every epoch."""
    return {
        split: with_noise(
            FileSplit(
                select_items(found.files, rows),
                torch.from_numpy(found.labels[rows]),
                preprocessing,
                select_items(found.names, rows),
                workers,
            ),
            preprocessing.spec.target,
        )
        for split, rows in indices.items()
    }


def image_notes(
    found: FolderContents[File], seen: ImageFileTable, indices: dict[str, Rows], channels: int
) -> list[str | None]:
    """Return notes on multi-frame files, discarded colors, and duplicates across splits."""
    notes: list[str | None] = []
    moving = select_items(found.names, np.flatnonzero(seen.column("moving")))
    if moving:
        notes.append(
            f"{len(moving):,} files have several frames or pages, and the first is read: {', '.join(moving[:3])}."
        )
    coloured = int(np.sum(~seen.column("grey")))
    if channels == 1 and coloured:
        notes.append(
            f"{coloured:,} of {len(seen):,} images are coloured and are read in grey; color=rgb keeps colours."
        )
    return [*notes, duplicate_warning(seen.alike, indices, found.names.__getitem__, "images")]


Labels = npt.NDArray[Any]  # (n, …): the class of each image, or its boxes

FLOAT_BYTES = 1 << 30  # a data set smaller than this as float32 is normalised once, a larger one in batches
CHUNK = 1024  # images whose levels are counted at a time


def image_dataset(
    pixels: Pixels,
    labels: Labels,
    classes: Sequence[str],
    origin: DataSource,
    settings: DataSettings,
    sizes: ImageSizes,
    splits: Mapping[str, Rows] | None = None,
    targets: tuple[type[Target], ...] = (),
) -> DataSet:
    """Build an image data set from arrays.

    `pixels` is (n, C, h, w), 0…255; `labels` is (n,), with class k named `classes[k]`. `splits` are the predefined
    splits: a train and a test split, or none. Missing splits are drawn from the training examples. `sizes` are the
    input sizes that the model accepts. `targets` are the target types that the model requests, if any.
    """
    reject_changed(settings, ("missing",), "is for files, and this set is whole")
    indices, split_notes = split_images(labels, classes, splits, settings, targets)
    learned = partial(build_image_target, classes, targets=targets, settings=settings)
    preprocessing, held, notes = prepare_in_memory(pixels, labels, indices, learned, settings, sizes)
    held = to_episodes(held, preprocessing.spec.target, classes)
    return build_dataset(origin, settings, indices, preprocessing, held, [*split_notes, *notes])


def split_images(
    labels: Rows,
    classes: Sequence[str],
    given: Mapping[str, Rows] | None,
    settings: DataSettings,
    targets: tuple[type[Target], ...],
) -> tuple[dict[str, Rows], list[str]]:
    """Return the train, val and test indices and notes on them: split by example, or by class for episodes."""
    if Episodes in targets:
        return split_by_class(labels, classes, given, settings)
    return complete_split(labels, classes, given, settings), []


def prepare_in_memory(
    pixels: Pixels,
    labels: Labels,
    indices: Mapping[str, Rows],
    learned: Callable[[Shape], OfImages],
    settings: DataSettings,
    sizes: ImageSizes,
    names: Sequence[str] = (),
) -> tuple[ImagePreprocessing, dict[str, Split], list[str | None]]:
    """Fit the preprocessing on the training images of `pixels` (n, C, h, w) and prepare the splits in memory.

    `learned` returns the target for images of shape (C, H, W). `names` are optional names of the images. The notes
    cover enlarged images and duplicates across splits.
    """
    read = inspect_in_memory(pixels, indices, learned, settings, sizes, names)
    preprocessing = scale_for_generation(fit_preprocessing(read.spec, read.training, settings.resize, read.own_size))
    return (
        preprocessing,
        build_in_memory_splits(read.images, labels, indices, preprocessing, read.names, read.image),
        read.notes,
    )


class InMemoryImages(NamedTuple):
    """Properties of in-memory images before the preprocessing is fitted, and the images to fit it on."""

    images: Tensor  # uint8 (n, C, h, w), in the requested color mode
    spec: ImageSpec
    own_size: tuple[int, int]
    training: Iterator[Tensor]  # the training images, in chunks
    names: Sequence[str]
    image: Callable[[int], Image.Image]  # returns the original image
    notes: list[str | None]  # on enlarged images and duplicates across splits


def inspect_in_memory(
    pixels: Pixels,
    indices: Mapping[str, Rows],
    learned: Callable[[Shape], ImageTarget],
    settings: DataSettings,
    sizes: ImageSizes,
    names: Sequence[str] = (),
) -> InMemoryImages:
    """Choose a size and channels for `pixels` (n, C, h, w), 0…255.

    `learned` returns the target for images of shape (C, H, W).
    """
    images = convert_color(torch.from_numpy(pixels), settings.color)
    own_size = (images.shape[2], images.shape[3])
    size = sizes.choose(settings.image_size, own_size)
    shape = (images.shape[1], *size)
    training = (images[rows] for rows in iterate_chunks(torch.from_numpy(indices["train"])))
    names = names or [f"image {i}" for i in range(len(images))]
    straddle = duplicate_warning([hashlib.sha256(p).digest() for p in pixels], indices, names.__getitem__, "images")

    def image(i: int) -> Image.Image:
        return as_image(pixels[i].transpose(1, 2, 0))

    notes = [sizes.note(own_size, size, settings.image_size), straddle]
    return InMemoryImages(images, ImageSpec(*shape, learned(shape)), own_size, training, names, image, notes)


def mask_dataset(
    pixels: Pixels,
    masks: Pixels,
    classes: Sequence[str],
    origin: DataSource,
    settings: DataSettings,
    sizes: ImageSizes,
    splits: Mapping[str, Rows] | None = None,
) -> DataSet:
    """Build a data set of images with masks from arrays.

    `pixels` is (n, C, h, w), 0…255; `masks` is (n, h, w), with value k for class `classes[k]`. The other arguments are
    those of `image_dataset`.
    """
    reject_changed(settings, ("missing",), "is for files, and this set has a mask for every image")
    indices = complete_split(np.zeros(len(pixels), np.int64), ("image",), splits, settings)
    read = inspect_in_memory(pixels, indices, lambda _: Mask(tuple(classes)), settings, sizes)
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
    return build_dataset(origin, settings, indices, preprocessing, held, read.notes)


def build_in_memory_splits(
    pixels: Tensor,
    labels: Labels,
    indices: Mapping[str, Rows],
    preprocessing: ImagePreprocessing,
    names: Sequence[str],
    image: Callable[[int], Image.Image],
) -> dict[str, Split]:
    """Build the splits of images (n, C, h, w), normalised once or, if that takes much memory, batch by batch.

    `names` and `image` refer to all n images.
    """
    spec, used = preprocessing.spec, sum(len(rows) for rows in indices.values())
    once = used * spec.channels * spec.height * spec.width * 4 < FLOAT_BYTES

    def as_split(rows: Rows) -> Split:
        own, target = pixels[torch.from_numpy(rows)], torch.from_numpy(labels[rows])
        inputs = preprocessing.prepare(own) if once else own
        held = TensorSplit(inputs, target, [names[i] for i in rows], lambda i: image(int(rows[i])))
        return with_noise(held if once else PixelSplit(held, preprocessing), spec.target)

    return {name: as_split(rows) for name, rows in indices.items()}


class PixelSplit(Split):
    """An in-memory split of bytes whose images are resized and normalised batch by batch."""

    def __init__(self, pixels: TensorSplit, preprocessing: ImagePreprocessing) -> None:
        self.target = pixels.target
        self._pixels = pixels
        self._preprocessing = preprocessing

    def __len__(self) -> int:
        return len(self._pixels)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield batches (N, C, H, W) in the given order.

        The training loop augments whole batches, so none is done here.
        """
        for (pixels,), target in self._pixels.batches(order, seed):
            yield Batch((self._preprocessing.prepare(pixels),), target)

    def name(self, i: int) -> str:
        """Return the display name of example i."""
        return self._pixels.name(i)

    def image(self, i: int) -> Image.Image | None:
        """Return the original image of example i."""
        return self._pixels.image(i)


def convert_color(images: Tensor, color: str) -> Tensor:
    """Convert uint8 images (n, C, h, w) to the color mode of the setting: auto, rgb or gray."""
    if color == "rgb" and images.shape[1] == 1:
        return images.expand(-1, 3, -1, -1)
    if color == "gray" and images.shape[1] == 3:
        # Round luma as Pillow does, so that files read later give the same pixels.
        return torch.cat([_luma(some) for some in iterate_chunks(images)])
    return images


def iterate_chunks(tensor: Tensor) -> Iterator[Tensor]:
    """Split the tensor into chunks of CHUNK along its first dimension."""
    return (tensor[start : start + CHUNK] for start in range(0, len(tensor), CHUNK))


def _luma(images: Tensor) -> Tensor:
    red, green, blue = images.int().unbind(1)
    return ((19595 * red + 38470 * green + 7471 * blue + 32768) >> 16).to(torch.uint8)[:, None]  # (n, 1, h, w)


def box_dataset(
    pixels: Pixels,
    boxes: Sequence[Rectangles],
    classes: Sequence[str],
    origin: DataSource,
    settings: DataSettings,
    sizes: ImageSizes,
    splits: Mapping[str, Rows] | None = None,
) -> DataSet:
    """Build a data set of images with boxes from arrays.

    `pixels` is (n, C, h, w), 0…255; `boxes` holds the boxes of each image, with class k named `classes[k]`.
    """
    indices = complete_split(np.zeros(len(pixels), np.int64), ONE, splits, settings)
    target = build_box_target(classes, boxes, indices["train"])
    read = inspect_in_memory(pixels, indices, lambda _: target, settings, sizes)
    preprocessing = fit_boxes(read.spec, read.training, settings, read.own_size)
    labels = pad_boxes([preprocessing.moved(own, read.own_size) for own in boxes])
    held = build_in_memory_splits(read.images, labels, indices, preprocessing, read.names, read.image)
    return build_dataset(origin, settings, indices, preprocessing, held, read.notes)
