"""Tagging: losses as PyTorch has them, tags as scikit-learn counts them, spans as CoNLL counts them."""

from __future__ import annotations

import pytest
import sklearn.metrics as sk
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.core.spec import Tags
from cutaway.data.dataset_base import IGNORED
from cutaway.statistics.intervals import proportion
from cutaway.tasks.tagging import Tagging, has_span_tags, spans

NAMES = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
TASK = Tagging(Tags(NAMES, "entity"))


@pytest.fixture
def outputs() -> torch.Tensor:
    return torch.randn(30, 7, 5, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def target() -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    classes = torch.randint(0, 5, (30, 7), generator=generator)
    lengths = torch.randint(1, 8, (30,), generator=generator)
    return classes.masked_fill(torch.arange(7) >= lengths[:, None], IGNORED)


def test_the_loss_is_the_sum_over_real_tokens(outputs: torch.Tensor, target: torch.Tensor) -> None:
    real = target != IGNORED
    assert TASK.loss_denominator(target) == real.sum()
    assert TASK.loss(outputs, target).item() == pytest.approx(
        F.cross_entropy(outputs[real], target[real], reduction="sum").item(), rel=1e-5
    )
    smooth = Tagging(Tags(NAMES), label_smoothing=0.1)
    assert smooth.loss(outputs, target).item() == pytest.approx(
        F.cross_entropy(outputs[real], target[real], reduction="sum", label_smoothing=0.1).item(), rel=1e-5
    )


def test_more_padding_changes_nothing(outputs: torch.Tensor, target: torch.Tensor) -> None:
    wider = F.pad(outputs, (0, 0, 0, 3), value=7.0), F.pad(target, (0, 3), value=IGNORED)
    assert TASK.loss(*wider).item() == pytest.approx(TASK.loss(outputs, target).item(), rel=1e-6)
    kept, wide = TASK.summarize_outputs(outputs, target), TASK.summarize_outputs(*wider)
    assert wide[:, 7:].isnan().all()
    assert TASK.metrics(kept, target) == TASK.metrics(wide, wider[1])
    assert TASK.predictions(kept) == TASK.predictions(wide)
    assert TASK.example_results(kept, target) == TASK.example_results(wide, wider[1])


def test_what_is_kept(outputs: torch.Tensor, target: torch.Tensor) -> None:
    kept, real = TASK.summarize_outputs(outputs, target), target != IGNORED
    assert kept.shape == (30, 7, 3)
    assert kept.dtype == torch.float32
    assert kept[~real].isnan().all()
    assert (kept[..., 0][real] == outputs.argmax(2)[real]).all()
    torch.testing.assert_close(kept[..., 1][real], F.cross_entropy(outputs[real], target[real], reduction="none"))
    torch.testing.assert_close(kept[..., 2][real], outputs[real].softmax(1).amax(1))
    without = TASK.summarize_outputs(outputs, torch.empty(30, 0))
    assert (without[..., 0] == outputs.argmax(2)).all()
    assert without[..., 1].isnan().all()


def test_metrics_are_scikit_learns(outputs: torch.Tensor, target: torch.Tensor) -> None:
    kept, real = TASK.summarize_outputs(outputs, target), target != IGNORED
    was, said = target[real].numpy(), outputs.argmax(2)[real].numpy()
    metrics, quick = TASK.metrics(kept, target), TASK.fast_metrics(kept, target)
    assert metrics["accuracy"].value == quick["accuracy"] == sk.accuracy_score(was, said)
    assert metrics["macro_f1"].value == pytest.approx(sk.f1_score(was, said, average="macro"))
    assert metrics["loss"].value == pytest.approx(sk.log_loss(was, outputs[real].softmax(1).numpy()), rel=1e-5)
    assert quick["loss"] == pytest.approx(metrics["loss"].value)
    assert quick["span_f1"] == metrics["span_f1"].value
    for metric in metrics.values():
        assert metric.low <= metric.value <= metric.high
    assert TASK.details(kept, target)["classes"]["confusion"] == sk.confusion_matrix(was, said).tolist()


def test_tokens_of_a_sentence_are_drawn_together() -> None:
    """Sentences that are right or wrong as a whole say no more of the accuracy than as many single answers."""
    wrong = torch.arange(40)[:, None] < 10
    target = torch.zeros(40, 8, dtype=torch.long)
    kept = torch.stack([wrong.long().expand(40, 8).float(), torch.ones(40, 8), torch.ones(40, 8)], 2)
    found = TASK.metrics(kept, target)["accuracy"]
    alone = proportion(30, 40)
    assert found.value == 0.75
    assert (found.low, found.high) == pytest.approx((alone.low, alone.high), abs=0.01)


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        ("O B-X I-X O B-X", [(1, 2, "X"), (4, 4, "X")]),
        ("I-X I-X O I-Y", [(0, 1, "X"), (3, 3, "Y")]),  # I- begins one where nothing of its type stands before
        ("B-X B-X I-Y I-Y", [(0, 0, "X"), (1, 1, "X"), (2, 3, "Y")]),
        ("B-X I-X E-X S-X I-X", [(0, 2, "X"), (3, 3, "X"), (4, 4, "X")]),
        ("O O", []),
        ("", []),
        ("B-a-b I-a-b", [(0, 1, "a-b")]),
    ],
)
def test_spans(tags: str, found: list[tuple[int, int, str]]) -> None:
    assert spans(tags.split()) == found


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["O", "B-X", "I-X", "B-Y", "I-Y"]), max_size=12))
def test_spans_are_runs_of_one_type_without_a_beginning_inside(tags: list[str]) -> None:
    found = spans(tags)
    inside = [i for begin, end, _ in found for i in range(begin, end + 1)]
    assert inside == [i for i, tag in enumerate(tags) if tag != "O"]
    for begin, end, kind in found:
        assert {tag[2:] for tag in tags[begin : end + 1]} == {kind}
        assert not any(tag[0] == "B" for tag in tags[begin + 1 : end + 1])
    assert sum(tag[0] == "B" for tag in tags) <= len(found)


