"""Drawn neighbourhoods: the same answers as the whole graph where none is left out, and never more than asked for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cutaway.data.graphs.splits import NeighborSampler, NodeSplit
from tests.small import GRAPHS


def graph(nodes: int, count: int, seed: int) -> torch.Tensor:
    return torch.randint(nodes, (2, count), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("family", GRAPHS.values(), ids=list(GRAPHS))
@pytest.mark.parametrize("training", [True, False])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), layers=st.integers(1, 3))
def test_all_neighbours_give_what_the_whole_graph_gives(family: object, training: bool, seed: int, layers: int) -> None:
    """In float64, with repeated edges, loops and nodes without edges; in training with as many as any node has."""
    nodes = 20
    edges, x = graph(nodes - 2, 40, seed), torch.randn(nodes, 3, dtype=torch.float64)
    torch.manual_seed(seed)
    config = family.Config(in_features=3, num_classes=2, layers=layers, graph_level=False)  # type: ignore[attr-defined]
    model: nn.Module = family.Model(config).double().eval()  # type: ignore[attr-defined]
    split = NodeSplit(x, edges, torch.arange(nodes), torch.arange(nodes), [""] * nodes, None, [40] * layers)
    whole = model(x, edges)
    plan = split.plan(6, torch.Generator().manual_seed(seed) if training else None)
    assert sorted(torch.cat(plan).tolist()) == list(range(nodes))
    for index, batch in zip(plan, split.batches(plan, seed=seed if training else None)):
        torch.testing.assert_close(model(*batch.inputs), whole[index])
        assert torch.equal(batch.target, index)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), count=st.integers(1, 4))
def test_no_node_has_more_neighbours_than_drawn(seed: int, count: int) -> None:
    nodes = 15
    edges = graph(nodes, 90, seed).numpy()
    around = NeighborSampler(edges, nodes)
    rows = np.array([3, 7])
    found, drawn = around.draw(rows, (count, count), np.random.default_rng(seed))
    assert (found[:2] == rows).all()
    assert len(set(found.tolist())) == len(found)
    assert np.bincount(drawn[1], minlength=len(found)).max() <= count
    listed = set(map(tuple, edges.T.tolist()))
    inner = [(found[j], found[i]) for j, i in drawn.T.tolist()]
    outer = {i for j, i in drawn.T.tolist() if (found[j], found[i]) not in listed}
    assert all(pair in listed or drawn[0][k] == 0 for k, pair in enumerate(inner))
    assert not outer & {0, 1}
    again, _ = around.draw(rows, (count, count), np.random.default_rng(seed))
    assert (again == found).all()


def test_neighbours_are_drawn_alike_often() -> None:
    """Node 0 has ten neighbours, of which three are drawn: each three times in ten."""
    edges = np.stack([np.arange(1, 11), np.zeros(10, np.int64)])
    around = NeighborSampler(edges, 11)
    rng = np.random.default_rng(0)
    counts = np.zeros(11)
    for _ in range(2000):
        nodes, _ = around.draw(np.array([0]), (3,), rng)
        assert len(nodes) == 4
        counts[nodes] += 1
    assert np.abs(counts[1:] / 2000 - 0.3).max() < 0.05


def test_batches_of_a_seed_are_the_same_wherever_one_begins() -> None:
    nodes = 30
    split = NodeSplit(
        torch.randn(nodes, 2), graph(nodes, 300, 0), torch.arange(nodes), None, [""] * nodes, None, (2, 2)
    )
    plan = split.plan(7, torch.Generator().manual_seed(0))
    whole, rest = list(split.batches(plan, seed=5)), list(split.batches(plan[2:], seed=5))
    for a, b in zip(whole[2:], rest):
        assert all(torch.equal(s, t) for s, t in zip(a.inputs, b.inputs))
    other = list(split.batches(plan, seed=6))
    assert any(
        a.inputs[1].shape != b.inputs[1].shape or not torch.equal(a.inputs[1], b.inputs[1])
        for a, b in zip(whole, other)
    )
    twice = next(iter(split.batches([torch.tensor([4, 4, 9])], seed=1)))
    assert torch.equal(twice.inputs[0][twice.inputs[2]], split.x[[4, 4, 9]])
