"""Arrays and Pillow images as image data. Bytes are treated like image files; other numbers are not rounded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image

from ...core.errors import DataError
from ...core.spec import ImageSizes, ImageSpec, Target, Value
from ..build import DataSource, build_dataset
from ..dataset_base import DataSet, Split
from ..episodes import to_episodes
from ..images.array_images import ArrayPreprocessing, Levels, reject_non_finite
from ..images.build import SAMPLE, build_in_memory_splits, choose_channels, choose_size, prepare_in_memory, split_images
from ..images.generation import Shape, build_image_target
from ..images.image_files import as_pixels, read_image
from ..images.transforms import fit_preprocessing, scale_for_generation
from ..modalities import reject_changed
from ..quality.duplicates import duplicate_warning
from ..settings import DataSettings
from ..splits import Rows, sample_rows
from .container import Array, Images, Numbers, example_digests

LEVELS = 255
BYTES = "is for images of bytes, and these are arrays of numbers"


def to_channels_first(held: Numbers) -> Array:
    """Return an array of images as (n, C, h, w).

    Tensors have channels first. So do arrays, unless the last dimension is 1, 3 or 4 and can only be the channels.
    """
    values = held.values
    if values.ndim == 3:
        return values[:, None]
    first, last = values.shape[1], values.shape[3]
    if held.channels_first:
        is_last = last in (1, 3) and first > 4
    else:
        is_last = last in (1, 3, 4) and (first not in (1, 3) or first > values.shape[2] > last)
    return values.transpose(0, 3, 1, 2) if is_last else values


def to_uint8(values: Array) -> Array | None:
    """Return images (n, C, h, w) as levels 0…255 if this is exact; None otherwise.

    The values must be such levels, or exactly these divided by 255, with one or three channels.
    """
    if values.shape[1] not in (1, 3):
        return None
    if values.dtype == np.uint8:
        return values
    if values.dtype == bool:
        return values.astype(np.uint8) * np.uint8(LEVELS)
    if values.dtype.kind in "iu":
        return values.astype(np.uint8) if values.size and values.min() >= 0 and values.max() <= LEVELS else None
    if not values.size or not (values.min() >= 0 and values.max() <= 1):  # NaN is neither
        return None
    levels = np.rint(values * LEVELS)
    exact = np.array_equal((levels / LEVELS).astype(values.dtype), values) or np.array_equal(
        levels.astype(values.dtype) / np.asarray(LEVELS, values.dtype), values
    )
    return levels.astype(np.uint8) if exact else None


def open_images(
    held: Images | Numbers,
    labels: Array,
    classes: Sequence[str],
    value: Callable[[Rows], tuple[Value, Array]] | None,
    given: Mapping[str, Rows] | None,
    names: Sequence[str],
    origin: DataSource,
    settings: DataSettings,
    sizes: ImageSizes,
    targets: tuple[type[Target], ...],
) -> DataSet:
    """Build the data set of images.

    `labels` (n,) are classes, class k named `classes[k]`. For numeric targets, `value` fits the target on the training
    rows and returns the standardised values (n,) of all.
    """
    reject_changed(settings, ("missing",), "is for files, and these images are in memory")
    indices, said = split_images(labels, classes, given, settings, targets)
    fitted: Target | None = None
    if value is not None:
        fitted, labels = value(indices["train"])

    def learned(shape: Shape) -> Any:
        return fitted or build_image_target(classes, shape, targets, settings)

    if isinstance(held, Images):
        preprocessing, splits, notes = _prepare_pillow(held, labels, indices, learned, names, settings, sizes)
    else:
        values = to_channels_first(held)
        pixels = to_uint8(values)
        asked = (labels, indices, learned, settings, sizes, names)
        if pixels is None:
            preprocessing, splits, notes = _prepare_arrays(values, *asked)
        else:
            preprocessing, splits, notes = prepare_in_memory(np.ascontiguousarray(pixels), *asked)
    splits = to_episodes(splits, preprocessing.spec.target, classes)
    return build_dataset(origin, settings, indices, preprocessing, splits, [*said, *notes])


Prepared = tuple[Any, dict[str, Split], list[str | None]]


def _prepare_arrays(
    values: Array,
    labels: Array,
    indices: dict[str, Rows],
    learned: Callable[[Shape], Any],
    settings: DataSettings,
    sizes: ImageSizes,
    names: Sequence[str],
) -> Prepared:
    """Prepare images of arbitrary numbers, resized if the model requires it."""
    reject_changed(settings, ("color", "color_jitter", "memory", "workers"), BYTES)
    images: Levels = np.ascontiguousarray(values, np.float32)
    reject_non_finite(images)
    own = (images.shape[2], images.shape[3])
    shape = (images.shape[1], *sizes.choose(settings.image_size, own))
    training = images[indices["train"]]
    preprocessing = ArrayPreprocessing.fitted(ImageSpec(*shape, learned(shape)), training, settings.resize)
    splits = {
        split: preprocessing.as_split(images[rows], torch.from_numpy(labels[rows]), [names[i] for i in rows])
        for split, rows in indices.items()
    }
    low, high = training.min(), training.max()
    told = f"The images are arrays of numbers from {low:.4g} to {high:.4g}, not of bytes, and are not rounded to these."
    alike = duplicate_warning(example_digests(images), indices, names.__getitem__, "images")
    return preprocessing, splits, [told, sizes.note(own, shape[1:], settings.image_size), alike]


def _prepare_pillow(
    held: Images,
    labels: Array,
    indices: dict[str, Rows],
    learned: Callable[[Shape], Any],
    names: Sequence[str],
    settings: DataSettings,
    sizes: ImageSizes,
) -> Prepared:
    """Prepare Pillow images of any sizes, as if they were files."""
    reject_changed(settings, ("memory", "workers"), "is for image files, and these images are in memory")
    plain = [read_image(image, names[i]) for i, image in enumerate(held.images)]
    own, size, enlarged = choose_size({(i.height, i.width) for i in plain}, sizes, settings.image_size)
    shape = (choose_channels([image.mode == "L" for image in plain], settings.color), *size)
    spec = ImageSpec(*shape, learned(shape))

    def whole(i: int) -> torch.Tensor:
        return torch.from_numpy(as_pixels(read_image(plain[i], names[i], shape[0])).copy()).permute(2, 0, 1)[None]

    sample = sample_rows(indices["train"], SAMPLE, seed=settings.split_seed)
    preprocessing = scale_for_generation(fit_preprocessing(spec, map(whole, sample.tolist()), settings.resize, own))
    pixels = np.stack([preprocessing.pixels(image, names[i]) for i, image in enumerate(plain)])  # (n, H, W, C)
    levels = torch.from_numpy(pixels).permute(0, 3, 1, 2)  # (n, C, H, W)
    splits = build_in_memory_splits(levels, labels, indices, preprocessing, names, held.images.__getitem__)
    alike = duplicate_warning(
        example_digests(np.asarray(image) for image in plain), indices, names.__getitem__, "images"
    )
    return preprocessing, splits, [enlarged, alike]


def to_image_sources(held: Images | Numbers, preprocessing: Any) -> Sequence[Any]:
    """Return images as `examples` of a run's preprocessing expects them.

    Raises DataError if the run was trained on bytes and these are not bytes.
    """
    if isinstance(held, Images):
        return held.images
    values = to_channels_first(held)
    if isinstance(preprocessing, ArrayPreprocessing):
        return list(np.asarray(values, np.float32))
    pixels = to_uint8(values)
    if pixels is None:
        raise DataError(
            f"The run was trained on images of bytes, and these are numbers from {values.min():.4g} to "
            f"{values.max():.4g} with {values.shape[1]} channels.",
            fix="Give levels 0…255, or these divided by 255, of grey images or RGB.",
        )
    return [_picture(image) for image in pixels]


def _picture(pixels: Array) -> Image.Image:
    return Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))
