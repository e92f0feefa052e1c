"""Pairs of nodes as examples: those that are linked, and those that are not.

A link is a pair of nodes a < b with an edge either way. What `links.py` says of held-out links holds for what is here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..dataset_base import Batch
from ..splits import Rows
from .raw import Edges, RawGraphs
from .splits import NodeSplit

Pairs = npt.NDArray[np.int64]  # (n, 2), the smaller number first
LISTED = 50_000  # pairs of nodes that are written down to draw from; of more, random ones are tried


class LinkSplit(NodeSplit):
    """Pairs of nodes, first those that are linked, then those that are not: a batch is the graph and some pairs.

    Inputs are x (V, F), edges (2, E) for messages and rows (n, 2), the two nodes of each pair; the target (n,) is 1
    where they are linked.
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
        """`names` are those of the nodes. With `drawn`, a seed, absent links are drawn anew in training, among the
        pairs that are not linked by `edges`; `known` are all edges that there are, those held out among them."""
        rows = torch.from_numpy(np.concatenate([links, absent]))
        target = torch.cat([torch.ones(len(links), dtype=torch.int64), torch.zeros(len(absent), dtype=torch.int64)])
        super().__init__(x, edges, rows, target, names, None, neighbours, notes)
        self.links, self.known = len(links), edges.numpy() if known is None else known
        self._drawn, self._linked = drawn, codes(pairs_of(edges.numpy(), len(x)), len(x))

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """As nodes are; with `seed` absent links are drawn by it, where they are to be learned from."""
        if seed is None or self._drawn is None:
            return super().batches(order, seed)
        rng = np.random.default_rng([self._drawn, seed])
        absent = absent_pairs(self._linked, len(self.x), len(self) - self.links, rng)
        rows = torch.cat([self.rows[: self.links], torch.from_numpy(absent)])
        return NodeSplit.batches(self.at(rows), order, seed)

    def name(self, i: int) -> str:
        """Both nodes, as a person calls them."""
        return " – ".join(self.ends(i))

    def ends(self, i: int) -> tuple[str, str]:
        """What a person calls the two nodes."""
        a, b = self.rows[i].tolist()
        return self._names[a], self._names[b]

    def node_names(self, examples: Sequence[int] = ()) -> list[str]:
        """What a person calls the nodes, (V,), whatever the examples are."""
        del examples
        return list(self._names)

    def row(self, i: int) -> dict[str, str] | None:
        """Nothing more is known of a pair."""
        return None

    def whole(self) -> LinkSplit:
        """The graph with the edges that are held out here, and no pairs."""
        none = np.empty((0, 2), np.int64)
        edges = torch.from_numpy(np.ascontiguousarray(self.known))
        return LinkSplit(self.x, edges, none, none, self._names, None, self.neighbours)

    def with_pairs(self, pairs: Pairs) -> LinkSplit:
        """Other pairs of the same graph."""
        return LinkSplit(self.x, self.edges, pairs, pairs[:0], self._names, self.known, self.neighbours)

    def are_linked(self, pairs: Pairs) -> npt.NDArray[np.bool_]:
        """Whether the graph that the model is given has an edge between the nodes of each pair, either way, (n,)."""
        return np.isin(codes(np.sort(pairs, axis=1), len(self.x)), self._linked)

    def shared_neighbours(self) -> npt.NDArray[np.float64]:
        """How many neighbours the nodes of each pair have in common in the graph that the model is given, (n,)."""
        from scipy.sparse import csr_matrix  # here, because it takes a while

        nodes = len(self.x)
        a, b = np.divmod(self._linked, nodes)
        ones = np.ones(2 * len(a))
        near = csr_matrix((ones, (np.concatenate([a, b]), np.concatenate([b, a]))), shape=(nodes, nodes))
        first, second = self.rows.numpy().T
        return np.asarray(near[first].multiply(near[second]).sum(1)).ravel()


def pairs_of(edges: Edges, nodes: int) -> Pairs:
    """The links of edges (2, E), each once, the smaller node first, sorted; a node and itself are none."""
    apart = np.sort(edges[:, edges[0] != edges[1]], axis=0)
    return np.stack(np.divmod(np.unique(codes(apart.T, nodes)), nodes), 1)


def codes(pairs: Pairs, nodes: int) -> Rows:
    """One number for each pair, (n,), in the order of the pairs."""
    return pairs[:, 0] * nodes + pairs[:, 1]


def absent_pairs(linked: Rows, nodes: int, count: int, rng: np.random.Generator) -> Pairs:
    """At most `count` different pairs of nodes that are not among `linked`, codes that are sorted, at random."""
    every = nodes * (nodes - 1) // 2
    count = min(count, every - len(linked))
    if every <= LISTED:
        listed = np.stack(np.triu_indices(nodes, 1), 1).astype(np.int64)
        free = listed[~np.isin(codes(listed, nodes), linked)]
        return free[rng.permutation(len(free))[:count]]
    found = np.empty(0, np.int64)
    while len(found) < count:
        drawn = np.sort(rng.integers(0, nodes, (2 * (count - len(found)) + 100, 2)), axis=1)
        new = codes(drawn[drawn[:, 0] != drawn[:, 1]], nodes)
        fresh = np.concatenate([found, new[~np.isin(new, linked)]])
        first = np.unique(fresh, return_index=True)[1]
        found = fresh[np.sort(first)][:count]  # in the order in which they were drawn
    return np.stack([found // nodes, found % nodes], 1)


def without(graphs: RawGraphs, held_out: Pairs) -> RawGraphs:
    """The graph without those links, in either direction; loops stay."""
    nodes = graphs.nodes
    kept = ~np.isin(codes(np.sort(graphs.edges, axis=0).T, nodes), codes(held_out, nodes))
    table = graphs.edge_table
    if table is not None:
        lines = None if table.lines is None else table.lines[kept]
        table = replace(table, frame=table.frame.filter(kept), lines=lines)
    return replace(graphs, edges=graphs.edges[:, kept], edge_table=table)
