"""Exercises of chapter 9: states, backpropagation through time, gates, lengths, and the seasonal naive forecast."""

from __future__ import annotations

import numpy as np

from .exercises import Answer, Array, Exercises, as_array, expect, format_numbers, pair, same

EXERCISES = exercise = Exercises()

X = np.array([[1.0, 0.0], [0.5, -1.0], [0.0, 2.0]])  # (T, F)
W, U, B = np.array([[0.5, -0.2], [0.1, 0.3]]), np.array([[0.2, 0.9], [-0.6, 0.1]]), np.array([0.1, -0.1])


def _sigma(a: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-a)))


def _states(turned: bool = False, own: bool = True, bias: bool = True) -> Array:
    h, found = np.zeros(2), []
    for x in X:
        h = np.tanh(W @ x + own * ((U.T if turned else U) @ h) + bias * B)
        found.append(h)
    return np.array(found)


@exercise(
    "elman(x, W, U, b)",
    "The states (T, H): h_t = tanh(W x_t + U h_{t-1} + b), of inputs x (T, F), from a state of zeros on.",
    level="easy",
)
def elman(answer: Answer) -> None:
    """Check that U multiplies the previous state at every step."""
    right = _states()
    wrong = (
        (right[-1], "That is the last state: all of them were asked for."),
        (_states(own=False), "The state before is missing: each step makes its state of that too."),
        (_states(turned=True), "U stands on the left of the state: U @ h."),
        (_states(bias=False), "The bias is missing."),
        (np.vstack([np.zeros(2), right]), "The zeros before the first step are no state of a step."),
    )
    same(answer(X.copy(), W, U, B), right, "For three steps, W, U (2, 2) and b (2,)", wrong)


def _through(g: Array, turned: bool = True, slope: bool = True, on: bool = True) -> tuple[Array, Array, Array]:
    h = _states()
    delta, found = np.zeros(2), []
    for t in reversed(range(len(h))):
        delta = (1 - h[t] ** 2 if slope else 1) * (g[t] + on * ((U.T if turned else U) @ delta))
        found.append(delta)
    deltas = np.array(found[::-1])
    return deltas.T @ X, deltas.T @ np.vstack([np.zeros(2), h[:-1]]), deltas.sum(0)


@exercise(
    "through_time(x, h, U, g)",
    "(dW, dU, db) of an Elman network h_t = tanh(W x_t + U h_{t-1} + b): inputs x (T, F), states h (T, H) from a "
    "state of zeros on, and g (T, H), the gradient that reaches each state directly. Rows of dW (H, F) and dU (H, "
    "H) are units of the state that is made; all are sums over the steps.",
    level="medium",
)
def through_time(answer: Answer) -> None:
    """Check all paths of the gradient, and that each state meets the one before it."""
    g, h = np.array([[0.0, 1.0], [0.5, 0.0], [1.0, -1.0]]), _states()
    right = _through(g)
    found = pair(answer(X.copy(), h.copy(), U, g.copy()), ("dW", "dU", "db"), "For three steps")
    once = "The gradient of the next step is missing: the state enters it, so add its gradient times Uᵀ."
    turned = "The gradient goes back through the transpose: U.T @ delta."
    slope = "The derivative of tanh is missing, 1 - h², at each step."
    for k, name in enumerate(("dW", "dU", "db")):
        wrong: list[tuple[object, str]] = [
            (_through(g, on=False)[k], once),
            (_through(g, turned=False)[k], turned),
            (_through(g, slope=False)[k], slope),
        ]
        if k == 1:
            wrong.append((_with_own_states(g), "δ_t goes with the state *before* it, h_{t-1}, zeros at the first."))
        if k < 2:
            wrong.append((right[k].T, "That is transposed: rows are units of the state that is made."))
        same(found[k], right[k], f"For three steps, of {name}", wrong)


def _with_own_states(g: Array) -> Array:
    h = _states()
    delta, total = np.zeros(2), np.zeros((2, 2))
    for t in reversed(range(len(h))):
        delta = (1 - h[t] ** 2) * (g[t] + U.T @ delta)
        total += np.outer(delta, h[t])
    return total


