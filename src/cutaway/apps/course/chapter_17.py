"""Exercises of chapter 17: contrastive and masked losses, and prototypes."""

from __future__ import annotations

from typing import Any

import numpy as np

from .exercises import Answer, Array, Exercises, as_array, expect, format_numbers, same, softmax

EXERCISES = exercise = Exercises()


@exercise(
    "similarities(Z)",
    "The cosine similarity of each two rows of Z (n, d), the product of both rows divided by both lengths: (n, n). "
    "No row is 0.",
    level="easy",
)
def similarities(answer: Answer) -> None:
    """Check the division by both lengths."""
    for Z in (np.array([[1.0, 2.0], [-3.0, 0.5], [0.0, 2.0]]), np.array([[4.0, 1.0, -1.0], [0.1, 0.2, 0.3]])):
        lengths = np.linalg.norm(Z, axis=1)
        right = Z @ Z.T / np.outer(lengths, lengths)
        wrong = (
            (Z @ Z.T, "Divide by the lengths of both rows."),
            (Z @ Z.T / lengths[:, None], "Divide by the lengths of *both* rows."),
            (Z @ Z.T / np.outer(lengths, lengths) ** 2, "The length is the root of the sum of squares."),
            (1 - right, "That is the distance: the similarity of a row with itself is 1."),
        )
        same(answer(Z.copy()), right, f"For {len(Z)} rows of {Z.shape[1]} numbers", wrong)


@exercise(
    "contrastive_loss(A, B, tau)",
    "The mean over all 2n views of -ln(exp(s_ij/τ) / Σ_{k≠i} exp(s_ik/τ)), one number: A and B (n, d) are the "
    "codes of the first and of the second views, rows of one index belong to one example, j is the other view of "
    "that example, s the cosine similarity of two of the 2n codes. τ may be as small as 0.001: large exponents "
    "must not overflow.",
    level="medium",
)
def contrastive_loss(answer: Answer) -> None:
    """Check the negatives, the exclusion of a view itself, both directions, and overflow."""
    random = np.random.default_rng(0)
    for n, tau in ((3, 0.5), (4, 0.1), (3, 0.001)):
        A, B = random.normal(size=(2, n, 3))
        Z = np.concatenate([A, B])
        raw = Z @ Z.T
        unit = Z / np.linalg.norm(Z, axis=1, keepdims=True)
        partner = (np.arange(2 * n) + n) % (2 * n)

        def loss(s: Array, keep: Any, partner: Any = partner) -> Array:
            """Return the cross-entropy of each row, over the entries that `keep` has."""
            z = np.where(keep, s, -np.inf)
            top = z.max(1)
            rows: Array = top + np.log(np.exp(z - top[:, None]).sum(1)) - s[np.arange(len(s)), partner]
            return rows

        s, others = unit @ unit.T / tau, ~np.eye(2 * n, dtype=bool)
        rows = loss(s, others)
        half = unit[:n] @ unit[n:].T / tau
        same_set = np.zeros((2 * n, 2 * n), dtype=bool)
        same_set[:n, n:] = same_set[n:, :n] = True
        wrong = (
            (loss(s, np.ones_like(others)).mean(), "A view is not compared with itself: leave k = i out."),
            (loss(raw / tau, others).mean(), "s is the *cosine* similarity: divide by both lengths."),
            (loss(unit @ unit.T, others).mean(), "Divide the similarities by τ."),
            (loss(unit @ unit.T * tau, others).mean(), "Divide by τ: do not multiply."),
            (rows.sum(), "The mean over all views, not the sum."),
            (rows[:n].mean(), "Both directions count: the mean is over all 2n views."),
            (loss(s, same_set).mean(), "All other views are in the denominator, those of the same set too."),
            (
                loss(half, np.ones_like(half, dtype=bool), np.arange(n)).mean(),
                "All 2n views are compared with each other.",
            ),
            (-rows.mean(), "The loss is -ln of the probability: the sign is the other."),
        )
        found = answer(A.copy(), B.copy(), tau)
        when = f"For {n} examples and τ = {tau:g}"
        finite = np.isfinite(as_array(found, when)).all()
        expect(finite, f"{when} it returns {found}: subtract the largest exponent before exp.")
        same(found, rows.mean(), when, wrong)


