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
    """One layer of a multi-layer perceptron: g(norm(W a + b)).

    Attributes:
        weight: Weights W, shape (out, in).
        bias: Bias b, shape (out,), or None.
        activation: Name of the activation g in `ACTIVATIONS`, as `nn.activations.formula` accepts it.
        norm: Normalization of the weighted sums before the activation, in evaluation mode: `BatchNorm1d` or `LayerNorm`
            with weights, or None.

    Example:
        >>> layer = Layer(weight=torch.tensor([[1.0, -1.0]]), bias=torch.tensor([0.5]), activation="relu")
        >>> forward([layer], torch.tensor([[2.0, 1.0]])).a[-1]  # max(0, 2 − 1 + 0.5)
        tensor([[1.5000]])
    """

    weight: Tensor
    bias: Tensor | None
    activation: str
    norm: nn.Module | None = None


class Trace(NamedTuple):
    """The intermediate values of a forward pass through L layers.

    Layer l computes z[l] from a[l], u[l] from z[l] and a[l + 1] from u[l].

    Attributes:
        z: Weighted sums W a + b of each layer, L tensors of shape (N, out).
        u: The same after the normalization; z itself without one.
        a: The input, shape (N, in), then the activation of each layer, L + 1 tensors. The last is the network's output.

    Example:
        >>> layers = [Layer(torch.eye(2), None, "relu"), Layer(torch.ones(1, 2), None, "identity")]
        >>> trace = forward(layers, torch.tensor([[3.0, -4.0]]))
        >>> [a.tolist() for a in trace.a]
        [[[3.0, -4.0]], [[3.0, 0.0]], [[3.0]]]
    """

    z: list[Tensor]
    u: list[Tensor]
    a: list[Tensor]


class Gradient(NamedTuple):
    """The gradients of one layer, and the error from which they are computed. All are of the loss summed over examples.

    Attributes:
        delta: Error δ = ∂loss/∂z of each example, shape (N, out).
        weight: ∂loss/∂W, shape (out, in).
        bias: ∂loss/∂b, shape (out,). It is computed also for a layer without bias.
        back: ∂loss/∂a of the layer's output, as the next layer passes it back, shape (N, out); None for the last layer.

    Example:
        >>> layers = [Layer(torch.eye(2), None, "relu"), Layer(torch.ones(1, 2), None, "identity")]
        >>> trace = forward(layers, torch.tensor([[3.0, -4.0]]))
        >>> first, last = backward(layers, trace, delta_half_squared_error(layers, trace, torch.tensor([[1.0]])))
        >>> last.delta.tolist(), last.weight.tolist()  # y − t, and its product with the activations 3 and 0
        ([[2.0]], [[6.0, 0.0]])
        >>> first.back.tolist(), first.delta.abs().tolist()  # relu passes nothing back where it is off
        ([[2.0, 2.0]], [[2.0, 0.0]])
    """

    delta: Tensor
    weight: Tensor
    bias: Tensor
    back: Tensor | None = None


def forward(layers: Sequence[Layer], x: Tensor) -> Trace:
    """Run a forward pass and record every weighted sum and activation.

    Args:
        layers: The layers, first to last.
        x: Inputs, shape (N, in).

    Returns:
        The weighted sums, normalized sums and activations of all layers.

    Raises:
        UnknownName: If there is no activation of a layer's name.

    Example:
        >>> layers = [Layer(torch.randn(5, 3), torch.zeros(5), "tanh"), Layer(torch.randn(2, 5), None, "identity")]
        >>> trace = forward(layers, torch.randn(4, 3))
        >>> [tuple(a.shape) for a in trace.a]
        [(4, 3), (4, 5), (4, 2)]
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

    The last layer must have no normalization.

    Args:
        layers: The layers, first to last.
        trace: The result of `forward`.
        target: Targets t, shape (N, out).

    Returns:
        δ of each example, shape (N, out).

    Example:
        >>> layers = [Layer(torch.tensor([[2.0]]), None, "identity")]
        >>> trace = forward(layers, torch.tensor([[1.5], [0.0]]))  # outputs 3 and 0
        >>> delta_half_squared_error(layers, trace, torch.tensor([[1.0], [1.0]]))
        tensor([[ 2.],
                [-1.]])
    """
    derivative = formula(layers[-1].activation).derivative
    return (trace.a[-1] - target) * derivative(trace.z[-1])


