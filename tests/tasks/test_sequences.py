"""One sequence from another: the edit distance as a metric, losses by token, the nearest of several right answers."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutaway.core.spec import Tokens
from cutaway.data.dataset_base import IGNORED
from cutaway.tasks.rouge import NAMES, rouge_scores
from cutaway.tasks.sequences import EDITS, LENGTH, NLL, TOKENS, SequenceToSequence, bleu, bleu_counts, edit_distances

BEGIN, END = 2, 3
TASK = SequenceToSequence(Tokens(10, BEGIN, END, 6, "sounds"))
SEQUENCE = st.lists(st.integers(0, 3), max_size=7)


def slowly(a: Sequence[int], b: Sequence[int]) -> int:
    """The edit distance by its definition."""

    @functools.cache
    def of(i: int, j: int) -> int:
        if i == 0 or j == 0:
            return i + j
        return min(of(i - 1, j) + 1, of(i, j - 1) + 1, of(i - 1, j - 1) + (a[i - 1] != b[j - 1]))

    return of(len(a), len(b))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(SEQUENCE, SEQUENCE), min_size=1, max_size=6))
def test_edit_distances_are_those_of_the_definition(pairs: list[tuple[list[int], list[int]]]) -> None:
    first, second = zip(*pairs)
    assert edit_distances(first, second).tolist() == [slowly(a, b) for a, b in pairs]


@settings(max_examples=40, deadline=None)
@given(SEQUENCE, SEQUENCE, SEQUENCE)
def test_it_is_a_metric(a: list[int], b: list[int], c: list[int]) -> None:
    ab, ba, bc, ac, aa = edit_distances([a, b, b, a, a], [b, a, c, c, a])
    assert (ab, aa) == (ba, 0)
    assert ac <= ab + bc
    assert (ab == 0) == (a == b)
    assert abs(len(a) - len(b)) <= ab <= max(len(a), len(b))


def test_known_distances() -> None:
    words = [("kitten", "sitting", 3), ("", "abc", 3), ("flaw", "lawn", 2), ("same", "same", 0)]
    codes = [[[ord(sign) for sign in word] for word in side] for side in list(zip(*words))[:2]]
    assert edit_distances(*codes).tolist() == [distance for _, _, distance in words]
    assert edit_distances([], []).shape == (0,)


def batch() -> tuple[Tensor, Tensor]:
    """Three examples with targets of 3, 2 and 4 tokens, the end among them."""
    target = torch.tensor([[4, 5, END, IGNORED], [6, END, IGNORED, IGNORED], [4, 4, 1, END]])
    outputs = torch.randn(3, 4, 10, generator=torch.Generator().manual_seed(0))
    return outputs, target


def test_the_loss_is_of_real_tokens() -> None:
    outputs, target = batch()
    by_hand = [
        -outputs[n, s].log_softmax(0)[target[n, s]] for n in range(3) for s in range(4) if target[n, s] != IGNORED
    ]
    torch.testing.assert_close(TASK.loss(outputs, target), torch.stack(by_hand).sum())
    assert TASK.loss_denominator(target) == len(by_hand) == 9
    smooth = SequenceToSequence(TASK.target, label_smoothing=0.1).loss(outputs, target)
    every = -outputs.log_softmax(2)[target != IGNORED].mean(1).sum()
    torch.testing.assert_close(smooth, 0.9 * torch.stack(by_hand).sum() + 0.1 * every)


def test_what_is_kept_says_loss_and_perplexity() -> None:
    outputs, target = batch()
    kept = TASK.summarize_outputs(outputs, target)
    assert kept.shape == (3, 2)
    mean = TASK.loss(outputs, target).item() / 9
    assert TASK.fast_metrics(kept, target) == pytest.approx({"loss": mean, "perplexity": math.exp(mean)})
    found = TASK.metrics(kept, target)
    assert set(found) == {"loss"}
    assert found["loss"].value == pytest.approx(mean)
    assert found["loss"].note == "no interval: fewer than 10 examples"


def test_errors_are_counted_against_the_right_answers() -> None:
    outputs, target = batch()
    decoded = torch.tensor([[4, 5, -1], [7, 6, 8], [4, 4, 1]])
    kept = TASK.summarize_outputs(outputs, target, decoded)
    # The last one said "unknown" where the right answer holds a token that training did not know: that is no match.
    assert kept[:, EDITS].tolist() == [0, 2, 1]
    assert kept[:, LENGTH].tolist() == [2, 1, 3]
    found = TASK.metrics(kept, target)
    assert found["token_error"].value == pytest.approx(3 / 6)
    assert found["sequence_error"].value == pytest.approx(2 / 3)
    assert found["sequence_error"].low <= found["sequence_error"].value <= found["sequence_error"].high
    assert found["token_error"].note == "no interval: fewer than 10 examples"


def test_ids_are_kept_whole_in_half_precision() -> None:
    outputs, target = batch()
    kept = TASK.summarize_outputs(outputs.bfloat16(), target, torch.tensor([[8_195], [8_197], [9_001]]))
    assert TASK.predictions(kept) == [{"sounds": "8195"}, {"sounds": "8197"}, {"sounds": "9001"}]


def test_the_nearest_right_answer_counts() -> None:
    outputs, target = batch()
    decoded = torch.tensor([[4, 6, -1], [6, -1, -1], [-1, -1, -1]])
    right = [[[4, 5], [4, 6]], [[6]], [[4, 4, 5], [7]]]
    kept = TASK.summarize_outputs(outputs, target, decoded, right)
    assert kept[:, EDITS].tolist() == [0, 0, 1]
    assert kept[:, LENGTH].tolist() == [2, 1, 1]


def test_words_and_mistakes() -> None:
    outputs, target = batch()
    task = SequenceToSequence(TASK.target, words=lambda ids: "-".join("abcdefghij"[i] for i in ids))
    kept = task.summarize_outputs(outputs, target, torch.tensor([[4, 5], [7, -1], [-1, -1]]))
    wider = F.pad(kept, (0, 2), value=math.nan)  # as it is when batches are put together
    for rows in (kept, wider):
        assert task.predictions(rows) == [{"sounds": "e-f"}, {"sounds": "h"}, {"sounds": ""}]
        for real in (target, target[target != IGNORED]):  # by example, or token after token
            found = task.example_results(rows, real)
            assert [r["actual"] for r in found] == ["e-f", "g", "e-e-b"]
            assert [r["predicted"] for r in found] == ["e-f", "h", ""]
            assert [r["wrong"] for r in found] == [False, True, True]
            assert set(found[0]) == {"actual", "predicted", "confidence", "loss", "wrong"}
            np.testing.assert_allclose([r["loss"] for r in found], (kept[:, NLL] / kept[:, TOKENS]).numpy(), rtol=1e-6)
    assert TASK.predictions(kept)[0] == {"sounds": "4 5"}


def test_the_baseline_knows_frequencies_and_nothing_is_impossible() -> None:
    train = torch.tensor([4, 4, 4, END, 5, END])
    counts = {4: 4, END: 3, 5: 2, 9: 1}
    for said, target in (([4, END], torch.tensor([[4, END, IGNORED]])), ([9, 5], torch.tensor([9, 5]))):
        expected = -sum(math.log(counts[i] / 16) for i in said) / 2
        assert TASK.baseline(train, target)["value"] == pytest.approx(expected)


def test_the_contract_of_tasks() -> None:
    assert (TASK.name, TASK.default_monitor, TASK.decodes) == ("sequence-to-sequence", "loss", True)
    assert TASK.details(TASK.summarize_outputs(*batch()), batch()[1]) == {}


def test_of_new_examples_what_was_decoded_is_kept() -> None:
    decoded = torch.tensor([[4, 5, -1], [-1, -1, -1]])
    kept = TASK.summarize_outputs(torch.zeros(2, 1, 10), torch.empty(2, 0), decoded, [[], []])
    assert TASK.predictions(kept) == [{"sounds": "4 5"}, {"sounds": ""}]


SENTENCES = SequenceToSequence(
    Tokens(10, BEGIN, END, 6, "English", sentences=True, lower=True),
    words=lambda ids: " ".join(["?", "?", "?", "?", "a", "dog", "runs", "in", "the", "snow"][i] for i in ids),
)


def test_sentences_are_held_to_what_was_written() -> None:
    outputs, target = batch()
    decoded = torch.tensor([[4, 5, 6, 7, 8, 9], [4, 5, 6, -1, -1, -1], [-1, -1, -1, -1, -1, -1]])
    texts = [["A dog runs in the snow"], ["A dog sleeps", "The dog runs"], ["A dog"]]
    kept = SENTENCES.summarize_outputs(outputs, target, decoded, texts=texts)
    found = SENTENCES.metrics(kept, target)
    assert list(found) == ["loss", "bleu", "rouge_1", "rouge_2", "rouge_l", "token_error", "sequence_error"]
    said = ["a dog runs in the snow", "a dog runs", ""]
    assert found["bleu"].value == pytest.approx(bleu(bleu_counts(said, texts, lower=True)))
    scores = rouge_scores(said, texts)
    assert [found[name].value for name in NAMES] == pytest.approx(scores.mean(0).tolist())
    assert scores[:2].tolist() == [[1, 1, 1], [2 * 2 / 6, 2 * 1 / 4, 2 * 2 / 6]]
    assert found["bleu"].note == "no interval: fewer than 10 sentences"
    (signature,) = SENTENCES.details(kept, target)["signatures"].values()
    assert signature.startswith("nrefs:var|case:lc|eff:no|tok:13a|smooth:exp|version:")
    wider = F.pad(kept, (0, 3), value=math.nan)
    assert SENTENCES.metrics(wider, target)["bleu"] == found["bleu"]
    assert [row["English"] for row in SENTENCES.predictions(wider)] == said
    assert "bleu" not in SENTENCES.metrics(SENTENCES.summarize_outputs(outputs, target, decoded), target)
    assert "bleu" not in SENTENCES.metrics(SENTENCES.summarize_outputs(outputs, target), target)


def test_the_unknown_token_is_no_answer_whatever_its_id() -> None:
    outputs, target = batch()
    decoded = torch.tensor([[4, 5, -1], [6, -1, -1], [4, 4, 1]])
    for unknown, edits in ((1, [0, 0, 1]), (6, [0, 1, 0]), (None, [0, 0, 0])):
        task = SequenceToSequence(Tokens(10, BEGIN, END, 6, unknown=unknown))
        assert task.summarize_outputs(outputs, target, decoded)[:, EDITS].tolist() == edits
