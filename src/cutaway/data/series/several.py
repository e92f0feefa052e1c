"""Many series in one file, one row for each series and time (long format): each is read, split and scaled by itself.

Each series has its own mean and standard deviation, as forecasters of many series have them (GluonTS, NeuralForecast's
local scaling): of shops of different sizes the largest would be all that is learned otherwise. What is known in advance
means the same to all, and has one scale. No window reaches from one series into another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ...errors import DataError, Problem, listed
from ..splits import Rows
from ..tables.reading import Table, counted
from ..unusable import leave_out
from .columns import Columns, read_moments
from .reading import Series, read_series, sorting_note
from .times import Step

MOST_NAMED = 5  # series that a note names
FIX = "Fix their rows; in training missing=drop leaves those series out, and gaps=fill fills what is missing in them."
Scale = tuple[tuple[float, ...], tuple[float, ...]]  # mean and standard deviation of each variable


@dataclass(frozen=True)
class Several:
    """Which of several series each window of a split is of, and the scale of each."""

    names: tuple[str, ...]
    which: Tensor  # (n,) the number of each window's series
    begins: Tensor  # (S,) the first step of each series, in the one tensor that holds all
    mean: Tensor  # (S, F) float64, of each variable, the C to forecast first
    std: Tensor  # (S, F) float64
    columns: int  # C

    def scales(self, index: Tensor | slice = slice(None)) -> tuple[Tensor, Tensor]:
        """The mean and the standard deviation of each variable, (N, F) each, of these windows."""
        return self.mean[self.which[index]], self.std[self.which[index]]

    def in_units(self, standardised: Tensor, index: Tensor | slice = slice(None)) -> Tensor:
        """Outputs or targets (N, H·C) of these windows, each on the scale of its series, in the columns' units."""
        mean, std = (x[:, None, : self.columns].to(standardised.device) for x in self.scales(index))  # (N, 1, C)
        steps = standardised.double().view(len(mean), -1, self.columns)  # (N, H, C)
        return (steps * std + mean).flatten(1)


@dataclass(frozen=True)
class Cut:
    """Windows of several series, in the order of the time at which their forecasts begin, then of the series."""

    all_of_them: Sequence[Series]
    which: npt.NDArray[np.int64]  # (n,) the number of each window's series
    starts: Rows  # (n,) the step of that series at which the forecast begins

    @classmethod
    def of(cls, all_of_them: Sequence[Series], starts: Sequence[Rows]) -> Cut:
        """The windows that begin their forecasts at these steps of each series."""
        which = np.repeat(np.arange(len(starts)), [len(own) for own in starts])
        times = [series.clock.moment(p) for series, own in zip(all_of_them, starts) for p in own]
        order = np.lexsort((which, np.array(times)))
        return cls(all_of_them, which[order], np.concatenate(list(starts))[order])

    @cached_property
    def begins(self) -> npt.NDArray[np.int64]:
        """Where each series begins where all stand one after another, (S,)."""
        ends = np.cumsum([len(series.values) for series in self.all_of_them])
        return np.concatenate([[0], ends[:-1]]).astype(np.int64)

    @property
    def places(self) -> Rows:
        """The steps at which the forecasts begin, counted over all series, (n,)."""
        return self.begins[self.which] + self.starts

    def label(self, i: int) -> str:
        """Window i in words: A, from 2024-03-01."""
        series = self.all_of_them[int(self.which[i])]
        return (f"{series.own}, " if series.own else "") + f"from {series.clock.label(int(self.starts[i]))}"

    def last(self, count: int | None) -> Cut:
        """The last so many of these windows, or all."""
        return self if count is None else Cut(self.all_of_them, self.which[-count:], self.starts[-count:])


