"""Data for image generation: images with the noise that training needs.

    noise prediction (Noise):    inputs x_0, t, ε and, if there are classes, the class;   target ε
    likelihood (Image):          inputs x_0 and ε;                                        target the class

The noise depends only on the seed and the example. It differs between epochs, is identical after a run is resumed, and
is fixed in validation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from PIL import Image as Pillow
from torch import Tensor

from ...core.spec import Boxes, Classes, Episodes, GeneratedImage, Image, Mask, Noise, Patches, Tokens, Views
from ..dataset_base import Batch, Split
from ..modalities import reject_changed
from ..settings import DataSettings
from ..text.masking import uniform

AS_READ = 0  # seed of the noise outside training
TIME, NOISE = range(2)  # random streams of each example


Shape = tuple[int, int, int]  # shape (C, H, W) of an image
# Possible targets of images in class folders or with captions.
OfImages = Classes | Tokens | Image | Noise | Views | Patches | Episodes
ImageTarget = OfImages | Mask | Boxes


def build_image_target(
    classes: Sequence[str], shape: Shape, targets: tuple[type, ...], settings: DataSettings
) -> Classes | Image | Noise | Views | Patches | Episodes:
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
    for target in (Image, Noise):
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

    def image(self, i: int) -> Pillow.Image | None:
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
