"""Neighbor sampling, layer by layer, for graphs that are too large to process whole.

After W. L. Hamilton, R. Ying, J. Leskovec, Inductive representation learning on large graphs, 2017, section 3.1
<https://arxiv.org/abs/1706.02216>, but without replacement: a node with at most as many neighbors as the sample size
keeps all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .raw import Edges

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
