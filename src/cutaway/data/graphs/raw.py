"""A graph, or many side by side, as their files hold them: before anything is split or fitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from ...core.errors import DataError
from ..splits import Rows
from ..tables.table_files import Table

Edges = npt.NDArray[np.int64]  # (2, E) sources above targets
Matrix = npt.NDArray[np.float32]  # (V, F)


@dataclass(frozen=True)
class RawGraphs:
    """Nodes, edges and targets. Examples are the nodes or, where `graph` says of which graph each node is, the graphs.

    Nodes are described by columns of a table, by a matrix of numbers, or by nothing.
    """

    title: str  # what a sentence calls it: cora/, molecules.graphml
    edges: Edges
    names: Sequence[str]  # (V,) what a person calls each node
    table: Table | None = None  # (V rows) what is known of each node, as text
    columns: tuple[str, ...] = ()  # those of `table` that describe nodes
    matrix: Matrix | None = None
    edge_table: Table | None = None  # (E rows) what is known of each edge, as text; all its columns describe edges
    graph: Rows | None = None  # (V,) the graph of each node, from 0
    graph_names: Sequence[str] = ()
    targets: Table | None = None  # a row for each example; None where there are none
    target: str | None = None  # the column of `targets` to predict, where the form says which
    target_kind: str | None = None  # category or number, where the form says what that column is
    splits: dict[str, Rows] | None = None  # the examples of each split, where the form comes with splits
    scaled: str = ""  # how the matrix is scaled: rows divides each node's features by their sum
    keys: Sequence[str] = ()  # what two examples that are the same thing have in common, where that can be told
    notes: tuple[str, ...] = ()
    digest: str = ""  # sha256 of what was read

    @property
    def nodes(self) -> int:
        """V."""
        return len(self.names)

    @property
    def many(self) -> bool:
        """Whether examples are graphs."""
        return self.graph is not None

    @property
    def examples(self) -> Sequence[str]:
        """What a person calls each example."""
        return self.graph_names if self.many else self.names

    def degrees(self) -> npt.NDArray[np.int64]:
        """How many edges lead to each node, (V,)."""
        return np.bincount(self.edges[1], minlength=self.nodes)


def both_ways(edges: Edges) -> tuple[Edges, Rows]:
    """The edges with the way back of each that has none, and of which edge each that was added is the way back.

    An edge that is listed twice gets two ways back; a loop is its own way back.
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
    # of an edge that is listed several times, the last ones are those without a way back
    ends = np.cumsum(wanted_counts)
    within = np.arange(len(missing)) - np.repeat(np.cumsum(lacking) - lacking, lacking)
    origin = np.argsort(back, kind="stable")[np.repeat(ends - lacking, lacking) + within]
    return np.concatenate([edges, added], axis=1), origin


def one_way_note(added: int, what: str) -> list[str]:
    """What is said where edges got their way back."""
    if not added:
        return []
    return [f"{what} lead both ways: {added:,} edges were added that lead back where only one direction was listed."]


def side_by_side(graphs: Sequence[RawGraphs]) -> RawGraphs:
    """Several as one whose parts have no edges between them; of one there is nothing to do.

    Raises DataError where they are not described alike.
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
        table=_stacked(tables) if len(tables) == len(graphs) else None,
        edge_table=_stacked(of_edges) if len(of_edges) == len(graphs) else None,
        matrix=None if first.matrix is None else np.concatenate([g.matrix for g in graphs if g.matrix is not None]),
        graph=np.concatenate([g.graph + f for g, f in zip(graphs, firsts) if g.graph is not None])
        if first.many
        else None,
        graph_names=[f"{g.title}: {name}" for g in graphs for name in g.graph_names],
        targets=None,
        splits=None,
        notes=tuple(note for g in graphs for note in g.notes),
    )


def _stacked(tables: Sequence[Table]) -> Table:
    """The rows of all, with the columns that all have."""
    shared = [c for c in tables[0].columns if all(c in t.columns for t in tables)]
    return Table("", pl.concat([t.frame.select(shared) for t in tables]))
