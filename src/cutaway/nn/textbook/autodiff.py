"""Reverse-mode automatic differentiation on any graph of operations, written out.

Every operation appends a variable to the graph: its value, the variables it was computed from, and for each of them a
function that multiplies by the transposed Jacobian. With ȳ = ∂L/∂y, the adjoint of y, and y computed from x₁ … x_n:

    forward     y = f(x₁, …, x_n)
    backward    x̄_i ← x̄_i + (∂y/∂x_i)ᵀ ȳ         for every y that x_i is used in

`backward` visits the variables in reverse order of their creation. Each adjoint is then complete before it is passed
on, since a variable is created before everything computed from it. A value used several times adds up one term for
each use. After S. Linnainmaa, Taylor expansion of the accumulated rounding error, BIT 16, 1976.
<https://doi.org/10.1007/BF01931367>

`backprop.py` is the special case of a chain of dense layers. PyTorch's autograd does the same with more operations; the
tests verify that the gradients agree. Only the values are tensors here: autograd is not used.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ...core.errors import InputShapeError

Pull = Callable[[Tensor], Tensor]  # ȳ ↦ (∂y/∂x)ᵀ ȳ
_counter = itertools.count()


class Variable:
    """A value of the graph.

    Args:
        value: A number, or a tensor of any shape.
        operation: The operation that computed it; empty for an input.
        inputs: The variables it was computed from, each with its function ȳ ↦ (∂y/∂x)ᵀ ȳ.
        name: A name for drawings.

    Attributes:
        grad: The adjoint ∂L/∂value, of the shape of the value, after `backward`; None before.
    """

    def __init__(
        self, value: Tensor | float, operation: str = "", inputs: Sequence[tuple[Variable, Pull]] = (), name: str = ""
    ) -> None:
        self.value = torch.as_tensor(value, dtype=None if isinstance(value, Tensor) else torch.float64).detach()
        self.operation, self.inputs, self.name = operation, tuple(inputs), name
        self.grad: Tensor | None = None
        self.index = next(_counter)  # the place on the tape

    def _like(self, other: Variable | float) -> Variable:
        return other if isinstance(other, Variable) else Variable(torch.tensor(other, dtype=self.value.dtype))

    def __add__(self, other: Variable | float) -> Variable:
        b = self._like(other)
        return Variable(self.value + b.value, "+", [(self, lambda g: g), (b, lambda g: g)])

    def __sub__(self, other: Variable | float) -> Variable:
        b = self._like(other)
        return Variable(self.value - b.value, "−", [(self, lambda g: g), (b, lambda g: -g)])

    def __mul__(self, other: Variable | float) -> Variable:
        b = self._like(other)
        return Variable(self.value * b.value, "×", [(self, lambda g: g * b.value), (b, lambda g: g * self.value)])

    def __truediv__(self, other: Variable | float) -> Variable:
        b = self._like(other)
        y = self.value / b.value
        return Variable(y, "÷", [(self, lambda g: g / b.value), (b, lambda g: -g * y / b.value)])

    def __matmul__(self, other: Variable) -> Variable:
        if min(self.value.ndim, other.value.ndim) < 2:
            shapes = f"{tuple(self.value.shape)} and {tuple(other.value.shape)}"
            raise InputShapeError(f"Invalid shapes {shapes} of a matrix product: each needs at least two axes.")
        left, right = (self, lambda g: g @ other.value.mT), (other, lambda g: self.value.mT @ g)
        return Variable(self.value @ other.value, "@", [left, right])

    def __neg__(self) -> Variable:
        return self * -1.0

    def __radd__(self, other: float) -> Variable:
        return self._like(other) + self

    def __rsub__(self, other: float) -> Variable:
        return self._like(other) - self

    def __rmul__(self, other: float) -> Variable:
        return self._like(other) * self

    def __rtruediv__(self, other: float) -> Variable:
        return self._like(other) / self


def exp(x: Variable) -> Variable:
    """Return e^x. The derivative is the result."""
    y = torch.exp(x.value)
    return Variable(y, "exp", [(x, lambda g: g * y)])


def log(x: Variable) -> Variable:
    """Return the natural logarithm of x."""
    return Variable(torch.log(x.value), "log", [(x, lambda g: g / x.value)])


def tanh(x: Variable) -> Variable:
    """Return tanh(x), with the derivative 1 − tanh²(x)."""
    y = torch.tanh(x.value)
    return Variable(y, "tanh", [(x, lambda g: g * (1 - y * y))])


def relu(x: Variable) -> Variable:
    """Return max(0, x), with the derivative 0 at 0, as in PyTorch."""
    return Variable(torch.relu(x.value), "relu", [(x, lambda g: g * (x.value > 0))])


def softmax(x: Variable, dim: int = -1) -> Variable:
    """Return the softmax along one axis. The Jacobian is diag(s) − s sᵀ."""
    s = torch.softmax(x.value, dim)
    return Variable(s, "softmax", [(x, lambda g: s * (g - (g * s).sum(dim, keepdim=True)))])


def total(x: Variable, dim: int | None = None) -> Variable:
    """Return the sum of all entries, or the sums along one axis, which stays with size 1."""
    y = x.value.sum() if dim is None else x.value.sum(dim, keepdim=True)
    return Variable(y, "sum", [(x, lambda g: g.expand_as(x.value))])


def tape(output: Variable) -> list[Variable]:
    """Return all variables that `output` was computed from, and itself, in the order of their creation."""
    found, waiting = {output.index: output}, [output]
    while waiting:
        for x, _ in waiting.pop().inputs:
            if x.index not in found:
                found[x.index] = x
                waiting.append(x)
    return [found[index] for index in sorted(found)]


def backward(output: Variable) -> None:
    """Compute the adjoint ∂output/∂x of every variable x that the output was computed from, as `x.grad`.

    Earlier adjoints are replaced. (PyTorch adds to them, so that they have to be zeroed.)

    Args:
        output: A single number.

    Raises:
        ModelError: If the output has more than one entry.
    """
    if output.value.numel() != 1:
        raise InputShapeError(
            f"Invalid output of shape {tuple(output.value.shape)}: must be one number. Take its `total`."
        )
    variables = tape(output)
    for x in variables:
        x.grad = torch.zeros_like(x.value)
    output.grad = torch.ones_like(output.value)
    for y in reversed(variables):
        assert y.grad is not None
        for x, pull in y.inputs:
            assert x.grad is not None
            x.grad = x.grad + _sum_to(pull(y.grad), x.value.shape)


def _sum_to(g: Tensor, shape: torch.Size) -> Tensor:
    """Sum over the axes along which a value of `shape` was repeated: the adjoint of broadcasting."""
    extra = g.ndim - len(shape)
    repeated = [axis for axis in range(extra, g.ndim) if shape[axis - extra] == 1 and g.shape[axis] != 1]
    axes = [*range(extra), *repeated]
    return g.sum(axes).reshape(shape) if axes else g
