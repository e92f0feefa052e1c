"""Tensors as plain JSON values, and images as data URLs."""

from __future__ import annotations

import base64
import io
from typing import Any

import torch
from PIL import Image
from torch import Tensor

DIGITS = 4  # significant ones that a description holds: more than an eye can tell apart


def plain(x: Tensor) -> Any:
    """A tensor as nested lists of numbers with four significant digits; None where a number is not finite."""
    x = x.detach().cpu().double()
    return _rounded(x.tolist())


def _rounded(values: Any) -> Any:
    if isinstance(values, list):
        return [_rounded(value) for value in values]
    return float(f"{values:.{DIGITS}g}") if values - values == 0 else None


def thousandths(x: Tensor) -> list[list[float]]:
    """A matrix of fractions or cosines with three decimals: more would not be seen."""
    return [[round(value, 3) for value in row] for row in x.double().tolist()]


def averaged(x: Tensor, most: int) -> Tensor:
    """Maps (…, H, W) with sides of at most `most`: larger ones as means over areas."""
    height, width = x.shape[-2:]
    if max(height, width) <= most:
        return x
    size = (min(height, most), min(width, most))
    return torch.nn.functional.adaptive_avg_pool2d(x.flatten(0, -3)[:, None], size)[:, 0].view(*x.shape[:-2], *size)


def image_url(image: Image.Image, most: int = 448) -> str:
    """An image as a `data:` URL, its longer side at most `most` pixels."""
    image = image.convert("RGB") if image.mode not in ("L", "RGB") else image.copy()
    image.thumbnail((most, most))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def pixels_of(x: Tensor) -> str:
    """An image tensor (C, H, W), its values stretched over the range they have, as a `data:` URL."""
    x = x.detach().float().cpu()
    x = (x - x.min()) / (x.max() - x.min()).clamp(min=1e-12)
    x = x[:3] if len(x) >= 3 else x[:1]
    bytes_ = (x * 255).round().byte().movedim(0, -1).squeeze(-1).numpy()
    return image_url(Image.fromarray(bytes_))
