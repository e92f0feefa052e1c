"""Readers of PyTorch Geometric graphs: one graph whose nodes are the examples, or a list of graphs."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from ...core.errors import DataError
from ..graphs.benchmark_files import NOT_READ, read_data, read_edges, to_array
from .container import Graphs

BESIDE = ("x", "edge_attr", "y")  # attributes of nodes, edges and the graph


def is_graph(thing: Any) -> bool:
    """Return whether the object is PyTorch Geometric's Data, or has its attributes."""
    return hasattr(thing, "edge_index")


def read_graphs(thing: Any) -> Graphs | None:
    """Read a graph, or a list of graphs; None if the object is neither. Raises DataError if the graphs do not match."""
    if is_graph(thing):
        return Graphs(name="graph", graphs=read_data(thing))
    if isinstance(thing, list | tuple) and thing and all(map(is_graph, thing)):
        return Graphs(name="graphs", graphs=read_data(collate_graphs(thing)))
    return None


def collate_graphs(graphs: Sequence[Any]) -> Any:
    """Collate graphs into a batch like PyTorch Geometric: an object with the attributes of Data."""
    sizes = [_nodes(graph) for graph in graphs]
    starts = np.cumsum([0, *sizes])
    for i, size in enumerate(sizes):
        if not size:
            raise DataError(f"Graph {i + 1} has no nodes: leave it out.")
    edges = [read_edges(graph, f"graph {i + 1}").reshape(2, -1) for i, graph in enumerate(graphs)]
    for i, (own, size) in enumerate(zip(edges, sizes)):
        if own.size and (own.min() < 0 or own.max() >= size):
            raise DataError(f"edge_index of graph {i + 1} names node {own.max()}, and it has {size:,} nodes, from 0.")
    batch = SimpleNamespace(
        edge_index=np.concatenate([own + start for own, start in zip(edges, starts)], axis=1),
        num_nodes=int(starts[-1]),
        batch=np.repeat(np.arange(len(graphs)), sizes),
    )
    for name in BESIDE:
        found = [getattr(graph, name, None) for graph in graphs]
        absent = [i for i, one in enumerate(found) if one is None]
        if len(absent) == len(graphs):
            continue
        if absent:
            raise DataError(f"Graph {absent[0] + 1} has no {name}, and others have: give it to all, or to none.")
        setattr(batch, name, _concatenate(name, [to_array(one) for one in found]))
    for name in NOT_READ:  # reported to the user
        setattr(batch, name, next((1 for graph in graphs if getattr(graph, name, None) is not None), None))
    return batch


def _concatenate(name: str, arrays: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Concatenate an attribute of all graphs."""
    if name == "y":
        many = next((i for i, y in enumerate(arrays) if y.size != 1), None)
        if many is not None:
            raise DataError(
                f"y of graph {many + 1} has the shape {arrays[many].shape}: of a list of graphs each has one target.",
                fix="Targets of nodes are learned from one graph; give y[:, k] of several targets.",
            )
        return np.array([y.reshape(()) for y in arrays])
    flat = [array.reshape(len(array), -1) for array in arrays]
    odd = next((i for i, one in enumerate(flat) if one.shape[1] != flat[0].shape[1]), None)
    if odd is not None:
        first, other = flat[0].shape[1], flat[odd].shape[1]
        raise DataError(f"{name} of graph 1 has {first} features, and of graph {odd + 1} it has {other}.")
    return np.concatenate(flat)


def _nodes(graph: Any) -> int:
    x = getattr(graph, "x", None)
    return len(x) if x is not None else int(getattr(graph, "num_nodes", 0) or 0)
