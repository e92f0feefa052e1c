"""Views of the results of single tasks.

Object detection, segmentation, speech recognition, link prediction, regression, forecasting, and continual learning.
"""

from __future__ import annotations

import base64
import io
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ...core.errors import join
from ...core.metric_names import metric
from ...data.images.segmentation import palette
from ...draw import charts
from ...draw.description import Drawing, View, table
from ...draw.number_format import UNKNOWN, count, number, percent, plural, signed
from ...tasks.transcription import ABSENT, align_words
from ..message_passing import layout_nodes

METRICS = ("map", "map_50")


def per_class(boxes: dict[str, Any], split: str) -> View:
    """Return the average precision of each class, lowest first."""
    found = [c for c in boxes["per_class"] if c["map"] is not None]
    order = sorted(found, key=lambda c: c["map"]) + [c for c in boxes["per_class"] if c["map"] is None]
    names = [metric(key)[0].replace("mAP", "AP") for key in METRICS]
    drawing = charts.rows(
        "Average precision of each class",
        [{"name": name, "format": "fraction", "mark": "dot", "split": split, "domain": [0, 1]} for name in names],
        [
            {
                "label": c["name"],
                "note": count(c["count"]),
                "cells": [{"value": c[key]} for key in METRICS],
                "tip": [f"{c['name']}, {plural(c['count'], 'object')}"],
            }
            for c in order
        ],
    )
    summary = "No class has an object in this split."
    if found:
        low, high = order[0], found[[c["map"] for c in found].index(max(c["map"] for c in found))]
        summary = f"It is lowest for {low['name']}, {percent(low['map'])}, and highest for {high['name']}, "
        summary += f"{percent(high['map'])}."
    return View(
        id="classes",
        title="Metrics by class",
        says="Boxes are matched to the actual boxes of their class, the most confident first; average precision is the "
        "mean precision over all levels of recall, at best 1. AP@.5 requires an overlap (IoU) of one half, AP@[.5:.95] "
        "is the mean over ten thresholds, up to 95\u202f%.",
        summary=summary,
        table=table(
            {"class": "text", "objects": "count", **dict.fromkeys(names, "fraction")},
            [[c["name"], c["count"], *(c[key] for key in METRICS)] for c in order],
        ),
        drawings=[drawing],
    )


MOST_CLASSES = 100  # most classes in a matrix
SWATCH = (72, 20)  # pixels of a colour in the legend


def masks(found: dict[str, Any], split: str) -> View:
    """Return the IoU of each class, lowest first, the colours of the classes in the examples, and the matrix."""
    per_class, names = found["per_class"], found["names"]
    known = sorted((c for c in per_class if c["iou"]["value"] is not None), key=lambda c: c["iou"]["value"])
    order = [*known, *(c for c in per_class if c["iou"]["value"] is None)]
    drawings: list[Drawing] = [
        charts.rows(
            "Intersection over union of each class",
            [{"name": "IoU", "format": "fraction", "mark": "dot", "split": split, "domain": [0, 1]}],
            [
                {
                    "label": c["name"],
                    "note": plural(c["images"], "image"),
                    "cells": [c["iou"]],
                    "tip": [
                        f"{c['name']}, {plural(c['pixels'], 'pixel')} of {plural(c['images'], 'image')}",
                        _iou(c),
                    ],
                }
                for c in order
            ],
        ),
        {
            "kind": "gallery",
            "title": "Colors in the examples; the background has none",
            "size": list(SWATCH),
            "items": [
                {"name": "", "image": swatch(k), "words": name, "note": "", "lines": []}
                for k, name in enumerate(names)
                if k
            ],
        },
    ]
    if len(names) <= MOST_CLASSES:
        title = "Pixels, actual and predicted"
        drawings.append({"kind": "heat", "title": title, "names": names, "counts": found["confusion"]})
    summary = "No class has a pixel in this split."
    if known:
        low, high = known[0], known[-1]
        summary = f"IoU is lowest for {low['name']}, {_iou(low)}, and highest for {high['name']}, {_iou(high)}."
    return View(
        id="masks",
        title="Metrics by class",
        says="Intersection over union (IoU) over the whole split: of the pixels of a class or predicted as it, the "
        "fraction that are both. Bars are 95\u202f% intervals with images as units, since the pixels of an image are "
        "correlated.",
        summary=summary,
        table=table(
            {"class": "text", "pixels": "count", "images": "count", "IoU": "fraction", "from": "fraction",
             "to": "fraction"},
            [[c["name"], c["pixels"], c["images"], *(c["iou"][k] for k in ("value", "low", "high"))] for c in order],
        ),
        drawings=drawings,
    )  # fmt: skip


