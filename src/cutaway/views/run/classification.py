"""Views of scores: the confusion matrix, the metrics of each class, ROC and precision–recall curves, calibration, and
permutation importance.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...draw import charts
from ...draw.description import Drawing, View, table
from ...draw.number_format import UNKNOWN, count, number, percent, plural

MOST_CLASSES = 100  # most classes in a matrix; with more, only the most frequent confusions are shown
SHOWN_CONFUSIONS = 12
METRICS = {"recall": "recall", "precision": "precision", "f1": "F1"}  # key in the document → name

Confusion = tuple[str, str, int, float]  # actual, predicted, examples, fraction of the actual class


def confusion(classes: dict[str, Any]) -> View:
    """Return the confusion matrix and the most frequent confusions by name."""
    names, counts = classes["names"], classes.get("confusion")  # for many classes only the most frequent cells exist
    if counts is None:
        cells: list[Confusion] = [(was, said, n, n / of) for was, said, n, of in classes.get("cells") or ()]
    else:
        cells = [
            (was, said, n, n / sum(row)) for was, row in zip(names, counts) for said, n in zip(names, row) if n > 0
        ]
    wrong = sorted((c for c in cells if c[0] != c[1]), key=lambda c: (-c[2], -c[3]))
    drawings: list[Drawing] = []
    says = "Rows are actual classes, columns predicted classes; the shade is the fraction of the row."
    if counts is not None and len(names) <= MOST_CLASSES:
        drawings.append({"kind": "heat", "title": "Actual and predicted", "names": names, "counts": counts})
    else:
        says = f"{count(len(names))} classes are too many for a matrix; these are the most frequent confusions."
    summary = "No example is misclassified."
    if wrong:
        drawings.append(_commonest(wrong[:SHOWN_CONFUSIONS]))
        summary = f"Most frequent confusion: {wrong[0][0]} predicted as {wrong[0][1]}, {_of_row(wrong[0])}."
    return View(
        id="confusion",
        title="Confusion matrix",
        says=says,
        summary=summary,
        table=table(
            {"actual": "text", "predicted": "text", "examples": "count", "fraction of actual": "fraction"},
            [list(c) for c in cells],
        ),
        drawings=drawings,
    )


def _commonest(wrong: list[Confusion]) -> Drawing:
    """Return the most frequent confusions as bars."""
    return charts.rows(
        "Most frequent confusions, actual → predicted",
        [charts.bar("examples")],
        [
            {
                "label": f"{c[0]} → {c[1]}",
                "cells": [{"value": c[2]}],
                "tip": [f"{c[0]} predicted as {c[1]}", _of_row(c)],
            }
            for c in wrong
        ],
    )


def _of_row(c: Confusion) -> str:
    """Return the count and fraction of a confusion: 3 of 35, 8.6 %."""
    _, _, n, fraction = c
    return f"{count(n)} of {count(n / fraction)}, {percent(fraction)}"


def per_class(classes: dict[str, Any], split: str) -> View:
    """Return recall, precision and F1 of each class with their intervals, lowest recall first."""
    found = [c for c in classes["per_class"] if c["recall"]["value"] is not None]
    absent = [c for c in classes["per_class"] if c["recall"]["value"] is None]
    order = sorted(found, key=lambda c: (c["recall"]["value"], -c["count"])) + absent
    lows = [c[f]["low"] for c in order for f in METRICS if c[f]["low"] is not None]
    domain = [math.floor(10 * min(lows, default=0.0)) / 10, 1]
    drawing = charts.rows(
        "Metrics of each class",
        [
            {"name": name, "format": "fraction", "mark": "dot", "split": split, "domain": domain}
            for name in METRICS.values()
        ],
        [
            {
                "label": c["name"],
                "note": count(c["count"]),
                "cells": [c[f] for f in METRICS],
                "tip": [
                    f"{c['name']}, {plural(c['count'], 'example')}",
                    *(f"{name} {_with_interval(c[f])}" for f, name in METRICS.items()),
                ],
            }
            for c in order
        ],
    )
    columns = {"class": "text", "examples": "count"}
    for name in METRICS.values():
        columns |= {name: "fraction", f"{name} from": "fraction", f"{name} to": "fraction"}
    rows = [[c["name"], c["count"], *(c[f][k] for f in METRICS for k in ("value", "low", "high"))] for c in order]
    says = (
        "Recall is the fraction of a class that is predicted as such, precision the fraction of its predictions that "
        "are correct, F1 their harmonic mean; bars are 95\u202f% intervals."
    )
    if len(classes["names"]) > len(order):
        says += f" Of {count(len(classes['names']))} classes, the {count(len(order))} with the most examples are shown."
    return View(
        id="classes",
        title="Metrics by class",
        says=says,
        summary=_extremes(order[: len(found)]),
        table=table(columns, rows),
        drawings=[drawing],
    )


def _extremes(order: list[dict[str, Any]]) -> str:
    """Return the classes with the lowest and the highest recall; `order` is sorted by recall."""
    if not order:
        return "No class has an example in this split."
    low, high = order[0], order[-1]
    if low["recall"]["value"] == high["recall"]["value"]:
        return f"Every class has a recall of {percent(low['recall']['value'])}."
    return (
        f"Recall is lowest for {low['name']}, {_with_interval(low['recall'])}, "
        f"and highest for {high['name']}, {_with_interval(high['recall'])}."
    )


def _with_interval(m: dict[str, float | None]) -> str:
    """Return a metric with its interval: 88.6 % (74.0 % – 95.5 %)."""
    value, low, high = m["value"], m["low"], m["high"]
    if value is None:
        return UNKNOWN
    return percent(value) + (f" ({percent(low)} – {percent(high)})" if low is not None and high is not None else "")


GRID = np.linspace(0, 1, 101).tolist()  # the grid on which tasks/roc_curves.py evaluates the curves
Curve = dict[str, Any]


# --- ROC and precision–recall ------------------------------------------------------------------------------------


def discrimination(found: dict[str, Any], total: int) -> View:
    """Return ROC and precision–recall curves of the second of two classes, or of each class against the rest."""
    curves: list[Curve] = found["classes"]
    two = found["of"] == 2
    drawn = [curve for curve in curves if curve.get("roc") and curve.get("precision")]
    says = (
        "Left: true positive rate over false positive rate, for every threshold. Right: precision over recall. The "
        "area under the ROC curve (AUC) is 1 at best and 0.5 by chance; the average precision is 1 at best and the "
        "class frequency by chance."
    )
    if not two:
        says += f" Each curve is one class against all others{_curves_note(drawn, found)}."
    operating = curves[0].get("operating") if two else None
    if operating:
        says += f" The ring is the operating point: a {found['score']} above {number(operating['threshold'])}."
    return View(
        id="discrimination",
        title="ROC and precision–recall",
        says=says + _subset_note(found["examples"], total),
        summary=_two_class_summary(curves[0]) if two else _multiclass_summary(curves),
        table=table(
            {
                "class": "text",
                "examples": "count",
                "AUC": "number",
                "AUC from": "number",
                "to": "number",
                "average precision": "number",
                "from": "number",
                "to ": "number",
                "by chance": "number",
            },
            [
                [
                    c["name"],
                    c["examples"],
                    *_value_and_interval(c["auc"]),
                    *_value_and_interval(c["average_precision"]),
                    c["fraction"],
                ]
                for c in curves
            ],
        ),
        drawings=[_roc(drawn, two), _precision(drawn, two)],
    )


def _roc(curves: list[Curve], two: bool) -> Drawing:
    drawing = _over("ROC", "false positive rate", {c["name"]: _at(c["roc"]) for c in curves}, two)
    drawing["series"].append(_grey("chance", GRID))
    operating = curves[0].get("operating")
    if operating:
        drawing["ring"] = {"x": operating["false_positives"], "y": operating["recall"], "label": _decides(operating)}
    return drawing


def _precision(curves: list[Curve], two: bool) -> Drawing:
    drawing = _over("Precision–recall", "recall", {c["name"]: _at(c["precision"]) for c in curves}, two)
    operating = curves[0].get("operating")
    if two:
        drawing["series"].append(_grey("chance", [curves[0]["fraction"]] * len(GRID)))
    if operating and operating["precision"] is not None:
        at = {"x": operating["recall"], "y": operating["precision"]}
        drawing["ring"] = {**at, "label": _decides(operating), "left": True}
    return drawing


def _decides(operating: dict[str, Any]) -> str:
    return f"above {number(operating['threshold'])}"


def _over(title: str, x: str, curves: dict[str, list[Any]], two: bool) -> Drawing:
    return charts.lines(
        title,
        x,
        [
            {"name": "model" if two else name, "points": points, **({"split": "test"} if two else {})}
            for name, points in curves.items()
        ],
        x_format="fraction",
        format="fraction",
    )


def _grey(name: str, values: list[float]) -> dict[str, Any]:
    return {"name": name, "split": "train", "points": _at(values)}


def _at(values: list[float]) -> list[list[float]]:
    return [[round(x, 2), y] for x, y in zip(GRID, values)]


def _value_and_interval(m: dict[str, float | None]) -> list[float | None]:
    return [m["value"], m["low"], m["high"]]


def _two_class_summary(curve: Curve) -> str:
    """Return a summary for two classes: the areas with their intervals, and the rates at the threshold."""
    said = f"Of class {curve['name']}: AUC {_interval(curve['auc'])}; average precision "
    said += f"{_interval(curve['average_precision'])}, {number(curve['fraction'])} by chance."
    operating = curve.get("operating")
    if operating:
        precision = operating["precision"]
        said += f" At the operating point: recall {percent(operating['recall'])}, false positive rate "
        said += percent(operating["false_positives"])
        said += f", precision {percent(precision)}." if precision is not None else "."
    return said


def _multiclass_summary(curves: list[Curve]) -> str:
    order = sorted(curves, key=lambda c: c["auc"]["value"])
    mean = sum(c["auc"]["value"] for c in curves) / len(curves)
    low = order[0]
    lowest = f"{low['name']}, {_interval(low['auc'])}, average precision {_interval(low['average_precision'])}"
    return f"The mean AUC over {count(len(curves))} classes is {number(mean)}; the lowest is that of {lowest}."


def _interval(m: dict[str, float | None]) -> str:
    """Return a value with its interval: 0.95 (0.91 – 0.99)."""
    value, low, high = (number(round(x, 4)) if x is not None else None for x in (m["value"], m["low"], m["high"]))
    return f"{value} ({low} – {high})" if low is not None and high is not None else value or UNKNOWN


def _curves_note(drawn: list[Curve], found: dict[str, Any]) -> str:
    known = len(found["classes"])
    if len(drawn) == known == found["of"]:
        return ""
    drawn_of = f"; the {count(len(drawn))} with the most examples are drawn" if len(drawn) < known else ""
    return f"{drawn_of}; {count(known)} of {count(found['of'])} have curves in the numbers"


def _subset_note(examples: int, total: int) -> str:
    return f" Computed from a sample of {count(examples)} of the {count(total)} examples." if examples < total else ""


# --- calibration ----------------------------------------------------------------------------------------------


def calibration(found: dict[str, Any], total: int) -> View:
    """Return the reliability diagram, and the histogram of probabilities."""
    of = f"Predicted probability of class {found['of']}" if found["of"] else "Probability of the predicted class"
    was = f"the frequency of class {found['of']}" if found["of"] else "the accuracy"
    bins = found["bins"]
    error, scaling, better, points = found["error"], "", "", []
    if scaled := found.get("scaled"):
        scaling = (
            " Scaled: the outputs are divided by a temperature that is fitted on validation (Guo et al. 2017); this "
        )
        scaling += "changes the confidence, not the predicted class."
        better = f" At temperature {number(round(scaled['temperature'], 2))} the error is "
        better += f"{percent(scaled['error']['value'])}."
        points = [[b["said"], b["was"]] for b in scaled["bins"]]
    return View(
        id="calibration",
        title="Calibration",
        says=f"{of} against {was}, in ten bins; on the diagonal the model is calibrated, below it overconfident. The "
        "expected calibration error is the mean distance from the diagonal, weighted by examples; it is biased "
        f"upwards for few examples.{scaling}{_subset_note(found['examples'], total)}",
        summary=f"Expected calibration error {percent(error['value'])}; "
        f"Brier score {number(round(found['brier'], 4))}. "
        f"{_confidence_note(bins)}{better}",
        table=table(
            {"predicted": "fraction", "observed": "fraction", "examples": "count"},
            [[b["said"], b["was"], b["count"]] for b in bins],
        ),
        drawings=[
            charts.lines(
                "Reliability diagram: observed frequency",
                "predicted probability",
                [
                    {"name": "exact", "split": "train", "points": [[0, 0], [1, 1]]},
                    {"name": "model", "split": "test", "points": [[b["said"], b["was"]] for b in bins]},
                    *([{"name": "scaled", "split": "val", "points": points}] if points else []),
                ],
                x_format="fraction",
                format="fraction",
            ),
            {
                "kind": "histogram",
                "title": "Examples by predicted probability",
                "edges": [round(e, 6) for e in found["edges"]],
                "counts": found["counts"],
                "of": "probability",
                "x": "predicted probability",
                "x_format": "fraction",
            },
        ],
    )


def _confidence_note(bins: list[dict[str, Any]]) -> str:
    """Return whether the model is overconfident or underconfident on average."""
    total = sum(b["count"] for b in bins)
    apart = sum(b["count"] * (b["said"] - b["was"]) for b in bins) / total
    if abs(apart) < 0.01:
        return "On average the confidence matches the accuracy."
    return f"On average the model is {'overconfident' if apart > 0 else 'underconfident'}, by {percent(abs(apart))}."


# --- importance -----------------------------------------------------------------------------------------------

SHOWN = 40  # most columns that are drawn


def importance(found: dict[str, Any], split: str) -> View:
    """Return the permutation importance of each column."""
    columns = found["columns"]
    rmse = found["metric"] == "rmse"
    format = "number" if rmse else "fraction"
    written = number if rmse else percent
    lost = "RMSE increase" if rmse else "accuracy loss"
    ends = [x for c in columns for x in (c["low"], c["high"], 0.0)]
    low, high = min(ends), max(ends)
    first = columns[0]
    cost = (
        f"{number(first['value'])} of RMSE" if rmse else f"{number(round(100 * first['value'], 1))} points of accuracy"
    )
    summary = f"{first['name']} is the most important column: shuffling it costs {cost}."
    tied = [c["name"] for c in columns if c["value"] == first["value"]]
    if len(tied) > 1:
        summary = f"{', '.join(tied[:-1])} and {tied[-1]} are the most important columns: shuffling one costs {cost}."
    if high <= 0:
        summary = "No column is important: shuffling any of them does not increase the error."
    elif first["value"] > 0 and all(c["value"] <= 0.1 * first["value"] for c in columns[1:]):
        summary += " All others have less than a tenth of its importance: check it for target leakage."
    return View(
        id="importance",
        title="Permutation importance",
        says=f"{lost[0].upper()}{lost[1:]} when one column is shuffled among {count(found['rows'])} {split} rows; the "
        f"dot is the mean of {found['repeats']} shuffles, the bar is their range. Importance is shared between "
        "correlated columns, so each may appear unimportant.",
        summary=summary,
        table=table(
            {"column": "text", lost: format, "min": format, "max": format},
            [[c["name"], c["value"], c["low"], c["high"]] for c in columns],
        ),
        drawings=[
            charts.rows(
                f"{lost.capitalize() if not rmse else lost} by shuffling"
                + (f", the first {SHOWN} of {count(len(columns))}" if len(columns) > SHOWN else ""),
                [
                    {
                        "name": lost,
                        "format": format,
                        "mark": "dot",
                        "split": split,
                        "domain": [low, high if high > low else low + 1],
                    }
                ],
                [
                    {
                        "label": c["name"],
                        "cells": [{"value": c["value"], "low": c["low"], "high": c["high"]}],
                        "tip": [
                            c["name"],
                            f"{lost} {written(c['value'])}",
                            f"{written(c['low'])} to {written(c['high'])}",
                        ],
                    }
                    for c in columns[:SHOWN]
                ],
            )
        ],
    )
