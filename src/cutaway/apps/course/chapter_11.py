"""Exercises of chapter 11: attention, masks, positions, the two circuits of a head, and the cost."""

from __future__ import annotations

import math

import numpy as np

from .exercises import Answer, Exercises, expect, format_numbers, pair, same, softmax

EXERCISES = exercise = Exercises()

Q = np.array([[1.0, 0.0, 2.0, 1.0], [0.0, 3.0, -1.0, 0.0]])
K = np.array([[2.0, 1.0, 0.0, 1.0], [0.0, 1.0, 1.0, 0.0], [1.0, -1.0, 2.0, 0.0]])
V = np.array([[1.0, 0.0], [0.0, 2.0], [-1.0, 3.0]])


@exercise(
    "attention(Q, K, V)",
    "softmax(Q Kᵀ / √d_k) V, (T, d_v), of queries Q (T, d_k), keys K (S, d_k) and values V (S, d_v); the softmax "
    "is over the keys of each query. Scores of thousands give finite results.",
    level="easy",
)
def attention(answer: Answer) -> None:
    """Check the scale, where it is applied, and the axis of the softmax."""
    scores, root = Q @ K.T, math.sqrt(4)
    right = softmax(scores / root) @ V
    wrong = (
        (softmax(scores) @ V, "The division by √d_k is missing."),
        (
            softmax(scores) @ V / root,
            "The scores are divided, before the softmax: after it, the weights sum to 1/√d_k.",
        ),
        (softmax(scores / 4) @ V, "That divides by d_k: by its square root."),
        (softmax(scores / math.sqrt(3)) @ V, "d_k is how many numbers a query has, not how many keys there are."),
        (
            softmax(scores / root, 0) @ V,
            "Each query has weights that sum to 1: the softmax is along the keys, axis 1.",
        ),
        (scores / root @ V, "Those are scores times values: the softmax makes weights of them."),
    )
    same(answer(Q.copy(), K.copy(), V.copy()), right, "For Q (2, 4), K (3, 4) and V (3, 2)", wrong)
    with np.errstate(all="ignore"):
        found = answer(1000 * Q, K.copy(), V.copy())
    finite = found is None or bool(np.isfinite(np.asarray(found, dtype=float)).all())
    expect(
        finite,
        "For large queries it gives no finite numbers: subtract the maximum of each row before the exponential.",
    )


@exercise(
    "causal(T, S)",
    "The mask (T, S), True where a query may look: rows are queries, the last T of S tokens, and none looks at a "
    "token after it. A token may look at itself.",
    level="easy",
)
def causal(answer: Answer) -> None:
    """Check that rows are queries, that a query sees itself, and that with more keys the queries are the last
    positions."""
    for t, s in ((3, 3), (2, 5), (1, 4)):
        right = np.tri(t, s, s - t)
        wrong = (
            (np.tri(s, t, 0).T[:t], "Turned round: there the first query sees all keys, and the last itself alone."),
            (1 - right, "That is True where a query may not look."),
            (np.tri(t, s, s - t - 1), "A token may look at itself."),
            (np.tri(t, s), "The queries are the last tokens: those before them were read already, and may be seen."),
        )
        same(answer(t, s), right, f"For T = {t}, S = {s}", wrong)


