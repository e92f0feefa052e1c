"""Shared parts of image models: the check of the image size, and the outputs of auxiliary heads."""

from __future__ import annotations

from torch import Tensor

from ..core.errors import ModelError


def validate_image_size(x: Tensor, least: int, name: str) -> None:
    """Raise ModelError if a side of the images (N, C, H, W) has fewer than `least` pixels: no feature map would be
    left.

    """
    height, width = x.shape[2:]
    if min(height, width) < least:
        raise ModelError(
            f"{name} needs images of at least {least}×{least} pixels, and these are {height}×{width}: "
            f"bring them to image_size={least} or more; `cutaway show` lists a model's settings for small images."
        )


def as_output_tuple(outputs: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return a model's outputs as a tuple: those of the head, and in training those of auxiliary heads after them."""
    return outputs if isinstance(outputs, tuple) else (outputs,)
