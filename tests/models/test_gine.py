"""GINE: what an edge carries is added to what its source sends. What it shares is in test_graphs.py."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import cutaway
from cutaway.core.errors import ModelError
from cutaway.core.spec import GraphSpec, Value
from cutaway.models import gine, mpnn
from cutaway.models.base import BaseModel
from cutaway.verify import oracle_for
from cutaway.verify.compare import compare

DESCRIBED = pytest.mark.parametrize("family", [gine, mpnn], ids=["gine", "mpnn"])


def built(family: Any, **changes: Any) -> BaseModel:
    torch.manual_seed(0)
    given = {"in_features": 5, "edge_features": 3, "hidden_dim": 4, "num_classes": 2, "layers": 2} | changes
    model: BaseModel = family.Model(family.Config(**given)).double().eval()
    return model


def drawn(seed: int, nodes: int = 9, edges: int = 20) -> tuple[Tensor, ...]:
    """A directed graph with repeated edges and loops, nodes of two graphs that lie mixed, and attributes of edges."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(nodes, 5, dtype=torch.float64, generator=generator)
    batch = torch.cat([torch.tensor([0, 1]), torch.randint(2, (nodes - 2,), generator=generator)])
    attributes = torch.randn(edges, 3, dtype=torch.float64, generator=generator)
    return (
        x,
        torch.randint(nodes, (2, edges), generator=generator),
        torch.empty(0, dtype=torch.int64),
        batch,
        attributes,
    )


def test_counts_are_those_of_the_sizes() -> None:
    layer = 64 * 128 + 128 + 128 * 64 + 64 + 2 * 64
    assert sum(p.numel() for p in cutaway.create_model("gine").parameters()) == 7 * 64 + 64 + 5 * layer + 64 * 2 + 2


def test_the_equation() -> None:
    """By hand: two edges into node 1, one of them from node 0, each with what it carries."""
    layer = gine.GINEConv(gine.Config(edge_features=1, hidden_dim=2, train_eps=True)).double()
    nn.init.constant_(layer.eps, 0.5)
    x = torch.tensor([[1.0, -1.0], [2.0, 0.5], [0.0, 3.0]], dtype=torch.float64)
    attributes = torch.tensor([[0.3], [-2.0]], dtype=torch.float64)
    assert layer.lin is not None
    sent = torch.relu(x[[0, 2]] + layer.lin(attributes)).sum(0)
    seen = 1.5 * x + torch.stack([0 * sent, sent, 0 * sent])
    expected = layer.fc2(layer.fc1(seen).relu())
    torch.testing.assert_close(layer(x, torch.tensor([[0, 2], [1, 1]]), attributes), expected)


@DESCRIBED
@pytest.mark.parametrize("changes", [{"graph_level": True}, {"graph_level": False}, {"pooling": "sum", "layers": 3}])
def test_with_edges_it_is_its_oracle(family: Any, changes: dict[str, Any]) -> None:
    """Outputs and gradients, edges described; the presets themselves, whose edges are alike, are compared elsewhere."""
    model = built(family, **changes)
    name = family.__name__.rpartition(".")[2]
    found = compare(model, oracle_for(name, model.config), torch.Generator().manual_seed(0))
    assert found.equal, found


@DESCRIBED
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000))
def test_numbering_and_order_make_no_difference(family: Any, seed: int) -> None:
    """Nodes renumbered and edges in another order, each with what it carries: graphs answer as before."""
    model, (x, edges, none, batch, attributes) = built(family), drawn(seed)
    generator = torch.Generator().manual_seed(seed)
    order, turned = torch.randperm(len(x), generator=generator), torch.randperm(len(attributes), generator=generator)
    moved = model(x[order], order.argsort()[edges][:, turned], none, batch[order], attributes[turned])
    torch.testing.assert_close(moved, model(x, edges, none, batch, attributes))


@DESCRIBED
def test_what_an_edge_carries_counts_where_it_leads(family: Any) -> None:
    model = built(family, graph_level=False, layers=1)
    x, edges = drawn(0)[0][:4], torch.tensor([[0, 1], [1, 2]])
    attributes = torch.zeros(2, 3, dtype=torch.float64)
    other = attributes.clone()
    other[0] = 1.0
    changed = (model(x, edges, None, None, other) != model(x, edges, None, None, attributes)).any(1)
    assert changed.tolist() == [False, True, False, False]


@DESCRIBED
def test_edges_of_other_features_are_rejected(family: Any) -> None:
    model, (x, edges, none, batch, attributes) = built(family), drawn(0)
    with pytest.raises(
        ModelError, match=r"takes edges of 3 features, edge_attr of shape \(20, 3\), and none are given"
    ):
        model(x, edges, none, batch)
    with pytest.raises(ModelError, match=r"and these are \(20, 2\)"):
        model(x, edges, none, batch, attributes[:, :2])


@DESCRIBED
def test_every_parameter_learns_and_a_spec_says_how_many_features_edges_have(family: Any) -> None:
    model, inputs = built(family).train(), drawn(1)
    model(*inputs).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name
    config = family.Config.for_spec(family.Config(), GraphSpec(9, Value(), True, edge_features=4))
    assert (config.edge_features, config.num_classes) == (4, 1)
