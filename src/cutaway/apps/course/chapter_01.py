"""Exercises of chapter 1: one neuron, its learning rule, and its limits."""

from __future__ import annotations

import numpy as np

from .exercises import Answer, Array, Exercises, as_array, expect, format_numbers, pair, same

EXERCISES = exercise = Exercises()

# Four irises: petal length and width in centimetres, and whether each is a versicolor.
XS = np.array([[1.4, 0.2], [1.7, 0.4], [3.5, 1.0], [4.7, 1.4]])
TS = np.array([0, 0, 1, 1])
TABLE = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
EITHER = np.array([0, 1, 1, 1])


@exercise(
    "fires(w, b, x)",
    "1 where the neuron of weights w and bias b fires at x, that is where w·x + b > 0, else 0, also where it is "
    "exactly 0. w and x have any number of entries.",
    level="easy",
)
def fires(answer: Answer) -> None:
    """Check both sides of the line, the line itself, and more than two inputs."""
    w, b = np.array([1.0, 2.0]), -3.0
    for x, right, wrong in (
        ([2.0, 1.0], 1, ()),
        ([1.0, 0.5], 0, ()),
        ([1.0, 1.0], 0, ((1, "Here w·x + b is exactly 0, and a neuron fires above its threshold, not at it."),)),
    ):
        score = float(w @ x + b)
        same(
            answer(w, b, np.array(x)),
            right,
            f"For w = (1, 2), b = -3, x = {format_numbers(x)}, where z = {score:g},",
            wrong,
        )
    same(answer(np.array([0.5, -1.0, 2.0]), 0.1, np.ones(3)), 1, "For w = (0.5, -1, 2), b = 0.1, x = (1, 1, 1)")


@exercise(
    "distance(w, b, x)",
    "How far x lies from the line w·x + b = 0, in the units of x: above 0 on the side where the neuron fires, "
    "below 0 on the other. (w, b) and (2w, 2b) are the same line and have the same distance.",
    level="easy",
)
def distance(answer: Answer) -> None:
    """Check the sign and the division by the length of w."""
    w, b = np.array([3.0, 4.0]), -5.0
    for x in ([3.0, 4.0], [0.0, 0.0], [1.0, 0.5]):
        z = float(w @ x + b)
        wrong = (
            (z, "That is z: divide by the length of w, 5 here, or (2w, 2b) would be twice as far from the same line."),
            (abs(z) / 5, "The sign is what tells the sides apart: keep it."),
            (z / 25, "The length of w is the square root of w·w."),
        )
        same(answer(w, b, np.array(x)), z / 5, f"For w = (3, 4), b = -5, x = {format_numbers(x)}", wrong)


@exercise(
    "correct(w, b, x, t)",
    "The weights and the bias (w, b) after one step of the perceptron rule with rate 1 on x, whose class t is 0 or "
    "1. They stay if the neuron is right. Otherwise each moves by t - y times its input, where y is the "
    "neuron's output and the bias's input is 1.",
    level="easy",
)
def correct(answer: Answer) -> None:
    """Check both kinds of mistakes, no mistake, and that the arguments are not modified."""
    w, b = np.array([1.0, -1.0]), 0.5
    for x, t in (([0.0, 1.0], 1), ([1.0, 0.0], 0), ([1.0, 0.0], 1), ([0.0, 2.0], 0)):
        mine, at = w.copy(), np.array(x)
        after = pair(answer(mine, b, at, t), ("w", "b"), f"For x = {format_numbers(x)}, t = {t}")
        y = int(w @ x + b > 0)
        when = f"For w = (1, -1), b = 0.5, x = {format_numbers(x)}, t = {t}, where the neuron says {y},"
        new, new_b = w + (t - y) * at, b + (t - y)
        wrong = [(w - (t - y) * at, "That is the other way round: t - y is the direction in which z is to go.")]
        if t == y:
            wrong += [(w + s * at, "It was right, and only mistakes are corrected.") for s in (1, -1)]
        else:
            wrong.append((w, "The example was misclassified, but w did not change."))
        same(after[0], new, f"{when} of w", wrong)
        hint = "The bias learns as if it were the weight of an input that is always 1: b + (t - y)."
        same(after[1], new_b, f"{when} of b", ((b, hint), (b - (t - y), hint)))
        expect(np.array_equal(mine, w), "It changed the w that it was given: `w += …` does, `w = w + …` makes another.")