def read_several(
    table: Table,
    columns: Columns,
    gaps: str,
    missing: str,
    step: Step | None = None,
    check: Callable[[Series], None] = lambda series: None,
) -> tuple[list[Series], list[str]]:
    """Read each series of a table, in the order of their first rows.

    Args:
        table: The table; without `columns.id` it holds one series.
        columns: The role of each column.
        gaps: What is done about missing steps and values, as in `read_series`.
        missing: With drop, series that cannot be read, or that `check` rejects, are left out.
        step: The step that every series must have; None for the step of the first.
        check: Raises DataError for a series that cannot be used.

    Returns:
        The series, and a note on those that are left out.

    Raises:
        DataError: As `read_series`, with the name of the series, unless it is left out; if no series is left; if rows
            have no name; if the series differ in their steps.
    """
    if columns.id is None:
        series = read_series(table, columns, gaps, step)
        check(series)
        return [series], []
    if columns.id not in table.columns:
        raise DataError(
            f"{table.title} has no column {columns.id!r}, which says what series a row is of.",
            fix="A file to be forecast has the columns that the model was trained with, by the same names.",
        )
    cells = table.text(columns.id)
    nameless = np.flatnonzero(cells.is_null().to_numpy()).tolist()
    if nameless:
        raise DataError(
            f"{table.title} has rows that do not say what series they are of:",
            [Problem(table.where(i, columns.id), "it is empty") for i in nameless],
            f"Every row has its {columns.id}.",
        )
    found: list[Series] = []
    errors: list[tuple[str, DataError]] = []
    names, numbers = cells.to_numpy(), np.arange(len(table))
    every, times = cells.unique(maintain_order=True).to_list(), read_moments(table, columns)
    notes: tuple[str, ...] = ()
    if any((np.diff(times[names == name]) < 0).any() for name in every):
        order = np.argsort(times, kind="stable")
        notes = (sorting_note(table, columns, times),)
        table, names = table.take(order), names[order]
    for name in every:
        rows = numbers[names == name]
        own = replace(table.take(rows), name=f"{table.title} ({columns.id} {name})", parts=())
        try:
            series = read_series(own, columns, gaps, step, name)
            if found and series.clock.step != found[0].clock.step:
                raise DataError(
                    f"The series of {table.title} are of different steps: the rows of {found[0].own} are "
                    f"{found[0].clock.step.words} apart, those of {name} {series.clock.step.words}.",
                    fix="Bring all to one step, or train on those of one step at a time.",
                )
            check(series)
            found.append(series if found else replace(series, notes=(*notes, *series.notes)))
        except DataError as error:
            errors.append((name, error))
    if len(errors) == 1 and missing != "drop":
        only = errors[0][1]
        only.args = (f"{only} In training missing=drop leaves this series out.",)
        raise only
    causes = [(name, str(error.problems[0] if error.problems else error)) for name, error in errors]
    problems = [Problem(f"{columns.id} {name}", cause.rstrip(".")) for name, cause in causes]
    return found, leave_out(problems, len(every), f"series of {table.title}", missing, FIX)


def long_enough(found: Sequence[Series], needed: int, title: str, missing: str) -> tuple[list[Series], list[str]]:
    """The series that have so many steps, and a note on those that have not, where missing=drop leaves them out.

    Raises DataError, naming each, where it does not, or where none is left.
    """
    short = [series for series in found if series.length < needed]
    left = [series for series in found if series.length >= needed]
    if short and (missing != "drop" or not left):
        raise DataError(
            f"{len(short):,} of the {len(found):,} series of {title} have fewer than {needed:,} steps: a lookback, "
            "and a horizon for each split.",
            [
                Problem(
                    series.own,
                    f"{counted(series.length, 'step')}, {series.clock.label(0)} to "
                    f"{series.clock.label(series.length - 1)}",
                )
                for series in short
            ],
            "missing=drop leaves them out; or give a shorter lookback= or horizon=, val=0 or test=0.",
        )
    if not short:
        return left, []
    some = listed([series.own for series in short[:MOST_NAMED]], "and")
    more = f" and {len(short) - MOST_NAMED:,} more" if len(short) > MOST_NAMED else ""
    return left, [f"Left out: {some}{more}, {len(short):,} of {len(found):,} series: fewer than {needed:,} steps."]


def scale_of(values: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Mean and standard deviation of each variable of (T, F), NaN where nothing was measured. What is constant has a
    standard deviation of 0, or of what rounding leaves: it is moved to 0 and not scaled."""
    mean, std = np.nanmean(values, 0), np.nanstd(values, 0)
    return mean, np.where(std > 1e-12 * np.abs(mean), std, 1.0)
