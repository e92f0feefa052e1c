"""The GRU: counts, the benchmark's network, its names. What it shares with the others is in test_recurrent.py."""

from __future__ import annotations

import dataclasses
import functools

import pytest
import torch
from torch import nn

from cutaway import create_model
from cutaway.core.spec import Classes, SeriesSpec
from cutaway.inspect.gates import unroll
from cutaway.inspect.layers import layer_table
from cutaway.models.gru import CARD, PRESETS, gru_step
from cutaway.models.registry import preset


@pytest.mark.parametrize("name", PRESETS)
def test_counts_are_those_of_the_card(name: str) -> None:
    held = CARD.published[name]
    layers = layer_table(create_model(name), torch.zeros(1, *held.at))
    assert (layers.parameters, layers.multiply_adds, layers.complete) == (held.parameters, held.multiply_adds, True)


def test_counts_are_those_of_the_equations() -> None:
    h, steps, classes = 128, 40, 10
    held = CARD.published["gru"]
    assert held.parameters == 3 * (h * 1 + h * h + 2 * h) + classes * h + classes
    assert held.multiply_adds == steps * 3 * (h * 1 + h * h) + classes * h


def test_the_benchmarks_network_has_5134_parameters() -> None:
    """Six numbers in a state, both ways, and a head with a weight for every number of every step."""
    held, h, steps, classes = CARD.published["gru-mnist1d"], 6, 40, 10
    assert held.parameters == 5134 == 2 * 3 * (h * 1 + h * h + 2 * h) + classes * 2 * h * steps + classes
    assert held.multiply_adds == steps * 2 * 3 * (h * 1 + h * h) + classes * 2 * h * steps
    digits = Classes(tuple("0123456789"))
    assert preset("gru-mnist1d").configure(SeriesSpec(40, 1, digits)) == PRESETS["gru-mnist1d"]
    asked = {"hidden_dim": 6, "bidirectional": True, "pooling": "flat"}  # the same from the plain preset
    assert preset("gru").configure(SeriesSpec(40, 1, digits), asked) == PRESETS["gru-mnist1d"]


def test_its_state_stays_between_what_it_was_and_what_it_could_be() -> None:
    model = create_model("gru", hidden_dim=4).eval()
    outputs = model.rnn(torch.randn(3, 50, 1) * 100)[0]
    assert outputs.abs().max() <= 1


def test_the_network_is_pytorchs_and_not_the_papers() -> None:
    model = create_model("gru", hidden_dim=4).double().eval()
    x = torch.randn(3, 6, 1, dtype=torch.float64)
    seen = model.features(x)
    torch.testing.assert_close(unroll(model.rnn, x)[0][:, -1], seen, rtol=1e-9, atol=1e-12)
    published = functools.partial(gru_step, reset="before")
    assert not torch.allclose(unroll(model.rnn, x, step=published)[0][:, -1], seen, rtol=1e-3)
    assert any(d.what == "reset gate" for d in CARD.divergences)


def test_weights_of_pytorchs_layer_load_as_they_are() -> None:
    model, theirs = create_model("gru", hidden_dim=4, layers=2, bidirectional=True), nn.GRU(1, 4, 2, bidirectional=True)
    model.rnn.load_state_dict(theirs.state_dict())
    x = torch.randn(6, 3, 1)
    torch.testing.assert_close(model.rnn(x.transpose(0, 1))[0], theirs(x)[0].transpose(0, 1))
    assert dataclasses.asdict(model.config)["layers"] == 2
