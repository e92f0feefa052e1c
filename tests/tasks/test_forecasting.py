"""Forecasting: its loss and metrics by their definitions, and the simple forecasts that stand beside it."""

from __future__ import annotations

import dataclasses
import json
import math
import warnings

import numpy as np
import polars as pl
import pytest
import torch
import torch.nn.functional as F

from cutaway.core.errors import SettingError
from cutaway.core.spec import Horizon, SeriesSpec
from cutaway.data.series.transforms import WindowSplit
from cutaway.tasks.forecasting import (
    ALPHAS,
    Forecasting,
    Smoothing,
    fit_linear,
    fit_smoothing,
    seasonal_naive,
    simple_forecasts,
)
from cutaway.tasks.task import task_for

ONE = Horizon(3, ("load",), (50.0,), (4.0,), season_length=4)
TWO = Horizon(3, ("load", "wind"), (50.0, 2.0), (4.0, 0.5), season_length=4)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def split_of(values: torch.Tensor, history: int, horizon: int, columns: int = 1, known: int = 0) -> WindowSplit:
    """Every window of the series (T, F)."""
    starts = torch.arange(history, len(values) - horizon + 1)
    return WindowSplit(values, values[:, :columns].clone(), starts, history, horizon, known)


def targets(split: WindowSplit) -> torch.Tensor:
    assert split.target is not None
    return split.target


# --- loss and metrics ---------------------------------------------------------------------------------------------


def test_the_loss_is_torchs_mean() -> None:
    outputs, target = random(20, 6), random(20, 6, seed=1)
    for loss, reference in (("mse", F.mse_loss), ("mae", F.l1_loss)):
        task = Forecasting(TWO, loss)
        assert torch.allclose(task.loss(outputs, target) / task.loss_denominator(target), reference(outputs, target))
        each = reference(outputs, target, reduction="none").mean(1)
        assert torch.allclose(task.losses(outputs, target), each)
    with pytest.raises(SettingError, match="Invalid loss=huber for forecasts: must be one of mse, mae"):
        task_for(SeriesSpec(8, 1, ONE), "huber")


def test_what_was_not_measured_counts_for_nothing() -> None:
    outputs, target = random(20, 3).requires_grad_(), random(20, 3, seed=1)
    there = random(20, 3, seed=2) > -0.5
    there[:, 0] = True
    hidden = target.masked_fill(~there, torch.nan)
    task = Forecasting(ONE)
    mean = task.loss(outputs, hidden) / task.loss_denominator(hidden)
    assert torch.allclose(mean, (outputs - target).square()[there].mean())
    mean.backward()  # type: ignore[no-untyped-call]
    assert outputs.grad is not None
    assert outputs.grad.isfinite().all()
    assert (outputs.grad[~there] == 0).all()
    error = 4 * (outputs - target)[there].detach().numpy()
    metrics = task.metrics(outputs.detach(), hidden)
    assert metrics["rmse"].value == pytest.approx(np.sqrt(np.square(error).mean()))
    assert metrics["mae"].value == pytest.approx(np.abs(error).mean())
    assert task.fast_metrics(outputs.detach(), hidden)["rmse"] == pytest.approx(metrics["rmse"].value)


def test_metrics_are_in_the_columns_units_where_there_is_one_column() -> None:
    outputs, target = random(60, 3), random(60, 3, seed=1)
    one = Forecasting(ONE).metrics(outputs, target)
    assert one["rmse"].value == pytest.approx(4 * (outputs - target).square().mean().sqrt().item())
    assert one["loss"].value == pytest.approx((outputs - target).square().mean().item())
    assert one["rmse"].low < one["rmse"].value < one["rmse"].high
    outputs, target = random(60, 6), random(60, 6, seed=1)
    two = Forecasting(TWO).metrics(outputs, target)
    assert two["rmse"].value == pytest.approx((outputs - target).square().mean().sqrt().item())
    units = Forecasting(TWO).in_units(outputs)
    assert torch.allclose(units[:, 1, 1], outputs[:, 3] * 0.5 + 2)  # step 1 of wind
    assert torch.allclose(units[:, 2, 0], outputs[:, 4] * 4 + 50)


