"""Series data sets: read, split by time, scaled with statistics of the training time, and cut into windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from ...core.errors import IncompatibleSettingError
from ..build import DatasetBuilder, DataSource
from ..dataset_base import DataSet
from ..findings import reject_fill
from ..modalities import reject_changed
from ..settings import DataSettings
from ..splits import Rows, remaining_fractions
from ..tables.delimited import Form
from ..tables.table_files import Table, format_count, read_table
from .column_roles import NUMBER, WITH_OFFSET, ColumnRoles, choose_columns
from .series_files import Series, SeriesWindows, keep_long_series, read_series, read_several
from .transforms import ForecastPreprocessing, WindowSplit, covered_steps, split_by_time

HORIZON = 24  # default, in steps
HISTORIES = 4  # default lookback in horizons


def open_series(path: Path, settings: DataSettings) -> DataSet:
    """Load the series in a .csv, .tsv or .parquet file for forecasting.

    Raises FileError, DataError (with every bad line in `problems`), UnknownName or SettingError.
    """
    return series_dataset(read_table(path, Form.from_settings(settings)), DataSource.of_file(path), settings)


def series_dataset(
    table: Table, origin: DataSource, settings: DataSettings, borders: Sequence[int] | None = None
) -> DataSet:
    """Build a data set from the series in a table.

    `borders` are the steps at which train, val and test end; they replace the split fractions. Raises what
    `open_series` raises.
    """
    columns = choose_columns(table, settings)
    if columns.ahead and settings.mixup:
        raise IncompatibleSettingError(
            "mixup blends measured values, and not those known in advance: leave out one of them."
        )
    if columns.id:
        return SeveralSeriesBuilder(table, columns, origin, settings).build()
    reject_changed(settings, ("missing",), "is for several series, which id=COLUMN names")
    return SeriesBuilder(table, columns, origin, settings, borders).build()


class ForecastBuilder(DatasetBuilder[ForecastPreprocessing, WindowSplit]):
    """The steps that one and several series share."""

    several = ""  # in messages

    def __init__(self, table: Table, columns: ColumnRoles, origin: DataSource, settings: DataSettings) -> None:
        super().__init__(origin, settings)
        self.table, self.roles = table, columns
        self.horizon = settings.horizon or HORIZON
        self.history = settings.lookback or HISTORIES * self.horizon

    def season(self, usual: int, steps: int) -> int:
        """Return the season of naive forecasts, 1 if `steps` of training time are too few.

        Raises SettingError if that is the season of the settings.
        """
        season = self.settings.season_length or usual
        if season > steps // 2 and self.settings.season_length:
            raise IncompatibleSettingError(
                f"season_length={season} is more than half of the training time{self.several}, {steps:,} steps: "
                "nothing is seen to repeat itself there."
            )
        return season if season <= steps // 2 else 1

    def columns(self) -> list[dict[str, str]]:
        """Return the role of each column."""
        return _described(self.table, self.roles)


class SeriesBuilder(ForecastBuilder):
    """The steps from one series of several variables to its data set."""

    def __init__(
        self,
        table: Table,
        columns: ColumnRoles,
        origin: DataSource,
        settings: DataSettings,
        borders: Sequence[int] | None,
    ) -> None:
        super().__init__(table, columns, origin, settings)
        self.series = read_series(table, columns, settings.gaps, sort=borders is None)
        self.borders = borders

    def split(self) -> dict[str, Rows]:
        """Split by time: the numbers are the steps at which forecasts start."""
        return split_by_time(self.series, self.history, self.horizon, self.settings, self.borders)

    def fit(self) -> ForecastPreprocessing:
        """Fit the scale on the training time."""
        time = covered_steps(self.indices["train"], self.history, self.horizon)
        season = self.season(self.series.clock.season, len(time))
        fitted = ForecastPreprocessing.fitted(self.series, time, self.history, self.horizon, season, self.settings.gaps)
        return replace(fitted, written=self.table.form.as_default())

    def encode_splits(self) -> dict[str, WindowSplit]:
        """Return the windows of all splits, cut from one tensor."""
        return self.preprocessing.splits(self.series, self.indices)

    def notes(self) -> list[str]:
        """Return notes on columns and windows."""
        series = self.series
        windows = _window_notes(series, self.preprocessing, self.indices, self.settings)
        return [*self.table.notes, *series.notes, *_column_note(self.table, series), *windows]


class SeveralSeriesBuilder(ForecastBuilder):
    """The steps from several series, each split by time and scaled separately, to their data set."""

    several = " of some series"

    def __init__(self, table: Table, columns: ColumnRoles, origin: DataSource, settings: DataSettings) -> None:
        super().__init__(table, columns, origin, settings)
        reject_fill(settings)
        found, self.unreadable = read_several(table, columns, settings.gaps, settings.missing)
        needed = self.history + self.horizon * (1 + sum(fraction > 0 for fraction in remaining_fractions(settings)))
        self.series, self.left_out = keep_long_series(found, needed, table.title, settings.missing)

    def split(self) -> dict[str, Rows]:
        """Split each series by time: the numbers are those of windows among all steps."""
        settings = replace(self.settings, max_samples=None)
        each = [split_by_time(series, self.history, self.horizon, settings) for series in self.series]
        self.training_time = [covered_steps(own["train"], self.history, self.horizon) for own in each]
        self.windows = {
            split: SeriesWindows.from_starts(self.series, [own[split] for own in each]) for split in each[0]
        }
        self.windows["train"] = self.windows["train"].last(self.settings.max_samples)
        return {split: cut.places for split, cut in self.windows.items()}

    def fit(self) -> ForecastPreprocessing:
        """Fit a scale for each series on its training time."""
        steps = 2 * (min(map(len, self.training_time)) // 2)
        season = self.season(self.series[0].clock.season, steps)
        fitted = ForecastPreprocessing.fitted_to_each(
            self.series, self.training_time, self.history, self.horizon, season, self.settings.gaps
        )
        return replace(fitted, written=self.table.form.as_default(), missing=self.settings.missing)

    def encode_splits(self) -> dict[str, WindowSplit]:
        """Return the windows of all splits, cut from one tensor."""
        return self.preprocessing.splits(self.series, self.windows)

    def notes(self) -> list[str]:
        """Return notes on series, windows and series that were left out."""
        roles, found = self.roles, self.series
        clock, season = found[0].clock, self.preprocessing.horizon.season_length
        repeats = "the last value" if season == 1 else f"the last {season} steps"
        windows = [f"{split} {format_count(len(cut.starts), 'window')}" for split, cut in self.windows.items()]
        return [
            *self.table.notes,
            f"{len(found):,} series, named by column {roles.id}, of {_format_range(list(map(len, found)))} "
            f"steps, one every {clock.words}. Forecast: {', '.join(roles.forecast)}."
            + (f" Seen up to the forecast as well: {', '.join(roles.past)}." if roles.past else "")
            + (f" Known in advance: {', '.join(roles.ahead)}." if roles.ahead else ""),
            f"A window is {self.history:,} steps of one series, and the {self.horizon:,} steps after them to forecast. "
            f"For comparison, a forecast repeats {repeats} of its series.",
            f"Each series is split by its own time, its last steps are the test: {'; '.join(windows)}. Each is "
            "standardised by mean and standard deviation of its own training time, and metrics are in such deviations"
            + ("; columns known in advance have one scale." if roles.ahead else "."),
            *self.unreadable,
            *self.left_out,
            *(note for series in found for note in series.notes),
        ]


def _format_range(counts: list[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _column_note(table: Table, series: Series) -> list[str]:
    """Return a note on the roles of the columns and the step between rows."""
    columns, clock = series.columns, series.clock
    time = f"column {columns.time}" if columns.time else "no column of times: the rows are counted"
    parts = [f"Forecast: {', '.join(columns.forecast)}."]
    if columns.past:
        parts.append(f"Seen up to the forecast as well: {', '.join(columns.past)}.")
    if columns.ahead:
        parts.append(f"Known in advance: {', '.join(columns.ahead)}.")
    parts.append(
        f"Time: {time}, {clock.label(0)} to {clock.label(series.length - 1)}"
        + (f", one row every {clock.words}." if columns.time else ".")
        + (" Times are those of UTC." if columns.written == WITH_OFFSET else "")
    )
    ahead = len(series.values) - series.length
    if ahead:
        parts.append(
            f"The last {ahead:,} rows of {table.title} have no values to forecast, only columns known in advance."
        )
    return [" ".join(parts)]


def _window_notes(
    series: Series, preprocessing: ForecastPreprocessing, starts: Mapping[str, Rows], settings: DataSettings
) -> list[str]:
    """Return notes on the windows, the time span of each split, and excluded windows."""
    history, horizon, clock = preprocessing.spec.steps, preprocessing.horizon.steps, series.clock
    season = preprocessing.horizon.season_length
    repeats = "the last value" if season == 1 else f"the last {season} steps, a season"
    ends = {split: (clock.label(int(c[0])), clock.label(int(c[-1]) + horizon - 1)) for split, c in starts.items()}
    spans = [f"{split} {a} to {b} ({format_count(len(starts[split]), 'window')})" for split, (a, b) in ends.items()]
    notes = [
        f"A window is {history:,} steps, and the {horizon:,} steps after them to forecast. For comparison, a forecast "
        f"repeats {repeats}.",
        f"Split by the time of the forecast: {'; '.join(spans)}. The context of a forecast may reach back into the "
        "split before. Mean and standard deviation are those of the training time.",
    ]
    left_out = sum(int(chosen[-1]) - int(chosen[0]) + 1 - len(chosen) for chosen in starts.values())
    if left_out:
        notes.append(
            f"Left out: {format_count(left_out, 'window')} that would begin right after a value that was filled in, or "
            "have nothing measured to forecast."
        )
    if settings.max_samples is not None:
        notes.append(
            f"max_samples={settings.max_samples} keeps the last windows of the training split, those nearest to the "
            "next."
        )
    if settings.split_seed:
        notes.append("A series is split by time, never at random: split_seed changes nothing.")
    if not settings.season_length and season != clock.season:
        notes.append(
            f"The season of {clock.season:,} steps that the calendar has is more than half of the training time: "
            "for comparison, a forecast repeats the last value instead."
        )
    flat = np.ptp(series.values[covered_steps(starts["train"], history, horizon)], axis=0) == 0
    if flat.any():
        constant = ", ".join(c for c, is_flat in zip(series.columns.names, flat) if is_flat)
        notes.append(f"Constant in the training time, so that nothing can be learned from it: {constant}.")
    return notes


def _described(table: Table, columns: ColumnRoles) -> list[dict[str, str]]:
    """Describe each column of the file: name, type, role, missing cells, range."""
    roles = dict.fromkeys(columns.forecast, "forecast")
    roles |= dict.fromkeys(columns.past, "seen up to the forecast") | dict.fromkeys(columns.known, "known in advance")
    if columns.time is not None:
        roles[columns.time] = "time"
    if columns.id is not None:
        roles[columns.id] = "id of the series"
    described = []
    for name in table.columns:
        cells = table.text(name)
        present = cells.drop_nulls()
        kind = "number"
        if name == columns.time:
            kind = "number" if columns.written == NUMBER else "date"
        elif name in columns.words:
            kind = "yes/no"
        elif name == columns.id:
            kind = "category"
        example = ", ".join(present.head(1))
        if kind == "number" and name in roles:
            values = present.cast(pl.Float64, strict=False).drop_nulls().to_numpy()
            example = f"{values.min():.6g} … {values.max():.6g}"
        elif kind == "date":
            example = f"{present[0]} … {present[-1]}"
        described.append(
            {
                "name": name,
                "type": kind if name in roles else "",
                "role": roles.get(name, "left out: ignore"),
                "missing": f"{cells.null_count():,}",
                "example": example,
            }
        )
    return described
