"""Layers of 16 bits: PyTorch's own rounding of weights and inputs, and what no cast of the model changes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cutaway.nn.mixed_precision import HALF, HALF_DTYPES


def off(y: Tensor, right: Tensor) -> float:
    return float((y.double() - right.double()).norm() / right.double().norm())


@pytest.mark.parametrize("format", HALF_DTYPES)
@pytest.mark.parametrize("dimensions", [0, 1, 2, 3])
def test_a_layer_is_its_equation_of_rounded_numbers(format: str, dimensions: int) -> None:
    torch.manual_seed(0)
    kind: Any = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)[dimensions]
    whole = kind(8, 16) if not dimensions else kind(8, 16, 3, padding=1, stride=2)
    x = torch.randn(3, 8, *[5] * dimensions)
    made = HALF[kind].like(whole).as_format(format)
    made.take(whole)
    dtype = HALF_DTYPES[format]
    exact = kind(8, 16) if not dimensions else kind(8, 16, 3, padding=1, stride=2)
    exact.load_state_dict({k: p.to(dtype) for k, p in whole.state_dict().items()})
    exact.double()
    with torch.no_grad():
        right = exact(x.to(dtype).double())  # of rounded numbers, in float64
        y = made(x)
        assert y.dtype == torch.float32
        step = torch.finfo(dtype).eps
        assert bool(((y - right).abs() <= 2 * step * (right.abs() + 0.1)).all())  # what comes out is rounded too
        assert off(made.double()(x.double()), right) < step  # no cast changes the weights
    assert torch.equal(made.weight, whole.weight.to(dtype).float())


def test_gradients_are_those_of_the_rounded_weights() -> None:
    torch.manual_seed(0)
    whole = nn.Linear(9, 5)
    made = HALF[nn.Linear].like(whole).as_format("bfloat16")
    made.take(whole)
    with torch.no_grad():
        whole.weight.copy_(whole.weight.bfloat16())
    x = torch.randn(4, 9, requires_grad=True)
    ours = torch.autograd.grad(made(x).sin().sum(), x)[0]
    torch.testing.assert_close(ours, torch.autograd.grad(whole(x).sin().sum(), x)[0])