def _iou(c: dict[str, Any]) -> str:
    """Return an IoU with its interval: 88.6 % (74.0 % – 95.5 %)."""
    value, low, high = (c["iou"][k] for k in ("value", "low", "high"))
    if value is None:
        return UNKNOWN
    return percent(value) + (f" ({percent(low)} – {percent(high)})" if low is not None and high is not None else "")


def swatch(k: int) -> str:
    """Return the colour of a class as an image."""
    red, green, blue = palette()[3 * k : 3 * k + 3]
    buffer = io.BytesIO()
    Image.new("RGB", SWATCH, (red, green, blue)).save(buffer, format="PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


SHOWN = 12  # most transcripts in the comparison


def words(found: dict[str, Any], worst: list[dict[str, Any]], split: str) -> View:
    """Return the confused words of the evaluation's `words`, and its `worst` transcripts, aligned."""
    confusions = found["confusions"]
    drawings: list[Drawing] = []
    if confusions:
        rows = [
            {"label": _pair(one), "cells": [{"value": one["count"]}], "tip": [_pair(one), plural(one["count"], "time")]}
            for one in confusions
        ]
        drawings.append(charts.rows("Actual → predicted", [charts.bar("times")], rows))
    if worst:
        heads = {"reference": "text", "prediction": "text"}
        lines = [list(_mark_differences(one["actual"], one["predicted"])) for one in worst[:SHOWN]]
        drawings.append(
            {"kind": "prose", "title": "Worst transcripts, word by word", "table": table(heads, lines)},
        )
    said = "All words are correct."
    if confusions:
        wrong = plural(found["mistakes"], "mistake")
        said = f"{wrong} in words, most often {_pair(confusions[0])}."
    return View(
        id="words",
        title="Word errors",
        says=f"Transcripts of the {split} split, aligned with the predictions by the smallest number of edits; "
        f"{ABSENT} marks a word that was deleted or inserted.",
        summary=said,
        table=table(
            {"said": "text", "written": "text", "times": "count"},
            [[one["actual"], one["predicted"], one["count"]] for one in confusions],
        ),
        drawings=drawings,
    )


def _pair(one: dict[str, Any]) -> str:
    return f"{one['actual']} → {one['predicted']}"


def _mark_differences(actual: str, predicted: str) -> tuple[str, str]:
    """Return both texts with the different words in brackets."""
    pairs = align_words(actual.split(), predicted.split())
    right, written = (" ".join(p[side] if p[0] == p[1] else f"[{p[side]}]" for p in pairs) for side in (0, 1))
    return right, written


def links(found: dict[str, Any], split: str) -> View:
    """Return the probabilities of links and absent links, the most probable absent links, and a small graph."""
    edges, (absent, real) = found["edges"], found["counts"].values()
    drawings: list[Drawing] = [
        charts.lines(
            "Pairs by probability of a link",
            "probability of a link",
            [
                {"name": name, "points": [[(a + b) / 2, n] for a, b, n in zip(edges, edges[1:], counts)]}
                for name, counts in (("links", real), ("absent links", absent))
            ],
            x_format="fraction",
            format="count",
        )
    ]
    if found.get("graph"):
        drawings.append(_graph(found["graph"], split))
    half = len(real) // 2
    summary = f"Of {plural(sum(real), 'link')} {percent(sum(real[half:]) / max(1, sum(real)))} have a probability of "
    summary += f"at least a half, of {plural(sum(absent), 'absent link')} "
    summary += f"{percent(sum(absent[half:]) / max(1, sum(absent)))}."
    if found["wrong"]:
        name, p = found["wrong"][0]
        summary += (
            f" The absent link with the highest probability is {name}, {percent(p)}: it may be missing in the data."
        )
    return View(
        id="links",
        title="Links and absent links",
        says=f"Pairs of nodes of the {split} split, half of them linked. In the whole graph nearly all pairs are not "
        "linked, so the precision is lower there. The table has the absent links with the highest predicted "
        "probability.",
        summary=summary,
        table=table({"absent link": "text", "probability": "fraction"}, [list(one) for one in found["wrong"]]),
        drawings=drawings,
    )


def _graph(drawn: dict[str, Any], split: str) -> Drawing:
    """Return the whole graph; the width of a held-out link is its probability."""
    names, pairs = drawn["names"], [(a, b) for a, b in (link["ends"] for link in drawn["links"])]
    asked = [[link["probability"]] * 2 for link in drawn["links"]]
    taught = [[1 if link["taught"] else None] * 2 for link in drawn["links"]]
    degree = [sum(v in pair for pair in pairs) for v in range(len(names))]
    nodes = [
        {"label": name, "at": at, "tip": [plural(n, "link")], "key": str(v)}
        for v, (name, at, n) in enumerate(zip(names, layout_nodes(pairs, len(names)), degree))
    ]
    return {
        "kind": "graph",
        "title": f"Links of the {split} split, width by probability",
        "nodes": nodes,
        "links": [list(pair) for pair in pairs],
        "weights": [
            {"name": f"links of the {split} split, by probability", "values": asked},
            {"name": "links used for message passing", "values": taught},
        ],
        "colours": [],
        "node": None,
        "labels": True,
    }


MOST_BINS = 48


def residuals(values: dict[str, Any], total: int) -> View:
    """Return predicted over actual values, and the errors; `total` is the number of examples before selection."""
    predicted = np.asarray(values["predicted"], dtype=np.float64)  # (n,)
    actual = np.asarray(values["actual"], dtype=np.float64)  # (n,)
    error = predicted - actual
    edges = bins(error)
    unit = values.get("unit") or ""
    named = f"{values['column']} ({unit})" if unit else values["column"]
    largest = float(error[np.abs(error).argmax()])
    says = "Each dot is one example: on the line the prediction is exact, above it too high, below it too low."
    if len(error) < total:
        says += f" A sample of {count(len(error))} of the {count(total)} examples is shown."
    return View(
        id="residuals",
        title="Predictions and residuals",
        says=says,
        summary=f"The median absolute error is {number(float(np.median(np.abs(error))))}; "
        f"the mean error is {signed(float(error.mean()))}, the largest {signed(largest)}{f' {unit}' if unit else ''}.",
        table=table(
            {"actual": "number", "predicted": "number", "error": "number"},
            np.stack([actual, predicted, error], axis=1).tolist(),
        ),
        drawings=[
            {
                "kind": "points",
                "title": f"Predicted {named}",
                "x": f"actual {named}",
                "points": np.stack([actual, predicted], axis=1).tolist(),
                "scale": abs(largest) or 1.0,
            },
            {
                "kind": "histogram",
                "title": "Examples by error, predicted − actual",
                "edges": edges.tolist(),
                "counts": np.histogram(error, edges)[0].tolist(),
                "below": "too little",
                "above": "too much",
                "scale": abs(largest) or 1.0,
            },
        ],
    )


def bins(error: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the edges of equal bins over the errors (n,), one of them 0, so that no bin mixes signs.

    The width is that of Freedman and Diaconis (1981), 2 IQR n^(−1/3), rounded up to 1, 2 or 5 times a power of ten.
    """
    q1, q3 = np.percentile(error, [25, 75])
    low, high = float(error.min()), float(error.max())
    wanted = max(2 * float(q3 - q1) / len(error) ** (1 / 3), (high - low) / MOST_BINS)
    if wanted:  # the bins extend to 0, which may be far from all errors
        wanted = max(wanted, (max(high, 0) - min(low, 0)) / MOST_BINS)
    width = _round_up(wanted or abs(high) or 1.0)
    first, last = min(math.floor(low / width), 0), max(math.ceil(high / width), 0)
    return width * np.arange(first, max(last, first + 1) + 1, dtype=np.float64)


def _round_up(value: float) -> float:
    """Return the smallest of 1, 2, 5 × 10ᵏ that is at least the value and not too small for a normal float."""
    value = max(value, 10 * float(np.finfo(np.float64).tiny))
    power = 10.0 ** math.floor(math.log10(value))
    return next((m * power for m in (1, 2, 5) if m * power >= value), 10 * power)


CURVES = 10  # most tasks with a separate curve


def accuracy_over_time(found: dict[str, Any], split: str) -> View:
    """Return the matrix of tasks by time and a curve for each task; for joint training, only the final accuracies."""
    names, accuracy = found["names"], found["accuracy"]
    labels = [f"{t + 1}: {name}" for t, name in enumerate(names)]
    if len(accuracy) == 1:
        return _final_view(labels, accuracy[0], split)
    ends = accuracy[-1]
    so_far = [sum(row[: t + 1]) / (t + 1) for t, row in enumerate(accuracy)]
    lost = [accuracy[t][t] - ends[t] for t in range(len(names) - 1)]
    most = max(range(len(lost)), key=lost.__getitem__)
    learned = sum(row[t] for t, row in enumerate(accuracy)) / len(names)
    summary = f"The mean accuracy directly after a task is learned is {percent(learned)}, at the end "
    summary += f"{percent(sum(ends) / len(names))}."
    if lost[most] > 0:
        summary += (
            f" Task {labels[most]} is forgotten most: {percent(accuracy[most][most])}, then {percent(ends[most])}."
        )
    return View(
        id="tasks",
        title="Task by task",
        says=f"The accuracy on each task of the {split} split, with the weights after each task. On the diagonal is "
        "the task that was just learned; to the right of it is its accuracy after later tasks, to the left that "
        "before it was learned. The split was evaluated once, at the end, with the weights that were kept.",
        summary=summary,
        table=table(
            {"task": "text", **{f"after task {t + 1}": "fraction" for t in range(len(accuracy))}},
            [[label, *(row[j] for row in accuracy)] for j, label in enumerate(labels)],
        ),
        drawings=[_matrix(labels, accuracy), _curves(labels, accuracy, so_far)],
    )


def _matrix(labels: list[str], accuracy: list[list[float]]) -> Drawing:
    return charts.matrix(
        "Accuracy on each task after each task",
        [[row[j] for row in accuracy] for j in range(len(labels))],
        ("task", labels),
        ("after task", [count(t + 1) for t in range(len(accuracy))]),
        scale="amount",
        format="fraction",
        low=0.0,
        high=1.0,
    )


def _curves(labels: list[str], accuracy: list[list[float]], so_far: list[float]) -> Drawing:
    """Return each task's accuracy from the time it was learned, and the mean over the tasks so far."""
    series = [{"name": "mean of the tasks so far", "split": "test", "points": _over(so_far, 0)}]
    if len(labels) <= CURVES:
        series += [
            {"name": f"task {label}", "points": _over([row[j] for row in accuracy[j:]], j)}
            for j, label in enumerate(labels)
        ]
    return charts.lines("Accuracy on each task over time", "tasks learned", series, format="fraction", x_format="count")


def _over(values: list[float], first: int) -> list[list[float]]:
    return [[first + t + 1, value] for t, value in enumerate(values)]


def _final_view(labels: list[str], ends: list[float], split: str) -> View:
    """Return the accuracy on each task at the end, for a run without intermediate results."""
    least = min(range(len(labels)), key=ends.__getitem__)
    return View(
        id="tasks",
        title="Task by task",
        says=f"The accuracy on each task of the {split} split, at the end.",
        summary=f"The lowest accuracy over {plural(len(labels), 'task')} is {percent(ends[least])}, on "
        f"{labels[least]}.",
        table=table({"task": "text", "accuracy": "fraction"}, [list(pair) for pair in zip(labels, ends)]),
        drawings=[
            charts.rows(
                "Accuracy on each task",
                [charts.bar("accuracy", "fraction")],
                [
                    {"label": label, "cells": [{"value": end}], "tip": [label, percent(end)]}
                    for label, end in zip(labels, ends)
                ],
            )
        ],
    )


# The colour of each curve: those of the splits, which are not drawn here.
COLOURS = {"model": "test", "last": "", "season": "train", "smoothing": "", "linear": "val", "actual": ""}
PARTS = (1 / 4, 1 / 2, 1)  # fractions of the horizon at which the error is reported
SHORT = {"model": "model", "last": "last value", "season": "last season", "smoothing": "smoothing", "linear": "linear"}


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
