"""BLEU from counts of sentences: sacrebleu's own figure, and its interval."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU

from cutaway.tasks.sequences import COUNTS, bleu, bleu_counts, bleu_metric, bleu_signature

SENTENCE = st.lists(st.sampled_from(["a", "man", "dog", "runs", "in", "The", "park,", "3.", "(fast)"]), max_size=9)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(SENTENCE, SENTENCE), min_size=1, max_size=6), st.booleans())
def test_it_is_the_figure_of_sacrebleu(pairs: list[tuple[list[str], list[str]]], lower: bool) -> None:
    said, right = ([" ".join(words) for words in side] for side in zip(*pairs))
    counts = bleu_counts(said, [[text] for text in right], lower)
    assert counts.shape == (len(pairs), COUNTS)
    whole = BLEU(lowercase=lower)
    assert bleu(counts) == pytest.approx(whole.corpus_score(said, [right]).score, abs=1e-9)
    assert bleu_signature(counts, lower) == str(whole.get_signature())


def test_several_right_answers() -> None:
    said = ["a dog runs in the park", "two men"]
    right = [["a dog walks in the park", "the dog runs in a park"], ["two men walk", "two men"]]
    counts = bleu_counts(said, right)
    whole = BLEU()
    assert bleu(counts) == pytest.approx(whole.corpus_score(said, list(map(list, zip(*right)))).score)
    assert bleu_signature(counts) == str(whole.get_signature())
    assert "nrefs:2" in bleu_signature(counts)
    assert "nrefs:var" in bleu_signature(bleu_counts(said, [right[0], right[1][:1]]))


def test_right_and_wrong_and_nothing() -> None:
    right = [["a man in the park"], ["two dogs run in the snow"]]
    assert bleu(bleu_counts([answers[0] for answers in right], right)) == pytest.approx(100)
    assert bleu(bleu_counts(["", ""], right)) == 0
    assert bleu(bleu_counts(["A MAN IN THE PARK", "TWO DOGS RUN IN THE SNOW"], right, lower=True)) == pytest.approx(100)


def test_the_interval_holds_the_figure_and_narrows() -> None:
    draw = random.Random(0)
    words = ["a", "the", "dog", "man", "woman", "runs", "in", "park", "snow", "red"]
    right = [draw.choices(words, k=8) for _ in range(400)]
    said = [[w if draw.random() < 0.8 else draw.choice(words) for w in text] for text in right]
    counts = bleu_counts([" ".join(t) for t in said], [[" ".join(t)] for t in right])
    found = {n: bleu_metric(counts[:n]) for n in (40, 400)}
    for n, metric in found.items():
        assert metric.low < metric.value < metric.high
        assert metric.value == pytest.approx(bleu(counts[:n]))
    few, many = found[40], found[400]
    assert many.high - many.low < 0.5 * (few.high - few.low)
    repeated = np.tile(counts[:1], (50, 1))
    same = bleu_metric(repeated)  # sentences that are all alike say as much as fifty right or wrong answers
    assert same.value == pytest.approx(bleu(counts[:1]))
    assert same.high - same.low < 30
