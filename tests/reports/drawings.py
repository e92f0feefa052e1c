"""Drawings of each kind that looks inside, small and always the same, one with names that are markup."""

from __future__ import annotations

import math
from typing import Any

from cutaway.draw.description import Drawing, Page, View, table

HOSTILE = "<img src=x onerror=alert(1)>"
WORDS = ["The", "quick", "brown", HOSTILE, "fox", "."]


def maps(count: int, rows: int, columns: int, phase: float = 0.0) -> list[list[list[float | None]]]:
    """Maps with values between -1 and 1, each with more than the one before; the first has a gap."""
    found: list[list[list[float | None]]] = [
        [
            [round((k + 1) / count * math.sin(phase + k + i * 0.7 + j * 0.4), 4) for j in range(columns)]
            for i in range(rows)
        ]
        for k in range(count)
    ]
    found[0][0][1] = None
    return found


def tiles(phase: float = 0.0, title: str = "Filters") -> Drawing:
    """Six maps in two groups."""
    return {
        "kind": "tiles",
        "title": title,
        "scale": "signed",
        "range": "layer",
        "tiles": [
            {"label": f"filter {k}", "group": f"conv{k // 3 + 1}", "values": values, "tip": [f"conv{k // 3 + 1}, {k}"]}
            for k, values in enumerate(maps(6, 5, 5, phase))
        ],
    }


def matrix(phase: float = 0.0, title: str = "Attention") -> Drawing:
    """Who looks at whom."""
    values = [[round((1 + math.sin(phase + i * 3 + j)) / 2, 4) if j <= i else None for j in range(6)] for i in range(6)]
    return {
        "kind": "matrix",
        "title": title,
        "rows": WORDS,
        "columns": WORDS,
        "values": values,
        "scale": "amount",
        "format": "fraction",
        "low": 0,
        "high": 1,
        "row_name": "query",
        "column_name": "key",
    }


def large(title: str = "Similarity") -> Drawing:
    """More values than there is room for names."""
    names = [f"position {i}" for i in range(80)]
    values = maps(1, 80, 80)[0]
    named = {"rows": names, "columns": names, "row_name": "position", "column_name": "position"}
    return {"kind": "matrix", "title": title, "values": values, "scale": "signed", **named}


def equation() -> Drawing:
    """A product of two small matrices."""
    left, right = [[1.0, 2.0], [3.0, -4.0], [0.0, 1.0]], [[1.0, 0.5, 2.0], [-1.0, 0.0, 1.0]]
    product = [[sum(a * right[k][j] for k, a in enumerate(row)) for j in range(3)] for row in left]
    return {
        "kind": "equation",
        "title": "A product whose name is longer than a telephone is wide, and so is broken",
        "parts": [
            {"name": "A", "values": left, "rows": WORDS[:3], "scale": "signed"},
            "·",
            {"name": "B", "values": right, "columns": WORDS[1:4], "scale": "signed", "note": "weights"},
            "=",
            {"name": "C", "values": product, "scale": "signed"},
        ],
    }


def overlay() -> Drawing:
    """Two maps over one image; the second fails its check."""
    import torch

    from cutaway.views.json_values import tensor_url

    image = tensor_url(torch.linspace(0, 1, 64).reshape(1, 8, 8))
    warning = "fails its check: the parts sum to 3.1, the output is 7.9"
    items = [
        {"label": "gradient", "image": image, "values": maps(1, 8, 8)[0], "tip": ["gradient"], "warning": None},
        {"label": HOSTILE, "image": image, "values": maps(2, 4, 4)[1], "tip": ["patches"], "warning": warning},
        {"label": "no image", "image": None, "values": maps(2, 4, 4)[1], "tip": [], "warning": None},
    ]
    return {"kind": "overlay", "title": "What speaks for it", "scale": "signed", "items": items, "opacity": 0.7}


