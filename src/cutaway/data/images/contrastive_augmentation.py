"""SimCLR augmentation: two random views of each image.

The augmentations of T. Chen, S. Kornblith, M. Norouzi, G. Hinton, A simple framework for contrastive learning of visual
representations, 2020, appendix A <https://arxiv.org/abs/2002.05709>, drawn independently for each image and applied to
the whole batch at once: random resized crop, horizontal flip, color jitter, grayscale and Gaussian blur. Blur is
applied to larger images only; the paper leaves it out for CIFAR-10 (appendix B.9).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from ..augment import adjust_color, flip, per_channel, to_gray, uniform

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
