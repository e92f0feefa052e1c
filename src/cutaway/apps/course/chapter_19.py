"""Exercises of chapter 19: pruning, quantization, attacks, and calibration."""

from __future__ import annotations

import numpy as np

from .exercises import Answer, Array, Exercises, as_array, expect, format_numbers, pair, same

EXERCISES = exercise = Exercises()


@exercise(
    "prune(w, fraction)",
    "The weights w, of any shape, with round(fraction · number of weights) of them, the smallest by absolute "
    "value, set to 0.",
    level="easy",
)
def prune(answer: Answer) -> None:
    """Check that weights are ranked by size, without their sign."""
    w = np.array([[0.5, -3.0, 0.1], [-0.2, 2.0, -1.0]])

    def cut(order: Array, count: int) -> Array:
        out = w.flatten()
        out[np.argsort(order)[:count]] = 0
        return out.reshape(w.shape)

    for fraction in (0.5, 0.0, 1.0, 1 / 3):
        count = round(fraction * w.size)
        right = cut(np.abs(w).flatten(), count)
        wrong = (
            (cut(w.flatten(), count), "-3 is a large weight: the absolute value counts."),
            (cut(-np.abs(w).flatten(), count), "Those are the largest: the smallest go."),
            (cut(np.abs(w).flatten(), w.size - count), "`fraction` is what goes, not what stays."),
            (np.where(np.abs(w) < fraction, 0, w), "`fraction` is how many go, not how large they may be."),
        )
        given = w.copy()
        same(answer(given, fraction), right, f"For six weights and fraction {fraction:.2f}", wrong)
        expect(np.array_equal(given, w), "It changes the weights that it was given: make a new array.")


@exercise(
    "quantize(w, bits)",
    "(q, s) with w (O, I) ≈ s q: integers q (O, I) from -(2^(bits-1) - 1) to 2^(bits-1) - 1, rounded to the "
    "nearest, and the step s (O,) of each row: its largest absolute value divided by 2^(bits-1) - 1. No row is all "
    "0.",
    level="medium",
)
def quantize(answer: Answer) -> None:
    """Check that each row has its own step, and rounding to the nearest."""
    w = np.array([[0.5, -1.0, 0.26], [8.0, 1.0, -3.0]])
    for bits in (8, 4):
        most = 2 ** (bits - 1) - 1
        s = np.abs(w).max(1) / most
        when = f"For two rows and {bits} bits"
        q, steps = pair(answer(w.copy(), bits), ("q", "s"), when)
        wrong = (
            (np.full(2, np.abs(w).max() / most), "Each row has its own step."),
            (np.abs(w).max() / most, "Each row has its own step."),
            (np.abs(w).max(1) / (2**bits - 1), "One bit is the sign: the largest number is 2^(bits-1) - 1."),
            (np.abs(w).max(1) / (most + 1), "The largest number is 2^(bits-1) - 1, so that 0 stays in the middle."),
            (w.max(1) / most, "The largest by size: -1 is larger than 0.5."),
            (1 / s, "The step multiplies the integer: w ≈ s q."),
        )
        same(steps, s, f"{when} s", wrong)
        of_numbers = (
            (np.trunc(w / s[:, None]), "Round to the nearest, not towards 0."),
            (np.floor(w / s[:, None]), "Round to the nearest, not down."),
            (w / s[:, None], "Whole numbers: round."),
            (np.round(w / s[:, None]) * s[:, None], "That is s q: q are the whole numbers."),
        )
        same(q, np.round(w / s[:, None]), f"{when} q", of_numbers)


@exercise(
    "attack(x, gradient, eps, low, high)",
    "One step of the fast gradient sign method: x plus eps times the sign of the gradient of its loss, clipped to "
    "values from low to high. Where the gradient is 0 nothing moves.",
    level="easy",
)
def attack(answer: Answer) -> None:
    """Check the sign, the direction and clipping."""
    x, gradient = np.array([0.0, 0.95, -0.98, 0.4, 0.2]), np.array([0.001, 3.0, -2.0, -0.5, 0.0])
    step = 0.1 * np.sign(gradient)
    wrong = (
        (np.clip(x - step, -1, 1), "That goes down: the loss is to rise."),
        (x + step, "Pixels stay between low and high: clip."),
        (np.clip(x + 0.1 * gradient, -1, 1), "Only the sign of the gradient counts: each pixel moves by eps."),
        (np.clip(step, -1, 1), "That is the change alone: add it to x."),
        (
            np.clip(x + 0.1 * gradient / np.linalg.norm(gradient), -1, 1),
            "Each pixel changes by eps, independent of its gradient.",
        ),
        (np.clip(x + 0.1 * np.where(gradient >= 0, 1, -1), -1, 1), "Where the gradient is 0 nothing moves."),
    )
    given = x.copy()
    same(
        answer(given, gradient.copy(), 0.1, -1.0, 1.0),
        np.clip(x + step, -1, 1),
        f"For x = {format_numbers(x)}, eps = 0.1",
        wrong,
    )
    expect(np.array_equal(given, x), "It changes the x that it was given.")


@exercise(
    "calibration(p, right, bins)",
    "The expected calibration error: the mean of |accuracy - mean p| over bins of equal width from 0 to 1, "
    "weighted by their numbers of examples; p (n,) is the confidence of each prediction, right (n,) is 1 where it "
    "is correct. A bin includes its lower edge, and the last one also p = 1. Empty bins do not count.",
    level="medium",
)
def calibration(answer: Answer) -> None:
    """Check that bins are weighted by their counts, and that empty bins are left out."""
    p = np.array([0.95, 0.9, 0.92, 0.55, 0.61, 0.3, 1.0, 0.97])
    right = np.array([1, 0, 1, 1, 0, 0, 1, 0.0])
    for bins in (10, 4):
        which = np.minimum((p * bins).astype(int), bins - 1)
        there = [k for k in range(bins) if (which == k).any()]
        gaps = np.array([right[which == k].mean() - p[which == k].mean() for k in there])
        share = np.array([(which == k).mean() for k in there])
        wanted = float((share * np.abs(gaps)).sum())
        middles = np.array([(k + 0.5) / bins for k in there])
        rates = np.array([right[which == k].mean() for k in there])
        wrong = (
            (np.abs(gaps).mean(), "Bins are weighted by their examples."),
            (abs((share * gaps).sum()), "Take the size of each gap *before* the sum: above and below do not cancel."),
            (np.abs(p - right).mean(), "That is each answer's own error: take the means of each bin first."),
            ((share * gaps**2).sum(), "The size of the gap, not its square."),
            ((share * np.abs(rates - middles)).sum(), "Take the mean of p in the bin, not its middle."),
            (np.abs(gaps).max(), "That is the largest gap, another measure: the mean is asked for."),
        )
        found = answer(p.copy(), right.copy(), bins)
        expect(np.isfinite(as_array(found, f"With {bins} bins")).all(), "A bin without examples counts for nothing.")
        same(found, wanted, f"With {bins} bins", wrong)
