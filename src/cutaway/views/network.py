"""The network, block by block, down to the arithmetic of each layer."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..checkpoints.custom import CustomPreset
from ..draw.description import Drawing, Table, View, table
from ..draw.number_format import count, percent, plural, shape_text
from ..inspect.layers import LayerTable, Row, layer_table, on_meta
from ..models.registry import preset
from .subject import Subject

SAYS = "layers with shapes, parameters, MACs (multiply-adds), memory and receptive field, down to their arithmetic"
READ = (
    "Each row is a block; click it to open the blocks within, down to the products that its counts are computed from. "
    "The bars of a column share one scale. Consecutive identical blocks are one row. Long bars show where the cost is: "
    "parameters are stored and learned, MACs (multiply-adds) are the compute of an example, memory is what training "
    "stores for it."
)
MISLEADS = (
    "MACs count convolutions and matrix products only; normalizations, activations and softmax take time too, and "
    "small layers are slower than their counts suggest. Memory is the output of every layer, stored once, in the "
    "precision of the weights: frameworks store more, or less with recomputation. The receptive field is an upper "
    "bound: the center has far more influence (Luo et al. 2016, https://arxiv.org/abs/1701.04128)."
)
OPTIONS: dict[str, str] = {}

COLUMNS = {"parameters": "count", "MACs": "count", "memory, kB": "number", "sees, pixels": "count"}
MEMORY = 2  # index of the memory column
LINES = 14  # most lines that are open initially
Node = dict[str, Any]


def suits(subject: Subject) -> bool:
    """Return True: every model has layers."""
    return True


def view(subject: Subject) -> View:
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
    model = on_meta(preset(name), config)
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
    """Return the size of a parameter in bytes."""
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
