"""Exercises of chapter 5: convolution, output sizes, the cost of a layer, receptive fields, and the matrix of
an operator."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .exercises import Answer, Exercises, expect, format_numbers, same

EXERCISES = exercise = Exercises()

X, K = np.array([2.0, 0.0, 1.0, 3.0, -1.0]), np.array([1.0, 2.0, -1.0])


@exercise(
    "correlate(x, w)",
    "Σ_a w_a x_{i+a} at every place i where the kernel w lies inside the signal x, n - k + 1 of them. The kernel "
    "is not flipped.",
    level="easy",
)
def correlate(answer: Answer) -> None:
    """Check that the kernel is not flipped, and that there is no padding."""
    right = np.correlate(X, K, "valid")
    wrong = (
        (
            np.convolve(X, K, "valid"),
            "That is the convolution with a flipped kernel. Here the kernel is not flipped.",
        ),
        (np.correlate(X, K, "same"), "That has places where the kernel hangs over the edge: n - k + 1 lie inside."),
        (np.correlate(X, K, "full"), "That has places where the kernel hangs over the edge: n - k + 1 lie inside."),
        (right[:-1], "The last place is missing: there are n - k + 1."),
    )
    same(answer(X.copy(), K.copy()), right, f"For x = {format_numbers(X)}, w = {format_numbers(K)}", wrong)


@exercise(
    "convolve(x, w)",
    "The full convolution: Σ_a w_a x_{i-a} at every place where kernel and signal touch, n + k - 1 of them; x is 0 "
    "beyond its ends.",
    level="easy",
)
def convolve(answer: Answer) -> None:
    """Check that the kernel is flipped, at all positions."""
    right = np.convolve(X, K)
    wrong = (
        (np.correlate(X, K, "full"), "That is the correlation: x_{i-a} runs against the kernel, so turn it round."),
        (np.convolve(X, K, "valid"), "Those are the places inside: at the edges x is 0 beyond its ends."),
        (np.convolve(X, K, "same"), "Those are n places: there are n + k - 1 where both touch."),
    )
    same(answer(X.copy(), K.copy()), right, f"For x = {format_numbers(X)}, w = {format_numbers(K)}", wrong)
    impulse = np.array([0.0, 1.0, 0.0])
    same(answer(impulse, K.copy()), np.convolve(impulse, K), "For the impulse (0, 1, 0), which gives the kernel back,")


@exercise(
    "output_size(n, k, s, p, d)",
    "How many outputs a convolution has along an axis of n entries: kernel k, stride s, padding p at either end, "
    "dilation d. A window that does not fit gives no output.",
    level="easy",
)
def output_size(answer: Answer) -> None:
    """Check the floor, plus one."""
    for n, k, s, p, d in ((8, 3, 2, 0, 1), (32, 5, 1, 0, 1), (7, 3, 1, 1, 1), (224, 7, 2, 3, 1), (10, 3, 1, 0, 3)):
        whole = n + 2 * p - d * (k - 1) - 1
        wrong = (
            (whole / s + 1, "Outputs are whole: round down."),
            (math.ceil(whole / s) + 1, "Round down: a window that does not fit gives no output."),
            (whole // s, "The + 1 is missing, for the window at the beginning."),
            ((n + 2 * p - k) // s + 1, "Dilation spreads the kernel: it spans d(k - 1) + 1 entries."),
            ((n + p - d * (k - 1) - 1) // s + 1, "Padding is at both ends."),
        )
        when = f"For n = {n}, k = {k}, s = {s}, p = {p}, d = {d}"
        same(answer(n, k, s, p, d), whole // s + 1, when, wrong)


@exercise(
    "toeplitz(w, n)",
    "The matrix (n - k + 1, n) whose product with a signal of n entries is its correlation with w: rows are "
    "outputs, and the kernel is not flipped.",
    level="medium",
)
def toeplitz(answer: Answer) -> None:
    """Check that each row holds the kernel, shifted by one."""
    right = np.zeros((3, 5))
    for i in range(3):
        right[i, i : i + 3] = K
    wrong = (
        (right[:, ::-1], "The first row is to begin with the kernel, and each row has it one place further right."),
        (right.T, "That is transposed: rows are outputs."),
        (
            np.array([np.roll([*K[::-1], 0.0, 0.0], i) for i in range(3)]),
            "That turns the kernel round: it is a convolution.",
        ),
    )
    same(answer(K.copy(), 5), right, f"For w = {format_numbers(K)}, n = 5", wrong)


@exercise(
    "layer_cost(c_in, c_out, k, height, width)",
    "(parameters, multiplications) of a convolution layer with biases: k×k kernels, stride 1, and outputs of that "
    "height and width; every output channel sees all input channels and has one bias; biases are additions.",
    level="easy",
)
def layer_cost(answer: Answer) -> None:
    """Check that positions share weights, but not products."""
    for c_in, c_out, k, h, w in ((1, 6, 5, 28, 28), (16, 32, 3, 8, 10)):
        weights = c_in * c_out * k * k
        given = answer(c_in, c_out, k, h, w)
        when = f"For {c_in} to {c_out} channels, k = {k}, an output of {h} by {w},"
        wrong = (
            ((weights, weights * h * w), "Each output channel has a bias."),
            (
                (c_out * (k * k + 1), c_out * k * k * h * w),
                "An output sees all input channels: a kernel has c_in of them.",
            ),
            (((weights + c_out) * h * w, weights * h * w), "All places share the same weights."),
            ((weights + c_out, (weights + c_out) * h * w), "The bias is added, not multiplied."),
        )
        same(given, (weights + c_out, weights * h * w), when, wrong)


@exercise(
    "receptive_field(layers)",
    "How many input entries one output sees along an axis; layers are (k, s) from first to last, kernel and stride.",
    level="medium",
)
def receptive_field(answer: Answer) -> None:
    """Check that strides enlarge the step of later kernels."""
    cases: tuple[list[tuple[int, int]], ...] = (
        [(3, 1)],
        [(3, 1), (3, 1)],
        [(5, 1), (2, 2), (5, 1), (2, 2)],
        [(7, 2), (3, 2)],
    )
    for layers in cases:
        right, step, without = 1, 1, 1
        for k, s in layers:
            right, step, without = right + (k - 1) * step, step * s, without + k - 1
        kernels = math.prod(k for k, _ in layers)
        wrong = (
            (
                without,
                "After a stride, neighbours lie further apart in the input: count k - 1 times the strides before.",
            ),
            (sum(k for k, _ in layers), "Each layer adds k - 1, and it begins with 1."),
            (kernels, "Fields overlap: they add up, they do not multiply."),
        )
        same(answer(list(layers)), right, f"For layers (k, s) = {layers}", wrong)


@exercise(
    "max_pool(x)",
    "The largest of each 2×2 block of x (H, W), H and W even: (H/2, W/2).",
    level="easy",
)
def max_pool(answer: Answer) -> None:
    """Check the maximum of blocks of neighbours."""
    x = np.array([[2.0, 0.0, 1.0, 1.0], [0.0, -1.0, 2.0, 2.0], [-2.0, 3.0, 0.0, 0.0], [0.0, 1.0, -3.0, 2.0]])
    blocks = x.reshape(2, 2, 2, 2)
    wrong = (
        (blocks.mean((1, 3)), "That is the mean of each block."),
        (x[::2, ::2], "That is the first of each block."),
        (x.reshape(2, 2, -1).max(-1), "Those are not blocks: reshape to (H/2, 2, W/2, 2), and take axes 1 and 3."),
    )
    same(answer(x.copy()), blocks.max((1, 3)), "For the 4×4 map of the chapter", wrong)


@exercise(
    "operator_matrix(T, n)",
    "The matrix (n, n) of T, a function from arrays of n numbers to arrays of n numbers that is linear and "
    "equivariant to circular shifts, from a single call of T.",
    level="medium",
)
def operator_matrix(answer: Answer) -> None:
    """Check the columns, shifted impulse responses, and that T is called once."""
    calls = 0

    def operation(x: Any) -> Any:
        nonlocal calls
        calls += 1
        x = np.asarray(x, dtype=float)
        return 2 * x - np.roll(x, 1) + 0.5 * np.roll(x, 3)

    right = np.array([2 * row - np.roll(row, 1) + 0.5 * np.roll(row, 3) for row in np.eye(6)]).T
    wrong = (
        (right.T, "Column j is T of the impulse at j: the columns are shifted, and these are rows."),
        (
            np.array([right[:, 0]] * 6).T,
            "All columns are T of the same impulse: the impulse at j shifts it down by j places, around the end.",
        ),
    )
    when = "For T(x)_i = 2 x_i − x_{i−1} + ½ x_{i−3} on 6 places"
    same(answer(operation, 6), right, when, wrong)
    expect(calls == 1, f"It calls T {calls} times. T of one impulse is enough: shift it.")