@exercise(
    "radius(U)",
    "The spectral radius of U (H, H): the largest modulus of its eigenvalues.",
    level="easy",
)
def radius(answer: Answer) -> None:
    """Check that complex and negative eigenvalues count by their modulus."""
    cases = ([[0.0, 2.0], [-2.0, 0.0]], [[-3.0, 1.0], [0.0, 2.0]], [[0.5, 4.0], [0.0, 0.5]])
    for rows in cases:
        U = np.array(rows)
        values = np.linalg.eigvals(U)
        wrong = (
            (values.real.max(), "That is the largest real part: the modulus counts, of complex ones and below 0 too."),
            (np.linalg.norm(U, 2), "That is the largest singular value: how much one step can stretch, not many."),
            (np.linalg.norm(U), "That is the norm of the matrix."),
            (np.abs(values), "Of these the largest."),
        )
        same(answer(U.copy()), np.abs(values).max(), f"For U = {format_numbers(U)}", wrong)


@exercise(
    "clip(gradients, largest)",
    "The list of arrays `gradients`, all scaled by one factor so that their total norm, the root of the sum of all "
    "squares, is at most `largest`; unchanged if it already is.",
    level="medium",
)
def clip(answer: Answer) -> None:
    """Check that one norm is used for all gradients, and that none becomes larger."""
    long, short = [np.array([3.0, 0.0]), np.array([[0.0], [4.0]])], [np.array([0.3, 0.0]), np.array([[0.0], [0.4]])]
    for gradients, factor in ((long, 0.2), (short, 1.0)):
        norm = 5 if gradients is long else 0.5
        when = f"For two arrays whose norm together is {norm:g}, largest = 1"
        given = answer([g.copy() for g in gradients], 1.0)
        parts = pair(given, ("first", "second"), when)
        first = gradients[0]
        wrong = (
            (first / np.linalg.norm(first), "Each by its own norm turns the whole gradient: one norm for all of them."),
            (np.clip(first, -1, 1), "That limits each number, and turns the gradient: shorten all by one factor."),
            (first / norm, "It was short enough: clipping makes no gradient longer."),
            (first / norm**2, "The norm is the root of the sum of squares."),
        )
        for part, own, mistakes in zip(parts, gradients, (wrong, ())):
            same(part, own * factor, when, mistakes)


GATED = np.linspace(-1.0, 1.2, 16).reshape(8, 2)[[3, 0, 6, 1, 7, 4, 2, 5]]
STATE = np.array([[0.4, 0.9], [-0.7, 0.2], [1.1, -0.3], [0.6, 0.5], [-0.2, 0.8], [0.3, -0.9], [0.7, 0.1], [-0.5, 0.4]])
BIAS = np.array([0.3, -0.2, 0.5, 0.1, -0.4, 0.2, 0.6, -0.1])
INPUT, HELD, CELL = np.array([1.0, -0.5]), np.array([0.2, -0.6]), np.array([0.8, -1.5])


@exercise(
    "lstm(x, h, c, W, U, b)",
    "(h, c) after one step: x (F,), h and c (H,), W (4H, F), U (4H, H) and b (4H,) with the gates one below "
    "another in the order i, f, g, o. i, f and o have a sigmoid, the candidate g a tanh, and h is o ⊙ tanh of the "
    "new cell.",
    level="medium",
)
def lstm(answer: Answer) -> None:
    """Check the order of the gates, and tanh at the candidate and the cell."""
    x, h, c = INPUT, HELD, CELL
    a = GATED @ x + STATE @ h + BIAS
    i, f, g, o = np.split(a, 4)

    def step(i: Array, f: Array, g: Array, o: Array) -> Array:
        return np.asarray(_sigma(f) * c + _sigma(i) * np.tanh(g))

    new = step(i, f, g, o)
    when = "For F = H = 2, of"
    found = pair(answer(x.copy(), h.copy(), c.copy(), GATED, STATE, BIAS), ("h", "c"), "For F = H = 2")
    wrong = (
        (_sigma(f) * c + _sigma(i) * _sigma(g), "The candidate g has a tanh: it may be below 0."),
        (step(i, f, o, g), "The order is i, f, g, o: the candidate is the third."),
        (step(f, i, g, o), "The order is i, f, g, o: the input gate is the first."),
        (_sigma(i) * np.tanh(g), "The cell keeps what f lets it: f ⊙ c is missing."),
        (_sigma(f) * c + np.tanh(g), "The input gate is missing: i ⊙ g."),
        (_sigma(o) * np.tanh(new), "That is h: the answer is (h, c)."),
    )
    same(found[1], new, f"{when} c", wrong)
    wrong_h = (
        (_sigma(o) * new, "The output is tanh of the cell."),
        (np.tanh(new), "The output gate is missing."),
        (_sigma(o) * np.tanh(c), "The output uses the *new* cell."),
    )
    same(found[0], _sigma(o) * np.tanh(new), f"{when} h", wrong_h)


