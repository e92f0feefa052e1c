"""Exercises of chapter 10: encoder and decoder, attention, beam search, and n-gram precision."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from .exercises import Answer, Array, Exercises, expect, format_numbers, same, softmax

EXERCISES = exercise = Exercises()

H = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 1.0]])  # three states of an encoder


@exercise(
    "last_states(h, lengths)",
    "The state of each sequence of a padded batch after its own last word, (N, d). h (N, T, d) has the states at "
    "all positions, lengths (N,) the number of words of each sequence.",
    level="easy",
)
def last_states(answer: Answer) -> None:
    """Check that padding of the batch is ignored."""
    h = np.arange(24.0).reshape(3, 4, 2)
    lengths = [2, 4, 1]
    right = h[np.arange(3), np.array(lengths) - 1]
    after = h[np.arange(3), np.minimum(lengths, 3)]
    wrong = (
        (h[:, -1], "That is the state after the padding: each sequence has its own last word."),
        (after, "That is one place too far: places are counted from 0."),
        (h[:, 0], "Those are the states after the first words."),
    )
    same(answer(h.copy(), list(lengths)), right, f"For h (3, 4, 2) and lengths {tuple(lengths)}", wrong)


@exercise(
    "teacher_forced(y, begin)",
    "The decoder inputs at each position, (N, S), for targets y (N, S): the previous word, and `begin` first. The "
    "last word of y is left out.",
    level="easy",
)
def teacher_forced(answer: Answer) -> None:
    """Check that the input is shifted by one, at the same length."""
    y = np.array([[5, 6, 7, 2], [8, 9, 2, 0]])
    right = np.column_stack([np.ones(2), y[:, :-1]])
    wrong = (
        (y, "That tells the network the word that it is to say: it would learn to copy."),
        (np.column_stack([np.ones(2), y]), "It is one longer than y: the last word of y is not an input."),
        (np.column_stack([y[:, 1:], np.zeros(2)]), "That is moved the other way: it tells the word after."),
        (np.roll(y, 1, axis=1), "The first place is to be given `begin`, not the last word."),
    )
    same(answer(y.copy(), 1), right, f"For y = {format_numbers(y)} and begin = 1", wrong)


@exercise(
    "additive_scores(W, U, v, s, H)",
    "Bahdanau's scores e_j = v·tanh(W s + U h_j), (T,), of a decoder's state s (d,) and the states h_j, rows of H "
    "(T, d'); W is (a, d), U (a, d'), v (a,).",
    level="easy",
)
def additive_scores(answer: Answer) -> None:
    """Check that the sum is inside tanh, and the product outside."""
    W, U = np.array([[1.0, 0.0, -1.0], [0.5, 1.0, 0.0]]), np.array([[0.2, -0.4], [1.0, 0.3]])
    v, s = np.array([2.0, -1.0]), np.array([0.5, -0.5, 1.0])
    compared = W @ s + H @ U.T
    right = np.tanh(compared) @ v
    wrong = (
        (
            compared @ v,
            "Without tanh the score is a sum of a part of s and a part of h: s would not change the attention.",
        ),
        (np.tanh(compared @ v), "tanh stands inside, on each of the a numbers; v weighs them afterwards."),
        ((np.tanh(W @ s) + np.tanh(H @ U.T)) @ v, "One tanh of the sum, not a sum of two."),
        (softmax(right), "Those are the weights: the scores come before the softmax."),
    )
    same(answer(W, U, v, s, H.copy()), right, "For W (2, 3), U (2, 2), v (2,), s (3,) and H (3, 2)", wrong)


@exercise(
    "context(scores, H, real)",
    "c = Σ_j α_j h_j, (d,), of scores (T,) and states h_j, rows of H (T, d); α is the softmax over the places "
    "where `real` (T,) is True, and 0 elsewhere. Scores near 1000 give finite results.",
    level="medium",
)
def context(answer: Answer) -> None:
    """Check that padding has no weight, that weights sum to 1, and large scores."""
    scores, real = np.array([0.0, math.log(3.0), 2.0]), np.array([True, True, False])
    right = np.array([0.25, 1.5])
    whole = softmax(scores)
    wrong = (
        (whole @ H, "Padding has a part in it: its weight is to be 0."),
        ((whole * real) @ H, "The weights of the real places do not sum to 1 any more: mask before the softmax."),
        (softmax(scores * real) @ H, "A score of 0 is not a weight of 0: e^0 = 1. It is −∞ that has the weight 0."),
        ((scores * real) @ H, "Those are scores, not weights: take the softmax first."),
        (H[1], "That takes the best place alone: the context is a mean of all, by their weights."),
    )
    same(answer(scores, H.copy(), real), right, "For scores (0, ln 3, 2), of which the last is padding,", wrong)
    same(answer(scores, H.copy(), real | True), whole @ H, "For the same scores, all real,")
    large = np.array([1000.0, 1000.0 + math.log(3.0), 5.0])
    with np.errstate(all="ignore"):
        found = answer(large, H.copy(), real)
    finite = found is None or bool(np.isfinite(np.asarray(found, dtype=float)).all())
    expect(finite, "For scores near 1000 it gives no numbers: take the largest real score off before e^.")
    same(found, right, "For scores (1000, 1000 + ln 3, 5), of which the last is padding,")


# After 0, the likeliest word has many equal successors, and the third likeliest has a certain one.
TABLE = np.array(
    [
        [0.0, 0.45, 0.35, 0.2, 0.0, 0.0],
        [0.0, 0.3, 0.25, 0.25, 0.1, 0.1],
        [0.0, 0.0, 0.0, 0.0, 0.5, 0.5],
        [0.0, 0.0, 0.0, 1.0, 0.0, 0.0],
        [0.2, 0.2, 0.2, 0.2, 0.1, 0.1],
        [0.2, 0.2, 0.2, 0.2, 0.1, 0.1],
    ]
)


@exercise(
    "beam(P, first, steps, width)",
    "The list of `steps` words that beam search with this width finds after the word `first`, which is not in the "
    "list. Words are numbers: P[i, j] is the probability of word j after word i. At each step the `width` most "
    "probable prefixes are kept. The answer is the most probable one at the end.",
    level="medium",
)
def beam(answer: Answer) -> None:
    """Check that one beam is greedy, that two beams are worse here, and that three are best."""
    greedy = _beam(TABLE, 0, 2, 1)
    for width, steps in ((1, 2), (3, 2), (3, 3), (1, 3)):
        right = _beam(TABLE, 0, steps, width)
        when = f"For the table of 6 words, first = 0, steps = {steps}, width = {width}"
        best = _beam(TABLE, 0, steps, 6**steps)
        wrong = [
            ([0, *right], "The first word was given: it is not part of the answer."),
            (best, "That is the likeliest answer of all: a beam of this width does not find it."),
        ]
        if width > 1:
            wrong.append((greedy if steps == 2 else _beam(TABLE, 0, steps, 1), "That is greedy: a beam keeps several."))
        same(answer(TABLE.copy(), 0, steps, width), right, when, wrong)


def _beam(table: Array, first: int, steps: int, width: int) -> list[int]:
    kept = [([first], 1.0)]
    for _ in range(steps):
        grown = [([*words, j], p * table[words[-1], j]) for words, p in kept for j in range(len(table))]
        kept = sorted(grown, key=lambda one: -one[1])[:width]
    return kept[0][0][1:]


@exercise(
    "best(answers, alpha)",
    "The index, from 0, of the answer with the largest score log p / ((5 + n)/6)^alpha. Each answer is (log p, n), "
    "where n is its number of words.",
    level="easy",
)
def best(answer: Answer) -> None:
    """Check no length penalty, a small one and a large one."""
    answers = [(-2.4, 3), (-3.0, 8), (-4.2, 20), (-2.2, 1)]
    for alpha in (0.0, 0.4, 0.5, 1.0):
        scores = [log_p / ((5 + n) / 6) ** alpha for log_p, n in answers]
        right = int(np.argmax(scores))
        times = int(np.argmax([log_p * ((5 + n) / 6) ** alpha for log_p, n in answers]))
        mean = int(np.argmax([log_p / n**alpha for log_p, n in answers]))
        other = int(np.argmax([log_p * (5 + n / 6) ** -alpha for log_p, n in answers]))
        wrong = (
            (max(scores), "That is the score: its place among the answers is asked for."),
            (int(np.argmin(scores)), "That is the worst: log p is below 0, and the best is nearest to it."),
            (times, "log p is divided by the penalty."),
            (other, "All of 5 + n is divided by 6."),
            (mean, "That divides by n^alpha: here it is ((5 + n)/6)^alpha."),
        )
        same(answer(list(answers), alpha), right, f"For answers {answers} and alpha = {alpha:g}", wrong)


@exercise(
    "ngram_precision(said, right, n)",
    "BLEU's p_n of a predicted sentence `said` and its reference `right`, lists of words: the fraction of the "
    "predicted n-grams that are in the reference, each counted at most as often as it is there.",
    level="medium",
)
def ngram_precision(answer: Answer) -> None:
    """Check that counts are clipped, and divided by the n-grams of the output."""
    pairs = (
        ("the the the the the the the", "the cat is on the mat", 1),
        ("the cat sat on the mat", "the cat is on the mat", 2),
        ("the cat is on the mat today", "on the mat is the cat", 2),
        ("the cat", "the cat is on the mat", 1),
    )
    for ours, theirs, n in pairs:
        a, b = (_grams(words.split(), n) for words in (ours, theirs))
        found = (a & b).total()
        loose = sum(count for gram, count in a.items() if gram in b)
        wrong = (
            (
                loose / a.total(),
                "A word that is repeated seven times is not correct seven times: clip its count to that of the "
                "reference.",
            ),
            (found / b.total(), "That is a fraction of the reference: precision is the fraction of the output."),
            (len(a & b) / len(a), "That counts each n-gram once, however often it is said."),
            (found, "That is how many are right: give the fraction."),
        )
        when = f"For “{ours}” beside “{theirs}”, n = {n}"
        same(answer(ours.split(), theirs.split(), n), found / a.total(), when, wrong)


def _grams(words: list[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
