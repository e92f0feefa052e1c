"""The layer table as text, as `cutaway show` prints it and `cutaway.describe` returns it."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ..core.errors import ModelError, shorten_repr
from ..draw.number_format import UNKNOWN, count, shape_text
from ..inspect.ablation import as_tuple
from ..inspect.attribution.target import input_kind
from ..inspect.layers import LayerTable, Row, block_range_name, group_equal_blocks, layer_table

ROWS = 60  # most rows of the layer table; deeper layers are merged into their blocks beyond that
TITLES = ("layer", "type", "output", "parameters", "MACs", "sees")
RIGHT = TITLES[2:]  # right-aligned columns of numbers
WIDTH = 80  # characters per line of the sentences below


@dataclass(frozen=True)
class LayerTableText:
    """A layer table as text: its columns, a line for each layer and one for the total, and sentences below."""

    titles: tuple[str, ...]
    lines: list[tuple[str, ...]]  # the last is the total
    below: list[str]


def format_table(layers: LayerTable, example: str) -> LayerTableText:
    """Return the table as text, in at most 60 lines if merging blocks can achieve it.

    `example` describes one example. The column of receptive fields is omitted if no layer has one.
    """
    for depth in range(layers.depth, 0, -1):
        rows = layers.at(depth)
        if len(lines := _lines(rows)) <= ROWS:
            break
    at_least = "" if layers.complete else "at least "
    total = ("in all", "", "", count(layers.parameters), at_least + count(layers.multiply_adds), "")
    fields, frames = any(row.receptive_field for row in rows), any(row.frames for row in rows)
    shown = len(TITLES) if fields else -1
    seen = f"; sees: receptive field in {'frames×' if frames else ''}pixels" if fields else ""
    below = [f"for {example}; MACs (multiply-adds) of convolutions and matrix products{seen}"]
    below += [f"{row.name}: the MACs of {', '.join(row.unknown)} are unknown" for row in rows if row.unknown]
    return LayerTableText(TITLES[:shown], [line[:shown] for line in (*lines, total)], below)


def _lines(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return the rows as text; of consecutive equal blocks, the first is shown with the number of the others."""
    lines: list[tuple[str, ...]] = []
    for (_, first), *others in group_equal_blocks(rows):
        lines += map(_line, first)
        if others:
            inside = [row for _, of_one in others for row in of_one]
            cost = sum(row.multiply_adds or 0 for row in inside)
            parameters = sum(row.parameters for row in inside)
            lines.append((block_range_name(others), "the same", "", count(parameters), count(cost), ""))
    return lines


def _line(row: Row) -> tuple[str, ...]:
    """Return one layer as text, with empty cells for counts of 0."""
    called = bool(row.shape)  # if not, its parent used its weights, or it is unused
    cost = UNKNOWN if row.multiply_adds is None else count(row.multiply_adds)
    return (
        row.name,
        row.type,
        shape_text(row.shape[1:]) if called else "not called",
        count(row.parameters) if row.parameters else "",
        cost if row.multiply_adds != 0 else "",
        shape_text([n for n in (row.frames, row.receptive_field) if n]) if row.receptive_field else "",
    )


class Description:
    """Layer table of a model: output shape, parameters, MACs and receptive field of each layer.

    It prints as text, and as an HTML table in a notebook. `layers` contains the numbers.
    """

    def __init__(self, name: str, layers: LayerTable, example: str) -> None:
        self.name, self.layers = name, layers
        self._words = format_table(layers, example)

    @property
    def parameters(self) -> int:
        """Return the number of parameters of the model."""
        return self.layers.parameters

    @property
    def multiply_adds(self) -> int:
        """Return the MACs of one example; a lower bound unless `layers.complete`."""
        return self.layers.multiply_adds

    def __repr__(self) -> str:
        words = self._words
        table = [words.titles, *words.lines]
        widths = [max(map(len, column)) for column in zip(*table)]
        rows = [
            "  ".join(
                cell.rjust(width) if title in RIGHT else cell.ljust(width)
                for cell, width, title in zip(line, widths, words.titles)
            ).rstrip()
            for line in table
        ]
        below = [part for sentence in words.below for part in textwrap.wrap(sentence, WIDTH)]
        return "\n".join([self.name, *rows, *below])

    def _repr_html_(self) -> str:
        """Return the table as HTML."""

        def row(line: Sequence[str], tag: str) -> str:
            sides = ["right" if title in RIGHT else "left" for title in self._words.titles]
            cells = (f'<{tag} style="text-align: {side}">{html.escape(c)}</{tag}>' for c, side in zip(line, sides))
            return f"<tr>{''.join(cells)}</tr>"

        *lines, total = self._words.lines
        return (
            f"<table><caption>{html.escape(self.name)}</caption><thead>{row(self._words.titles, 'th')}</thead>"
            f"<tbody>{''.join(row(line, 'td') for line in lines)}</tbody><tfoot>{row(total, 'th')}</tfoot></table>"
            f"<p>{'<br>'.join(map(html.escape, self._words.below))}</p>"
        )


def describe(model: nn.Module, example: Tensor | Sequence[Tensor]) -> Description:
    """Describe the layers of any module for one example.

    The model runs once, in evaluation mode without gradients, and is left unchanged.

    Args:
        model: The module to describe.
        example: The argument of its forward, shape (N, …), or several arguments in a list. Only the first example of
            a batch is used; a graph is used whole.

    Returns:
        The layers with their output shapes, parameters, MACs and receptive fields.

    Raises:
        ModelError: If the model is not a module or cannot take the example.
    """
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"Invalid model of type {type(model).__name__}: must be a torch.nn.Module. For names of models, use "
            "`cutaway show`."
        )
    inputs = as_tuple(example)
    if strange := next((x for x in inputs if not isinstance(x, Tensor)), None):
        raise ModelError(f"Invalid example {shorten_repr(strange)}: must be tensors, as forward takes them.")
    name, graph = type(model).__name__, input_kind(inputs) == "graph"
    one: tuple[Any, ...] = inputs if graph else tuple(x[:1] for x in inputs)
    shape = shape_text(one[0].shape if graph else one[0].shape[1:])
    try:
        layers = layer_table(model, *one)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise ModelError(f"{name} does not accept an example of shape {shape}: {error}") from error
    return Description(name, layers, f"a graph of shape {shape}" if graph else f"one example of shape {shape}")
