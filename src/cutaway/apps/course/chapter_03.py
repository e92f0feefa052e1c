"""Exercises of chapter 3: losses, their gradients, backpropagation, and automatic differentiation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .exercises import Answer, Exercises, as_array, expect, format_numbers, pair, same, softmax

EXERCISES = exercise = Exercises()

Z = np.array([[2.0, -1.0, 0.5], [0.0, 0.0, 3.0], [-2.0, 1.0, 1.0], [0.3, 0.2, 0.1]])  # logits
T = np.array([0, 1, 2, 0])


@exercise(
    "cross_entropy(Z, t)",
    "The mean over the examples of -ln softmax(z)_t, one number, from logits Z (N, K) and classes t (N,), finite "
    "for any logits, of 1000 too.",
    level="medium",
)
def cross_entropy(answer: Answer) -> None:
    """Check the mean, the natural logarithm, and that nothing overflows."""
    p = softmax(Z)[np.arange(4), T]
    wrong = (
        (-np.log(p).sum(), "That is the sum over the examples, and the mean is asked for."),
        (np.log(p).mean(), "The sign: log p is negative, and a loss is to be smaller where p is larger."),
        (-np.log2(p).mean(), "That is in bits: the natural logarithm is meant."),
        (-np.log(softmax(softmax(Z))[np.arange(4), T]).mean(), "That takes the softmax twice."),
        (-np.log(softmax(Z)).mean(), "Only the probability of the right class counts: row n, column t_n."),
    )
    same(answer(Z.copy(), T.copy()), -np.log(p).mean(), "For four examples of three classes", wrong)
    with np.errstate(all="ignore"):
        far = as_array(answer(np.array([[1000.0, 0.0]]), np.array([1])), "For the logits (1000, 0) and class 1")
    hint = "log softmax(z)_t is z_t minus the logarithm of the sum of all e^z. Take the largest z off first."
    expect(bool(np.isfinite(far).all()), f"For the logits (1000, 0) and class 1 it gives {far}. {hint}")
    same(far, 1000.0, "For the logits (1000, 0) and class 1")


@exercise(
    "output_delta(Z, t)",
    "The gradient of the loss of `cross_entropy`, a mean over N examples, in the logits Z, (N, K); t (N,) are the "
    "classes.",
    level="easy",
)
def output_delta(answer: Answer) -> None:
    """Check softmax minus one-hot, divided by N."""
    right = (softmax(Z) - np.eye(3)[T]) / 4
    wrong = (
        (right * 4, "That is the gradient of the sum: the loss is the mean over N examples."),
        (-right, "The sign is the other: where p is too large, a larger z makes the loss larger."),
        (softmax(Z) / 4, "The right class is missing: take 1 off in row n at column t_n."),
        (right.sum(0), "Every example has a δ of its own: do not add them up."),
    )
    same(answer(Z.copy(), T.copy()), right, "For four examples of three classes", wrong)


@exercise(
    "mse_delta(Y, T)",
    "The gradient in Y of the mean of (Y - T)² over all N·K numbers, (N, K).",
    level="easy",
)
def mse_delta(answer: Answer) -> None:
    """Check the factor, the sign and the shape."""
    Y, target = np.array([[1.0, 2.0], [0.0, -1.0], [3.0, 0.5]]), np.array([[0.0, 2.0], [1.0, 1.0], [1.0, 1.0]])
    right = 2 * (Y - target) / 6
    wrong = (
        (-right, "The sign: Y - T. Where Y is too large, a larger Y makes the loss larger."),
        (Y - target, "That is for half of the sum of the squares: the mean has a factor 2/(N·K)."),
        (2 * (Y - target), "That is for the sum: the mean is over 6 numbers here."),
        (2 * (Y - target) / 3, "The mean is over the K outputs as well, not the N examples alone."),
        (right / 2, "The square brings a factor 2 down."),
    )
    same(answer(Y.copy(), target.copy()), right, "For Y and T of shape (3, 2)", wrong)


@exercise(
    "weight_gradient(delta, A)",
    "(dW, db) of a layer z = W a + b, in the shapes of W (out, in) and b (out,), from δ (N, out) of its sums and "
    "the A (N, in) that it saw. Both are sums over the examples: a mean, if any, is in δ already.",
    level="easy",
)
def weight_gradient(answer: Answer) -> None:
    """Check the shape of W, and the sum over examples."""
    delta = np.array([[1.0, 0.0, -1.0], [0.5, 2.0, 0.0]])
    A = np.array([[1.0, 2.0], [3.0, -1.0]])
    dW, db = pair(answer(delta.copy(), A.copy()), ("dW", "db"), "For δ (2, 3) and A (2, 2)")
    right = delta.T @ A
    wrong = ((right.T, "A gradient has the shape of its weights, (out, in): δᵀ A."),)
    same(dW, right, "Of dW, for δ (2, 3) and A (2, 2),", wrong)
    wrong = ((delta.mean(0), "Add over the examples: the mean, if any, is in δ already."),)
    same(db, delta.sum(0), "Of db, for δ (2, 3),", wrong)


@exercise(
    "back(delta, W, Z)",
    "δ (N, in) of the layer before: from δ (N, out), the weights W (out, in) between, and the sums Z (N, in) of "
    "the layer before, whose activation is tanh.",
    level="medium",
)
def back(answer: Answer) -> None:
    """Check the product with the weights, then with the slope at z."""
    delta, W = np.array([[1.0, -1.0], [0.5, 0.0]]), np.array([[2.0, 0.0, 1.0], [1.0, 1.0, -1.0]])
    z = np.array([[0.0, 1.0, -0.5], [2.0, 0.3, 0.0]])
    through = delta @ W
    wrong = (
        (through, "That is ∂L/∂a. It still has to pass tanh: times its slope at Z."),
        (through * np.tanh(z), "The slope of tanh is 1 - tanh², not tanh."),
        (through * (1 - z**2), "The slope is 1 - tanh²(z), and Z are the sums, before tanh."),
        (through * (1 - np.tanh(np.tanh(z)) ** 2), "That takes tanh twice: Z are the sums, before tanh."),
    )
    same(answer(delta, W, z), through * (1 - np.tanh(z) ** 2), "For δ (2, 2), W (2, 3) and Z (2, 3)", wrong)


@exercise(
    "numeric_gradient(f, w, h)",
    "The gradient of the function f at the array w, in w's shape, by (f(w + h) - f(w - h)) / 2h in each entry of "
    "it. w is unchanged at the end.",
    level="medium",
)
def numeric_gradient(answer: Answer) -> None:
    """Check central differences, every entry, and that w is not modified."""

    def f(w: Any) -> float:
        return float(np.sum(w**3) + w.flat[0] * w.flat[-1])

    w, h = np.array([[1.0, -2.0], [0.5, 3.0]]), 0.1
    kept = w.copy()

    def moved(i: int, by: float) -> float:
        other = kept.copy()
        other.flat[i] += by
        return f(other)

    right = np.array([(moved(i, h) - moved(i, -h)) / (2 * h) for i in range(4)]).reshape(2, 2)
    ahead = np.array([(moved(i, h) - f(kept)) / h for i in range(4)]).reshape(2, 2)
    wrong = (
        (ahead, "That looks ahead only: take the difference of both sides, whose error is of the order h² and not h."),
        (right * 2, "The two places are 2h apart."),
        (right.flatten(), "Give it in the shape of w."),
    )
    given = answer(f, w, h)
    same(given, right, "For a cubic at w (2, 2) and h = 0.1", wrong)
    expect(
        math.isclose(float(np.abs(w - kept).max()), 0.0),
        f"It leaves w changed, {format_numbers(w)}: put every entry back.",
    )


@exercise(
    "adjoints(tape)",
    "The derivative of the last value in every value, one number for each entry of the tape; of the last value "
    "itself it is 1, of a value that it does not depend on 0. Entry k of the tape lists pairs (i, s): value k was "
    "computed from value i < k, with the slope s. Inputs have an empty list. A value may be used several times, "
    "also twice in one entry: its terms add up.",
    level="medium",
)
def adjoints(answer: Answer) -> None:
    """Check the order, the sum over several uses, and values that the last one does not depend on."""
    # v2 = v0 v1, v3 = v2 + v0, v4 = v1 v1 (not used), v5 = v3 v2, at v0 = 2 and v1 = 3: v2 = 6, v3 = 8
    tape: list[list[tuple[int, float]]]
    tape = [[], [], [(0, 3.0), (1, 2.0)], [(2, 1.0), (0, 1.0)], [(1, 3.0), (1, 3.0)], [(3, 6.0), (2, 8.0)]]
    right = np.array([48.0, 28.0, 14.0, 6.0, 0.0, 1.0])
    when = "For v2 = v0·v1, v3 = v2 + v0, v4 = v1·v1, v5 = v3·v2 at v0 = 2, v1 = 3"
    last = np.zeros(6)  # each term replaces the one before
    last[-1] = 1.0
    early = last.copy()  # from the beginning to the end
    for k in reversed(range(6)):
        for i, s in tape[k]:
            last[i] = s * last[k]
    for k in range(6):
        for i, s in tape[k]:
            early[i] += s * early[k]
    wrong = (
        (last, "A value that is used several times gets one term for each use: add them up."),
        (early, "Go through the tape from the end: a derivative has to be complete before it is passed on."),
        (right * [1, 1, 1, 1, 1, 0], "The derivative of the last value in itself is 1."),
    )
    same(answer([[*row] for row in tape]), right, when, wrong)
    same(answer([[], [(0, 2.0), (0, 2.0)]]), [4.0, 1.0], "For v1 = v0·v0 at v0 = 2, the same input twice,")
