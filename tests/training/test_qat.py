"""Quantization-aware training: what rounding by itself loses is learned back, and rounding is that of `quantize`."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from cutaway.core.errors import SettingError
from cutaway.deploy.quantize import quantize_model
from cutaway.nn.quantized import dequantize_groups, quantize_groups
from cutaway.training.compression import FakeQuantization


def learned(
    net: nn.Module, x: Tensor, y: Tensor, steps: int, lr: float, rounding: FakeQuantization | None = None
) -> float:
    """Adam on the whole of it; the loss at the end, of what is not rounded."""
    optimizer = torch.optim.Adam(net.parameters(), lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        optimizer.zero_grad()
        if rounding is None:
            nn.functional.mse_loss(net(x), y).backward()
        else:
            with rounding.applied():
                nn.functional.mse_loss(net(x), y).backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        return float(nn.functional.mse_loss(net(x), y))


def test_what_four_bits_lose_is_learned_back() -> None:
    torch.manual_seed(0)
    x = torch.randn(256, 6)
    y = torch.sin(2 * x[:, :1]) * x[:, 1:2] + x[:, 2:3]
    net = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1))
    whole = learned(net, x, y, 400, 2e-2)

    def rounded(model: nn.Module) -> float:
        with torch.no_grad():
            made = quantize_model(model, "weight-only", 4, 32, ())
            return float(nn.functional.mse_loss(made(x), y))

    longer, aware = copy.deepcopy(net), copy.deepcopy(net)
    learned(longer, x, y, 150, 5e-3)
    learned(aware, x, y, 150, 5e-3, FakeQuantization(aware, "weight-only", 32))
    lost = rounded(longer) - whole
    assert lost > whole  # rounding costs more than all that was left of the loss
    assert rounded(aware) - whole < 0.5 * lost


@pytest.mark.parametrize(("method", "group"), [("static", 0), ("dynamic", 0), ("weight-only", 0), ("weight-only", 8)])
def test_it_answers_as_what_is_quantized_then(method: str, group: int) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv1d(3, 8, 3), nn.BatchNorm1d(8), nn.ReLU(), nn.Flatten(), nn.Linear(48, 5)).eval()
    net[1].running_mean.normal_()  # type: ignore[union-attr, operator]
    net[1].running_var.uniform_(0.5, 2)  # type: ignore[union-attr, operator]
    net[1].weight.data.uniform_(-2, 2)  # type: ignore[union-attr, operator]
    x, before = torch.randn(16, 3, 8), copy.deepcopy(net.state_dict())
    made = quantize_model(net, method, 4 if group else 8, group or 32, [(x,)])
    with torch.no_grad(), FakeQuantization(net, method, group).applied():
        rounded = net(x)
    with torch.no_grad():
        expected, exact = made(x), net(x)
    off = float((rounded - expected).norm() / (expected - exact).norm())
    assert off < (0.35 if method == "static" else 1e-4)  # of a step: an input that lies between two may go either way
    assert all(torch.equal(a, b) for a, b in zip(before.values(), net.state_dict().values()))
    assert not any(m._forward_pre_hooks for m in net.modules())


def test_gradients_are_those_at_the_rounded_weights() -> None:
    torch.manual_seed(0)
    net = nn.Linear(16, 4)
    there = copy.deepcopy(net)
    with torch.no_grad():
        there.weight.copy_(dequantize_groups(*quantize_groups(net.weight, 8), 8, net.weight.shape))
    x = torch.randn(5, 16)
    with FakeQuantization(net, "weight-only", 8).applied():
        net(x).sin().sum().backward()
    there(x).sin().sum().backward()
    torch.testing.assert_close(net.weight.grad, there.weight.grad)


def test_a_model_without_such_a_layer_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="is not supported: Linear has no convolution"):
        FakeQuantization(nn.Linear(2, 2), "static", 0)
