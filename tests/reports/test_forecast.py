"""The views of a forecast."""

from __future__ import annotations

import json
from typing import Any

import torch

from cutaway.core.spec import Horizon
from cutaway.data.series.transforms import WindowSplit
from cutaway.tasks.forecasting import Forecasting
from cutaway.views.run.task_results import error_by_step, example_forecasts, forecast_views


def forecast(columns: int = 1, horizon: int = 5) -> dict[str, Any]:
    """What the task says of a model that is right but for a little."""
    names = ("load", "wind")[:columns]
    target = Horizon(horizon, names, (50.0, 2.0)[:columns], (4.0, 0.5)[:columns], season_length=6)
    values = torch.randn(200, columns, generator=torch.Generator().manual_seed(0))
    train, test = (
        WindowSplit(values, values.clone(), torch.arange(*ends), 12, horizon, name=lambda i: f"from row {i}")
        for ends in ((12, 120), (120, 180))
    )
    assert test.target is not None
    found: dict[str, Any] = Forecasting(target).beside(test.target * 0.9, train, test)["forecast"]
    return found


def plain(text: str) -> str:
    return text.replace("\u202f", " ")


def test_views_have_words_numbers_and_drawings() -> None:
    for columns in (1, 2):
        views = forecast_views(forecast(columns))
        assert [view["id"] for view in views] == ["steps", "forecasts"]
        for view in views:
            assert view["title"]
            assert view["says"].endswith(".")
            assert view["summary"].endswith(".")
            assert all(len(row) == len(view["table"]["columns"]) for row in view["table"]["rows"])
            for drawing in view["drawings"]:
                assert drawing["kind"] == "lines"
                places = [[x for x, _ in series["points"]] for series in drawing["series"]]
                assert all(p == places[0] for p in places)  # curves stand over a common x
        assert json.loads(json.dumps(views, allow_nan=False)) == views


def test_each_step_has_its_error_beside_the_simple_forecasts() -> None:
    about = forecast()
    view = error_by_step(about)
    assert [c["name"] for c in view["table"]["columns"]] == [
        "step ahead",
        "model",
        "repeating the last value",
        "repeating the last 6 steps",
        "exponential smoothing",
        "a linear model of the last 12 steps",
    ]
    assert [row[0] for row in view["table"]["rows"]] == [1, 2, 3, 4, 5]
    assert [row[1] for row in view["table"]["rows"]] == about["steps"][0]["rmse"]
    assert "It is below repeating the last value at 5 of 5 steps." in plain(view["summary"])
    assert "units of load" in view["says"]
    assert "standard deviations" in error_by_step(forecast(2))["says"]


def test_windows_show_what_was_seen_what_came_and_what_was_said() -> None:
    about = forecast()
    view = example_forecasts(about)
    assert len(view["drawings"]) == len(about["examples"]) == 4
    window, drawing = about["examples"][0], view["drawings"][0]
    actual, model, best = (series["points"] for series in drawing["series"])
    assert [y for _, y in actual] == window["seen"] + window["actual"]
    assert [x for x, _ in actual] == list(range(-11, 6))
    assert [y for x, y in model if x > 0] == window["model"]
    assert [y for x, y in best if x > 0] == window["best"]
    assert [y for x, y in model if x < 0] == [None] * 11
    assert drawing["mark"] == {"x": 0, "label": "forecast"}


def test_steps_that_were_not_measured_are_left_open() -> None:
    about = forecast()
    for curve in about["steps"]:
        curve["rmse"][2] = None
    assert "at 4 of 4 steps" in plain(error_by_step(about)["summary"])
    about["examples"][0]["actual"] = [None] * 5
    assert "was not evaluated" in example_forecasts(about)["summary"]
    for curve in about["steps"]:
        curve["rmse"] = [None] * 5
    assert error_by_step(about)["summary"] == "No step was evaluated."
    assert [view["id"] for view in forecast_views({**about, "examples": []})] == ["steps"]
