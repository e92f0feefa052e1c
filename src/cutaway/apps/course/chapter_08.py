"""Exercises of chapter 8: word counts, prediction, analogies and subwords."""

from __future__ import annotations

import math

import numpy as np

from .exercises import Answer, Array, Exercises, expect, format_numbers, pair, same

EXERCISES = exercise = Exercises()

COUNTS = np.array([[0.0, 8.0, 2.0], [8.0, 2.0, 0.0], [2.0, 0.0, 2.0]])


@exercise(
    "cooccurrences(ids, window, size)",
    "C (size, size): C[w, c] counts how often c occurs at most `window` positions before or after w in the list "
    "ids. An occurrence is not its own neighbour; another occurrence of the same word is.",
    level="easy",
)
def cooccurrences(answer: Answer) -> None:
    """Check that both sides count, and that a word is not its own context."""
    for ids, window in (([0, 1, 2, 1, 3], 1), ([2, 0, 2, 2, 1, 3, 0], 2)):
        right = _near(ids, window, 4)
        after, own = np.zeros((4, 4)), right.copy()
        for i, w in enumerate(ids):
            own[w, w] += 1
            for c in ids[i + 1 : i + 1 + window]:
                after[w, c] += 1
        wrong = (
            (after, "That has the words after each alone: those before it are its company too."),
            (after.T, "That has the words before each alone: those after it are its company too."),
            (own, "That counts each occurrence as its own neighbour."),
            (np.minimum(right, 1), "That says whether, and how often was asked."),
            (_near(ids, window - 1, 4), "The window reaches `window` places, the last of them included."),
            (_near(ids, window + 1, 4), "That reaches one place too far."),
        )
        same(
            answer(list(ids), window, 4), right, f"For ids = {format_numbers(ids)}, window = {window}, size = 4", wrong
        )


def _near(ids: list[int], window: int, size: int) -> Array:
    C = np.zeros((size, size))
    for i, w in enumerate(ids):
        for j, c in enumerate(ids):
            C[w, c] += 0 < abs(i - j) <= window
    return C


@exercise(
    "ppmi(C)",
    "max(0, ln p(w, c) / (p(w) p(c))) from counts C (V, V) of pairs, where p are counts over the sum of all of C "
    "and the logarithm is of the whole fraction; 0 where a pair never occurs, without infinities or NaN.",
    level="medium",
)
def ppmi(answer: Answer) -> None:
    """Check the expected frequency of a pair, and that there are no infinities."""
    chance = np.outer(COUNTS.sum(1), COUNTS.sum(0)) / COUNTS.sum()
    with np.errstate(divide="ignore"):
        pmi = np.log(COUNTS / chance)
        right = np.maximum(pmi, 0)
        given = answer(COUNTS.copy())
        wrong = (
            (np.maximum(np.log2(COUNTS / chance), 0), "The natural logarithm is meant."),
            (np.maximum(COUNTS / chance, 0), "The logarithm is missing."),
            (np.abs(np.where(np.isinf(pmi), 0, pmi)), "Values below 0 become 0; they do not change their sign."),
            (np.where(np.isinf(pmi), 0, pmi), "That is the PMI: values below 0 become 0."),
            (
                np.maximum(np.log(COUNTS / np.outer(COUNTS.sum(1), COUNTS.sum(0))), 0),
                "Those are counts: p(w, c) and p(w) are counts over the sum of all of C.",
            ),
        )
    if given is not None:
        expect(
            not np.isnan(np.asarray(given, dtype=float)).any() and np.isfinite(np.asarray(given, dtype=float)).all(),
            "For C with zeros the result contains log 0: a pair that never occurs must have 0.",
        )
    same(given, right, f"For C = {format_numbers(COUNTS)}", wrong)


@exercise(
    "keep_probability(f, t)",
    "The probability with which word2vec's program keeps a word of frequency f at threshold t: (√(f/t) + 1) t/f, "
    "at most 1.",
    level="easy",
)
def keep_probability(answer: Answer) -> None:
    """Check the formula of the program, which differs from the paper's, and the upper bound of 1."""
    for f, t in ((0.01, 1e-3), (1e-4, 1e-3), (0.05, 1e-5)):
        right = min(1.0, (math.sqrt(f / t) + 1) * t / f)
        wrong = (
            ((math.sqrt(f / t) + 1) * t / f, "A probability is at most 1: rare words are kept for certain."),
            (min(1.0, math.sqrt(t / f)), "That is the paper's: the program keeps (√(f/t) + 1) t/f."),
            (1 - right, "That is the probability of leaving it out."),
            (min(1.0, 1 - math.sqrt(t / f)), "That is the paper's probability of leaving it out."),
        )
        same(answer(f, t), right, f"For f = {f:g}, t = {t:g}", wrong)


