"""Views of a classification: the confusion matrix and the metrics of each class."""

from __future__ import annotations

import math
from typing import Any

from ...draw import charts
from ...draw.description import Drawing, View, table
from ...draw.number_format import UNKNOWN, count, percent, plural

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
