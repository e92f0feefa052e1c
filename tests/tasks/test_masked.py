"""Masked-language modelling: the loss is that of the hidden tokens, and of no others."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from cutaway.core.spec import Masked, TextSpec
from cutaway.data.dataset_base import IGNORED
from cutaway.tasks.language import MaskedLanguage
from cutaway.tasks.task import task_for

TARGET = Masked(9, 8)


def some() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(6, 10, 9, generator=generator, dtype=torch.float64)
    target = torch.randint(0, 8, (6, 10), generator=generator)
    hidden = torch.rand(6, 10, generator=generator) < 0.2
    hidden[:, 3] = True
    return outputs, target.masked_fill(~hidden, IGNORED)


def test_it_is_the_task_of_masked_text() -> None:
    task = task_for(TextSpec(9, 10, TARGET))
    assert isinstance(task, MaskedLanguage)
    assert task.name == "masked-language modelling"
    assert task.default_monitor == "loss"


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_that_of_the_hidden_tokens(smoothing: float) -> None:
    outputs, target = some()
    task, hidden = MaskedLanguage(TARGET, smoothing), target != IGNORED
    wanted = F.cross_entropy(outputs[hidden], target[hidden], label_smoothing=smoothing)
    assert torch.allclose(task.loss(outputs, target) / task.loss_denominator(target), wanted)
    changed = torch.where(hidden[..., None], outputs, torch.zeros(()).double())
    assert task.loss(changed, target) == task.loss(outputs, target)


def test_metrics() -> None:
    outputs, target = some()
    task, hidden = MaskedLanguage(TARGET), target != IGNORED
    kept = task.summarize_outputs(outputs, target)
    loss = F.cross_entropy(outputs[hidden], target[hidden]).item()
    metrics = task.metrics(kept, target)
    assert metrics["loss"].value == pytest.approx(loss, rel=1e-6)
    assert metrics["perplexity"].value == pytest.approx(math.exp(loss), rel=1e-6)
    assert metrics["accuracy"].value == pytest.approx((outputs.argmax(2) == target)[hidden].double().mean().item())
    assert len(task.predictions(kept)) == 6


def test_the_baseline_is_the_tokens_frequency() -> None:
    task = MaskedLanguage(TARGET)
    found = task.baseline(torch.tensor([1, 1, 2]), torch.tensor([[IGNORED, 1], [2, IGNORED]]))
    assert found["value"] == pytest.approx(-(math.log(3 / 12) + math.log(2 / 12)) / 2)
    assert found["name"] == "unigram baseline"
