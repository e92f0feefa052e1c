"""The network, block by block, down to the arithmetic of each layer: as a view, and as the text of `cutaway show`."""

from __future__ import annotations

import functools
import html
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..checkpoints.custom import CustomPreset
from ..core.errors import InputShapeError, shorten_repr
from ..core.memory_budget import build_on_meta
from ..draw.description import Drawing, Table, View, table
from ..draw.number_format import UNKNOWN, count, percent, plural, shape_text
from ..inspect.ablation import as_tuple
from ..inspect.attribution.explained_output import input_kind
from ..inspect.layers import LayerTable, Row, block_range_name, group_equal_blocks, layer_table
from ..models.registry import preset
from .subject import Subject

COLUMNS = {"parameters": "count", "MACs": "count", "memory, kB": "number", "sees, pixels": "count"}
MEMORY = 2  # index of the memory column
LINES = 14  # most lines that are open initially
Node = dict[str, Any]


def draw_network(subject: Subject) -> View:
    """Return the layers of the model, for one example of the size of the subject's first."""
    layers = subject_layers(subject)
    drawing = tree_drawing(layers, subject.model)
    nodes = subject.kind == "graph"
    of = (
        f"a graph of shape {shape_text(layers.input)}"
        if nodes
        else f"one example of shape {shape_text(layers.input[1:])}"
    )
    return View(
        id="network",
        title="Network",
        says=f"Output shape, parameters and cost of each block, for {of}; click a block to open it, down to its "
        "products.",
        summary=summary(layers),
        table=layers_as_table(layers, element_size(subject.model)),
        drawings=[drawing],
    )


def subject_layers(subject: Subject) -> LayerTable:
    """Return the layer table for the first example, on the meta device if the model allows it."""
    inputs = subject.inputs if subject.kind == "graph" else tuple(x[:1] for x in subject.inputs)
    if isinstance(subject.preset, CustomPreset):
        return layer_table(subject.model, *inputs)
    try:
        return _meta_layer_table(subject.preset.name, subject.config, tuple((tuple(x.shape), x.dtype) for x in inputs))
    except (RuntimeError, NotImplementedError):
        return layer_table(subject.model, *inputs)


@functools.lru_cache(maxsize=4)
def _meta_layer_table(name: str, config: Any, inputs: tuple[tuple[tuple[int, ...], torch.dtype], ...]) -> LayerTable:
    """Return the layer table of a network on the meta device. Raises RuntimeError if the model needs real values."""
    model = build_on_meta(preset(name), config)
    floating = next((dtype for _, dtype in inputs if dtype.is_floating_point), None)
    model = model.to(floating) if floating is not None else model
    return layer_table(model, *(torch.empty(shape, dtype=dtype, device="meta") for shape, dtype in inputs))


def summary(layers: LayerTable) -> str:
    """Return the size of the network, and the block with most of it."""
    at_least = "" if layers.complete else "at least "
    said = f"{plural(layers.parameters, 'parameter')}; {at_least}{count(layers.multiply_adds)} MACs (multiply-adds)."
    blocks = [row for row in layers.at(1) if row.shape or row.parameters]
    for name, what, whole in (
        ("parameters", "parameters", layers.parameters), ("MACs", "multiply_adds", layers.multiply_adds),
    ):  # fmt: skip
        most = max(blocks, key=lambda row: getattr(row, what) or 0)
        if whole and len(blocks) > 1:
            part = percent((getattr(most, what) or 0) / whole)
            said += f" {most.name} has the most {name} of all blocks, {part}."
    return said


def layers_as_table(layers: LayerTable, element: int) -> Table:
    """Return every layer as a row of a table; `element` is the size of a number in bytes."""
    rows = [[row.name, row.type, _output_shape(row), *_cells(row, element)] for row in layers.rows]
    return table({"layer": "text", "type": "text", "gives": "text"} | COLUMNS, rows)


# --- the drawing ----------------------------------------------------------------------------------------------


