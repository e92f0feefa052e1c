"""Graph files in all supported formats.

GraphML: one file whose nodes are examples, or a folder of files, one for each example.

Graphs in tables: nodes.csv with a row for each node, edges.csv with a row for each edge.

The first column of nodes.csv (or the one named id) holds the node names. edges.csv refers to them in its first two
columns (or those named source and target). Its other columns, such as `weight`, are edge attributes. Edges are
undirected. If nodes.csv has a column `graph`, the examples are graphs. Their targets are in graphs.csv, with a row for
each graph, or in a column of nodes.csv that is constant within each graph. Node names need to be unique only within a
graph if edges.csv has a column `graph` too.

The Planetoid format of Cora, CiteSeer and PubMed: eight files ind.NAME.*, mostly Python 2 pickles.

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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import torch

from ...core.errors import (
    DataError,
    FolderLayoutError,
    Problem,
    PythonDataError,
    UnsupportedDataError,
)
from ...core.files import empty_file_error, exists, missing_file_error, read_bytes, require_regular_file
from ..dataset_base import to_numpy
from ..datasets.formats import read_pickle
from ..findings import leave_out
from ..folders import SPLIT_FOLDERS, list_entries
from ..splits import Rows
from ..tables.delimited import Form
from ..tables.table_files import TABLE_SUFFIXES, Table, format_count, read_table
from .splits import Edges, RawGraphs, add_reverse_edges, files_digest, reverse_edge_note

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
        return read_data(source)
    path = source if isinstance(source, Table) else Path(source).expanduser()
    if smiles:
        from .molecules import read_molecules

        return read_molecules(path, smiles, form, drop)
    if isinstance(path, Table):
        raise UnsupportedDataError(f"A table holds no graph, unless smiles=COLUMN names molecules. A graph is {FORMS}.")
    if path.is_file() and path.suffix.lower() == ".graphml":
        return read_graphml(path, target)
    if not exists(path):
        raise missing_file_error(path, fix=f"A graph is {FORMS}.")
    if not path.is_dir():
        raise UnsupportedDataError(f"{path} is not a graph.", fix=f"A graph is {FORMS}.")
    names = [p.name for p in list_entries(path) if p.is_file()]
    if "edges.csv" in names or "nodes.csv" in names:
        return read_tables(path, target, form, drop)
    if any(name.startswith("ind.") for name in names):
        return read_planetoid(path)
    if has_tu_files(names):
        return read_tu(path)
    if any(name.endswith(".graphml") for name in names):
        return read_graphml(path, target, drop)
    raise UnsupportedDataError(f"{path} holds no graph.", fix=f"A graph is {FORMS}.")


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
            [Problem(str(path), f"it is not a complete GraphML file ({error})")],
            "Was it cut short? Write it again.",
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
        raise FolderLayoutError(
            f"{path} has {EDGES} and no {NODES}.",
            fix=f"Add {NODES} with a row for each node: its name, its attributes, and the column to predict.",
        )
    if not (path / EDGES).is_file():
        raise FolderLayoutError(
            f"{path} has {NODES} and no {EDGES}.",
            fix=f"Add {EDGES} with a row for each edge: the names of the two nodes that it joins.",
        )
    nodes = read_table(path / NODES, form)
    identity = _named(nodes, "id", 0)
    apart = GRAPH in nodes.columns and target != GRAPH
    edges = read_table(path / EDGES, form)
    if len(edges.columns) < 2:
        raise FolderLayoutError(f"{path / EDGES} has one column, and an edge has a source and a target.")
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
            what = f"{given!r} is not a node of {nodes}" if given else "the node is missing"
            problems[int(i), column] = Problem(edges.where(int(i), column), what)
        found.append(numbers.fill_null(0).to_numpy())
    if problems and not drop:
        raise FolderLayoutError(
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
        raise FolderLayoutError(
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
            raise FolderLayoutError(
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
                f"{table.where(i, SPLIT)}: {cell!r} is not a split.",
                fix="The column says train, val or test, or nothing. If it is something else, rename it.",
            )
        found.setdefault(split, []).append(i)
    return {split: np.array(rows, np.int64) for split, rows in found.items()}


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
        raise FolderLayoutError(f"{path} lacks {', '.join(absent)} of the Planetoid files of {name}.", fix="Add them.")
    read: dict[str, Any] = {part: read_pickle(file) for part, file in files.items() if part != "test.index"}
    try:
        return _graph(name, read, _numbers(files["test.index"]), files_digest(list(files.values())))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise FolderLayoutError(
            f"The files ind.{name}.* in {path} do not fit together: {type(error).__name__} {error}.",
            fix="Download them again.",
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
    edges, repeated = _distinct_edges(read["graph"], nodes)
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


def _distinct_edges(graph: dict[int, list[int]], nodes: int) -> tuple[Edges, int]:
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
            f"{format_count(len(problems), 'edge')} of {files[0]} are invalid: nodes are 1 to {nodes}.", problems
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
        raise empty_file_error(path)
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
        raise PythonDataError("The graph has no nodes.")
    if edges.ndim != 2 or len(edges) != 2 or (edges.size and (edges.min() < 0 or edges.max() >= count)):
        raise PythonDataError(
            f"edge_index has the shape {edges.shape} and nodes up to {edges.max() if edges.size else 0}, and the graph "
            f"has {count:,} nodes, numbered from 0."
        )
    batch = getattr(data, "batch", None)
    graph = None if batch is None else to_array(batch).astype(np.int64)
    examples = count if graph is None else int(graph.max()) + 1
    y = getattr(data, "y", None)
    if y is not None and len(y) != examples:
        raise PythonDataError(
            f"y has {len(y):,} targets, and there are {examples:,} {'graphs' if graph is not None else 'nodes'}."
        )
    notes = [f"{name} of the graph is not read." for name in NOT_READ if getattr(data, name, None) is not None]
    splits, masked = _splits(data, examples)
    matrix = None if x is None else to_array(x).astype(np.float32).reshape(count, -1)
    of_edges = getattr(data, "edge_attr", None)
    attributes = None if of_edges is None else to_array(of_edges).reshape(len(of_edges), -1)
    if attributes is not None and len(attributes) != edges.shape[1]:
        raise PythonDataError(f"edge_attr describes {len(attributes):,} edges, and edge_index has {edges.shape[1]:,}.")
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
        raise PythonDataError(f"y has the shape {y.shape}, and each example has one target, (n,).")
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
            raise PythonDataError(f"{name} has the shape {mask.shape}, and there are {examples:,} examples.")
        found[split] = np.flatnonzero(mask)
    return (found if "train" in found else None), notes


def read_edges(data: Any, name: str) -> np.ndarray[Any, Any]:
    """Return the edges of a graph as an array (2, E) of node indices. Raises DataError if it has none."""
    if data.edge_index is None:
        raise PythonDataError(
            f"edge_index of {name} is None: it has the shape (2, E).",
            fix="A graph without edges has torch.empty(2, 0, dtype=torch.int64).",
        )
    return to_array(data.edge_index)


def to_array(tensor: Any) -> np.ndarray[Any, Any]:
    """Convert a tensor, or anything that NumPy accepts, to an array."""
    return to_numpy(tensor) if isinstance(tensor, torch.Tensor) else np.asarray(tensor)
