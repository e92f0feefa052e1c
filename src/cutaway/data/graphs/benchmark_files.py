"""The Planetoid format of Cora, CiteSeer and PubMed: eight files ind.NAME.*, mostly Python 2 pickles.

x, tx and allx are sparse features of the training, test and all non-test nodes. y, ty and ally are their one-hot
classes. graph lists the neighbors of each node. test.index gives the node of each row of tx. The first 140 (120, 60)
nodes are for training, the next 500 for validation, and those of test.index for the test.

The TU format of graph data sets: NAME_A.txt with an edge on each line, and one file for each other property.

Nodes are numbered from 1 through all graphs. NAME_graph_indicator.txt holds the graph of each node,
NAME_graph_labels.txt the class of each graph (NAME_graph_attributes.txt its numbers). NAME_node_labels.txt and
NAME_node_attributes.txt describe nodes, NAME_edge_labels.txt and NAME_edge_attributes.txt edges. README.txt is not
read.

In-memory graphs of PyTorch Geometric: an object with x, edge_index, y and split masks.

PyTorch Geometric is not imported: any object with these attributes works.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import torch

from ...core.errors import DataError, Problem
from ...core.files import read_bytes
from ..dataset_base import to_numpy
from ..datasets.formats import read_pickle
from ..splits import Rows
from ..tables.table_files import Table, format_count
from .csv_files import files_digest
from .raw import Edges, RawGraphs

PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
VALIDATION = 500  # validation nodes, which follow those for training
CLASS = "class"
NAMES = {  # classes in column order, identified by their number of nodes
    "cora": (
        *("Theory", "Reinforcement_Learning", "Genetic_Algorithms", "Neural_Networks"),
        *("Probabilistic_Methods", "Case_Based", "Rule_Learning"),
    )
}


def read_planetoid(path: Path) -> RawGraphs:
    """Read the graph in a folder of Planetoid files. Raises DataError if one is missing or they are inconsistent."""
    name = sorted(p.name for p in path.iterdir() if p.name.startswith("ind."))[0].split(".")[1]
    files = {part: path / f"ind.{name}.{part}" for part in PARTS}
    absent = [file.name for file in files.values() if not file.is_file()]
    if absent:
        raise DataError(f"{path} lacks {', '.join(absent)} of the Planetoid files of {name}.", fix="Add them.")
    read: dict[str, Any] = {part: read_pickle(file) for part, file in files.items() if part != "test.index"}
    try:
        return _graph(name, read, _numbers(files["test.index"]), files_digest(list(files.values())))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise DataError(
            f"The files ind.{name}.* in {path} do not fit together: {type(error).__name__} {error}.",
            fix="Take them from their source again.",
        ) from error


def _graph(name: str, read: dict[str, Any], order: npt.NDArray[np.int64], digest: str) -> RawGraphs:
    """Assemble the graph. Rows of tx go to the nodes in test.index; gaps have neither features nor class."""
    train, known = len(read["y"]), len(read["ally"])
    tests = np.sort(order)
    nodes = int(max(tests.max() + 1, known + len(tests)))
    width = read["allx"]["shape"][1]
    matrix = np.zeros((nodes, width), np.float32)
    matrix[:known] = _dense(read["allx"])
    matrix[order] = _dense(read["tx"])
    hot = np.zeros((nodes, read["ally"].shape[1]), np.int64)
    hot[:known] = read["ally"]
    hot[order] = read["ty"]
    labelled = hot.sum(1) > 0
    names = NAMES.get(name, tuple(str(k) for k in range(hot.shape[1])))
    classes = [names[k] if known else None for k, known in zip(hot.argmax(1), labelled)]
    edges, repeated = _edges(read["graph"], nodes)
    notes = []
    if repeated:
        notes.append(f"{repeated:,} edges are listed several times in ind.{name}.graph and are taken once.")
    if not labelled.all():
        alone = int((~labelled).sum())
        notes.append(f"{alone:,} nodes have neither features nor a class in the files; they stay in the graph.")
    return RawGraphs(
        title=name,
        edges=edges,
        names=[f"node {i}" for i in range(nodes)],
        matrix=matrix,
        targets=Table("", pl.DataFrame({CLASS: pl.Series(classes, dtype=pl.String)})),
        target=CLASS,
        target_kind="category",
        splits={"train": np.arange(train), "val": np.arange(train, min(train + VALIDATION, known)), "test": tests},
        scaled="rows",
        notes=tuple(notes),
        digest=digest,
    )


def _dense(sparse: dict[str, Any]) -> npt.NDArray[np.float32]:
    """Convert a sparse CSR matrix to a dense (n, F) array."""
    height, width = sparse["shape"]
    found = np.zeros((height, width), np.float32)
    rows = np.repeat(np.arange(height), np.diff(sparse["indptr"]))
    found[rows, sparse["indices"]] = sparse["data"]
    return found


def _edges(graph: dict[int, list[int]], nodes: int) -> tuple[Edges, int]:
    """Return the distinct edges in both directions, and the number of duplicate entries."""
    sources = np.repeat(list(graph), [len(ends) for ends in graph.values()])
    targets = np.array([end for ends in graph.values() for end in ends], np.int64)
    if len(targets) and (min(sources.min(), targets.min()) < 0 or max(sources.max(), targets.max()) >= nodes):
        raise ValueError(f"an edge leads to a node that is none of the {nodes}")
    listed = sources * nodes + targets
    both = np.unique(np.concatenate([listed, targets * nodes + sources]))
    return np.stack([both // nodes, both % nodes]), len(listed) - len(np.unique(listed))


def _numbers(path: Path) -> npt.NDArray[np.int64]:
    try:
        return np.array([int(line) for line in read_bytes(path).decode("utf-8").split()], np.int64)
    except (ValueError, UnicodeDecodeError) as error:
        raise DataError(f"{path} does not hold a number on each line: {error}.") from error


GRAPH_CLASS, LABEL, ATTRIBUTE = "class", "node label", "attribute"
EDGE_LABEL = "edge label"


def read_tu(path: Path) -> RawGraphs:
    """Read the graphs in a folder of TU files. Raises DataError, with file and line, if they are inconsistent."""
    name = sorted(p.name for p in path.iterdir() if p.name.endswith("_A.txt"))[0].removesuffix("_A.txt")
    indicator = path / f"{name}_graph_indicator.txt"
    files = [path / f"{name}_A.txt", indicator]
    of_graph = _whole(indicator, 1)[:, 0]
    nodes, graphs = len(of_graph), int(of_graph.max())
    edges = _whole(files[0], 2)
    outside = np.flatnonzero(((edges < 1) | (edges > nodes)).any(1))
    if len(outside):
        problems = [
            Problem(f"{files[0].name}, line {i + 1}", f"{edges[i, 0]}, {edges[i, 1]} names a node that is not there")
            for i in outside
        ]
        raise DataError(
            f"{format_count(len(problems), 'edge')} of {files[0]} cannot be: nodes are 1 to {nodes}.", problems
        )
    empty = np.setdiff1d(np.arange(1, graphs + 1), of_graph)
    if len(empty) or of_graph.min() < 1:
        problem = f"no node of graph {empty[0]}" if len(empty) else f"a node of graph {of_graph.min()}"
        raise DataError(f"{indicator} has {problem}, and graphs are numbered from 1, each with nodes.")
    ends = edges.T - 1
    across = np.flatnonzero(of_graph[ends[0]] != of_graph[ends[1]])
    if len(across):
        raise DataError(f"{files[0].name}, line {across[0] + 1}: the edge leads from one graph to another.")
    known: dict[str, dict[str, pl.Series]] = {"node": {}, "edge": {}}  # columns of nodes and of edges
    for what, count in (("node", nodes), ("edge", len(edges))):
        for kind, title in ((f"{what}_labels", f"{what} label"), (f"{what}_attributes", ATTRIBUTE)):
            file = path / f"{name}_{kind}.txt"
            if file.is_file():
                files += [file] if what == "node" else []  # edge attributes enter the fingerprint in dataset.py
                for k, cells in enumerate(zip(*_cells(file, count))):
                    # the prefix makes a label a category and not a number
                    written = [f"{c}" if title == ATTRIBUTE else f"label {c}" for c in cells]
                    known[what][f"{title} {k + 1}"] = pl.Series(written)
    columns, of_edges = known["node"], known["edge"]
    targets: dict[str, pl.Series] = {}
    for kind, title in (("graph_labels", GRAPH_CLASS), ("graph_attributes", "graph attribute")):
        file = path / f"{name}_{kind}.txt"
        if file.is_file():
            files.append(file)
            for k, cells in enumerate(zip(*_cells(file, graphs))):
                targets[title if title == GRAPH_CLASS else f"{title} {k + 1}"] = pl.Series(cells, dtype=pl.String)
    return RawGraphs(
        title=name,
        edges=np.ascontiguousarray(ends),
        names=[f"node {i + 1}" for i in range(nodes)],
        table=Table("", pl.DataFrame(columns)) if columns else None,
        columns=tuple(columns),
        edge_table=Table("", pl.DataFrame(of_edges)) if of_edges else None,
        graph=of_graph - 1,
        graph_names=[f"graph {i + 1}" for i in range(graphs)],
        targets=Table("", pl.DataFrame(targets)) if targets else None,
        target=next(iter(targets), None),
        target_kind="category" if GRAPH_CLASS in targets else "number",
        digest=files_digest(files),
    )


def _cells(path: Path, count: int | None = None) -> list[list[str]]:
    """Read comma-separated cells of each line. Raises DataError if lines differ or are not `count`."""
    try:
        lines = read_bytes(path).decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} could not be read as text: {error}.", fix="A TU folder needs this file.") from error
    words = [[word.strip() for word in line.split(",")] for line in lines]
    while words and words[-1] == [""]:
        words.pop()
    odd = next((i for i, row in enumerate(words) if len(row) != len(words[0])), None)
    if odd is not None:
        raise DataError(f"{path.name}, line {odd + 1}: {len(words[odd])} values, {len(words[0])} expected.")
    if count is not None and len(words) != count:
        raise DataError(f"{path} has {len(words):,} lines, and {count:,} are expected.", fix="Was it cut short?")
    if not words:
        raise DataError(f"{path} is empty.")
    return words


def _whole(path: Path, width: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Read lines of `width` integers, (n, width)."""
    words = _cells(path)
    found = np.zeros((len(words), width), np.int64)
    for i, row in enumerate(words):
        try:
            found[i] = [int(word) for word in row]
        except ValueError as error:
            raise DataError(f"{path.name}, line {i + 1}: {', '.join(row)!r} is not {width} whole numbers.") from error
    return found


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
