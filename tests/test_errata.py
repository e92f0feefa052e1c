"""Each true statement of docs/errata.md."""

from __future__ import annotations

from math import floor

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cutaway.models.registry import card, create_model
from cutaway.tasks.measures import share


@given(n=st.integers(1, 40), k=st.integers(1, 7), p=st.integers(0, 3), s=st.integers(1, 4), d=st.integers(1, 3))
@settings(deadline=None, max_examples=60)
def test_output_size_is_a_floor_plus_one(n: int, k: int, p: int, s: int, d: int) -> None:
    size = floor((n + 2 * p - d * (k - 1) - 1) / s) + 1
    if size < 1:
        return
    x = torch.zeros(1, 1, n)
    assert F.conv1d(x, torch.zeros(1, 1, k), stride=s, padding=p, dilation=d).shape[2] == size


def test_a_ceiling_is_another_size() -> None:
    assert F.conv1d(torch.zeros(1, 1, 8), torch.zeros(1, 1, 3), stride=2).shape[2] == 3
    assert F.max_pool1d(torch.zeros(1, 1, 6), 3, 2).shape[2] == 2
    assert F.max_pool1d(torch.zeros(1, 1, 6), 3, 2, ceil_mode=True).shape[2] == 3


@pytest.mark.parametrize("p", [0.2, 0.5])
def test_dropout_is_inverted(p: float) -> None:
    dropout, x = nn.Dropout(p), torch.ones(200_000)
    torch.manual_seed(0)
    out = dropout(x)
    assert out.unique().tolist() == pytest.approx([0.0, 1 / (1 - p)])
    assert out.mean().item() == pytest.approx(1.0, abs=0.01)
    assert torch.equal(dropout.eval()(x), x)


def test_lenets_c3_is_five_by_five_by_a_table() -> None:
    c3 = create_model("lenet5").c3
    assert sum(p.numel() for p in c3.parameters()) == 1516
    assert c3.weight.shape[-2:] == (5, 5)
    assert c3(torch.zeros(1, 6, 14, 14)).shape == (1, 16, 10, 10)


def test_lenets_f6_is_no_softmax() -> None:
    features = create_model("lenet5").features(torch.randn(4, 1, 32, 32))
    assert features.shape == (4, 84)
    assert features.min() < 0  # a softmax is never negative
    assert features.abs().max() <= 1.7159


def test_layers_correlate() -> None:
    impulse, kernel = torch.zeros(1, 1, 5, 5), torch.arange(9.0).view(1, 1, 3, 3)
    impulse[0, 0, 2, 2] = 1
    assert torch.equal(F.conv2d(impulse, kernel), kernel.flip(2, 3))


def test_resnet50_is_two_networks() -> None:
    assert card("resnet50").published_multiply_adds == 4_089_184_256
    assert card("resnet50-v1").published_multiply_adds == 3_857_973_248
    assert card("resnet50").published_parameters == card("resnet50-v1").published_parameters


def test_an_accuracy_has_an_interval() -> None:
    m = share(910, 1000)
    assert (round(100 * m.low), round(100 * m.high)) == (89, 93)
