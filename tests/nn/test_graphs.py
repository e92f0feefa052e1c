"""Sums over edges: equal to dense matrices of all nodes, in values and gradients; in memory that edges alone take."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutaway.core.errors import ModelError
from cutaway.nn import graphs
from cutaway.nn.graphs import NodeLinear, build_adjacency, dropout, edge_scores, edge_softmax, global_pool, spmm


def dense(edges: Tensor, values: Tensor, nodes: int) -> Tensor:
    """A (V, V), an entry for each edge, those of repeated edges added up."""
    a = torch.zeros(nodes, nodes, dtype=values.dtype)
    return a.index_put((edges[1], edges[0]), values, accumulate=True)


def graph(nodes: int, edges: int, seed: int) -> Tensor:
    """Edges between all but the last node, with loops and repetitions where chance has them."""
    return torch.randint(max(1, nodes - 1), (2, edges), generator=torch.Generator().manual_seed(seed))


def entries(edges: Tensor, nodes: int, loops: bool) -> Tensor:
    """The edges that count, in the order of the sparse entries, found by sorting a list."""
    listed = [(int(j), int(i)) for j, i in edges.t() if not (loops and i == j)]
    listed += [(i, i) for i in range(nodes)] if loops else []
    return torch.tensor(sorted(listed, key=lambda e: (e[1], e[0])), dtype=torch.int64).reshape(-1, 2).t()


shapes = st.tuples(st.integers(1, 9), st.integers(0, 25), st.integers(0, 1000))


@settings(max_examples=40, deadline=None)
@given(shape=shapes, loops=st.booleans(), device_has_csr=st.booleans())
def test_a_product_is_the_dense_one(shape: tuple[int, int, int], loops: bool, device_has_csr: bool) -> None:
    nodes, count, seed = shape
    edges = graph(nodes, count, seed)
    listed = entries(edges, nodes, loops)
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(listed.shape[1], dtype=torch.float64, generator=generator, requires_grad=True)
    x = torch.randn(nodes, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    upstream = torch.randn(nodes, 3, dtype=torch.float64, generator=generator)
    with pytest.MonkeyPatch.context() as patch:
        if not device_has_csr:
            patch.setattr(graphs, "CSR_ON", ())
        pattern = build_adjacency(edges, nodes, loops)
        assert torch.equal(torch.stack([pattern.columns, pattern.rows]).long(), listed)
        ours = torch.autograd.grad(y := spmm(values, pattern, x), (values, x), upstream)
    plain = torch.autograd.grad(z := dense(listed, values, nodes) @ x, (values, x), upstream)
    torch.testing.assert_close(y, z, rtol=1e-12, atol=1e-12)
    for a, b in zip(ours, plain):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(shape=shapes, size=st.sampled_from([1.0, 1e3, 1e6]), device_has_csr=st.booleans())
def test_attention_is_the_dense_softmax(shape: tuple[int, int, int], size: float, device_has_csr: bool) -> None:
    """Scores of any size; a repeated edge has a share of its own."""
    nodes, count, seed = shape
    edges = graph(nodes, count, seed)
    listed = entries(edges, nodes, loops=True)
    generator = torch.Generator().manual_seed(seed)
    s, t = ((size * torch.randn(nodes, dtype=torch.float64, generator=generator)).requires_grad_() for _ in range(2))
    upstream = torch.randn(listed.shape[1], dtype=torch.float64, generator=generator)
    with pytest.MonkeyPatch.context() as patch:
        if not device_has_csr:
            patch.setattr(graphs, "CSR_ON", ())
        pattern = build_adjacency(edges, nodes, loops=True)
        shares = edge_softmax(edge_scores(s, t, pattern), pattern)
        ours = torch.autograd.grad(shares, (s, t), upstream)
    scores = s[listed[1]] + t[listed[0]]
    plain = torch.cat([scores[listed[1] == i].softmax(0) for i in range(nodes)])
    torch.testing.assert_close(shares, plain, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(torch.zeros(nodes, dtype=s.dtype).index_add(0, listed[1], shares), torch.ones_like(s))
    for a, b in zip(ours, torch.autograd.grad(plain, (s, t), upstream)):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-10)


def test_gradients_are_those_of_differences() -> None:
    pattern = build_adjacency(graph(6, 15, 3), 6, loops=True)
    values = torch.rand(len(pattern.columns), dtype=torch.float64, requires_grad=True)
    x, s, t = (torch.randn(6, *shape, dtype=torch.float64, requires_grad=True) for shape in ((2,), (), ()))
    assert torch.autograd.gradcheck(lambda v, x: spmm(v, pattern, x), (values, x))
    assert torch.autograd.gradcheck(lambda s, t: edge_softmax(edge_scores(s, t, pattern).tanh(), pattern), (s, t))


def test_blocks_are_the_matrix_several_times() -> None:
    pattern = build_adjacency(graph(5, 12, 0), 5, loops=True)
    values, x = torch.randn(3, len(pattern.columns)), torch.randn(3, 5, 2)
    whole = spmm(values.flatten().requires_grad_(), pattern.blocks(3), x.flatten(0, 1).requires_grad_())
    apart = torch.cat([spmm(v, pattern, one) for v, one in zip(values, x)])
    torch.testing.assert_close(whole, apart)
    turned, order = pattern.blocks(3).transposed
    again = graphs.CSRPattern(pattern.blocks(3).starts, pattern.blocks(3).columns, 15).transposed
    assert torch.equal(turned.starts, again[0].starts)
    assert torch.equal(turned.columns, again[0].columns)
    assert torch.equal(order, again[1])


def test_normalised_weights_count_each_edge_and_one_loop() -> None:
    """0 → 1 listed twice, a loop at 2 listed twice: degrees (with one loop each) 1, 3, 1."""
    edges = torch.tensor([[0, 0, 2, 2], [1, 1, 2, 2]])
    pattern = build_adjacency(edges, 3, loops=True)
    weights = dense(torch.stack([pattern.columns, pattern.rows]).long(), pattern.gcn_norm(torch.float64), 3)
    third = 1 / 3**0.5
    expected = torch.tensor([[1.0, 0, 0], [2 * third, 1 / 3, 0], [0, 0, 1]], dtype=torch.float64)
    torch.testing.assert_close(weights, expected)


def test_what_is_made_of_edges_is_kept_until_they_change() -> None:
    edges = graph(6, 10, 0)
    first = build_adjacency(edges, 6, loops=True)
    assert build_adjacency(edges, 6, loops=True) is first
    assert build_adjacency(edges, 6, loops=False) is not first
    assert build_adjacency(edges.clone(), 6, loops=True) is not first
    edges[0, 0] = (edges[0, 0] + 1) % 5
    changed = build_adjacency(edges, 6, loops=True)
    assert changed is not first
    assert torch.equal(changed.columns, build_adjacency(edges.clone(), 6, loops=True).columns)
    kept = len(graphs._cached_adjacency._made)
    del edges
    assert len(graphs._cached_adjacency._made) < kept


def test_edges_that_numpy_changes_unseen_are_other_edges() -> None:
    edges = graph(6, 10, 0)
    build_adjacency(edges, 6, loops=True)
    version = edges._version
    edges.numpy()[0, 0] = (int(edges[0, 0]) + 1) % 5
    assert edges._version == version
    assert torch.equal(build_adjacency(edges, 6, loops=True).pairs, build_adjacency(edges.clone(), 6, loops=True).pairs)
    edges.data[1] = edges.data[1].flip(0)
    assert torch.equal(build_adjacency(edges, 6, loops=True).pairs, build_adjacency(edges.clone(), 6, loops=True).pairs)


def test_features_that_numpy_changes_unseen_are_other_features() -> None:
    x = torch.zeros(200, 120)
    x[torch.arange(200), torch.arange(200) % 120] = 1.0
    layer = graphs.NodeLinear(120, 3)

    def told() -> None:
        assert torch.equal(layer(x), layer(x.clone()))

    assert graphs._sparse_features(x) is graphs._sparse_features(x)
    told()
    for place, value in ((0, 2.0), (1, 0.0), (2, 5.0)):  # another value, one less, one more
        x.numpy()[place, 0 if place < 2 else 7] = value
        told()
    x.numpy()[1, 1] = 0.0
    told()


def test_what_is_made_in_inference_can_be_learned_with() -> None:
    edges = graph(6, 10, 0)
    with torch.inference_mode():
        pattern = build_adjacency(edges, 6, loops=True)
        spmm(pattern.gcn_norm(torch.float32), pattern, torch.ones(6, 1))
    x = torch.ones(6, 1, requires_grad=True)
    pattern = build_adjacency(edges, 6, loops=True)
    spmm(pattern.gcn_norm(torch.float32), pattern, x).sum().backward()
    assert x.grad is not None
    with torch.inference_mode():
        assert torch.equal(build_adjacency(edges.clone(), 6, loops=True).columns, pattern.columns)


@pytest.mark.parametrize(
    ("edges", "said"),
    [
        (torch.zeros(3, 4, dtype=torch.int64), r"shape \(3, 4\)"),
        (torch.zeros(2, 4), "float32"),
        (torch.tensor([[0, 1], [1, 5]]), "Edge 1 leads from node 1 to node 5, and nodes are numbered from 0 to 4"),
        (torch.tensor([[-1], [0]]), "node -1"),
    ],
)
def test_invalid_edges_are_rejected(edges: Tensor, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        build_adjacency(edges, 5, loops=True)


@pytest.mark.parametrize("bias", [True, False])
def test_sparse_features_are_the_dense_ones(bias: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(200, 120, generator=generator).where(torch.rand(200, 120, generator=generator) < 0.03, 0.0).double()
    layer = NodeLinear(120, 7, bias).double()
    assert graphs._sparse_features(x) is not None
    y = layer(x)
    upstream = torch.randn(y.shape, generator=generator, dtype=y.dtype)
    (sparse,) = torch.autograd.grad(y, layer.weight, upstream)
    z = torch.nn.functional.linear(x, layer.weight, layer.bias)
    (plain,) = torch.autograd.grad(z, layer.weight, upstream)
    torch.testing.assert_close(y, z, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(sparse, plain, rtol=1e-12, atol=1e-12)
    assert graphs._sparse_features(torch.ones(200, 120)) is None
    asked = x.clone().requires_grad_()
    layer(asked).sum().backward()
    assert asked.grad is not None
    assert asked.grad.abs().min() > 0


def test_dropout_on_sparse_features_has_the_same_distribution() -> None:
    """Mean and deviation of each output over many draws are those of dropout on all entries."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(160, 110, generator=generator).where(torch.rand(160, 110, generator=generator) < 0.05, 0.0)
    layer = NodeLinear(110, 3, bias=False, dropout=0.5)
    assert graphs._sparse_features(x) is not None
    torch.manual_seed(0)
    with torch.no_grad():
        sparse = torch.stack([layer(x) for _ in range(600)])
        every = torch.stack([torch.nn.functional.dropout(x, 0.5) @ layer.weight.t() for _ in range(600)])
        some = (x != 0).any(1)
        sparse, every = sparse[:, some], every[:, some]
        spread = every.std(0)
        assert ((sparse.mean(0) - every.mean(0)).abs() / spread).max() < 6 * (2 / 600) ** 0.5
        assert (sparse.std(0) / spread - 1).abs().max() < 0.25
        layer.eval()
        assert torch.equal(layer(x), layer(x))


