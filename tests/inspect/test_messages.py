"""Messages: one coefficient for each edge and head, and the layer's output is their sum."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cutaway import create_model
from cutaway.inspect.captures import capture
from cutaway.nn import graphs

GRAPHS = ("gcn", "gat", "graphconv", "graphsage", "gin")
# 0 → 1 twice, 1 → 0, 2 → 1, a loop at 3 that is listed, and node 4 alone.
EDGES = torch.tensor([[0, 0, 1, 2, 3], [1, 1, 0, 1, 3]])


def net(name: str, **changes: Any) -> nn.Module:
    torch.manual_seed(0)
    return create_model(name, in_features=3, hidden_dim=4, num_classes=2, graph_level=False, **changes).eval()


def summed(edges: Tensor, coefficients: Tensor, h: Tensor) -> Tensor:
    """Σ_{j → i} a_ij^k h_j^k, (V, heads, width): coefficients (E, heads), h (V, heads, width)."""
    terms = coefficients[..., None] * h[edges[0]]  # (E, heads, width)
    return torch.zeros_like(h).index_add(0, edges[1], terms)


@pytest.mark.parametrize("name", GRAPHS)
def test_messages_times_features_are_what_the_layer_gives(name: str) -> None:
    model, x = net(name).double(), torch.randn(5, 3, dtype=torch.float64)
    with torch.no_grad(), capture(model, ("messages", "features")) as seen:
        model(x, EDGES)
    assert list(seen["messages"]) == list(seen["edges"]) == [f"layers.{i}" for i in range(len(model.layers))]
    given = x
    for key, coefficients in seen["messages"].items():
        layer: Any = model.get_submodule(key)
        edges, output = seen["edges"][key], seen["features"][key]
        assert edges.shape == (2, len(coefficients))
        if name == "gat":
            h = layer.lin(given).view(5, layer.heads, layer.width)
            y = summed(edges, coefficients, h)
            y = (y.flatten(1) if layer.concat else y.mean(1)) + layer.bias
        elif name == "gcn":
            y = summed(edges, coefficients, layer.lin(given)[:, None])[:, 0]
        elif name == "gin":
            y = layer.fc2(layer.norm(layer.fc1(given + summed(edges, coefficients, given[:, None])[:, 0])).relu())
        elif name == "graphsage":
            y = summed(edges, coefficients, layer.lin_l(given)[:, None])[:, 0] + layer.lin_r(given) + layer.bias
        else:
            y = summed(edges, coefficients, layer.lin_rel(given)[:, None])[:, 0] + layer.lin_root(given) + layer.bias
        torch.testing.assert_close(y, output, atol=1e-12, rtol=1e-12)
        number = int(key.removeprefix("layers."))
        output = model.norms[number](output) if name == "gin" else output
        given = nn.functional.elu(output) if name == "gat" else output.relu()
        given = nn.functional.normalize(given, dim=1) if name == "graphsage" else given


def test_coefficients_by_hand() -> None:
    """Every node has one loop for the two that have them; with it 4 edges lead to node 1, 2 to node 0, 1 to others."""
    model, x = net("gcn"), torch.randn(5, 3)
    with capture(model, "messages") as seen:
        model(x, EDGES)
    edges = [tuple(edge) for edge in seen["edges"]["layers.0"].t().tolist()]
    assert edges == [(0, 0), (1, 0), (0, 1), (0, 1), (1, 1), (2, 1), (2, 2), (3, 3), (4, 4)]
    expected = [1 / 2, 8**-0.5, 8**-0.5, 8**-0.5, 1 / 4, 1 / 2, 1, 1, 1]
    torch.testing.assert_close(seen["messages"]["layers.0"][:, 0], torch.tensor(expected))
    model = net("graphconv")
    with capture(model, "messages") as seen:
        model(x, EDGES)
    assert torch.equal(seen["messages"]["layers.1"], torch.ones(5, 1))
    assert [tuple(e) for e in seen["edges"]["layers.1"].t().tolist()] == [(1, 0), (0, 1), (0, 1), (2, 1), (3, 3)]


def test_attention_over_neighbours_sums_to_one_for_each_head() -> None:
    model, x = net("gat", heads=3), torch.randn(5, 3)
    with capture(model, "messages") as seen:
        model(x, EDGES)
    for key, heads in (("layers.0", 3), ("layers.1", 1)):
        total = torch.zeros(5, heads).index_add(0, seen["edges"][key][1], seen["messages"][key])
        torch.testing.assert_close(total, torch.ones(5, heads))


def test_heads_that_are_computed_in_turns_stand_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = net("gat", heads=4), torch.randn(5, 3)
    found = []
    for most in (graphs.MAX_NNZ, 20):  # all heads at once, then two at a time
        monkeypatch.setattr(graphs, "MAX_NNZ", most)
        with torch.no_grad(), capture(model, "messages") as seen:
            y = model(x, EDGES)
        found.append((y, *seen["messages"].values()))
        assert list(seen["messages"]) == ["layers.0", "layers.1"]
    for a, b in zip(*found):
        torch.testing.assert_close(a, b)


def test_in_training_they_are_those_before_dropout() -> None:
    model, x = net("gat", dropout=0.5).train(), torch.randn(5, 3)
    with capture(model, "messages", "layers.1") as seen:
        model(x, EDGES)
    total = torch.zeros(5, 1).index_add(0, seen["edges"]["layers.1"][1], seen["messages"]["layers.1"])
    torch.testing.assert_close(total, torch.ones(5, 1))


def test_a_graph_without_edges_has_loops_alone() -> None:
    none = torch.empty(2, 0, dtype=torch.int64)
    for name, edges in (("gcn", 5), ("gat", 5), ("graphconv", 0), ("gin", 0)):
        model = net(name)
        with capture(model, "messages") as seen:
            model(torch.randn(5, 3), none)
        assert seen["messages"]["layers.0"].shape[0] == edges
