"""Wrong answers to the exercises of chapter 6."""

from __future__ import annotations

from typing import Any

from . import wrong


@wrong(6, "connects every map to all inputs")
def table_parameters(table: Any, k: Any) -> Any:
    return len(table) * (max(map(len, table)) * k * k + 1)


@wrong(6, "Fields overlap")
def stack(k: Any, layers: Any, channels: Any) -> Any:
    return k * layers, layers * k * k * channels**2


@wrong(6, "for one pixel")
def bottleneck(channels: Any, width: Any, side: Any) -> Any:
    return 2 * channels * width + 9 * width**2


@wrong(6, "the shortcut brings g itself")
def through_block(J: Any, g: Any) -> Any:
    return J.T @ g


@wrong(6, "say how many have each length")
def paths(blocks: Any) -> Any:
    return 2**blocks


@wrong(6, "the first layer sees the input")
def input_channels(channels: Any, growth: Any, layers: Any) -> Any:
    return [channels + growth * (i + 1) for i in range(layers)]