def test_dropout_keeps_the_mean_and_its_share() -> None:
    torch.manual_seed(0)
    x = torch.ones(100_000, requires_grad=True)
    y = dropout(x, 0.3, training=True)
    assert y.detach().unique().tolist() == pytest.approx([0.0, 1 / 0.7])
    assert (y == 0).float().mean() == pytest.approx(0.3, abs=0.01)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())  # type: ignore[arg-type]
    assert dropout(x, 0.3, training=False) is x


@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=5), kind=st.sampled_from(graphs.READS))
def test_reading_out_is_the_same_graph_by_graph(sizes: list[int], kind: str) -> None:
    batch = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))[torch.randperm(sum(sizes))]
    x = torch.randn(sum(sizes), 3, dtype=torch.float64, requires_grad=True)
    found = global_pool(x, batch, kind)
    plain = {"mean": lambda v: v.mean(0), "sum": lambda v: v.sum(0), "max": lambda v: v.amax(0)}[kind]
    expected = torch.stack([plain(x[batch == g]) for g in range(len(sizes))])
    torch.testing.assert_close(found, expected)
    upstream = torch.randn(found.shape, dtype=x.dtype)
    torch.testing.assert_close(*(torch.autograd.grad(y, x, upstream)[0] for y in (found, expected)))


