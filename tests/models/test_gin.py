"""GIN: it counts, it reads all layers, and ε is what the paper says. What it shares is in test_graphs.py."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import cutaway
from cutaway.core.errors import ModelError
from cutaway.models.gin import CARD, GINConv


def built(**settings: Any) -> nn.Module:
    torch.manual_seed(0)
    return cutaway.create_model("gin", **({"in_features": 1, "hidden_dim": 8} | settings)).double().eval()


def undirected(pairs: list[tuple[int, int]]) -> Tensor:
    return torch.tensor(pairs + [(b, a) for a, b in pairs]).t()


def ring(*nodes: int) -> list[tuple[int, int]]:
    return list(zip(nodes, (*nodes[1:], nodes[0])))


def test_counts_are_those_of_the_sizes() -> None:
    """Each layer: two linear ones and two normalizations; a head on x and on all four."""
    first, other = (i * 32 + 32 * 32 + 4 * 32 for i in (7, 32))
    head = (7 + 4 * 32) * 2 + 2
    assert sum(p.numel() for p in cutaway.create_model("gin").parameters()) == first + 3 * other + head
    assert CARD.published["gin"].parameters == first + 3 * other + head
    assert sum(p.numel() for p in cutaway.create_model("gin-eps").parameters()) == first + 3 * other + head + 4


@pytest.mark.parametrize("eps", [0.0, 0.5, -1.0])
def test_the_equation(eps: float) -> None:
    """The MLP sees (1 + ε) of the node itself and the sum of those that lead to it, repeated ones as often."""
    layer = GINConv(2, 3, train_eps=True).double().eval()
    nn.init.constant_(layer.eps, eps)
    x = torch.tensor([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]], dtype=torch.float64)
    seen = torch.stack([(1 + eps) * x[0] + x[2], (1 + eps) * x[1] + 2 * x[0], (1 + eps) * x[2]])
    expected = layer.fc2(layer.norm(layer.fc1(seen)).relu())
    torch.testing.assert_close(layer(x, torch.tensor([[0, 0, 2], [1, 1, 0]])), expected)


def test_eps_is_learned_where_it_is_to_be() -> None:
    assert not [name for name, _ in cutaway.create_model("gin").named_parameters() if name.endswith("eps")]
    model = cutaway.create_model("gin-eps", in_features=3)
    model(torch.randn(6, 3), undirected(ring(0, 1, 2))).sum().backward()
    for layer in model.layers:
        assert layer.eps.item() == 0
        assert layer.eps.grad.abs() > 0


def test_the_head_sees_the_sum_of_every_layer() -> None:
    model, x, edges = built(in_features=2, layers=2), torch.randn(5, 2).double(), undirected(ring(0, 1, 2, 3))
    features = model.features(x, edges)
    assert features.shape == (1, 2 + 8 + 8)
    torch.testing.assert_close(features[0, :2], x.sum(0))
    last = model.features(x, edges)[0, 10:]
    assert torch.equal(model.head(features), model(x, edges))
    nodes = built(in_features=2, layers=2, graph_level=False)
    torch.testing.assert_close(nodes.features(x, edges).sum(0), last)  # the same weights: the head is drawn last


def test_it_tells_apart_what_means_and_maxima_cannot() -> None:
    """Rings of 3 and of 6 nodes that are alike: a mean or a maximum is the same, a sum is not (figure 3)."""
    small, large = undirected(ring(0, 1, 2)), undirected(ring(0, 1, 2, 3, 4, 5))
    for pooling, apart in (("sum", True), ("mean", False), ("max", False)):
        model = built(pooling=pooling)
        one, other = model(torch.ones(3, 1).double(), small), model(torch.ones(6, 1).double(), large)
        assert torch.allclose(one, other) is not apart


def test_it_tells_apart_no_more_than_the_test_of_weisfeiler_and_leman() -> None:
    """Two triangles and a ring of six: every node has two neighbours alike, however often one looks."""
    two = undirected(ring(0, 1, 2) + ring(3, 4, 5))
    one = undirected(ring(0, 1, 2, 3, 4, 5))
    model, x = built(), torch.ones(6, 1).double()
    torch.testing.assert_close(model(x, two), model(x, one))


def test_sums_are_not_in_16_bits() -> None:
    """4096 ones and one more are 4096 in bfloat16."""
    model = built(layers=1).float()
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    nn.init.ones_(model.norms[0].bias)
    nodes = torch.ones(4097, 1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features = model.features(nodes, torch.empty(2, 0, dtype=torch.int64))
    assert features[0].tolist() == [4097.0] * 9


def test_bad_values_are_rejected_by_name() -> None:
    with pytest.raises(ModelError, match=r"^Invalid layers=0"):
        cutaway.create_model("gin", layers=0)
    with pytest.raises(ModelError, match=r"This gin takes nodes of 1 features, \(V, 1\), and these are \(4, 6\)"):
        built()(torch.zeros(4, 6).double(), torch.zeros(2, 0, dtype=torch.int64))
