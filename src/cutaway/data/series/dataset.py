"""Series data sets: read, split by time, scaled with statistics of the training time, and cut into windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from ...core.errors import SettingError
from ..build import DataSource, build_dataset
from ..dataset_base import DataSet
from ..findings import reject_fill
from ..modalities import reject_changed
from ..settings import DataSettings
from ..splits import Rows, remaining_fractions
from ..tables.delimited import Form
from ..tables.table_files import Table, format_count, read_table
from .column_roles import NUMBER, WITH_OFFSET, ColumnRoles, choose_columns
from .series_files import Series, SeriesWindows, keep_long_series, read_series, read_several
from .transforms import ForecastPreprocessing, covered_steps, split_by_time

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
        raise SettingError("mixup blends measured values, and not those known in advance: leave out one of them.")
    if columns.id:
        return _several_dataset(table, columns, origin, settings)
    reject_changed(settings, ("missing",), "is for several series, which id=COLUMN names")
    series = read_series(table, columns, settings.gaps, sort=borders is None)
    horizon = settings.horizon or HORIZON
    history = settings.lookback or HISTORIES * horizon
    starts = split_by_time(series, history, horizon, settings, borders)
    training_time = covered_steps(starts["train"], history, horizon)
    season = settings.season_length or series.clock.season
    if season > len(training_time) // 2 and settings.season_length:
        raise SettingError(
            f"season_length={season} is more than half of the training time, {len(training_time):,} steps: nothing is "
            "seen to repeat itself there."
        )
    repeats = season <= len(training_time) // 2
    preprocessing = ForecastPreprocessing.fitted(
        series, training_time, history, horizon, season if repeats else 1, settings.gaps
    )
    preprocessing = replace(preprocessing, written=table.form.as_default())
    notes = [
        *table.notes,
        *series.notes,
        *_column_note(table, series),
        *_window_notes(series, preprocessing, starts, settings),
    ]
    splits = preprocessing.splits(series, starts)
    return build_dataset(origin, settings, starts, preprocessing, splits, notes, _described(table, columns))


def _several_dataset(table: Table, columns: ColumnRoles, origin: DataSource, settings: DataSettings) -> DataSet:
    """Build a data set of several series, each split by time and scaled separately.

    Raises what `open_series` raises.
    """
    reject_fill(settings)
    found, unreadable = read_several(table, columns, settings.gaps, settings.missing)
    horizon = settings.horizon or HORIZON
    history = settings.lookback or HISTORIES * horizon
    needed = history + horizon * (1 + sum(fraction > 0 for fraction in remaining_fractions(settings)))
    found, left_out = keep_long_series(found, needed, table.title, settings.missing)
    each = [split_by_time(series, history, horizon, replace(settings, max_samples=None)) for series in found]
    training_time = [covered_steps(own["train"], history, horizon) for own in each]
    shortest = min(map(len, training_time)) // 2
    season = settings.season_length or found[0].clock.season
    if season > shortest and settings.season_length:
        raise SettingError(
            f"season_length={season} is more than half of the training time of some series, {2 * shortest:,} steps: "
            "nothing is seen to repeat itself there."
        )
    preprocessing = ForecastPreprocessing.fitted_to_each(
        found, training_time, history, horizon, season if season <= shortest else 1, settings.gaps
    )
    preprocessing = replace(preprocessing, written=table.form.as_default(), missing=settings.missing)
    cuts = {split: SeriesWindows.from_starts(found, [own[split] for own in each]) for split in each[0]}
    cuts["train"] = cuts["train"].last(settings.max_samples)
    clock, season = found[0].clock, preprocessing.horizon.season_length
    repeats = "the last value" if season == 1 else f"the last {season} steps"
    windows = [f"{split} {format_count(len(cut.starts), 'window')}" for split, cut in cuts.items()]
    notes = [
        *table.notes,
        f"{len(found):,} series, named by column {columns.id}, of {_format_range(list(map(len, found)))} "
        f"steps, one every {clock.words}. Forecast: {', '.join(columns.forecast)}."
        + (f" Seen up to the forecast as well: {', '.join(columns.past)}." if columns.past else "")
        + (f" Known in advance: {', '.join(columns.ahead)}." if columns.ahead else ""),
        f"A window is {history:,} steps of one series, and the {horizon:,} steps after them to forecast. For "
        f"comparison, a forecast repeats {repeats} of its series.",
        f"Each series is split by its own time, its last steps are the test: {'; '.join(windows)}. Each is "
        "standardised by mean and standard deviation of its own training time, and metrics are in such deviations"
        + ("; columns known in advance have one scale." if columns.ahead else "."),
        *unreadable,
        *left_out,
        *(note for series in found for note in series.notes),
    ]
    splits = preprocessing.splits(found, cuts)
    places = {split: cut.places for split, cut in cuts.items()}
    return build_dataset(origin, settings, places, preprocessing, splits, notes, _described(table, columns))


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