@exercise(
    "gru(x, h, W, U, b)",
    "h after one step as in the paper, n = tanh(W_n x + U_n (r ⊙ h) + b_n), the reset gate before the product: x "
    "(F,), h (H,), W (3H, F), U (3H, H), b (3H,) in the order r, z, n; z keeps the old state, (1 - z) n + z h.",
    level="medium",
)
def gru(answer: Answer) -> None:
    """Check the position of the reset gate, and the direction of the update gate."""
    x, h = INPUT, HELD
    W, U, b = GATED[:6], STATE[:6], BIAS[:6]
    given, own = W @ x + b, U @ h
    r, z = _sigma(given[:2] + own[:2]), _sigma(given[2:4] + own[2:4])
    n, after = np.tanh(given[4:] + U[4:] @ (r * h)), np.tanh(given[4:] + r * own[4:])
    wrong = (
        ((1 - z) * after + z * h, "That is PyTorch's: in the paper r stands before the product, U_n (r ⊙ h)."),
        (z * n + (1 - z) * h, "z is how much of the *old* state is kept: (1 - z) n + z h."),
        ((1 - z) * np.tanh(given[4:] + own[4:]) + z * h, "The reset gate is missing from the candidate."),
        (n, "That is the candidate: z mixes it with the old state."),
        ((1 - r) * np.tanh(given[4:] + U[4:] @ (z * h)) + r * h, "The order is r, z, n: the reset gate is the first."),
    )
    same(answer(x.copy(), h.copy(), W, U, b), (1 - z) * n + z * h, "For F = H = 2", wrong)


@exercise(
    "last_states(outputs, lengths)",
    "The state after each sequence's own last step, (N, H), of outputs (N, T, H) padded on the right; lengths is a "
    "list of how many steps are real.",
    level="easy",
)
def last_states(answer: Answer) -> None:
    """Check that each sequence has its own last step, counted from 0."""
    outputs, lengths = np.arange(24.0).reshape(3, 4, 2), [2, 4, 1]
    right = outputs[np.arange(3), np.array(lengths) - 1]
    given = as_array(answer(outputs.copy(), list(lengths)), "For lengths (2, 4, 1)")
    wrong = (
        (outputs[:, -1], "That is the state after the padding: each sequence has a last step of its own."),
        (outputs[np.arange(3), np.minimum(lengths, 3)], "Steps are counted from 0: the last of n is n - 1."),
        (outputs[:, np.array(lengths) - 1], "Each sequence with its own length: index rows and steps together."),
    )
    same(given, right, "For outputs (3, 4, 2), lengths (2, 4, 1)", wrong)


@exercise(
    "repeat_season(y, m, horizon)",
    "The next `horizon` values of the series y (n,) by seasonal naive: the last season of m values, in order, "
    "again and again, as often as needed; exactly `horizon` values.",
    level="easy",
)
def repeat_season(answer: Answer) -> None:
    """Check that the last season repeats, in order, as often as needed."""
    y = np.array([5.0, 1.0, 2.0, 3.0, 6.0, 2.0, 4.0])
    for m, horizon in ((3, 2), (3, 7), (1, 3)):
        right = np.array([y[len(y) - m + k % m] for k in range(horizon)])
        given = answer(y.copy(), m, horizon)
        expect(given is not None, f"For m = {m}, horizon = {horizon} it gives None: is there a `return`?")
        wrong = (
            (np.full(horizon, y[-1]), "That repeats the last value: repeat the last m of them."),
            (y[-m:], "The season repeats until there are `horizon` values."),
            (np.array([y[k % m] for k in range(horizon)]), "That is the first season: the last one was asked for."),
            (np.array([y[-1 - k % m] for k in range(horizon)]), "That runs backwards: a season later is m steps on."),
        )
        same(given, right, f"For y = {format_numbers(y)}, m = {m}, horizon = {horizon}", wrong)
