"""Scaling and windowing of series, fitted on the training time and saved as JSON with the model.

    z = (y − mean) / std,  y one variable over time; mean and standard deviation of the training time

A window has the steps that the model sees and the following steps, which it forecasts. Windows are cut from one tensor
on demand. Splits are by time: a window belongs to the split that contains its whole target.

Preprocessing of whole series, fitted on the training split and saved as JSON with the model.

x = (s − mean) / std,  s the T steps of F variables; mean and standard deviation for each variable
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...core import spec as specs
from ...core.config import build, upgrade_settings
from ...core.errors import DataError, DataMismatchError, NotEnoughDataError, Problem, UnsupportedDataError, join
from ...core.files import read_bytes
from ...core.schema import NUMBER, dataclass_schema
from ...core.spec import Classes, Horizon, SeriesSpec, Views
from ..augment import SeriesViews
from ..dataset_base import Batch, Split, TensorSplit
from ..in_memory.container import as_frame
from ..settings import DataSettings
from ..splits import SPLITS, Rows, remaining_fractions
from ..tables import delimited
from ..tables.delimited import KEPT, Form
from ..tables.table_files import TABLE_SUFFIXES, Table, format_count, frame_table, read_table
from .column_roles import ColumnRoles, Step
from .series_files import (
    Scale,
    Series,
    SeriesScales,
    SeriesWindows,
    Values,
    compute_scale,
    extend_by_steps,
    read_several,
)


class WindowSplit(Split):
    """A split of windows, cut on demand from one in-memory tensor of standardised series.

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
        several: SeriesScales | None = None,
    ) -> None:
        """Store the series and the start of each window.

        `values` (T, F) holds the variables, the last `known` of them known in advance. `targets` (T, C) is NaN where
        nothing was measured, or None. `starts` (n,) is sorted by time. `name` and `row` take the index of a window.
        `notes` are shown to the user. `several` holds the series of each window if `values` concatenates several.
        """
        self.values, self.targets, self.starts = values, targets, starts
        self.history, self.horizon, self.known = history, horizon, known
        self.notes, self.several = list(notes), several
        self._given: Tensor | None = None  # replaces the targets of the series
        self._name, self._row = name, row

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def target(self) -> Tensor | None:
        """Return the targets of all windows, (n, H·C), step after step, NaN where nothing was measured.

        They are cut on demand. For one variable and contiguous windows they are a view.
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
        """Yield inputs (N, T, F), variables known in advance (N, H, K) if there are any, and targets (N, H·C)."""
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

    def inverse_transform(self, standardised: Tensor, index: Tensor | slice = slice(None)) -> Tensor:
        """Convert outputs or targets (N, H·C) of these windows to the scale of the spec's target.

        For several series, each with its own scale, these are the columns' units.
        """
        return self.several.inverse_transform(standardised, index) if self.several else standardised

    @property
    def num_previous_steps(self) -> Tensor:
        """Return the number of steps of its own series before each window's forecast, (n,)."""
        return self.starts - self.several.begins[self.several.which] if self.several else self.starts

    def name(self, i: int) -> str:
        """Return the time at which the forecast starts."""
        return self._name(i)

    def row(self, i: int) -> dict[str, str] | None:
        """Return a short description of the window."""
        return self._row(i)

    def _ahead(self, values: Tensor, starts: Tensor) -> Tensor:
        """Cut the horizon of windows from values (T, D): (N, H, D)."""
        return values[starts[:, None] + torch.arange(self.horizon)]