def test_mase_is_the_error_over_that_of_the_naive_forecast_in_training() -> None:
    values = random(200, 2)
    naive = (values[4:150] - values[:146]).abs().mean(0)
    test = split_of(values, 10, 3, columns=2)
    said = torch.zeros_like(targets(test))
    task = Forecasting(dataclasses.replace(TWO, naive=tuple(naive.tolist())))
    metrics = task.metrics(said, targets(test))
    by_column = targets(test).view(-1, 3, 2).abs().mean((0, 1))
    assert metrics["mase"].value == pytest.approx((by_column / naive).mean().item())
    assert "mase" not in Forecasting(TWO).metrics(said, targets(test))


def test_words_and_units() -> None:
    task = Forecasting(TWO)
    outputs = torch.tensor([[0.0, 0.0, 1.0, 2.0, -1.0, 4.0]])
    assert task.predictions(outputs) == [
        {"load +1": 50.0, "load +2": 54.0, "load +3": 46.0, "wind +1": 2.0, "wind +2": 3.0, "wind +3": 4.0}
    ]
    target = outputs.clone()
    target[0, 1::2] = torch.nan
    (mistake,) = task.example_results(outputs, target)
    assert mistake["predicted"] == "load 50 (46 to 54), wind 3 (2 to 4)"
    assert mistake["actual"] == "load 50 (46 to 54)"
    nothing = Forecasting(Horizon(1, ("visits",), (19.3,), (21.7,)))
    outputs = ((torch.zeros(1, 1, dtype=torch.float64) - 19.3) / 21.7).float()  # not quite 0 again in its units
    assert nothing.example_results(outputs, outputs)[0]["actual"] == "visits 0 (0 to 0)"
    base = Forecasting(ONE).baseline(torch.ones(5, 3), torch.zeros(7, 3))
    assert base == {"name": "mean baseline", "value": 4.0}


def test_a_horizon_asks_for_this_task() -> None:
    task = task_for(SeriesSpec(10, 1, ONE))
    assert isinstance(task, Forecasting)
    assert (task.default_monitor, task.loss_name) == ("rmse", "mse")


# --- simple forecasts ---------------------------------------------------------------------------------------------


def test_the_seasonal_naive_forecast_repeats_the_last_season() -> None:
    values = random(40, 2)
    split = split_of(values, 6, 7, columns=2)
    said = seasonal_naive(split, 2, 3).view(len(split), 7, 2)
    for i in (0, 5, len(split) - 1):
        start = int(split.starts[i])
        for h in range(7):
            assert torch.equal(said[i, h], values[start - 3 + h % 3])
    assert torch.equal(seasonal_naive(split, 1, 1), values[split.starts - 1, :1].expand(-1, 7))
    early = seasonal_naive(split_of(values, 2, 3), 1, 5)  # with fewer steps before it than a season, it repeats those
    assert torch.equal(early[0], values[[0, 1, 0], 0])


def test_a_repeating_series_is_forecast_without_error() -> None:
    values = torch.sin(torch.arange(300) * 2 * torch.pi / 12)[:, None]
    split = split_of(values.float(), 24, 6)
    for rule in simple_forecasts(split, split, 12)[1:]:
        assert (rule.outputs - targets(split)).abs().max() < 1e-3, rule.name


