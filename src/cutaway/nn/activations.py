"""Activations: what a neuron makes of its weighted sum z, each with its derivative beside it.

The functions here are the textbook's formulas, for any shape, element by element (softmax: along one axis).
`ACTIVATIONS` pairs each with its derivative; `activation(name)` gives the fused module of PyTorch that
models run, equal to the formula. Where a function has a kink the derivative there is the one that PyTorch
takes: step 0, hard tanh 0, ReLU 0, leaky ReLU its slope below zero.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..core.errors import UnknownName

LEAKY_SLOPE = 0.01  # of leaky ReLU below zero: PyTorch's default
SLOPE = re.compile(r"\d*\.?\d+")  # another, as it is written
SCALED_TANH_AMPLITUDE = 1.7159  # with the slope 2/3, f(±1) = ±1 to four decimals
SCALED_TANH_SLOPE = 2 / 3


def identity(z: Tensor) -> Tensor:
    """z."""
    return z


def identity_derivative(z: Tensor) -> Tensor:
    """1."""
    return torch.ones_like(z)


def step(z: Tensor) -> Tensor:
    """1 where z > 0, else 0 (at z = 0: 0). Rosenblatt's neuron fires above its threshold, not at it."""
    # sign(max(0, z)) rather than z > 0: it stays a differentiable function, whose gradient is zero.
    return torch.sign(relu(z))


def step_derivative(z: Tensor) -> Tensor:
    """0 everywhere, at the jump too: no gradient passes a step."""
    return torch.zeros_like(z)


def sigmoid(z: Tensor) -> Tensor:
    """σ(z) = 1 / (1 + e^{−z}), in the form that does not overflow."""
    return torch.sigmoid(z)


def sigmoid_derivative(z: Tensor) -> Tensor:
    """σ(z) σ(−z), which is σ(z) (1 − σ(z)) without the loss of digits where σ(z) is near 1."""
    return sigmoid(z) * sigmoid(-z)


def tanh(z: Tensor) -> Tensor:
    """tanh(z) = (e^z − e^{−z}) / (e^z + e^{−z}), in the form that does not overflow."""
    return torch.tanh(z)


def tanh_derivative(z: Tensor) -> Tensor:
    """1 − tanh²(z)."""
    return 1 - tanh(z).square()


def scaled_tanh(z: Tensor) -> Tensor:
    """1.7159 tanh(2z/3), which is ±1 at ±1, where it bends most (LeCun et al., 1998, appendix A)."""
    return SCALED_TANH_AMPLITUDE * tanh(SCALED_TANH_SLOPE * z)


def scaled_tanh_derivative(z: Tensor) -> Tensor:
    """1.7159 · 2/3 · (1 − tanh²(2z/3))."""
    return SCALED_TANH_AMPLITUDE * SCALED_TANH_SLOPE * tanh_derivative(SCALED_TANH_SLOPE * z)


def hard_tanh(z: Tensor) -> Tensor:
    """z between −1 and 1, −1 below, 1 above."""
    return torch.where(z.abs() >= 1, torch.sign(z), z)


def hard_tanh_derivative(z: Tensor) -> Tensor:
    """1 where |z| < 1, else 0 (at z = ±1: 0)."""
    return (z.abs() < 1).to(z.dtype)


def relu(z: Tensor) -> Tensor:
    """max(0, z)."""
    return torch.relu(z)


def relu_derivative(z: Tensor) -> Tensor:
    """1 where z > 0, else 0 (at z = 0: 0)."""
    return (z > 0).to(z.dtype)


def leaky_relu(z: Tensor, slope: float = LEAKY_SLOPE) -> Tensor:
    """z where z > 0, else `slope` z."""
    return torch.where(z > 0, z, slope * z)


def leaky_relu_derivative(z: Tensor, slope: float = LEAKY_SLOPE) -> Tensor:
    """1 where z > 0, else `slope` (at z = 0: `slope`)."""
    return torch.where(z > 0, torch.ones_like(z), slope)


def silu(z: Tensor) -> Tensor:
    """z σ(z)."""
    return z * sigmoid(z)


def silu_derivative(z: Tensor) -> Tensor:
    """σ(z) (1 + z σ(−z))."""
    return sigmoid(z) * (1 + z * sigmoid(-z))


def gelu(z: Tensor) -> Tensor:
    """z Φ(z) with the normal distribution Φ(z) = (1 + erf(z/√2)) / 2."""
    return z * _normal_distribution(z)


def gelu_derivative(z: Tensor) -> Tensor:
    """Φ(z) + z φ(z) with the normal density φ(z) = e^{−z²/2} / √(2π)."""
    density = torch.exp(-z.square() / 2) / math.sqrt(2 * math.pi)
    return _normal_distribution(z) + z * density


