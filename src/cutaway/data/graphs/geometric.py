"""In-memory graphs of PyTorch Geometric: an object with x, edge_index, y and split masks.

PyTorch Geometric is not imported: any object with these attributes works.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import polars as pl
import torch

from ...core.errors import DataError
from ..splits import Rows
from ..tables.table_files import Table
from ..tensors import to_numpy
from .raw import RawGraphs

TARGET = "y"
MASKS = {"train": "train_mask", "val": "val_mask", "test": "test_mask"}
NOT_READ = ("edge_weight", "pos")


def read_data(data: Any) -> RawGraphs:
    """Read the graph, or the batch of graphs, of a Data object. y may be absent.

    Raises DataError if its tensors are inconsistent.
    """
    edges = read_edges(data, "the graph")
    x = getattr(data, "x", None)
    count = len(x) if x is not None else int(getattr(data, "num_nodes", 0) or 0)
    if not count:
        raise DataError("The graph has no nodes.")
    if edges.ndim != 2 or len(edges) != 2 or (edges.size and (edges.min() < 0 or edges.max() >= count)):
        raise DataError(
            f"edge_index has the shape {edges.shape} and nodes up to {edges.max() if edges.size else 0}, and the graph "
            f"has {count:,} nodes, numbered from 0."
        )
    batch = getattr(data, "batch", None)
    graph = None if batch is None else to_array(batch).astype(np.int64)
    examples = count if graph is None else int(graph.max()) + 1
    y = getattr(data, "y", None)
    if y is not None and len(y) != examples:
        raise DataError(
            f"y has {len(y):,} targets, and there are {examples:,} {'graphs' if graph is not None else 'nodes'}."
        )
    notes = [f"{name} of the graph is not read." for name in NOT_READ if getattr(data, name, None) is not None]
    splits, masked = _splits(data, examples)
    matrix = None if x is None else to_array(x).astype(np.float32).reshape(count, -1)
    of_edges = getattr(data, "edge_attr", None)
    attributes = None if of_edges is None else to_array(of_edges).reshape(len(of_edges), -1)
    if attributes is not None and len(attributes) != edges.shape[1]:
        raise DataError(f"edge_attr describes {len(attributes):,} edges, and edge_index has {edges.shape[1]:,}.")
    digest = hashlib.sha256(edges.astype("<i8").tobytes())
    for array in (matrix, None if y is None else to_array(y)):
        digest.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
    return RawGraphs(
        title="the graph in memory",
        edges=edges.astype(np.int64),
        names=[f"node {i}" for i in range(count)],
        matrix=matrix,
        edge_table=None if attributes is None else _columns(attributes),
        graph=graph,
        graph_names=[] if graph is None else [f"graph {i}" for i in range(examples)],
        targets=None if y is None else _targets(to_array(y)),
        target=TARGET,
        target_kind=None if y is None else "number" if to_array(y).dtype.kind == "f" else "category",
        splits=splits,
        notes=(*notes, *masked),
        digest=digest.hexdigest(),
    )


def _columns(attributes: np.ndarray[Any, Any]) -> Table:
    """Convert edge attributes (E, D) to a table of text."""
    cells = {f"edge_attr {k + 1}": [str(value) for value in column] for k, column in enumerate(attributes.T.tolist())}
    return Table("", pl.DataFrame({name: pl.Series(values, dtype=pl.String) for name, values in cells.items()}))


def _targets(y: np.ndarray[Any, Any]) -> Table:
    """Convert one target for each example to a table of text."""
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise DataError(f"y has the shape {y.shape}, and each example has one target, (n,).")
    missing = np.isnan(y) if y.dtype.kind == "f" else y < 0
    cells = [None if gone else str(value) for value, gone in zip(y.tolist(), missing)]
    return Table("", pl.DataFrame({TARGET: pl.Series(cells, dtype=pl.String)}))


def _splits(data: Any, examples: int) -> tuple[dict[str, Rows] | None, list[str]]:
    """Return the examples of each split from the masks, and a note if a mask holds several splits."""
    found: dict[str, Rows] = {}
    notes = []
    for split, name in MASKS.items():
        mask = getattr(data, name, None)
        if mask is None:
            continue
        mask = to_array(mask).astype(bool)
        if mask.ndim == 2:
            notes.append(f"{name} holds {mask.shape[1]} splits, and the first is taken.")
            mask = mask[:, 0]
        if mask.shape != (examples,):
            raise DataError(f"{name} has the shape {mask.shape}, and there are {examples:,} examples.")
        found[split] = np.flatnonzero(mask)
    return (found if "train" in found else None), notes


def read_edges(data: Any, name: str) -> np.ndarray[Any, Any]:
    """Return the edges of a graph as an array (2, E) of node indices. Raises DataError if it has none."""
    if data.edge_index is None:
        raise DataError(
            f"edge_index of {name} is None: it has the shape (2, E).",
            fix="A graph without edges has torch.empty(2, 0, dtype=torch.int64).",
        )
    return to_array(data.edge_index)


def to_array(tensor: Any) -> np.ndarray[Any, Any]:
    """Convert a tensor, or anything that NumPy accepts, to an array."""
    return to_numpy(tensor) if isinstance(tensor, torch.Tensor) else np.asarray(tensor)