def window_starts(series: Series, history: int, horizon: int, begin: int = 0, end: int | None = None) -> Rows:
    """Return the sorted steps at which forecasts can start with the whole target in steps begin … end − 1.

    At least `history` steps precede each. Excluded are windows right after an interpolated value, because its line uses
    the target, and windows without measured targets.
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
    """Split windows into train, val and test by the step at which the forecast starts.

    val and test are the last fractions of the possible target steps; or `borders` are the ends of the three splits. No
    target is in two splits, and training windows contain nothing of later splits. `max_samples` keeps the last training
    windows. Raises SettingError or DataError if a split would be empty.
    """
    splits = [p for p, fraction in zip(SPLITS, (1.0, *remaining_fractions(settings))) if fraction > 0]
    ends = dict(zip(SPLITS, borders)) if borders is not None else _ends(series, history, settings)
    if borders is not None:
        splits = list(SPLITS)
    needed = history + horizon * len(splits)
    if series.length < needed:
        raise NotEnoughDataError(
            f"{series.name or 'The series'} has {series.length:,} steps, and {needed:,} are needed: a history of "
            f"{history:,}, and a horizon of {horizon:,} for each of {', '.join(splits)}.",
            fix="Give a longer series, or a shorter lookback= or horizon=; val=0 or test=0 leaves a split out.",
        )
    starts: dict[str, Rows] = {}
    begin = 0
    for split in splits:
        starts[split] = window_starts(series, history, horizon, begin, ends[split])
        if not len(starts[split]):
            raise NotEnoughDataError(
                f"The {split} split gets no window: its {ends[split] - max(begin, history):,} steps from "
                f"{series.clock.label(max(begin, history))} hold no horizon of {horizon:,} that was measured.",
                fix="Give larger fractions val= and test=, a shorter lookback= or horizon=, or a longer series.",
            )
        begin = ends[split]
    if settings.max_samples is not None:
        starts["train"] = starts["train"][-settings.max_samples :]
    return starts


def _ends(series: Series, history: int, settings: DataSettings) -> Mapping[str, int]:
    """Return the step at which each split ends."""
    possible = max(series.length - history, 0)
    test = series.length - round(settings.test * possible)
    return {"train": test - round(settings.val * possible), "val": test, "test": series.length}


def covered_steps(starts: Rows, history: int, horizon: int) -> npt.NDArray[np.int64]:
    """Return the sorted steps that these windows contain."""
    first, last = int(starts[0]) - history, int(starts[-1]) + horizon
    count = np.zeros(last - first + 1, np.int64)
    np.add.at(count, starts - history - first, 1)
    np.add.at(count, starts + horizon - first, -1)
    return np.flatnonzero(count.cumsum() > 0) + first


@dataclass(frozen=True)
class ForecastPreprocessing:
    """Preprocessing of series to windows (T, F), with forecast variables first and those known in advance last."""

    spec: SeriesSpec
    columns: ColumnRoles
    mean: tuple[float, ...]  # per variable, over the measured training values
    std: tuple[float, ...]
    step: Step
    gaps: str = "error"  # handling of missing steps and values: error, fill or skip
    missing: str = "error"  # handling of a series that cannot be used: error or drop
    written: Form = KEPT  # format of the training table, the default for new tables
    scales: Mapping[str, Scale] = field(default_factory=dict)  # scales of several series by name
    windows: ClassVar[type[WindowSplit]] = WindowSplit
    SCHEMA: ClassVar[Mapping[str, Any]] = {
        "spec": specs.SCHEMA,
        "columns": dataclass_schema(ColumnRoles, words=dict, id=str | None, time=str | None),
        "mean": [NUMBER],
        "std": [NUMBER],
        "step": dataclass_schema(Step),
        "gaps": str,
        "missing?": str,
        "read?": delimited.SCHEMA,
        "scales?": {...: {"mean": [NUMBER], "std": [NUMBER]}},
    }

    @classmethod
    def fitted(
        cls, series: Series, rows: npt.NDArray[np.int64], history: int, horizon: int, season: int, gaps: str
    ) -> ForecastPreprocessing:
        """Fit the preprocessing on the training steps of a series. Raises DataError if a column has no value there."""
        columns, values = series.columns, np.where(series.observed[rows], series.values[rows], np.nan)
        there = (~np.isnan(values)).sum(0)
        empty = [c for c, count in zip(columns.names, there.tolist()) if not count]
        if empty:
            raise NotEnoughDataError(
                f"Column {', '.join(map(repr, empty))} of {series.name} has no value in the training time.",
                fix="Leave it out with ignore=COLUMN, or give a longer series.",
            )
        mean, std = compute_scale(values)
        count = len(columns.forecast)
        target = Horizon(
            horizon,
            columns.forecast,
            tuple(mean[:count].tolist()),
            tuple(std[:count].tolist()),
            season,
            _naive_errors(values[:, :count] / std[:count], season),
        )
        spec = SeriesSpec(history, len(columns.names), target, known_future=len(columns.ahead))
        return cls(spec, columns, tuple(mean.tolist()), tuple(std.tolist()), series.clock.step, gaps)

    @classmethod
    def fitted_to_each(
        cls,
        found: Sequence[Series],
        rows: Sequence[npt.NDArray[np.int64]],
        history: int,
        horizon: int,
        season: int,
        gaps: str,
    ) -> ForecastPreprocessing:
        """Fit the preprocessing on the training steps of each series. Variables known in advance share one scale."""
        each = [cls.fitted(series, own, history, horizon, season, gaps) for series, own in zip(found, rows)]
        own = len(found[0].columns.names) - len(found[0].columns.ahead)
        together = [np.where(s.observed[r, own:], s.values[r, own:], np.nan) for s, r in zip(found, rows)]
        known_mean, known_std = (tuple(part.tolist()) for part in compute_scale(np.concatenate(together)))
        scales = {
            series.own: (one.mean[:own] + known_mean, one.std[:own] + known_std) for series, one in zip(found, each)
        }
        first, columns = each[0], len(found[0].columns.forecast)
        naive = [one.horizon.naive for one in each if one.horizon.naive]
        target = replace(
            first.horizon,
            mean=(0.0,) * columns,
            scale=(1.0,) * columns,
            naive=tuple(np.mean(naive, 0).tolist()) if naive else (),
            series=tuple(scales),
        )
        spec = replace(first.spec, target=target)
        return replace(first, spec=spec, mean=(0.0,) * own + known_mean, std=(1.0,) * own + known_std, scales=scales)

    @property
    def horizon(self) -> Horizon:
        """Return the forecast target."""
        assert isinstance(self.spec.target, Horizon)
        return self.spec.target

    def prepare(self, values: Values, scale: Scale | None = None) -> Tensor:
        """Standardise variables (T, F) as float32 with training statistics, or with the `scale` of one series."""
        return _standardise(values, scale or (self.mean, self.std))

    def splits(
        self, series: Series | Sequence[Series], starts: Mapping[str, Rows | SeriesWindows], notes: Sequence[str] = ()
    ) -> dict[str, WindowSplit]:
        """Build the splits from the steps at which forecasts start, or from cuts of several series.

        All windows are cut from one tensor.
        """
        found = [series] if isinstance(series, Series) else series
        scales = [self._scale(one) for one in found]
        values = torch.cat([self.prepare(one.values, scale) for one, scale in zip(found, scales)])  # (T, F)
        count = len(self.columns.forecast)
        targets = torch.cat([_standardise(one.values[:, :count], scale) for one, scale in zip(found, scales)])
        targets[torch.from_numpy(np.concatenate([~one.observed[:, :count] for one in found]))] = torch.nan
        return {
            split: self._as_split(
                chosen if isinstance(chosen, SeriesWindows) else SeriesWindows(found, np.zeros_like(chosen), chosen),
                values,
                targets,
                notes,
            )
            for split, chosen in starts.items()
        }

    def examples(self, sources: Sequence[Any]) -> WindowSplit:
        """Build a split of one window without targets for each file, or each of its series, to forecast future steps.

        If columns are known in advance, rows at the end of the file without values in the forecast columns are the
        future steps. Raises DataError if a file has too few rows, other columns, or another step. Of several series,
        unusable ones are left out with a note if training used missing=drop.
        """
        values: list[Tensor] = []
        starts: list[int] = []
        labels: list[str] = []
        notes: list[str] = []
        kept: list[Series] = []
        offset = 0
        for source in sources:
            found, left_out = self._read(source, self.missing, self._reject_short)
            notes += [*left_out, *self._about_new(found)]
            for series in found:
                if self.columns.ahead and not self.columns.known:
                    series = extend_by_steps(series, self.horizon.steps)
                # Only what a forecast sees is kept, so that long files cost no memory.
                begin = series.length - self.spec.steps
                seen = series.values[begin : series.length + (self.horizon.steps if self.columns.ahead else 0)]
                values.append(self.prepare(seen, self._scale(series)))
                starts.append(offset + self.spec.steps)
                offset += len(seen)
                labels.append(f"{series.name}, from {series.clock.label(series.length)}")
                notes += series.notes
                kept.append(series)
        if not values:
            raise NotEnoughDataError("No series was given.")
        begins = np.array(starts) - self.spec.steps
        return self.windows(
            torch.cat(values),
            None,
            torch.tensor(starts),
            self.spec.steps,
            self.horizon.steps,
            self.spec.known_future,
            name=labels.__getitem__,
            notes=notes,
            several=self._several(kept, np.arange(len(kept)), begins),
        )

    def labelled(self, source: str | Path) -> WindowSplit:
        """Load every window of another file, with targets.

        Of several series, those that cannot be read are left out with a note if training used missing=drop. Raises
        DataError as `examples` does.
        """
        found, left_out = self._read(source, self.missing)
        starts = [window_starts(series, self.spec.steps, self.horizon.steps) for series in found]
        if not any(len(own) for own in starts):
            longest = max(found, key=len)
            needed = self.spec.steps + self.horizon.steps
            raise NotEnoughDataError(
                f"{longest.name} has {format_count(longest.length, 'step')}, and {needed:,} are needed: a history of "
                f"{self.spec.steps:,} and a horizon of {self.horizon.steps:,}, measured in full where they meet.",
                fix="Give a longer series.",
            )
        notes = [*left_out, *(note for series in found for note in series.notes), *self._about_new(found)]
        if empty := [series.own for series, own in zip(found, starts) if not len(own)]:
            notes.append(f"Too short for a window: {join(empty, 'and')}.")
        return self.splits(found, {"": SeriesWindows.from_starts(found, starts)}, notes)[""]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values that `from_json` accepts."""
        return {
            "kind": "series",
            "form": "forecast",
            "spec": specs.to_json(self.spec),
            "columns": self.columns.to_json(),
            "mean": list(self.mean),
            "std": list(self.std),
            "step": asdict(self.step),
            "gaps": self.gaps,
            "missing": self.missing,
            "read": self.written.to_json(),
            "scales": {name: {"mean": list(mean), "std": list(std)} for name, (mean, std) in self.scales.items()},
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ForecastPreprocessing:
        """Load an object written by `to_json`. Raises ValueError if a document that matches SCHEMA is inconsistent."""
        spec = specs.read_spec(data["spec"], SeriesSpec, Horizon)
        columns, step = ColumnRoles.from_json(data["columns"]), Step.from_json(data["step"])
        written, count, gaps = Form.from_json(data.get("read")), len(columns.names), upgrade_settings(data)["gaps"]
        missing = data.get("missing") or "error"
        build(DataSettings, {"gaps": gaps, "missing": missing})
        assert isinstance(spec.target, Horizon)
        if count != spec.features or columns.forecast != spec.target.columns:
            raise ValueError(f"its columns {join(columns.names, 'and')} are not those of its spec")
        scales = {
            name: specs.validate_scales(one["mean"], one["std"], count)
            for name, one in (data.get("scales") or {}).items()
        }
        mean, std = specs.validate_scales(data["mean"], data["std"], count)
        return cls(spec, columns, mean, std, step, gaps, missing, written, scales)

    def _scale(self, series: Series) -> Scale:
        """Return the mean and the standard deviation of each variable of a series in training.

        A new one of several series is scaled by its own statistics.
        """
        if not self.columns.id:
            return self.mean, self.std
        if series.own in self.scales:
            return self.scales[series.own]
        own = len(self.columns.names) - len(self.columns.ahead)
        mean, std = compute_scale(series.values[: series.length, :own])
        return tuple(mean.tolist()) + self.mean[own:], tuple(std.tolist()) + self.std[own:]

    def _about_new(self, found: Sequence[Series]) -> list[str]:
        """Return a note on series that were not in training."""
        new = [series.own for series in found if self.columns.id and series.own not in self.scales]
        if not new:
            return []
        return [
            f"Not among the training series, and standardised by their own given values: {join(new[:9], 'and')}"
            + (f" and {len(new) - 9:,} more." if len(new) > 9 else ".")
        ]

    def _several(
        self, found: Sequence[Series], which: npt.NDArray[np.int64], begins: npt.NDArray[np.int64]
    ) -> SeriesScales | None:
        """Return the series of each window if the file holds several, else None."""
        if not self.columns.id:
            return None
        scales = torch.tensor([self._scale(series) for series in found], dtype=torch.float64)  # (S, 2, F)
        mean, std = scales.unbind(1)
        names, columns = tuple(series.own for series in found), len(self.columns.forecast)
        return SeriesScales(names, torch.from_numpy(which), torch.from_numpy(begins), mean, std, columns)

    def _read(
        self, source: Any, missing: str = "error", check: Callable[[Series], None] = lambda series: None
    ) -> tuple[list[Series], list[str]]:
        frame = None if isinstance(source, Table) else as_frame(source)
        table = source if frame is None else frame_table(frame, form=self.written)
        if isinstance(table, Table):
            return read_several(table, self.columns, self.gaps, missing, self.step, check)
        if not isinstance(source, str | Path):
            raise UnsupportedDataError(
                f"A forecast is made from the series so far, a file or a data frame, not from {type(source).__name__}.",
                fix="Give the path of a .csv, .tsv or .parquet file with the columns that the model was trained with.",
            )
        path = Path(source).expanduser()
        if path.is_file() and path.suffix.lower() not in TABLE_SUFFIXES:
            raise UnsupportedDataError(
                f"{path} is not a table: those end in {', '.join(TABLE_SUFFIXES)}.",
                fix="Give the series so far, with the columns that the model was trained with.",
            )
        return read_several(read_table(path, self.written), self.columns, self.gaps, missing, self.step, check)

    def _reject_short(self, series: Series) -> None:
        """Raise DataError if the file has too few past or future steps."""
        if series.length < self.spec.steps:
            raise NotEnoughDataError(
                f"{series.name} has {format_count(series.length, 'step')}, and a forecast is made from the last "
                f"{self.spec.steps:,}.",
                fix="Give more of the series.",
            )
        ahead = len(series.values) - series.length
        if self.columns.known and ahead < self.horizon.steps:
            raise NotEnoughDataError(
                f"{series.name} has {format_count(ahead, 'row')} after the last one that holds "
                f"{', '.join(self.columns.forecast)}, and the forecast needs {self.horizon.steps:,}: "
                f"{', '.join(self.columns.known)} must be known for every step of it.",
                fix="Add rows at the end with their time and these columns, and leave the others empty.",
            )
        last = series.observed[series.length - 1, : len(self.columns.names) - len(self.columns.ahead)]
        if not last.all():
            absent = [c for c, there in zip(self.columns.names, last) if not there]
            where = f"{series.name}, {series.clock.label(series.length - 1)}"
            raise DataError(
                f"The last step of {series.name} is not complete:",
                [Problem(f"{where}, column {c}", "the value is missing") for c in absent],
                "A forecast begins right after a step at which everything was measured.",
            )

    def _as_split(self, cut: SeriesWindows, values: Tensor, targets: Tensor, notes: Sequence[str]) -> WindowSplit:
        def row(i: int) -> dict[str, str]:
            series, start = cut.all_of_them[int(cut.which[i])], int(cut.starts[i])
            before = {f"{c} before": f"{v:.6g}" for c, v in zip(self.columns.forecast, series.values[start - 1])}
            return {"seen from": series.clock.label(start - self.spec.steps), **before}

        return self.windows(
            values,
            targets,
            torch.from_numpy(cut.places),
            self.spec.steps,
            self.horizon.steps,
            self.spec.known_future,
            name=cut.label,
            row=row,
            notes=notes,
            several=self._several(cut.all_of_them, cut.which, cut.begins),
        )


def _standardise(values: Values, scale: Scale) -> Tensor:
    """Standardise values (T, n) of the first n variables of a `scale`, as float32."""
    mean, std = (np.array(part)[: values.shape[1]] for part in scale)
    return torch.from_numpy((values - mean) / std).float()


def _naive_errors(values: Values, season: int) -> tuple[float, ...]:
    """Compute the mean |y_t − y_{t−season}| of each column of (T, C) over measured values, which scales MASE.

    Returns an empty tuple if a column has no two such steps, or repeats exactly. R. J. Hyndman, A. B. Koehler, Another
    look at measures of forecast accuracy, International Journal of Forecasting 22, 2006.
    """
    changes = np.abs(values[season:] - values[:-season])
    if np.isnan(changes).all(0).any():
        return ()
    errors = np.nanmean(changes, 0)
    return tuple(errors.tolist()) if (errors > 0).all() else ()


@dataclass(frozen=True)
class SeriesPreprocessing:
    """Preprocessing of a series to a tensor (T, F)."""

    spec: SeriesSpec
    mean: tuple[float, ...]  # per variable, over all steps of the training series
    std: tuple[float, ...]

    SCHEMA: ClassVar[Mapping[str, Any]] = {"spec": specs.SCHEMA, "mean": [NUMBER], "std": [NUMBER]}

    @classmethod
    def fitted(cls, spec: SeriesSpec, series: npt.NDArray[np.float64]) -> SeriesPreprocessing:
        """Fit the preprocessing on training series (n, T, F)."""
        std = series.std((0, 1))
        return cls(spec, tuple(series.mean((0, 1)).tolist()), tuple(np.where(std > 0, std, 1.0).tolist()))

    def prepare(self, series: npt.NDArray[np.float64]) -> Tensor:
        """Standardise series (n, T, F) with training statistics, as float32 of the same shape."""
        return torch.from_numpy((series - np.array(self.mean)) / np.array(self.std)).float()

    def views(self) -> SeriesViews:
        """Return the augmentation that makes two views of each series."""
        return SeriesViews()

    def examples(self, sources: Sequence[Any]) -> TensorSplit:
        """Build a split of series without targets: arrays (T,) or (T, F), or text files with one series per line.

        A line holds T·F numbers, step after step, separated by commas or blanks. Raises DataError that names each line
        or array with another length or non-finite values.
        """
        rows: list[tuple[str, Any]] = []
        for number, source in enumerate(sources):
            is_file = isinstance(source, str | Path)
            rows += _lines(Path(source)) if is_file else [(f"series {number}", np.asarray(source).ravel())]
        return TensorSplit(self._read(rows), None, [name for name, _ in rows])

    def labelled(self, source: str | Path) -> TensorSplit:
        """Load series with targets from a text file with the class first in each line, as in the UCR archive.

        Raises DataError as `examples` does, and for a class that is not in training.
        """
        assert isinstance(self.spec.target, Classes | Views), "targets of whole series"
        classes = self.spec.target.names
        rows = _lines(Path(source))
        problems = [
            Problem(name, f"{words[0]!r} is none of the classes {', '.join(classes)}")
            for name, words in rows
            if words[0] not in classes
        ]
        if problems:
            raise DataMismatchError(
                f"{source} has series of unknown classes:", problems, "The class stands first on its line."
            )
        inputs = self._read([(name, words[1:]) for name, words in rows])
        target = torch.tensor([classes.index(words[0]) for _, words in rows])
        return TensorSplit(inputs, target, [name for name, _ in rows])

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values that `from_json` accepts."""
        return {
            "kind": "series",
            "form": "signal",
            "spec": specs.to_json(self.spec),
            "mean": list(self.mean),
            "std": list(self.std),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SeriesPreprocessing:
        """Load an object written by `to_json`. Raises ValueError if a document that matches SCHEMA is inconsistent."""
        spec = specs.read_spec(data["spec"], SeriesSpec)
        return cls(spec, *specs.validate_scales(data["mean"], data["std"], spec.features))

    def _read(self, rows: Sequence[tuple[str, Any]]) -> Tensor:
        """Parse and standardise named rows of T·F numbers: (n, T, F)."""
        steps, features = self.spec.shape
        series: list[npt.NDArray[np.float64]] = []
        problems: list[Problem] = []
        for name, values in rows:
            try:
                numbers = np.array(values, dtype=np.float64)
            except ValueError as error:
                problems.append(Problem(name, str(error)))
                continue
            if numbers.size != steps * features:
                what = f"it has {numbers.size} numbers, and the model takes {steps} steps of {features}"
                problems.append(Problem(name, what))
            elif not np.isfinite(numbers).all():
                problems.append(Problem(name, "it has numbers that are not finite"))
            else:
                series.append(numbers.reshape(steps, features))
        if problems or not series:
            raise DataError("Series that cannot be read:" if problems else "No series was given.", problems)
        return self.prepare(np.stack(series))


def _lines(path: Path) -> list[tuple[str, list[str]]]:
    """Return the non-empty lines of a text file as words, each with its name."""
    try:
        lines = read_bytes(path).decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} could not be read as text: {error}.") from error
    words = [(f"{path}, line {n}", line.replace(",", " ").split()) for n, line in enumerate(lines, 1)]
    return [(name, values) for name, values in words if values]
