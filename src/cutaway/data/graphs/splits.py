"""Graphs as read from their files, and their splits: nodes of one graph, whole graphs, or node pairs to link.

Neighbors are sampled layer by layer, for graphs that are too large to process whole: after W. L. Hamilton, R. Ying, J.
Leskovec, Inductive representation learning on large graphs, 2017, section 3.1 <https://arxiv.org/abs/1706.02216>, but
without replacement: a node with at most as many neighbors as the sample size keeps all.

Examples of link prediction are linked pairs and absent links. A link is a pair of nodes a < b with an edge in either
direction. See `dataset.py` for held-out links.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import torch
from torch import Tensor

from ...core.errors import UnsupportedDataError
from ...core.files import read_bytes
from ..dataset_base import Batch, Split
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
            raise UnsupportedDataError(
                f"{first.title} and {other.title} are of different forms.", fix="Give them one by one."
            )
        if first.matrix is not None and other.matrix is not None and first.matrix.shape[1] != other.matrix.shape[1]:
            raise UnsupportedDataError(
                f"{first.title} and {other.title} describe nodes by different numbers of features."
            )
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


Row = Callable[[int], dict[str, str] | None]


class NodeSplit(Split):
    """A split of nodes of one graph; a batch is the whole graph, or a sampled subgraph, with the nodes to predict.

    Inputs are x (V, F), edges (2, E) and rows (n,), the indices of the nodes in x. With edge attributes, an empty batch
    vector (0,) and edge_attr (E, D) follow. Every batch holds the same x and edges, so that a model can cache
    results that depend on them.
    """

    def __init__(
        self,
        x: Tensor,
        edges: Tensor,
        rows: Tensor,
        target: Tensor | None,
        names: Sequence[str],
        row: Row | None = None,
        neighbours: Sequence[int] = (),
        notes: Sequence[str] = (),
        edge_attr: Tensor | None = None,
    ) -> None:
        """Store the graph and the examples. `names` and `row` are per example.

        With `neighbours`, and without edge attributes, a batch samples this number of neighbors per layer in training
        and holds all of them in evaluation.
        """
        self.x, self.edges, self.rows, self.target = x, edges, rows, target
        self.neighbours, self.notes = tuple(neighbours), list(notes)
        self.beside = () if edge_attr is None else (torch.empty(0, dtype=torch.int64), edge_attr)
        self._names, self._row = names, row
        self._around = NeighborSampler(edges.numpy(), len(x)) if self.neighbours else None

    def __len__(self) -> int:
        return len(self.rows)

    def at(self, rows: Tensor) -> NodeSplit:
        """Return the same examples at other rows of x."""
        moved = copy.copy(self)
        moved.rows = rows
        return moved

    def plan(self, batch_size: int, generator: torch.Generator | None) -> list[Tensor]:
        """Return batches of nodes in random order; one batch of all nodes for evaluation on the whole graph."""
        if generator is None:
            every = torch.arange(len(self))
            return [every] if self._around is None else list(every.split(batch_size))  # type: ignore[no-untyped-call]
        order = torch.randperm(len(self), generator=generator)
        if batch_size >= len(self):
            return [order]
        batches: list[Tensor] = list(order.split(batch_size))  # type: ignore[no-untyped-call]
        return batches

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield the whole graph or a subgraph around each batch. `seed` samples neighbors; None keeps all."""
        for index in order:
            rows = self.rows[index]
            target = torch.empty(len(index), 0) if self.target is None else self.target[index]
            if self._around is None:
                yield Batch((self.x, self.edges, rows, *self.beside), target)
                continue
            rng = None if seed is None else np.random.default_rng([seed, int(index[0]), len(index)])
            distinct, places = np.unique(rows.numpy(), return_inverse=True)  # a balanced sampler repeats nodes
            nodes, edges = self._around.draw(distinct, self.neighbours, rng)
            asked = torch.from_numpy(places.reshape(rows.shape))
            yield Batch((self.x[torch.from_numpy(nodes)], torch.from_numpy(edges), asked), target)

    def name(self, i: int) -> str:
        """Return the display name of the node."""
        return self._names[i]

    def row(self, i: int) -> dict[str, str] | None:
        """Return the node's row of the original table, if there is one."""
        return self._row(i) if self._row else None


