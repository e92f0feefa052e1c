"""Maximum cut: the exact method beside all divisions, the others beside networkx and by what they guarantee."""

from __future__ import annotations

import itertools
from pathlib import Path

import networkx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from networkx import Graph
from torch import Tensor

from cutaway.core.errors import ModelError
from cutaway.inference.max_cut import METHODS, Cut, cut_size, expected_cut, max_cut, unique_pairs

SMALL = st.builds(
    lambda nodes, density, seed: networkx.gnp_random_graph(nodes, density, seed=seed),
    st.integers(1, 9),
    st.floats(0, 1),
    st.integers(0, 10_000),
)


def edges_of(graph: Graph) -> Tensor:
    return torch.tensor(list(graph.edges), dtype=torch.int64).reshape(-1, 2).T


def largest(graph: Graph) -> int:
    """The largest cut of all divisions."""
    divisions = itertools.product((False, True), repeat=len(graph))
    return max(sum(sides[i] != sides[j] for i, j in graph.edges) for sides in divisions)


@settings(max_examples=60, deadline=None)
@given(graph=SMALL)
def test_exact_is_the_largest_of_all_cuts(graph: Graph) -> None:
    cut = max_cut(edges_of(graph), len(graph), "exact")
    assert cut.size == largest(graph)
    one = {node for node in graph if cut.sides[node]}
    assert networkx.cut_size(graph, one) == cut.size


def test_the_largest_cut_of_the_karate_club_is_61() -> None:
    club = networkx.karate_club_graph()
    assert max_cut(edges_of(club), 34, "exact").size == 61


@pytest.mark.parametrize("method", [*METHODS, "network"])
def test_every_method_counts_its_cut_and_repeats_with_its_seed(method: str) -> None:
    graph = networkx.random_regular_graph(3, 20, seed=1)
    cuts = [max_cut(edges_of(graph), 20, method, seed=3, steps=20) for _ in range(2)]
    assert torch.equal(cuts[0].sides, cuts[1].sides)
    assert cuts[0].sides.dtype == torch.bool
    assert cuts[0].size == networkx.cut_size(graph, {n for n in graph if cuts[0].sides[n]})
    assert cuts[0].size <= max_cut(edges_of(graph), 20, "exact").size


@settings(max_examples=40, deadline=None)
@given(graph=SMALL, seed=st.integers(0, 100))
def test_no_single_move_improves_a_local_optimum_and_greedy_cuts_half(graph: Graph, seed: int) -> None:
    edges, nodes = edges_of(graph), len(graph)
    cut = max_cut(edges, nodes, "local-search", seed=seed)
    for node in range(nodes):
        moved = cut.sides.clone()
        moved[node] = ~moved[node]
        assert cut_size(edges, moved) <= cut.size
    assert 2 * max_cut(edges, nodes, "greedy", seed=seed).size >= edges.shape[1]


def test_networkx_does_not_improve_a_local_optimum() -> None:
    graph = networkx.gnp_random_graph(40, 0.2, seed=0)
    start, cut = (max_cut(edges_of(graph), 40, method, seed=5) for method in ("random", "local-search"))
    size, _ = networkx.approximation.one_exchange(graph, {n for n in graph if cut.sides[n]}, seed=0)
    assert start.size < cut.size == size


def test_more_starts_give_a_cut_at_least_as_large() -> None:
    edges = edges_of(networkx.random_regular_graph(3, 60, seed=0))
    sizes = [max_cut(edges, 60, "local-search", starts=starts).size for starts in (1, 5, 50)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]


def test_the_objective_is_the_mean_over_random_divisions() -> None:
    pairs = edges_of(networkx.gnp_random_graph(6, 0.6, seed=0))
    p = torch.rand(6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    mean = 0.0
    for sides in itertools.product((False, True), repeat=6):
        at = torch.tensor(sides)
        mean += float(torch.where(at, p, 1 - p).prod()) * cut_size(pairs, at)
    assert float(expected_cut(pairs, p)) == pytest.approx(mean)


@pytest.mark.parametrize("model", ["gcn", "graphconv", "gin"])
def test_a_network_finds_the_largest_cut_of_a_small_graph(model: str) -> None:
    graph = networkx.petersen_graph()
    before = torch.get_rng_state()
    assert max_cut(edges_of(graph), 10, "network", model=model, steps=100, starts=4).size == 12 == largest(graph)
    assert torch.equal(torch.get_rng_state(), before)


def test_spectral_divides_a_bipartite_graph() -> None:
    graph = networkx.complete_bipartite_graph(4, 5)
    assert max_cut(edges_of(graph), 9, "spectral").size == 20


def test_directions_loops_and_repetitions_do_not_count() -> None:
    edges = torch.tensor([[0, 1, 1, 2, 2, 0], [1, 0, 2, 2, 1, 1]])
    assert unique_pairs(edges, 3).tolist() == [[0, 1], [1, 2]]
    assert max_cut(edges, 3, "exact").size == 2
    empty = max_cut(torch.zeros(2, 0, dtype=torch.int64), 4, "network", steps=2)
    assert isinstance(empty, Cut)
    assert empty.size == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "annealing"}, r"^Invalid method='?annealing'?: must be random, greedy"),
        ({"nodes": 0}, "^Invalid nodes=0: must be at least 1"),
        ({"nodes": 2}, "nodes are numbered from 0 to 1"),
        ({"starts": 0}, "^Invalid starts=0"),
        ({"edges": torch.zeros(3, 2, dtype=torch.int64)}, r"must be \(2, E\)"),
        ({"method": "network", "model": "resnet18"}, "^Invalid model='?resnet18"),
        ({"method": "network", "steps": 0}, "^Invalid steps=0"),
    ],
)
def test_values_that_cannot_be_are_rejected(changes: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {"edges": torch.tensor([[0, 1], [1, 2]]), "nodes": 3} | changes
    with pytest.raises(ModelError, match=message):
        max_cut(**arguments)  # type: ignore[arg-type]


def test_a_dense_graph_is_rejected_by_exact_before_memory_runs_out() -> None:
    with pytest.raises(ModelError, match="too dense for method=exact"):
        max_cut(edges_of(networkx.complete_graph(40)), 40, "exact")


def test_the_page_has_the_sizes_that_the_methods_find() -> None:
    page = (Path(__file__).parents[2] / "docs" / "graphs.md").read_text(encoding="utf-8")
    club = networkx.karate_club_graph()
    for name, method in (("greedy", "greedy"), ("local search", "local-search"), ("random", "random")):
        sizes = [max_cut(edges_of(club), 34, method, seed=seed).size for seed in range(10)]
        assert f"| {name} | {sum(sizes) / 10:.1f} ({max(sizes)}) |" in page
