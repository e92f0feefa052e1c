"""What lies around some nodes of a graph, for graphs whose whole does not fit: neighbours drawn layer by layer.

After W. L. Hamilton, R. Ying, J. Leskovec, Inductive representation learning on large graphs, 2017, section 3.1
<https://arxiv.org/abs/1706.02216>, but without replacement: a node with no more neighbours than are drawn keeps all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .raw import Edges

Nodes = npt.NDArray[np.int64]


class Around:
    """The edges of a graph by the node that they lead to."""

    def __init__(self, edges: Edges, nodes: int) -> None:
        order = np.argsort(edges[1], kind="stable")
        self._sources = edges[0][order]
        self._starts = np.concatenate([[0], np.cumsum(np.bincount(edges[1], minlength=nodes))])
        self._place = np.full(nodes, -1, np.int64)  # of each node in the running batch; −1 for those outside it

    def draw(self, rows: Nodes, counts: Sequence[int], rng: np.random.Generator | None) -> tuple[Nodes, Edges]:
        """Nodes (V,), the first of them `rows`, all different, and edges between them (2, E), by their places there.

        For layer k each node that was reached in the layer before keeps at most counts[k] of the edges that lead to it,
        uniformly without replacement, or all of them without `rng`. A network of as many layers then gives `rows` what
        it gives them in the whole graph wherever no edge is left out.

        The outermost nodes are needed as they are, without their own neighbours; but how many those would be weighs in
        normalised sums. So each of their edges is there as one from `rows[0]`: no layer carries anything over it that
        reaches `rows`.
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
        apart = self._place[targets][sources != targets]  # a loop is none of them: layers add it themselves
        found.append(np.stack([np.zeros_like(apart), apart]))
        every = np.concatenate(nodes)
        self._place[every] = -1
        return every, np.concatenate(found, axis=1)

    def _edges_to(self, nodes: Nodes, count: int, rng: np.random.Generator | None) -> tuple[Nodes, Nodes]:
        """Sources and targets of at most `count` edges to each of the nodes."""
        starts, degrees = self._starts[nodes], self._starts[nodes + 1] - self._starts[nodes]
        targets = np.repeat(nodes, degrees)
        within = np.arange(len(targets)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
        sources = self._sources[np.repeat(starts, degrees) + within]
        if rng is None or not len(degrees) or degrees.max() <= count:
            return sources, targets
        owner = np.repeat(np.arange(len(nodes)), degrees)
        shuffled = np.lexsort((rng.random(len(targets)), owner))  # within each node at random
        kept = np.sort(shuffled[within < count])
        return sources[kept], targets[kept]