@pytest.mark.parametrize("season", [1, 4])
def test_exponential_smoothing_is_polars_weighted_mean(season: int) -> None:
    values = random(50, 2).cumsum(0)
    values[20, 0] = torch.nan  # a missing step has no weight
    split = split_of(values, 6, 6, columns=2)
    said = Smoothing(torch.tensor([0.3, 0.8], dtype=torch.float64), season)(split).view(len(split), 6, 2)
    for i in (0, 9, len(split) - 1):
        start = int(split.starts[i])
        for column, alpha in enumerate((0.3, 0.8)):
            for h in range(6):
                period = min(season, start)
                past = values[(start + h % period) % period : start : period, column].tolist()
                known = pl.Series([None if math.isnan(x) else x for x in past], dtype=pl.Float64)
                expected = known.ewm_mean(alpha=alpha, adjust=True, ignore_nulls=False).forward_fill()[-1]
                assert said[i, h, column].item() == pytest.approx(expected, abs=1e-5)


def test_exponential_smoothing_chooses_the_alpha_with_the_smallest_error() -> None:
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(400, 1, generator=generator)
    level, walk = split_of(noise, 20, 1), split_of(noise.cumsum(0), 20, 1)
    chosen = [fit_smoothing(split, 1) for split in (level, walk)]
    assert chosen[0] is not None
    assert chosen[1] is not None
    assert chosen[0].alpha.item() <= 0.1  # the mean is the best forecast of noise
    assert chosen[1].alpha.item() >= 0.8  # the last value is the best forecast of a random walk
    errors = {a: (Smoothing(torch.tensor([a]).double(), 1)(walk) - targets(walk)).square().mean() for a in ALPHAS}
    assert errors[chosen[1].alpha.item()] == min(errors.values())


def test_the_linear_model_is_least_squares() -> None:
    train, test = split_of(random(300, 3), 5, 2, columns=2, known=1), split_of(random(60, 3, seed=1), 5, 2, 2, known=1)
    fitted = fit_linear(train)
    assert fitted is not None
    (batch,) = train.batches([torch.arange(len(train))])
    (new,) = test.batches([torch.arange(len(test))])
    for c in range(2):
        x, y = (
            torch.cat([b.inputs[0][:, :, c], b.inputs[1].flatten(1), torch.ones(len(b.target), 1)], dim=1).double()
            for b in (batch, new)
        )
        weights = torch.linalg.lstsq(x, batch.target[:, c::2].double()).solution
        torch.testing.assert_close(fitted(test)[:, c::2].double(), y @ weights, atol=1e-3, rtol=0)
    assert fitted.words == "a linear model of the last 5 steps and of the known future columns"


def test_the_linear_model_of_several_columns_and_a_long_lookback_is_found_with_several_threads() -> None:
    train = split_of(random(600, 3), 240, 2, columns=3)
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            fitted = fit_linear(train)
            assert fitted is not None
            found.append(fitted.weights)
    finally:
        torch.set_num_threads(threads)
    torch.testing.assert_close(found[1], found[0], atol=1e-9, rtol=0)


def test_the_linear_model_learns_from_whole_windows_and_training_alone() -> None:
    values = random(200, 1)
    train, test = split_of(values, 5, 2), split_of(random(60, 1, seed=1), 5, 2)
    whole = fit_linear(train)
    train.targets = values.clone()
    train.targets[50] = torch.nan
    gap = fit_linear(train)
    assert whole is not None
    assert gap is not None
    assert gap(test).isfinite().all()
    assert not torch.equal(gap.weights, whole.weights)
    train.targets[:] = torch.nan
    assert fit_linear(train) is None
    assert [rule.key for rule in simple_forecasts(train, test, 3)] == ["last", "season"]


