"""Image data sets: class folders, masks and boxes, and arrays. Folders with captions are read by `captioning`.

photos/cats/1.jpg, or photos/train/cats/1.jpg with val/ and test/    classification
a mask for each image                                                 segmentation
COCO or YOLO boxes                                                    detection

Images are resized, normalised with training statistics, and held in memory or read from files in every epoch.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
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
from ...core.spec import (
    ANY_SIZE,
    Boxes,
    Episodes,
    GeneratedImage,
    ImageSizes,
    ImageSpec,
    ImageTokens,
    Mask,
    Target,
    Unlabelled,
)
from ..build import DatasetBuilder, DataSource, DuplicateKeys, ExampleClasses
from ..dataset_base import Batch, DataSet, Split, TensorSplit
from ..episodes import EpisodeSplit, split_by_class, to_episodes
from ..findings import duplicate_warning, reject_fill
from ..folders import IMAGES, FolderContents, find_examples, find_flat, fingerprint_files, is_flat, missing_class_notes
from ..modalities import reject_changed
from ..parallel import Progress
from ..settings import DataSettings
from ..splits import Rows, complete_split, sample_rows
from ..streaming.file_index import Stored, select_items
from ..streaming.webdataset import inspect_files, is_sharded, read_folder, read_shards
from ..unsupported_formats import reject_flat, reject_layout
from . import detection, segmentation
from .detection import ONE, BoxPreprocessing, Rectangles, build_box_target, fit_boxes, pad_boxes
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
from .tokens import TokenSplit, fit_tokens
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
    draws = any(issubclass(target, GeneratedImage) for target in targets)
    needs_classes = not (draws or any(issubclass(target, Unlabelled) for target in targets))
    read = _shards if sharded else _folder
    found, seen, fingerprint = read(path, settings, needs_classes, Episodes in targets)
    images = ImageFiles(found.files, found.names, seen)
    classes = ExampleClasses(found.labels, found.classes, found.splits)
    origin = DataSource(path.resolve().name, str(path), fingerprint, found.notes)
    return ClassBuilder(images, classes, origin, settings, sizes, targets).build()


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
    read = split.images if isinstance(split, NoisyImageSplit | TokenSplit) else split
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
    fingerprint = fingerprint_files([*found.names, *found.names], [*(s.digest for s in seen), *digests])
    origin = DataSource(path.resolve().name, str(path), fingerprint, found.notes)
    images = ImageFiles(found.images, found.names, seen)
    return MaskFolderBuilder(images, found, values, classes, origin, settings, sizes).build()


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
    origin = DataSource(path.resolve().name, str(path), _fingerprint(annotated, seen, rows), notes)
    images = ImageFiles(annotated.files, annotated.names, seen)
    return BoxBuilder(images, rows, own_sizes, classes, annotated.splits, origin, settings, sizes).build()


def _fingerprint(
    annotated: detection.AnnotatedImages, seen: Sequence[ImageFileInfo], rows: Sequence[detection.Rectangles]
) -> str:
    """Compute the sha256 of every image's name, content and boxes."""
    digests = [f"{s.digest} {hashlib.sha256(own.tobytes()).hexdigest()}" for s, own in zip(seen, rows)]
    return fingerprint_files(annotated.names, digests)


LARGEST_OWN_SIZE = 512  # largest original size that images keep by default
SAMPLE = 1024  # training images used to estimate mean and standard deviation
File = Path | Stored
Labels = npt.NDArray[Any]  # (n, …): the class of each image, or its boxes


class ImageSample(NamedTuple):
    """Properties of images before the preprocessing is fitted, and training images to fit it on."""

    spec: ImageSpec
    own_size: Size | None  # the common size of all images, or None
    training: Iterator[Tensor]  # uint8 (b, C, h, w)
    held: bool  # True if all images fit into the allowed memory
    enlarged: str | None  # a note, if images are enlarged without a request by the user