def gelu_tanh(z: Tensor) -> Tensor:
    """z (1 + tanh(√(2/π) (z + 0.044715 z³))) / 2, the approximation that BERT's and GPT-2's code used."""
    return z * (1 + tanh(_gelu_inner(z))) / 2


def gelu_tanh_derivative(z: Tensor) -> Tensor:
    """(1 + tanh u) / 2 + z (1 − tanh² u) u′ / 2 with u = √(2/π) (z + 0.044715 z³)."""
    u = _gelu_inner(z)
    u_derivative = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * z.square())
    return (1 + tanh(u)) / 2 + z * tanh_derivative(u) * u_derivative / 2


def softmax(z: Tensor, dim: int = -1) -> Tensor:
    """s_i = e^{z_i} / Σ_j e^{z_j} along `dim`; the largest z is taken off first: nothing overflows."""
    shifted = torch.exp(z - z.amax(dim, keepdim=True))
    return shifted / shifted.sum(dim, keepdim=True)


def softmax_jacobian(z: Tensor) -> Tensor:
    """∂s_i/∂z_j = s_i (δ_ij − s_j), from (..., K) to (..., K, K): row i, column j.

    Softmax mixes its inputs, so its derivative is a matrix and it stands outside the table below.
    """
    s = softmax(z)
    return torch.diag_embed(s) - s.unsqueeze(-1) * s.unsqueeze(-2)  # (..., K, K)


def _normal_distribution(z: Tensor) -> Tensor:
    # erfc of −z keeps the digits that 1 + erf(z) loses far below zero.
    tail: Tensor = torch.special.erfc(-z / math.sqrt(2))
    return tail / 2


def _gelu_inner(z: Tensor) -> Tensor:
    return math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)


class Activation(NamedTuple):
    """A function of z and its derivative, both element by element."""

    function: Callable[[Tensor], Tensor]
    derivative: Callable[[Tensor], Tensor]


ACTIVATIONS = {
    "identity": Activation(identity, identity_derivative),
    "step": Activation(step, step_derivative),
    "sigmoid": Activation(sigmoid, sigmoid_derivative),
    "tanh": Activation(tanh, tanh_derivative),
    "scaled_tanh": Activation(scaled_tanh, scaled_tanh_derivative),
    "hard_tanh": Activation(hard_tanh, hard_tanh_derivative),
    "relu": Activation(relu, relu_derivative),
    "leaky_relu": Activation(leaky_relu, leaky_relu_derivative),
    "silu": Activation(silu, silu_derivative),
    "gelu": Activation(gelu, gelu_derivative),
    "gelu_tanh": Activation(gelu_tanh, gelu_tanh_derivative),
}


class Step(nn.Module):
    """`step` as a module."""

    def forward(self, z: Tensor) -> Tensor:
        """1 where z > 0, else 0."""
        return step(z)


class ScaledTanh(nn.Module):
    """`scaled_tanh` as a module."""

    def forward(self, z: Tensor) -> Tensor:
        """1.7159 tanh(2z/3)."""
        return scaled_tanh(z)


_MODULES: dict[str, Callable[[], nn.Module]] = {
    "identity": nn.Identity,
    "step": Step,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "scaled_tanh": ScaledTanh,
    "hard_tanh": nn.Hardtanh,
    "relu": nn.ReLU,
    "leaky_relu": lambda: nn.LeakyReLU(LEAKY_SLOPE),
    "silu": nn.SiLU,
    "gelu": nn.GELU,
    "gelu_tanh": lambda: nn.GELU(approximate="tanh"),
}


def formula(name: str) -> Activation:
    """The function of that name and its derivative: one of ACTIVATIONS, or leaky ReLU with a slope of its own, as
    `leaky_relu:0.2`. Raises UnknownName with the nearest names."""
    base, slope = _parts(name)
    if slope is None:
        return ACTIVATIONS[base]
    return Activation(partial(leaky_relu, slope=slope), partial(leaky_relu_derivative, slope=slope))


def activation(name: str) -> nn.Module:
    """The fused module of that name, as `formula` takes it. Raises UnknownName with the nearest names."""
    base, slope = _parts(name)
    return _MODULES[base]() if slope is None else nn.LeakyReLU(slope)


def _parts(name: str) -> tuple[str, float | None]:
    """The name of an activation, and the slope that stands behind a colon."""
    base, colon, slope = name.partition(":")
    if base not in _MODULES or (colon and (base != "leaky_relu" or not SLOPE.fullmatch(slope))):
        raise UnknownName("activation", name, _MODULES, "leaky_relu:0.2 is leaky ReLU with the slope 0.2.")
    return base, float(slope) if colon else None
