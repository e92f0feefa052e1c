"""Images that are numeric arrays with any range and any number of channels.

    x = (p − mean) / std

Mean and standard deviation are computed per channel over the training images. Values are not rounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from ...core import spec as specs
from ...core.errors import DataError
from ...core.schema import COUNT, NUMBER
from ...core.spec import GeneratedImage, ImageSpec
from ..dataset_base import Split, TensorSplit
from .contrastive_augmentation import ImageViews
from .generation import with_noise
from .image_files import Size, as_image, crop_to, pad_to, resize
from .transforms import choose_fit, read_fit

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
            raise DataError(
                "The run was trained on images that are arrays of numbers, and not files.",
                fix=f"Give such arrays, ({self.spec.channels}, height, width).",
            )
        arrays = [np.asarray(source, np.float32) for source in sources]
        return self.as_split(self.accepted(np.stack(arrays)), None, [f"image {i + 1}" for i in range(len(arrays))])

    def labelled(self, source: Any) -> Split:
        """Raise DataError: labelled arrays are given in Python and cannot be read from a path."""
        raise DataError(f"The run was trained on arrays given in Python, and {source} is a path: give (X, y).")

    def accepted(self, images: Levels) -> Levels:
        """Return the images if they have the training channels and finite numbers. Raises DataError otherwise."""
        if images.ndim != 4 or images.shape[1] != self.spec.channels:
            raise DataError(
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
        raise DataError(
            f"{int((~finite).sum()):,} of {len(examples):,} examples hold NaN or infinite numbers, the first of them "
            f"example {int(finite.argmin()) + 1}.",
            fix="Fill them in, or leave those examples out.",
        )