class ConcatenatedGraphs:
    """In-memory graphs whose nodes and edges are concatenated in the order of the graphs."""

    def __init__(
        self,
        x: Tensor,
        edges: Tensor,
        graph: Tensor,
        edge_attr: Tensor | None = None,
        names: Sequence[str] = (),
    ) -> None:
        """Sort nodes and edges by graph. `graph` (V,) is the graph index of each node; each graph has nodes.

        `names` are display names of the nodes, if they have any.
        """
        count = int(graph.max()) + 1
        order = graph.argsort(stable=True)  # nodes sorted by graph
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order))
        of_edges = graph[edges[1]]
        order_of_edges = of_edges.argsort(stable=True)
        self.x, self.edges = x[order], place[edges][:, order_of_edges]
        self.edge_attr = None if edge_attr is None else edge_attr[order_of_edges]
        self.names = [names[i] for i in order.tolist()] if names else []
        self.nodes = torch.bincount(graph, minlength=count)  # nodes per graph, (n,)
        self.links = torch.bincount(of_edges, minlength=count)  # edges per graph, (n,)
        self.first_node = self.nodes.cumsum(0) - self.nodes
        self.first_link = self.links.cumsum(0) - self.links

    def some(self, graphs: Tensor) -> tuple[Tensor, ...]:
        """Return these graphs as a batch:

        x (V, F), edges (2, E), graph indices (V,) from 0 and edge_attr (E, D) if any.
        """
        batch, nodes = _concat_ranges(self.first_node[graphs], self.nodes[graphs])
        of_links, links = _concat_ranges(self.first_link[graphs], self.links[graphs])
        sizes = self.nodes[graphs]
        shift = sizes.cumsum(0) - sizes - self.first_node[graphs]  # from the stored index to that in the batch
        beside = () if self.edge_attr is None else (self.edge_attr[links],)
        return self.x[nodes], self.edges[:, links] + shift[of_links], batch, *beside

    def node_names(self, graphs: Tensor) -> list[str]:
        """Return the node names of these graphs in the order of `some`; empty if nodes have no names."""
        nodes = _concat_ranges(self.first_node[graphs], self.nodes[graphs])[1]
        return [self.names[i] for i in nodes.tolist()] if self.names else []


