"""From a series to the windows that a forecaster takes: fitted on the training time, saved as JSON with the model.

z = (y − mean) / std,  y one variable over time; mean and standard deviation of what was measured in the training time
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ... import spec as specs
from ...errors import DataError, Problem
from ...settings import as_now
from ...spec import Horizon, SeriesSpec
from ..splits import Rows
from ..tables.forms import KEPT, Form
from ..tables.reading import TABLE_SUFFIXES, counted, read_table
from .columns import Columns
from .reading import Series, Values, read_series
from .times import Step
from .windows import WindowSplit, window_starts


@dataclass(frozen=True)
class ForecastPreprocessing:
    """How the steps of a series become windows (T, F): the variables to forecast first, those known in advance last."""

    spec: SeriesSpec
    columns: Columns
    mean: tuple[float, ...]  # of each variable, over what was measured in the training time
    std: tuple[float, ...]
    step: Step
    gaps: str = "error"  # what is done about missing steps and values: error or fill
    written: Form = KEPT  # how the table of training was, which decides what a new one leaves open

    @classmethod
    def fitted(
        cls, series: Series, rows: npt.NDArray[np.int64], history: int, horizon: int, season: int, gaps: str
    ) -> ForecastPreprocessing:
        """Fit it on these steps of a series, the training time. Raises DataError where a column has no value there."""
        columns, values = series.columns, np.where(series.observed[rows], series.values[rows], np.nan)
        there = (~np.isnan(values)).sum(0)
        empty = [c for c, count in zip(columns.names, there.tolist()) if not count]
        if empty:
            raise DataError(
                f"Column {', '.join(map(repr, empty))} of {series.name} has no value in the training time.",
                fix="Leave it out with ignore=COLUMN, or give a longer series.",
            )
        mean, std = np.nanmean(values, 0), np.nanstd(values, 0)
        # What is constant has a standard deviation of 0, or of what rounding leaves: it is moved to 0 and not scaled.
        std = np.where(std > 1e-12 * np.abs(mean), std, 1.0)
        count = len(columns.forecast)
        target = Horizon(
            horizon,
            columns.forecast,
            tuple(mean[:count].tolist()),
            tuple(std[:count].tolist()),
            season,
            _naive_errors(values[:, :count] / std[:count], season),
        )
        spec = SeriesSpec(history, len(columns.names), target, known_future=len(columns.known))
        return cls(spec, columns, tuple(mean.tolist()), tuple(std.tolist()), series.clock.step, gaps)

    @property
    def horizon(self) -> Horizon:
        """What is forecast."""
        assert isinstance(self.spec.target, Horizon)
        return self.spec.target

    def prepare(self, values: Values) -> Tensor:
        """Variables (T, F) to float32 of the same shape: mean 0 and standard deviation 1 in the training time."""
        return torch.from_numpy((values - np.array(self.mean)) / np.array(self.std)).float()

    def splits(self, series: Series, starts: Mapping[str, Rows], notes: Sequence[str] = ()) -> dict[str, WindowSplit]:
        """The windows of a series that begin their forecasts at these steps, by split; all are cut from one tensor."""
        values = self.prepare(series.values)  # (T, F)
        count = len(self.columns.forecast)
        targets = values[:, :count].clone()
        targets[torch.from_numpy(~series.observed[:, :count])] = torch.nan
        return {split: self._as_split(series, values, targets, chosen, notes) for split, chosen in starts.items()}

    def examples(self, sources: Sequence[Any]) -> WindowSplit:
        """One window for each file, without targets: the steps after its last one are to be forecast.

        Where columns are known in advance, rows at the end of the file that hold nothing in the columns to forecast
        are those steps. Raises DataError where a file has too few rows, other columns, or another step.
        """
        values: list[Tensor] = []
        starts: list[int] = []
        labels: list[str] = []
        notes: list[str] = []
        offset = 0
        for source in sources:
            series = self._read(source)
            self._reject_short(series)
            # Only what a forecast sees is kept, so that long files cost no memory.
            begin = series.length - self.spec.steps
            seen = series.values[begin : series.length + (self.horizon.steps if self.columns.known else 0)]
            values.append(self.prepare(seen))
            starts.append(offset + self.spec.steps)
            offset += len(seen)
            labels.append(f"{series.name}, from {series.clock.label(series.length)}")
            notes += series.notes
        if not values:
            raise DataError("No series was given.")
        return WindowSplit(
            torch.cat(values),
            None,
            torch.tensor(starts),
            self.spec.steps,
            self.horizon.steps,
            self.spec.known_future,
            name=labels.__getitem__,
            notes=notes,
        )

    def labelled(self, source: str | Path) -> WindowSplit:
        """Every window of another file, with targets. Raises DataError as `examples` does."""
        series = self._read(source)
        starts = window_starts(series, self.spec.steps, self.horizon.steps)
        if not len(starts):
            needed = self.spec.steps + self.horizon.steps
            raise DataError(
                f"{series.name} has {counted(series.length, 'step')}, and {needed:,} are needed: a history of "
                f"{self.spec.steps:,} and a horizon of {self.horizon.steps:,}, measured in full where they meet.",
                fix="Give a longer series.",
            )
        return self.splits(series, {"": starts}, series.notes)[""]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` gives an equal object back."""
        return {
            "kind": "series",
            "form": "forecast",
            "spec": specs.to_json(self.spec),
            "columns": self.columns.to_json(),
            "mean": list(self.mean),
            "std": list(self.std),
            "step": asdict(self.step),
            "gaps": self.gaps,
            "read": self.written.to_json(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ForecastPreprocessing:
        """The object that `to_json` wrote. Raises KeyError or TypeError where the document is not one."""
        spec = specs.read_as(data["spec"], SeriesSpec, Horizon)
        columns, step = Columns.from_json(data["columns"]), Step(**data["step"])
        written = Form.from_json(data.get("read"))
        return cls(spec, columns, tuple(data["mean"]), tuple(data["std"]), step, as_now(data)["gaps"], written)

    def _read(self, source: Any) -> Series:
        if not isinstance(source, str | Path):
            raise DataError(
                f"A forecast is made from a file of the series so far, not from {type(source).__name__}.",
                fix="Give the path of a .csv, .tsv or .parquet file with the columns that the model was trained with.",
            )
        path = Path(source).expanduser()
        if path.is_file() and path.suffix.lower() not in TABLE_SUFFIXES:
            raise DataError(
                f"{path} is no table: those end in {', '.join(TABLE_SUFFIXES)}.",
                fix="Give the series so far, with the columns that the model was trained with.",
            )
        return read_series(read_table(path, self.written), self.columns, self.gaps, self.step)

    def _reject_short(self, series: Series) -> None:
        """Raise DataError where the file has too few steps to be seen, or too few of the future."""
        if series.length < self.spec.steps:
            raise DataError(
                f"{series.name} has {counted(series.length, 'step')}, and a forecast is made from the last "
                f"{self.spec.steps:,}.",
                fix="Give more of the series.",
            )
        ahead = len(series.values) - series.length
        if self.columns.known and ahead < self.horizon.steps:
            raise DataError(
                f"{series.name} has {counted(ahead, 'row')} after the last one that holds "
                f"{', '.join(self.columns.forecast)}, and the forecast needs {self.horizon.steps:,}: "
                f"{', '.join(self.columns.known)} must be known for every step of it.",
                fix="Add rows at the end with their time and these columns, and leave the others empty.",
            )
        last = series.observed[series.length - 1, : len(self.columns.names) - len(self.columns.known)]
        if not last.all():
            absent = [c for c, there in zip(self.columns.names, last) if not there]
            where = f"{series.name}, {series.clock.label(series.length - 1)}"
            raise DataError(
                f"The last step of {series.name} is not complete:",
                [Problem(f"{where}, column {c}", "the value is missing") for c in absent],
                "A forecast begins right after a step at which everything was measured.",
            )

    def _as_split(
        self, series: Series, values: Tensor, targets: Tensor, starts: Rows, notes: Sequence[str]
    ) -> WindowSplit:
        def row(i: int) -> dict[str, str]:
            start = int(starts[i])
            before = {f"{c} before": f"{v:.6g}" for c, v in zip(self.columns.forecast, series.values[start - 1])}
            return {"seen from": series.clock.label(start - self.spec.steps), **before}

        return WindowSplit(
            values,
            targets,
            torch.from_numpy(starts),
            self.spec.steps,
            self.horizon.steps,
            self.spec.known_future,
            name=lambda i: f"from {series.clock.label(int(starts[i]))}",
            row=row,
            notes=notes,
        )


def _naive_errors(values: Values, season: int) -> tuple[float, ...]:
    """Of each column of (T, C) the mean |y_t − y_{t−season}| over what was measured: the scale of MASE. None where a
    column has no two such steps, or repeats itself exactly.

    R. J. Hyndman, A. B. Koehler, Another look at measures of forecast accuracy, International Journal of Forecasting
    22, 2006.
    """
    changes = np.abs(values[season:] - values[:-season])
    if np.isnan(changes).all(0).any():
        return ()
    errors = np.nanmean(changes, 0)
    return tuple(errors.tolist()) if (errors > 0).all() else ()
