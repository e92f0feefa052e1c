"""Forecasting: the next steps of a series, its metrics, and baseline forecasts.

The baselines repeat the last value or the last season, or are exponential smoothing or a linear model.

Seasonal naive: ŷ_{t+h} = y_{t+h−m⌈h/m⌉}, m the season (R. J. Hyndman, G. Athanasopoulos, Forecasting: principles and
practice, 2021, section 5.2). Linear: each step ahead is a weighted sum of the last steps of the same column, by least
squares with a little ridge, as in A. Zeng et al., Are transformers effective for time series forecasting?, AAAI 2023
<https://arxiv.org/abs/2205.13504>, who find such models hard to beat. It does not use the other columns: on ETTh1,
where they add hundreds of inputs, they increased its error on the test split by a quarter.

Outputs are (N, H·C) on the standardized scale, step by step. Metrics are in the column's own units where a single
column is forecast. For several columns with different units, they are in standard deviations of the training period.
Several series each have their own scale, and their windows are ordered by time, so that a block of windows has those of
all series of a period. A NaN target was not measured and does not count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core.spec import Horizon
from ..data.series.transforms import WindowSplit
from ..statistics.intervals import Metric, symmetric, window_metric

MOST_WINDOWS = 20_000  # largest number of windows for fitting the linear model; more are subsampled evenly
MOST_INPUTS = 1_000  # largest number of its inputs; longer histories are truncated to the last steps
RIDGE = 1e-4  # added to the mean square of each input, which is about 1
ALPHAS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # from which exponential smoothing chooses
MOST_TERMS = 60  # steps or seasons that it weighs
SMOOTHED_WINDOWS = 500  # training windows by which it chooses
CHUNK = 2_048  # windows processed at a time


@dataclass(frozen=True)
class SimpleForecast:
    """The forecasts of a simple rule for every window of a split."""

    key: str  # last, season, smoothing or linear
    name: str
    outputs: Tensor  # (n, H·C) standardized, as those of a model


def simple_forecasts(train: WindowSplit, split: WindowSplit, season: int) -> list[SimpleForecast]:
    """Return the forecasts of all rules for a split; the linear model is fitted on the training split only."""
    assert train.targets is not None
    columns = train.targets.shape[1]
    found = [SimpleForecast("last", "repeating the last value", seasonal_naive(split, columns, 1))]
    if season > 1:
        name = f"repeating the last {season} steps"
        found.append(SimpleForecast("season", name, seasonal_naive(split, columns, season)))
    smoothed = fit_smoothing(train, season)
    if smoothed is not None:
        found.append(SimpleForecast("smoothing", smoothed.words, smoothed(split)))
    fitted = fit_linear(train)
    if fitted is not None:
        found.append(SimpleForecast("linear", fitted.words, fitted(split)))
    return found


def seasonal_naive(split: WindowSplit, columns: int, season: int) -> Tensor:
    """Return the last season before each forecast, repeated, (n, H·C); a shorter history is repeated as a whole."""
    ahead = torch.arange(split.horizon)
    period = split.num_previous_steps.clamp(max=season)[:, None]  # (n, 1)
    at = split.starts[:, None] - period + ahead % period  # (n, H)
    return split.values[:, :columns][at].flatten(1)  # (n, H, C) to (n, H·C)


@dataclass(frozen=True)
class Smoothing:
    """Exponential smoothing of the steps of the same phase of a season; simple exponential smoothing for season 1."""

    alpha: Tensor  # (C,) float64, smoothing parameter of each column
    season: int

    @property
    def words(self) -> str:
        """The name of the model in reports."""
        return (
            f"exponential smoothing over seasons of {self.season} steps" if self.season > 1 else "exponential smoothing"
        )

    def __call__(self, split: WindowSplit) -> Tensor:
        """Return its forecasts of every window, (n, H·C)."""
        pieces = torch.split(torch.arange(len(split)), CHUNK)
        found = [self.forecast(split, index, self.alpha[:, None])[:, 0].float() for index in pieces]
        return torch.cat(found) if found else torch.empty(0, split.horizon * len(self.alpha))

    def forecast(self, split: WindowSplit, index: Tensor, alphas: Tensor) -> Tensor:
        """Return the forecasts of these windows by each α of `alphas` (C, A), (N, A, H·C) float64.

        Missing steps have no weight; without any step the forecast is 0, the training mean.
        """
        ahead, starts = torch.arange(split.horizon), split.starts[index]
        begins = starts - split.num_previous_steps[index]  # (N,), of the series
        period = (starts - begins).clamp(1, self.season)  # (N,)
        total = torch.zeros(len(index), *alphas.T.shape, split.horizon, dtype=torch.float64)  # (N, A, C, H)
        weights = torch.zeros_like(total)
        for back in range(1, MOST_TERMS + 1):
            at = starts[:, None] - back * period[:, None] + ahead % period[:, None]  # (N, H)
            there = at >= begins[:, None]  # (N, H)
            if not there.any():
                break
            x = split.values[:, : len(alphas)][at.clamp(min=0)].double().mT[:, None]  # (N, 1, C, H)
            w = ((1 - alphas) ** (back - 1)).T[None, :, :, None] * (there[:, None, None] & ~x.isnan())
            total += w * x.nan_to_num()
            weights += w
        return (total / weights.clamp(min=1e-12)).mT.flatten(2)  # (N, A, H, C) to (N, A, H·C)


def fit_smoothing(train: WindowSplit, season: int) -> Smoothing | None:
    """Return exponential smoothing, of all steps or of each phase of the season, with the smallest training error.

    α is chosen for each column. The weight of the k-th last step is proportional to (1 − α)^(k − 1): R. J. Hyndman, G.
    Athanasopoulos, Forecasting: principles and practice, 2021, section 8.1. The result is None if a column has no
    measured target.
    """
    assert train.targets is not None
    assert train.target is not None
    columns = train.targets.shape[1]
    alphas = torch.tensor(ALPHAS, dtype=torch.float64).expand(columns, -1)  # (C, A)
    index = torch.linspace(0, len(train) - 1, min(len(train), SMOOTHED_WINDOWS)).round().long()
    best: tuple[float, Smoothing] | None = None
    for period in dict.fromkeys((1, season)):
        said = Smoothing(alphas[:, 0], period).forecast(train, index, alphas)
        error = (said - train.target[index][:, None].double()).square().view(*said.shape[:2], -1, columns)
        of_column = error.nanmean((0, 2))  # (A, C)
        if of_column.isnan().any():
            return None
        least, which = of_column.min(0)
        if best is None or least.mean().item() < best[0]:
            best = least.mean().item(), Smoothing(alphas[0][which], period)
    return best[1] if best else None


@dataclass(frozen=True)
class Linear:
    """A linear model for each forecast column."""

    weights: Tensor  # (C, D, H) float64; the last input is 1
    steps: int  # number of past steps of the column that it uses
    known: bool  # whether it uses inputs that are known in advance too

    @property
    def words(self) -> str:
        """The name of the model in reports."""
        ahead = " and of the known future columns" if self.known else ""
        return f"a linear model of the last {self.steps} steps{ahead}"

    def __call__(self, split: WindowSplit) -> Tensor:
        """Return its forecasts of every window, (n, H·C)."""
        columns = len(self.weights)
        found = []
        for index in torch.split(torch.arange(len(split)), CHUNK):
            inputs, _ = _model_inputs(split, index, columns, self.steps, self.known)
            found.append((inputs @ self.weights).permute(1, 2, 0).flatten(1).float())  # (C, N, H) to (N, H·C)
        return torch.cat(found)


def fit_linear(train: WindowSplit) -> Linear | None:
    """Fit the weights W of each column that minimize Σ |x W − y|² + λ |W|², from fully measured windows.

    It returns None where there is no such window.
    """
    assert train.targets is not None
    columns, ahead = train.targets.shape[1], train.horizon * train.known
    known = 0 < ahead < MOST_INPUTS
    steps = min(train.history, MOST_INPUTS - ahead * known)
    width = steps + ahead * known + 1
    gram = torch.zeros(columns, width, width, dtype=torch.float64)
    moments = torch.zeros(columns, width, train.horizon, dtype=torch.float64)
    evenly = torch.linspace(0, len(train) - 1, min(len(train), MOST_WINDOWS)).round().long()
    count = 0
    for index in torch.split(evenly, CHUNK):
        x, y = _model_inputs(train, index, columns, steps, known)
        whole = ~y.isnan().any(2).any(0)  # (N,)
        x, y = x[:, whole], y[:, whole]
        gram += x.mT @ x
        moments += x.mT @ y
        count += x.shape[1]
    if not count:
        return None
    ridge = torch.full((width,), RIDGE * count, dtype=torch.float64)
    ridge[-1] = 1e-9 * count  # (almost) no penalty on the intercept, which stays unique if another input is constant
    # Cholesky, because the matrix is positive definite, and a batched LU of large matrices fails with MKL and threads.
    weights = torch.cholesky_solve(moments, torch.linalg.cholesky(gram + ridge.diag()))
    return Linear(weights, steps, known)


def _model_inputs(split: WindowSplit, index: Tensor, columns: int, steps: int, known: bool) -> tuple[Tensor, Tensor]:
    """Return the inputs of the linear models for these windows, (C, N, D), and their targets, (C, N, H) or empty."""
    ((x, *future), target) = next(split.batches([index]))
    own = x[:, -steps:, :columns].permute(2, 0, 1)  # (N, T, C) to (C, N, T)
    shown = [own, *(f.flatten(1).expand(columns, -1, -1) for f in future if known)]
    inputs = torch.cat([*shown, torch.ones(columns, len(index), 1)], dim=2).double()
    if not target.numel():
        return inputs, target
    return inputs, target.view(-1, split.horizon, columns).permute(2, 0, 1).double()  # (N, H·C) to (C, N, H)


SHOWN_WINDOWS = 4
SHOWN_COLUMNS = 3
SHOWN_HORIZONS = 3  # horizons of history in a drawing
SHOWN_STEPS = 200  # steps of history and horizon in a drawing, unless the horizon alone is longer

Values = NDArray[np.float64]


class Forecasting:
    """Squared error; RMSE, MAE and MASE, with those of simple forecasts for comparison."""

    NOUN = "forecasts"
    name = "forecasting"
    default_monitor = "rmse"
    monitors: tuple[str, ...] = ("rmse", "mae", "loss")
    LOSSES = ("mse", "mae")
    OPTIONS = ("loss",)

    def __init__(self, target: Horizon, loss: str = "mse") -> None:
        self.target = target
        self.loss_name = loss

    @property
    def unit(self) -> float:
        """The size of a standardized error of 1 in metrics: in units of a single column, or 1 for several."""
        return self.target.scale[0] if len(self.target.columns) == 1 else 1.0

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the loss summed over the batch, (), on the standardized scale: of each example, Σ over its values /
        H·C.
        """
        return self._errors(outputs, target).sum() / target.shape[1]

    def loss_denominator(self, target: Tensor) -> float:
        """Return the number of examples in the batch; a partly measured example counts by its measured fraction."""
        measured = (~target.isnan()).sum().item()
        return measured / target.shape[1]

    def losses(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the mean loss of each example over its measured values, (N,), on the standardized scale."""
        return self._errors(outputs, target).sum(1) / (~target.isnan()).sum(1)

    def in_units(self, standardised: Tensor) -> Tensor:
        """Convert values (N, H·C) on the standardized scale to the columns' units, (N, H, C) float64."""
        steps = standardised.double().view(-1, self.target.steps, len(self.target.columns))
        return steps * steps.new_tensor(self.target.scale) + steps.new_tensor(self.target.mean)

    def fast_metrics(self, outputs: Tensor, target: Tensor) -> dict[str, float]:
        """Return the root mean squared error."""
        return {"rmse": (outputs.double() - target.double()).square().nanmean().sqrt().item() * self.unit}

    def metrics(self, outputs: Tensor, target: Tensor) -> dict[str, Metric]:
        """Return RMSE, MAE, loss and, where the naive errors of the training period are known, MASE.

        Neighboring windows overlap and have correlated errors, so the units of intervals are blocks of windows. The
        intervals cover variation within the split's period, not other periods.
        """
        return self._metrics(outputs, target)

    def details(self, outputs: Tensor, target: Tensor) -> dict[str, Any]:
        """Return the error of each step ahead."""
        steps = [{"key": "model", "name": "model", "rmse": self._rmse_per_step(outputs, target)}]
        return {"forecast": {**self._about(), "steps": steps, "examples": []}}

    def baseline(self, train_target: Tensor, target: Tensor) -> dict[str, Any]:
        """Return the RMSE of the training mean."""
        said = train_target.double().nanmean() if train_target.numel() else torch.tensor(0.0)
        return {"name": "mean baseline", "value": self.fast_metrics(said.expand_as(target), target)["rmse"]}

    def beside(self, outputs: Tensor, train: WindowSplit, split: WindowSplit) -> dict[str, Any]:
        """Compare the model with simple forecasts of the same split; return parts of the document evaluation.json.

        `baselines` has their metrics, and the difference in RMSE to the model with an interval from common resamples.
        `baseline` is the best of them. `forecast` has the error of each step ahead, and windows.
        """
        target = split.target
        assert target is not None
        rivals = simple_forecasts(train, split, self.target.season_length)
        baselines = []
        for rival in rivals:
            metrics = self._metrics(rival.outputs, target)
            difference = self._difference(outputs, rival.outputs, target)
            shown = {key: m.to_json() for key, m in {**metrics, "difference": difference}.items() if key != "loss"}
            baselines.append({"key": rival.key, "name": rival.name, **shown})
        best = min(rivals, key=lambda rival: self.fast_metrics(rival.outputs, target)["rmse"])
        said = [("model", "model", outputs), *((r.key, r.name, r.outputs) for r in rivals)]
        steps = [{"key": key, "name": name, "rmse": self._rmse_per_step(o, target)} for key, name, o in said]
        examples = self._windows(outputs, best.outputs, split)
        by_series = {"series": self._per_series(said, split)} if split.several else {}
        return {
            "baselines": baselines,
            "baseline": {"name": best.name, "value": self.fast_metrics(best.outputs, target)["rmse"]},
            "forecast": {**self._about(), "steps": steps, "best": best.name, "examples": examples, **by_series},
        }

    def predictions(self, outputs: Tensor) -> list[dict[str, Any]]:
        """Return the forecast of each example in the columns' units: `OT +1`, `OT +2`, … column by column."""
        names = [f"{column} +{h + 1}" for column in self.target.columns for h in range(self.target.steps)]
        columns = self.in_units(outputs).transpose(1, 2).flatten(1)  # (N, H, C) to (N, C·H)
        return [dict(zip(names, row)) for row in columns.tolist()]

    def example_results(self, outputs: Tensor, target: Tensor) -> list[dict[str, Any]]:
        """Return actual and predicted values of each window: mean and range of each column over the horizon."""
        rows = zip(
            self._describe_windows(outputs), self._describe_windows(target), self.losses(outputs, target).tolist()
        )
        return [
            {"actual": actual, "predicted": said, "confidence": None, "loss": loss, "wrong": True}
            for said, actual, loss in rows
        ]

    def _errors(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the loss of every value, (N, H·C); 0 without a gradient where nothing was measured."""
        measured = ~target.isnan()
        error = torch.where(measured, outputs - target.nan_to_num().to(outputs.dtype), 0.0)
        return error.square() if self.loss_name == "mse" else error.abs()

    def _about(self) -> dict[str, Any]:
        """Return the columns, the horizon, the season and the unit of metrics."""
        columns, several = list(self.target.columns), bool(self.target.series)
        unit = columns[0] if len(columns) == 1 else "standard deviations of the training time"
        if several:
            unit = "standard deviations of the training time of each series"
        return {"columns": columns, "horizon": self.target.steps, "season": self.target.season_length, "unit": unit}

    def _metrics(self, outputs: Tensor, target: Tensor) -> dict[str, Metric]:
        """Return RMSE, MAE and, with a naive forecast, MASE, each with its interval."""
        error, there = self._step_errors(outputs, target)
        columns = error.shape[2]
        overlap = self.overlap
        square, absolute, count = np.square(error).sum((1, 2)), np.abs(error).sum((1, 2)), there.sum((1, 2))
        squares, absolutes = np.stack([square, count], 1), np.stack([absolute, count], 1)
        mean_square = window_metric(squares, overlap, _quotient)
        mean_absolute = window_metric(absolutes, overlap, _quotient)
        metrics = {
            "rmse": window_metric(squares, overlap, lambda sums: self.unit * np.sqrt(_quotient(sums))),
            "mae": mean_absolute.map(lambda x: self.unit * x),
        }
        if self.target.naive:
            naive = np.array(self.target.naive)

            def mase(sums: Values) -> Values:
                found: Values = (sums[:, :columns] / sums[:, columns:] / naive).mean(1)
                return found

            metrics["mase"] = window_metric(np.concatenate([np.abs(error).sum(1), there.sum(1)], 1), overlap, mase)
        return metrics | {"loss": mean_square if self.loss_name == "mse" else mean_absolute}

    def _difference(self, outputs: Tensor, other: Tensor, target: Tensor) -> Metric:
        """Return the RMSE minus that of other outputs, on the same blocks: below 0 where the first are better."""
        sums = []
        for said in (outputs, other):
            error, there = self._step_errors(said, target)
            sums += [np.square(error).sum((1, 2)), there.sum((1, 2))]

        def apart(sums: Values) -> Values:
            return self.unit * (np.sqrt(_quotient(sums[:, :2])) - np.sqrt(_quotient(sums[:, 2:])))

        return window_metric(np.stack(sums, 1), self.overlap, apart, symmetric)

    @property
    def overlap(self) -> int:
        """The number of windows that begin within one horizon, over all series."""
        return self.target.steps * max(1, len(self.target.series))

    def _per_series(self, said: list[tuple[str, str, Tensor]], split: WindowSplit) -> list[dict[str, Any]]:
        """Return the windows of each series with the RMSE of the model and the simple forecasts, worst series first."""
        several, target, found = split.several, split.target, []
        assert several is not None
        assert target is not None
        for k, name in enumerate(several.names):
            own = several.which == k
            if not own.any():
                continue
            squares = {key: (o[own].double() - target[own].double()).square() for key, _, o in said}
            figures = {key: _short(math.sqrt(square.nanmean().item())) for key, square in squares.items()}
            found.append({"name": name, "count": int(own.sum()), "rmse": figures})
        return sorted(found, key=lambda one: -(one["rmse"]["model"] or 0.0))

    def _step_errors(self, outputs: Tensor, target: Tensor) -> tuple[Values, Values]:
        """Return standardized errors (N, H, C), 0 where nothing was measured, and a mask of measured values."""
        shape = (-1, self.target.steps, len(self.target.columns))
        error = (outputs.double() - target.double()).cpu().numpy().reshape(shape)
        there = ~np.isnan(error)
        return np.where(there, error, 0.0), there.astype(np.float64)

    def _rmse_per_step(self, outputs: Tensor, target: Tensor) -> list[float | None]:
        """Return the RMSE of each step ahead; None where nothing was measured."""
        error, there = self._step_errors(outputs, target)
        squares, counts = np.square(error).sum((0, 2)), there.sum((0, 2))
        return [_short(self.unit * np.sqrt(s / c)) if c else None for s, c in zip(squares, counts)]

    def _windows(self, outputs: Tensor, best: Tensor, split: WindowSplit) -> list[dict[str, Any]]:
        """Return a few windows, evenly spaced in time, in the first column's units: history, actual values and
        forecasts.
        """
        target, horizon = split.target, self.target.steps
        assert target is not None
        chosen = torch.linspace(0, len(split) - 1, min(SHOWN_WINDOWS, len(split))).round().long()
        back = min(split.history, max(SHOWN_HORIZONS * horizon, 1), max(SHOWN_STEPS - horizon, horizon))
        (batch,) = split.batches([chosen])
        columns = len(self.target.columns)
        seen = split.inverse_transform(batch.inputs[0][:, -back:, :columns].flatten(1), chosen).double()
        seen = seen.view(len(chosen), back, columns)[:, :, 0] * self.target.scale[0] + self.target.mean[0]  # (N, back)
        said = {"actual": target[chosen], "model": outputs[chosen], "best": best[chosen]}
        said = {key: split.inverse_transform(values.cpu(), chosen) for key, values in said.items()}
        ahead = {key: self.in_units(values)[:, :, 0].tolist() for key, values in said.items()}
        digits = _digits(self.target.scale[0])
        return [
            {
                "name": split.name(i),
                "seen": [_short(round(v, digits)) for v in row],
                **{key: [_short(round(v, digits)) for v in rows[k]] for key, rows in ahead.items()},
            }
            for k, (i, row) in enumerate(zip(chosen.tolist(), seen.tolist()))
        ]

    def _describe_windows(self, standardised: Tensor) -> list[str]:
        """Return each window as text, with at most three columns: OT 12.3 (10.1 to 14.2)."""
        words = []
        for steps in self.in_units(standardised).cpu().numpy():  # (H, C)
            columns = [
                f"{name} {_format_value(np.nanmean(values), scale)} ({_format_value(np.nanmin(values), scale)} to "
                f"{_format_value(np.nanmax(values), scale)})"
                for name, values, scale in zip(self.target.columns[:SHOWN_COLUMNS], steps.T, self.target.scale)
                if not np.isnan(values).all()
            ]
            words.append(", ".join(columns) + (", …" if len(self.target.columns) > SHOWN_COLUMNS else ""))
        return words


def _quotient(sums: Values) -> Values:
    """Divide sums of errors by counts: (R, 2) to (R,)."""
    found: Values = sums[:, 0] / sums[:, 1]
    return found


def _digits(scale: float) -> int:
    """Return the number of decimals of a value in its own units that float32 has for standardized values."""
    return 5 - math.floor(math.log10(scale))


def _format_value(value: float, scale: float) -> str:
    """Format a value; rounding errors and −0 become 0."""
    return f"{round(float(value), _digits(scale)) + 0.0:.4g}".replace("-", "−")


def _short(value: float) -> float | None:
    """Round to six significant digits for drawings; return None for values that are not finite."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
