"""The splits of graph data: nodes of one graph, or whole graphs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from ..dataset_base import Batch, Split
from .sampling import Around

Row = Callable[[int], dict[str, str] | None]


class NodeSplit(Split):
    """Nodes of one graph: a batch is the whole graph with the nodes to answer for, or what lies around them.

    Inputs are x (V, F), edges (2, E) and rows (n,): the numbers of the nodes in x; where edges are described, an empty
    batch (0,) and edge_attr (E, D) follow. The same x and edges are given every time, so that what a model makes of
    them once serves all batches.
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
        """`names` and `row` are by example. With `neighbours`, where edges are not described, a batch holds, layer by
        layer, so many neighbours of each node, drawn anew in training; all of them where nothing is learned."""
        self.x, self.edges, self.rows, self.target = x, edges, rows, target
        self.neighbours, self.notes = tuple(neighbours), list(notes)
        self.beside = () if edge_attr is None else (torch.empty(0, dtype=torch.int64), edge_attr)
        self._names, self._row = names, row
        self._around = Around(edges.numpy(), len(x)) if self.neighbours else None

    def __len__(self) -> int:
        return len(self.rows)

    def at(self, rows: Tensor) -> NodeSplit:
        """The same examples where they stand at other rows of x."""
        moved = copy.copy(self)
        moved.rows = rows
        return moved

    def plan(self, batch_size: int, generator: torch.Generator | None) -> list[Tensor]:
        """Batches of nodes in random order; where nothing is learned and the graph is whole, one batch of all."""
        if generator is None:
            every = torch.arange(len(self))
            return [every] if self._around is None else list(every.split(batch_size))  # type: ignore[no-untyped-call]
        order = torch.randperm(len(self), generator=generator)
        if batch_size >= len(self):
            return [order]
        batches: list[Tensor] = list(order.split(batch_size))  # type: ignore[no-untyped-call]
        return batches

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """The whole graph or the nodes around each batch's own; `seed` draws them, None takes all neighbours."""
        for index in order:
            rows = self.rows[index]
            target = torch.empty(len(index), 0) if self.target is None else self.target[index]
            if self._around is None:
                yield Batch((self.x, self.edges, rows, *self.beside), target)
                continue
            rng = None if seed is None else np.random.default_rng([seed, int(index[0]), len(index)])
            distinct, places = np.unique(rows.numpy(), return_inverse=True)  # a balanced draw repeats nodes
            nodes, edges = self._around.draw(distinct, self.neighbours, rng)
            asked = torch.from_numpy(places.reshape(rows.shape))
            yield Batch((self.x[torch.from_numpy(nodes)], torch.from_numpy(edges), asked), target)

    def name(self, i: int) -> str:
        """What a person calls the node."""
        return self._names[i]

    def row(self, i: int) -> dict[str, str] | None:
        """The node as the person gave it, where it is a row of a table."""
        return self._row(i) if self._row else None


class SideBySide:
    """Graphs in memory one after another, their nodes and edges in the order of the graphs."""

    def __init__(
        self,
        x: Tensor,
        edges: Tensor,
        graph: Tensor,
        edge_attr: Tensor | None = None,
        names: Sequence[str] = (),
    ) -> None:
        """`graph` (V,) is the graph of each node, from 0; each has nodes. `names` are what a person calls the nodes,
        where they have names of their own."""
        count = int(graph.max()) + 1
        order = graph.argsort(stable=True)  # nodes graph after graph
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order))
        of_edges = graph[edges[1]]
        order_of_edges = of_edges.argsort(stable=True)
        self.x, self.edges = x[order], place[edges][:, order_of_edges]
        self.edge_attr = None if edge_attr is None else edge_attr[order_of_edges]
        self.names = [names[i] for i in order.tolist()] if names else []
        self.nodes = torch.bincount(graph, minlength=count)  # of each graph, (n,)
        self.links = torch.bincount(of_edges, minlength=count)  # edges of each graph, (n,)
        self.first_node = self.nodes.cumsum(0) - self.nodes
        self.first_link = self.links.cumsum(0) - self.links

    def some(self, graphs: Tensor) -> tuple[Tensor, ...]:
        """Those graphs, in that order: x (V, F), edges (2, E) and the graph of each node (V,), numbered from 0; and
        edge_attr (E, D), where edges are described."""
        batch, nodes = _stretches(self.first_node[graphs], self.nodes[graphs])
        of_links, links = _stretches(self.first_link[graphs], self.links[graphs])
        sizes = self.nodes[graphs]
        shift = sizes.cumsum(0) - sizes - self.first_node[graphs]  # from a node's number here to that in the batch
        beside = () if self.edge_attr is None else (self.edge_attr[links],)
        return self.x[nodes], self.edges[:, links] + shift[of_links], batch, *beside

    def names_of(self, graphs: Tensor) -> list[str]:
        """What the nodes of those graphs are called, in the order of `some`; nothing where they have no names."""
        nodes = _stretches(self.first_node[graphs], self.nodes[graphs])[1]
        return [self.names[i] for i in nodes.tolist()] if self.names else []


def _stretches(starts: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Stretches start, start + 1, … one after another: the stretch of each number, and the numbers."""
    owner = torch.arange(len(lengths)).repeat_interleave(lengths)
    within = torch.arange(len(owner)) - (lengths.cumsum(0) - lengths)[owner]
    return owner, starts[owner] + within


class GraphsSplit(Split):
    """Whole graphs: a batch holds some side by side, with no edges between them.

    Inputs are x (V, F), edges (2, E), no rows (0,) and the graph of each node (V,), numbered from 0 in the batch; where
    edges are described, edge_attr (E, D) follows.
    """

    def __init__(
        self,
        graphs: SideBySide,
        rows: Tensor,
        target: Tensor | None,
        names: Sequence[str],
        row: Row | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        """`rows` (n,) says which of the graphs are of this split; `names` and `row` are by example."""
        self.graphs, self.rows, self.target, self.notes = graphs, rows, target, list(notes)
        self._names, self._row = names, row

    def __len__(self) -> int:
        return len(self.rows)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """The graphs of each batch, in its order."""
        del seed
        for index in order:
            x, edges, batch, *beside = self.graphs.some(self.rows[index])
            target = torch.empty(len(index), 0) if self.target is None else self.target[index]
            yield Batch((x, edges, torch.empty(0, dtype=torch.int64), batch, *beside), target)

    def name(self, i: int) -> str:
        """What a person calls the graph."""
        return self._names[i]

    def node_names(self, examples: Sequence[int]) -> list[str]:
        """What a person calls the nodes of these graphs, as they stand in a batch; nothing where they have no names."""
        return self.graphs.names_of(self.rows[torch.as_tensor(examples, dtype=torch.int64)])

    def row(self, i: int) -> dict[str, str] | None:
        """What the person's table says of the graph, where there is one."""
        return self._row(i) if self._row else None
