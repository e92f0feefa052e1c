"""Activation functions and their derivatives.

The functions are the textbook formulas. They accept any shape and act elementwise (softmax: along one axis).
`ACTIVATIONS` pairs each function with its derivative. `activation(name)` returns the equivalent fused PyTorch module,
which is the one that models run. Where a function has a kink, the derivative is the one that PyTorch uses: step 0, hard
tanh 0, ReLU 0, leaky ReLU its slope below zero.
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

LEAKY_SLOPE = 0.01  # slope of leaky ReLU below zero: PyTorch's default
ALIASES = {"swish": "silu"}  # other names in use
SLOPE = re.compile(r"\d*\.?\d+")  # a custom slope, as it is written in a name
SCALED_TANH_AMPLITUDE = 1.7159  # with the slope 2/3, f(±1) = ±1 to four decimals
SCALED_TANH_SLOPE = 2 / 3


def identity(z: Tensor) -> Tensor:
    """Return z unchanged.

    Args:
        z: Input, any shape.

    Returns:
        z.

    Example:
        >>> identity(torch.tensor([-1.0, 0.0, 2.0]))
        tensor([-1.,  0.,  2.])
    """
    return z


def identity_derivative(z: Tensor) -> Tensor:
    """Return the derivative of `identity`, which is 1 everywhere.

    Args:
        z: Input, any shape.

    Returns:
        Ones, of the shape of z.

    Example:
        >>> identity_derivative(torch.tensor([-1.0, 0.0, 2.0]))
        tensor([1., 1., 1.])
    """
    return torch.ones_like(z)


def step(z: Tensor) -> Tensor:
    """Return the Heaviside step: 1 where z > 0, else 0.

    The value at z = 0 is 0: Rosenblatt's neuron fires above its threshold, not at it.

    Args:
        z: Input, any shape.

    Returns:
        0 or 1, of the shape of z.

    Example:
        >>> step(torch.tensor([-1.0, 0.0, 0.1]))
        tensor([0., 0., 1.])
    """
    # sign(max(0, z)) instead of z > 0 keeps the function differentiable, with a gradient of zero.
    return torch.sign(relu(z))


def step_derivative(z: Tensor) -> Tensor:
    """Return the derivative of `step`: 0 everywhere, by convention also at the jump, so that no gradient passes a step.

    Args:
        z: Input, any shape.

    Returns:
        Zeros, of the shape of z.

    Example:
        >>> step_derivative(torch.tensor([-1.0, 0.0, 0.1]))
        tensor([0., 0., 0.])
    """
    return torch.zeros_like(z)


def sigmoid(z: Tensor) -> Tensor:
    """Return the logistic sigmoid σ(z) = 1 / (1 + e^{−z}), computed without overflow.

    Args:
        z: Input, any shape.

    Returns:
        σ(z), of the shape of z.

    Example:
        >>> sigmoid(torch.tensor([-2.0, 0.0, 2.0]))  # σ(−z) = 1 − σ(z)
        tensor([0.1192, 0.5000, 0.8808])
        >>> sigmoid(torch.tensor(-1000.0))
        tensor(0.)
    """
    return torch.sigmoid(z)


def sigmoid_derivative(z: Tensor) -> Tensor:
    """Return the derivative of `sigmoid`, σ(z) σ(−z).

    This equals σ(z) (1 − σ(z)), without the loss of digits where σ(z) is near 1.

    Args:
        z: Input, any shape.

    Returns:
        σ′(z), of the shape of z.

    Example:
        >>> sigmoid_derivative(torch.tensor([-2.0, 0.0, 2.0]))  # at most 1/4
        tensor([0.1050, 0.2500, 0.1050])
        >>> z = torch.tensor(20.0)
        >>> sigmoid(z) * (1 - sigmoid(z)), sigmoid_derivative(z) > 0
        (tensor(0.), tensor(True))
    """
    return sigmoid(z) * sigmoid(-z)


def tanh(z: Tensor) -> Tensor:
    """Return tanh(z) = (e^z − e^{−z}) / (e^z + e^{−z}), computed without overflow.

    Args:
        z: Input, any shape.

    Returns:
        tanh(z), of the shape of z.

    Example:
        >>> tanh(torch.tensor([-1.0, 0.0, 1.0]))
        tensor([-0.7616,  0.0000,  0.7616])
    """
    return torch.tanh(z)


def tanh_derivative(z: Tensor) -> Tensor:
    """Return the derivative of `tanh`, 1 − tanh²(z).

    Args:
        z: Input, any shape.

    Returns:
        The derivative, of the shape of z.

    Example:
        >>> tanh_derivative(torch.tensor([-1.0, 0.0, 1.0]))
        tensor([0.4200, 1.0000, 0.4200])
    """
    return 1 - tanh(z).square()


def scaled_tanh(z: Tensor) -> Tensor:
    """Return 1.7159 tanh(2z/3).

    The constants make f(±1) = ±1 to four decimals. The curvature is largest near ±1 (LeCun et al., 1998, appendix A).

    Args:
        z: Input, any shape.

    Returns:
        The scaled tanh, of the shape of z.

    Example:
        >>> scaled_tanh(torch.tensor([-1.0, 0.0, 1.0, 100.0]))
        tensor([-1.0000,  0.0000,  1.0000,  1.7159])
    """
    return SCALED_TANH_AMPLITUDE * tanh(SCALED_TANH_SLOPE * z)


def scaled_tanh_derivative(z: Tensor) -> Tensor:
    """Return the derivative of `scaled_tanh`, 1.7159 · 2/3 · (1 − tanh²(2z/3)).

    Args:
        z: Input, any shape.

    Returns:
        The derivative, of the shape of z.

    Example:
        >>> scaled_tanh_derivative(torch.tensor([-2.0, 0.0, 2.0]))
        tensor([0.2780, 1.1439, 0.2780])
    """
    return SCALED_TANH_AMPLITUDE * SCALED_TANH_SLOPE * tanh_derivative(SCALED_TANH_SLOPE * z)


def hard_tanh(z: Tensor) -> Tensor:
    """Return z clipped to the range −1 to 1.

    Args:
        z: Input, any shape.

    Returns:
        The clipped values, of the shape of z.

    Example:
        >>> hard_tanh(torch.tensor([-2.0, -0.5, 0.5, 2.0]))
        tensor([-1.0000, -0.5000,  0.5000,  1.0000])
    """
    return torch.where(z.abs() >= 1, torch.sign(z), z)


def hard_tanh_derivative(z: Tensor) -> Tensor:
    """Return the derivative of `hard_tanh`: 1 where |z| < 1, else 0 (at z = ±1: 0).

    Args:
        z: Input, any shape.

    Returns:
        0 or 1, of the shape of z.

    Example:
        >>> hard_tanh_derivative(torch.tensor([-2.0, -0.5, 0.5, 1.0]))
        tensor([0., 1., 1., 0.])
    """
    return (z.abs() < 1).to(z.dtype)


def relu(z: Tensor) -> Tensor:
    """Return the rectified linear unit max(0, z).

    Args:
        z: Input, any shape.

    Returns:
        max(0, z), of the shape of z.

    Example:
        >>> relu(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([0., 0., 3.])
    """
    return torch.relu(z)


def relu_derivative(z: Tensor) -> Tensor:
    """Return the derivative of `relu`: 1 where z > 0, else 0 (at z = 0: 0).

    Args:
        z: Input, any shape.

    Returns:
        0 or 1, of the shape of z.

    Example:
        >>> relu_derivative(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([0., 0., 1.])
    """
    return (z > 0).to(z.dtype)


def leaky_relu(z: Tensor, slope: float = LEAKY_SLOPE) -> Tensor:
    """Return z where z > 0, else `slope` · z.

    Args:
        z: Input, any shape.
        slope: Slope for z ≤ 0.

    Returns:
        The activations, of the shape of z.

    Example:
        >>> leaky_relu(torch.tensor([-2.0, 0.0, 3.0]), slope=0.1)
        tensor([-0.2000,  0.0000,  3.0000])
    """
    return torch.where(z > 0, z, slope * z)


def leaky_relu_derivative(z: Tensor, slope: float = LEAKY_SLOPE) -> Tensor:
    """Return the derivative of `leaky_relu`: 1 where z > 0, else `slope` (at z = 0: `slope`).

    Args:
        z: Input, any shape.
        slope: Slope for z ≤ 0.

    Returns:
        The derivative, of the shape of z.

    Example:
        >>> leaky_relu_derivative(torch.tensor([-2.0, 0.0, 3.0]), slope=0.1)
        tensor([0.1000, 0.1000, 1.0000])
    """
    return torch.where(z > 0, torch.ones_like(z), slope)


def silu(z: Tensor) -> Tensor:
    """Return the sigmoid linear unit z σ(z), also called swish.

    Args:
        z: Input, any shape.

    Returns:
        z σ(z), of the shape of z.

    Example:
        >>> silu(torch.tensor([-10.0, -1.0, 0.0, 1.0, 10.0]))  # near 0 or z far from 0
        tensor([-4.5398e-04, -2.6894e-01,  0.0000e+00,  7.3106e-01,  9.9995e+00])
    """
    return z * sigmoid(z)


def silu_derivative(z: Tensor) -> Tensor:
    """Return the derivative of `silu`, σ(z) (1 + z σ(−z)).

    Args:
        z: Input, any shape.

    Returns:
        The derivative, of the shape of z.

    Example:
        >>> z = torch.tensor([-2.0, 0.0, 2.0], requires_grad=True)
        >>> silu(z).sum().backward()
        >>> torch.allclose(z.grad, silu_derivative(z))
        True
    """
    return sigmoid(z) * (1 + z * sigmoid(-z))


def gelu(z: Tensor) -> Tensor:
    """Return the Gaussian error linear unit z Φ(z).

    Φ(z) = (1 + erf(z/√2)) / 2 is the standard normal distribution function.

    Args:
        z: Input, any shape.

    Returns:
        z Φ(z), of the shape of z.

    Example:
        >>> gelu(torch.tensor([-2.0, -0.5, 0.0, 0.5, 2.0]))  # gelu(z) − gelu(−z) = z
        tensor([-0.0455, -0.1543,  0.0000,  0.3457,  1.9545])
    """
    return z * _normal_cdf(z)


def gelu_derivative(z: Tensor) -> Tensor:
    """Return the derivative of `gelu`, Φ(z) + z φ(z).

    φ(z) = e^{−z²/2} / √(2π) is the standard normal density.

    Args:
        z: Input, any shape.

    Returns:
        The derivative, of the shape of z.

    Example:
        >>> z = torch.tensor([-2.0, 0.0, 2.0], requires_grad=True)
        >>> gelu(z).sum().backward()
        >>> torch.allclose(z.grad, gelu_derivative(z))
        True
    """
    density = torch.exp(-z.square() / 2) / math.sqrt(2 * math.pi)
    return _normal_cdf(z) + z * density


def gelu_tanh(z: Tensor) -> Tensor:
    """Return the tanh approximation of GELU, z (1 + tanh(√(2/π) (z + 0.044715 z³))) / 2.

    The original code of BERT and GPT-2 uses this form.

    Args:
        z: Input, any shape.

    Returns:
        The activations, of the shape of z.

    Example:
        >>> z = torch.linspace(-5, 5, 1001)
        >>> (gelu_tanh(z) - gelu(z)).abs().max() < 5e-4
        tensor(True)
    """
    return z * (1 + tanh(_gelu_inner(z))) / 2


def gelu_tanh_derivative(z: Tensor) -> Tensor:
    """Return the derivative of `gelu_tanh`.

    It is (1 + tanh u) / 2 + z (1 − tanh² u) u′ / 2 with u = √(2/π) (z + 0.044715 z³).

    Args:
        z: Input, any shape.

    Returns:
        The derivative, of the shape of z.

    Example:
        >>> z = torch.tensor([-2.0, 0.0, 2.0], requires_grad=True)
        >>> gelu_tanh(z).sum().backward()
        >>> torch.allclose(z.grad, gelu_tanh_derivative(z))
        True
    """
    u = _gelu_inner(z)
    u_derivative = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * z.square())
    return (1 + tanh(u)) / 2 + z * tanh_derivative(u) * u_derivative / 2


def softmax(z: Tensor, dim: int = -1) -> Tensor:
    """Return the softmax along one axis, s_i = e^{z_i} / Σ_j e^{z_j}.

    The largest z is subtracted first, so that nothing overflows.

    Args:
        z: Input, any shape.
        dim: Axis along which the result sums to 1. Default: the last.

    Returns:
        The probabilities, of the shape of z.

    Example:
        >>> softmax(torch.tensor([1.0, 2.0, 3.0]))
        tensor([0.0900, 0.2447, 0.6652])
        >>> softmax(torch.tensor([1001.0, 1002.0, 1003.0]))  # depends on differences only
        tensor([0.0900, 0.2447, 0.6652])
    """
    shifted = torch.exp(z - z.amax(dim, keepdim=True))
    return shifted / shifted.sum(dim, keepdim=True)


def softmax_jacobian(z: Tensor) -> Tensor:
    """Return the Jacobian of the softmax along the last axis, ∂s_i/∂z_j = s_i (δ_ij − s_j).

    Each output of the softmax depends on all inputs, so its derivative is a matrix. It is therefore not in
    `ACTIVATIONS`.

    Args:
        z: Input of the softmax, shape (..., K).

    Returns:
        The Jacobians, shape (..., K, K): row i, column j.

    Example:
        >>> softmax_jacobian(torch.tensor([0.0, 1.0]))  # rows and columns sum to 0
        tensor([[ 0.1966, -0.1966],
                [-0.1966,  0.1966]])
    """
    s = softmax(z)
    return torch.diag_embed(s) - s.unsqueeze(-1) * s.unsqueeze(-2)  # (..., K, K)


def _normal_cdf(z: Tensor) -> Tensor:
    # erfc(−z) keeps the digits that 1 + erf(z) loses far below zero.
    tail: Tensor = torch.special.erfc(-z / math.sqrt(2))
    return tail / 2


def _gelu_inner(z: Tensor) -> Tensor:
    return math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)


class Activation(NamedTuple):
    """An elementwise function and its derivative.

    Attributes:
        function: Maps a tensor of any shape to a tensor of that shape.
        derivative: The derivative of `function`, elementwise.

    Example:
        >>> function, derivative = ACTIVATIONS["tanh"]
        >>> function(torch.tensor(0.0)), derivative(torch.tensor(0.0))
        (tensor(0.), tensor(1.))
    """

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
    """A module that applies `step`. It has no arguments and no parameters.

    Example:
        >>> Step()(torch.tensor([-1.0, 0.0, 0.1]))
        tensor([0., 0., 1.])
    """

    def forward(self, z: Tensor) -> Tensor:
        """Apply `step` elementwise.

        Args:
            z: Input, any shape.

        Returns:
            0 or 1, of the shape of z.
        """
        return step(z)


class ScaledTanh(nn.Module):
    """A module that applies `scaled_tanh`. It has no arguments and no parameters.

    Example:
        >>> ScaledTanh()(torch.tensor([-1.0, 0.0, 1.0]))
        tensor([-1.0000,  0.0000,  1.0000])
    """

    def forward(self, z: Tensor) -> Tensor:
        """Apply `scaled_tanh` elementwise.

        Args:
            z: Input, any shape.

        Returns:
            The scaled tanh, of the shape of z.
        """
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
    """Return the function with the given name, and its derivative.

    Args:
        name: A key of `ACTIVATIONS`; `swish`, another name of `silu`; or leaky ReLU with the slope after a colon, such
            as `leaky_relu:0.2`. Slopes are not negative.

    Returns:
        The function and its derivative.

    Raises:
        UnknownName: If there is no such activation. The message lists similar names.

    Example:
        >>> function, derivative = formula("leaky_relu:0.2")
        >>> z = torch.tensor([-1.0, 1.0])
        >>> function(z), derivative(z)
        (tensor([-0.2000,  1.0000]), tensor([0.2000, 1.0000]))
    """
    base, slope = _parts(name)
    if slope is None:
        return ACTIVATIONS[base]
    return Activation(partial(leaky_relu, slope=slope), partial(leaky_relu_derivative, slope=slope))


def activation(name: str) -> nn.Module:
    """Return a module that applies the activation with the given name: PyTorch's fused one, if there is one.

    Args:
        name: A name that `formula` accepts.

    Returns:
        A new module. PyTorch has none for `step` and `scaled_tanh`; these apply the functions of this module.

    Raises:
        UnknownName: If there is no such activation. The message lists similar names.

    Example:
        >>> activation("gelu_tanh"), activation("leaky_relu:0.2")
        (GELU(approximate='tanh'), LeakyReLU(negative_slope=0.2))
        >>> activation("swish")(torch.tensor([0.0, 1.0]))
        tensor([0.0000, 0.7311])
    """
    base, slope = _parts(name)
    return _MODULES[base]() if slope is None else nn.LeakyReLU(slope)


def _parts(name: str) -> tuple[str, float | None]:
    """Split a name into the activation and the slope after the colon, None without one."""
    base, colon, slope = ALIASES.get(name, name).partition(":")
    if base not in _MODULES or (colon and (base != "leaky_relu" or not SLOPE.fullmatch(slope))):
        raise UnknownName("activation", name, _MODULES, "leaky_relu:0.2 is leaky ReLU with the slope 0.2.")
    return base, float(slope) if colon else None
