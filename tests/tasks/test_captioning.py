"""Captions: exact against any of the right ones, with Wilson's interval; the probability of what was said."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from scipy.stats import binomtest

from cutaway.core.spec import Classes, ImageSpec, PairSpec, Tokens
from cutaway.data.dataset_base import IGNORED
from cutaway.inference.sequence_decoding import decode, decode_with_log_prob
from cutaway.models.show_attend_tell import Config, Model
from cutaway.tasks.sequences import Captioning, SequenceToSequence
from cutaway.tasks.task import headline_metric, task_for

TARGET = Tokens(10, 2, 3, 6, "caption")
NAMES = dict(enumerate("pubeabcdef"))


def words(ids: list[int]) -> str:
    return " ".join(NAMES[i] for i in ids)


def kept(said: list[list[int]], right: list[list[list[int]]], log_p: list[float]) -> tuple[Captioning, torch.Tensor]:
    task = Captioning(TARGET, words=words)
    target = torch.full((len(said), 4), IGNORED)
    for row, answers in zip(target, right):
        row[: len(answers[0]) + 1] = torch.tensor([*answers[0], TARGET.end])
    decoded = torch.tensor([[*ids, *[-1] * (3 - len(ids))] for ids in said])
    texts = [[words(ids) for ids in answers] for answers in right]
    outputs = torch.zeros(len(said), 4, 10, dtype=torch.float64)
    return task, task.summarize_outputs(
        outputs, target, decoded, right, texts, torch.tensor(log_p, dtype=torch.float64)
    )


def test_the_task_is_told_from_spec_and_target() -> None:
    assert isinstance(task_for(ImageSpec(1, 8, 8, TARGET)), Captioning)
    assert type(task_for(PairSpec(9, 4, TARGET))) is SequenceToSequence
    assert headline_metric(task_for(ImageSpec(1, 8, 8, TARGET))) == "exact_match"
    assert headline_metric(task_for(ImageSpec(1, 8, 8, Classes(("a", "b"))))) != "exact_match"


def test_any_of_the_right_captions_is_exact() -> None:
    right = [[[4, 5], [5, 4]], [[4, 6], [7, 8, 9]], [[9], [8]]]
    task, found = kept([[5, 4], [7, 8], [9]], right, [math.log(0.5), math.log(0.25), 0.0])
    metrics = task.metrics(found, torch.zeros(0))
    assert next(iter(metrics)) == "exact_match"
    assert "sequence_error" not in metrics
    exact = metrics["exact_match"]
    interval = binomtest(2, 3).proportion_ci(method="wilson")
    assert (exact.value, exact.low, exact.high) == pytest.approx((2 / 3, interval.low, interval.high))
    assert metrics["token_error"].value == pytest.approx(1 / (2 + 3 + 1))  # one word is missing of the nearest
    assert [row["probability"] for row in task.predictions(found)] == pytest.approx([0.5, 0.25, 1.0])
    target = torch.tensor([[4, 5, 3, IGNORED], [4, 6, 3, IGNORED], [9, 3, IGNORED, IGNORED]])
    rows = task.example_results(found, target)
    assert [(row["actual"], row["predicted"], row["wrong"]) for row in rows] == [
        ("b a", "b a", False), ("a c", "d e", True), ("f", "f", False)
    ]  # fmt: skip


class Known:
    """A split with these right answers."""

    def __init__(self, right: list[list[list[int]]]) -> None:
        self.right = right

    def __len__(self) -> int:
        return len(self.right)

    def references(self, i: int) -> list[list[int]]:
        return self.right[i]


def test_the_baseline_is_the_commonest_caption_of_training() -> None:
    task = Captioning(TARGET, words=words)
    train, test = Known([[[4, 5]], [[4, 5]], [[6]]]), Known([[[6], [4, 5]], [[6]], [[7]], [[4, 5]]])
    baseline = task.beside(torch.zeros(0), train, test)["baseline"]
    assert baseline == {"name": "most-frequent-caption baseline (“a b”)", "value": 0.5}


@pytest.mark.parametrize("ending", [1, 3])  # the answers run to the longest, and end early
@pytest.mark.parametrize("num_beams", [1, 3])
def test_log_p_is_that_of_the_words_and_the_end(num_beams: int, ending: int) -> None:
    torch.manual_seed(0)
    model = Model(Config((4,), 1, 6, 5, 7, 0.0, 1, 10)).double()
    with torch.no_grad():
        model.head.weight.mul_(8)  # so that answers differ
        model.head.bias[TARGET.end] += ending
    images = torch.randn(6, 1, 5, 5, dtype=torch.float64)
    found, log_p = decode_with_log_prob(model, images, None, TARGET, num_beams, 0.6)
    assert torch.equal(found, decode(model, images, None, TARGET, num_beams=num_beams))
    longest = TARGET.longest + TARGET.longest // 2
    assert ((found >= 0).sum(1) == longest).all() == (ending == 1)
    for image, row, said in zip(images, found.tolist(), log_p.tolist()):
        ids = [i for i in row if i >= 0]
        ids = ids if len(ids) == longest else [*ids, TARGET.end]
        logits = model.eval()(image[None], torch.tensor([[TARGET.begin, *ids[:-1]]]))
        expected = -F.cross_entropy(logits[0], torch.tensor(ids), reduction="sum").item()
        assert said == pytest.approx(expected, rel=1e-9)