def test_a_graph_without_nodes_between_others_reads_as_0() -> None:
    x, batch = torch.ones(3, 2), torch.tensor([0, 2, 2])
    for kind in graphs.READS:
        assert global_pool(x, batch, kind)[1].tolist() == [0.0, 0.0]


LARGE = """
import importlib, resource, torch
torch.set_num_threads(1)
torch.manual_seed(0)
V, E = 200_000, 2_000_000
edges = torch.randint(V, (2, E))
x = torch.randn(V, 16)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for name in ("gcn", "graphconv", "gat", "gin"):
    family = importlib.import_module(f"cutaway.models.{name}")
    model = family.Model(family.Config(in_features=16, num_classes=4, layers=1, graph_level=False, dropout=0.1))
    y = model(x, edges)
    y.sum().backward()
    assert y.shape == (V, 4) and y.isfinite().all()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.slow
def test_memory_grows_with_the_edges() -> None:
    """200 000 nodes and 2 000 000 edges, forwards and backwards: V² numbers would be 160 GB."""
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    peaks = [int(line) for line in done.stdout.split()]
    assert len(peaks) == 4
    assert max(peaks) < 600, f"MiB above what stood there before: {peaks}"


def test_unknown_pooling_and_invalid_dropout_are_rejected() -> None:
    with pytest.raises(ModelError, match="Invalid kind='median': must be mean, max or sum"):
        global_pool(torch.ones(3, 2), None, "median")
    for p in (1.0, 1.5, -0.1):
        with pytest.raises(ModelError, match="Invalid p="):
            dropout(torch.ones(3), p, training=True)
