"""Windows of a series: some steps that a model sees, and the steps after them that it is to forecast.

All windows are cut from one tensor when they are asked for; none is held. Which window is in which split of the data is
decided by time: a window belongs to the split in which its whole target lies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...errors import DataError
from ..sets import Batch, Split
from ..settings import DataSettings
from ..splits import SPLITS, Rows, fractions_left
from .reading import Series
from .several import Several


class WindowSplit(Split):
    """Windows of series that lie in memory once, as one tensor of standardised values.

    Window i is the `history` steps before step starts[i], and the `horizon` steps from it on.
    """

    def __init__(
        self,
        values: Tensor,
        targets: Tensor | None,
        starts: Tensor,
        history: int,
        horizon: int,
        known: int = 0,
        name: Callable[[int], str] = str,
        row: Callable[[int], dict[str, str] | None] = lambda i: None,
        notes: Sequence[str] = (),
        several: Several | None = None,
    ) -> None:
        """`values` (T, F), the last `known` variables known in advance; `targets` (T, C), NaN where nothing was
        measured, or None; `starts` (n,) in the order of time. `name` and `row` are given the number of a window;
        `notes` are sentences on these windows that a person should read. `several` says which series each is of, where
        `values` hold several, one after another."""
        self.values, self.targets, self.starts = values, targets, starts
        self.history, self.horizon, self.known = history, horizon, known
        self.notes, self.several = list(notes), several
        self._given: Tensor | None = None  # targets in place of those of the series
        self._name, self._row = name, row

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def target(self) -> Tensor | None:
        """The targets of all windows, (n, H·C), step after step, NaN where nothing was measured.

        They are cut when they are asked for; of one variable, and windows without a gap between them, they are a view.
        """
        if self._given is not None:
            return self._given
        if self.targets is None:
            return None
        first, last = int(self.starts[0]), int(self.starts[-1])
        if last - first + 1 == len(self) and self.several is None:
            ahead = self.targets[first : last + self.horizon].unfold(0, self.horizon, 1)  # (n, C, H)
            return ahead.transpose(1, 2).flatten(1)  # (n, H·C)
        return self._ahead(self.targets, self.starts).flatten(1)

    @target.setter
    def target(self, given: Tensor | None) -> None:
        self._given = given

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Inputs (N, T, F), with what is known in advance, (N, H, K), where something is; targets (N, H·C)."""
        del seed
        back = torch.arange(-self.history, 0)
        for index in order:
            starts = self.starts[index]
            inputs: tuple[Tensor, ...] = (self.values[starts[:, None] + back],)  # (N, T, F)
            if self.known:
                inputs = (*inputs, self._ahead(self.values[:, -self.known :], starts))  # (N, H, K)
            if self.targets is None:
                target = torch.empty(len(index), 0)
            else:
                target = self._ahead(self.targets, starts).flatten(1)  # (N, H, C) to (N, H·C)
            yield Batch(inputs, target)

    def in_units(self, standardised: Tensor, index: Tensor | slice = slice(None)) -> Tensor:
        """Outputs or targets (N, H·C) of these windows on the scale of the spec's target: of several series, which have
        scales of their own, in the columns' units."""
        return self.several.in_units(standardised, index) if self.several else standardised

    @property
    def seen_before(self) -> Tensor:
        """The steps of its own series before each window's forecast, (n,)."""
        return self.starts - self.several.begins[self.several.which] if self.several else self.starts

    def name(self, i: int) -> str:
        """The time at which the forecast begins."""
        return self._name(i)

    def row(self, i: int) -> dict[str, str] | None:
        """What the window is, in a few words."""
        return self._row(i)

    def _ahead(self, values: Tensor, starts: Tensor) -> Tensor:
        """The horizon of windows in values (T, D): (N, H, D)."""
        return values[starts[:, None] + torch.arange(self.horizon)]


def window_starts(series: Series, history: int, horizon: int, begin: int = 0, end: int | None = None) -> Rows:
    """The steps at which forecasts can begin whose whole target lies in steps begin … end − 1, sorted.

    `history` steps stand before each. Left out are those that begin right after a value that was filled in, for the
    line that it lies on leads into the target; and those that have nothing measured to be forecast.
    """
    end = series.length if end is None else min(end, series.length)
    starts = np.arange(max(begin, history), end - horizon + 1)
    if not len(starts):
        return starts
    measured = series.observed[:, : len(series.columns.names) - len(series.columns.ahead)]
    count = np.concatenate([[0], series.observed[:, : len(series.columns.forecast)].any(1).cumsum()])
    return starts[measured[starts - 1].all(1) & (count[starts + horizon] > count[starts])]


def split_by_time(
    series: Series, history: int, horizon: int, settings: DataSettings, borders: Sequence[int] | None = None
) -> dict[str, Rows]:
    """The windows of train, then val, then test, each by the steps at which its forecasts begin.

    val and test are fractions of the steps that can be a target, the last ones; or `borders` are the ends of the three
    splits. No target is in two splits, and training windows see and forecast nothing of the splits after them.
    `max_samples` keeps the last training windows. Raises SettingError or DataError where a split would be empty.
    """
    splits = [p for p, fraction in zip(SPLITS, (1.0, *fractions_left(settings))) if fraction > 0]
    ends = dict(zip(SPLITS, borders)) if borders is not None else _ends(series, history, settings)
    if borders is not None:
        splits = list(SPLITS)
    needed = history + horizon * len(splits)
    if series.length < needed:
        raise DataError(
            f"{series.name or 'The series'} has {series.length:,} steps, and {needed:,} are needed: a history of "
            f"{history:,}, and a horizon of {horizon:,} for each of {', '.join(splits)}.",
            fix="Give a longer series, or a shorter lookback= or horizon=; val=0 or test=0 leaves a split out.",
        )
    starts: dict[str, Rows] = {}
    begin = 0
    for split in splits:
        starts[split] = window_starts(series, history, horizon, begin, ends[split])
        if not len(starts[split]):
            raise DataError(
                f"The {split} split gets no window: its {ends[split] - max(begin, history):,} steps from "
                f"{series.clock.label(max(begin, history))} hold no horizon of {horizon:,} that was measured.",
                fix="Give larger fractions val= and test=, a shorter lookback= or horizon=, or a longer series.",
            )
        begin = ends[split]
    if settings.max_samples is not None:
        starts["train"] = starts["train"][-settings.max_samples :]
    return starts


def _ends(series: Series, history: int, settings: DataSettings) -> Mapping[str, int]:
    """The step at which each split ends."""
    possible = max(series.length - history, 0)
    test = series.length - round(settings.test * possible)
    return {"train": test - round(settings.val * possible), "val": test, "test": series.length}


def covered(starts: Rows, history: int, horizon: int) -> npt.NDArray[np.int64]:
    """The steps that these windows see or forecast, sorted."""
    first, last = int(starts[0]) - history, int(starts[-1]) + horizon
    count = np.zeros(last - first + 1, np.int64)
    np.add.at(count, starts - history - first, 1)
    np.add.at(count, starts + horizon - first, -1)
    return np.flatnonzero(count.cumsum() > 0) + first
