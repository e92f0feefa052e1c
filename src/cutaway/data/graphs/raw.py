"""Graphs as read from their files, before they are split or preprocessed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from ...core.errors import DataError
from ...core.files import read_bytes
from ..splits import Rows
from ..tables.table_files import Table

Edges = npt.NDArray[np.int64]  # (2, E): sources, then targets
Matrix = npt.NDArray[np.float32]  # (V, F)


@dataclass(frozen=True)
class RawGraphs:
    """Nodes, edges and targets. Examples are the nodes or, if `graph` assigns nodes to graphs, the graphs.

    Node features are columns of a table, a matrix, or absent.
    """

    title: str  # name in messages: cora/, molecules.graphml
    edges: Edges
    names: Sequence[str]  # (V,) display names
    table: Table | None = None  # (V rows) node attributes as text
    columns: tuple[str, ...] = ()  # columns of `table` that are node features
    matrix: Matrix | None = None
    edge_table: Table | None = None  # (E rows) edge attributes as text
    graph: Rows | None = None  # (V,) the graph of each node, from 0
    graph_names: Sequence[str] = ()
    targets: Table | None = None  # a row for each example; None without targets
    target: str | None = None  # the column of `targets` to predict, if the format defines it
    target_kind: str | None = None  # category or number, if the format defines the type of that column
    splits: dict[str, Rows] | None = None  # examples of each predefined split, if there are any
    scaled: str = ""  # scaling of the matrix: "rows" divides each node's features by their sum
    keys: Sequence[str] = ()  # identity keys: examples with equal keys are duplicates; empty if unknown
    notes: tuple[str, ...] = ()
    digest: str = ""  # sha256 of what was read

    @property
    def nodes(self) -> int:
        """Return the number of nodes V."""
        return len(self.names)

    @property
    def many(self) -> bool:
        """Return whether examples are graphs."""
        return self.graph is not None

    @property
    def examples(self) -> Sequence[str]:
        """Return the display name of each example."""
        return self.graph_names if self.many else self.names

    def degrees(self) -> npt.NDArray[np.int64]:
        """Return the in-degree of each node, (V,)."""
        return np.bincount(self.edges[1], minlength=self.nodes)


def add_reverse_edges(edges: Edges) -> tuple[Edges, Rows]:
    """Add the missing reverse edges, and return the edge that each added one reverses.

    An edge that is listed twice gets two reverse edges. A self-loop is its own reverse.
    """
    if not edges.size:
        return edges, np.empty(0, np.int64)
    nodes = int(edges.max()) + 1
    there, back = edges[0] * nodes + edges[1], edges[1] * nodes + edges[0]
    kinds, counts = np.unique(there, return_counts=True)
    wanted, wanted_counts = np.unique(back, return_counts=True)
    place = np.searchsorted(kinds, wanted).clip(max=len(kinds) - 1)
    present = np.where(kinds[place] == wanted, counts[place], 0)
    lacking = np.maximum(wanted_counts - present, 0)
    missing = np.repeat(wanted, lacking)
    added = np.stack([missing // nodes, missing % nodes])
    # of duplicate edges, the last ones are those without a reverse
    ends = np.cumsum(wanted_counts)
    within = np.arange(len(missing)) - np.repeat(np.cumsum(lacking) - lacking, lacking)
    origin = np.argsort(back, kind="stable")[np.repeat(ends - lacking, lacking) + within]
    return np.concatenate([edges, added], axis=1), origin


def reverse_edge_note(added: int, what: str) -> list[str]:
    """Return a note if reverse edges were added."""
    if not added:
        return []
    return [f"{what} lead both ways: {added:,} edges were added that lead back where only one direction was listed."]


def merge_graphs(graphs: Sequence[RawGraphs]) -> RawGraphs:
    """Combine graphs into one with disconnected components. A single graph is returned unchanged.

    Raises DataError if their features differ.
    """
    first, *others = graphs
    if not others:
        return first
    for other in others:
        if (other.many, other.matrix is None) != (first.many, first.matrix is None):
            raise DataError(f"{first.title} and {other.title} are of different forms.", fix="Give them one by one.")
        if first.matrix is not None and other.matrix is not None and first.matrix.shape[1] != other.matrix.shape[1]:
            raise DataError(f"{first.title} and {other.title} describe nodes by different numbers of features.")
    starts = np.cumsum([0, *(g.nodes for g in graphs)])
    firsts = np.cumsum([0, *(len(g.graph_names) for g in graphs)])
    tables = [g.table for g in graphs if g.table is not None]
    of_edges = [g.edge_table for g in graphs if g.edge_table is not None]
    return replace(
        first,
        title=", ".join(g.title for g in graphs),
        edges=np.concatenate([g.edges + start for g, start in zip(graphs, starts)], axis=1),
        names=[f"{g.title}: {name}" for g in graphs for name in g.names],
        table=_stack_tables(tables) if len(tables) == len(graphs) else None,
        edge_table=_stack_tables(of_edges) if len(of_edges) == len(graphs) else None,
        matrix=None if first.matrix is None else np.concatenate([g.matrix for g in graphs if g.matrix is not None]),
        graph=np.concatenate([g.graph + f for g, f in zip(graphs, firsts) if g.graph is not None])
        if first.many
        else None,
        graph_names=[f"{g.title}: {name}" for g in graphs for name in g.graph_names],
        targets=None,
        splits=None,
        notes=tuple(note for g in graphs for note in g.notes),
    )


def _stack_tables(tables: Sequence[Table]) -> Table:
    """Stack the rows of all tables over their common columns."""
    shared = [c for c in tables[0].columns if all(c in t.columns for t in tables)]
    return Table("", pl.concat([t.frame.select(shared) for t in tables]))


def files_digest(files: list[Path]) -> str:
    """Compute the sha256 of the names and contents of files."""
    digest = hashlib.sha256()
    for file in files:
        line = f"{hashlib.sha256(read_bytes(file)).hexdigest()}  {file.name}\n"
        digest.update(line.encode(errors="surrogateescape"))  # a name need not be UTF-8
    return digest.hexdigest()
