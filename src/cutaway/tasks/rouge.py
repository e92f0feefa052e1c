"""ROUGE: overlap of a summary with its reference, in words, in pairs of words, and in order.

C.-Y. Lin, ROUGE: a package for automatic evaluation of summaries, ACL 2004 workshop <https://aclanthology.org/W04-1013>,
equation 1 and section 3.1:

    P = overlap / n-grams of the summary,   R = overlap / n-grams of the reference,   F₁ = 2 P R / (P + R)

The overlap of ROUGE-1 and ROUGE-2 is the number of words and pairs of words in both; repeated ones count as often as
they are in both. That of ROUGE-L is the length of the longest common subsequence of words. Scores are F₁, 0 to 1,
averaged over summaries. With several references the largest score of each counts.

Words are found as in the library rouge-score without stemming: lower case, and runs of letters a–z and digits. Text in
other alphabets has no words, and scores 0.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..statistics.intervals import Metric, fraction, jackknife

NAMES = ("rouge_1", "rouge_2", "rouge_l")  # the columns of the scores
WORD = re.compile(r"[a-z0-9]+")


def rouge_scores(predicted: Sequence[str], references: Sequence[Sequence[str]]) -> NDArray[np.float64]:
    """Compute ROUGE-1, ROUGE-2 and ROUGE-L of summaries.

    Args:
        predicted: The summaries, n texts.
        references: One or more correct summaries of each.

    Returns:
        F₁ of each summary with the reference that gives the most, shape (n, 3), from 0 to 1.
    """
    rows = [
        np.max([_scores(WORD.findall(text.lower()), WORD.findall(right.lower())) for right in answers], axis=0)
        for text, answers in zip(predicted, references, strict=True)
    ]
    return np.array(rows, np.float64).reshape(-1, len(NAMES))


def rouge_metric(scores: NDArray[np.float64]) -> Metric:
    """Return the mean of one of the scores (n,) of summaries, with a jackknife interval over them."""
    rows = np.stack([scores, np.ones_like(scores)], axis=1)
    return jackknife(rows, lambda sums: sums[:, 0] / sums[:, 1], fraction, "sentence")


def _scores(predicted: list[str], reference: list[str]) -> list[float]:
    """Return the three scores of a summary with one reference."""
    found = []
    for n in (1, 2):
        ours, theirs = _ngrams(predicted, n), _ngrams(reference, n)
        found.append(_f1((ours & theirs).total(), ours.total(), theirs.total()))
    return [*found, _f1(common_subsequence(predicted, reference), len(predicted), len(reference))]


def _ngrams(words: list[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(words[i:] for i in range(n))))


def _f1(overlap: int, predicted: int, reference: int) -> float:
    """Return 2 P R / (P + R), which is 2 · overlap / (predicted + reference); 0 without overlap."""
    return 2 * overlap / (predicted + reference) if overlap else 0.0


def common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the length of the longest common subsequence of two sequences."""
    row = [0] * (len(second) + 1)  # of the words of `first` so far, and the first j of `second`
    for word in first:
        diagonal = 0
        for j, other in enumerate(second):
            above = row[j + 1]
            row[j + 1] = diagonal + 1 if word == other else max(above, row[j])
            diagonal = above
    return row[-1]
