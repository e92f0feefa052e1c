"""Descriptions of pages, views and drawings: plain JSON values that Python passes to the modules of draw/.

A page is a title and views. A view is a title, a sentence, a summary in words, a table of its numbers, and drawings. A
drawing is a dictionary whose `kind` names its module in draw/; the module documents the remaining keys:

    figure    the main metric with its interval, on a line
    lines     curves over a common x
    heat      a square matrix of counts, shaded by the fraction of the row
    rows      labelled rows with bars, or with dots and intervals, in columns
    points    one dot for each example, prediction over target
    dots      a scatter of marks by two numbers, some joined by steps
    histogram counts between edges, coloured by sign
    fractions one bar divided into labelled parts
    gallery   examples with their images or their columns
    prose     text: sentences, terms with their values, a command to copy, a table
    tiles     many small maps in a row: filters, feature maps, heads
    matrix    one map with a label for every row and column
    equation  small maps with signs between them: A · B = C
    overlay   images with a map laid over each
    boundary  a plane of two features: the model's answer on it, and the map of every neuron
    neurons   a small network with its numbers, and the sums of the selected neuron
    computation  a graph of operations with the value and the adjoint of each, and a slider over the backward pass
    convolve  a window that slides over numbers, its products, and the cell that they sum to
    tree      nested blocks, one line each with bars; a click expands a line
    choice    one of several drawings, selected from a list or with a slider
    tokens    tokens in reading order, shaded by a number, or by the attention of a selected token
    thoughts  the steps that a search for a solution proposed, in columns by depth, with the state of each
    scatter   a mark for each example or word, placed near similar ones, and its nearest neighbours
    graph     nodes and the links between them; the width of a link is the amount that travels along it

Maps are lists of rows of numbers, with null for a missing value. `scale` is the kind of colour scale: "signed" (two
hues that meet at 0) or "amount" (one hue, from 0 or the smallest value). `range` is the range of the colour scale: each
map on its own ("unit"), the maps with the same `group` ("layer"), or all maps ("global"). The reader can change it on
the page.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

Drawing = dict[str, Any]


class Column(TypedDict):
    """A column of a table: its header, and the format of its values (text, count, fraction, number, or written)."""

    name: str
    format: str


class Table(TypedDict):
    """A table of unformatted values; the drawing formats them."""

    columns: list[Column]
    rows: list[list[Any]]


class View(TypedDict):
    """One section of the page."""

    id: str
    title: str
    says: str  # one sentence: the content and how to read it
    summary: str  # the findings, in words
    table: Table
    drawings: list[Drawing]
    read: NotRequired[str]  # instructions for reading it, in a few sentences
    misleads: NotRequired[str]  # its limitations


class Page(TypedDict):
    """A whole page; its first view is the head."""

    title: str
    views: list[View]
    colophon: str


def table(columns: dict[str, str], rows: list[list[Any]]) -> Table:
    """Return a table built from `{name: format}` and its rows."""
    return {"columns": [{"name": n, "format": f} for n, f in columns.items()], "rows": rows}
