"""A layer that no file here knows, which says what it is by the type that it is derived from, is seen and changed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from cutaway import create_model
from cutaway.core.errors import ModelError
from cutaway.inspect.ablation import Transplant, Zero, ablate, intervene
from cutaway.inspect.captures import capturable_kinds, capture
from cutaway.inspect.gates import gradient_by_lag
from cutaway.nn.attention import Attention, AttentionRecord, scaled_dot_product
from cutaway.nn.graphs import MessagePassing, build_adjacency, spmm
from cutaway.nn.recurrent import State, Weights
from cutaway.views import gates, message_passing
from cutaway.views.registry import suits
from cutaway.views.subject import open_model
from tests.small import small

from .test_probes import traces

EDGES = torch.tensor([[0, 0, 1, 2], [1, 2, 2, 0]])


class Halves(MessagePassing):
    """Half of what comes along each edge."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """(V, F) to (V, F)."""
        edges = build_adjacency(edge_index, len(x), loops=False)
        halves = self.apply_edge_hook(edges.ones(x.dtype)[None] / 2, edges)
        return spmm(halves[0], edges, x)


class HalvesTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Halves(), Halves()

    def forward(self, x: Tensor, edges: Tensor, rows: Tensor | None = None, batch: Tensor | None = None) -> Tensor:
        """(V, F) to (V, F)."""
        h: Tensor = self.second(self.first(x, edges), edges)
        return h if rows is None else h[rows]


class Looks(Attention):
    """Two heads of one number each, whose queries, keys and values are x itself."""

    heads = 2

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(2, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, 2) to (N, T, 2)."""
        q = x.transpose(1, 2)[..., None]  # (N, 2, T, 1)
        if self.seen is not None:
            self.seen.append(AttentionRecord(q.detach(), q.detach(), None, False, 1.0))
        y, _ = scaled_dot_product(q, q, q)
        joined: Tensor = self.out(y[..., 0].transpose(1, 2))
        return joined


class Leaky(nn.RNNCellBase):
    """h ← λ h + (1 − λ) tanh(W x + U h), λ a half."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__(inputs, hidden, bias=False, num_chunks=1)

    def step(self, x: Tensor, state: State, weights: Weights) -> dict[str, Tensor]:
        """What one step computes."""
        (h,), (w, u, *_) = state, weights
        candidate = torch.tanh(x @ w.t() + h @ u.t())
        return {"candidate": candidate, "state": (h + candidate) / 2}

    def forward(self, input: Tensor, hx: Tensor) -> Tensor:
        """(N, inputs) and (N, hidden) to (N, hidden)."""
        return self.step(input, (hx,), (self.weight_ih, self.weight_hh, None, None))["state"]


class Reads(nn.Module):
    """The last state of a sequence (N, T, 3)."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = Leaky(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, 3) to (N, 4)."""
        h = x.new_zeros(len(x), 4)
        for row in x.unbind(1):
            h = self.cell(row, h)
        return h


def test_messages_of_a_graph_layer() -> None:
    model, x = HalvesTwice(), torch.randn(3, 2)
    assert capturable_kinds(model) == ("features", "messages", "gradients")
    with capture(model, "messages") as seen:
        before = model(x, EDGES)
    assert list(seen["messages"]) == ["first", "second"]
    assert torch.equal(seen["messages"]["first"], torch.full((4, 1), 0.5))
    assert {tuple(edge) for edge in seen["edges"]["first"].t().tolist()} == set(zip(*EDGES.tolist()))
    effects = ablate(model, (x, EDGES), "*", by="edge")
    assert {(e.module, e.part["edge"]) for e in effects} == {
        (m, e) for m in seen["edges"] for e in zip(*EDGES.tolist())
    }
    with intervene(model, Zero("second", edge=(1, 2))):
        after = model(x, EDGES)
    expected = before.clone()
    expected[2] -= model.first(x, EDGES)[1] / 2
    torch.testing.assert_close(after, expected)
    with (
        pytest.raises(ModelError, match="second is a Halves, which has no attention heads"),
        intervene(model, Zero("second", head=0)),
    ):
        pass
    assert not traces(model)


def test_the_view_of_a_graph_shows_that_layer() -> None:
    model = create_model("gcn", in_features=2, num_classes=2)
    model.layers[0] = Halves()
    model.layers[1] = Halves()
    subject = open_model(model, torch.randn(3, 2), EDGES)
    assert suits("graph", subject)
    _, travels = message_passing.capture_messages(subject)
    assert [travel.weights.unique().tolist() for travel in travels] == [[0.5], [0.5]]
    assert "comes from node 2, with the coefficient 0.5" in message_passing.draw_graph(subject)["summary"]


def test_weights_and_heads_of_an_attention() -> None:
    torch.manual_seed(0)
    model, (x, other) = nn.Sequential(Looks()).eval(), torch.randn(2, 1, 3, 2)
    with capture(model, "attention") as seen:
        before = model(x)
    first = x[0, :, :1]  # (T, 1)
    torch.testing.assert_close(seen["attention"]["0"][0, 0], (first @ first.t()).softmax(1))
    assert {e.part["head"] for e in ablate(model, x, "0", by="head")} == {0, 1}
    with torch.no_grad(), intervene(model, Transplant("0", other, head=[0, 1])):
        assert torch.equal(model(x), model[0](other))
    with intervene(model, Zero("0", head=1)):
        gone = model(x)
    second = x[0, :, 1:]
    lost = torch.outer((second @ second.t()).softmax(1) @ second[:, 0], model[0].out.weight[:, 1])
    torch.testing.assert_close(gone, before - lost)
    assert not traces(model)


def test_gates_and_memory_of_a_cell() -> None:
    torch.manual_seed(0)
    model, x = Reads(), torch.randn(2, 5, 3)
    with torch.no_grad(), capture(model, "gates") as seen:
        last = model(x)
    assert list(seen["gates"]) == ["cell.l0.candidate", "cell.l0.state"]
    assert torch.equal(seen["gates"]["cell.l0.state"][:, -1], last)
    before = seen["gates"]["cell.l0.state"][:, :-1]
    torch.testing.assert_close(
        seen["gates"]["cell.l0.state"][:, 1:], (before + seen["gates"]["cell.l0.candidate"][:, 1:]) / 2
    )
    with torch.no_grad():
        model.cell.weight_hh.zero_()  # then ∂s_T/∂s_t is the identity, halved at each step
    torch.testing.assert_close(
        gradient_by_lag(model.cell, x[0], (torch.zeros(4),)), 0.5 ** torch.arange(5.0), check_dtype=False
    )
    assert not traces(model)


def test_the_view_of_gates_shows_that_cell() -> None:
    model, inputs = small("seq2seq-gru")
    model.decoder = Leaky(model.decoder.input_size, model.decoder.hidden_size)
    shown = gates.draw_gates(open_model(model, *inputs))["table"]["rows"]
    assert {row[0] for row in shown} == {"encoder.l0", "encoder.l0_reverse", "decoder.l0"}
