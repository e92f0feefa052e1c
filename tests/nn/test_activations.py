"""Activations: the fused modules are the formulas, and the derivatives are the functions'."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutaway.core.errors import UnknownName
from cutaway.nn.activations import ACTIVATIONS, activation, formula, softmax, softmax_jacobian, step

NAMES = sorted(ACTIVATIONS)
KINKS = [-1.0, 0.0, 1.0]
FORMULAS = {
    "identity": lambda z: z,
    "step": lambda z: float(z > 0),
    "sigmoid": lambda z: 1 / (1 + math.exp(-z)),
    "tanh": lambda z: (math.exp(z) - math.exp(-z)) / (math.exp(z) + math.exp(-z)),
    "scaled_tanh": lambda z: 1.7159 * math.tanh(2 * z / 3),
    "hard_tanh": lambda z: max(-1.0, min(1.0, z)),
    "relu": lambda z: max(0.0, z),
    "leaky_relu": lambda z: z if z > 0 else 0.01 * z,
    "silu": lambda z: z / (1 + math.exp(-z)),
    "gelu": lambda z: z * (1 + math.erf(z / math.sqrt(2))) / 2,
    "gelu_tanh": lambda z: z * (1 + math.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))) / 2,
}
numbers = st.lists(st.floats(-30, 30), min_size=1, max_size=8)


def gradient(function: torch.nn.Module, z: Tensor) -> Tensor:
    """Autograd's derivative of an element-wise function."""
    z = z.clone().requires_grad_()
    (slope,) = torch.autograd.grad(function(z).sum(), z)
    return slope


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None)
@given(values=numbers)
def test_function_and_module_are_the_formula(name: str, values: list[float]) -> None:
    z = torch.tensor(values + KINKS, dtype=torch.float64)
    expected = torch.tensor([FORMULAS[name](v) for v in z.tolist()], dtype=torch.float64)
    torch.testing.assert_close(ACTIVATIONS[name].function(z), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(activation(name)(z), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None)
@given(values=numbers)
def test_the_derivative_is_autograds_of_function_and_module(name: str, values: list[float]) -> None:
    z = torch.tensor(values + KINKS, dtype=torch.float64)  # at the kinks too: the convention is PyTorch's
    function, derivative = ACTIVATIONS[name]
    torch.testing.assert_close(derivative(z), gradient(function, z), rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(derivative(z), gradient(activation(name), z), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None)
@given(values=numbers)
def test_the_derivative_is_the_slope(name: str, values: list[float]) -> None:
    z = torch.tensor(values, dtype=torch.float64)
    z = z[(z - torch.tensor(KINKS)[:, None]).abs().amin(0) > 1e-3]
    function, derivative = ACTIVATIONS[name]
    slope = (function(z + 1e-6) - function(z - 1e-6)) / 2e-6
    torch.testing.assert_close(derivative(z), slope, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NAMES)
def test_far_out_nothing_overflows(name: str, dtype: torch.dtype) -> None:
    z = torch.tensor([-1e4, -100.0, 100.0, 1e4], dtype=dtype)
    function, derivative = ACTIVATIONS[name]
    for values in (function(z), derivative(z), gradient(function, z)):
        assert values.isfinite().all()
        assert values.dtype == dtype
    torch.testing.assert_close(function(z), activation(name)(z))
    torch.testing.assert_close(derivative(z), gradient(activation(name), z))


def test_scaled_tanh_is_one_at_one() -> None:
    f = ACTIVATIONS["scaled_tanh"].function
    torch.testing.assert_close(f(torch.tensor([-1.0, 1.0])), torch.tensor([-1.0, 1.0]), rtol=0, atol=1e-4)


def test_a_step_fires_above_zero_and_passes_no_gradient() -> None:
    z = torch.tensor([-0.5, 0.0, 1e-30], requires_grad=True)
    assert step(z).tolist() == [0, 0, 1]
    step(z).sum().backward()
    assert z.grad is not None
    assert z.grad.tolist() == [0, 0, 0]


def test_not_a_number_stays_visible() -> None:
    z = torch.tensor([math.nan])
    for name in set(NAMES) - {"step"}:  # of nothing a comparison is true
        assert ACTIVATIONS[name].function(z).isnan().all(), name


@settings(max_examples=25, deadline=None)
@given(rows=st.integers(1, 4), classes=st.integers(1, 5), shift=st.floats(-1e3, 1e3), seed=st.integers(0, 1000))
def test_softmax_sums_to_one_and_is_blind_to_a_shift(rows: int, classes: int, shift: float, seed: int) -> None:
    z = torch.randn(rows, classes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    torch.testing.assert_close(softmax(z), z.exp() / z.exp().sum(1, keepdim=True), rtol=1e-12, atol=0)
    torch.testing.assert_close(softmax(z).sum(1), torch.ones(rows, dtype=torch.float64))
    torch.testing.assert_close(softmax(z + shift), softmax(z), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(softmax(z.T, dim=0), softmax(z).T)


@settings(max_examples=25, deadline=None)
@given(rows=st.integers(1, 4), classes=st.integers(1, 5), scale=st.floats(0.1, 50), seed=st.integers(0, 1000))
def test_the_softmax_jacobian_is_autograds(rows: int, classes: int, scale: float, seed: int) -> None:
    z = scale * torch.randn(rows, classes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    expected = torch.stack([torch.autograd.functional.jacobian(lambda v: torch.softmax(v, 0), row) for row in z])
    torch.testing.assert_close(softmax_jacobian(z), expected, rtol=1e-12, atol=1e-14)


def test_softmax_far_out() -> None:
    z = torch.tensor([[1e4, 0.0, -1e4]])
    assert softmax(z).tolist() == [[1, 0, 0]]
    assert softmax_jacobian(z).abs().max() == 0


def test_an_unknown_activation_is_rejected_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="sigmoid"):
        activation("sigmoyd")


@pytest.mark.parametrize("slope", [0, 0.2, 1.5])
def test_leaky_relu_has_the_slope_that_its_name_holds(slope: float) -> None:
    z = torch.tensor([-3.0, -1e-3, 0.0, 1e-3, 3.0], dtype=torch.float64)
    function, derivative = formula(f"leaky_relu:{slope}")
    expected = torch.nn.functional.leaky_relu(z, slope)
    assert torch.equal(function(z), expected)
    assert torch.equal(activation(f"leaky_relu:{slope}")(z), expected)
    assert torch.equal(derivative(z), gradient(function, z))


@pytest.mark.parametrize("name", ["relu:0.2", "leaky_relu:", "leaky_relu:much", "leaky_relu:-1", "leaky_relu:0.1:2"])
def test_only_leaky_relu_has_a_slope_and_it_is_a_number(name: str) -> None:
    with pytest.raises(UnknownName, match=r"leaky_relu:0\.2 is leaky ReLU with the slope 0\.2"):
        formula(name)


def test_swish_is_silu() -> None:
    z = torch.linspace(-4, 4, 9)
    assert isinstance(activation("swish"), torch.nn.SiLU)
    assert formula("swish") == formula("silu")
    assert torch.equal(activation("swish")(z), torch.nn.functional.silu(z))
    with pytest.raises(UnknownName):
        activation("swish:0.2")
