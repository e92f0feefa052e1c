"""The tape's gradients are autograd's, on any graph."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutaway.core.errors import ModelError
from cutaway.nn.textbook import autodiff
from cutaway.nn.textbook.autodiff import Variable, backward, exp, log, relu, softmax, tanh, total

SHAPES = [(), (3,), (1, 3), (4, 1), (4, 3), (2, 1, 3), (2, 4, 3)]  # each pair can be broadcast

# The same operation for variables and for tensors; arguments of exp and log are kept in a range without overflow.
ONE: list[tuple[Callable[[Any], Any], Callable[[Any], Any]]] = [
    (tanh, torch.tanh),
    (relu, torch.relu),
    (lambda x: exp(tanh(x)), lambda x: torch.exp(torch.tanh(x))),
    (lambda x: log(exp(tanh(x)) + 1.0), lambda x: torch.log(torch.exp(torch.tanh(x)) + 1.0)),
    (lambda x: -x, lambda x: -x),
    (lambda x: 2.0 - 0.5 * x, lambda x: 2.0 - 0.5 * x),
    (lambda x: 1.5 + x * 3, lambda x: 1.5 + x * 3),
    (lambda x: 1.0 / (exp(tanh(x))), lambda x: 1.0 / torch.exp(torch.tanh(x))),
    (total, torch.sum),
]
TWO: list[tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = [
    (lambda a, b: a + b, lambda a, b: a + b),
    (lambda a, b: a - b, lambda a, b: a - b),
    (lambda a, b: tanh(a) * tanh(b), lambda a, b: torch.tanh(a) * torch.tanh(b)),
    (lambda a, b: a / (exp(tanh(b)) + 1), lambda a, b: a / (torch.exp(torch.tanh(b)) + 1)),
]
ALONG = [(softmax, torch.softmax), (total, lambda x, dim: x.sum(dim, keepdim=True))]


def leaf(shape: tuple[int, ...], seed: int) -> Tensor:
    """Random numbers that autograd follows."""
    g = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=g, dtype=torch.float64).requires_grad_()


def assert_same_gradients(ours: list[Variable], theirs: list[Tensor], output: Variable, expected: Tensor) -> None:
    """All leaves: their values and gradients."""
    assert torch.allclose(output.value, expected.detach(), rtol=1e-12, atol=1e-12)
    gradients = torch.autograd.grad(expected, theirs, allow_unused=True)
    backward(output)
    on_tape = {id(x) for x in autodiff.tape(output)}
    for variable, tensor, gradient in zip(ours, theirs, gradients):
        if gradient is None or id(variable) not in on_tape:
            assert gradient is None or not gradient.any()
            assert variable.grad is None
            continue
        assert variable.grad is not None
        assert variable.grad.shape == tensor.shape
        assert torch.allclose(variable.grad, gradient, rtol=1e-10, atol=1e-12)


@given(data=st.data(), seed=st.integers(0, 10_000), size=st.integers(1, 14))
@settings(deadline=None, max_examples=150)
def test_random_graphs_have_the_gradients_of_autograd(data: st.DataObject, seed: int, size: int) -> None:
    theirs = [leaf(shape, seed + k) for k, shape in enumerate(SHAPES)]
    ours = [Variable(tensor) for tensor in theirs]
    pool: list[tuple[Variable, Tensor]] = list(zip(ours, theirs))
    for _ in range(size):
        kind = data.draw(st.sampled_from(["one", "two", "along", "matmul"]))
        a, ta = data.draw(st.sampled_from(pool))  # a value may be taken again and again
        b, tb = data.draw(st.sampled_from(pool))
        if kind == "one":
            f, g = data.draw(st.sampled_from(ONE))
            pool.append((f(a), g(ta)))
        elif kind == "along" and ta.ndim:
            f2, g2 = data.draw(st.sampled_from(ALONG))
            dim = data.draw(st.integers(-ta.ndim, ta.ndim - 1))
            pool.append((f2(a, dim), g2(ta, dim)))
        elif kind == "matmul" and ta.ndim > 1 and tb.ndim > 1 and ta.shape[-1] == tb.shape[-2]:
            pool.append((a @ b, ta @ tb))
        else:
            f3, g3 = data.draw(st.sampled_from(TWO))
            pool.append((f3(a, b), g3(ta, tb)))
    output, expected = pool[-1]
    assert_same_gradients(ours, theirs, total(output), expected.sum())


@pytest.mark.parametrize(("left", "right"), [((4, 3), (3, 2)), ((4, 3), (5, 3, 2)), ((5, 1, 4, 3), (6, 3, 2))])
def test_matrix_products_of_batches_that_are_broadcast(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = leaf(left, 0), leaf(right, 1)
    A, B = Variable(a), Variable(b)
    assert_same_gradients([A, B], [a, b], total(tanh(A @ B)), torch.tanh(a @ b).sum())


def test_a_value_used_several_times_adds_up_its_uses() -> None:
    x = Variable(3.0)
    backward(x * x + x)
    assert x.grad is not None
    assert x.grad.item() == 7.0
    backward(x * x)
    assert x.grad.item() == 6.0  # replaced, not added to


def test_a_classifier_of_two_layers_on_a_batch() -> None:
    x, target = leaf((5, 4), 2).detach(), torch.tensor([0, 2, 1, 1, 0])
    theirs = [leaf(shape, k) for k, shape in enumerate([(4, 6), (6,), (6, 3), (3,)])]
    w1, b1, w2, b2 = theirs
    expected = F.cross_entropy(torch.relu(x @ w1 + b1) @ w2 + b2, target)
    ours = [Variable(tensor) for tensor in theirs]
    W1, c1, W2, c2 = ours
    p = softmax(relu(Variable(x) @ W1 + c1) @ W2 + c2)
    output = total(log(p) * Variable(F.one_hot(target, 3).double())) * (-1 / 5)
    assert_same_gradients(ours, theirs, output, expected)


def test_a_graph_of_many_thousand_operations() -> None:
    x = Variable(1.0)
    y = x
    for _ in range(20_000):
        y = y * 0.9999 + 0.0001
    backward(y)
    assert x.grad is not None
    assert x.grad.item() == pytest.approx(0.9999**20_000)


def test_what_has_no_gradient_is_refused() -> None:
    with pytest.raises(ModelError, match=r"Invalid output of shape \(2,\): must be one number"):
        backward(Variable(torch.ones(2)))
    with pytest.raises(ModelError, match="each needs at least two axes"):
        Variable(torch.ones(2)) @ Variable(torch.ones(2, 2))


def test_autograd_is_not_used_and_the_code_is_short() -> None:
    path = Path(autodiff.__file__)
    source = path.read_text(encoding="utf-8")
    words = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            words |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines = [line for k, line in enumerate(source.splitlines(), 1) if k not in words and line.strip()]
    assert len(lines) <= 100
    assert not any("autograd" in line or "requires_grad" in line for line in lines)
