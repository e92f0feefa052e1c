"""The loss of word vectors, and what vectors are worth: correlations by hand and by scipy, analogies by hand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cutaway.core.errors import DataError
from cutaway.core.spec import Context
from cutaway.tasks.word_vectors import WordVectors, _spearman, analogies, word_similarity

TASK = WordVectors(Context(9))


@dataclass
class Some:
    """Vectors as they come."""

    words: list[str]
    matrix: NDArray[np.float32]


def test_loss_is_summed_and_counted_by_word() -> None:
    outputs, target = torch.tensor([[-1.0, -2.0, 0.0], [-4.0, 0.0, 0.0]]), torch.tensor([[2, 1, 0], [5, 0, 0]])
    assert TASK.loss(outputs, target).item() == 7
    assert TASK.loss_denominator(target) == 3
    assert TASK.loss_is_sum
    kept = TASK.summarize_outputs(outputs, target)
    assert kept.tolist() == [[[3.0, 2.0]], [[4.0, 1.0]]]
    assert TASK.fast_metrics(kept, target) == {"loss": pytest.approx(7 / 3)}
    metric = TASK.metrics(kept, target)["loss"]
    assert metric.value == pytest.approx(7 / 3)
    assert metric.note == "no interval: fewer than 10 stretches"
    assert [row["loss"] for row in TASK.predictions(kept)] == [1.5, 4.0]
    assert TASK.predictions(torch.zeros(1, 1, 2)) == [{"loss": None}]
    assert [row["wrong"] for row in TASK.example_results(torch.tensor([[[0.0, 0.0]], [[3.0, 2.0]]]), target)] == [
        False,
        True,
    ]
    assert TASK.details(kept, target) == {} == TASK.baseline(target, target)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=30))
def test_the_correlation_is_scipys(pairs: list[tuple[int, int]]) -> None:
    stats = pytest.importorskip("scipy.stats")
    x, y = np.array(pairs, dtype=float).T
    ours = _spearman(x, y)
    if len(set(x)) == 1 or len(set(y)) == 1:
        assert np.isnan(ours)
    else:
        assert ours == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)


def test_similarity_of_words(tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_text("# a comment\nTiger\tcat\t7.5\ncat\tcar\t2\n\ncar\ttiger\t1.5\ncat\tunknown\t9\n", encoding="utf-8")
    vectors = Some(["cat", "tiger", "car"], np.array([[1, 0], [0.9, 0.1], [0, 3]], np.float32))
    found = word_similarity(vectors, file)
    # The cosines of the three known pairs are about 0.99, 0 and 0.11; the figures 7.5, 2 and 1.5.
    assert (found.covered, found.total) == (3, 4)
    assert found.spearman.value == pytest.approx(0.5)
    assert found.spearman.note == "no interval: fewer than 10 pairs"


def test_analogies_of_words(tmp_path: Path) -> None:
    file = tmp_path / "questions.txt"
    file.write_text(
        ": people\nman king woman queen\nwoman queen man king\nman king woman apple\n: none\nman king woman nobody\n",
        encoding="utf-8",
    )
    words = ["man", "woman", "king", "queen", "apple"]
    matrix = np.array([[1, 0, 0], [0, 1, 0], [1, 0, 1], [0, 1, 1], [-1, -1, 0]], np.float32)
    found = analogies(Some(words, matrix), file)
    assert (found.covered, found.total) == (3, 4)
    assert found.accuracy.value == pytest.approx(2 / 3)
    assert set(found.sections) == {"people"}
    assert analogies(Some(words, matrix), file, commonest=4).covered == 2
    assert np.isnan(analogies(Some(["x"], matrix[:1]), file).accuracy.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cat car\n", r"line 1: 'cat car' is not two words and a number"),
        ("cat car 1\ncat car much\n", r"line 2: 'cat car much'"),
        ("dog cow 1\n", "Only 0 of the 1 pairs of .* are in the vocabulary"),
    ],
)
def test_lists_of_pairs_that_are_none_are_rejected(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=said):
        word_similarity(Some(["cat", "car"], np.eye(2, dtype=np.float32)), file)


def test_questions_that_are_none_are_rejected(tmp_path: Path) -> None:
    file = tmp_path / "questions.txt"
    file.write_text(": one\na b c\n", encoding="utf-8")
    vectors = Some(["cat", "car"], np.eye(2, dtype=np.float32))
    with pytest.raises(DataError, match="line 2: 'a b c' is not four words"):
        analogies(vectors, file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="is not UTF-8 text"):
        analogies(vectors, file)
    with pytest.raises(DataError, match="There is no file"):
        word_similarity(vectors, tmp_path / "none.txt")