class ImageFiles:
    """Checked image files."""

    def __init__(self, files: Sequence[File], names: Sequence[str], seen: ImageFileTable) -> None:
        self.files, self.names, self.seen = files, names, seen

    def sample(
        self,
        indices: Mapping[str, Rows],
        learned: Callable[[Shape], ImageTarget],
        settings: DataSettings,
        sizes: ImageSizes,
        extra_channels: int = 0,
    ) -> ImageSample:
        """Choose a size and channels for the files, and training images to fit the preprocessing on.

        `learned` returns the target for images of shape (C, H, W). `extra_channels` counts the channels that the target
        takes in memory.
        """
        own_size, size, enlarged = choose_size(self.seen.sizes, sizes, settings.image_size)
        shape = (choose_channels(self.seen.column("grey"), settings.color), *size)
        spec = ImageSpec(*shape, learned(shape))
        sample = sample_rows(indices["train"], SAMPLE, seed=settings.split_seed)
        used = np.concatenate(list(indices.values()))
        held = len(used) * (spec.channels + extra_channels) * spec.height * spec.width <= settings.memory * MEBIBYTE
        others = [self.files[i] for i in np.setdiff1d(used, sample)] if held else []
        training = training_images([self.files[i] for i in sample], others, spec)
        return ImageSample(spec, own_size, training, held, enlarged)

    def splits(
        self,
        labels: Labels,
        indices: Mapping[str, Rows],
        preprocessing: ImagePreprocessing,
        held: bool,
        workers: int | None,
    ) -> dict[str, Split]:
        """Return the splits, decoded into memory or read from files in every epoch."""
        if held:
            return decode_splits(self, labels, indices, preprocessing)
        return stream_splits(self, labels, indices, preprocessing, workers)

    def duplicate_keys(self) -> DuplicateKeys:
        """Return the beginning of the digest of each file."""
        return DuplicateKeys(self.seen.alike, self.names.__getitem__)

    def notes(self, channels: int) -> list[str]:
        """Return notes on multi-frame files and discarded colors."""
        notes, seen = [], self.seen
        if moving := select_items(self.names, np.flatnonzero(seen.column("moving"))):
            notes.append(
                f"{len(moving):,} files have several frames or pages, and the first is read: {', '.join(moving[:3])}."
            )
        coloured = int(np.sum(~seen.column("grey")))
        if channels == 1 and coloured:
            notes.append(
                f"{coloured:,} of {len(seen):,} images are coloured and are read in grey; color=rgb keeps colours."
            )
        return notes


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
    found: ImageFiles, labels: Labels, indices: Mapping[str, Rows], preprocessing: ImagePreprocessing
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
        labels[kept],
        {split: np.searchsorted(kept, rows) for split, rows in indices.items()},
        preprocessing,
        [found.names[i] for i in kept],
        original,
    )


def stream_splits(
    found: ImageFiles,
    labels: Labels,
    indices: Mapping[str, Rows],
    preprocessing: ImagePreprocessing,
    workers: int | None,
) -> dict[str, Split]:
    """Return splits that read their files in every epoch."""
    return {
        split: preprocessing.add_inputs(
            FileSplit(
                select_items(found.files, rows),
                torch.from_numpy(labels[rows]),
                preprocessing,
                select_items(found.names, rows),
                workers,
            )
        )
        for split, rows in indices.items()
    }


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
    known = ExampleClasses(labels, classes, splits)
    return ClassBuilder(ImageArrays(pixels), known, origin, settings, sizes, targets).build()


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
    images = ImageArrays(pixels, names)
    read = images.sample(indices, learned, settings, sizes)
    preprocessing = fit_sample(read, settings)
    splits = images.splits(labels, indices, preprocessing)
    keys = images.duplicate_keys()
    return preprocessing, splits, [read.enlarged, duplicate_warning(keys.keys, indices, keys.name, "images")]


def fit_sample(sample: ImageSample, settings: DataSettings) -> ImagePreprocessing:
    """Fit the preprocessing on training images; generative models get another scale, or a palette of tokens."""
    if isinstance(sample.spec.target, ImageTokens):
        return fit_tokens(sample.spec, list(sample.training), settings, sample.own_size)
    return scale_for_generation(fit_preprocessing(sample.spec, sample.training, settings.resize, sample.own_size))


def _original_image(pixels: Pixels, i: int) -> Image.Image:
    return as_image(pixels[i].transpose(1, 2, 0))


class ImageArrays:
    """Images in memory."""

    def __init__(self, pixels: Pixels, names: Sequence[str] = ()) -> None:
        """Initialize with `pixels` (n, C, h, w), 0…255, and names to display."""
        self.pixels = pixels
        self.names = names or [f"image {i}" for i in range(len(pixels))]
        self.images = torch.from_numpy(pixels)  # in the color mode of the settings, once they are sampled

    def sample(
        self,
        indices: Mapping[str, Rows],
        learned: Callable[[Shape], ImageTarget],
        settings: DataSettings,
        sizes: ImageSizes,
        extra_channels: int = 0,
    ) -> ImageSample:
        """Choose a size and channels. `learned` returns the target for images of shape (C, H, W)."""
        del extra_channels  # everything is in memory already
        self.images = convert_color(self.images, settings.color)
        own_size = (self.images.shape[2], self.images.shape[3])
        size = sizes.choose(settings.image_size, own_size)
        shape = (self.images.shape[1], *size)
        training = (self.images[rows] for rows in iterate_chunks(torch.from_numpy(indices["train"])))
        enlarged = sizes.note(own_size, size, settings.image_size)
        return ImageSample(ImageSpec(*shape, learned(shape)), own_size, training, True, enlarged)

    def image(self, i: int) -> Image.Image:
        """Return the original image."""
        return _original_image(self.pixels, i)

    def splits(
        self,
        labels: Labels,
        indices: Mapping[str, Rows],
        preprocessing: ImagePreprocessing,
        held: bool = True,
        workers: int | None = None,
    ) -> dict[str, Split]:
        """Return the splits in memory."""
        del held, workers
        original = partial(_original_image, self.pixels)  # without the converted copy in self.images
        return build_in_memory_splits(self.images, labels, indices, preprocessing, self.names, original)

    def duplicate_keys(self) -> DuplicateKeys:
        """Return the digest of each image."""
        return DuplicateKeys([hashlib.sha256(p).digest() for p in self.pixels], self.names.__getitem__)

    def notes(self, channels: int) -> list[str]:
        """Return no notes: arrays are read unchanged."""
        del channels
        return []


