"""The LSTM: counts, its forget gate, its names. What it shares with the others is in test_recurrent.py."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cutaway import create_model
from cutaway.core.memory_budget import build_on_meta
from cutaway.inspect.layers import layer_table
from cutaway.models.lstm import CARD
from cutaway.models.registry import preset


def test_counts_are_those_of_the_equations() -> None:
    held = CARD.published["lstm"]
    layers = layer_table(create_model("lstm"), torch.zeros(1, *held.at))
    assert (layers.parameters, layers.multiply_adds, layers.complete) == (held.parameters, held.multiply_adds, True)
    h, steps, classes = 128, 40, 10
    assert held.parameters == 4 * (h * 1 + h * h + 2 * h) + classes * h + classes
    assert held.multiply_adds == steps * 4 * (h * 1 + h * h) + classes * h
    found = preset("lstm")
    on = layer_table(build_on_meta(found, found.config), torch.empty(1, *held.at, device="meta"))
    assert (on.parameters, on.multiply_adds) == (held.parameters, held.multiply_adds)


@pytest.mark.parametrize("start", [1.0, -2.0])
def test_the_forget_gate_begins_as_it_is_told(start: float) -> None:
    model = create_model("lstm", hidden_dim=5, layers=2, bidirectional=True, forget_bias=start)
    biases = {k: p.view(4, 5) for k, p in model.rnn.named_parameters() if "bias" in k}
    assert len(biases) == 8
    for name, bias in biases.items():
        assert torch.equal(bias[1], torch.full((5,), start if "bias_ih" in name else 0.0)), name
        assert bias[[0, 2, 3]].abs().max() <= 5**-0.5  # as PyTorch draws them
        assert bias[[0, 2, 3]].unique().numel() == 15
    assert all(p.requires_grad for p in model.parameters())


def test_a_new_network_remembers() -> None:
    """With the gate open, what was seen first still moves the last state; with it shut, it does not."""
    effects = []
    for start in (6.0, -6.0):
        torch.manual_seed(0)
        model = create_model("lstm", hidden_dim=8, forget_bias=start).double()
        x = torch.randn(1, 30, 1, dtype=torch.float64, requires_grad=True)
        model.features(x).sum().backward()
        effects.append(float(x.grad[0, 0].abs()))
    assert effects[0] > 1e3 * effects[1]


def test_weights_of_pytorchs_layer_load_as_they_are() -> None:
    model, theirs = (
        create_model("lstm", hidden_dim=4, layers=2, bidirectional=True),
        nn.LSTM(1, 4, 2, bidirectional=True),
    )
    model.rnn.load_state_dict(theirs.state_dict())
    x = torch.randn(6, 3, 1)
    torch.testing.assert_close(model.rnn(x.transpose(0, 1))[0], theirs(x)[0].transpose(0, 1))
