"""Another set's targets as a run that did not learn from it tells them."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import DataError
from ..spec import Target, Value


def relabelled(target: Tensor, theirs: Target, ours: Target) -> Tensor:
    """The `target` of a set that told `theirs`, as `ours`: classes by their names, values on their scale. Raises
    DataError for a class that training did not know."""
    if ours.classes:
        return numbers_of(theirs.classes, ours.classes)[target]
    if isinstance(theirs, Value) and isinstance(ours, Value):
        return (target * theirs.scale + theirs.mean - ours.mean) / ours.scale
    return target


def numbers_of(theirs: tuple[str, ...], ours: tuple[str, ...]) -> Tensor:
    """What each class of another set is here, (K,). Raises DataError for one that training did not know."""
    unknown = [name for name in theirs if name not in ours]
    if unknown:
        raise DataError(
            f"That data has classes that this run did not learn: {', '.join(unknown[:5])}. It learned: "
            f"{', '.join(ours[:20])}."
        )
    return torch.tensor([ours.index(name) for name in theirs])