class ImageBuilder(DatasetBuilder[ImagePreprocessing, Split]):
    """The steps from images, in files or in memory, to their data set."""

    noun = "images"
    extra_channels = 0  # channels that the target takes in memory

    def __init__(
        self, images: ImageFiles | ImageArrays, origin: DataSource, settings: DataSettings, sizes: ImageSizes
    ) -> None:
        super().__init__(origin, settings)
        self.images, self.sizes = images, sizes
        self.from_files = isinstance(images, ImageFiles)

    @abstractmethod
    def target(self, shape: Shape) -> ImageTarget:
        """Return the target for images of shape (C, H, W)."""

    def fit(self) -> ImagePreprocessing:
        """Choose a size and channels, and fit the scale on training images."""
        self.sample = self.images.sample(self.indices, self.target, self.settings, self.sizes, self.extra_channels)
        return self.fit_images(self.sample)

    def fit_images(self, sample: ImageSample) -> ImagePreprocessing:
        """Fit the preprocessing of images with this kind of target."""
        return fit_preprocessing(sample.spec, sample.training, self.settings.resize, sample.own_size)

    def encode_images(self, labels: Labels) -> dict[str, Split]:
        """Return the splits of images with these labels."""
        held, workers = self.sample.held, self.settings.workers
        return self.images.splits(labels, self.indices, self.preprocessing, held, workers)

    def duplicate_keys(self) -> DuplicateKeys:
        """Return a digest of each image."""
        return self.images.duplicate_keys()


class ClassBuilder(ImageBuilder):
    """The steps from images with classes."""

    def __init__(
        self,
        images: ImageFiles | ImageArrays,
        classes: ExampleClasses,
        origin: DataSource,
        settings: DataSettings,
        sizes: ImageSizes,
        targets: tuple[type[Target], ...],
    ) -> None:
        super().__init__(images, origin, settings, sizes)
        self.classes, self.targets = classes, targets

    def split(self) -> dict[str, Rows]:
        """Split by example, or by class for episodes."""
        known = self.classes
        indices, self.split_notes = split_images(known.labels, known.names, known.splits, self.settings, self.targets)
        return indices

    def target(self, shape: Shape) -> OfImages:
        """Return the target that the model requests."""
        return build_image_target(self.classes.names, shape, targets=self.targets, settings=self.settings)

    def fit_images(self, sample: ImageSample) -> ImagePreprocessing:
        """Fit the preprocessing; generative models get another scale, or a palette of tokens."""
        return fit_sample(sample, self.settings)

    def encode_splits(self) -> dict[str, Split]:
        """Return the splits, divided into episodes if the target is one."""
        splits = self.encode_images(self.classes.labels)
        return to_episodes(splits, self.preprocessing.spec.target, self.classes.names)

    def notes(self) -> list[str | None]:
        """Return notes on the split, on absent classes and on how images are read."""
        known, spec = self.classes, self.preprocessing.spec
        notes: list[str | None] = [*self.split_notes]
        if self.from_files and Episodes not in self.targets:
            notes += missing_class_notes(known.labels, known.names, self.indices, "no images")
        notes += [*self.images.notes(spec.channels), self.sample.enlarged]
        draws = any(issubclass(target, GeneratedImage) for target in self.targets)
        if draws and isinstance(self.images, ImageFiles) and len(self.images.seen.sizes) > 1:
            notes.append(f"The images have several sizes: the middle of each is drawn at {spec.height}×{spec.width}.")
        return notes


