"""What one example of a model's input looks like, where there is no data set to tell."""

from __future__ import annotations

from typing import Any

from ..errors import ModelError
from ..models.registry import Preset


def example_shape(preset: Preset, config: Any) -> tuple[int, ...]:
    """The shape of one example, without the batch: the one that the published counts are for, with the channels,
    image size or number of features of `config`. Raises ModelError where neither says it."""
    at = preset.card.published.at
    if hasattr(config, "in_features"):
        return (config.steps, config.in_features) if hasattr(config, "steps") else (config.in_features,)
    channels = getattr(config, "in_channels", at[0] if at else None)
    side = getattr(config, "image_size", None)
    size = (side, side) if side else at[1:]
    if channels is None or not size:
        raise ModelError(f"{preset.name} does not say what size its input has: add input=SHAPE, as in input=3x64x64.")
    return (channels, *size)
