"""The moving average of weights is its formula, and evaluation uses it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cutaway.training.average import Average


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def test_it_is_the_formula_for_weights_and_a_copy_for_statistics() -> None:
    model = network()
    average = Average(model, decay=0.5)
    expected = {k: p.detach().clone() for k, p in model.named_parameters()}
    for step in range(20):
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn_like(p))
        model(torch.randn(8, 3))
        average.update(step)
        d = min(0.5, (1 + step) / (10 + step))
        expected = {k: d * expected[k] + (1 - d) * p.detach() for k, p in model.named_parameters()}
    for key, value in expected.items():
        assert torch.allclose(average.weights[key], value, rtol=1e-5)
    for key, buffer in model.named_buffers():
        assert torch.equal(average.weights[key], buffer)


def test_it_is_applied_for_a_while_and_the_weights_come_back() -> None:
    model = network()
    average = Average(model, decay=0.9)
    before = model[0].weight.detach().clone()
    average.weights["0.weight"].zero_()

    def fail_inside() -> None:
        with average.applied():
            assert model[0].weight.abs().sum() == 0
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_inside()
    assert torch.equal(model[0].weight, before)
