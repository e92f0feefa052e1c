"""Forward and backward propagation of a multi-layer perceptron, written out.

For layer l with weights W (out, in), bias b and activation g, of one example in columns:

    forward     z = W a + b,  u = norm(z)     a′ = g(u)          u = z where nothing normalizes
    backward    δ = ∂u/∂z · g′(u) ⊙ (W′ᵀ δ′)                    W′, δ′ of the layer after
    gradients   ∂W = δ aᵀ            ∂b = δ

Here examples are rows, a (N, in), so that z = a Wᵀ + b and ∂W = δᵀ a. Gradients are those of the loss summed
over the N examples; divide by N for the mean. After D. Rumelhart, G. Hinton, R. Williams, Learning
representations by back-propagating errors, Nature 323, 1986. <https://doi.org/10.1038/323533a0>

Models are trained with autograd. This module does the same arithmetic explicitly, and the tests verify that both agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from ..activations import formula, softmax


class Layer(NamedTuple):
    """One layer: weight (out, in), bias (out,) or None, the activation's name in ACTIVATIONS, and a normalization.

    The normalization is applied to the weighted sums before the activation, in evaluation mode: batch or layer
    normalization, or None.
    """

    weight: Tensor
    bias: Tensor | None
    activation: str
    norm: nn.Module | None = None


class Trace(NamedTuple):
    """The intermediate values of a forward pass. a[0] is the input; layer l computes z[l] from a[l], u[l] from z[l] and
    a[l + 1] from u[l].
    """

    z: list[Tensor]  # L of (N, out)
    u: list[Tensor]  # L of (N, out), z normalized; z itself without normalization
    a: list[Tensor]  # L + 1 of (N, in); the last is the network's output


class Gradient(NamedTuple):
    """The gradients of one layer, and the error δ = ∂loss/∂z from which they are computed."""

    delta: Tensor  # (N, out)
    weight: Tensor  # (out, in)
    bias: Tensor  # (out,)
    back: Tensor | None = None  # (N, out) ∂loss/∂a, from the next layer; None for the last layer


def forward(layers: Sequence[Layer], x: Tensor) -> Trace:
    """Run a forward pass and record every weighted sum and activation.

    Args:
        layers: The layers, first to last.
        x: Inputs, shape (N, in).

    Returns:
        The weighted sums, normalized sums and activations of all layers.
    """
    trace = Trace(z=[], u=[], a=[x])
    for weight, bias, activation, norm in layers:
        z = trace.a[-1] @ weight.T  # (N, out)
        trace.z.append(z if bias is None else z + bias)
        trace.u.append(trace.z[-1] if norm is None else norm(trace.z[-1]))
        trace.a.append(formula(activation).function(trace.u[-1]))
    return trace


def delta_half_squared_error(layers: Sequence[Layer], trace: Trace, target: Tensor) -> Tensor:
    """Compute δ of the last layer for the loss ½ Σ (a − t)²: (a − t) ⊙ g′(z).

    Args:
        layers: The layers, first to last.
        trace: The result of `forward`.
        target: Targets t, shape (N, out).

    Returns:
        δ, shape (N, out).
    """
    derivative = formula(layers[-1].activation).derivative
    return (trace.a[-1] - target) * derivative(trace.z[-1])


def delta_cross_entropy(layers: Sequence[Layer], trace: Trace, target: Tensor) -> Tensor:
    """Compute δ of the last layer for the loss −log softmax(a)_t: (softmax(a) − one-hot(t)) ⊙ g′(z).

    The output a holds the logits, so g is usually the identity and δ the difference alone; any g is handled.

    Args:
        layers: The layers, first to last.
        trace: The result of `forward`.
        target: Class indices t, shape (N,).

    Returns:
        δ, shape (N, out).
    """
    logits = trace.a[-1]
    derivative = formula(layers[-1].activation).derivative
    return (softmax(logits) - F.one_hot(target, logits.shape[1])) * derivative(trace.z[-1])


def gradient_binary_cross_entropy(a: Tensor, target: Tensor) -> Tensor:
    """Compute ∂J/∂a = −y/a + (1 − y)/(1 − a) of the loss J = −y log a − (1 − y) log(1 − a).

    Args:
        a: The output, the probability of class 1, shape (N, 1).
        target: Classes y, 0 or 1, shape (N,).

    Returns:
        ∂J/∂a, shape (N, 1).
    """
    y = target[:, None].to(a.dtype)
    return -y / a + (1 - y) / (1 - a)


def delta_binary_cross_entropy(layers: Sequence[Layer], trace: Trace, target: Tensor) -> Tensor:
    """Compute δ of the last layer for the loss −y log a − (1 − y) log(1 − a): a − y.

    The last layer has a sigmoid, a = σ(z). Its slope σ′(z) = a (1 − a) cancels the denominators of ∂J/∂a, which
    `gradient_binary_cross_entropy` returns: δ = ∂J/∂a ⊙ σ′(z) = a − y.

    Args:
        layers: The layers, first to last.
        trace: The result of `forward`.
        target: Classes y, 0 or 1, shape (N,).

    Returns:
        δ, shape (N, 1).

    Raises:
        ValueError: If the last layer has another activation.
    """
    if layers[-1].activation != "sigmoid":
        raise ValueError(f"Invalid activation={layers[-1].activation} of the last layer: must be sigmoid.")
    return trace.a[-1] - target[:, None].to(trace.a[-1].dtype)


def backward(layers: Sequence[Layer], trace: Trace, delta: Tensor) -> list[Gradient]:
    """Compute the gradients of every layer from δ of the last layer.

    Args:
        layers: The layers, first to last.
        trace: The result of `forward`.
        delta: δ of the last layer, shape (N, out).

    Returns:
        The gradients of each layer, first to last, summed over the N examples.
    """
    gradients = []
    back = None
    for depth in reversed(range(len(layers))):
        gradients.append(Gradient(delta, weight=delta.T @ trace.a[depth], bias=delta.sum(0), back=back))
        if depth > 0:
            before = layers[depth - 1]
            back = delta @ layers[depth].weight  # Wᵀδ, in rows: (N, in)
            error = formula(before.activation).derivative(trace.u[depth - 1]) * back  # g′(u) ⊙ Wᵀδ = ∂loss/∂u
            delta = normalization_backward(before.norm, trace.z[depth - 1], error)
    return gradients[::-1]


def batch_norm_slope(norm: nn.BatchNorm1d) -> Tensor:
    """Return ∂u/∂z of batch normalization with running statistics, which is affine in each neuron, (out,)."""
    assert norm.running_var is not None, "it keeps statistics"
    return norm.weight.detach() / (norm.running_var + norm.eps).sqrt()


def normalization_backward(norm: nn.Module | None, z: Tensor, error: Tensor) -> Tensor:
    """Return ∂loss/∂z (N, out) from ∂loss/∂u, through batch normalization, layer normalization or None."""
    if norm is None:
        return error
    if isinstance(norm, nn.BatchNorm1d):
        return batch_norm_slope(norm) * error
    assert isinstance(norm, nn.LayerNorm), "a multi-layer perceptron has no other normalization"
    scale = (z.var(1, correction=0, keepdim=True) + norm.eps).sqrt()  # (N, 1)
    normal, error = (z - z.mean(1, keepdim=True)) / scale, error * norm.weight.detach()
    return (error - error.mean(1, keepdim=True) - normal * (error * normal).mean(1, keepdim=True)) / scale
