"""A graph by itself: which nodes a node sees, and how alike nodes are.

x^(l) are the nodes after layer l, x^(0) those that enter. How alike they are is said by the mean cosine of pairs, and
by the Dirichlet energy relative to their size: 0 where linked nodes are equal, 1 where they have nothing to do with
each other, 2 where they are opposite.

    Σ_{i→j} ‖x_i − x_j‖² / Σ_{i→j} (‖x_i‖² + ‖x_j‖²)

(T. K. Rusch, M. M. Bronstein, S. Mishra, A survey on oversmoothing in graph neural networks, 2023,
<https://arxiv.org/abs/2303.10993>; as a fraction of size: F. Di Giovanni et al., 2022, <https://arxiv.org/abs/2206.10991>.)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .json_values import plain

STARTS = 64  # nodes whose reach is measured
SAMPLED = 50_000  # edges whose ends are compared
HOPS = 8  # that are followed at least, where there are so many
EDGES_LOOKED_AT = 20_000_000  # in measuring reach


@dataclass(frozen=True)
class Net:
    """One graph of a batch, with its nodes numbered from 0."""

    x: Tensor  # (V, F)
    edges: Tensor  # (2, E), as given
    nodes: Tensor  # (V,) their numbers in the batch
    names: dict[int, str]  # what a person calls them, of those that have names
    classes: Tensor | None = None  # (V,) the class of each; −1 where nobody knows it
    predicted: Tensor | None = None  # (V,)

    def name(self, node: int) -> str:
        """What the node is called."""
        return self.names.get(node, f"node {node}")

    def __len__(self) -> int:
        return len(self.x)


def links_among(net: Net, nodes: Tensor) -> Tensor:
    """The pairs of those nodes with an edge either way, (2, L), the smaller number first."""
    inside = torch.zeros(len(net), dtype=torch.bool)
    inside[nodes] = True
    own = net.edges[:, inside[net.edges[0]] & inside[net.edges[1]]]
    pairs: Tensor = own.sort(0).values.unique(dim=1)  # type: ignore[no-untyped-call]
    return pairs


def placed(pairs: list[tuple[int, int]], nodes: int) -> list[list[float]]:
    """Where each node is drawn, as springs put it (T. Fruchterman, E. Reingold, 1991); the same every time."""
    import networkx  # here, because it takes a while

    net = networkx.Graph()
    net.add_nodes_from(range(nodes))
    net.add_edges_from((a, b) for a, b in pairs if a != b)
    at = networkx.spring_layout(net, seed=0, iterations=100)
    return [plain(torch.tensor([float(v) for v in at[i]])) for i in range(nodes)]


# --- how far a node sees ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reach:
    """The fraction of the nodes that a node has seen after 0, 1, 2, … hops."""

    own: list[float]  # of the node in the middle
    mean: list[float]  # over nodes
    starts: int  # how many


def hops_to(net: Net, node: int, undirected: bool = False) -> Tensor:
    """How many hops of messages each node is from which `node` sees it, (V,); −1 where it never does."""
    sources, targets = (torch.cat([net.edges, net.edges.flip(0)], 1) if undirected else net.edges).long()
    hops = torch.full((len(net),), -1)
    hops[node] = 0
    for hop in range(1, len(net)):
        new = sources[(hops[targets] >= 0) & (hops[sources] < 0)]
        if not len(new):
            break
        hops[new] = hop
    return hops


def reach(net: Net, node: int, hops: Tensor, depth: int) -> Reach:
    """The fraction of nodes within so many hops of the node, and of others on average."""
    most = max(depth, min(HOPS, int(hops.max())))
    starts = max(1, min(STARTS, len(net), EDGES_LOOKED_AT // max(1, net.edges.shape[1] * HOPS)))
    chosen = torch.randperm(len(net), generator=torch.Generator().manual_seed(0))[:starts].tolist()

    def within(found: Tensor) -> list[float]:
        return [float(((found >= 0) & (found <= hop)).double().mean()) for hop in range(most + 1)]

    every = [within(hops_to(net, start)) for start in chosen]
    return Reach(within(hops), [sum(at) / len(every) for at in zip(*every)], len(every))


# --- how alike nodes are ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Alike:
    """How alike the nodes are after a layer. None where there are no such pairs."""

    name: str
    linked: float | None  # mean cosine of the two ends of an edge
    every: float | None  # of any two nodes
    energy: float | None  # Σ ‖x_i − x_j‖² / Σ (‖x_i‖² + ‖x_j‖²) over the edges


def alike(name: str, x: Tensor, edges: Tensor) -> Alike:
    """Of nodes x (V, F) after a layer of that name, and edges (2, E)."""
    x = x.double()
    apart = edges[:, edges[0] != edges[1]]
    if apart.shape[1] > SAMPLED:
        order = torch.randperm(apart.shape[1], generator=torch.Generator().manual_seed(0))
        apart = apart[:, order[:SAMPLED]]
    unit = F.normalize(x, dim=1)
    linked = (unit[apart[0]] * unit[apart[1]]).sum(1)
    nodes = len(x)
    # Σ over pairs i ≠ j of u_i · u_j is |Σ u_i|² less the squares of each.
    every = (unit.sum(0).square().sum() - unit.square().sum()) / (nodes * (nodes - 1)) if nodes > 1 else None
    size = x[apart].square().sum()
    energy = (x[apart[0]] - x[apart[1]]).square().sum() / size if size > 0 else None
    return Alike(name, rounded(linked.mean()) if len(linked) else None, rounded(every), rounded(energy))


def rounded(value: Tensor | None) -> float | None:
    """The one number of a tensor, with as many digits as a description holds."""
    found = None if value is None else plain(value)
    assert found is None or isinstance(found, float)
    return found
