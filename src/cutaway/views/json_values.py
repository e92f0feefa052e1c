"""Values of a description: tensors as plain JSON of few digits, images as data URLs, and long sequences shortened."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from PIL import Image
from torch import Tensor

Item = TypeVar("Item")

DIGITS = 4  # significant digits in a description, more than are visible


def to_lists(x: Tensor) -> Any:
    """Return a tensor as nested lists of numbers with four significant digits; nonfinite values become None."""
    x = x.detach().cpu().double()
    return _round(x.tolist())


def _round(values: Any) -> Any:
    """Round the numbers of nested lists to DIGITS digits; those that are not finite become None."""
    if isinstance(values, list):
        return [_round(value) for value in values]
    return float(f"{values:.{DIGITS}g}") if values - values == 0 else None


def thousandths(x: Tensor) -> list[list[float]]:
    """Return a matrix of fractions or cosines with three decimals."""
    return [[round(value, 3) for value in row] for row in x.double().tolist()]


def downsample(x: Tensor, most: int) -> Tensor:
    """Reduce maps (…, H, W) to sides of at most `most` by average pooling."""
    height, width = x.shape[-2:]
    if max(height, width) <= most:
        return x
    size = (min(height, most), min(width, most))
    return torch.nn.functional.adaptive_avg_pool2d(x.flatten(0, -3)[:, None], size)[:, 0].view(*x.shape[:-2], *size)


def image_url(image: Image.Image, most: int = 448) -> str:
    """Return an image as a `data:` URL, with a longer side of at most `most` pixels."""
    image = image.convert("RGB") if image.mode not in ("L", "RGB") else image.copy()
    image.thumbnail((most, most))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def tensor_url(x: Tensor) -> str:
    """Return an image tensor (C, H, W) as a `data:` URL, scaled to the full range."""
    x = x.detach().float().cpu()
    x = (x - x.min()) / (x.max() - x.min()).clamp(min=1e-12)
    x = x[:3] if len(x) >= 3 else x[:1]
    bytes_ = (x * 255).round().byte().movedim(0, -1).squeeze(-1).numpy()
    return image_url(Image.fromarray(bytes_))


def evenly_spaced(those: Sequence[Item], most: int) -> list[Item]:
    """Return at most `most` items, evenly spaced, including the first and the last."""
    if len(those) <= most:
        return list(those)
    return [those[i] for i in sorted({round(i * (len(those) - 1) / (most - 1)) for i in range(most)})]