@exercise(
    "masked_error(predicted, patches, hidden)",
    "The mean squared error of the hidden patches, one number: predicted and patches are (n, d), hidden (n,) is "
    "True where a patch was hidden. At least one is hidden. Visible patches do not count.",
    level="easy",
)
def masked_error(answer: Answer) -> None:
    """Check that visible patches have no part in the mean."""
    random = np.random.default_rng(1)
    for hidden in (np.array([True, False, True, False]), np.array([False, False, True, False])):
        predicted, patches = random.normal(size=(2, 4, 3))
        squares = ((predicted - patches) ** 2).mean(1)
        wrong = (
            (squares.mean(), "Visible patches do not count."),
            (squares[~hidden].mean(), "Those are the visible patches: the hidden ones count."),
            ((squares * hidden).mean(), "Divide by the number of hidden patches, not of all."),
            (squares[hidden].sum(), "The mean, not the sum."),
            (squares[hidden].mean() * 3, "The mean over the numbers of a patch, too."),
            (np.abs(predicted - patches).mean(1)[hidden].mean(), "The error is squared."),
        )
        when = f"For {int(hidden.sum())} hidden patches of 4"
        same(answer(predicted.copy(), patches.copy(), hidden.copy()), squares[hidden].mean(), when, wrong)


@exercise(
    "class_means(H, y, ways)",
    "The prototypes (ways, d): row k is the mean of the rows of H (n, d) whose class in y (n,) is k. Classes are 0 "
    "… ways - 1, in any order, and each has at least one row, not all equally many.",
    level="easy",
)
def class_means(answer: Answer) -> None:
    """Check unequal counts, and rows in any order."""
    H = np.array([[1.0, 0.0], [3.0, 2.0], [0.0, 4.0], [-1.0, 1.0], [5.0, 1.0]])
    for y, ways in (([1, 0, 1, 1, 0], 2), ([2, 0, 1, 2, 0], 3)):
        t = np.array(y)
        sums = np.stack([H[t == k].sum(0) for k in range(ways)])
        right = np.stack([H[t == k].mean(0) for k in range(ways)])
        wrong = (
            (sums, "That is the sum: the mean divides by the rows of the class."),
            (sums / len(H), "Divide by the rows of the *class*, not by all."),
            (sums * ways / len(H), "Classes may have different numbers of rows."),
            (right.T, "A row for each class: (ways, d)."),
        )
        same(answer(H.copy(), t.copy(), ways), right, f"For y = {format_numbers(t)}", wrong)


@exercise(
    "probabilities(Q, C)",
    "The probability of each class for each query, (q, k): the softmax over the classes of minus the *squared* "
    "distances of queries Q (q, d) and prototypes C (k, d). Distances may be as large as 100: the result must not "
    "be 0/0.",
    level="medium",
)
def probabilities(answer: Answer) -> None:
    """Check the square, the sign, the axis, and large distances."""
    random = np.random.default_rng(2)
    for scale in (1.0, 40.0):
        Q, C = scale * random.normal(size=(3, 2)), scale * random.normal(size=(4, 2))
        squares = ((Q[:, None] - C[None]) ** 2).sum(2)
        right = softmax(-squares)
        wrong = (
            (softmax(-np.sqrt(squares)), "The square of the distance, not the distance."),
            (softmax(squares), "Near is probable: the softmax is of *minus* the squares."),
            (softmax(-squares, 0), "The classes of each query sum to 1."),
            (right.T, "A row for each query: (q, k)."),
        )
        when = "For 3 queries and 4 prototypes" + (", far apart," if scale > 1 else "")
        found = answer(Q.copy(), C.copy())
        expect(np.isfinite(as_array(found, when)).all(), f"{when} it overflows: subtract the largest exponent first.")
        same(found, right, when, wrong)
