"""The view of a segmentation: intersection over union by class, and the confusion matrix of pixels."""

from __future__ import annotations

import base64
import io
from typing import Any

from PIL import Image

from ...data.images.segmentation import palette
from ...draw import charts
from ...draw.description import Drawing, View, table
from ...draw.number_format import UNKNOWN, percent, plural

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
            "title": "Colours in the examples; the ground has none",
            "size": list(SWATCH),
            "items": [
                {"name": "", "image": _swatch(k), "words": name, "note": "", "lines": []}
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
        title="Class by class",
        says="Intersection over union (IoU): of the pixels that are of a class or were said to be, the fraction that "
        "are both, over the whole split. Bars are 95\u202f% intervals; their units are images, whose pixels are alike.",
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


def _swatch(k: int) -> str:
    """Return the colour of a class as an image."""
    red, green, blue = palette()[3 * k : 3 * k + 3]
    buffer = io.BytesIO()
    Image.new("RGB", SWATCH, (red, green, blue)).save(buffer, format="PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
