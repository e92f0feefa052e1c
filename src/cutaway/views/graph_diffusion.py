"""Graph measurements: the nodes that a node can reach, and the similarity of nodes.

x^(l) are the nodes after layer l, and x^(0) are the inputs. Similarity is the mean cosine of pairs, and the Dirichlet
energy relative to the size of the nodes: 0 if linked nodes are equal, 1 if they are unrelated, 2 if they are opposite.

    Σ_{i→j} ‖x_i − x_j‖² / Σ_{i→j} (‖x_i‖² + ‖x_j‖²)

(T. K. Rusch, M. M. Bronstein, S. Mishra, A survey on oversmoothing in graph neural networks, 2023,
<https://arxiv.org/abs/2303.10993>; as a fraction of size: F. Di Giovanni et al., 2022,
<https://arxiv.org/abs/2206.10991>.)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .json_values import to_lists

STARTS = 64  # nodes whose reach is measured
SAMPLED = 50_000  # most edges whose ends are compared
HOPS = 8  # least number of hops, if the graph has as many
MAX_EDGE_VISITS = 20_000_000  # most edges visited when reach is measured


@dataclass(frozen=True)
class IndexedGraph:
    """One graph of a batch, with its nodes numbered from 0."""

    x: Tensor  # (V, F)
    edges: Tensor  # (2, E), as given
    nodes: Tensor  # (V,) their numbers in the batch
    names: dict[int, str]  # names of the nodes that have names
    classes: Tensor | None = None  # (V,) classes, −1 if unknown
    predicted: Tensor | None = None  # (V,)

    def name(self, node: int) -> str:
        """Return the name of a node."""
        return self.names.get(node, f"node {node}")

    def __len__(self) -> int:
        return len(self.x)


def links_between(net: IndexedGraph, nodes: Tensor) -> Tensor:
    """Return the undirected links among those nodes, (2, L), with the smaller number first."""
    inside = torch.zeros(len(net), dtype=torch.bool)
    inside[nodes] = True
    own = net.edges[:, inside[net.edges[0]] & inside[net.edges[1]]]
    pairs: Tensor = own.sort(0).values.unique(dim=1)  # type: ignore[no-untyped-call]
    return pairs


def layout_nodes(pairs: list[tuple[int, int]], nodes: int) -> list[list[float]]:
    """Return the position of each node by a spring layout (T. Fruchterman, E. Reingold, 1991), with a fixed seed."""
    import networkx  # imported here because the import is slow

    net = networkx.Graph()
    net.add_nodes_from(range(nodes))
    net.add_edges_from((a, b) for a, b in pairs if a != b)
    at = networkx.spring_layout(net, seed=0, iterations=100)
    return [to_lists(torch.tensor([float(v) for v in at[i]])) for i in range(nodes)]


# --- reach ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reach:
    """The fraction of the nodes within 0, 1, 2, … hops of a node."""

    own: list[float]  # of the central node
    mean: list[float]  # over nodes
    starts: int  # number of nodes in the mean


def hop_distances(net: IndexedGraph, node: int, undirected: bool = False) -> Tensor:
    """Return the number of hops from each node to `node` along messages, (V,); −1 for unreachable nodes."""
    sources, targets = (torch.cat([net.edges, net.edges.flip(0)], 1) if undirected else net.edges).long()
    hops = torch.full((len(net),), -1)
    hops[node] = 0
    for hop in range(1, len(net)):
        new = sources[(hops[targets] >= 0) & (hops[sources] < 0)]
        if not len(new):
            break
        hops[new] = hop
    return hops


def compute_reach(net: IndexedGraph, node: int, hops: Tensor, depth: int) -> Reach:
    """Return the fraction of nodes within each number of hops of the node, and the average over other nodes."""
    most = max(depth, min(HOPS, int(hops.max())))
    starts = max(1, min(STARTS, len(net), MAX_EDGE_VISITS // max(1, net.edges.shape[1] * HOPS)))
    chosen = torch.randperm(len(net), generator=torch.Generator().manual_seed(0))[:starts].tolist()

    def within(found: Tensor) -> list[float]:
        return [float(((found >= 0) & (found <= hop)).double().mean()) for hop in range(most + 1)]

    every = [within(hop_distances(net, start)) for start in chosen]
    return Reach(within(hops), [sum(at) / len(every) for at in zip(*every)], len(every))


# --- similarity ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NodeSimilarity:
    """The similarity of the nodes after a layer; values are None if there are no such pairs."""

    name: str
    linked: float | None  # mean cosine of the two ends of an edge
    every: float | None  # mean cosine of any two nodes
    energy: float | None  # Σ ‖x_i − x_j‖² / Σ (‖x_i‖² + ‖x_j‖²) over the edges


def node_similarity(name: str, x: Tensor, edges: Tensor) -> NodeSimilarity:
    """Compute the similarity of nodes x (V, F) after the layer `name`, with edges (2, E)."""
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
    return NodeSimilarity(
        name, to_rounded(linked.mean()) if len(linked) else None, to_rounded(every), to_rounded(energy)
    )


def to_rounded(value: Tensor | None) -> float | None:
    """Return a one-element tensor as a number with the digits of a description."""
    found = None if value is None else to_lists(value)
    assert found is None or isinstance(found, float)
    return found
