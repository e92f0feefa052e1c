"""Which of our networks is which of torchvision's, and under which names its weights go there.

Each module beside this one is one family. It has `TORCHVISION`: our preset → torchvision's builder, and `RENAMES`:
pairs of a regular expression and what replaces it, applied in order to a key of ours to give torchvision's. Where the
names are the same there are none. A new family is one new file here; nothing is registered by hand.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from types import ModuleType


@functools.cache
def torchvision_names() -> dict[str, str]:
    """Every preset that torchvision has, weight for weight, with its builder's name there."""
    return {preset: name for family in _families() for preset, name in family.TORCHVISION.items()}


def torchvision_key(preset: str, key: str) -> str:
    """torchvision's key of our weight `key` of that preset."""
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