class MaskBuilder(ImageBuilder):
    """The steps from images with masks."""

    extra_channels = 1
    preprocessing: MaskPreprocessing

    def __init__(
        self,
        images: ImageFiles | ImageArrays,
        counts: npt.NDArray[np.int64],
        names: Sequence[str],
        splits: Mapping[str, Rows] | None,
        origin: DataSource,
        settings: DataSettings,
        sizes: ImageSizes,
    ) -> None:
        """`counts` (n, 256) are the pixels of each class in each mask, class k named `names[k]`."""
        super().__init__(images, origin, settings, sizes)
        self.counts, self.mask = counts, Mask(tuple(names))
        self.classes = ExampleClasses.without(len(counts), "image", splits)

    def target(self, shape: Shape) -> Mask:
        """Return the classes of pixels."""
        del shape
        return self.mask

    def fit_images(self, sample: ImageSample) -> MaskPreprocessing:
        """Fit the preprocessing."""
        return MaskPreprocessing(**vars(super().fit_images(sample)))

    def notes(self) -> list[str | None]:
        """Return a note on enlarged images."""
        return [self.sample.enlarged]


class MaskFolderBuilder(MaskBuilder):
    """The steps from files of images and masks."""

    def __init__(
        self,
        images: ImageFiles,
        found: segmentation.ImageMaskPairs,
        counts: npt.NDArray[np.int64],
        names: Sequence[str],
        origin: DataSource,
        settings: DataSettings,
        sizes: ImageSizes,
    ) -> None:
        super().__init__(images, counts, names, found.splits, origin, settings, sizes)
        self.found = found

    def encode_splits(self) -> dict[str, Split]:
        """Return the splits, decoded into memory or read from files in every epoch."""
        found, workers = self.found, self.settings.workers
        if self.sample.held:
            return decode_mask_splits(found, self.indices, self.counts, self.preprocessing)
        return {
            name: stream_mask_split(found, rows, self.counts, self.preprocessing, workers)
            for name, rows in self.indices.items()
        }

    def notes(self) -> list[str | None]:
        """Return notes on absent classes and on how images are read."""
        names = self.mask.names
        absent = segmentation.absent_notes(self.counts[:, : len(names)], names, self.indices)
        return [*absent, *self.images.notes(self.preprocessing.spec.channels), *super().notes()]


class MaskArrayBuilder(MaskBuilder):
    """The steps from arrays of images and masks."""

    images: ImageArrays

    def __init__(self, images: ImageArrays, masks: Pixels, *arguments: Any) -> None:
        """Initialize with a mask for each image; the other arguments are those of `MaskBuilder`."""
        super().__init__(images, *arguments)
        self.masks = masks

    def encode_splits(self) -> dict[str, Split]:
        """Return the splits in memory."""
        images, preprocessing = self.images, self.preprocessing
        pairs = preprocessing.pairs(images.images, self.masks)
        return {
            name: MaskSplit(
                pairs[torch.from_numpy(rows)],
                self.counts[rows],
                preprocessing,
                [images.names[i] for i in rows],
                lambda i, rows=rows: images.image(int(rows[i])),  # type: ignore[misc]
            )
            for name, rows in self.indices.items()
        }


class BoxBuilder(ImageBuilder):
    """The steps from images with boxes."""

    preprocessing: BoxPreprocessing

    def __init__(
        self,
        images: ImageFiles | ImageArrays,
        boxes: Sequence[Rectangles],
        own_sizes: Sequence[Size],
        names: Sequence[str],
        splits: Mapping[str, Rows] | None,
        origin: DataSource,
        settings: DataSettings,
        sizes: ImageSizes,
    ) -> None:
        """`boxes` are those of each image, of these sizes; class k is named `names[k]`."""
        super().__init__(images, origin, settings, sizes)
        self.boxes, self.own_sizes, self.names = boxes, own_sizes, names
        self.classes = ExampleClasses.without(len(boxes), ONE[0], splits)

    def target(self, shape: Shape) -> Boxes:
        """Return a target of boxes of these classes; the training images determine their largest number."""
        del shape
        return build_box_target(self.names, self.boxes, self.indices["train"])

    def fit_images(self, sample: ImageSample) -> BoxPreprocessing:
        """Fit the preprocessing."""
        return fit_boxes(sample.spec, sample.training, self.settings, sample.own_size)

    def encode_splits(self) -> dict[str, Split]:
        """Return the splits with the boxes in the images' new size."""
        moved = [self.preprocessing.moved(own, size) for own, size in zip(self.boxes, self.own_sizes)]
        return self.encode_images(pad_boxes(moved))

    def notes(self) -> list[str | None]:
        """Return notes on absent classes and enlarged images."""
        absent = detection.absent_notes(self.boxes, self.names, self.indices) if self.from_files else []
        return [*absent, self.sample.enlarged]


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
    counts = np.stack([np.bincount(mask.ravel(), minlength=256) for mask in masks])
    return MaskArrayBuilder(ImageArrays(pixels), masks, counts, classes, splits, origin, settings, sizes).build()


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
        return preprocessing.add_inputs(held if once else PixelSplit(held, preprocessing))

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
    own_sizes = [(pixels.shape[2], pixels.shape[3])] * len(pixels)
    return BoxBuilder(ImageArrays(pixels), boxes, own_sizes, classes, splits, origin, settings, sizes).build()