def choice() -> Drawing:
    """Layers in a list, in each of them heads along a slider."""

    def heads(layer: int) -> Drawing:
        options = [
            {"name": f"head {h}", "drawings": [matrix(layer + h), {"kind": "prose", "sentences": [f"Head {h}."]}]}
            for h in range(4)
        ]
        return {"kind": "choice", "title": "Heads", "label": "head", "slider": True, "start": 1, "options": options}

    layers = [{"name": f"layer {k}", "drawings": [heads(k)]} for k in range(3)]
    return {"kind": "choice", "title": "", "label": "layer", "slider": False, "start": 0, "options": layers}


def curves() -> Drawing:
    """More curves than can be named at their ends, over parts of a second."""
    series = [
        {"name": f"unit {k}", "points": [[t / 8, round(math.sin(t / 5 + k), 4)] for t in range(40)]} for k in range(30)
    ]
    form = {"x": "time (s)", "format": "number", "log": False, "zero": False, "mark": None}
    return {"kind": "lines", "title": "Units", "series": series, **form}


def columns() -> Drawing:
    """Columns of a table: numbers, values, and a name that is markup."""
    items = [
        {
            "name": "age",
            "counts": [1, 5, 2, 0, 1],
            "ends": ["0.5", "80"],
            "missing": 3,
            "note": "number",
            "gaps": "25 % missing",
        },
        {"name": HOSTILE, "counts": [9, 3], "labels": [HOSTILE, "no"], "missing": 0, "note": "yes/no", "gaps": ""},
    ]
    return {"kind": "columns", "title": "Columns", "items": items}


def scored() -> list[Drawing]:
    """A curve over shares with a place pointed out, and counts that have no sign."""
    form = {"x": "recall", "x_format": "fraction", "format": "fraction", "log": False, "zero": True, "mark": None}
    series = [{"name": "model", "split": "test", "points": [[k / 100, 1 - k / 200] for k in range(101)]}]
    ring = {"x": 0.5, "y": 0.75, "label": "above 0.5", "left": True}
    counts = {"edges": [0, 0.5, 1], "counts": [3, 4], "of": "probability", "x": "probability", "x_format": "fraction"}
    return [
        {"kind": "lines", "title": "Precision–recall", "series": series, "ring": ring, **form},
        {"kind": "histogram", "title": "Examples by probability", **counts},
    ]


def dots() -> list[Drawing]:
    """Trials by cost, with a front; and by one of several names, one of them markup."""
    places = [{"x": 10 * 2**i, "y": 1 - 0.5**i, "group": i % 2, "tip": [f"trial {i}, {HOSTILE}"]} for i in range(9)]
    shared = {"kind": "dots", "y": "validation accuracy", "format": "fraction", "groups": ["finished", HOSTILE]}
    front: Drawing = {
        **shared,
        "title": "Accuracy and cost",
        "x": "MACs",
        "x_format": "count",
        "log_x": True,
        "dots": places,
        "steps": [[place["x"], place["y"]] for place in places[::2]],
        "steps_name": "Pareto front",
        "chosen": 8,
        "name": "trial 8",
    }
    named: Drawing = {
        **shared,
        "title": "optimizer",
        "x": "optimizer",
        "x_format": "text",
        "log_x": False,
        "categories": ["adam", HOSTILE, "nesterov"],
        "dots": [{**place, "x": i % 3} for i, place in enumerate(places)],
    }
    return [front, named]


def view(name: str, *drawings: Drawing, **more: Any) -> View:
    """A view with these drawings."""
    return {
        "id": name,
        "title": name.title(),
        "says": "One sentence.",
        "summary": "What there is to see.",
        "table": table({"name": "text", "value": "number"}, [["conv1", 0.25]]),
        "drawings": list(drawings),
        **more,
    }


def everything() -> Page:
    """A page with all of them."""
    views = [
        view("tiles", tiles(), read="How it is read.", misleads="Where it misleads."),
        view("attention", choice()),
        view("matrix", matrix(title="Small"), large()),
        view("equation", equation()),
        view("overlay", overlay()),
        view("curves", curves()),
        view("scores", *scored(), columns()),
        view("trials", *dots()),
    ]
    return {"title": "Inside", "views": views, "colophon": "Made by a test."}
