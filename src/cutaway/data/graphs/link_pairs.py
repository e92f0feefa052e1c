"""Node pairs as examples of link prediction: linked pairs and absent links.

A link is a pair of nodes a < b with an edge in either direction. See `links.py` for held-out links.
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
