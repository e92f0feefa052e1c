"""From a series to the windows that a forecaster takes: fitted on the training time, saved as JSON with the model.

z = (y − mean) / std,  y one variable over time; mean and standard deviation of what was measured in the training time
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ... import spec as specs
from ...errors import DataError, Problem, listed
from ...schema import NUMBER, schema_of
from ...settings import as_now, build
from ...spec import Horizon, SeriesSpec
from ..objects.frames import as_frame
from ..settings import DataSettings
from ..splits import Rows
from ..tables import forms
from ..tables.forms import KEPT, Form
from ..tables.reading import TABLE_SUFFIXES, Table, counted, frame_table, read_table
from .columns import Columns
from .reading import Series, Values, with_steps_ahead
from .several import Cut, Scale, Several, read_several, scale_of
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
    missing: str = "error"  # what is done about one of several series that cannot be used: error or drop
    written: Form = KEPT  # how the table of training was, which decides what a new one leaves open
    scales: Mapping[str, Scale] = field(default_factory=dict)  # of several series, by name: those of each
    windows: ClassVar[type[WindowSplit]] = WindowSplit
    SCHEMA: ClassVar[Mapping[str, Any]] = {
        "spec": specs.SCHEMA,
        "columns": schema_of(Columns, words=dict, id=str | None, time=str | None),
        "mean": [NUMBER],
        "std": [NUMBER],
        "step": schema_of(Step),
        "gaps": str,
        "missing?": str,
        "read?": forms.SCHEMA,
        "scales?": {...: {"mean": [NUMBER], "std": [NUMBER]}},
    }

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
        mean, std = scale_of(values)
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
        """Fit it on these steps of several series, each by itself; what is known in advance has one scale."""
        each = [cls.fitted(series, own, history, horizon, season, gaps) for series, own in zip(found, rows)]
        own = len(found[0].columns.names) - len(found[0].columns.ahead)
        together = [np.where(s.observed[r, own:], s.values[r, own:], np.nan) for s, r in zip(found, rows)]
        known_mean, known_std = (tuple(part.tolist()) for part in scale_of(np.concatenate(together)))
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
        """What is forecast."""
        assert isinstance(self.spec.target, Horizon)
        return self.spec.target

    def prepare(self, values: Values, scale: Scale | None = None) -> Tensor:
        """Variables (T, F) to float32 of the same shape: mean 0 and standard deviation 1 in the training time, or by
        the `scale` of one of several series."""
        return _standardised(values, scale or (self.mean, self.std))

    def splits(
        self, series: Series | Sequence[Series], starts: Mapping[str, Rows | Cut], notes: Sequence[str] = ()
    ) -> dict[str, WindowSplit]:
        """The windows of a series that begin their forecasts at these steps, or cuts of several, by split; all are cut
        from one tensor."""
        found = [series] if isinstance(series, Series) else series
        scales = [self._scale(one) for one in found]
        values = torch.cat([self.prepare(one.values, scale) for one, scale in zip(found, scales)])  # (T, F)
        count = len(self.columns.forecast)
        targets = torch.cat([_standardised(one.values[:, :count], scale) for one, scale in zip(found, scales)])
        targets[torch.from_numpy(np.concatenate([~one.observed[:, :count] for one in found]))] = torch.nan
        return {
            split: self._as_split(
                chosen if isinstance(chosen, Cut) else Cut(found, np.zeros_like(chosen), chosen), values, targets, notes
            )
            for split, chosen in starts.items()
        }

    def examples(self, sources: Sequence[Any]) -> WindowSplit:
        """One window for each file, or for each series of it, without targets: the steps after its last one are to be
        forecast.

        Where columns are known in advance, rows at the end of the file that hold nothing in the columns to forecast
        are those steps. Raises DataError where a file has too few rows, other columns, or another step; of several
        series those that cannot be used are left out and noted, if training left out such series (missing=drop).
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
                    series = with_steps_ahead(series, self.horizon.steps)
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
            raise DataError("No series was given.")
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
        """Every window of another file, with targets. Raises DataError as `examples` does."""
        found, _ = self._read(source)
        starts = [window_starts(series, self.spec.steps, self.horizon.steps) for series in found]
        if not any(len(own) for own in starts):
            longest = max(found, key=len)
            needed = self.spec.steps + self.horizon.steps
            raise DataError(
                f"{longest.name} has {counted(longest.length, 'step')}, and {needed:,} are needed: a history of "
                f"{self.spec.steps:,} and a horizon of {self.horizon.steps:,}, measured in full where they meet.",
                fix="Give a longer series.",
            )
        notes = [note for series in found for note in series.notes] + self._about_new(found)
        if empty := [series.own for series, own in zip(found, starts) if not len(own)]:
            notes.append(f"Without a window, as they are too short: {listed(empty, 'and')}.")
        return self.splits(found, {"": Cut.of(found, starts)}, notes)[""]

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
            "missing": self.missing,
            "read": self.written.to_json(),
            "scales": {name: {"mean": list(mean), "std": list(std)} for name, (mean, std) in self.scales.items()},
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ForecastPreprocessing:
        """The object that `to_json` wrote. Raises ValueError where the document, which is as SCHEMA says, cannot be."""
        spec = specs.read_as(data["spec"], SeriesSpec, Horizon)
        columns, step = Columns.from_json(data["columns"]), Step.from_json(data["step"])
        written, count, gaps = Form.from_json(data.get("read")), len(columns.names), as_now(data)["gaps"]
        missing = data.get("missing") or "error"
        build(DataSettings, {"gaps": gaps, "missing": missing})
        assert isinstance(spec.target, Horizon)
        if count != spec.features or columns.forecast != spec.target.columns:
            raise ValueError(f"its columns {listed(columns.names, 'and')} are not those of its spec")
        scales = {
            name: specs.scales(one["mean"], one["std"], count) for name, one in (data.get("scales") or {}).items()
        }
        mean, std = specs.scales(data["mean"], data["std"], count)
        return cls(spec, columns, mean, std, step, gaps, missing, written, scales)

    def _scale(self, series: Series) -> Scale:
        """The mean and the standard deviation of each variable of a series: those of its training time. One of several
        that training did not know has those of what is given of it."""
        if not self.columns.id:
            return self.mean, self.std
        if series.own in self.scales:
            return self.scales[series.own]
        own = len(self.columns.names) - len(self.columns.ahead)
        mean, std = scale_of(series.values[: series.length, :own])
        return tuple(mean.tolist()) + self.mean[own:], tuple(std.tolist()) + self.std[own:]

    def _about_new(self, found: Sequence[Series]) -> list[str]:
        """A sentence on the series that training did not know, where there are some."""
        new = [series.own for series in found if self.columns.id and series.own not in self.scales]
        if not new:
            return []
        return [
            f"Not among the series of training, and standardised by what is given of them: {listed(new[:9], 'and')}"
            + (f" and {len(new) - 9:,} more." if len(new) > 9 else ".")
        ]

    def _several(
        self, found: Sequence[Series], which: npt.NDArray[np.int64], begins: npt.NDArray[np.int64]
    ) -> Several | None:
        """Which series each window is of, where the file holds several."""
        if not self.columns.id:
            return None
        scales = torch.tensor([self._scale(series) for series in found], dtype=torch.float64)  # (S, 2, F)
        mean, std = scales.unbind(1)
        names, columns = tuple(series.own for series in found), len(self.columns.forecast)
        return Several(names, torch.from_numpy(which), torch.from_numpy(begins), mean, std, columns)

    def _read(
        self, source: Any, missing: str = "error", check: Callable[[Series], None] = lambda series: None
    ) -> tuple[list[Series], list[str]]:
        frame = None if isinstance(source, Table) else as_frame(source)
        table = source if frame is None else frame_table(frame, form=self.written)
        if isinstance(table, Table):
            return read_several(table, self.columns, self.gaps, missing, self.step, check)
        if not isinstance(source, str | Path):
            raise DataError(
                f"A forecast is made from the series so far, a file or a data frame, not from {type(source).__name__}.",
                fix="Give the path of a .csv, .tsv or .parquet file with the columns that the model was trained with.",
            )
        path = Path(source).expanduser()
        if path.is_file() and path.suffix.lower() not in TABLE_SUFFIXES:
            raise DataError(
                f"{path} is no table: those end in {', '.join(TABLE_SUFFIXES)}.",
                fix="Give the series so far, with the columns that the model was trained with.",
            )
        return read_several(read_table(path, self.written), self.columns, self.gaps, missing, self.step, check)

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
        last = series.observed[series.length - 1, : len(self.columns.names) - len(self.columns.ahead)]
        if not last.all():
            absent = [c for c, there in zip(self.columns.names, last) if not there]
            where = f"{series.name}, {series.clock.label(series.length - 1)}"
            raise DataError(
                f"The last step of {series.name} is not complete:",
                [Problem(f"{where}, column {c}", "the value is missing") for c in absent],
                "A forecast begins right after a step at which everything was measured.",
            )

    def _as_split(self, cut: Cut, values: Tensor, targets: Tensor, notes: Sequence[str]) -> WindowSplit:
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


def _standardised(values: Values, scale: Scale) -> Tensor:
    """Values (T, n) of the first n variables of a `scale`: float32, less their means, over their deviations."""
    mean, std = (np.array(part)[: values.shape[1]] for part in scale)
    return torch.from_numpy((values - mean) / std).float()


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