def _concat_ranges(starts: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Concatenate the ranges start, start + 1, …: returns the range index of each number, and the numbers."""
    owner = torch.arange(len(lengths)).repeat_interleave(lengths)
    within = torch.arange(len(owner)) - (lengths.cumsum(0) - lengths)[owner]
    return owner, starts[owner] + within


class GraphsSplit(Split):
    """A split of whole graphs; a batch holds disconnected graphs side by side.

    Inputs are x (V, F), edges (2, E), empty rows (0,) and the graph index of each node (V,), numbered from 0 in the
    batch. With edge attributes, edge_attr (E, D) follows.
    """

    def __init__(
        self,
        graphs: ConcatenatedGraphs,
        rows: Tensor,
        target: Tensor | None,
        names: Sequence[str],
        row: Row | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        """Store the graphs. `rows` (n,) selects those of this split; `names` and `row` are per example."""
        self.graphs, self.rows, self.target, self.notes = graphs, rows, target, list(notes)
        self._names, self._row = names, row

    def __len__(self) -> int:
        return len(self.rows)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield the graphs of each batch, in its order."""
        del seed
        for index in order:
            x, edges, batch, *beside = self.graphs.some(self.rows[index])
            target = torch.empty(len(index), 0) if self.target is None else self.target[index]
            yield Batch((x, edges, torch.empty(0, dtype=torch.int64), batch, *beside), target)

    def name(self, i: int) -> str:
        """Return the display name of the graph."""
        return self._names[i]

    def node_names(self, examples: Sequence[int]) -> list[str]:
        """Return the display names of these graphs' nodes in batch order; empty if nodes have no names."""
        return self.graphs.node_names(self.rows[torch.as_tensor(examples, dtype=torch.int64)])

    def row(self, i: int) -> dict[str, str] | None:
        """Return the graph's row of the original table, if there is one."""
        return self._row(i) if self._row else None


Nodes = npt.NDArray[np.int64]


class NeighborSampler:
    """Neighbor sampler that indexes the edges of a graph by target node."""

    def __init__(self, edges: Edges, nodes: int) -> None:
        order = np.argsort(edges[1], kind="stable")
        self._sources = edges[0][order]
        self._starts = np.concatenate([[0], np.cumsum(np.bincount(edges[1], minlength=nodes))])
        self._place = np.full(nodes, -1, np.int64)  # index of each node in the current batch; −1 for nodes outside it

    def draw(self, rows: Nodes, counts: Sequence[int], rng: np.random.Generator | None) -> tuple[Nodes, Edges]:
        """Sample a subgraph: distinct nodes (V,), starting with `rows`, and edges (2, E) by index into these nodes.

        For layer k each node reached in the previous layer keeps at most counts[k] of its incoming edges, sampled
        uniformly without replacement, or all of them without `rng`. A network with as many layers computes for `rows`
        the same output as on the whole graph if no edge is left out.

        The outermost nodes need their features but not their neighbors. Their degree, however, affects normalised sums.
        Each of their incoming edges is therefore replaced by one from `rows[0]`. No layer propagates anything over it
        that reaches `rows`.
        """
        nodes, frontier, reached = [rows], rows, len(rows)
        self._place[rows] = np.arange(reached)
        found: list[Edges] = []
        for count in counts:
            sources, targets = self._edges_to(frontier, count, rng)
            new = np.unique(sources[self._place[sources] < 0])
            self._place[new] = np.arange(reached, reached + len(new))
            reached += len(new)
            nodes.append(new)
            found.append(np.stack([self._place[sources], self._place[targets]]))
            frontier = new
        sources, targets = self._edges_to(frontier, counts[-1], rng)
        apart = self._place[targets][sources != targets]  # self-loops are excluded: layers add them
        found.append(np.stack([np.zeros_like(apart), apart]))
        every = np.concatenate(nodes)
        self._place[every] = -1
        return every, np.concatenate(found, axis=1)

    def _edges_to(self, nodes: Nodes, count: int, rng: np.random.Generator | None) -> tuple[Nodes, Nodes]:
        """Return sources and targets of at most `count` incoming edges of each node."""
        starts, degrees = self._starts[nodes], self._starts[nodes + 1] - self._starts[nodes]
        targets = np.repeat(nodes, degrees)
        within = np.arange(len(targets)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
        sources = self._sources[np.repeat(starts, degrees) + within]
        if rng is None or not len(degrees) or degrees.max() <= count:
            return sources, targets
        owner = np.repeat(np.arange(len(nodes)), degrees)
        shuffled = np.lexsort((rng.random(len(targets)), owner))  # random order within each node
        kept = np.sort(shuffled[within < count])
        return sources[kept], targets[kept]


Pairs = npt.NDArray[np.int64]  # (n, 2), the smaller index first
LISTED = 50_000  # up to this many pairs are enumerated for sampling; above, random pairs are tried


class LinkSplit(NodeSplit):
    """A split of node pairs, first linked pairs, then absent links; a batch is the graph and some pairs.

    Inputs are x (V, F), message-passing edges (2, E) and rows (n, 2), the two nodes of each pair. The target (n,) is 1
    for linked pairs.
    """

    def __init__(
        self,
        x: Tensor,
        edges: Tensor,
        links: Pairs,
        absent: Pairs,
        names: Sequence[str],
        known: Edges | None = None,
        neighbours: Sequence[int] = (),
        notes: Sequence[str] = (),
        drawn: int | None = None,
    ) -> None:
        """Store the graph and the pairs. `names` are the node names.

        With a seed `drawn`, absent links are resampled in every training epoch among the pairs that `edges` does not
        link. `known` are all edges, including held-out ones.
        """
        rows = torch.from_numpy(np.concatenate([links, absent]))
        target = torch.cat([torch.ones(len(links), dtype=torch.int64), torch.zeros(len(absent), dtype=torch.int64)])
        super().__init__(x, edges, rows, target, names, None, neighbours, notes)
        self.links, self.known = len(links), edges.numpy() if known is None else known
        self._drawn, self._linked = drawn, encode_pairs(links_from_edges(edges.numpy(), len(x)), len(x))

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield batches as NodeSplit does. With `seed`, the absent links of a training split are resampled."""
        if seed is None or self._drawn is None:
            return super().batches(order, seed)
        rng = np.random.default_rng([self._drawn, seed])
        absent = sample_absent_links(self._linked, len(self.x), len(self) - self.links, rng)
        rows = torch.cat([self.rows[: self.links], torch.from_numpy(absent)])
        return NodeSplit.batches(self.at(rows), order, seed)

    def name(self, i: int) -> str:
        """Return the display names of both nodes."""
        return " – ".join(self.ends(i))

    def ends(self, i: int) -> tuple[str, str]:
        """Return the display names of the two nodes."""
        a, b = self.rows[i].tolist()
        return self._names[a], self._names[b]

    def node_names(self, examples: Sequence[int] = ()) -> list[str]:
        """Return the display names of all nodes, (V,), regardless of `examples`."""
        del examples
        return list(self._names)

    def row(self, i: int) -> dict[str, str] | None:
        """Return None: a pair has no further data."""
        return None

    def whole(self) -> LinkSplit:
        """Return the graph including held-out edges, without pairs."""
        none = np.empty((0, 2), np.int64)
        edges = torch.from_numpy(np.ascontiguousarray(self.known))
        return LinkSplit(self.x, edges, none, none, self._names, None, self.neighbours)

    def with_pairs(self, pairs: Pairs) -> LinkSplit:
        """Return the same graph with other pairs."""
        return LinkSplit(self.x, self.edges, pairs, pairs[:0], self._names, self.known, self.neighbours)

    def are_linked(self, pairs: Pairs) -> npt.NDArray[np.bool_]:
        """Return whether the message-passing graph links each pair in either direction, (n,)."""
        return np.isin(encode_pairs(np.sort(pairs, axis=1), len(self.x)), self._linked)

    def shared_neighbours(self) -> npt.NDArray[np.float64]:
        """Count the common neighbors of each pair in the message-passing graph, (n,)."""
        from scipy.sparse import csr_matrix  # imported here because it is slow to import

        nodes = len(self.x)
        a, b = np.divmod(self._linked, nodes)
        ones = np.ones(2 * len(a))
        near = csr_matrix((ones, (np.concatenate([a, b]), np.concatenate([b, a]))), shape=(nodes, nodes))
        first, second = self.rows.numpy().T
        return np.asarray(near[first].multiply(near[second]).sum(1)).ravel()


def links_from_edges(edges: Edges, nodes: int) -> Pairs:
    """Return the links of edges (2, E), sorted and without duplicates or self-loops, the smaller node first."""
    apart = np.sort(edges[:, edges[0] != edges[1]], axis=0)
    return np.stack(np.divmod(np.unique(encode_pairs(apart.T, nodes)), nodes), 1)


def encode_pairs(pairs: Pairs, nodes: int) -> Rows:
    """Encode each pair as one number, (n,), that preserves the order of pairs."""
    return pairs[:, 0] * nodes + pairs[:, 1]


def sample_absent_links(linked: Rows, nodes: int, count: int, rng: np.random.Generator) -> Pairs:
    """Sample at most `count` distinct node pairs outside `linked`, an array of sorted codes."""
    every = nodes * (nodes - 1) // 2
    count = min(count, every - len(linked))
    if every <= LISTED:
        listed = np.stack(np.triu_indices(nodes, 1), 1).astype(np.int64)
        free = listed[~np.isin(encode_pairs(listed, nodes), linked)]
        return free[rng.permutation(len(free))[:count]]
    found = np.empty(0, np.int64)
    while len(found) < count:
        drawn = np.sort(rng.integers(0, nodes, (2 * (count - len(found)) + 100, 2)), axis=1)
        new = encode_pairs(drawn[drawn[:, 0] != drawn[:, 1]], nodes)
        fresh = np.concatenate([found, new[~np.isin(new, linked)]])
        first = np.unique(fresh, return_index=True)[1]
        found = fresh[np.sort(first)][:count]  # in the order of sampling
    return np.stack([found // nodes, found % nodes], 1)


def remove_links(graphs: RawGraphs, held_out: Pairs) -> RawGraphs:
    """Remove these links in both directions from the graph. Self-loops remain."""
    nodes = graphs.nodes
    kept = ~np.isin(encode_pairs(np.sort(graphs.edges, axis=0).T, nodes), encode_pairs(held_out, nodes))
    table = graphs.edge_table
    if table is not None:
        lines = None if table.lines is None else table.lines[kept]
        table = replace(table, frame=table.frame.filter(kept), lines=lines)
    return replace(graphs, edges=graphs.edges[:, kept], edge_table=table)
