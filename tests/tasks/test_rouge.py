"""ROUGE: the figures of the library rouge-score, 0.1.2 without stemming, and subsequences by trying all of them."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.tasks.rouge import common_subsequence, rouge_metric, rouge_scores

# A summary, its reference, and the F-measures of RougeScorer(["rouge1", "rouge2", "rougeL"]).
LIBRARY = [
    (
        "Return the mean of the array.",
        "Return the arithmetic mean of an array.",
        (0.769230769231, 0.363636363636, 0.769230769231),
    ),
    (
        "a dog runs in the park, and a dog barks",
        "The dog barks: a dog ran in a park",
        (0.842105263158, 0.235294117647, 0.421052631579),
    ),
    ("Compute x_1 and x_2 (2 values).", "Compute 2 values, x_1 and x_2.", (1.0, 0.714285714286, 0.75)),
    ("", "nothing", (0, 0, 0)),
    ("Größe und Maß", "große maß", (0.571428571429, 0, 0.571428571429)),
    ("b a c a b", "a b c b a", (1.0, 0.5, 0.6)),
    ("one", "one", (1.0, 0, 1.0)),
    ("12.5 % of 3.0", "12.5% of 3", (0.888888888889, 0.857142857143, 0.888888888889)),
]
LETTERS = st.lists(st.sampled_from("abc"), max_size=6)


@pytest.mark.parametrize(("predicted", "reference", "expected"), LIBRARY, ids=[row[0] or "empty" for row in LIBRARY])
def test_scores_are_those_of_the_library(predicted: str, reference: str, expected: tuple[float, ...]) -> None:
    assert rouge_scores([predicted], [[reference]])[0] == pytest.approx(expected, abs=1e-11)


def test_the_best_of_several_references_counts_for_each_score() -> None:
    found = rouge_scores(["a dog runs in the park"], [["the dog runs in a park", "a dog walks in the park"]])
    assert found[0] == pytest.approx([1.0, 0.6, 0.833333333333], abs=1e-11)  # score_multi of the library


def test_summaries_are_rows() -> None:
    found = rouge_scores(["a b", "c", "d"], [["a b"], ["x"], ["d e f"]])
    assert np.array_equal(found, [[1, 1, 1], [0, 0, 0], [0.5, 0, 0.5]])
    assert rouge_scores([], []).shape == (0, 3)


def test_the_interval_holds_the_mean_and_narrows() -> None:
    scores = np.random.default_rng(0).beta(1, 3, 400)
    few, many = rouge_metric(scores[:40]), rouge_metric(scores)
    for found, n in ((few, 40), (many, 400)):
        assert found.value == pytest.approx(scores[:n].mean())
        assert found.low < found.value < found.high
    assert many.high - many.low < 0.5 * (few.high - few.low)
    normal = 1.96 * scores.std() / 20
    assert [many.low, many.high] == pytest.approx([many.value - normal, many.value + normal], abs=0.01)
    assert "fewer than 10" in rouge_metric(scores[:9]).note
    assert rouge_metric(np.zeros(50)).value == 0


@settings(max_examples=100, deadline=None)
@given(LETTERS, LETTERS)
def test_the_common_subsequence_is_the_longest_of_all(first: list[str], second: list[str]) -> None:
    def subsequences(words: list[str]) -> set[tuple[str, ...]]:
        return {part for n in range(len(words) + 1) for part in combinations(words, n)}

    assert common_subsequence(first, second) == max(map(len, subsequences(first) & subsequences(second)))
