"""Language modelling: the loss is PyTorch's over real tokens, and the metrics follow from it."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from cutaway.core.spec import NextToken
from cutaway.data.dataset_base import IGNORED
from cutaway.nn.losses import cross_entropy
from cutaway.tasks.language import Language

TASK = Language(NextToken(7))
N, T, V = 12, 5, 7


@pytest.fixture
def outputs() -> Tensor:
    return torch.randn(N, T, V, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.fixture
def target() -> Tensor:
    found = torch.randint(0, V, (N, T), generator=torch.Generator().manual_seed(1))
    found[3, 2:] = IGNORED
    found[7, 4:] = IGNORED
    return found


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_the_mean_over_real_tokens(outputs: Tensor, target: Tensor, smoothing: float) -> None:
    task = Language(NextToken(V), smoothing)
    real = target != IGNORED
    wanted = cross_entropy(outputs[real], target[real], label_smoothing=smoothing).mean()
    assert torch.allclose(task.loss(outputs, target) / task.loss_denominator(target), wanted)
    assert task.loss_denominator(target) == N * T - 4


def test_what_is_kept_is_each_tokens_loss_and_whether_it_was_right(outputs: Tensor, target: Tensor) -> None:
    kept = TASK.summarize_outputs(outputs, target)
    assert kept.shape == (N, T, 2)
    assert kept.dtype == torch.float32
    assert torch.equal(kept.isnan().all(2), target == IGNORED)
    p = outputs.softmax(2)
    assert kept[0, 0, 0].item() == pytest.approx(-math.log(p[0, 0, target[0, 0]]), rel=1e-6)
    assert kept[0, 0, 1].item() == float(outputs[0, 0].argmax() == target[0, 0])


def test_metrics(outputs: Tensor, target: Tensor) -> None:
    kept, real = TASK.summarize_outputs(outputs, target), target != IGNORED
    loss = F.cross_entropy(outputs[real], target[real]).item()
    quick, metrics = TASK.fast_metrics(kept, target), TASK.metrics(kept, target)
    assert quick == pytest.approx({"loss": loss, "perplexity": math.exp(loss)}, rel=1e-6)
    assert metrics["loss"].value == pytest.approx(loss, rel=1e-6)
    assert metrics["perplexity"].value == pytest.approx(math.exp(loss), rel=1e-6)
    assert metrics["bits_per_token"].value == pytest.approx(loss / math.log(2), rel=1e-6)
    right = (outputs.argmax(2) == target)[real].double().mean().item()
    assert metrics["accuracy"].value == pytest.approx(right)
    assert all(m.low < m.value < m.high for m in metrics.values())
    assert metrics["perplexity"].low == pytest.approx(math.exp(metrics["loss"].low))


def test_padding_changes_no_figure(outputs: Tensor, target: Tensor) -> None:
    kept = TASK.summarize_outputs(outputs, target)
    wider = F.pad(kept, (0, 0, 0, 3), value=torch.nan)
    assert TASK.metrics(wider, target) == TASK.metrics(kept, target)
    assert TASK.predictions(wider) == TASK.predictions(kept)


def test_a_loss_beyond_all_bounds_is_said(target: Tensor) -> None:
    hopeless = torch.zeros(N, T, V).scatter(2, target.clamp(min=0)[..., None], -1e4)
    kept = TASK.summarize_outputs(hopeless, target)
    assert TASK.fast_metrics(kept, target)["perplexity"] == math.inf
    assert TASK.metrics(kept, target)["perplexity"].to_json()["value"] is None
    assert TASK.example_results(kept, target)[0]["confidence"] == 0


def test_the_baseline_is_the_tokens_frequency() -> None:
    train = torch.tensor([2, 2, 2, 3, 4, 4])
    target = torch.tensor([[2, 5], [4, IGNORED]])
    found = TASK.baseline(train, target)["value"]
    # 6 tokens and 7 ids, each counted once more: 4, 2, 3 of 13 for 2, 3, 4, and 1 for any other.
    assert found == pytest.approx(-(math.log(4 / 13) + math.log(1 / 13) + math.log(3 / 13)) / 3)


def test_each_text_has_a_row(outputs: Tensor, target: Tensor) -> None:
    kept = TASK.summarize_outputs(outputs, target)
    rows, mistakes = TASK.predictions(kept), TASK.example_results(kept, target)
    assert len(rows) == len(mistakes) == N
    loss = F.cross_entropy(outputs[3, :2], target[3, :2]).item()
    assert rows[3] == pytest.approx({"loss": loss, "perplexity": math.exp(loss)}, rel=1e-6)
    right = int((outputs[3, :2].argmax(1) == target[3, :2]).sum())
    assert mistakes[3]["actual"] == "2 tokens"
    assert mistakes[3]["predicted"] == f"{right} correct"
    assert mistakes[3]["confidence"] == pytest.approx(math.exp(-loss), rel=1e-6)
    assert TASK.details(kept, target) == {}