def test_the_model_stands_beside_the_simple_forecasts() -> None:
    hours = torch.arange(400)
    values = (torch.sin(hours * 2 * torch.pi / 4)[:, None] + 0.3 * random(400, 1)).float()
    train, test = split_of(values[:300], 8, 3), split_of(values[292:], 8, 3)
    task = Forecasting(dataclasses.replace(ONE, naive=(0.5,)))
    found = task.beside(targets(test) * 0.9, train, test)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert [b["key"] for b in found["baselines"]] == ["last", "season", "smoothing", "linear"]
    assert found["baseline"]["value"] == pytest.approx(min(b["rmse"]["value"] for b in found["baselines"]))
    assert found["baseline"]["name"] == found["forecast"]["best"]
    model = task.metrics(targets(test) * 0.9, targets(test))["rmse"].value
    for b in found["baselines"]:
        assert b["difference"]["value"] == pytest.approx(model - b["rmse"]["value"])
        assert b["difference"]["high"] < 0  # a model this good is surely better
        assert b["mase"]["value"] > 0
    forecast = found["forecast"]
    assert (forecast["columns"], forecast["horizon"], forecast["unit"]) == (["load"], 3, "load")
    squares = np.square(forecast["steps"][0]["rmse"])
    assert np.sqrt(squares.mean()) == pytest.approx(model, rel=1e-4)
    window = forecast["examples"][-1]
    assert window["actual"] == pytest.approx((values[-3:, 0] * 4 + 50).tolist(), rel=1e-5)
    assert window["seen"] == pytest.approx((values[-11:-3, 0] * 4 + 50).tolist(), rel=1e-5)
    assert window["model"] == pytest.approx((values[-3:, 0] * 0.9 * 4 + 50).tolist(), rel=1e-5)
    itself = task.beside(simple_forecasts(train, test, 4)[1].outputs, train, test)["baselines"][1]["difference"]
    assert itself == {"value": 0.0, "low": 0.0, "high": 0.0}


@pytest.mark.parametrize("count", [20, 300])
def test_what_was_never_measured_has_no_interval_and_no_warning(count: int) -> None:
    task = Forecasting(dataclasses.replace(TWO, naive=(0.5, 0.5)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = task.metrics(torch.zeros(count, 6), torch.full((count, 6), torch.nan))
    for metric in found.values():
        assert np.isnan([metric.value, metric.low, metric.high]).all()


def test_blocks_hold_the_windows_of_all_series_of_a_time() -> None:
    """Of three series whose errors are the same, windows say no more than those of one: as many blocks, and the same
    interval. Windows stand in the order of time, those of all series of a time beside each other."""
    one = random(200, 3, seed=3)
    three = dataclasses.replace(ONE, naive=(0.5,), mean=(0.0,), scale=(1.0,), series=("a", "b", "c"))
    alone = dataclasses.replace(three, series=())
    own = Forecasting(alone).metrics(one, torch.zeros_like(one))
    all_of_them = one.repeat_interleave(3, 0)
    found = Forecasting(three).metrics(all_of_them, torch.zeros_like(all_of_them))
    assert {key: m.note for key, m in found.items()} == dict.fromkeys(("rmse", "mae", "mase", "loss"), "")
    for key, metric in own.items():
        assert found[key].value == pytest.approx(metric.value)
        assert (found[key].low, found[key].high) == pytest.approx((metric.low, metric.high), rel=0.05)
    few = Forecasting(three).metrics(all_of_them[:135], torch.zeros(135, 3))
    assert few["rmse"].note == "no interval: 135 windows; 144 are needed because neighbors overlap"


def test_differences_of_forecasts_are_of_the_same_blocks() -> None:
    """What both share is left out: the interval of the difference is narrower than either's."""
    task = Forecasting(dataclasses.replace(ONE, mean=(0.0,), scale=(1.0,)))
    hard = random(300, 1, seed=4).repeat(1, 3) * 3
    other = hard * 1.1 + 0.1 * random(300, 3, seed=5)
    difference = task._difference(hard, other, torch.zeros(300, 3))
    rmse, theirs = (task.metrics(said, torch.zeros(300, 3))["rmse"] for said in (hard, other))
    assert difference.value == pytest.approx(rmse.value - theirs.value)
    assert difference.low < difference.value < difference.high < 0
    assert difference.high - difference.low < 0.5 * (rmse.high - rmse.low)
