"""The view of an object detector's average precision by class."""

from __future__ import annotations

from typing import Any

from ...core.metric_names import metric
from ...draw import charts
from ...draw.description import View, table
from ...draw.number_format import count, percent, plural

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
        title="Class by class",
        says="Boxes are matched to the actual ones of their class, the surest first; average precision is the mean "
        "precision over all levels of recall, 1 where every object is found before anything that is none. AP@.5 asks "
        "for an overlap (IoU) of one half, AP@[.5:.95] is the mean over ten such limits, up to 95\u202f%.",
        summary=summary,
        table=table(
            {"class": "text", "objects": "count", **dict.fromkeys(names, "fraction")},
            [[c["name"], c["count"], *(c[key] for key in METRICS)] for c in order],
        ),
        drawings=[drawing],
    )
