"""Mapping of another data set's targets to those of a run."""

from __future__ import annotations

import torch
from torch import Tensor

from ..core.errors import DataError
from ..core.spec import Target, Value
from .findings import similar_name_hint
from .folders import normalize_name


def remap_targets(target: Tensor, theirs: Target, ours: Target) -> Tensor:
    """Map a `target` from the labels `theirs` to `ours`: classes by name, values to the same scale.

    Raises DataError for a class that was not in the training data.
    """
    if ours.classes:
        return map_class_ids(theirs.classes, ours.classes)[target]
    if isinstance(theirs, Value) and isinstance(ours, Value):
        return (target * theirs.scale + theirs.mean - ours.mean) / ours.scale
    return target


def map_class_ids(theirs: tuple[str, ...], ours: tuple[str, ...]) -> Tensor:
    """Return the index in `ours` of each class in `theirs`, (K,). Raises DataError for an unknown class."""
    number = {normalize_name(name): k for k, name in enumerate(ours)}
    unknown = [name for name in theirs if normalize_name(name) not in number]
    if unknown:
        raise DataError(
            f"That data has classes that this run did not learn: {', '.join(unknown[:5])}. It learned: "
            f"{', '.join(ours[:20])}.{similar_name_hint(unknown[0], ours)}"
        )
    return torch.tensor([number[normalize_name(name)] for name in theirs])
