"""Elman's network: counts, its function, its names. What it shares with the others is in test_recurrent.py."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cutaway import create_model
from cutaway.core.errors import ModelError
from cutaway.inspect.layers import layer_table
from cutaway.models.rnn import CARD, Config


def test_counts_are_those_of_the_equation() -> None:
    held = CARD.published["rnn"]
    layers = layer_table(create_model("rnn"), torch.zeros(1, *held.at))
    assert (layers.parameters, layers.multiply_adds, layers.complete) == (held.parameters, held.multiply_adds, True)
    h, steps, classes = 128, 40, 10
    assert held.parameters == h * 1 + h * h + 2 * h + classes * h + classes
    assert held.multiply_adds == steps * (h * 1 + h * h) + classes * h


def test_weights_of_pytorchs_layer_load_as_they_are() -> None:
    model, theirs = create_model("rnn", hidden_dim=4, layers=2, bidirectional=True), nn.RNN(1, 4, 2, bidirectional=True)
    model.rnn.load_state_dict(theirs.state_dict())
    x = torch.randn(6, 3, 1)
    torch.testing.assert_close(model.rnn(x.transpose(0, 1))[0], theirs(x)[0].transpose(0, 1))


def test_relu_is_not_bounded() -> None:
    x = torch.full((1, 9, 1), 50.0)
    torch.manual_seed(0)
    tanh, relu = (create_model("rnn", activation=name).eval().features(x) for name in ("tanh", "relu"))
    assert tanh.abs().max() <= 1 < relu.max()
    assert relu.min() >= 0
    with pytest.raises(ModelError, match=r"^Invalid activation='gelu': must be tanh or relu"):
        Config(activation="gelu")