@exercise(
    "sinusoid(p, d)",
    "PE(p, 0), …, PE(p, d - 1): sine and cosine of p / 10000^(2i/d) alternate, the sine first, for i = 0, 1, …, "
    "d/2 - 1; d is even.",
    level="easy",
)
def sinusoid(answer: Answer) -> None:
    """Check that sine and cosine alternate, and that the frequencies are not integers."""
    for p, d in ((1, 4), (7, 6), (0, 4)):
        i = np.arange(0, d, 2)
        angles = p / 10000 ** (i / d)
        right = np.stack([np.sin(angles), np.cos(angles)], 1).ravel()
        single = p / 10000 ** (np.arange(d // 2) / d)
        grown = p * 10000 ** (i / d)
        wrong = (
            (np.concatenate([np.sin(angles), np.cos(angles)]), "Sine and cosine alternate, pair by pair."),
            (np.stack([np.cos(angles), np.sin(angles)], 1).ravel(), "The sine comes first in each pair."),
            (np.stack([np.sin(single), np.cos(single)], 1).ravel(), "The exponent is 2i/d: 0, 2/d, 4/d and so on."),
            (np.stack([np.sin(grown), np.cos(grown)], 1).ravel(), "p is divided: the hands grow slower along i."),
            (
                np.stack([np.full(d // 2, math.sin(p)), np.full(d // 2, math.cos(p))], 1).ravel(),
                "All pairs turn at one rate: in whole numbers 2i // d is 0.",
            ),
        )
        same(answer(p, d), right, f"For p = {p}, d = {d}", wrong)


@exercise(
    "rotate(x, p)",
    "The vector x (d,), d even, with each pair of neighbours (x_2i, x_2i+1) turned by the angle p / 10000^(2i/d), "
    "against the clock; pairs stay where they are.",
    level="medium",
)
def rotate(answer: Answer) -> None:
    """Check pairs of neighbours, the direction, and that only distances matter."""
    x = np.array([1.0, 0.0, 2.0, -1.0])
    for p in (1, 3):
        angles = p / 10000 ** (np.arange(0, 4, 2) / 4)
        c, s = np.cos(angles), np.sin(angles)
        a, b = x[0::2], x[1::2]
        half_a, half_b = x[:2], x[2:]
        position = np.stack([s, c], 1).ravel()
        wrong = (
            (
                np.stack([a * c + b * s, b * c - a * s], 1).ravel(),
                "That turns with the clock: (1, 0) goes to (cos, sin).",
            ),
            (
                np.concatenate([half_a * c - half_b * s, half_a * s + half_b * c]),
                "Those pairs are halves apart, as some code has it: here neighbours are a pair.",
            ),
            (x + position, "That adds a position: rotary turns, and adds nothing."),
            (
                np.concatenate([a * c - b * s, a * s + b * c]),
                "The rotated pairs keep their positions, interleaved.",
            ),
        )
        right = np.stack([a * c - b * s, a * s + b * c], 1).ravel()
        same(answer(x.copy(), p), right, f"For x = {format_numbers(x)}, p = {p}", wrong)


@exercise(
    "circuits(W_Q, W_K, W_V, W_O)",
    "(W_QK, W_OV) of a head, (d, d) each, for tokens in rows: score = x W_QK yᵀ for query x and key y, without the "
    "division by √d_k, and x W_OV is the transferred value. W_Q, W_K are (d, d_k), W_V is (d, d_v), W_O (d_v, d).",
    level="easy",
)
def circuits(answer: Answer) -> None:
    """Check the side of the query, and the order of the product."""
    a = np.array([[1.0, 0.0], [2.0, 1.0], [0.0, -1.0]])
    b = np.array([[0.0, 1.0], [1.0, 1.0], [3.0, 0.0]])
    v, o = np.array([[1.0], [0.0], [2.0]]), np.array([[0.5, -1.0, 2.0]])
    found = pair(answer(a, b, v, o), ("W_QK", "W_OV"), "For d = 3, d_k = 2, d_v = 1")
    wrong: tuple[tuple[object, str], ...] = (
        ((b @ a.T), "That is the other way round: the query stands on the left, W_Q W_Kᵀ."),
        ((a.T @ b), "That is (d_k, d_k): what takes two tokens is (d, d)."),
        (a @ b.T / math.sqrt(2), "The score's matrix is the product alone; the division by √d_k stays outside."),
    )
    same(found[0], a @ b.T, "Of W_QK", wrong)
    same(found[1], v @ o, "Of W_OV", (((v @ o).T, "Tokens are rows, so values are made first: x W_V W_O."),))


@exercise(
    "cost(T, d)",
    "(matrices, attention): the multiply-adds of a layer of self-attention on T tokens of d numbers, those of its "
    "four matrices W_Q, W_K, W_V, W_O, d by d each, for every token, and those of the scores and of the weighted "
    "sums of values, for all T² pairs.",
    level="easy",
)
def cost(answer: Answer) -> None:
    """Check the linear and the quadratic term in T."""
    for t, d in ((10, 8), (1024, 768)):
        matrices, attends = 4 * t * d**2, 2 * t**2 * d
        wrong = (
            ((3 * t * d**2, attends), "W_O is a matrix too: four in all."),
            ((matrices, t**2 * d), "T² scores of d products each, and T² weights times d values: twice."),
            ((matrices, 2 * t * d), "Each of T tokens looks at T tokens."),
            ((4 * d**2, attends), "Each token goes through the matrices."),
            ((2 * matrices, 2 * attends), "A multiply-add is one, not two."),
        )
        same(answer(t, d), (matrices, attends), f"For T = {t}, d = {d}", wrong)


@exercise(
    "induction(A, tokens)",
    "The mean over all places t whose token stood before of the weight that t has on the places right after those "
    "where it stood, added up if there are several; places whose token is new are left out of the mean. A (T, T) "
    "are a head's weights, rows queries, and tokens (T,).",
    level="medium",
)
def induction(answer: Answer) -> None:
    """Check that attention is one position after the same token, and the mean over tokens that repeat."""
    for tokens in ([3, 5, 7, 3, 5, 7, 3], [1, 2, 1, 2, 1]):
        t = len(tokens)
        raw = np.tri(t) * (1 + (np.arange(t * t).reshape(t, t) * 7 % 5))
        a = raw / raw.sum(1, keepdims=True)
        means: list[float] = []
        matches: list[float] = []
        spread: list[float] = []
        for i in range(t):
            where = [s for s in range(i) if tokens[s] == tokens[i]]
            if where:
                means.append(sum(a[i, s + 1] for s in where))
                matches.append(sum(a[i, s] for s in where))
                spread.append(means[-1] / len(where))
        wrong = (
            (np.mean(matches), "That is the weight on the same token: an induction head looks at the one after it."),
            (sum(means) / t, "Places whose token is new have nothing to look for: leave them out of the mean."),
            (sum(means), "That is the sum: give the mean."),
            (np.mean(spread), "Where a token stood twice before, both places count: add their weights."),
        )
        same(answer(a.copy(), np.array(tokens)), np.mean(means), f"For tokens {tuple(tokens)}", wrong)
