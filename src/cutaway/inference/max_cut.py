"""Maximum cut: divide the nodes of a graph into two sides, so that as many edges as possible join different sides.

    cut(s) = Σ_{i,j} s_i + s_j − 2 s_i s_j,   s_i = 0 or 1,   over the edges (i, j), each once

It is NP-hard. Five methods of `max_cut` find a large cut, and one finds the largest:

    random        each side with probability ½: half of the edges on average
    greedy        nodes in random order, each on the side with fewer of its neighbours so far: cuts at least half
    local-search  from a random cut, move the node that gains most, until none gains
    spectral      the signs of the eigenvector of the Laplacian D − A with the largest eigenvalue (B. Mohar, S. Poljak,
                  Eigenvalues and the max-cut problem, 1990)
    network       a graph network is trained on this graph, without targets
    exact         one node after another is eliminated: of a table over its neighbours, the larger entry remains
                  (R. Dechter, Bucket elimination, 1999). Time and memory are 2 to the power of the largest table

The network is that of M. J. A. Schuetz, J. K. Brubaker, H. G. Katzgraber, Combinatorial optimization with
physics-inspired graph neural networks, 2021 (Nature Machine Intelligence 2022) <https://arxiv.org/abs/2107.01188>. It
maps learned node vectors x (V, d) and edges to p = σ(f(x)), and s is relaxed to p in the objective:

    min over x and the weights of f:  −Σ_{i,j} p_i + p_j − 2 p_i p_j;   s_i = 1 where p_i > ½

The sum is the mean of the cuts whose nodes are drawn with these probabilities.

Shapes: edges (2, E) of V nodes, in one or both directions; sides (V,) bool.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..core.errors import ModelError, check_value
from ..models.registry import preset

DIM = 32  # d, of the node vectors, and hidden dimension of the network
LAYERS = 2
MAX_TABLE = 26  # nodes of a table of the exact method, whose entries are 2 to this power


@dataclass(frozen=True)
class Cut:
    """Division of the nodes of a graph into two sides."""

    sides: Tensor  # (V,) bool
    size: int  # number of edges that join different sides


def max_cut(
    edges: Tensor,
    nodes: int,
    method: str = "local-search",
    *,
    seed: int = 0,
    starts: int = 1,
    model: str = "gcn",
    steps: int = 1000,
    lr: float = 0.01,
) -> Cut:
    """Divide the nodes of a graph into two sides with many edges between them.

    Args:
        edges: Edges, shape (2, E), in one or both directions. Self-loops and repeated edges are ignored.
        nodes: V, number of nodes.
        method: `random`, `greedy`, `local-search`, `spectral`, `network` or `exact`.
        seed: Seed of the random numbers. `spectral` and `exact` use none.
        starts: Number of starts, of which the largest cut is returned.
        model: Preset of the network: `gcn`, `graphconv`, `gin` or another one for graphs.
        steps: Steps of Adam for `network`.
        lr: Learning rate of Adam for `network`.

    Returns:
        The largest cut that was found.

    Raises:
        ModelError: If a value is not allowed, or if the graph is too dense for `exact`.
    """
    check_value(method in METHODS or method == "network", "method", method, ", ".join((*METHODS, "network")))
    check_value(nodes >= 1, "nodes", nodes, "at least 1")
    check_value(starts >= 1, "starts", starts, "at least 1")
    check_value(steps >= 1, "steps", steps, "at least 1")
    pairs = unique_pairs(edges, nodes)
    generator = torch.Generator().manual_seed(seed)
    found: Cut | None = None
    for _ in range(starts):
        if method == "network":
            sides = _network(pairs, nodes, generator, model, steps, lr)
        else:
            sides = METHODS[method](pairs, nodes, generator)
        cut = Cut(sides, cut_size(pairs, sides))
        found = cut if found is None or cut.size > found.size else found
    assert found is not None
    return found


def unique_pairs(edges: Tensor, nodes: int) -> Tensor:
    """Return the edges (2, E') as pairs of different nodes, each once, the smaller number first.

    Raises ModelError for edges of another shape or to a node that does not exist.
    """
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise ModelError(f"Invalid edges of shape {tuple(edges.shape)}: must be (2, E), pairs of node numbers.")
    if edges.numel() and not 0 <= int(edges.min()) <= int(edges.max()) < nodes:
        raise ModelError(f"Invalid edges: nodes are numbered from 0 to {nodes - 1}.")
    low, high = edges.long().sort(dim=0).values
    keys: Tensor = torch.unique((low * nodes + high)[low < high])
    return torch.stack((keys // nodes, keys % nodes))


def cut_size(pairs: Tensor, sides: Tensor) -> int:
    """Return the number of pairs (2, E) whose nodes are on different sides (V,)."""
    return int((sides[pairs[0]] != sides[pairs[1]]).sum())


def expected_cut(pairs: Tensor, p: Tensor) -> Tensor:
    """Return the mean size of a cut whose nodes are on side 1 with the probabilities p (V,), independently."""
    a, b = p[pairs[0]], p[pairs[1]]  # (E,)
    return (a + b - 2 * a * b).sum()


def _adjacency(pairs: Tensor, nodes: int) -> Tensor:
    a = torch.zeros(nodes, nodes)
    a[pairs[0], pairs[1]] = a[pairs[1], pairs[0]] = 1
    return a


def _random(pairs: Tensor, nodes: int, generator: torch.Generator) -> Tensor:
    return torch.rand(nodes, generator=generator) < 0.5


def _greedy(pairs: Tensor, nodes: int, generator: torch.Generator) -> Tensor:
    a, sides = _adjacency(pairs, nodes), torch.zeros(nodes)  # 1 and −1; 0 for nodes to come
    for node in torch.randperm(nodes, generator=generator).tolist():
        sides[node] = 1.0 if a[node] @ sides <= 0 else -1.0
    return sides > 0


def _local_search(pairs: Tensor, nodes: int, generator: torch.Generator) -> Tensor:
    a = _adjacency(pairs, nodes)
    sides = 2.0 * _random(pairs, nodes, generator) - 1  # 1 and −1
    gains = sides * (a @ sides)  # neighbours on the same side, less those on the other one: (V,)
    while (best := int(gains.argmax())) >= 0 and gains[best] > 0:
        sides[best] = -sides[best]
        gains += 2 * a[best] * sides * sides[best]
        gains[best] = -gains[best]
    return sides > 0


def _spectral(pairs: Tensor, nodes: int, generator: torch.Generator) -> Tensor:
    a = _adjacency(pairs, nodes).double()
    vectors: Tensor = torch.linalg.eigh(a.sum(1).diag() - a).eigenvectors
    return vectors[:, -1] > 0


def _exact(pairs: Tensor, nodes: int, generator: torch.Generator) -> Tensor:
    edge = torch.tensor([[0, 1], [1, 0]], dtype=torch.int32)
    factors = [(pair, edge) for pair in map(tuple, pairs.T.tolist())]  # nodes, and a table with an axis for each
    neighbours: dict[int, set[int]] = {node: set() for node in range(nodes)}
    for i, j in pairs.T.tolist():
        neighbours[i].add(j)
        neighbours[j].add(i)
    choices: list[tuple[int, list[int], Tensor]] = []
    while neighbours:
        node = min(neighbours, key=lambda one: len(neighbours[one]))
        around = sorted(neighbours.pop(node))
        if len(around) >= MAX_TABLE:
            raise ModelError(
                f"This graph is too dense for method=exact: a table has more than 2^{MAX_TABLE} entries. Use "
                "method=local-search with starts=100."
            )
        scope = (node, *around)
        table = torch.zeros((2,) * len(scope), dtype=torch.int32)
        for members, values in factors:
            if node in members:
                order = sorted(range(len(members)), key=lambda axis: scope.index(members[axis]))
                shape = [2 if one in members else 1 for one in scope]
                table += values.permute(order).reshape(shape)
        factors = [factor for factor in factors if node not in factor[0]]
        best = table.max(dim=0)
        factors.append((tuple(around), best.values))
        choices.append((node, around, best.indices.bool()))
        for one in around:
            neighbours[one] |= set(around)
            neighbours[one] -= {one, node}
    sides = torch.zeros(nodes, dtype=torch.bool)
    for node, around, chosen in reversed(choices):
        sides[node] = chosen[tuple(int(sides[one]) for one in around)]
    return sides


METHODS: dict[str, Callable[[Tensor, int, torch.Generator], Tensor]] = {
    "random": _random,
    "greedy": _greedy,
    "local-search": _local_search,
    "spectral": _spectral,
    "exact": _exact,
}


def _network(pairs: Tensor, nodes: int, generator: torch.Generator, model: str, steps: int, lr: float) -> Tensor:
    """Train a graph network on the expected cut; return the largest cut that its rounded outputs were."""
    found = preset(model)
    check_value(found.takes == ("graph",), "model", model, "a graph network, such as graphconv or gin")
    settings = {"in_features": DIM, "hidden_dim": DIM, "layers": LAYERS, "num_classes": 1, "dropout": 0.0} | {
        "graph_level": False
    }
    edges = torch.cat([pairs, pairs.flip(0)], dim=1)  # both directions
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**31, (1,), generator=generator)))
        network = found.network(found.configure(settings=settings))
        x = nn.Parameter(torch.randn(nodes, DIM))
    optimizer = torch.optim.Adam([x, *network.parameters()], lr=lr)
    best, largest = torch.zeros(nodes, dtype=torch.bool), -1
    for _ in range(steps):
        p = network(x, edges)[:, 0].sigmoid()  # (V,)
        sides = p.detach() > 0.5
        if (size := cut_size(pairs, sides)) > largest:
            best, largest = sides, size
        optimizer.zero_grad()
        torch.autograd.backward(-expected_cut(pairs, p))
        optimizer.step()
    return best