@exercise(
    "noise(counts)",
    "The probabilities of noise words, proportional to the counts (V,) to the power of 3/4: they sum to 1.",
    level="easy",
)
def noise(answer: Answer) -> None:
    """Check the power, and that the sum is 1."""
    counts = np.array([1.0, 16.0, 81.0])
    powers = counts**0.75
    wrong = (
        (powers, "Probabilities sum to 1: divide by the sum."),
        (counts / counts.sum(), "That is how often they occur: the power of 3/4 is missing."),
        ((counts / counts.sum()) ** 0.75, "Take the power first, and then divide by the sum of the powers."),
        (counts ** (4 / 3) / (counts ** (4 / 3)).sum(), "That is the power of 4/3, which makes the frequent more so."),
    )
    same(answer(counts.copy()), powers / powers.sum(), f"For counts = {format_numbers(counts)}", wrong)


@exercise(
    "negative_sampling(h, word, others)",
    "(loss, dh): -ln σ(word·h) - Σ ln σ(-other·h) over the rows of others (k, d), and its gradient in h (d,).",
    level="medium",
)
def negative_sampling(answer: Answer) -> None:
    """Check the signs of both terms."""
    h, word, others = np.array([1.0, -0.5]), np.array([0.5, 1.0]), np.array([[1.0, 1.0], [-2.0, 0.5], [0.0, 1.0]])

    def sigma(x: Array) -> Array:
        return np.asarray(1 / (1 + np.exp(-x)))

    right = float(-np.log(sigma(word @ h)) - np.log(sigma(-others @ h)).sum())
    when = "For h, word (2,) and others (3, 2), of"
    loss, dh = pair(answer(h.copy(), word, others), ("loss", "dh"), when.removesuffix(", of"))
    unturned = float(-np.log(sigma(word @ h)) - np.log(sigma(others @ h)).sum())
    wrong: list[tuple[object, str]] = [
        (-right, "That is to be maximized: the loss is its negative."),
        (unturned, "Noise is to be rejected: σ of *minus* the product."),
        (-np.log(sigma(word @ h)) - np.log(sigma(-others @ h)).mean(), "The sum over the noise words, not their mean."),
    ]
    same(loss, right, f"{when} loss", wrong)
    pull, push = (sigma(word @ h) - 1) * word, sigma(others @ h) @ others
    wrong = [
        (-(pull + push), "That is the direction in which the loss falls: the gradient is the one in which it grows."),
        (pull - push, "The noise words' part has the other sign: the loss grows as h turns towards them."),
        (pull, "The noise words have their part in it."),
        (sigma(word @ h) * word + push, "The first error is σ - 1: there the answer is to be 1."),
    ]
    same(dh, pull + push, f"{when} dh", wrong)


@exercise(
    "analogy(E, a, b, c)",
    "The number of the row of E (V, d) that is to c as b is to a; a, b and c are numbers of rows. With all rows "
    "brought to length 1, it is the row with the largest product with b - a + c, without a, b and c themselves.",
    level="medium",
)
def analogy(answer: Answer) -> None:
    """Check that vectors have unit length, and that the three words are left out."""
    E = np.array([[4.0, 0.1, 0.2], [4.0, 0.0, 0.8], [0.2, 3.0, 0.1], [0.1, 2.0, 0.7], [0.4, 9.0, 6.3], [3.0, 3.0, 3.0]])
    unit = E / np.linalg.norm(E, axis=1, keepdims=True)
    for a, b, c in ((0, 1, 2), (1, 0, 3)):
        wanted = unit[b] - unit[a] + unit[c]
        scores = unit @ wanted
        left = np.where(np.isin(np.arange(len(E)), (a, b, c)), -np.inf, scores)
        plain = np.where(np.isin(np.arange(len(E)), (a, b, c)), -np.inf, E @ (E[b] - E[a] + E[c]))
        turned = np.where(np.isin(np.arange(len(E)), (a, b, c)), -np.inf, unit @ (unit[a] - unit[b] + unit[c]))
        wrong = (
            (scores.argmax(), "That is one of the three words of the question: leave them out."),
            (plain.argmax(), "Long vectors win there: bring all to length 1 first."),
            (turned.argmax(), "The step is from a to b: b - a + c."),
        )
        same(answer(E.copy(), a, b, c), left.argmax(), f"For six words, a = {a}, b = {b}, c = {c}", wrong)


@exercise(
    "merge(symbols, pair)",
    "The list of symbols with each occurrence of the pair (first, second) joined to one, from left to right. A "
    "symbol that was joined is used up.",
    level="medium",
)
def merge(answer: Answer) -> None:
    """Check that all pairs are merged, and none twice."""
    for symbols, two, right in (
        ("lower", ("e", "r"), ["l", "o", "w", "er"]),
        ("banana", ("a", "n"), ["b", "an", "an", "a"]),
        ("aaa", ("a", "a"), ["aa", "a"]),
    ):
        given = answer(list(symbols), two)
        when = f"For {' '.join(symbols)} and the pair {two[0]}, {two[1]}"
        expect(given is not None, f"{when} it gives None: is there a `return`?")
        expect(isinstance(given, list | tuple), f"{when} it is to give a list of symbols.")
        once = right[:2] + list("ana") if symbols == "banana" else right
        words = "Join every occurrence, not the first alone." if list(given) == once != right else ""
        if list(given) == ["aa", "aa"]:
            words = "A symbol that was joined is used up: go on after it."
        shown = " ".join(map(str, given))
        expect(list(given) == right, f"{when} it gives {shown}, and {' '.join(right)} was to come. {words}".rstrip())
