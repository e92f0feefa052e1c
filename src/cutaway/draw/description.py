"""What Python hands to the drawing: plain JSON values, which any page with the modules of draw/ can draw.

A page is a title and views. A view is a title, a sentence, a summary in words, its numbers as a table, and
drawings. A drawing is a dictionary whose `kind` names its module in draw/, where the rest is described:

    figure    the one figure that matters, with its interval, on a line
    lines     curves over a common x
    heat      a square matrix of counts, shaded by the fraction of the row
    rows      named rows with bars, or with dots and intervals, in columns
    points    one dot for each example, what was said over what it was
    dots      a mark for each of many things by two numbers, some joined by steps
    histogram counts between edges, coloured by sign
    fractions one bar cut into named parts
    gallery   examples with their images or their columns
    prose     words: sentences, terms with their values, a command to copy, a table to show
    tiles     many small maps side by side: filters, feature maps, heads
    matrix    one map with a name for every row and column
    equation  small maps with signs between them: A · B = C
    overlay   images with a map laid over each
    boundary  a plane of two features: the model's answer on it, and every neuron's own map of it
    neurons   a small network by its numbers, and the sums of the neuron that is chosen
    convolve  a window that slides over numbers, its products, and the cell that they sum to
    tree      blocks within blocks, one line each with bars; a click opens a line
    choice    one of several drawings, chosen from a list or along a slider
    tokens    words in the order in which they are read, shaded by a number, or by what a chosen one attends to
    thoughts  the steps that a search for a solution proposed, in columns by depth, with what is true of each
    scatter   a mark for each example or word near those like it, and its nearest neighbours
    graph     nodes and the links between them, as wide as what travels along them

Maps are lists of rows of numbers, null where there is none. `scale` says what they mean: "signed" (two hues that meet
at 0) or "amount" (one hue from 0 or the least value on). `range` says what the strongest colour is: of each map by
itself ("unit"), of the maps with the same `group` ("layer"), or of all ("global"); whoever looks can choose another.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

Drawing = dict[str, Any]


class Column(TypedDict):
    """A column of a table: its head, and how its values are written: text, count, fraction, number, or already."""

    name: str
    format: str


class Table(TypedDict):
    """Numbers as they are, not as they are written: the drawing formats them."""

    columns: list[Column]
    rows: list[list[Any]]


class View(TypedDict):
    """One part of the page."""

    id: str
    title: str
    says: str  # one sentence: what is shown and how to read it
    summary: str  # what there is to see, in words
    table: Table
    drawings: list[Drawing]
    read: NotRequired[str]  # how to read it, in a few sentences
    misleads: NotRequired[str]  # where it misleads


class Page(TypedDict):
    """The whole page; its first view is the head."""

    title: str
    views: list[View]
    colophon: str


def table(columns: dict[str, str], rows: list[list[Any]]) -> Table:
    """A table from `{name: format}` and its rows."""
    return {"columns": [{"name": n, "format": f} for n, f in columns.items()], "rows": rows}
