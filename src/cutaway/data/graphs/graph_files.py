"""Reading of graphs in all supported formats.

GraphML: one file whose nodes are examples, or a folder of files, one for each example.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ...core.errors import DataError, Problem
from ...core.files import require_regular_file
from ..folders import list_entries
from ..tables.delimited import Form
from ..tables.table_files import TABLE_SUFFIXES, Table
from ..unusable_examples import leave_out
from .csv_files import GRAPH, SPLIT, files_digest, read_split_column
from .raw import Edges, RawGraphs

FORMS = (
    "a folder with nodes.csv and edges.csv, a .graphml file or a folder of them, a Planetoid folder (ind.NAME.x, …), "
    "a TU folder (NAME_A.txt, …), or a table of molecules with smiles=COLUMN"
)


def is_table(source: Any) -> bool:
    """Return whether a source is a single table, judged by its name."""
    return isinstance(source, str | Path) and Path(source).suffix.lower() in TABLE_SUFFIXES


def has_tu_files(names: Sequence[str]) -> bool:
    """Return whether a folder's file names include NAME_A.txt and another file of the same NAME."""
    stems = [name.removesuffix("A.txt") for name in names if name.endswith("_A.txt")]
    return any(name.startswith(stem) and name != f"{stem}A.txt" for stem in stems for name in names)


def read_graphs(
    source: Any,
    target: str | None = None,
    form: Form = Form(),  # noqa: B008  # it is frozen
    smiles: str = "",
    drop: bool = False,
) -> RawGraphs:
    """Read a graph or graphs from a path or an object in memory.

    `target` is the column to predict, if requested. With `smiles`, the column of a table with SMILES, graphs are
    molecules. `drop` leaves out invalid molecules, edges to unknown nodes, and files of a folder that are not graphs.
    Raises DataError that names every bad row.
    """
    if isinstance(source, RawGraphs):
        return source
    if hasattr(source, "edge_index"):
        from .benchmark_files import read_data

        return read_data(source)
    path = source if isinstance(source, Table) else Path(source).expanduser()
    if smiles:
        from .molecules import read_molecules

        return read_molecules(path, smiles, form, drop)
    if isinstance(path, Table):
        raise DataError(f"A table holds no graph, unless smiles=COLUMN names molecules. A graph is {FORMS}.")
    if path.is_file() and path.suffix.lower() == ".graphml":
        # MERGED

        return read_graphml(path, target)
    if not path.is_dir():
        raise DataError(f"There is no graph at {str(source)!r}.", fix=f"A graph is {FORMS}.")
    names = [p.name for p in list_entries(path) if p.is_file()]
    if "edges.csv" in names or "nodes.csv" in names:
        from .csv_files import read_tables

        return read_tables(path, target, form, drop)
    if any(name.startswith("ind.") for name in names):
        from .benchmark_files import read_planetoid

        return read_planetoid(path)
    if has_tu_files(names):
        from .benchmark_files import read_tu

        return read_tu(path)
    if any(name.endswith(".graphml") for name in names):
        # MERGED

        return read_graphml(path, target, drop)
    raise DataError(f"{path} holds no graph.", fix=f"A graph is {FORMS}.")


def read_graphml(path: Path, target: str | None, drop: bool = False) -> RawGraphs:
    """Read the graph of a .graphml file, or the graphs in a folder of such files. Undirected edges lead both ways.

    Raises DataError if a file is not complete GraphML; with `drop` such files of a folder are left out.
    """
    if path.is_dir():
        return _read_many(sorted(p for p in path.glob("*.graphml") if p.is_file()), path, drop)
    graph = _read(path)
    rows = [attributes for _, attributes in graph.nodes(data=True)]
    table = _table(rows, path.name)
    splits = read_split_column(table) if target != SPLIT else None
    edges, described = _edges([graph], path.name)
    return RawGraphs(
        title=path.name,
        edges=edges,
        edge_table=described,
        names=[str(name) for name in graph.nodes],
        table=table,
        columns=tuple(c for c in table.columns if c != target and not (splits is not None and c == SPLIT)),
        targets=table,
        splits=splits,
        digest=files_digest([path]),
    )


