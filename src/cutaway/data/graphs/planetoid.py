"""The Planetoid format of Cora, CiteSeer and PubMed: eight files ind.NAME.*, mostly Python 2 pickles.

x, tx and allx are sparse features of the training, test and all non-test nodes. y, ty and ally are their one-hot
classes. graph lists the neighbors of each node. test.index gives the node of each row of tx. The first 140 (120, 60)
nodes are for training, the next 500 for validation, and those of test.index for the test.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from ...core.errors import DataError
from ...core.files import read_bytes
from ..datasets.pickle_reader import read_pickle
from ..tables.table_files import Table
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
