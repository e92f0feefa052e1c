"""Graphs in tables: nodes.csv with a row for each node, edges.csv with a row for each edge.

The first column of nodes.csv (or the one named id) holds the node names. edges.csv refers to them in its first two
columns (or those named source and target). Its other columns, such as `weight`, are edge attributes. Edges are
undirected. If nodes.csv has a column `graph`, the examples are graphs. Their targets are in graphs.csv, with a row for
each graph, or in a column of nodes.csv that is constant within each graph. Node names need to be unique only within a
graph if edges.csv has a column `graph` too.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import polars as pl

from ...core.errors import DataError, Problem
from ...core.files import read_bytes
from ..folders import SPLIT_FOLDERS
from ..splits import Rows
from ..tables.delimited import Form
from ..tables.table_files import Table, format_count, read_table
from ..unusable_examples import leave_out
from .raw import Edges, RawGraphs, add_reverse_edges, reverse_edge_note

NODES, EDGES, GRAPHS = "nodes.csv", "edges.csv", "graphs.csv"
GRAPH, SPLIT = "graph", "split"


def read_tables(
    path: Path,
    target: str | None,
    form: Form = Form(),  # noqa: B008  # it is frozen
    drop: bool = False,
) -> RawGraphs:
    """Read the graph or graphs in a folder with nodes.csv and edges.csv.

    With `drop`, edges to unknown nodes are left out. Raises DataError that names every edge to an unknown node and
    every duplicate node name.
    """
    if not (path / NODES).is_file():
        raise DataError(
            f"{path} has {EDGES} and no {NODES}.",
            fix=f"Add {NODES} with a row for each node: its name, what is known of it, and the column to predict.",
        )
    if not (path / EDGES).is_file():
        raise DataError(
            f"{path} has {NODES} and no {EDGES}.",
            fix=f"Add {EDGES} with a row for each edge: the names of the two nodes that it joins.",
        )
    nodes = read_table(path / NODES, form)
    identity = _named(nodes, "id", 0)
    apart = GRAPH in nodes.columns and target != GRAPH
    edges = read_table(path / EDGES, form)
    if len(edges.columns) < 2:
        raise DataError(f"{path / EDGES} has one column, and an edge has a source and a target.")
    keyed = apart and GRAPH in edges.columns
    names = _keys(nodes, identity, keyed)
    _reject_twice(nodes, names, identity)
    ends, described_by, kept, dropped = resolve_edges(edges, names, keyed, nodes.name, drop)
    notes = [*nodes.notes, *edges.notes, *dropped]
    linked, origin = add_reverse_edges(ends)
    notes += reverse_edge_note(len(origin), f"Edges of {EDGES}")
    rows = kept[np.concatenate([np.arange(len(kept)), origin])]
    lines = None if edges.lines is None else edges.lines[rows]
    files = [path / NODES, path / EDGES]
    graph: Rows | None = None
    graph_names: list[str] = []
    targets = nodes
    if apart:
        graph, graph_names = _graphs(nodes, linked)
        targets = _graph_targets(path, nodes, graph, graph_names, target, form)
        files += [path / GRAPHS] if (path / GRAPHS).is_file() else []
    splits = read_split_column(targets)
    aside = {identity, target} | ({GRAPH} if apart else set())
    if splits is not None and targets.name == nodes.name:
        aside.add(SPLIT)
    described = tuple(c for c in nodes.columns if c not in aside)
    return RawGraphs(
        title=path.name,
        edges=linked,
        names=nodes.frame[identity].to_list(),
        table=nodes,
        columns=described,
        edge_table=Table(edges.name, edges.frame.select(described_by)[rows], lines, form=edges.form)
        if described_by
        else None,
        graph=graph,
        graph_names=graph_names,
        targets=targets,
        splits=splits,
        notes=tuple(notes),
        digest=files_digest(files),
    )


def files_digest(files: list[Path]) -> str:
    """Compute the sha256 of the names and contents of files."""
    digest = hashlib.sha256()
    for file in files:
        line = f"{hashlib.sha256(read_bytes(file)).hexdigest()}  {file.name}\n"
        digest.update(line.encode(errors="surrogateescape"))  # a name need not be UTF-8
    return digest.hexdigest()


def _named(table: Table, name: str, place: int) -> str:
    """Return the column of this name, else the one at this position."""
    return next((c for c in table.columns if c.strip().casefold() == name), table.columns[place])


def _keys(table: Table, column: str, keyed: bool) -> pl.Series:
    """Return the key of each row, (n,): its name, prefixed by the graph if names are unique only within a graph."""
    cells = table.frame[column].str.strip_chars()
    if not keyed:
        return cells
    graphs = table.frame[GRAPH].str.strip_chars()
    return pl.select(pl.concat_str([graphs, cells], separator="\0")).to_series()


def _reject_twice(nodes: Table, names: pl.Series, column: str) -> None:
    first: dict[str, int] = {}
    problems = []
    for i, name in enumerate(names):
        if not name:
            problems.append(Problem(nodes.where(i, column), "the node has no name"))
        elif name in first:
            shown = name.rpartition("\0")[2]
            problems.append(Problem(nodes.where(i, column), f"{shown!r} is the name of {nodes.place(first[name])} too"))
        first.setdefault(name, i)
    if problems:
        raise DataError(
            f"{format_count(len(problems), 'node')} of {nodes.title} cannot be told apart.",
            problems,
            f"Each row needs a name of its own in the column {column!r}.",
        )


def resolve_edges(
    edges: Table, names: pl.Series, keyed: bool, nodes: str, drop: bool = False
) -> tuple[Edges, list[str], Rows, list[str]]:
    """Resolve the end nodes of edges.

    Returns node indices (2, E), the attribute columns, the rows of these edges, and a note on what `drop` left out.
    Raises DataError that names every end that is not in `names`.
    """
    columns = [c for c in edges.columns if not (keyed and c == GRAPH)]
    lowered = {c.strip().casefold(): c for c in columns}
    named = [lowered.get("source"), lowered.get("target")]
    ends = [str(c) for c in named] if all(named) else columns[:2]
    number = pl.DataFrame({"name": names, "number": np.arange(len(names))})
    found = []
    problems: dict[tuple[int, str], Problem] = {}
    for column in ends:
        keys = pl.DataFrame({"name": _keys(edges, column, keyed)})
        numbers = keys.join(number, on="name", how="left", maintain_order="left")["number"]
        for i in np.flatnonzero(numbers.is_null().to_numpy()):
            given = edges.frame[column][int(i)]
            what = f"{given!r} is no node of {nodes}" if given else "the node is missing"
            problems[int(i), column] = Problem(edges.where(int(i), column), what)
        found.append(numbers.fill_null(0).to_numpy())
    if problems and not drop:
        raise DataError(
            f"{format_count(len(problems), 'end')} of edges of {edges.title} lead to nodes that are not there.",
            [problems[key] for key in sorted(problems)],
            f"Add the nodes to {nodes}, or take the edges out; in training missing=drop leaves them out.",
        )
    bad = {row: problem for (row, _), problem in sorted(problems.items(), reverse=True)}
    notes = leave_out([bad[row] for row in sorted(bad)], len(edges), f"edges of {edges.title}", "drop")
    kept = np.setdiff1d(np.arange(len(edges)), list(bad)).astype(np.int64)
    return np.stack(found).astype(np.int64)[:, kept], [c for c in columns if c not in ends], kept, notes


def _graphs(nodes: Table, edges: Edges) -> tuple[Rows, list[str]]:
    """Return the graph index of each node, and the graph names in order of first occurrence."""
    cells = nodes.frame[GRAPH].str.strip_chars()
    names = cells.unique(maintain_order=True).to_list()
    number = {name: k for k, name in enumerate(names)}
    graph = np.array([number[cell] for cell in cells], np.int64)
    across = np.flatnonzero(graph[edges[0]] != graph[edges[1]])
    if len(across):
        source, target = edges[:, across[0]]
        raise DataError(
            f"{format_count(len(across), 'edge')} of {EDGES} lead from one graph to another, for example from "
            f"{nodes.place(int(source))} to {nodes.place(int(target))}.",
            fix=f"Graphs are apart from each other: fix the edges or the column {GRAPH!r}.",
        )
    return graph, names


def _graph_targets(path: Path, nodes: Table, graph: Rows, names: list[str], target: str | None, form: Form) -> Table:
    """Return a table with a row for each graph in the order of `names`, from graphs.csv or nodes.csv."""
    if (path / GRAPHS).is_file():
        listed = read_table(path / GRAPHS, form)
        identity = _named(listed, GRAPH, 0) if GRAPH in listed.columns else _named(listed, "id", 0)
        place = {name: i for i, name in enumerate(listed.frame[identity].str.strip_chars())}
        absent = [name for name in names if name not in place]
        if absent or len(place) < len(listed):
            what = f"no row for the graph {absent[0]!r}" if absent else "several rows for one graph"
            raise DataError(f"{path / GRAPHS} has {what}.", fix="It needs one row for each graph of nodes.csv.")
        rows = [place[name] for name in names]
        lines = None if listed.lines is None else listed.lines[rows]
        return Table(listed.name, listed.frame[rows].drop(identity), lines, form=listed.form)
    first = np.unique(graph, return_index=True)[1]
    lines = None if nodes.lines is None else nodes.lines[first]
    shared = [c for c in nodes.columns if c in (target, SPLIT)]
    for column in shared:
        cells = nodes.frame[column].to_numpy()
        odd = np.flatnonzero(cells != cells[first][graph])
        if len(odd):
            raise DataError(
                f"{nodes.where(int(odd[0]), column)}: {cells[odd[0]]!r}, and the first node of its graph has "
                f"{cells[first][graph[odd[0]]]!r}. Examples are graphs, as the column {GRAPH!r} says.",
                fix=f"Give each graph one {column}; graphs.csv can hold them, a row for each graph.",
            )
    return Table(nodes.name, nodes.frame[first].select(shared), lines, form=nodes.form)


def read_split_column(table: Table) -> dict[str, Rows] | None:
    """Return the rows of each split from the column `split`, if there is one. Raises DataError for other values."""
    if SPLIT not in table.columns:
        return None
    cells = table.text(SPLIT)
    found: dict[str, list[int]] = {}
    for i, cell in enumerate(cells):
        if cell is None:
            continue
        split = SPLIT_FOLDERS.get(cell.casefold())
        if split is None:
            raise DataError(
                f"{table.where(i, SPLIT)}: {cell!r} is no split.",
                fix="The column says train, val or test, or nothing. If it is something else, rename it.",
            )
        found.setdefault(split, []).append(i)
    return {split: np.array(rows, np.int64) for split, rows in found.items()}
