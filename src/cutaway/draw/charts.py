"""Descriptions of common drawings; each function has the name of the JavaScript module in draw/ that draws it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .description import Drawing


def lines(
    title: str,
    x: str,
    series: Sequence[dict[str, Any]],
    *,
    format: str = "number",
    log: bool = False,
    zero: bool = True,
    mark: dict[str, Any] | None = None,
    **more: Any,
) -> Drawing:
    """Return a line chart of several series over a common x axis.

    Each series has a `name` and `points`, a list of [x, y] where y = None breaks the line;
    `fill` shades the area between the line and y = 0. With `zero` the y axis
    includes 0. `mark` is a position on the x axis with its label.
    """
    axes = {"x": x, "format": format, "log": log, "zero": zero, "mark": mark}
    return {"kind": "lines", "title": title, **axes, "series": list(series), **more}


def tiles(
    title: str, tiles: Sequence[dict[str, Any]], *, scale: str = "signed", range: str = "unit", **more: Any
) -> Drawing:
    """Return a row of small maps, each with `label`, `values` and `tip`."""
    return {"kind": "tiles", "title": title, "scale": scale, "range": range, "tiles": list(tiles), **more}


def rows(title: str, columns: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> Drawing:
    """Return a chart of labelled rows with a bar or a dot in each column."""
    return {"kind": "rows", "title": title, "columns": list(columns), "rows": list(rows)}


def bar(name: str, format: str = "count") -> dict[str, Any]:
    """Return the description of a column of bars."""
    return {"name": name, "format": format, "mark": "bar"}


def matrix(
    title: str,
    values: Any,
    rows: tuple[str, Sequence[str]],
    columns: tuple[str, Sequence[str]],
    *,
    scale: str = "signed",
    format: str = "number",
    **more: Any,
) -> Drawing:
    """Return one map with labelled rows and columns.

    `rows` and `columns` are each a pair: the name of the axis and the labels along it.
    """
    names = {"row_name": rows[0], "rows": list(rows[1]), "column_name": columns[0], "columns": list(columns[1])}
    return {"kind": "matrix", "title": title, "values": values, "scale": scale, "format": format, **names, **more}


def choice(
    title: str, label: str, options: Sequence[dict[str, Any]], *, slider: bool = False, start: int = 0
) -> Drawing:
    """Return a drawing that shows one of several lists of `drawings`, selected by their `name`."""
    return {
        "kind": "choice", "title": title, "label": label, "slider": slider, "start": start, "options": list(options),
    }  # fmt: skip


def overlay(title: str, items: Sequence[dict[str, Any]], *, scale: str, **more: Any) -> Drawing:
    """Return images with a map laid over each of them."""
    return {"kind": "overlay", "title": title, "scale": scale, "items": list(items), "opacity": 0.75, **more}
