"""Backward propagation written out is autograd's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutaway.models import mlp
from cutaway.nn.activations import ACTIVATIONS, formula
from cutaway.nn.textbook.backprop import (
    Layer,
    backward,
    delta_binary_cross_entropy,
    delta_cross_entropy,
    delta_half_squared_error,
    forward,
    gradient_binary_cross_entropy,
)

networks = {
    "widths": st.lists(st.integers(1, 6), min_size=2, max_size=5),
    "examples": st.integers(1, 5),
    "data": st.data(),
    "seed": st.integers(0, 1000),
}


def draw(widths: list[int], names: list[str], seed: int) -> list[Layer]:
    """Layers of these widths with random weights."""
    g = torch.Generator().manual_seed(seed)
    return [
        Layer(
            torch.randn(outputs, inputs, generator=g, dtype=torch.float64).requires_grad_(),
            torch.randn(outputs, generator=g, dtype=torch.float64).requires_grad_(),
            name,
        )
        for inputs, outputs, name in zip(widths, widths[1:], names)
    ]


def assert_equal_to_autograd(layers: list[Layer], x: Tensor, loss: Tensor, delta: Tensor) -> None:
    parameters = [p for layer in layers for p in (layer.weight, layer.bias)]
    expected = torch.autograd.grad(loss, parameters)
    with torch.no_grad():
        gradients = backward(layers, forward(layers, x), delta)
    found = [g for gradient in gradients for g in (gradient.weight, gradient.bias)]
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@settings(max_examples=100, deadline=None)
@given(**networks)
def test_from_half_squared_error(widths: list[int], examples: int, data: st.DataObject, seed: int) -> None:
    names = [data.draw(st.sampled_from(sorted(ACTIVATIONS))) for _ in widths[1:]]
    layers = draw(widths, names, seed)
    g = torch.Generator().manual_seed(seed + 1)
    x = torch.randn(examples, widths[0], generator=g, dtype=torch.float64)
    target = torch.randn(examples, widths[-1], generator=g, dtype=torch.float64)
    trace = forward(layers, x)
    loss = ((trace.a[-1] - target) ** 2).sum() / 2
    assert_equal_to_autograd(layers, x, loss, delta_half_squared_error(layers, trace, target).detach())


@settings(max_examples=100, deadline=None)
@given(**networks)
def test_from_softmax_cross_entropy(widths: list[int], examples: int, data: st.DataObject, seed: int) -> None:
    names = [data.draw(st.sampled_from(sorted(ACTIVATIONS))) for _ in widths[1:]]
    layers = draw(widths, names, seed)
    g = torch.Generator().manual_seed(seed + 1)
    x = torch.randn(examples, widths[0], generator=g, dtype=torch.float64)
    target = torch.randint(widths[-1], (examples,), generator=g)
    trace = forward(layers, x)
    loss = F.cross_entropy(trace.a[-1], target, reduction="sum")
    assert_equal_to_autograd(layers, x, loss, delta_cross_entropy(layers, trace, target).detach())


@settings(max_examples=50, deadline=None)
@given(**networks)
def test_from_binary_cross_entropy(widths: list[int], examples: int, data: st.DataObject, seed: int) -> None:
    names = [*(data.draw(st.sampled_from(sorted(ACTIVATIONS))) for _ in widths[2:]), "sigmoid"]
    layers = draw([*widths[:-1], 1], names, seed)
    layers[-1] = layers[-1]._replace(weight=(layers[-1].weight.detach() / 10).requires_grad_())  # a is not 0 or 1
    g = torch.Generator().manual_seed(seed + 1)
    x = torch.rand(examples, widths[0], generator=g, dtype=torch.float64)
    target = torch.randint(2, (examples,), generator=g)
    trace = forward(layers, x)
    a = trace.a[-1]
    loss = F.binary_cross_entropy(a, target[:, None].double(), reduction="sum")
    delta = delta_binary_cross_entropy(layers, trace, target).detach()
    (step,) = torch.autograd.grad(loss, a, retain_graph=True)
    ours = gradient_binary_cross_entropy(a, target).detach()
    torch.testing.assert_close(ours, step, rtol=1e-9, atol=1e-12)
    slope = formula("sigmoid").derivative(trace.z[-1]).detach()
    torch.testing.assert_close(ours * slope, delta, rtol=1e-6, atol=1e-9)  # where a nears 0 or 1, digits cancel
    z = trace.z[-1]
    precise = F.binary_cross_entropy_with_logits(z, target[:, None].double(), reduction="sum")
    assert_equal_to_autograd(layers, x, precise, delta)


def test_delta_of_binary_cross_entropy_needs_a_sigmoid() -> None:
    layers = draw([2, 1], ["identity"], 0)
    with pytest.raises(ValueError, match="Invalid activation=identity of the last layer: must be sigmoid"):
        delta_binary_cross_entropy(layers, forward(layers, torch.ones(1, 2).double()), torch.tensor([1]))


def test_binary_cross_entropy_worked_by_hand() -> None:
    """z = 0, a = ½ and y = 1: ∂J/∂a = −1/a = −2, times the slope ¼ is δ = a − y = −½."""
    layers = [Layer(torch.tensor([[1.0]]), torch.tensor([-2.0]), "sigmoid")]
    trace, y = forward(layers, torch.tensor([[2.0]])), torch.tensor([1])
    assert (trace.z[0].item(), trace.a[-1].item()) == (0, 0.5)
    assert gradient_binary_cross_entropy(trace.a[-1], y).item() == -2
    assert delta_binary_cross_entropy(layers, trace, y).item() == -0.5


def test_a_network_worked_by_hand() -> None:
    """x = 2 → z = 3·2 − 5 = 1, a = ReLU(1) = 1 → z = 4·1 + 1 = 5; target 3, so δ₂ = 2 and δ₁ = 4·2 = 8."""
    layers = [
        Layer(torch.tensor([[3.0]]), torch.tensor([-5.0]), "relu"),
        Layer(torch.tensor([[4.0]]), torch.tensor([1.0]), "identity"),
    ]
    trace = forward(layers, torch.tensor([[2.0]]))
    assert [z.item() for z in trace.z] == [1, 5]
    first, second = backward(layers, trace, delta_half_squared_error(layers, trace, torch.tensor([[3.0]])))
    assert (second.delta.item(), second.weight.item(), second.bias.item()) == (2, 2, 2)
    assert (first.delta.item(), first.weight.item(), first.bias.item()) == (8, 16, 8)


@pytest.mark.parametrize("name", ["relu", "gelu", "scaled_tanh"])
def test_it_is_what_the_mlp_does(name: str) -> None:
    model = mlp.Model(
        mlp.Config(in_features=5, num_classes=3, hidden_dims=(7, 4), activation=name, dropout=0.0)
    ).double()
    x, target = torch.randn(6, 5, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 2])
    F.cross_entropy(model(x), target, reduction="sum").backward()
    layers = [Layer(block.linear.weight, block.linear.bias, name) for block in model.hidden]
    layers.append(Layer(model.head.weight, model.head.bias, "identity"))
    with torch.no_grad():
        trace = forward(layers, x)
        gradients = backward(layers, trace, delta_cross_entropy(layers, trace, target))
        torch.testing.assert_close(trace.a[-1], model(x), rtol=1e-12, atol=1e-12)
    for layer, gradient in zip(layers, gradients, strict=True):
        torch.testing.assert_close(gradient.weight, layer.weight.grad, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(gradient.bias, layer.bias.grad, rtol=1e-12, atol=1e-12)
