"""Augmentation of training batches, on tensors that are already normalised.

Sources: padded crop and flip as for CIFAR in K. He et al., Deep residual learning for image recognition, 2016, section
4.2; cutout by T. DeVries, G. Taylor, Improved regularization of convolutional neural networks with cutout, 2017
<https://arxiv.org/abs/1708.04552>; mixup by H. Zhang et al., mixup: beyond empirical risk minimization, 2018
<https://arxiv.org/abs/1710.09412>.

Every function draws random numbers only from the given generator, and keeps shape, type and memory format.

SimCLR augmentation: two random views of each image.

The augmentations of T. Chen, S. Kornblith, M. Norouzi, G. Hinton, A simple framework for contrastive learning of visual
representations, 2020, appendix A <https://arxiv.org/abs/2002.05709>, drawn independently for each image and applied to
the whole batch at once: random resized crop, horizontal flip, color jitter, grayscale and Gaussian blur. Blur is
applied to larger images only; the paper leaves it out for CIFAR-10 (appendix B.9).

Contrastive augmentation of series: two random views of each series.

After T. T. Um et al., Data augmentation of wearable sensor data for Parkinson's disease monitoring using convolutional
neural networks, 2017 <https://arxiv.org/abs/1706.00527>, drawn independently for each series and applied to the whole
batch at once: cropping with resampling to the original length, scaling of each variable, and jittering with noise on
every value. The series are standardised before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from ..core.errors import IncompatibleSettingError
from ..core.spec import Boxes, Classes, ImageSpec, Mask, Spec
from .dataset_base import IGNORED, Augment
from .settings import DataSettings

CUT = "blanks a part of an image, whose classes would still be asked for"
GREY_WEIGHTS = (0.299, 0.587, 0.114)  # of red, green, blue in luma, ITU-R BT.601


def make_augment(
    settings: DataSettings, spec: Spec, mean: Sequence[float] = (), std: Sequence[float] = ()
) -> Augment | None:
    """Build the augmentation that the settings configure, as a function (inputs, target, generator) -> (inputs,
    target); None if none exists.

    `mean` and `std` are the normalisation constants of images, per channel. Mixup turns classes into probabilities (N,
    K). Raises SettingError if a setting does not apply to this kind of data, or is too large for it.
    """
    if isinstance(spec.target, Boxes):
        return _augment_with_boxes(settings, spec, mean, std)
    steps: list[Callable[[Tensor, Generator], Tensor]] = []
    if isinstance(spec, ImageSpec):
        side = min(spec.height, spec.width)
        if settings.cutout > side:
            raise IncompatibleSettingError(
                f"cutout={settings.cutout} would blank images of {side} pixels whole: give less."
            )
        if settings.flip:
            steps.append(flip)
        if settings.crop:
            steps.append(lambda x, g: padded_crop(x, settings.crop, g))
        if settings.color_jitter:
            steps.append(lambda x, g: color_jitter(x, settings.color_jitter, mean, std, g))
        if settings.cutout:
            steps.append(lambda x, g: cutout(x, settings.cutout, g))
    if isinstance(spec.target, Mask):
        return _augment_with_masks(settings, steps, spec.target.ignored)
    if not steps and not settings.mixup:
        return None
    classes = len(spec.target.classes) or None

    def augment(inputs: Tensor, target: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
        for step in steps:
            inputs = step(inputs, generator)
        if settings.mixup:
            inputs, target = mixup(inputs, target, settings.mixup, classes, generator)
        return inputs, target

    return augment


def _augment_with_masks(
    settings: DataSettings, steps: Sequence[Callable[[Tensor, Generator], Tensor]], ignored: int
) -> Augment | None:
    """Build the augmentation of images (N, C, H, W) with masks (N, H, W).

    Geometric steps also transform the mask, which becomes `ignored` outside the original image.
    """
    for key, why in (("mixup", "blends images, and no pixel of a blend has one class"), ("cutout", CUT)):
        if value := getattr(settings, key):
            raise IncompatibleSettingError(
                f"{key}={value:g} {why}: leave it out; flip, crop and color_jitter are for masks too."
            )
    if not steps:
        return None
    moving = bool(settings.flip) + bool(settings.crop)  # the first steps

    def augment(inputs: Tensor, target: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
        both = torch.cat([inputs, (target.to(inputs.dtype) - ignored)[:, None]], 1)  # 0, which pads, is `ignored`
        for step in steps[:moving]:
            both = step(both, generator)
        inputs, target = _like(both[:, :-1], inputs), (both[:, -1] + ignored).round().to(target.dtype)
        for step in steps[moving:]:
            inputs = step(inputs, generator)
        return inputs, target

    return augment


def flip(x: Tensor, generator: Generator) -> Tensor:
    """Mirror each image (N, C, H, W) left to right with probability ½."""
    return _mirror(x, uniform(x, (len(x), 1, 1, 1), generator) < 0.5)


def _mirror(x: Tensor, mirrored: Tensor) -> Tensor:
    """Mirror the images (N, C, H, W) that `mirrored` (N, 1, 1, 1) selects."""
    return _like(torch.where(mirrored, x.flip(3), x), x)


def padded_crop(x: Tensor, padding: int, generator: Generator) -> Tensor:
    """Pad each image by `padding` zeros (the mean colour) on every side and crop a random window of the old size."""
    return _window(x, padding, _shifts(x, padding, generator))


def _shifts(x: Tensor, padding: int, generator: Generator) -> Tensor:
    """Draw the top row and left column of each window in the padded images, (2, N)."""
    drawn = torch.randint(0, 2 * padding + 1, (2, len(x)), generator=generator, device=generator.device)
    return drawn.to(x.device)


def _window(x: Tensor, padding: int, shifts: Tensor) -> Tensor:
    """Crop the windows of the padded images that begin at these `shifts`."""
    n, _, height, width = x.shape
    rows = shifts[0, :, None] + torch.arange(height, device=x.device)  # (N, H)
    columns = shifts[1, :, None] + torch.arange(width, device=x.device)  # (N, W)
    padded = F.pad(x, (padding,) * 4).permute(0, 2, 3, 1)  # (N, H + 2p, W + 2p, C)
    example = torch.arange(n, device=x.device)[:, None, None]
    windows = padded[example, rows[:, :, None], columns[:, None, :]]  # (N, H, W, C)
    return _like(windows.permute(0, 3, 1, 2), x)


def _augment_with_boxes(
    settings: DataSettings, spec: ImageSpec, mean: Sequence[float], std: Sequence[float]
) -> Augment | None:
    """Build the augmentation of images with boxes, (N, M, 5) in pixels. Geometric steps also transform the boxes."""
    if settings.mixup:
        raise IncompatibleSettingError(
            f"mixup={settings.mixup:g} blends images, and a box of a blend would be half there: leave it out; flip, "
            "crop, color_jitter and cutout are for images with boxes too."
        )
    plain = make_augment(replace(settings, flip=False, crop=0), replace(spec, target=Classes(("image",))), mean, std)
    if not (plain or settings.flip or settings.crop):
        return None

    def augment(x: Tensor, boxes: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
        if settings.flip:
            mirrored = uniform(x, (len(x), 1, 1, 1), generator) < 0.5
            x, boxes = _mirror(x, mirrored), mirror_boxes(boxes, mirrored[:, :, 0, 0], x.shape[3])
        if settings.crop:
            shifts = _shifts(x, settings.crop, generator)
            x, boxes = _window(x, settings.crop, shifts), shift_boxes(boxes, settings.crop - shifts, *x.shape[2:])
        return (plain(x, boxes, generator)[0] if plain else x), boxes

    return augment


def mirror_boxes(boxes: Tensor, mirrored: Tensor, width: int) -> Tensor:
    """Mirror the boxes (N, M, 5) of the images of this width that `mirrored` (N, 1) selects."""
    x1, y1, x2, y2, kind = boxes.unbind(2)
    turned = torch.stack([width - x2, y1, width - x1, y2, kind], 2)
    return torch.where((mirrored & (x1 != IGNORED))[:, :, None], turned, boxes)


def shift_boxes(boxes: Tensor, by: Tensor, height: int, width: int) -> Tensor:
    """Shift the boxes (N, M, 5) down and to the right with their images, `by` (2, N) pixels.

    Boxes are clipped to the image, and removed if they are completely outside.
    """
    down, right = (steps[:, None].to(boxes.dtype) for steps in by)  # (N, 1)
    x1, y1, x2, y2, kind = boxes.unbind(2)
    x1, x2 = ((x + right).clamp(0, width) for x in (x1, x2))
    y1, y2 = ((y + down).clamp(0, height) for y in (y1, y2))
    there = (boxes[:, :, 0] != IGNORED) & (x2 > x1) & (y2 > y1)
    return torch.stack([x1, y1, x2, y2, kind], 2).where(there[:, :, None], torch.full_like(boxes, IGNORED))


def color_jitter(
    x: Tensor, strength: float, mean: Sequence[float], std: Sequence[float], generator: Generator
) -> Tensor:
    """Change brightness, contrast and saturation, in this order, each by a factor of 1 ± `strength` per image.

    Pixel values are in 0…1 and are clipped after each step: brightness p·f; contrast m + (p − m)·f with m the mean grey
    level of the image; saturation g + (p − g)·f with g the grey level of the pixel (skipped for images of one channel).
    """
    mean_, std_ = per_channel(mean, x), per_channel(std, x)
    factors = 1 + strength * (2 * uniform(x, (3, len(x), 1, 1, 1), generator) - 1)
    return _like((adjust_color(x * std_ + mean_, *factors) - mean_) / std_, x)


def adjust_color(pixels: Tensor, brightness: Tensor, contrast: Tensor, saturation: Tensor | None) -> Tensor:
    """Change the colours of pixels (N, C, H, W) by factors (N, 1, 1, 1), as described in `color_jitter`."""
    pixels = (pixels * brightness).clamp(0, 1)
    average = to_gray(pixels).mean((1, 2, 3), keepdim=True)  # (N, 1, 1, 1)
    pixels = (average + (pixels - average) * contrast).clamp(0, 1)
    if pixels.shape[1] == 3 and saturation is not None:
        own = to_gray(pixels)  # (N, 1, H, W)
        pixels = (own + (pixels - own) * saturation).clamp(0, 1)
    return pixels


def per_channel(values: Sequence[float], x: Tensor) -> Tensor:
    """Return a number per channel, broadcastable to images x (N, C, H, W), as a tensor (1, C, 1, 1)."""
    return torch.tensor(values, dtype=x.dtype, device=x.device).view(1, -1, 1, 1)


def cutout(x: Tensor, side: int, generator: Generator) -> Tensor:
    """Blank a square of `side` pixels in each image with zeros (the mean colour).

    Its centre is drawn uniformly from all pixels, so part of the square may be outside the image.
    """
    n, _, height, width = x.shape
    top = (uniform(x, (n, 1), generator) * height).long() - side // 2
    left = (uniform(x, (n, 1), generator) * width).long() - side // 2
    row, column = torch.arange(height, device=x.device), torch.arange(width, device=x.device)
    in_rows = (row >= top) & (row < top + side)  # (N, H)
    in_columns = (column >= left) & (column < left + side)  # (N, W)
    return _like(x.masked_fill((in_rows[:, None, :, None] & in_columns[:, None, None, :]), 0), x)


def mixup(x: Tensor, target: Tensor, alpha: float, classes: int | None, generator: Generator) -> tuple[Tensor, Tensor]:
    """Blend every example with another one of the batch: λx + (1 − λ)x', and the targets in the same way.

    λ is drawn from Beta(alpha, alpha), once per batch. Classes (N,) become probabilities (N, `classes`). Probabilities
    and values (`classes` None) are blended directly.
    """
    # torch has no public Beta distribution that draws from a generator; numpy has, seeded by ours.
    seed = torch.randint(2**62, (), generator=generator, device=generator.device)
    fraction = float(np.random.default_rng(int(seed)).beta(alpha, alpha))
    other = torch.randperm(len(x), generator=generator, device=generator.device).to(x.device)
    if classes is not None and target.ndim == 1:
        target = F.one_hot(target, classes).to(torch.float32)
    return _like(x * fraction + x[other] * (1 - fraction), x), target * fraction + target[other] * (1 - fraction)


def uniform(x: Tensor, shape: tuple[int, ...], generator: Generator) -> Tensor:
    """Draw from [0, 1) on the device of x; the generator may be on another device."""
    return torch.rand(shape, generator=generator, device=generator.device, dtype=torch.float32).to(x.device)


def to_gray(pixels: Tensor) -> Tensor:
    """Convert images (N, C, H, W) to grey, (N, 1, H, W)."""
    if pixels.shape[1] == 1:
        return pixels
    weights = torch.tensor(GREY_WEIGHTS, dtype=pixels.dtype, device=pixels.device).view(1, 3, 1, 1)
    return (pixels * weights).sum(1, keepdim=True)


def _like(result: Tensor, x: Tensor) -> Tensor:
    """Return the result in the type and memory format of x."""
    return result.to(x.dtype) if result.stride() == x.stride() else torch.empty_like(x).copy_(result)


AREA, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)  # of the crop: fraction of the image's area, width / height
BRIGHTNESS, CONTRAST, SATURATION, HUE = 0.8, 0.8, 0.8, 0.2  # multiplied by the strength
STRENGTH = 0.5  # the paper's for CIFAR-10
CHANGED, GREYED, BLURRED = 0.8, 0.2, 0.5  # probabilities of color jitter, grayscale and blur
SIGMA = (0.1, 2.0)  # of the blur, in pixels
LARGE = 64  # smallest side in pixels of images that are blurred


class ImageViews:
    """Augmentation that makes two views of each image of a batch normalised by the channels' `mean` and `std`."""

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        self.mean, self.std = mean, std

    def __call__(self, x: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
        """Return two augmented views, each (N, C, H, W), of the images (N, C, H, W)."""
        both = self._varied(torch.cat([x, x]), generator)
        return both[: len(x)], both[len(x) :]

    def _varied(self, x: Tensor, generator: Generator) -> Tensor:
        x = flip(random_resized_crop(x, generator), generator)
        mean, std = per_channel(self.mean, x), per_channel(self.std, x)
        pixels = (x * std + mean).clamp(0, 1)
        changed = jitter_color(pixels, STRENGTH, generator)
        pixels = torch.where(_happens(x, CHANGED, generator), changed, pixels)
        if x.shape[1] == 3:
            pixels = torch.where(_happens(x, GREYED, generator), to_gray(pixels), pixels)
        if min(x.shape[2:]) >= LARGE:
            pixels = torch.where(_happens(x, BLURRED, generator), random_gaussian_blur(pixels, generator), pixels)
        return (pixels - mean) / std


def random_resized_crop(x: Tensor, generator: Generator) -> Tensor:
    """Crop a random part of each image (N, C, H, W) and resize it to (H, W) with bilinear interpolation.

    The area is drawn from AREA and the aspect ratio (width / height) from RATIO on a logarithmic scale.
    """
    n, _, height, width = x.shape
    area = _between(x, AREA, generator) * height * width  # (N,)
    ratio = _between(x, (math.log(RATIO[0]), math.log(RATIO[1])), generator).exp()
    w, h = (area * ratio).sqrt().clamp(max=width) / width, (area / ratio).sqrt().clamp(max=height) / height
    # grid_sample uses coordinates from −1 to 1.
    across, down = (_between(x, (-1.0, 1.0), generator) * (1 - side) for side in (w, h))
    nothing = torch.zeros_like(w)
    to_part = torch.stack([w, nothing, across, nothing, h, down], 1).view(n, 2, 3)
    grid = F.affine_grid(to_part, list(x.shape), align_corners=False)  # (N, H, W, 2)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="reflection", align_corners=False)


def jitter_color(pixels: Tensor, strength: float, generator: Generator) -> Tensor:
    """Jitter brightness, contrast, saturation and hue, in this order, of pixels in [0, 1], shape (N, C, H, W).

    Pixels are clipped after each step. The factors are 1 ± 0.8 s; the hue rotates by ± 0.2 s of the circle. Images with
    one channel have neither saturation nor hue.
    """

    def factor(most: float) -> Tensor:
        return 1 + strength * most * (2 * uniform(pixels, (len(pixels), 1, 1, 1), generator) - 1)

    colours = pixels.shape[1] == 3
    pixels = adjust_color(pixels, factor(BRIGHTNESS), factor(CONTRAST), factor(SATURATION) if colours else None)
    return rotate_hue(pixels, (factor(HUE) - 1) * 2 * math.pi).clamp(0, 1) if colours else pixels


def rotate_hue(pixels: Tensor, angle: Tensor) -> Tensor:
    """Rotate the hue of RGB images (N, 3, H, W) by `angle` (N, 1, 1, 1).

    This is a rotation about the grey axis (1, 1, 1)/√3 by Rodrigues' formula, which leaves grey unchanged.
    """
    cos, sin = angle.cos(), angle.sin()
    mean = pixels.mean(1, keepdim=True)  # component along the axis, which the rotation keeps
    red, green, blue = pixels.unbind(1)
    across = torch.stack([blue - green, red - blue, green - red], 1) / math.sqrt(3)  # axis × pixel
    return mean + (pixels - mean) * cos + across * sin


def random_gaussian_blur(x: Tensor, generator: Generator) -> Tensor:
    """Blur each image (N, C, H, W) with a Gaussian whose σ is drawn from SIGMA and kernel spans 1/10 of a side."""
    n, channels, height, width = x.shape
    reach = max(1, min(height, width) // 20)
    place = torch.arange(-reach, reach + 1, dtype=x.dtype, device=x.device)
    kernel = (-(place**2) / (2 * _between(x, SIGMA, generator)[:, None] ** 2)).exp()  # (N, k)
    kernel = (kernel / kernel.sum(1, keepdim=True)).repeat_interleave(channels, 0)[:, None]  # (N·C, 1, k)
    y = F.pad(x.reshape(1, n * channels, height, width), (reach,) * 4, mode="reflect")
    y = F.conv2d(y, kernel[:, :, None], groups=n * channels)
    return F.conv2d(y, kernel[:, :, :, None], groups=n * channels).view_as(x)


def _between(x: Tensor, bounds: tuple[float, float], generator: Generator) -> Tensor:
    """Draw a uniform number between the bounds for each image, (N,)."""
    low, high = bounds
    return low + (high - low) * uniform(x, (len(x),), generator).to(x.dtype)


def _happens(x: Tensor, probability: float, generator: Generator) -> Tensor:
    """Draw a Boolean with this probability for each image, (N, 1, 1, 1)."""
    return uniform(x, (len(x), 1, 1, 1), generator) < probability


PART = (0.6, 1.0)  # of a series' length
SCALE = (0.8, 1.25)  # of each variable, on a logarithmic scale
JITTER = 0.1  # standard deviation of the noise, relative to that of the training series


class SeriesViews:
    """Augmentation that makes two views of each series of a batch."""

    def __call__(self, x: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
        """Return two augmented views, each (N, T, F), of the series (N, T, F)."""
        both = add_jitter(scale_variables(random_resized_part(torch.cat([x, x]), generator), generator), generator)
        return both[: len(x)], both[len(x) :]


def random_resized_part(x: Tensor, generator: Generator) -> Tensor:
    """Crop a random part of each series (N, T, F), with a length in PART, and resample it to T steps linearly."""
    low, high = PART
    n, steps, _ = x.shape
    share = low + (high - low) * uniform(x, (n, 1), generator).to(x.dtype)  # (N, 1)
    begin = (1 - share) * uniform(x, (n, 1), generator).to(x.dtype)
    place = (begin + share * torch.linspace(0, 1, steps, dtype=x.dtype, device=x.device)) * (steps - 1)  # (N, T)
    before = place.floor().clamp(0, max(steps - 2, 0)).long()
    after, beyond = (before + 1).clamp(max=steps - 1), (place - before).unsqueeze(2)  # (N, T, 1)
    one, other = (x.gather(1, at.unsqueeze(2).expand_as(x)) for at in (before, after))
    return torch.lerp(one, other, beyond)


def scale_variables(x: Tensor, generator: Generator) -> Tensor:
    """Multiply each variable of each series (N, T, F) by a factor drawn from SCALE."""
    low, high = SCALE
    drawn = uniform(x, (len(x), 1, x.shape[2]), generator).to(x.dtype)
    return x * low * (high / low) ** drawn


def add_jitter(x: Tensor, generator: Generator) -> Tensor:
    """Add noise of standard deviation JITTER to each value."""
    return x + JITTER * torch.randn(x.shape, generator=generator, dtype=x.dtype, device=x.device)
