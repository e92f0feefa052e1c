"""Forward and backward propagation of a multi-layer perceptron, written out.

For layer l with weights W (out, in), bias b and activation g, of one example in columns:

    forward     z = W a + b          a′ = g(z)
    backward    δ = g′(z) ⊙ (W′ᵀ δ′)          W′, δ′ of the layer after
    gradients   ∂W = δ aᵀ            ∂b = δ

Here examples are rows, a (N, in), so that z = a Wᵀ + b and ∂W = δᵀ a. Gradients are those of the loss summed
over the N examples; divide by N for the mean. After D. Rumelhart, G. Hinton, R. Williams, Learning
representations by back-propagating errors, Nature 323, 1986. <https://doi.org/10.1038/323533a0>

Models are trained by autograd; this is the same arithmetic in the open, and the tests hold the two equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

from .activations import ACTIVATIONS, softmax


class Layer(NamedTuple):
    """One layer: weight (out, in), bias (out,), and the activation's name in ACTIVATIONS."""

    weight: Tensor
    bias: Tensor
    activation: str


class Trace(NamedTuple):
    """What a forward pass saw: a[0] is the input, layer l makes z[l] of a[l] and a[l + 1] of z[l]."""

    z: list[Tensor]  # L of (N, out)
    a: list[Tensor]  # L + 1 of (N, in), the last the network's output


class Gradient(NamedTuple):
    """The gradients of one layer, and the error δ = ∂loss/∂z that they come from."""

    delta: Tensor  # (N, out)
    weight: Tensor  # (out, in)
    bias: Tensor  # (out,)


def forward(layers: Sequence[Layer], x: Tensor) -> Trace:
    """Run x (N, in) through the layers, keeping every weighted sum and activation."""
    trace = Trace(z=[], a=[x])
    for weight, bias, activation in layers:
        z = trace.a[-1] @ weight.T + bias  # (N, out)
        trace.z.append(z)
        trace.a.append(ACTIVATIONS[activation].function(z))
    return trace


def delta_half_squared_error(layers: Sequence[Layer], trace: Trace, target: Tensor) -> Tensor:
    """δ of the last layer for ½ Σ (a − t)², targets (N, out): (a − t) ⊙ g′(z)."""
    derivative = ACTIVATIONS[layers[-1].activation].derivative
    return (trace.a[-1] - target) * derivative(trace.z[-1])


def delta_cross_entropy(layers: Sequence[Layer], trace: Trace, target: Tensor) -> Tensor:
    """δ of the last layer for −log softmax(a)_t, classes (N,): (softmax(a) − one-hot(t)) ⊙ g′(z).

    The network's output a is the logits, so that g is the identity and δ the difference alone; any g is
    right.
    """
    logits = trace.a[-1]
    derivative = ACTIVATIONS[layers[-1].activation].derivative
    return (softmax(logits) - F.one_hot(target, logits.shape[1])) * derivative(trace.z[-1])


def backward(layers: Sequence[Layer], trace: Trace, delta: Tensor) -> list[Gradient]:
    """From δ of the last layer (N, out), the gradients of every layer, first to last."""
    gradients = []
    for depth in reversed(range(len(layers))):
        gradients.append(Gradient(delta, weight=delta.T @ trace.a[depth], bias=delta.sum(0)))
        if depth > 0:
            derivative = ACTIVATIONS[layers[depth - 1].activation].derivative
            delta = (delta @ layers[depth].weight) * derivative(trace.z[depth - 1])  # g′(z) ⊙ Wᵀδ, in rows
    return gradients[::-1]
