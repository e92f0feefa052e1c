"""What of a split cannot be read, found by reading all of it, as `cutaway check` does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import DataError, Problem

Progress = Callable[[int, int], None]  # how many are done, of how many


def unreadable(read: Callable[[int], Any], count: int, progress: Progress | None = None) -> list[Problem]:
    """Everything that `read` cannot read of parts 0 … count − 1, by name."""
    problems: list[Problem] = []
    for k in range(count):
        try:
            read(k)
        except DataError as error:
            problems += error.problems
        if progress is not None:
            progress(k + 1, count)
    return problems
