"""Image resizing and normalisation, fitted on the training split and saved as JSON with the model.

    x = (p / 255 − mean) / std,  p the pixel 0…255 of the image in grey or RGB at H × W

Training and prediction use the same two steps: `pixels` for one image, `normalise` for a batch.

A `FileSplit` reads its images from files during training.

Data for image generation: images with the noise that training needs.

    noise prediction (Noise):    inputs x_0, t, ε and, if there are classes, the class;   target ε
    likelihood (Image):          inputs x_0 and ε;                                        target the class
    tokens (ImageTokens):        see tokens.py

The noise depends only on the seed and the example. It differs between epochs, is identical after a run is resumed, and
is fixed in validation.

Images that are numeric arrays with any range and any number of channels.

    x = (p − mean) / std

Mean and standard deviation are computed per channel over the training images. Values are not rounded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ...core import spec as specs
from ...core.config import build
from ...core.errors import DataError, DataMismatchError, NotEnoughDataError, Problem, PythonDataError, shorten
from ...core.schema import COUNT, NUMBER, Between
from ...core.spec import (
    Boxes,
    Classes,
    Episodes,
    GeneratedImage,
    ImageSpec,
    ImageTokens,
    Mask,
    Noise,
    Patches,
    Tokens,
    Unlabelled,
    Views,
)
from ..augment import ImageViews
from ..dataset_base import Batch, Preprocessing, Split, TensorSplit, remap_targets
from ..episodes import labelled_episodes
from ..folders import IMAGES, find_examples, find_labelled, is_flat
from ..modalities import reject_changed
from ..parallel import Progress, ignore_interrupts, iterate_workers, num_cpus
from ..settings import DataSettings
from ..streaming.file_index import Stored
from ..streaming.webdataset import FileInspector, all_members, is_sharded, labelled_shards
from ..text.corpus_transforms import uniform
from .image_files import (
    Pixels,
    Size,
    Source,
    as_image,
    as_pixels,
    check_decodable,
    crop_to,
    inspect_image,
    inspect_images,
    list_image_files,
    pack_image_info,
    pad_to,
    read_image,
    resize,
    size_covering,
    size_within,
    unusable_images_error,
)

PAD_AT_MOST = 8  # at most this many pixels, and a quarter, are padded by resize=auto instead of enlarging


@dataclass(frozen=True)
class ImagePreprocessing:
    """Preprocessing of an image to a tensor (C, H, W)."""

    spec: ImageSpec
    mean: tuple[float, ...]  # per channel, of the training pixels / 255
    std: tuple[float, ...]  # as above
    fit: str  # crop, stretch or pad
    box: Size  # pad: the centered region of H × W that the image is drawn into
    background: tuple[int, ...]  # pad: the color around the image, 0…255 per channel

    SCHEMA: ClassVar[Mapping[str, Any]] = {
        "spec": specs.SCHEMA, "mean": [NUMBER], "std": [NUMBER], "fit": str, "box": [COUNT],
        "background": [Between(0, 255)],
    }  # fmt: skip

    def pixels(self, source: Source, name: str) -> Pixels:
        """Read one image as (H, W, C), 0…255. Raises DataError, naming it, if it cannot be read."""
        return as_pixels(self._fitted(read_image(source, name, self.spec.channels, self._drawing_size)))

    def prepare(self, pixels: Tensor) -> Tensor:
        """Convert uint8 (n, C, h, w), of the right channels and any one size, to float32 (n, C, H, W)."""
        size, own = (self.spec.height, self.spec.width), tuple(pixels.shape[2:])
        if own == size:
            return self.normalise(pixels)
        if self.fit == "pad" and own == self.box:
            top, left = (size[0] - own[0]) // 2, (size[1] - own[1]) // 2
            fitted = torch.tensor(self.background, dtype=torch.uint8).view(1, -1, 1, 1)
            fitted = fitted.repeat(len(pixels), 1, *size)
            fitted[:, :, top : top + own[0], left : left + own[1]] = pixels
            return self.normalise(fitted)
        rows = pixels.permute(0, 2, 3, 1).numpy()  # (n, h, w, C)
        images = np.stack([as_pixels(self._fitted(as_image(row))) for row in rows])
        return self.normalise(torch.from_numpy(images).permute(0, 3, 1, 2))

    def normalise(self, pixels: Tensor) -> Tensor:
        """Normalise uint8 (n, C, H, W) to float32 of the same shape and memory format, with training statistics."""
        mean, std = (torch.tensor(v, dtype=torch.float64).mul(255).float() for v in (self.mean, self.std))
        if not pixels.is_contiguous(memory_format=torch.channels_last):
            return pixels.float().sub_(mean.view(1, -1, 1, 1)).div_(std.view(1, -1, 1, 1))
        # Same result in half the time: whole rows of W·C values instead of C at a time.
        n, channels, height, width = pixels.shape
        lines = pixels.permute(0, 2, 3, 1).flatten(2).float()  # (n, H, W·C)
        lines.sub_(mean.repeat(width)).div_(std.repeat(width))
        return lines.view(n, height, width, channels).permute(0, 3, 1, 2)  # (n, C, H, W)

    def views(self) -> ImageViews:
        """Return the augmentation that makes two views of each image."""
        return ImageViews(self.mean, self.std)

    def examples(self, sources: Sequence[Any]) -> Split:
        """Build a split of images without targets.

        Accepts paths of image files or folders, PIL images, arrays of pixels, and files in memory (`UploadedFile`).
        Arrays are (H, W), (H, W, 3) or (H, W, 4) of uint8, or (H, W) of uint16. Raises DataError that names every path
        that is not a usable image. A truncated image is reported when it is decoded.
        """
        found: list[Source] = []
        for source in sources:
            found += resolve_image_files(source) if isinstance(source, str | Path) else [source]
        if not found:
            raise NotEnoughDataError("No image was given.")
        inspect_images([source for source in found if isinstance(source, Path)])
        names = [str(s) if isinstance(s, Path | Stored) else f"image {i}" for i, s in enumerate(found)]
        return self.add_inputs(FileSplit(found, None, self, names))

    def labelled(self, source: str | Path) -> Split:
        """Load a folder of class folders with targets, or a folder of images if there are no classes.

        Raises DataError if it holds no images, or a class that is not in training.
        """
        target, path = self.spec.target, Path(source).expanduser()
        if isinstance(target, Episodes):  # its classes need not be training classes
            found = find_examples(path, IMAGES)
            inspect_images(found.files)
            examples = FileSplit(found.files, torch.from_numpy(found.labels), self, found.names)
            return labelled_episodes(examples, target, found.classes)
        assert isinstance(target, Classes | GeneratedImage | Unlabelled), "targets of images in class folders"
        if is_sharded(path):
            shards = labelled_shards(path, SHARDED, target.names).found
            return self.add_inputs(FileSplit(shards.files, torch.from_numpy(shards.labels), self, shards.names))
        if not target.names and is_flat(path, IMAGES):
            files = list_image_files(path)
            labels, names = [0] * len(files), [file.name for file in files]
        else:
            files, labels, names = find_labelled(source, IMAGES, target.names)
        inspect_images(files)
        return self.add_inputs(FileSplit(files, torch.tensor(labels), self, names))

    def add_inputs(self, split: Split) -> Split:
        """Return the split with the noise that image generation needs, or the split itself for other targets."""
        return with_noise(split, self.spec.target)

    def adopted(self, split: Split, theirs: Preprocessing) -> Split:
        """Convert the images and targets of another data set to this preprocessing.

        Raises DataError for a class that is not in training.
        """
        assert split.target is not None, "sets to evaluate on have targets"
        prepared = self.examples([split.image(i) for i in range(len(split))])
        prepared.target = remap_targets(split.target, theirs.spec.target, self.spec.target)
        return prepared

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values that `from_json` accepts."""
        return {
            "kind": "image",
            "spec": specs.to_json(self.spec),
            "mean": list(self.mean),
            "std": list(self.std),
            "fit": self.fit,
            "box": list(self.box),
            "background": list(self.background),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ImagePreprocessing:
        """Load an object written by `to_json`. Raises ValueError if a document that matches SCHEMA is inconsistent."""
        spec = specs.read_spec(data["spec"], ImageSpec)
        mean, std = specs.validate_scales(data["mean"], data["std"], spec.channels)
        if len(data["background"]) not in (0, spec.channels):
            raise ValueError(f"a background of {len(data['background'])} channels, and images of {spec.channels}")
        fit, box = read_fit(spec, data["fit"], data["box"])
        return cls(spec, mean, std, fit, box, tuple(data["background"]))

    def _drawing_size(self, size: Size) -> Size:
        """Return the size that an uncropped image of this size is drawn at."""
        whole = (self.spec.height, self.spec.width)
        if self.fit == "stretch":
            return whole
        return size_within(size, self.box) if self.fit == "pad" else size_covering(size, whole)

    def _fitted(
        self,
        image: Image.Image,
        resample: Image.Resampling = Image.Resampling.BILINEAR,
        background: tuple[int, ...] = (),
    ) -> Image.Image:
        """Resize the image to H × W, on the fitted background or the one given."""
        size = (self.spec.height, self.spec.width)
        if self.fit == "stretch":
            return resize(image, size, resample=resample)
        if self.fit == "pad":
            return pad_to(image, size, self.box, background or self.background, resample)
        return crop_to(image, size, resample)


def resolve_image_files(source: str | Path) -> Sequence[Source]:
    """Return the images of a path: a file, the files directly in a folder, or those in tar shards.

    Raises DataError if there are none.
    """
    path = Path(source).expanduser()
    return all_members(path, SHARDED) if is_sharded(path) else list_image_files(path)


def fit_preprocessing(spec: ImageSpec, images: Iterable[Tensor], fit: str, own_size: Size | None) -> ImagePreprocessing:
    """Fit the preprocessing on uint8 training images (n, C, h, w) at their original size.

    `own_size` is the common size of all images, or None. Mean and standard deviation are computed over all pixels. The
    background is the median of the border pixels.
    """
    size = (spec.height, spec.width)
    counts = border = torch.zeros(spec.channels, 256, dtype=torch.int64)  # how often each level occurs
    for batch in images:
        counts = counts + _level_counts(batch)
        rows, columns = batch[:, :, [0, -1], :], batch[:, :, :, [0, -1]]
        border = border + _level_counts(rows) + _level_counts(columns)
    levels = torch.arange(256, dtype=torch.float64) / 255
    fractions = counts.double() / counts.sum(1, keepdim=True)  # (C, 256)
    mean = fractions @ levels
    std = (fractions * (levels - mean[:, None]) ** 2).sum(1).sqrt()
    std = torch.where(std > 0, std, 1.0)  # a constant channel stays at 0
    median = (border.cumsum(1) * 2 >= border.sum(1, keepdim=True)).int().argmax(1)
    return ImagePreprocessing(
        spec=spec,
        mean=tuple(mean.tolist()),
        std=tuple(std.tolist()),
        fit=choose_fit(own_size, size) if fit == "auto" else fit,
        box=own_size if own_size is not None and _goes_into(own_size, size) else size,
        background=tuple(median.tolist()),
    )


def scale_for_generation(preprocessing: ImagePreprocessing) -> ImagePreprocessing:
    """Scale levels to −1…1 if the target is a generated image; otherwise return the preprocessing unchanged."""
    if not isinstance(preprocessing.spec.target, GeneratedImage):
        return preprocessing
    middle = (0.5,) * preprocessing.spec.channels
    return dataclasses.replace(preprocessing, mean=middle, std=middle)


def read_fit(spec: ImageSpec, fit: str, box: list[int]) -> tuple[str, Size]:
    """Read the resize mode and box of a document. Raises ValueError if they are invalid."""
    build(DataSettings, {"resize": fit})
    if len(box) != 2 or not (0 < box[0] <= spec.height and 0 < box[1] <= spec.width):
        raise ValueError(f"a box of {shorten(box)} in images of {spec.height} × {spec.width}")
    return fit, (box[0], box[1])


def choose_fit(own_size: Size | None, size: Size) -> str:
    """Resolve resize=auto: pad if a few pixels are missing (28 to 32, as LeCun did), crop otherwise."""
    if own_size is None or not _goes_into(own_size, size) or own_size == size:
        return "crop"
    few = all(s - o <= min(PAD_AT_MOST, o / 4) for s, o in zip(size, own_size))
    return "pad" if few else "crop"


def _goes_into(own_size: Size, size: Size) -> bool:
    return own_size[0] <= size[0] and own_size[1] <= size[1]


def _level_counts(images: Tensor) -> Tensor:
    """Count the levels of uint8 images (n, C, h, w) per channel, (C, 256)."""
    return torch.stack([torch.bincount(images[:, c].flatten(), minlength=256) for c in range(images.shape[1])])


Item = TypeVar("Item")
Result = TypeVar("Result")

HANDFUL = 64  # below this many files, reading them is faster than starting processes
AT_ONCE = 64  # images that the threads hold in memory


def map_in_threads(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Apply `function` to each item in threads, in order. Image decoding releases the GIL."""
    with ThreadPoolExecutor(num_cpus()) as threads:
        for start in range(0, len(items), AT_ONCE):
            yield from threads.map(function, items[start : start + AT_ONCE])


class ImageTransform(Protocol):
    """The interface of an image preprocessing that FileSplit uses."""

    @property
    def spec(self) -> ImageSpec: ...
    def pixels(self, source: Source, name: str) -> Pixels: ...
    def normalise(self, pixels: Tensor) -> Tensor: ...


class FileSplit(Split):
    """A split that reads and resizes images in worker processes and normalises each batch in this process.

    Workers apply no augmentation, so their number does not change results. `workers=None` uses one per processor, at
    most four, and none for a few files. A daemon process, such as a server's, cannot start processes and reads the
    files itself.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        target: Tensor | None,
        preprocessing: ImageTransform,
        names: Sequence[str] | None = None,
        workers: int | None = None,
    ) -> None:
        self.target = target
        self._names = names if names is not None else [str(s) for s in sources]
        self._preprocessing = preprocessing
        self._reader = _Reader(sources, self._names, preprocessing)
        self._order = _Order()
        if workers is None:
            few = len(sources) <= HANDFUL or torch.multiprocessing.current_process().daemon
            workers = 0 if few else min(4, num_cpus())
        self._workers = workers
        self._loader: DataLoader[Any] | None = None

    def __len__(self) -> int:
        return len(self._names)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield batches (N, C, H, W) in the given order. Raises DataError naming a file that cannot be read."""
        del seed
        self._order.batches = order
        reads = self._through_workers() if self._workers else (self._reader[numbers] for numbers in self._order)
        for read in reads:
            if isinstance(read, Problem):
                self._loader = None
                reads.close()  # stop the workers now, not when the exception is garbage-collected
                raise unusable_images_error([read], 1)
            numbers, pixels = read
            index = torch.tensor(numbers)
            target = torch.empty(len(index), 0) if self.target is None else self.target[index]
            yield Batch((self._preprocessing.normalise(pixels.permute(0, 3, 1, 2)),), target)

    def name(self, i: int) -> str:
        """Return the file's path."""
        return self._names[i]

    def image(self, i: int) -> Image.Image:
        """Return the upright image with its original size and colors."""
        return read_image(self._reader.sources[i], self._names[i])

    def peek(self, rows: Tensor) -> Tensor:
        """Read some images as network inputs (N, C, H, W) in this process. Raises DataError if one cannot be read."""
        read = list(map_in_threads(self._reader.__getitem__, [[i] for i in rows.tolist()]))
        if problems := [one for one in read if isinstance(one, Problem)]:
            raise unusable_images_error(problems, len(read))
        pixels = torch.cat([one[1] for one in read if not isinstance(one, Problem)])
        return self._preprocessing.normalise(pixels.permute(0, 3, 1, 2))

    def damaged(self, progress: Progress | None = None) -> list[Problem]:
        """Decode every image as in training and return a problem for each that fails."""
        problems: list[Problem] = []
        for done, read in enumerate(map_in_threads(self._reader.__getitem__, [[i] for i in range(len(self))]), 1):
            if isinstance(read, Problem):
                problems.append(read)
            if progress is not None:
                progress(done, len(self))
        return problems

    def _through_workers(self) -> Generator[Any, None, None]:
        if self._loader is None:
            self._loader = DataLoader(
                self._reader,
                batch_size=None,  # the order holds whole batches
                sampler=self._order,
                num_workers=self._workers,
                persistent_workers=True,
                worker_init_fn=ignore_interrupts,
                generator=torch.Generator(),  # otherwise each epoch would advance the global random state of training
            )
        try:
            yield from iterate_workers(iter(self._loader), "reads images", "(workers=1) or none (workers=0).")
        except DataError:
            self._loader = None
            raise


class _Order:
    """The sampler of the workers' data loader, whose batches are replaced in every epoch."""

    batches: Iterable[Tensor] = ()

    def __iter__(self) -> Iterator[list[int]]:
        return (index.tolist() for index in self.batches)


class _Reader(Dataset[Any]):
    """The data set that worker processes read from."""

    def __init__(self, sources: Sequence[Source], names: Sequence[str], preprocessing: ImageTransform) -> None:
        self.sources, self.names, self.preprocessing = sources, names, preprocessing

    def __getitem__(self, numbers: list[int]) -> tuple[list[int], Tensor] | Problem:
        """Return the indices and their pixels (n, H, W, C), or the problem of a file that cannot be read."""
        spec = self.preprocessing.spec
        batch = np.empty((len(numbers), spec.height, spec.width, spec.channels), np.uint8)
        try:
            for row, number in enumerate(numbers):
                batch[row] = self.preprocessing.pixels(self.sources[number], self.names[number])
        except DataError as error:
            return error.problems[0]
        return numbers, torch.from_numpy(batch)


SHARDED = FileInspector(IMAGES, inspect_image, pack_image_info, unusable_images_error, check_decodable)


AS_READ = 0  # seed of the noise outside training
TIME, NOISE = range(2)  # random streams of each example


Shape = tuple[int, int, int]  # shape (C, H, W) of an image
# Possible targets of images in class folders or with captions.
OfImages = Classes | Tokens | specs.Image | Noise | ImageTokens | Views | Patches | Episodes
ImageTarget = OfImages | Mask | Boxes


def build_image_target(
    classes: Sequence[str], shape: Shape, targets: tuple[type, ...], settings: DataSettings
) -> Classes | specs.Image | Noise | ImageTokens | Views | Patches | Episodes:
    """Return the training target of images (C, H, W).

    The target is the class, unless `targets` request image generation, contrastive views, masked patches or episodes
    with new classes. Raises SettingError for settings that require classes.
    """
    if Views in targets:
        for key in ("mixup", "cutout", "flip", "crop", "color_jitter"):
            reject_changed(settings, (key,), "varies a batch, and here views of each image are made (views)")
        return Views(tuple(classes))
    if Patches in targets:
        reject_changed(settings, ("mixup",), "blends images and their classes, and here no class is learned")
        return Patches(tuple(classes))
    if Episodes in targets:
        return Episodes(settings.ways, settings.shots, settings.queries)
    if ImageTokens in targets:
        for key in ("mixup", "cutout", "flip", "crop", "color_jitter"):
            reject_changed(settings, (key,), "varies images, and here each image is a fixed sequence of tokens")
    for target in (specs.Image, Noise, ImageTokens):
        if target in targets:
            reject_changed(settings, ("mixup",), "blends images and their classes, and here images are to be drawn")
            return target(tuple(classes), int(np.prod(shape)))
    return Classes(tuple(classes))


class NoisyImageSplit(Split):
    """A split that adds noise to its images' inputs, as the module docstring describes."""

    def __init__(self, images: Split, target: GeneratedImage) -> None:
        self.images, self.drawn = images, target
        self.target = images.target

    def __len__(self) -> int:
        return len(self.images)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield the batches of the images with the noise that the seed determines."""
        plan = list(order)
        draw = AS_READ if seed is None else seed
        for index, ((x, *_), labels) in zip(plan, self.images.batches(plan, seed)):
            noise = seeded_normal(draw, index, x)
            if not isinstance(self.drawn, Noise):
                yield Batch((x, noise), labels)
                continue
            time = torch.from_numpy(uniform(draw, index.cpu().numpy(), TIME)).to(x)  # (N,)
            classes = (labels,) if self.drawn.names and labels.ndim == 1 else ()
            yield Batch((x, time.clamp(max=1 - 2**-24), noise, *classes), noise)

    def name(self, i: int) -> str:
        """Return the display name of example i."""
        return self.images.name(i)

    def image(self, i: int) -> Image.Image | None:
        """Return the original image of example i."""
        return self.images.image(i)


def with_noise(split: Split, target: object) -> Split:
    """Return the split with noise inputs if its target is a generated image, otherwise the split unchanged."""
    return NoisyImageSplit(split, target) if isinstance(target, GeneratedImage) else split


def seeded_normal(seed: int, index: Tensor, like: Tensor) -> Tensor:
    """Draw standard normal numbers for the examples `index` (N,), with the shape of `like` (N, …)."""
    generator = torch.Generator()
    noise = torch.empty(like.shape)
    for row, key in zip(noise, (uniform(seed, index.cpu().numpy(), NOISE) * 2**53).astype(np.int64).tolist()):
        row.normal_(generator=generator.manual_seed(key))
    return noise.to(like)


Levels = npt.NDArray[np.float32]  # (n, C, h, w)


@dataclass(frozen=True)
class ArrayPreprocessing:
    """Preprocessing of an image array to a tensor (C, H, W)."""

    spec: ImageSpec
    mean: tuple[float, ...]  # per channel, of the training images
    std: tuple[float, ...]
    low: float  # smallest and largest number in training, shown as black and white
    high: float
    fit: str  # crop, stretch or pad
    box: Size  # pad: the centered region of H × W that the image is drawn into

    SCHEMA: ClassVar[Mapping[str, Any]] = {
        "spec": specs.SCHEMA, "mean": [NUMBER], "std": [NUMBER], "low": NUMBER, "high": NUMBER, "fit": str,
        "box": [COUNT],
    }  # fmt: skip

    @classmethod
    def fitted(cls, spec: ImageSpec, images: Levels, fit: str) -> ArrayPreprocessing:
        """Fit the preprocessing on training images at their original size."""
        if isinstance(spec.target, ImageTokens):
            raise PythonDataError(
                "Image tokens are made of images with 256 levels, and these are arrays of other numbers.",
                fix="Give images, or arrays of uint8 (n, height, width).",
            )
        own, size = (images.shape[2], images.shape[3]), (spec.height, spec.width)
        low, high = float(images.min()), float(images.max())
        mean, std = images.mean((0, 2, 3), dtype=np.float64), images.std((0, 2, 3), dtype=np.float64)
        std = np.where(std > 0, std, 1.0)
        if isinstance(spec.target, GeneratedImage):  # levels from −1 to 1, as for image files
            half = (high - low) / 2 or 1.0
            mean, std = np.full(len(mean), low + half), np.full(len(mean), half)
        fits = choose_fit(own, size) if fit == "auto" else fit
        box = own if own[0] <= size[0] and own[1] <= size[1] else size
        return cls(spec, tuple(mean.tolist()), tuple(std.tolist()), low, high, fits, box)

    def prepare(self, images: Levels) -> Tensor:
        """Convert (n, C, h, w) to float32 (n, C, H, W) with mean 0 and standard deviation 1 in training."""
        if images.shape[2:] != (self.spec.height, self.spec.width):
            images = np.stack([[self._fitted(channel) for channel in image] for image in images])
        mean, std = (torch.tensor(values, dtype=torch.float32).view(1, -1, 1, 1) for values in (self.mean, self.std))
        return (torch.from_numpy(np.ascontiguousarray(images, np.float32)) - mean) / std

    def image(self, image: Levels) -> Image.Image | None:
        """Convert one image (C, h, w) to a displayable image, or None if it has neither 1 nor 3 channels."""
        if len(image) not in (1, 3):
            return None
        levels = (image - self.low) / (self.high - self.low or 1.0) * 255
        return as_image(levels.clip(0, 255).round().astype(np.uint8).transpose(1, 2, 0))

    def as_split(self, images: Levels, target: Tensor | None, names: Sequence[str]) -> Split:
        """Build a split from images with an optional target for each."""
        held = TensorSplit(self.prepare(images), target, names, lambda i: self.image(images[i]))
        return with_noise(held, self.spec.target)

    def views(self) -> ImageViews:
        """Return the augmentation that makes two views of each image, with levels scaled by `low` and `high`."""
        width = self.high - self.low or 1.0
        mean = tuple((m - self.low) / width for m in self.mean)
        return ImageViews(mean, tuple(s / width for s in self.std))

    def examples(self, sources: Sequence[Any]) -> Split:
        """Build a split without targets from arrays (C, h, w), or (h, w, C) if training used that layout.

        Raises DataError for anything that is not an array.
        """
        strange = next((source for source in sources if not isinstance(source, np.ndarray | Tensor)), None)
        if strange is not None or not len(sources):
            raise DataMismatchError(
                "The run was trained on images that are arrays of numbers, and not files.",
                fix=f"Give such arrays, ({self.spec.channels}, height, width).",
            )
        arrays = [np.asarray(source, np.float32) for source in sources]
        return self.as_split(self.accepted(np.stack(arrays)), None, [f"image {i + 1}" for i in range(len(arrays))])

    def labelled(self, source: Any) -> Split:
        """Raise DataError: labelled arrays are given in Python and cannot be read from a path."""
        raise DataMismatchError(f"The run was trained on arrays given in Python, and {source} is a path: give (X, y).")

    def accepted(self, images: Levels) -> Levels:
        """Return the images if they have the training channels and finite numbers. Raises DataError otherwise."""
        if images.ndim != 4 or images.shape[1] != self.spec.channels:
            raise DataMismatchError(
                f"The images have the shape {images.shape[1:]}, and the model takes {self.spec.channels} channels."
            )
        reject_non_finite(images)
        return images

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values that `from_json` accepts."""
        own = {"mean": list(self.mean), "std": list(self.std), "low": self.low, "high": self.high}
        spec = specs.to_json(self.spec)
        return {"kind": "image", "form": "array", "spec": spec, **own, "fit": self.fit, "box": list(self.box)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ArrayPreprocessing:
        """Load an object written by `to_json`. Raises ValueError if a document that matches SCHEMA is inconsistent."""
        spec = specs.read_spec(data["spec"], ImageSpec)
        mean, std = specs.validate_scales(data["mean"], data["std"], spec.channels)
        return cls(spec, mean, std, float(data["low"]), float(data["high"]), *read_fit(spec, data["fit"], data["box"]))

    def _fitted(self, channel: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Resize one channel (h, w) to H × W."""
        size, image = (self.spec.height, self.spec.width), Image.fromarray(np.ascontiguousarray(channel, np.float32))
        if self.fit == "stretch":
            return np.asarray(resize(image, size))
        if self.fit == "pad":
            return np.asarray(pad_to(image, size, self.box, (self.low,)))  # type: ignore[arg-type]  # mode F
        return np.asarray(crop_to(image, size))


def reject_non_finite(examples: npt.NDArray[Any]) -> None:
    """Raise DataError naming the first example that holds NaN or infinite numbers."""
    finite = np.isfinite(examples).reshape(len(examples), -1).all(1)
    if not finite.all():
        raise PythonDataError(
            f"{int((~finite).sum()):,} of {len(examples):,} examples hold NaN or infinite numbers, the first of them "
            f"example {int(finite.argmin()) + 1}.",
            fix="Fill them in, or leave those examples out.",
        )
