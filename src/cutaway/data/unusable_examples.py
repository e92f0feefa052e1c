"""Examples that cannot be used: named in an error, or, with missing=drop, left out and counted.

All kinds of data go through here: damaged images, recordings and videos, texts that cannot be decoded, masks that do
not fit, molecules that are none, edges that lead nowhere, one of several series.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import DataError, Problem, SettingError
from .parallel import in_threads
from .settings import DataSettings
from .splits import Rows

if TYPE_CHECKING:
    from .streaming.tar_index import Looking

NAMED_AT_MOST = 3  # examples that a note names
REPAIR = "Repair, replace or move away what is named; in training missing=drop leaves it out."


def reject_fill(settings: DataSettings) -> None:
    """Raise SettingError for missing=fill, where there are no cells to fill."""
    if settings.missing == "fill":
        raise SettingError(
            "missing=fill is for the cells of tables. Of this data missing=error names what cannot be used, and "
            "missing=drop leaves it out."
        )


def leave_out(problems: Sequence[Problem], total: int, noun: str, missing: str, fix: str = REPAIR) -> list[str]:
    """Return a note on what missing=drop leaves out of `total` examples, each called `noun`; none where nothing is.

    Raises DataError that names all of it, with what to do in `fix`, unless `missing` is drop; and where nothing would
    be left.
    """
    if not problems:
        return []
    counted = f"{len(problems):,} of {total:,} {noun}"
    if missing != "drop":
        raise DataError(f"{counted} cannot be used:", problems, fix)
    if len(problems) >= total:
        raise DataError(f"missing=drop would leave nothing: {counted} cannot be used:", problems, "Fix some of them.")
    more = f"; and {len(problems) - NAMED_AT_MOST:,} more" if len(problems) > NAMED_AT_MOST else ""
    return [f"missing=drop left out {counted}: {'; '.join(map(str, problems[:NAMED_AT_MOST]))}{more}."]


@dataclass(frozen=True)
class Usable:
    """The files that can be used."""

    rows: Rows  # their numbers
    looks: Sequence[Any]  # what a look at each told
    notes: list[str]  # on the others


def look_through(
    files: Sequence[Any], looking: Looking, look_at: Callable[[Sequence[Any]], Sequence[Any]], settings: DataSettings
) -> Usable:
    """Look at every file by `look_at`, which raises DataError that names those that cannot be used; with missing=drop
    read each whole, and leave those out."""
    if settings.missing != "drop":
        return Usable(np.arange(len(files)), look_at(files), [])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what libraries warn of is named here instead
        looks = list(in_threads(looking.look_whole, files, settings.workers))
    problems = [look for look in looks if isinstance(look, Problem)]
    rows = np.array([i for i, look in enumerate(looks) if not isinstance(look, Problem)], np.int64)
    notes = leave_out(problems, len(files), f"{looking.kind.kind} files", settings.missing)
    return Usable(rows, [looks[i] for i in rows], notes)