def delta_cross_entropy(layers: Sequence[Layer], trace: Trace, target: Tensor) -> Tensor:
    """Compute δ of the last layer for the loss −log softmax(a)_t: (softmax(a) − one-hot(t)) ⊙ g′(z).

    The output a holds the logits, so g is usually the identity and δ the difference alone; any g is handled. The last
    layer must have no normalization.

    Args:
        layers: The layers, first to last.
        trace: The result of `forward`.
        target: Class indices t, shape (N,), int64.

    Returns:
        δ of each example, shape (N, out). Each row sums to 0 if g is the identity.

    Example:
        >>> layers = [Layer(torch.eye(2), None, "identity")]
        >>> trace = forward(layers, torch.tensor([[0.0, 0.0]]))  # both classes have probability ½
        >>> delta_cross_entropy(layers, trace, torch.tensor([1]))
        tensor([[ 0.5000, -0.5000]])
    """
    logits = trace.a[-1]
    derivative = formula(layers[-1].activation).derivative
    return (softmax(logits) - F.one_hot(target, logits.shape[1])) * derivative(trace.z[-1])


def gradient_binary_cross_entropy(a: Tensor, target: Tensor) -> Tensor:
    """Compute ∂J/∂a = −y/a + (1 − y)/(1 − a) of the loss J = −y log a − (1 − y) log(1 − a).

    Args:
        a: The output, the probability of class 1, above 0 and below 1, shape (N, 1).
        target: Classes y, 0 or 1, shape (N,).

    Returns:
        ∂J/∂a, shape (N, 1).

    Example:
        >>> gradient_binary_cross_entropy(torch.tensor([[0.8], [0.8]]), torch.tensor([1, 0]))
        tensor([[-1.2500],
                [ 5.0000]])
    """
    y = target[:, None].to(a.dtype)
    return -y / a + (1 - y) / (1 - a)


def delta_binary_cross_entropy(layers: Sequence[Layer], trace: Trace, target: Tensor) -> Tensor:
    """Compute δ of the last layer for the loss −y log a − (1 − y) log(1 − a): a − y.

    The last layer has a sigmoid, a = σ(z), and no normalization. Its slope σ′(z) = a (1 − a) cancels the denominators
    of ∂J/∂a, which `gradient_binary_cross_entropy` returns: δ = ∂J/∂a ⊙ σ′(z) = a − y.

    Args:
        layers: The layers, first to last.
        trace: The result of `forward`.
        target: Classes y, 0 or 1, shape (N,).

    Returns:
        δ of each example, shape (N, 1).

    Raises:
        ValueError: If the last layer has another activation.

    Example:
        >>> layers = [Layer(torch.tensor([[1.0]]), None, "sigmoid")]
        >>> trace = forward(layers, torch.tensor([[0.0], [0.0]]))  # a = σ(0) = ½
        >>> delta_binary_cross_entropy(layers, trace, torch.tensor([1, 0]))
        tensor([[-0.5000],
                [ 0.5000]])
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

    Example:
        >>> w = torch.randn(2, 3, requires_grad=True)
        >>> layers = [Layer(w, torch.zeros(2), "tanh"), Layer(torch.ones(1, 2), None, "identity")]
        >>> trace, target = forward(layers, torch.randn(4, 3)), torch.randn(4, 1)
        >>> gradients = backward(layers, trace, delta_half_squared_error(layers, trace, target))
        >>> (0.5 * (trace.a[-1] - target) ** 2).sum().backward()  # the same by autograd
        >>> bool(torch.allclose(gradients[0].weight, w.grad, atol=1e-6))
        True
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
    """Return ∂u/∂z of batch normalization with running statistics, which is affine in each neuron, shape (out,)."""
    assert norm.running_var is not None, "it keeps statistics"
    return norm.weight.detach() / (norm.running_var + norm.eps).sqrt()


def normalization_backward(norm: nn.Module | None, z: Tensor, error: Tensor) -> Tensor:
    """Pass a gradient back through the normalization u = norm(z) of a layer.

    Args:
        norm: `BatchNorm1d` in evaluation mode, with its running statistics, or `LayerNorm`, either with weights; or
            None for u = z.
        z: Weighted sums before the normalization, shape (N, out).
        error: ∂loss/∂u, shape (N, out).

    Returns:
        ∂loss/∂z, shape (N, out). The error itself if `norm` is None.

    Example:
        >>> z, error = torch.tensor([[1.0, 2.0, 4.0]]), torch.tensor([[1.0, 0.0, 0.0]])
        >>> back = normalization_backward(torch.nn.LayerNorm(3), z, error)
        >>> bool(back.sum().abs() < 1e-6)  # adding a constant to z changes nothing
        True
    """
    if norm is None:
        return error
    if isinstance(norm, nn.BatchNorm1d):
        return batch_norm_slope(norm) * error
    assert isinstance(norm, nn.LayerNorm), "a multi-layer perceptron has no other normalization"
    scale = (z.var(1, correction=0, keepdim=True) + norm.eps).sqrt()  # (N, 1)
    normal, error = (z - z.mean(1, keepdim=True)) / scale, error * norm.weight.detach()
    return (error - error.mean(1, keepdim=True) - normal * (error * normal).mean(1, keepdim=True)) / scale
