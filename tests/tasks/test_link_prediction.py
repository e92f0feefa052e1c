"""Link prediction: scores are scikit-learn's, and ranks are counted by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

from cutaway.core.spec import Links
from cutaway.tasks.link_prediction import LinkPrediction, reciprocal_ranks

TASK = LinkPrediction(Links())


@pytest.fixture
def answers() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    target = torch.arange(60) % 2
    return torch.randn(60, 1, generator=generator) + target[:, None], target


def test_metrics_are_those_of_scikit_learn(answers: tuple[torch.Tensor, torch.Tensor]) -> None:
    outputs, target = answers
    found = TASK.metrics(outputs, target)
    assert found["auc"].value == pytest.approx(roc_auc_score(target, outputs[:, 0]))
    assert found["average_precision"].value == pytest.approx(average_precision_score(target, outputs[:, 0]))
    assert TASK.fast_metrics(outputs, target)["auc"] == pytest.approx(found["auc"].value, rel=1e-12)
    for metric in found.values():
        assert metric.low < metric.value < metric.high


def test_ranks_by_hand() -> None:
    """One absent link is above 0.5, two above 0.1, one as high as 0.3."""
    scores = np.array([0.5, 0.1, 0.3, 0.7, 0.3])
    linked = np.array([True, True, True, False, False])
    assert reciprocal_ranks(scores, linked).tolist() == [1 / 2, 1 / 3, 1 / 2.5]


def test_links_alone_have_no_order(answers: tuple[torch.Tensor, torch.Tensor]) -> None:
    outputs, target = answers
    assert np.isnan(TASK.fast_metrics(outputs[target == 1], target[target == 1])["auc"])


def test_predictions_say_link_or_none(answers: tuple[torch.Tensor, torch.Tensor]) -> None:
    outputs, _ = answers
    rows = TASK.predictions(outputs)
    assert {row["link"] for row in rows} == {"link", "no link"}
    assert rows[0]["probability link"] == pytest.approx(outputs[0, 0].sigmoid().item())