@exercise(
    "train(xs, ts, passes)",
    "(w, b, mistakes) after going through the examples in order, again and again, with the rule of `correct`, from "
    "w = 0, b = 0, at most `passes` times and no further than the first pass without a mistake; `mistakes` counts "
    "all corrections of all passes.",
    level="medium",
)
def train(answer: Answer) -> None:
    """Check the result on four flowers and OR, early stopping, and termination on XOR."""
    for xs, ts, name in ((XS, TS, "four irises"), (TABLE, EITHER, "OR")):
        w, b, mistakes, passes = _learned(xs, ts, 100)
        when = f"For {name} and 100 passes"
        found = pair(answer(xs.copy(), ts.copy(), 100), ("w", "b", "mistakes"), when)
        w1, b1, mistakes1, _ = _learned(xs, ts, 1)
        once = "That is the result of one pass: repeat until a pass has no mistake."
        same(found[0], w, f"{when}, of w", ((w1, once),))
        same(found[1], b, f"{when}, of b", ((b1, once),))
        counted = "That counts passes: count corrections."
        same(found[2], mistakes, f"{when}, of mistakes", ((passes, counted), (passes - 1, counted), (mistakes1, once)))
    endless = np.array([0, 1, 1, 0])
    found = pair(answer(TABLE.copy(), endless, 3), ("w", "b", "mistakes"), "For XOR and 3 passes")
    same(found[2], _learned(TABLE, endless, 3)[2], "For XOR and 3 passes, of mistakes")


def _learned(xs: Array, ts: Array, passes: int) -> tuple[Array, float, int, int]:
    w, b, mistakes, done = np.zeros(xs.shape[1]), 0.0, 0, 0
    for _ in range(passes):
        before, done = mistakes, done + 1
        for x, t in zip(xs, ts):
            y = int(w @ x + b > 0)
            w, b, mistakes = w + (t - y) * x, b + (t - y), mistakes + abs(int(t) - y)
        if mistakes == before:
            break
    return w, b, mistakes, done


@exercise(
    "novikoff(xs, ts, w, b)",
    "Novikoff's bound (R/γ)² on the mistakes, from a line (w, b) that separates the examples. Append a 1 to each "
    "example, and b to w: R is the largest norm of such an example, and γ the smallest absolute value of w·x over "
    "them, divided by the norm of this w.",
    level="medium",
)
def novikoff(answer: Answer) -> None:
    """Check that the bias counts as a weight, in R and in γ."""
    for w, b in (([1.0, 1.0], -3.3), ([2.0, 0.0], -5.0)):
        long = np.column_stack([XS, np.ones(len(XS))])
        whole = np.array([*w, b])
        sides = 2 * TS - 1
        gamma = (sides * (long @ whole)).min() / np.linalg.norm(whole)
        right = (np.linalg.norm(long, axis=1).max() / gamma) ** 2
        bare = (np.linalg.norm(XS, axis=1).max() / ((sides * (XS @ w + b)).min() / np.linalg.norm(w))) ** 2
        wrong = (
            (bare, "That ignores the bias: append a 1 to every x and b to w, for R and for the norm of w."),
            (right**0.5, "The bound is the square of R/γ."),
        )
        value = answer(XS.copy(), TS.copy(), np.array(w), b)
        same(value, right, f"For four irises, w = {format_numbers(w)}, b = {b:g}", wrong)


@exercise(
    "xor_network()",
    "(W, b, v, c) of a network that computes XOR: two neurons with the rows of W (2, 2) and the biases b (2,), and "
    "one with weights v (2,) and bias c, a number, that sees what those two say. Each neuron says 1 where its sum "
    "is above 0, else 0. Any network with the right truth table counts.",
    level="medium",
)
def xor_network(answer: Answer) -> None:
    """Check the truth table; any network that has it is right."""
    parts = pair(answer(), ("W", "b", "v", "c"), "Called without arguments,")
    shapes = ((2, 2), (2,), (2,), ())
    W, b, v, c = (as_array(part, "Called without arguments,") for part in parts)
    for name, part, shape in zip("Wbvc", (W, b, v, c), shapes):
        expect(part.shape == shape, f"{name} is to be of shape {shape}, and yours is {part.shape}.")
    for x, t in zip(TABLE, (0, 1, 1, 0)):
        hidden = (W @ x + b > 0).astype(float)
        y = int(v @ hidden + c > 0)
        expect(
            y == t,
            f"At {format_numbers(x)} the two neurons say {format_numbers(hidden)} and the third {y}; XOR is {t} there.",
        )
