"""The TU format of graph data sets: NAME_A.txt with an edge on each line, and one file for each other property.

Nodes are numbered from 1 through all graphs. NAME_graph_indicator.txt holds the graph of each node,
NAME_graph_labels.txt the class of each graph (NAME_graph_attributes.txt its numbers). NAME_node_labels.txt and
NAME_node_attributes.txt describe nodes, NAME_edge_labels.txt and NAME_edge_attributes.txt edges. README.txt is not
read.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from ...core.errors import DataError, Problem
from ...core.files import read_bytes
from ..tables.table_files import Table, format_count
from .csv_files import files_digest
from .raw import RawGraphs

CLASS, LABEL, ATTRIBUTE = "class", "node label", "attribute"
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
    for kind, title in (("graph_labels", CLASS), ("graph_attributes", "graph attribute")):
        file = path / f"{name}_{kind}.txt"
        if file.is_file():
            files.append(file)
            for k, cells in enumerate(zip(*_cells(file, graphs))):
                targets[title if title == CLASS else f"{title} {k + 1}"] = pl.Series(cells, dtype=pl.String)
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
        target_kind="category" if CLASS in targets else "number",
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
