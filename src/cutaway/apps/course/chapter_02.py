"""Exercises of chapter 2: layers, activations, and functions made of neurons."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from .exercises import Answer, Array, Exercises, as_array, expect, format_numbers, pair, same

EXERCISES = exercise = Exercises()


@exercise(
    "dense(W, b, A)",
    "g's input Z (N, out) of a layer with weights W (out, in) and biases b (out,), from examples A (N, in) in "
    "rows: z = W a + b for each row a.",
    level="easy",
)
def dense(answer: Answer) -> None:
    """Check that rows are examples, and that the bias belongs to the neurons."""
    W, b = np.array([[1.0, 2.0], [0.0, -1.0], [3.0, 1.0]]), np.array([0.5, 0.0, -1.0])
    A = np.array([[1.0, 0.0], [2.0, 1.0], [0.0, 0.0], [1.0, 1.0]])
    when = "For W (3, 2), b (3,) and A (4, 2)"
    right = A @ W.T + b
    wrong = ((A @ W.T, "That is without the biases."), (right.T, "Examples are rows: transpose it."))
    same(answer(W, b, A), right, when, wrong)
    square, vector = np.array([[0.0, 1.0], [2.0, 0.0]]), np.array([1.0, 0.0])
    turned = ((A @ square + vector, "W has a row for each neuron, so that z = w·a takes its rows: A @ W.T."),)
    same(answer(square, vector, A), A @ square.T + vector, "For W (2, 2), b (2,) and A (4, 2)", turned)


@exercise(
    "collapse(W1, b1, W2, b2)",
    "(W, b) of the one layer that does what two layers without an activation do, the first with W1, b1, the second "
    "with W2, b2, both z = W a + b.",
    level="medium",
)
def collapse(answer: Answer) -> None:
    """Check the order of the product, and that the first bias passes through the second layer."""
    W1, b1 = np.array([[1.0, 2.0], [0.0, 1.0]]), np.array([1.0, -1.0])
    W2, b2 = np.array([[2.0, 0.0], [1.0, 1.0]]), np.array([0.0, 3.0])
    W, b = pair(answer(W1, b1, W2, b2), ("W", "b"), "For two layers of two neurons")
    same(W, W2 @ W1, "Of W", ((W1 @ W2, "The first layer is applied first, so that it stands on the right: W2 @ W1."),))
    wrong = ((b1 + b2, "The first bias goes through the second layer's weights."), (b2, "The first bias is missing."))
    same(b, W2 @ b1 + b2, "Of b", wrong)


@exercise(
    "parameters(widths)",
    "How many weights and biases a network of these widths has, its input's width first. Each neuron has a bias; "
    "inputs have none.",
    level="easy",
)
def parameters(answer: Answer) -> None:
    """Check that biases are counted."""
    for widths in ([2, 1], [2, 3, 1], [784, 300, 100, 10]):
        weights = sum(a * b for a, b in pairwise(widths))
        wrong = (
            (weights, "That is without the biases, of which each neuron has one."),
            (weights + sum(widths), "Inputs are numbers, not neurons: they have no bias."),
            (weights + len(widths) - 1, "Every neuron has a bias of its own, not every layer."),
        )
        same(answer(list(widths)), weights + sum(widths[1:]), f"For widths {tuple(widths)}", wrong)


@exercise(
    "softmax(Z)",
    "e^z over the sum of all e^z, along the last axis of Z, a vector or a matrix, however large the numbers in it "
    "are: 1000 and -1000 give finite results.",
    level="easy",
)
def softmax(answer: Answer) -> None:
    """Check that it is computed along rows, without overflow."""
    Z = np.array([[0.0, math.log(3)], [2.0, 2.0]])
    right = np.array([[0.25, 0.75], [0.5, 0.5]])
    powers = np.exp(Z)
    wrong = (
        (powers / powers.sum(), "Each row has a sum of its own: sum along the last axis (axis=-1, keepdims=True)."),
        (powers / powers.sum(0), "That sums down the columns: the last axis is meant."),
    )
    same(answer(Z), right, "For ((0, ln 3), (2, 2))", wrong)
    same(answer(Z[0]), right[0], "For the vector (0, ln 3)")
    with np.errstate(all="ignore"):
        large = as_array(answer(np.array([1000.0, 1000.0 + math.log(3)])), "For (1000, 1000 + ln 3)")
        small = as_array(answer(np.array([-1000.0, -1000.0])), "For (-1000, -1000)")
    hint = "e^1000 is too large for a float. Subtract the largest z first: the quotient does not change."
    expect(bool(np.isfinite(large).all()), f"For (1000, 1000 + ln 3) it gives {format_or_nan(large)}. {hint}")
    expect(
        bool(np.isfinite(small).all()), f"For (-1000, -1000) it gives {format_or_nan(small)}: all powers are 0 there."
    )
    same(large, right[0], "For (1000, 1000 + ln 3)")


def format_or_nan(values: Array) -> str:
    """Format numbers, some of which may be NaN."""
    return format_numbers(values) if np.isfinite(values).all() else "nan"


@exercise(
    "silu_derivative(z)",
    "The derivative of z σ(z), where σ(z) = 1/(1 + e^-z), for an array z.",
    level="easy",
)
def silu_derivative(answer: Answer) -> None:
    """Check the product rule."""
    z = np.array([-3.0, -1.0, 0.0, 0.5, 4.0])
    s = 1 / (1 + np.exp(-z))
    wrong = (
        (s, "That is σ(z): the product rule has a second term, z σ'(z)."),
        (s * (1 - s), "That is σ'(z); the exercise needs the derivative of z σ(z)."),
        (s + s * (1 - s), "The second term of the product rule is z σ'(z): the z is missing."),
    )
    same(answer(z), s + z * s * (1 - s), f"For z = {format_numbers(z)}", wrong)


@exercise(
    "through(xs, ys)",
    "(c, w, b) of the network b + Σ w_j ReLU(x - c_j) whose curve goes through all points (xs, ys) and is straight "
    "in between, from the first point to the last, with one neuron for each point but the last: c and w (n - 1,), "
    "b a number. xs are in order; there are at least two points.",
    level="medium",
)
def through(answer: Answer) -> None:
    """Check that the function interpolates the points linearly."""
    for xs, ys in (([0.0, 1.0], [1.0, 3.0]), ([0.0, 1.0, 2.0, 4.0], [0.0, 2.0, 1.0, 5.0])):
        x, y = np.array(xs), np.array(ys)
        when = f"For xs = {format_numbers(x)}, ys = {format_numbers(y)}"
        c, w, b = pair(answer(x.copy(), y.copy()), ("c", "w", "b"), when)
        c, w, b = (as_array(part, when) for part in (c, w, b))
        expect(c.shape == w.shape == (len(x) - 1,), f"{when} c and w are to have {len(x) - 1} numbers each.")
        at = np.linspace(x[0], x[-1], 41)
        curve = float(b) + np.maximum(at[:, None] - c, 0) @ w
        slopes = np.diff(y) / np.diff(x)
        hint = (
            f"{when} w is {format_numbers(w)}: a neuron is linear to the right of its kink, so w_j is how much the "
            "slope changes."
        )
        expect(not (len(x) > 2 and np.allclose(w, slopes)), hint)
        wanted = np.interp(at, x, y)
        worst = int(np.abs(curve - wanted).argmax())
        words = (
            f"{when} your network is {curve[worst]:.4g} at x = {at[worst]:g}, where {wanted[worst]:.4g} was to come."
        )
        expect(bool(np.allclose(curve, wanted, atol=1e-8)), words)
