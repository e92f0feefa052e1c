"""Handling of unusable examples: an error that names them, or, with missing=drop, a note that counts them.

All kinds of data use it: damaged images, recordings and videos, texts that cannot be decoded, masks that do not fit,
invalid molecules, edges to missing nodes, and single series.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import DataError, Problem, SettingError
from .parallel import map_in_threads
from .settings import DataSettings
from .splits import Rows

if TYPE_CHECKING:
    from .streaming.tars import FileInspector

NAMED_AT_MOST = 3  # examples that a note names
REPAIR = "Repair, replace or move away what is named; in training missing=drop leaves it out."


def reject_fill(settings: DataSettings) -> None:
    """Raise SettingError for missing=fill if the data has no cells to fill."""
    if settings.missing == "fill":
        raise SettingError(
            "missing=fill is for the cells of tables. Of this data missing=error names what cannot be used, and "
            "missing=drop leaves it out."
        )


def leave_out(problems: Sequence[Problem], total: int, noun: str, missing: str, fix: str = REPAIR) -> list[str]:
    """Return a note on the examples that missing=drop leaves out of `total`; empty if there are none.

    `noun` names the examples. Raises DataError that names all of them, with the advice `fix`, unless `missing` is drop;
    it also raises DataError if nothing would be left.
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
class UsableFiles:
    """The usable files."""

    rows: Rows  # their numbers
    looks: Sequence[Any]  # the result of inspecting each
    notes: list[str]  # about the others


def inspect_files(
    files: Sequence[Any],
    looking: FileInspector,
    look_at: Callable[[Sequence[Any]], Sequence[Any]],
    settings: DataSettings,
) -> UsableFiles:
    """Inspect every file with `look_at`, which raises DataError that names the unusable ones.

    With missing=drop, each file is read completely instead, and unusable files are left out.
    """
    if settings.missing != "drop":
        return UsableFiles(np.arange(len(files)), look_at(files), [])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # problems are reported here instead of as library warnings
        looks = list(map_in_threads(looking.look_whole, files, settings.workers))
    problems = [look for look in looks if isinstance(look, Problem)]
    rows = np.array([i for i, look in enumerate(looks) if not isinstance(look, Problem)], np.int64)
    notes = leave_out(problems, len(files), f"{looking.kind.kind} files", settings.missing)
    return UsableFiles(rows, [looks[i] for i in rows], notes)
