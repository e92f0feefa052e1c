"""Maximum cut by a graph network beside greedy methods: python -m recipes.max_cut

Prints the table of docs/graphs.md. Every number of a method is a mean over seeds, and in brackets the largest: on a
graph of SEEDS seeds of the method, of random regular graphs one seed each. The settings of the network were chosen on
graphs of other seeds.
"""

from __future__ import annotations

import networkx
import torch
from networkx import Graph
from torch import Tensor

from cutaway.inference.max_cut import max_cut

SEEDS = 10
NODES, DEGREE = 100, 3  # of the random regular graphs
METHODS = {
    "random": {"method": "random"},
    "greedy": {"method": "greedy"},
    "spectral": {"method": "spectral"},
    "local search": {"method": "local-search"},
    "local search, best of 100 starts": {"method": "local-search", "starts": 100},
    "network, `gcn`": {"method": "network", "model": "gcn"},
    "network, `graphconv`": {"method": "network", "model": "graphconv"},
    "network, `gin`": {"method": "network", "model": "gin"},
    "exact": {"method": "exact"},
}


def edges_of(graph: Graph) -> tuple[Tensor, int]:
    """The edges (2, E) and the number of nodes of a graph of networkx."""
    numbered = networkx.convert_node_labels_to_integers(graph)
    return torch.tensor(list(numbered.edges)).T, len(numbered)


def sets() -> dict[str, list[tuple[Tensor, int]]]:
    """The graphs of each column, one for each seed."""
    regular = [networkx.random_regular_graph(DEGREE, NODES, seed=seed) for seed in range(SEEDS)]
    return {
        "karate club": [edges_of(networkx.karate_club_graph())] * SEEDS,
        "Les Misérables": [edges_of(networkx.les_miserables_graph())] * SEEDS,
        f"{DEGREE}-regular, {NODES} nodes": [edges_of(graph) for graph in regular],
    }


def main() -> None:
    """Print the table."""
    graphs = sets()
    heads = [f"{name}, {of[0][0].shape[1]} edges" for name, of in graphs.items()]
    print(f"| method | {' | '.join(heads)} | largest cut found |", flush=True)
    print("| --- | ---: | ---: | ---: | ---: |", flush=True)
    largest = {name: [max_cut(*one, method="exact").size for one in of] for name, of in graphs.items()}
    last = list(graphs)[-1]
    for method, settings in METHODS.items():
        sizes = {
            name: [max_cut(*one, seed=seed, **settings).size for seed, one in enumerate(of)]  # type: ignore[arg-type]
            for name, of in graphs.items()
        }
        cells = []
        for name, found in sizes.items():
            mean = sum(found) / SEEDS
            same = name == last or len(set(found)) == 1
            cells.append(f"{mean:.1f}" if same else f"{mean:.1f} ({max(found)})")
        hits = sum(a == b for a, b in zip(sizes[last], largest[last]))
        print(f"| {method} | {' | '.join(cells)} | {hits} of {SEEDS} |", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
