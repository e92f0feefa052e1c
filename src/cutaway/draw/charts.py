"""The drawings that several views make, as the modules of draw/ take them: each function is named as its module."""

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
    """Curves over a common `x`: of each `name` and `points`, [x, y] with None where the line is broken. With `zero` the
    axis reaches there; `mark` is a place on x with its label."""
    axes = {"x": x, "format": format, "log": log, "zero": zero, "mark": mark}
    return {"kind": "lines", "title": title, **axes, "series": list(series), **more}


def tiles(
    title: str, tiles: Sequence[dict[str, Any]], *, scale: str = "signed", range: str = "unit", **more: Any
) -> Drawing:
    """Small maps side by side, each with `label`, `values` and `tip`."""
    return {"kind": "tiles", "title": title, "scale": scale, "range": range, "tiles": list(tiles), **more}


def rows(title: str, columns: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> Drawing:
    """Named rows with a bar or a dot in each column."""
    return {"kind": "rows", "title": title, "columns": list(columns), "rows": list(rows)}


def bar(name: str, format: str = "count") -> dict[str, Any]:
    """A column of bars."""
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
    """One map; `rows` and `columns` say what they are, and the name of each."""
    names = {"row_name": rows[0], "rows": list(rows[1]), "column_name": columns[0], "columns": list(columns[1])}
    return {"kind": "matrix", "title": title, "values": values, "scale": scale, "format": format, **names, **more}


def choice(
    title: str, label: str, options: Sequence[dict[str, Any]], *, slider: bool = False, start: int = 0
) -> Drawing:
    """One of several lists of `drawings`, chosen by their `name`."""
    return {
        "kind": "choice", "title": title, "label": label, "slider": slider, "start": start, "options": list(options),
    }  # fmt: skip


def overlay(title: str, items: Sequence[dict[str, Any]], *, scale: str, **more: Any) -> Drawing:
    """Images with a map over each."""
    return {"kind": "overlay", "title": title, "scale": scale, "items": list(items), "opacity": 0.75, **more}