def _read_many(files: Sequence[Path], path: Path, drop: bool) -> RawGraphs:
    graphs: list[Any] = []
    problems: list[Problem] = []
    for file in files:
        try:
            graphs.append(_read(file))
        except DataError as error:
            problems += error.problems
            graphs.append(None)
        else:
            problems += [] if len(graphs[-1]) else [Problem(str(file), "it has no nodes")]
    notes = leave_out(problems, len(files), "graphs", "drop" if drop else "error")
    files = [file for file, graph in zip(files, graphs) if graph]
    graphs = [graph for graph in graphs if graph]
    edges, described = _edges(graphs, "edges")
    table = _table([a for graph in graphs for _, a in graph.nodes(data=True)], "nodes")
    targets = _table([graph.graph for graph in graphs], "graphs")
    return RawGraphs(
        title=path.name,
        edges=edges,
        edge_table=described,
        names=[f"{file.name}: {name}" for file, graph in zip(files, graphs) for name in graph.nodes],
        table=table,
        columns=tuple(c for c in table.columns if c != GRAPH),
        graph=np.repeat(np.arange(len(graphs)), [len(graph) for graph in graphs]),
        graph_names=[file.name for file in files],
        targets=targets,
        splits=read_split_column(targets),
        notes=tuple(notes),
        digest=files_digest(list(files)),
    )


def _read(path: Path) -> Any:
    """Read a file with networkx."""
    import networkx  # imported here because it is slow to import

    require_regular_file(path)
    try:
        graph = networkx.read_graphml(path)
    except Exception as error:  # the reader raises arbitrary exceptions for malformed files
        if isinstance(error, MemoryError):
            raise
        raise DataError(
            "A graph cannot be read:",
            [Problem(str(path), f"it is no whole GraphML file ({error})")],
            "Was it cut short? Write it from its source again.",
        ) from error
    for of, key in ((graph.nodes, "node_default"), (graph.edges, "edge_default")):
        usual = graph.graph.pop(key, {})  # defaults for nodes or edges without the attribute
        for *_, attributes in of(data=True):
            attributes.update({key: value for key, value in usual.items() if key not in attributes})
    return graph


def _edges(graphs: Sequence[Any], name: str) -> tuple[Edges, Table | None]:
    """Return the edges (2, E) of graphs side by side, undirected ones in both directions, and their attributes if any.

    An edge's id is not an attribute.
    """
    ends: list[Edges] = []
    attributes_of_edges: list[Mapping[str, Any]] = []
    start = 0
    for graph in graphs:
        number = {node: start + i for i, node in enumerate(graph.nodes)}
        listed = np.array([(number[a], number[b]) for a, b, *_ in graph.edges], np.int64).reshape(-1, 2).T
        rows = [{k: v for k, v in attributes.items() if k != "id"} for *_, attributes in graph.edges(data=True)]
        apart = np.flatnonzero(listed[0] != listed[1]) if not graph.is_directed() else np.empty(0, np.int64)
        ends += [listed, listed[::-1, apart]]
        attributes_of_edges += [*rows, *(rows[i] for i in apart)]
        start += len(graph)
    table = _table(attributes_of_edges, name)
    return np.concatenate(ends, axis=1), table if table.columns else None


def _table(rows: Sequence[Mapping[str, Any]], name: str) -> Table:
    """Convert the attributes of nodes, edges or graphs to a table of text with the union of all columns."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = {c: [None if row.get(c) is None else str(row[c]) for row in rows] for c in map(str, columns)}
    frame = pl.DataFrame({c: pl.Series(c, values, dtype=pl.String) for c, values in cells.items()})
    return Table(name, frame)
