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
from cutaway.nn.convolution import convolve, correlate, sobel_x, sobel_y
from cutaway.nn.pooling import k_max
from cutaway.nn.recurrent import gru_step
from cutaway.tasks.measures import share

IMAGES_OF_ALEXNET = ((224, 0), (227, 0), (224, 2))  # pixels a side and padding


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


def test_alexnets_fc6_is_no_177_million() -> None:
    with torch.device("meta"):
        model = create_model("alexnet-2012")
    assert sum(p.numel() for p in model.fc6.parameters()) == 6 * 6 * 256 * 4096 + 4096 == 37_752_832
    assert 13 * 13 * 256 * 4096 == 177_209_344  # without the last pooling
    assert sum(p.numel() for p in model.parameters()) == 60_965_224


def test_alexnets_first_map_needs_227() -> None:
    kernel = torch.zeros(1, 1, 11, 11)
    sides = [F.conv2d(torch.zeros(1, 1, n, n), kernel, stride=4, padding=p).shape[2] for n, p in IMAGES_OF_ALEXNET]
    assert sides == [54, 55, 55]
    assert 55 * 55 * 96 == 290_400


def test_alexnet_and_googlenet_are_two_networks_each() -> None:
    assert card("alexnet").published_parameters == 61_100_840
    assert card("alexnet-2012").published_parameters == 60_965_224
    with torch.device("meta"):
        plain = [create_model(name, auxiliary=False) for name in ("googlenet", "googlenet-2014")]
    assert [sum(p.numel() for p in model.parameters()) for model in plain] == [6_624_904, 6_998_552]


def test_a_sobel_kernel_sums_to_nothing_and_is_named_by_its_derivative() -> None:
    flat, blur = torch.ones(5, 5), torch.tensor([[1.0, 2, 1], [0, 0, 0], [1, 2, 1]])
    assert correlate(flat, blur).unique().tolist() == [8.0]
    assert not correlate(flat, sobel_y()).any()
    step = torch.zeros(5, 6)
    step[:, 3:] = 1  # a vertical edge, between two columns
    assert correlate(step, sobel_x()).abs().max() == 4
    assert not correlate(step, sobel_y()).any()
    assert torch.equal(convolve(step, sobel_x()), -correlate(step, sobel_x()))


def test_the_worked_convolution_is_a_correlation() -> None:
    rows = [[2, 0, 1, 1, 3], [0, -1, 2, 2, 0], [-2, 3, 0, 0, 1], [0, 1, -3, 2, 3], [1, 1, -2, 0, -1]]
    x, kernel = torch.tensor(rows), torch.tensor([[1, 0, -1], [0, 2, 0], [0, 1, 2]])
    assert correlate(x, kernel).tolist() == [[2, 3, 4], [-1, -2, 10], [-3, -5, 1]]
    assert convolve(x, kernel).tolist() == [[4, 2, 8], [2, 1, 12], [-2, -1, 5]]


def test_zeros_at_the_border_say_where_it_is() -> None:
    assert correlate(torch.ones(6), torch.ones(3), padding="same").tolist() == [2, 3, 3, 3, 3, 2]
    assert correlate(torch.ones(6), torch.ones(3), padding="circular").tolist() == [3] * 6
    x, kernel = torch.arange(16.0) ** 2, torch.tensor([1.0, 2, 3])
    whole, shifted = (correlate(v, kernel, stride=2) for v in (x, x.roll(1)))
    assert not torch.isin(whole[1:], shifted).any()  # a shift by one is no shift of every second place
    assert torch.equal(correlate(x.roll(2), kernel, stride=2)[2:], whole[1:-1])


def test_an_accuracy_has_an_interval() -> None:
    m = share(910, 1000)
    assert (round(100 * m.low), round(100 * m.high)) == (89, 93)


def test_the_last_output_of_a_padded_batch_is_no_state_of_a_short_sequence() -> None:
    torch.manual_seed(0)
    layer = torch.nn.LSTM(3, 4, batch_first=True)
    x = torch.randn(2, 6, 3)
    x[1, 2:] = 0  # padding
    alone = layer(x[1:, :2])[0][:, -1]
    assert not torch.allclose(layer(x)[0][1:, -1], alone)
    lengths = torch.tensor([6, 2])
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
    assert torch.allclose(layer(packed)[1][0][0, 1:], alone)


def test_pytorchs_gru_resets_behind_the_product() -> None:
    torch.manual_seed(0)
    cell = torch.nn.GRUCell(3, 4)
    x, h = torch.randn(2, 3), torch.randn(2, 4)
    weights = (cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)
    (after,), (before,) = (gru_step(x, (h,), weights, reset=reset) for reset in ("after", "before"))
    assert torch.allclose(after, cell(x, h), atol=1e-6)
    assert not torch.allclose(before, cell(x, h), atol=1e-3)


def test_k_max_keeps_the_order_of_the_sentence() -> None:
    assert k_max(torch.tensor([1.0, 5.0, 2.0, 4.0]), 3).tolist() == [5.0, 2.0, 4.0]


def test_word2vecs_code_keeps_more_than_its_paper() -> None:
    f, t = 10.0, 1.0
    assert (t / f) ** 0.5 == pytest.approx(0.316, abs=1e-3)
    assert ((f / t) ** 0.5 + 1) * t / f == pytest.approx(0.416, abs=1e-3)


def test_predicting_one_in_the_adding_problem_misses_by_a_sixth() -> None:
    numbers = torch.rand(2, 400_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    error = (numbers.sum(0) - 1).square().mean().item()
    assert error == pytest.approx(1 / 6, abs=1e-3)
    assert error < 0.17
