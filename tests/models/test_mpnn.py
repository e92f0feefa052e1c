"""MPNN: a matrix for each kind of edge, the same in all steps, and set2set. What it shares is in test_gine.py and
test_graphs.py."""

from __future__ import annotations

import torch

import cutaway
from cutaway.models import mpnn


def test_counts_are_those_of_the_sizes() -> None:
    d = 64
    gru, lstm = 2 * 3 * (d * d + d), 4 * (2 * d * d + d * d + 2 * d)
    parts = 7 * d + d, d * d, gru, lstm, 2 * d * d + d, 2 * d + 2
    assert sum(p.numel() for p in cutaway.create_model("mpnn").parameters()) == sum(parts)
    described = cutaway.create_model("mpnn", edge_features=6)
    assert sum(p.numel() for p in described.parameters()) == sum(parts) - d * d + 7 * 128 + 129 * d * d


def test_a_step_by_hand() -> None:
    """Equal edges have equal matrices, and what is computed once for each kind is what each edge would give."""
    torch.manual_seed(0)
    step = mpnn.Step(mpnn.Config(edge_features=2, hidden_dim=3, edge_dim=5)).double()
    h = torch.randn(4, 3, dtype=torch.float64)
    edges = torch.tensor([[0, 2, 1, 3, 0], [1, 1, 0, 3, 1]])
    kinds = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    attributes = kinds[[0, 1, 0, 1, 1]]
    assert step.network is not None
    messages = torch.zeros_like(h)
    for (source, target), known in zip(edges.t().tolist(), attributes):
        messages[target] += h[source] @ step.network(known[None])[0]
    matrices = step.matrices(edges, 4, attributes)
    torch.testing.assert_close(step(h, edges, matrices), step.gru(messages, h))


def test_set2set_pools_each_graph_separately() -> None:
    torch.manual_seed(0)
    read = mpnn.Set2Set(3, steps=2).double()
    h, batch = torch.randn(7, 3, dtype=torch.float64), torch.tensor([1, 0, 1, 1, 0, 2, 1])
    alone = [read(h[batch == k], torch.zeros(int((batch == k).sum()), dtype=torch.int64)) for k in range(3)]
    torch.testing.assert_close(read(h, batch), torch.cat(alone))
    one = read(h[:1], torch.zeros(1, dtype=torch.int64))
    torch.testing.assert_close(one[0, 3:], h[0])  # the only node there is
