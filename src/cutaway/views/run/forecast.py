"""Views of a forecast: the error by step ahead, compared with simple forecasts, and some windows."""

from __future__ import annotations

from typing import Any

from ...core.errors import join
from ...draw import charts
from ...draw.description import Drawing, View, table
from ...draw.number_format import count, number, plural

# The colour of each curve: those of the splits, which are not drawn here.
COLOURS = {"model": "test", "last": "", "season": "train", "linear": "val", "actual": ""}
PARTS = (1 / 4, 1 / 2, 1)  # fractions of the horizon at which the error is reported
SHORT = {"model": "model", "last": "last value", "season": "last season", "linear": "linear"}


def forecast_views(forecast: dict[str, Any]) -> list[View]:
    """Return the error by step ahead, the error by series, and some forecasts, as far as available."""
    views = [error_by_step(forecast)]
    if forecast.get("series"):
        views.append(error_by_series(forecast))
    if forecast["examples"]:
        views.append(example_forecasts(forecast))
    return views


def error_by_step(forecast: dict[str, Any]) -> View:
    """Return the RMSE of the model and of the simple forecasts at each step ahead."""
    curves = forecast["steps"]
    horizon, unit = forecast["horizon"], forecast["unit"]
    return View(
        id="steps",
        title="Error by step ahead",
        says=f"RMSE in {_unit(forecast)}, at each step ahead. The model is useful where its curve is below those "
        "of the simple forecasts.",
        summary=_summary(curves),
        table=table(
            {"step ahead": "count", **{curve["name"]: "number" for curve in curves}},
            [[h + 1, *(curve["rmse"][h] for curve in curves)] for h in range(horizon)],
        ),
        drawings=[
            _lines(
                f"RMSE of {unit}" if unit in forecast["columns"] else "RMSE, standardised",
                "step ahead",
                {curve["key"]: [[h + 1, v] for h, v in enumerate(curve["rmse"])] for curve in curves},
                zero=True,
            )
        ],
    )


def error_by_series(forecast: dict[str, Any]) -> View:
    """Return the RMSE of each of several series, worst first."""
    found, names = forecast["series"], {curve["key"]: curve["name"] for curve in forecast["steps"]}
    worst, model = found[0], [one["rmse"]["model"] for one in found]
    beaten = [one for one in found if _best_rival(one["rmse"]) < one["rmse"]["model"]]
    said = f"The worst is {worst['name']}: RMSE {number(worst['rmse']['model'])}."
    if len(found) > 1:
        said += f" The median series has {number(sorted(model)[len(model) // 2])}, the best, {found[-1]['name']}, "
        said += f"{number(model[-1])}."
    said += f" A simple forecast is better at {count(len(beaten))} of {count(len(found))} series."
    return View(
        id="series",
        title="Error by series",
        says=f"RMSE in {_unit(forecast)}, the worst series first, so that series of different sizes can be compared.",
        summary=said,
        table=table(
            {"series": "text", "windows": "count", **dict.fromkeys(names.values(), "number")},
            [[one["name"], one["count"], *(one["rmse"].get(key) for key in names)] for one in found],
        ),
        drawings=[
            charts.lines(
                "RMSE, standardised",
                "series, worst first",
                [
                    {
                        "name": SHORT.get(key, key),
                        "split": COLOURS.get(key, ""),
                        "points": [[k + 1, one["rmse"].get(key)] for k, one in enumerate(found)],
                    }
                    for key in names
                ],
                zero=True,
            )
        ]
        if len(found) > 1
        else [],
    )


def _best_rival(rmse: dict[str, Any]) -> float:
    """Return the smallest error of the simple forecasts."""
    return min(float(value) for key, value in rmse.items() if key != "model")


def example_forecasts(forecast: dict[str, Any]) -> View:
    """Return some windows: input, actual values, and the forecasts of the model and of the best simple forecast."""
    column, best = forecast["columns"][0], forecast["best"]
    key = next(curve["key"] for curve in forecast["steps"] if curve["name"] == best)
    rows = []
    for window in forecast["examples"]:
        ahead = zip(window["actual"], window["model"], window["best"])
        rows += [[window["name"], h + 1, *values] for h, values in enumerate(ahead)]
    return View(
        id="forecasts",
        title="Sample forecasts",
        says=f"{plural(len(forecast['examples']), 'window')} of the split, evenly spaced in time. Step 0 is the last "
        f"observed one; after it are the actual values, the forecast, and {best}.",
        summary=" ".join(_largest_error(window, column) for window in forecast["examples"]),
        table=table(
            {"window": "text", "step ahead": "count", "actual": "number", "model": "number", best: "number"}, rows
        ),
        drawings=[_window(window, column, key) for window in forecast["examples"]],
    )


def _summary(curves: list[dict[str, Any]]) -> str:
    """Return the model's error at the first and the last step, and the number of steps at which it beats each rival."""
    model, others = curves[0], curves[1:]
    known = [v for v in model["rmse"] if v is not None]
    if not known:
        return "No step was evaluated."
    said = f"The model's error goes from {number(known[0])} one step ahead to {number(known[-1])} at the last step."
    horizon = len(model["rmse"])
    places = sorted({max(1, round(horizon * part)) for part in PARTS})
    if len(places) == len(PARTS):
        errors = [number(model["rmse"][place - 1]) for place in places]
        said += (
            f" After a quarter, half and all of the horizon, {join([count(p) for p in places], 'and')} steps ahead, "
            f"it is {join(errors, 'and')}."
        )
    for other in others:
        pairs = [(a, b) for a, b in zip(model["rmse"], other["rmse"]) if a is not None and b is not None]
        better = sum(a < b for a, b in pairs)
        said += f" It is below {other['name']} at {count(better)} of {plural(len(pairs), 'step')}."
    return said


def _largest_error(window: dict[str, Any], column: str) -> str:
    """Return the largest error of the model in a window."""
    pairs = [(a, m) for a, m in zip(window["actual"], window["model"]) if a is not None]
    if not pairs:
        return f"The forecast {window['name']} was not evaluated."
    actual, said = max(pairs, key=lambda pair: abs(pair[1] - pair[0]))
    return f"Largest error of the forecast {window['name']}: {column} is {number(actual)}, the forecast {number(said)}."


def _window(window: dict[str, Any], column: str, key: str) -> Drawing:
    """Return one window as curves over a common axis; step 0 is the last input."""
    seen, horizon = window["seen"], len(window["actual"])
    steps = range(1 - len(seen), horizon + 1)
    last = seen[-1]
    curves = {
        "actual": [*seen, *window["actual"]],
        "model": [None] * (len(seen) - 1) + [last, *window["model"]],
        key: [None] * (len(seen) - 1) + [last, *window["best"]],
    }
    drawing = _lines(
        f"{column}, {window['name']}", "step", {k: [[x, y] for x, y in zip(steps, c)] for k, c in curves.items()}
    )
    drawing["series"][-1]["split"] = COLOURS[
        "linear"
    ]  # the same colour for every best forecast, because there is only one more
    return {**drawing, "mark": {"x": 0, "label": "forecast"}}


def _lines(title: str, x: str, curves: dict[str, list[list[Any]]], zero: bool = False) -> Drawing:
    return charts.lines(
        title,
        x,
        [
            {"name": SHORT.get(key, key), "split": COLOURS.get(key, ""), "points": points}
            for key, points in curves.items()
        ],
        zero=zero,
    )


def _unit(forecast: dict[str, Any]) -> str:
    return f"the units of {forecast['unit']}" if forecast["unit"] in forecast["columns"] else str(forecast["unit"])
