"""Mapping of our networks and weights to those of torchvision.

Each module of this package is one family. It has `TORCHVISION`: our preset → torchvision's builder, and `RENAMES`:
pairs of a regular expression and its replacement, applied in order to our key to get torchvision's. `RENAMES` is empty
if the names are equal. A new family is one new file, without registration.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from types import ModuleType


@functools.cache
def torchvision_names() -> dict[str, str]:
    """Return every preset with the same weights in torchvision, and the name of its builder there."""
    return {preset: name for family in _families() for preset, name in family.TORCHVISION.items()}


def torchvision_key(preset: str, key: str) -> str:
    """Return torchvision's key of our weight `key` of a preset."""
    for pattern, replacement in _renames(preset):
        key = re.sub(pattern, replacement, key)
    return key


@functools.cache
def _renames(preset: str) -> tuple[tuple[str, str], ...]:
    for family in _families():
        if preset in family.TORCHVISION:
            renames: tuple[tuple[str, str], ...] = family.RENAMES
            return renames
    return ()


@functools.cache
def _families() -> tuple[ModuleType, ...]:
    return tuple(importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__))