def test_which_tags_mark_spans() -> None:
    assert has_span_tags(NAMES)
    assert has_span_tags(("I-X", "O", "E-X"))
    assert not has_span_tags(("NOUN", "VERB"))
    assert not has_span_tags(("B-X", "NOUN"))
    assert not has_span_tags(("O",))


def test_span_f1_by_hand() -> None:
    target = torch.tensor([[1, 2, 0, 3], [0, 1, IGNORED, IGNORED]])  # PER 0–1, LOC 3; PER 1
    said = torch.tensor([[1, 2, 3, 3], [0, 3, 1, 1]])  # PER 0–1, LOC 2, LOC 3; LOC 1: 2 of 4 said, of 3 there
    kept = TASK.summarize_outputs(10 * F.one_hot(said, 5).float(), target)
    metrics = TASK.metrics(kept, target)
    assert metrics["span_precision"].value == 2 / 4
    assert metrics["span_recall"].value == 2 / 3
    assert metrics["span_f1"].value == pytest.approx(4 / 7)
    assert "span_f1" not in Tagging(Tags(("a", "b"))).metrics(kept.clamp(max=1), target.clamp(max=1))


def test_words_for_people() -> None:
    target = torch.tensor([[1, 2, 0, 0], [0, 1, IGNORED, IGNORED]])
    said = torch.tensor([[1, 2, 0, 0], [1, 0, 0, 0]])
    logits = 4 * F.one_hot(said, 5).float()
    logits[1, 1] /= 2
    kept = TASK.summarize_outputs(logits, target)
    rows = TASK.predictions(kept)
    assert [row["entity"] for row in rows] == ["B-PER I-PER O O", "B-PER O"]
    assert (
        rows[0]["least probability"]
        > rows[1]["least probability"]
        == pytest.approx(torch.tensor([2.0, 0, 0, 0, 0]).softmax(0)[0].item())
    )
    right, wrong = TASK.example_results(kept, target)
    assert (right["wrong"], right["predicted"], right["actual"]) == (False, "none wrong", "4 tokens")
    assert (wrong["wrong"], wrong["predicted"]) == (True, "2 wrong: B-PER for O, O for B-PER")
    assert wrong["loss"] > right["loss"]
    assert TASK.losses(logits, target).tolist() == pytest.approx([right["loss"], wrong["loss"]])


def test_the_baseline_is_the_commonest_tag() -> None:
    target = torch.tensor([[0, 0, 1], [0, IGNORED, IGNORED]])
    found = TASK.baseline(torch.tensor([0, 0, 3, IGNORED, IGNORED, IGNORED]), target)
    assert found == {"name": "majority-tag baseline ('O')", "value": 0.75}