def tree_drawing(layers: LayerTable, model: nn.Module) -> Drawing:
    """Return the layers as a tree.

    Each line has a name, its type and output shape, a number for each column, and either child lines or the text of its
    arithmetic.
    """
    blocks: dict[str, Row] = {}  # the outermost row of each name, with the totals of its content
    for depth in range(1, layers.depth + 1):
        blocks = {row.name: row for row in layers.at(depth)} | blocks
    rows = _nodes(layers.rows, 0, blocks, dict(model.named_modules()), element_size(model))
    kept = [k for k in range(len(COLUMNS)) if any(row["cells"][k] for row in rows)]
    _select_columns(rows, kept)
    return {
        "kind": "tree",
        "title": "Output, parameters and cost of each block",
        "columns": [{"name": name, "format": f} for k, (name, f) in enumerate(COLUMNS.items()) if k in kept],
        "rows": rows,
        "open": _open_blocks(rows),
    }


def element_size(model: nn.Module) -> int:
    """Return the bytes of one number of the first parameter; 4 for a model without parameters."""
    return next((p.element_size() for p in model.parameters()), 4)


def _nodes(
    rows: Iterable[Row], depth: int, blocks: Mapping[str, Row], modules: Mapping[str, nn.Module], element: int
) -> list[Node]:
    """Return the lines of rows whose names agree in their first `depth` parts."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(".".join(row.name.split(".")[: depth + 1]), []).append(row)
    found = []
    for name, inside in groups.items():
        if len(inside) == 1 and inside[0].name.count(".") <= depth:
            found.append(_leaf(inside[0], modules.get(inside[0].name), element))
        else:
            deeper = [row for row in inside if row.name != name]
            own = [_leaf(row, modules.get(name), element, "(itself)") for row in inside if row.name == name]
            found.append(_block(blocks[name], [*own, *_nodes(deeper, depth + 1, blocks, modules, element)]))
    return _merge_repeats(found)


def _leaf(row: Row, module: nn.Module | None, element: int, called: str = "") -> Node:
    return {
        "name": called or row.name.rpartition(".")[2],
        "full": f"{row.name} {called}".strip(),
        "note": _note(row),
        "cells": _cells(row, element),
        "words": arithmetic(row, module),
    }


def _block(row: Row, inside: list[Node]) -> Node:
    memory = [node["cells"][MEMORY] for node in inside]
    return {
        "name": row.name.rpartition(".")[2],
        "full": row.name,
        "note": _note(row),
        "cells": [row.parameters, row.multiply_adds, round(sum(m or 0 for m in memory), 3), row.receptive_field],
        "inside": inside,
    }


def _cells(row: Row, element: int) -> list[float | None]:
    """Return the numbers of a layer in the order of COLUMNS."""
    memory = round(math.prod(row.shape) * element / 1000, 3) if row.shape else None
    return [row.parameters, row.multiply_adds, memory, row.receptive_field]


def _merge_repeats(nodes: list[Node]) -> list[Node]:
    """Merge consecutive blocks with the same content into one line after the first of them."""
    folded: list[Node] = []
    for node in nodes:
        last = folded[-1] if folded else None
        if last and node["name"].isdigit() and _content_key(node) == last.get("likeness", _content_key(last)):
            if "likeness" not in last:
                last = {
                    "name": node["name"], "full": node["full"], "cells": [0, 0, 0, None], "times": 0,
                    "same": last["full"], "note": last["note"], "likeness": _content_key(last),
                }  # fmt: skip
                folded.append(last)
            last["times"] += 1
            last["cells"] = [*(_sum(a, b) for a, b in zip(last["cells"][:3], node["cells"][:3])), node["cells"][3]]
            last["until"] = node["name"]
        else:
            folded.append(node)
    for node in folded:
        if node.pop("likeness", None) is not None:
            until = node.pop("until")
            each = plural(node["times"], "block")
            node["words"] = [f"{each}, same structure as {node['same']}"]
            node["name"] = node["name"] if node["times"] == 1 else f"{node['name']} to {until}"
    return folded


def _content_key(node: Node) -> tuple[Any, ...]:
    """Return a key that is equal for equal blocks: all values except names and receptive field."""
    inside = tuple((child["name"], _content_key(child)) for child in node.get("inside", ()))
    return (node["note"], *node["cells"][:3], inside)


def _sum(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else round(a + b, 3)


def _select_columns(rows: list[Node], columns: list[int]) -> None:
    """Keep only these columns of every line."""
    for row in rows:
        row["cells"] = [row["cells"][k] for k in columns]
        _select_columns(row.get("inside", []), columns)


def _open_blocks(rows: list[Node]) -> list[str]:
    """Return the blocks that are open initially, outermost first, up to LINES lines."""
    opened: list[str] = []
    lines, level = len(rows), rows
    while level:
        blocks = [row for row in level if row.get("inside")]
        more = sum(len(row["inside"]) for row in blocks)
        if lines + more > LINES:
            break
        opened += [row["full"] for row in blocks]
        lines += more
        level = [child for row in blocks for child in row["inside"]]
    return opened


def _note(row: Row) -> str:
    """Return the type and output shape of a line."""
    return _output_shape(row) if row.type == "operation" else f"{row.type}  {_output_shape(row)}".strip()


def _output_shape(row: Row) -> str:
    """Return the output shape without the batch; for a matrix product, the first axis has its heads."""
    if not row.shape:
        return "not called"
    return shape_text(row.shape if row.name.rpartition(".")[2].startswith("bmm()") else row.shape[1:])


# --- arithmetic -----------------------------------------------------------------------------------------------


def arithmetic(row: Row, module: nn.Module | None) -> list[str]:
    """Return the calculation of a layer's counts, one line each for weights, biases and products.

    Every product that is written equals the counted number; otherwise only the count is given.
    """
    weights = dict(module.named_parameters(recurse=False)) if module is not None else {}
    said = [_parameter_count(name, weight) for name, weight in weights.items()]
    if row.multiply_adds is None:
        return [*said, f"the MACs of {', '.join(row.unknown)} are unknown"]
    if row.multiply_adds == 0:
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            said.append("table lookup, no products")
        elif not said:
            said.append("no weights and no products")
        return said
    return [*said, _products(row, module, weights)]


def _parameter_count(name: str, weight: Tensor) -> str:
    """Return the size of a parameter: "weight: 64·3·7·7 = 9 408"."""
    shape = "·".join(map(count, weight.shape))
    return f"{name}: {shape} = {count(weight.numel())}" if weight.ndim > 1 else f"{name}: {count(weight.numel())}"


def _products(row: Row, module: nn.Module | None, weights: Mapping[str, Tensor]) -> str:
    """Return the calculation of the MACs, "147 weights × 64·112·112 numbers = 118 013 952 MACs".

    If no calculation gives the counted number, return only the number.
    """
    assert row.multiply_adds is not None, "unknown MACs have no products"
    total = f"{count(row.multiply_adds)} MACs"
    gives = row.shape if row.shape and (row.shape[0] > 1 or row.type == "operation") else row.shape[1:]
    outputs = f"{'·'.join(map(count, gives))} numbers"
    matrices = sum(weight.numel() for weight in weights.values() if weight.ndim > 1)
    if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d) and row.shape:
        kernel = "×".join(map(str, module.kernel_size))
        each = module.weight[0].numel() if module.weight.ndim else 0
        if each * math.prod(row.shape) == row.multiply_adds:
            inside = module.in_channels // module.groups
            return (
                f"{kernel} window × {plural(inside, 'channel')} = {plural(each, 'product')} for each of "
                f"{outputs} = {total}"
            )
    if matrices and row.multiply_adds % matrices == 0:
        places = row.multiply_adds // matrices
        if places == 1:
            return f"each weight once: {total}"
        spatial = row.shape[1:-1] if len(row.shape) > 2 else ()
        where = f" ({'·'.join(map(count, spatial))})" if len(spatial) > 1 and math.prod(spatial) == places else ""
        return f"{plural(matrices, 'weight')} × {plural(places, 'position')}{where} = {total}"
    if row.shape and row.multiply_adds % math.prod(row.shape) == 0:
        each = row.multiply_adds // math.prod(row.shape)
        return f"{plural(each, 'product')} for each of {outputs} = {total}"
    return total


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
        raise InputShapeError(
            f"Invalid model of type {type(model).__name__}: must be a torch.nn.Module. For names of models, use "
            "`cutaway show`."
        )
    inputs = as_tuple(example)
    if strange := next((x for x in inputs if not isinstance(x, Tensor)), None):
        raise InputShapeError(f"Invalid example {shorten_repr(strange)}: must be tensors, as forward takes them.")
    name, graph = type(model).__name__, input_kind(inputs) == "graph"
    one: tuple[Any, ...] = inputs if graph else tuple(x[:1] for x in inputs)
    shape = shape_text(one[0].shape if graph else one[0].shape[1:])
    try:
        layers = layer_table(model, *one)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise InputShapeError(f"{name} does not accept an example of shape {shape}: {error}") from error
    return Description(name, layers, f"a graph of shape {shape}" if graph else f"one example of shape {shape}")
