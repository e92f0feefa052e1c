"""Baseline forecasts: repeating the last value, repeating the last season, and a linear model.

Seasonal naive: ŷ_{t+h} = y_{t+h−m⌈h/m⌉}, m the season (R. J. Hyndman, G. Athanasopoulos, Forecasting: principles and
practice, 2021, section 5.2). Linear: each step ahead is a weighted sum of the last steps of the same column, by least
squares with a little ridge, as in A. Zeng et al., Are transformers effective for time series forecasting?, AAAI 2023
<https://arxiv.org/abs/2205.13504>, who find such models hard to beat. It does not use the other columns: on ETTh1,
where they add hundreds of inputs, they increased its error on the test split by a quarter.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..data.series.transforms import WindowSplit

MOST_WINDOWS = 20_000  # largest number of windows for fitting the linear model; more are subsampled evenly
MOST_INPUTS = 1_000  # largest number of its inputs; longer histories are truncated to the last steps
RIDGE = 1e-4  # added to the mean square of each input, which is about 1
CHUNK = 2_048  # windows processed at a time


@dataclass(frozen=True)
class SimpleForecast:
    """The forecasts of a simple rule for every window of a split."""

    key: str  # last, season or linear
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
    fitted = fit_linear(train)
    if fitted is not None:
        found.append(SimpleForecast("linear", fitted.words, fitted(split)))
    return found


def seasonal_naive(split: WindowSplit, columns: int, season: int) -> Tensor:
    """Return the last season before each forecast, repeated, (n, H·C); a shorter history is repeated as a whole."""
    ahead = torch.arange(split.horizon)
    period = split.seen_before.clamp(max=season)[:, None]  # (n, 1)
    at = split.starts[:, None] - period + ahead % period  # (n, H)
    return split.values[:, :columns][at].flatten(1)  # (n, H, C) to (n, H·C)


@dataclass(frozen=True)
class Linear:
    """A linear model for each forecast column."""

    weights: Tensor  # (C, D, H) float64; the last input is 1
    steps: int  # number of past steps of the column that it uses
    known: bool  # whether it uses inputs that are known in advance too

    @property
    def words(self) -> str:
        """The name of the model in reports."""
        ahead = " and of what is known in advance" if self.known else ""
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
