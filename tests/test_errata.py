"""Each true statement of docs/errata.md."""

from __future__ import annotations

import math
from math import floor
from typing import Any, ClassVar

import networkx
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cutaway.checkpoints.word_vectors import Vectors
from cutaway.core.spec import Tokens
from cutaway.data.text.corpus_transforms import Masking
from cutaway.inference.sequence_decoding import PENALTIES, decode_scored
from cutaway.inspect.gates import gradient_by_lag
from cutaway.models.gru import gru_step
from cutaway.models.registry import card, create_model, presets
from cutaway.models.resnet import Config as ResNetConfig
from cutaway.models.resnet import ResNet
from cutaway.models.word2vec import NegativeSampling
from cutaway.nn.adversarial import Bounds, fgsm
from cutaway.nn.attention import attention_weights, scaled_dot_product
from cutaway.nn.graphs import build_adjacency, edge_scores, edge_softmax
from cutaway.nn.masks import causal_mask
from cutaway.nn.normalization import batch_norm
from cutaway.nn.position import sinusoids
from cutaway.nn.textbook.backprop import Layer, backward, delta_half_squared_error, forward
from cutaway.nn.textbook.convolution import convolve, correlate, sobel_x, sobel_y
from cutaway.nn.textbook.pooling import k_max
from cutaway.statistics.intervals import proportion
from cutaway.training.config import TrainSettings
from cutaway.training.optim import lr_factor
from cutaway.views.gradients import block_norms

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
    m = proportion(910, 1000)
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
    after, before = (gru_step(x, (h,), weights, reset)["state"] for reset in ("after", "before"))
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


# --- attention ----------------------------------------------------------------------------------------------------


def test_the_root_of_d_multiplies_the_embedding_alone() -> None:
    torch.manual_seed(0)
    model: Any = create_model("transformer-tiny", vocab_size=50, dim=256, layers=1).eval()
    tokens, entered = torch.arange(40)[None], []
    model.encoder[0].register_forward_pre_hook(lambda module, given: entered.append(given[0]))
    read = model.embedding.weight.detach()[:40].clone()
    model.encode(tokens, None)
    places = sinusoids(torch.arange(40), 256)
    torch.testing.assert_close(entered[0][0], 16 * read + places)
    nn.init.zeros_(model.embedding.weight)
    model.encode(tokens, None)
    assert torch.equal(entered[1][0], places)
    assert sinusoids(torch.arange(5000), 512).square().mean().sqrt().item() == pytest.approx(0.7071, abs=1e-4)
    assert (nn.Embedding(2000, 512).weight * 512**0.5).std().item() == pytest.approx(22.6, abs=0.1)
    assert (16 * read).std().item() == pytest.approx(1.0, abs=0.05)  # √256 times standard deviation 1/√256


@pytest.mark.parametrize("name", ["gpt2", "gpt2-xl"])
def test_two_thirds_of_a_block_are_the_mlps(name: str) -> None:
    with torch.device("meta"):
        block = create_model(name, vocab_size=2, layers=1).get_submodule("blocks.0")
    sizes = {key: p.numel() for key, p in block.named_parameters() if p.ndim == 2}
    mlp = sum(n for key, n in sizes.items() if key.startswith("mlp"))
    assert 3 * mlp == 2 * sum(sizes.values())
    if name == "gpt2":
        assert (mlp, sum(sizes.values())) == (4_718_592, 7_077_888)


def test_a_query_is_a_row_and_sees_the_keys_up_to_its_own() -> None:
    assert causal_mask(3, 3).int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    q, k, v = torch.randn(3, 3, 4).unbind()
    right, wrong = (scaled_dot_product(q, k, v, mask)[0] for mask in (causal_mask(3, 3), causal_mask(3, 3).T))
    torch.testing.assert_close(right[0], v[0])
    torch.testing.assert_close(wrong[2], v[2])  # the last would see itself alone


def test_a_sinusoids_rates_need_parentheses_and_fractions() -> None:
    d, log = 256, math.log(10_000)
    assert {-log / size // 2 for size in (8, 64, 256, 512)} == {-1.0}
    right = torch.exp(torch.arange(0, d, 2) * (-log / d))
    table = sinusoids(torch.arange(1000), d)
    torch.testing.assert_close(table[1, 0::2], right.sin())
    wrong = torch.exp(torch.arange(0, d, 2) * (-log / d // 2))
    assert 2 * (1000 * wrong > 1e-6).sum().item() == 22  # a sine and a cosine of each
    assert not (1000 * right < 1e-2).any()
    whole = torch.exp(torch.arange(0, d, 2) * int(-log / d))
    assert whole.unique().tolist() == [1.0]
    assert (1 / right).max() > 9000  # divided by, not multiplied
    assert right.min() < 1.1 / 9000


def test_positions_know_no_dropout() -> None:
    with pytest.raises(TypeError, match="dropout"):
        sinusoids(torch.arange(3), 4, dropout=0.1)  # type: ignore[call-arg]
    model: Any = create_model("transformer-tiny", vocab_size=50, layers=1)
    assert model.dropout.p > 0  # of the sum


def test_scores_are_divided_before_the_softmax() -> None:
    torch.manual_seed(0)
    q, k = 6 * torch.randn(2, 5, 64).unbind()[0], torch.randn(5, 64)
    weights = attention_weights(q, k)
    torch.testing.assert_close(weights, torch.softmax(q @ k.T / 8, -1))
    torch.testing.assert_close(weights.sum(-1), torch.ones(5))
    after = torch.softmax(q @ k.T, -1) / 8
    torch.testing.assert_close(after.sum(-1), torch.full((5,), 1 / 8))
    assert (8 * after).amax(-1).mean() > weights.amax(-1).mean() + 0.05


def transformers_size(v: int, d: int) -> int:
    """Six blocks a side, d_ff = 4d, biases, one matrix for all words, no normalization after the last block."""
    attention, mlp, norm = 4 * (d * d + d), 8 * d * d + 5 * d, 2 * d
    return v * d + 6 * (attention + mlp + 2 * norm) + 6 * (2 * attention + mlp + 3 * norm)


def test_the_transformers_parameters_are_not_the_tables() -> None:
    assert [transformers_size(37_000, d) for d in (512, 1024)] == [63_082_496, 214_245_376]
    for name, d in (("transformer-base", 512), ("transformer-big", 1024)):
        with torch.device("meta"):
            assert sum(p.numel() for p in create_model(name).parameters()) == transformers_size(37_000, d)
    base = [v for v in range(30_000, 50_000) if round(transformers_size(v, 512) / 1e6) == 65]
    big = [v for v in range(30_000, 50_000) if round(transformers_size(v, 1024) / 1e6) == 213]
    assert base
    assert big
    assert set(base).isdisjoint(big)  # no vocabulary gives both


def test_the_length_penalty_divides_by_a_power_of_a_sixth() -> None:
    for alpha in (0.0, 0.6, 1.0):
        assert PENALTIES["gnmt"](1, alpha) == 1.0
    assert PENALTIES["gnmt"](10, 0.6) == pytest.approx((15 / 6) ** 0.6)
    assert pytest.approx((15 / 6) ** 0.6, rel=0.5) != (5 + 10 / 6) ** 0.6


def test_updates_are_counted_from_one() -> None:
    with pytest.raises(ZeroDivisionError):
        0.0**-0.5
    settings = TrainSettings(schedule="noam", warmup=0.1)
    assert lr_factor(settings, 0.0, 1000) == pytest.approx(1 / 100)
    assert lr_factor(settings, 0.099, 1000) == pytest.approx(1.0)


def test_gpt2s_smaller_sizes_have_124_and_355_million() -> None:
    assert card("gpt2").published_parameters == 124_439_808
    assert card("gpt2-medium").published_parameters == 354_823_168
    for name in ("gpt2", "gpt2-medium"):
        with torch.device("meta"):
            counted = sum(p.numel() for p in create_model(name).parameters())
        assert counted == card(name).published_parameters


# --- learning -----------------------------------------------------------------------------------------------------


def test_the_error_of_an_output_layer_has_the_shape_of_its_sums() -> None:
    n, k = 5, 3
    x, target, weight = torch.randn(3, n, k, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).unbind()
    weight = weight[:k].clone().requires_grad_()  # (K, K)
    layer = Layer(weight, torch.zeros(k, dtype=torch.float64, requires_grad=True), "sigmoid")
    z = (x @ weight.T).detach().requires_grad_()
    F.mse_loss(z.sigmoid(), target).backward()
    trace = forward([layer], x)
    delta = 2 * delta_half_squared_error([layer], trace, target) / (n * k)
    assert delta.shape == z.shape == (n, k)
    torch.testing.assert_close(delta, z.grad)
    slope = z.sigmoid() * (1 - z.sigmoid())
    torch.testing.assert_close(z.grad, 2 / (n * k) * (z.sigmoid() - target) * slope)  # not target − output
    F.mse_loss((x @ weight.T).sigmoid(), target).backward()
    gradient = backward([layer], trace, delta)[0].weight
    torch.testing.assert_close(gradient, weight.grad)


def test_a_column_less_a_row_is_a_table_of_all_differences() -> None:
    y = torch.tensor([1.0, 2.0, 3.0])
    assert (y[:, None] - y).shape == (3, 3)
    assert ((y[:, None] - y) ** 2).mean().item() == pytest.approx(4 / 3)  # though each prediction is exact
    assert ((y.mean().expand(3, 1) - y) ** 2).mean().item() == pytest.approx(2 / 3)  # and the mean is "better"
    with pytest.warns(UserWarning, match="target size"):
        assert F.mse_loss(y[:, None], y).item() == pytest.approx(4 / 3)


def test_rmsprops_epsilon_is_outside_the_root() -> None:
    gradient, decay, epsilon, rate = 1e-6, 0.99, 1e-8, 1.0
    weight = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.RMSprop([weight], lr=rate, alpha=decay, eps=epsilon)
    weight.grad = torch.full_like(weight, gradient)
    optimizer.step()
    v = (1 - decay) * gradient**2
    assert -weight.item() == pytest.approx(rate * gradient / (math.sqrt(v) + epsilon))
    assert -weight.item() == pytest.approx(9.09, abs=0.01)
    assert rate * gradient / math.sqrt(v + epsilon) == pytest.approx(0.01, rel=1e-3)


def test_attention_follows_the_order_and_pooling_forgets_it() -> None:
    x = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    plain, shuffled = scaled_dot_product(x, x, x)[0], scaled_dot_product(x[order], x[order], x[order])[0]
    torch.testing.assert_close(shuffled, plain[order])  # equivariant
    assert (shuffled - plain).abs().max() > 0.1  # not invariant
    torch.testing.assert_close(shuffled.mean(0), plain.mean(0))


def stepped(kind: type[torch.optim.Optimizer], gradients: torch.Tensor, **settings: Any) -> torch.Tensor:
    """Weights of 1 after a step for each row of gradients."""
    weight = torch.ones(gradients.shape[1], dtype=torch.float64, requires_grad=True)
    optimizer = kind([weight], **settings)
    for gradient in gradients:
        weight.grad = gradient.clone()
        optimizer.step()
    return weight.detach()


def test_weight_decay_is_l2_for_plain_sgd_alone() -> None:
    rate, decay = 0.1, 0.01
    gradients = torch.tensor([[1.0, 100.0]] * 3, dtype=torch.float64)
    weight, momentum, velocity = torch.ones(2).double(), torch.ones(2).double(), torch.zeros(2).double()
    for gradient in gradients:
        weight = weight * (1 - rate * decay) - rate * gradient
        velocity = 0.9 * velocity + gradient
        momentum = momentum * (1 - rate * decay) - rate * velocity
    penalty = {"lr": rate, "weight_decay": decay}  # the gradient of ½ λ w², as PyTorch has it
    torch.testing.assert_close(stepped(torch.optim.SGD, gradients, **penalty), weight)
    assert (stepped(torch.optim.SGD, gradients, **penalty, momentum=0.9) - momentum).abs().min() > 1e-4
    shrunk = [
        stepped(torch.optim.Adam, gradients, lr=rate) - stepped(torch.optim.Adam, gradients, **penalty),
        stepped(torch.optim.AdamW, gradients, lr=rate, weight_decay=0.0)
        - stepped(torch.optim.AdamW, gradients, **penalty),
    ]
    torch.testing.assert_close(shrunk[1][0], shrunk[1][1])  # decay asks for no gradient
    assert shrunk[0].abs().max() < 0.1 * shrunk[1].min()  # of a penalty Adam leaves next to nothing
    assert (
        stepped(torch.optim.Adam, gradients, **penalty) - stepped(torch.optim.AdamW, gradients, **penalty)
    ).abs().min() > 1e-4


def test_a_gcn_gives_logits() -> None:
    torch.manual_seed(0)
    model = create_model("gcn", in_features=4, num_classes=3).eval()
    edges = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]])
    logits = model(torch.randn(5, 4), edges)
    assert logits.min() < 0 < logits.max()
    cut = logits.detach().requires_grad_()
    F.cross_entropy(cut.relu(), torch.zeros(5, dtype=torch.int64)).backward()
    assert not cut.grad[cut < 0].any()
    with_negatives = logits.detach().requires_grad_()
    F.cross_entropy(with_negatives, torch.zeros(5, dtype=torch.int64)).backward()
    assert (with_negatives.grad != 0).all()


# --- neurons and layers -------------------------------------------------------------------------------------------


def test_a_perceptrons_rate_changes_nothing() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    t = (x @ torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64) > 0).long()
    learned = []
    for rate in (1.0, 1 / 64):  # a power of two scales every sum exactly
        w, wrong = torch.zeros(3, dtype=torch.float64), []
        for _ in range(30):
            for i in range(len(x)):
                error = int(t[i]) - int(w @ x[i] > 0)
                w = w + rate * error * x[i]
                wrong += [i] * abs(error)
        learned.append((wrong, (w / rate).tolist()))
    assert learned[0] == learned[1]
    assert learned[0][0]


def test_a_layer_of_squares_is_a_parabola_however_wide() -> None:
    x = torch.linspace(-3, 3, 200, dtype=torch.float64)
    y, generator = torch.sin(2 * x) + x / 3, torch.Generator().manual_seed(0)

    def error(columns: torch.Tensor) -> float:
        best = torch.linalg.lstsq(columns, y[:, None], driver="gelsd").solution
        return float((columns @ best - y[:, None]).square().mean())

    parabola = error(torch.stack([torch.ones_like(x), x, x**2], 1))
    for width in (8, 64):
        z = x[:, None] * torch.randn(width, generator=generator, dtype=torch.float64) + torch.randn(
            width, generator=generator, dtype=torch.float64
        )
        assert error(torch.cat([z.square(), torch.ones(len(x), 1)], 1)) == pytest.approx(parabola, rel=1e-6)
    bends = torch.linspace(-3, 3, 64, dtype=torch.float64)
    assert error(torch.cat([F.relu(x[:, None] - bends), torch.ones(len(x), 1)], 1)) < parabola / 1000


@pytest.mark.parametrize("classes", [2, 10])
def test_a_softmax_before_the_cross_entropy_leaves_a_loss(classes: int) -> None:
    perfect = F.one_hot(torch.tensor([1]), classes).double()
    found = F.cross_entropy(perfect, torch.tensor([1])).item()
    assert found == pytest.approx(math.log(1 + (classes - 1) / math.e))
    assert (classes, round(found, 2)) in ((2, 0.31), (10, 1.46))


def test_pooling_lets_shifts_through_by_its_stride_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 1, 32, generator=generator, dtype=torch.float64)
    kernel = torch.randn(1, 1, 3, generator=generator, dtype=torch.float64)

    def strongest(signal: torch.Tensor, pool: int) -> float:
        ring = F.conv1d(F.pad(signal, (1, 1), mode="circular"), kernel)
        ring = F.max_pool1d(ring, pool)
        return float(F.conv1d(F.pad(ring, (1, 1), mode="circular"), kernel).max())

    def kept(pool: int) -> list[bool]:
        return [strongest(x.roll(by, 2), pool) == pytest.approx(strongest(x, pool), rel=1e-12) for by in (1, 2, 3, 4)]

    assert kept(pool=1) == [True] * 4
    assert kept(pool=2) == [False, True, False, True]


def test_gradients_of_plain_networks_grow_with_depth() -> None:
    ratios = [
        block_norms(ResNet(ResNetConfig(layers=(n, n, n), stem="cifar")), 1.0, shortcuts=False)[1] for n in (2, 6)
    ]
    shallow, deep = (norms[0] / norms[-1] for norms in ratios)
    assert deep > 5 * shallow > 5


def test_twelve_of_a_hundred_tokens_are_masked() -> None:
    tokens = torch.full((2000, 40), 7)
    places = torch.arange(tokens.numel()).view_as(tokens)
    masking = Masking(mask=3, others=np.arange(10, 1000))
    seen, target = masking.hide(tokens, places, torch.ones_like(tokens, dtype=torch.bool), seed=0)
    chosen = target != -100
    assert chosen.float().mean().item() == pytest.approx(0.15, abs=1e-6)
    assert (seen == 3).float().mean().item() == pytest.approx(0.12, abs=0.004)
    assert (seen >= 10).float().mean().item() == pytest.approx(0.015, abs=0.002)
    assert (chosen & (seen == 7)).float().mean().item() == pytest.approx(0.015, abs=0.002)


@given(losses=st.lists(st.floats(0, 8), min_size=2, max_size=20))
@settings(deadline=None, max_examples=60)
def test_the_mean_of_perplexities_is_no_perplexity(losses: list[float]) -> None:
    of_text = math.exp(sum(losses) / len(losses))
    mean = sum(map(math.exp, losses)) / len(losses)
    assert mean >= of_text * (1 - 1e-12)
    if max(losses) - min(losses) > 1:
        assert mean > of_text * 1.005


def test_the_mean_of_two_perplexities() -> None:
    assert math.exp(2) == pytest.approx(7.39, abs=0.005)
    assert (math.e + math.e**3) / 2 == pytest.approx(11.40, abs=0.005)


def test_all_nodes_of_gat_rank_common_neighbours_alike() -> None:
    generator = torch.Generator().manual_seed(0)
    askers, known = 6, 9
    # Nodes 0 to 5 ask the same nine others.
    edges = torch.cartesian_prod(torch.arange(askers, askers + known), torch.arange(askers)).T.contiguous()
    pattern = build_adjacency(edges, askers + known, loops=False)
    s, t = torch.randn(2, askers + known, generator=generator, dtype=torch.float64)
    weights = edge_softmax(F.leaky_relu(edge_scores(s, t, pattern), 0.2), pattern).view(askers, known)
    orders = weights.argsort(1)
    assert (orders == orders[0]).all()
    assert not torch.allclose(weights[0], weights[1])  # how sharply, they do not agree
    # GATv2's score, with the matrix after the LeakyReLU, ranks them otherwise for different nodes.
    a, u, v = (torch.randn(n, 8, generator=generator, dtype=torch.float64) for n in (1, askers, known))
    orders = (F.leaky_relu(u[:, None] + v[None], 0.2) @ a[0]).argsort(1)
    assert not (orders == orders[0]).all()


@pytest.mark.parametrize("layers", [1, 8])
@pytest.mark.parametrize("name", ["gin", "gcn", "gat"])
def test_messages_do_not_tell_a_hexagon_from_two_triangles(name: str, layers: int) -> None:
    ring = torch.arange(6)
    hexagon = torch.stack([torch.cat([ring, ring]), torch.cat([(ring + 1) % 6, (ring - 1) % 6])])
    near = ring // 3 * 3
    triangles = torch.stack([torch.cat([ring, ring]), torch.cat([near + (ring + 1) % 3, near + (ring + 2) % 3])])
    path = torch.tensor([[0, 1, 2, 3, 4, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0, 1, 2, 3, 4]])
    torch.manual_seed(0)
    model = create_model(name, in_features=1, num_classes=3, layers=layers, graph_level=True).eval().double()
    x, batch = torch.ones(6, 1, dtype=torch.float64), torch.zeros(6, dtype=torch.long)
    with torch.no_grad():
        one, other, third = (model(x, edges, batch=batch) for edges in (hexagon, triangles, path))
    assert torch.allclose(one, other, atol=1e-12)
    assert name == "gat" or not torch.allclose(one, third, atol=1e-6)  # a path's ends have one neighbour


def test_an_attack_that_finds_nothing_proves_nothing() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(3, 10, generator=generator)
    x = torch.randn(50, 10, generator=generator)
    target = (x @ weights.T).argmax(1)
    bounds = Bounds(torch.tensor(1.0), torch.tensor(-10.0), torch.tensor(10.0))

    def right(x: torch.Tensor) -> float:
        return float(((x @ weights.T).argmax(1) == target).float().mean())

    def attacked(loud: float) -> torch.Tensor:
        return fgsm(lambda x: F.cross_entropy(loud * (x @ weights.T), target), x, bounds)

    assert right(attacked(1.0)) < 0.5
    assert torch.equal(attacked(1e6), x)  # the same answers, and nothing to follow


def test_batch_norms_momentum_is_the_fraction_of_the_new() -> None:
    norm = nn.BatchNorm1d(1, momentum=0.1)
    norm(torch.tensor([[9.0], [11.0]]))
    assert norm.running_mean.item() == pytest.approx(1.0)


def test_batch_norm_keeps_another_variance_than_it_divides_by() -> None:
    norm, two = nn.BatchNorm1d(1, momentum=1.0, eps=1e-12, affine=False), torch.tensor([[0.0], [2.0]])
    assert norm(two).flatten().tolist() == pytest.approx([-1.0, 1.0])
    assert norm.eval()(two).flatten().tolist() == pytest.approx([-(0.5**0.5), 0.5**0.5])


def test_weights_before_batch_norm_have_no_scale() -> None:
    draw = torch.Generator().manual_seed(0)
    x, t = (torch.randn(16, n, generator=draw, dtype=torch.float64) for n in (5, 1))
    w = torch.randn(5, 1, generator=draw, dtype=torch.float64)

    def answered(w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        w = w.clone().requires_grad_()
        y = batch_norm(x @ w, None, None, training=True, eps=0.0)
        return y.detach(), torch.autograd.grad((y - t).square().sum(), w)[0]

    (y, g), (y10, g10) = answered(w), answered(10 * w)
    torch.testing.assert_close(y10, y)
    torch.testing.assert_close(g10, g / 10)
    assert abs(float((w * g).sum())) < 1e-12 * float(w.norm() * g.norm()) + 1e-12


def test_an_analogy_leaves_its_own_words_out() -> None:
    words = ["king", "queen", "man", "woman", "tree"]
    matrix = np.array([[5, 5, 0, 0], [5, 5, 3, 0], [0, 5, 0, 1], [0, 5, 1, 1], [0, 0, 1, 5]], np.float32)
    vectors = Vectors(words, matrix)
    king, _, man, woman, _ = vectors.unit
    assert words[int((vectors.unit @ (king - man + woman)).argmax())] == "king"
    assert vectors.analogy("man", "king", "woman")[0][0] == "queen"


def test_negative_sampling_has_another_optimum_than_the_softmax() -> None:
    seen, noise, k = torch.tensor([60.0, 30.0, 10.0]), [0] * 7 + [1] * 2 + [2], 5  # P = 0.7, 0.2, 0.1
    optimum = (seen / 100 / torch.tensor([0.7, 0.2, 0.1])).log() - math.log(k)
    scores = torch.tensor([*optimum, *optimum[noise]], requires_grad=True)
    h, weight = torch.ones(1, 1, 1), torch.full((1, 1), k * 100 / len(noise))
    NegativeSampling.apply(h, scores[None, :, None], seen[None, None], weight).sum().backward()
    slopes = scores.grad[:3].index_add(0, torch.tensor(noise), scores.grad[3:])
    torch.testing.assert_close(slopes, torch.zeros(3), atol=1e-4, rtol=0)  # neither seen nor noise pulls more
    assert optimum.argsort().tolist() == [0, 2, 1]  # the most frequent is last


def test_the_spectral_radius_decides_in_the_long_run_alone() -> None:
    matrix = torch.tensor([[0.9, 5.0], [0.0, 0.9]], dtype=torch.float64)
    assert torch.linalg.eigvals(matrix).abs().tolist() == pytest.approx([0.9, 0.9])
    norms = [float(torch.linalg.matrix_norm(torch.matrix_power(matrix, k), 2)) for k in (0, 9, 150)]
    assert norms == pytest.approx([1.0, 19.4, 0.0], abs=0.1)
    layer, zeros = nn.RNN(1, 1), torch.zeros(1)
    with torch.no_grad():
        for weight in layer.parameters():
            weight.zero_()
        layer.weight_hh_l0.fill_(1.5)
    settled = gradient_by_lag(layer, torch.zeros(30, 1), (zeros + 0.86,))
    assert float(settled[1]) == pytest.approx(0.394, abs=0.01)  # 1.5 (1 − h²) at h = tanh(1.5 h)


@pytest.mark.parametrize(("bias", "gate"), [(0.0, 0.5), (1.0, 0.7310586)])
def test_an_lstms_gradient_is_a_product_of_forget_gates(bias: float, gate: float) -> None:
    layer, zeros = nn.LSTM(1, 1), torch.zeros(1)
    with torch.no_grad():
        for weight in layer.parameters():
            weight.zero_()
        layer.bias_ih_l0[1] = bias
    left = gradient_by_lag(layer, torch.zeros(21, 1), (zeros, zeros))
    torch.testing.assert_close(left, gate ** torch.arange(21.0).double(), rtol=1e-4, atol=0)


class Language(nn.Module):
    """A decoder whose next word depends on the word before alone, by a table."""

    # 0 padding, 1 begin, 2 end; 3 leads to 6 to 9, 4 to 10 and 11, 5 to 12; from 10 and 11 ten words come, 13 to 22.
    after: ClassVar[dict[int, list[tuple[int, float]]]] = {
        1: [(3, 0.45), (4, 0.35), (5, 0.2)],
        3: [(6, 0.3), (7, 0.25), (8, 0.25), (9, 0.2)],
        4: [(10, 0.5), (11, 0.5)],
        5: [(12, 1.0)],
        10: [(k, 0.1) for k in range(13, 23)],
        11: [(k, 0.1) for k in range(13, 23)],
    }

    def begin(self, source: torch.Tensor, mask: None) -> tuple[torch.Tensor]:
        return (torch.zeros(len(source), 1),)

    def step(self, token: torch.Tensor, state: tuple[torch.Tensor]) -> tuple[torch.Tensor, tuple[torch.Tensor]]:
        p = torch.zeros(len(token), 23)
        for row, before in enumerate(token.tolist()):
            for word, q in self.after.get(before, [(2, 1.0)]):
                p[row, word] = q
        return p.log(), state


def test_a_wider_beam_can_find_less() -> None:
    target = Tokens(23, begin=1, end=2, longest=4, unknown=None)
    found = [
        decode_scored(Language(), torch.zeros(1, 1), None, target, 5, width, 0.0)[1].exp().item() for width in (1, 2, 3)
    ]
    assert found == pytest.approx([0.135, 0.0175, 0.2], rel=1e-5)


# --- images -------------------------------------------------------------------------------------------------------


def test_the_maximum_of_a_window_with_a_two_is_two() -> None:
    window = torch.tensor([[[[0.0, 0.0], [-3.0, 2.0]]]])
    assert F.max_pool2d(window, 2).item() == 2  # 0 is its second largest number


def test_a_ceiling_plus_one_is_one_too_many() -> None:
    sizes = [F.conv1d(torch.zeros(1, 1, n), torch.zeros(1, 1, 3), stride=2).shape[2] for n in (7, 8)]
    assert sizes == [3, 3]
    assert [math.ceil((n - 3) / 2) + 1 for n in (7, 8)] == [3, 4]  # right only where the stride divides n + 2p − k


def test_a_sum_from_zero_to_k_has_a_row_and_a_column_too_many() -> None:
    x, kernel = torch.ones(5, 5), torch.ones(3, 3)
    assert correlate(x, kernel)[0, 0] == 9 == sum(x[m, n] for m in range(3) for n in range(3))
    assert sum(x[m, n] for m in range(3 + 1) for n in range(3 + 1)) == 16
    with pytest.raises(IndexError):
        kernel[3, 3]  # the last term asks for a weight that there is not


def test_a_convolution_of_384_maps_with_1_3_million_weights_is_in_neither_alexnet() -> None:
    assert sum(p.numel() for p in nn.Conv2d(384, 384, 3).parameters()) == 1_327_104 + 384
    sizes = {}
    for name in ("alexnet", "alexnet-2012"):
        with torch.device("meta"):
            model: Any = create_model(name)
        sizes[name] = sum(p.numel() for p in model.conv4.parameters())
        convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
        assert all(m.weight.numel() != 1_327_104 for m in convolutions)
    assert sizes == {"alexnet": 884_992, "alexnet-2012": 663_936}  # 384 to 256 maps; 384 to 384 in two towers


@pytest.mark.parametrize("name", ["vgg11", "vgg16", "vgg19"])
def test_vgg_pools_five_times(name: str) -> None:
    with torch.device("meta"):
        model = create_model(name)
        pools = [m for m in model.modules() if isinstance(m, nn.MaxPool2d)]
        assert len(pools) == 5
        assert all((pool.kernel_size, pool.stride) == (2, 2) for pool in pools)
        sides = []
        for pool in pools:
            pool.register_forward_hook(lambda module, given, out: sides.append(out.shape[-1]))
        model(torch.zeros(1, 3, 224, 224))
    assert sides == [112, 56, 28, 14, 7]  # 224 / 2⁵
    assert not [m for m in model.modules() if isinstance(m, nn.Conv2d) and m.stride != (1, 1)]


def test_layer_norm_of_an_image_has_no_weights_by_channel() -> None:
    x = torch.randn(2, 3, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert nn.LayerNorm((3, 4, 5)).weight.shape == (3, 4, 5)  # one for each entry
    by_channel = torch.tensor([1.0, 2.0, 3.0]).double()
    layer = F.layer_norm(x, (3, 4, 5), by_channel[:, None, None].expand(3, 4, 5).contiguous())
    torch.testing.assert_close(layer, F.group_norm(x, 1, by_channel))  # by channel it is GroupNorm with one group
    channels_last = F.layer_norm(x.permute(0, 2, 3, 1), (3,), by_channel).permute(0, 3, 1, 2)
    assert (channels_last - layer).abs().max() > 0.1  # ConvNeXt's: statistics of each pixel


def test_the_errors_of_the_winners_are_of_ensembles() -> None:
    def top5(name: str) -> dict[str, float]:
        results = card(name).published_results
        return {r.protocol: r.scores["top-5 error"] for r in results if "Caffe" not in r.source}

    assert top5("googlenet-2014") == {"single crop": 10.07, "7 networks, 144 crops": 6.67}
    assert top5("resnet152-v1") == {"single crop": 6.7, "10 crops": 5.71, "several scales": 4.49}  # none is 3.57


def test_the_transformers_bleu_is_printed_in_two_ways() -> None:
    results = [r for r in card("transformer-big").published_results if "French" in r.dataset]
    assert sorted(r.scores["BLEU"] for r in results) == [41.0, 41.8]
    assert len({r.source for r in results}) == 2


# --- residual networks --------------------------------------------------------------------------------------------


def outputs_of(*modules: nn.Module) -> list[torch.Tensor]:
    """Return a list to which every later call of these modules adds its output."""
    found: list[torch.Tensor] = []
    for module in modules:
        module.register_forward_hook(lambda m, given, out: found.append(out[0] if isinstance(out, tuple) else out))
    return found


def blocks_and_branches(net: Any, x: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return z_0 … z_L of the first stage of a ResNet for images x, and F(z_0) … F(z_{L−1})."""
    states, branches = [F.relu(net.bn1(net.conv1(x)))], []
    for block in net.layer1:
        y = F.relu(block.bn1(block.conv1(states[-1])))
        branches.append(block.bn2(block.conv2(y)))
        states.append(F.relu(branches[-1] + states[-1]))
    return states, branches


def test_a_resnet_is_not_the_sum_of_its_branches() -> None:
    torch.manual_seed(0)
    net: Any = create_model("resnet20").double()
    x = torch.randn(16, 3, 32, 32, dtype=torch.float64)
    with torch.no_grad():
        states, branches = blocks_and_branches(net, x)
        torch.testing.assert_close(net.layer1(states[0]), states[-1])  # it is the network's own stage
        missing = (states[-1] - states[0] - sum(branches)).norm() / states[-1].norm()
    assert missing > 0.5  # what the ReLUs after the sums cut, three times
    gpt: Any = create_model("gpt2", vocab_size=50, layers=4, dim=32, heads=2).eval().double()
    added = outputs_of(*(part for block in gpt.blocks for part in (block.attention, block.mlp)))
    entered, left = outputs_of(gpt.dropout), outputs_of(gpt.blocks[-1])
    with torch.no_grad():
        gpt(torch.arange(20)[None])
    assert len(added) == 8
    torch.testing.assert_close(entered[0] + sum(added), left[0])  # nothing after the sums: it holds


def test_the_relu_after_the_sum_cuts_the_gradient_of_the_shortcut() -> None:
    torch.manual_seed(0)
    net: Any = create_model("resnet20").double()
    states, _ = blocks_and_branches(net, torch.randn(16, 3, 32, 32, dtype=torch.float64))
    cut = [(z == 0).double().mean().item() for z in states[1:]]
    assert min(cut) > 0.2  # of each block's output: there the gradient of the block's input is 0, shortcut or not
    z = states[0].detach().requires_grad_()
    z_next = net.layer1[0](z)
    upstream = torch.randn(z_next.shape, dtype=torch.float64)
    dead = (z_next == 0).detach()
    z_next.backward(upstream * dead)
    assert not z.grad.any()


def test_a_state_does_not_depend_on_the_weights_after_it() -> None:
    generator = torch.Generator().manual_seed(0)
    z, weight = (torch.randn(4, 4, dtype=torch.float64, generator=generator).requires_grad_() for _ in range(2))
    before = z.tanh()  # z_l
    branch = before @ weight  # F(z_l, θ_l)
    after = before + branch
    loss = after.square().sum()
    (at_output,) = torch.autograd.grad(loss, after, retain_graph=True)
    (gradient,) = torch.autograd.grad(loss, weight, retain_graph=True)
    assert torch.autograd.grad(before.sum(), weight, allow_unused=True, retain_graph=True) == (None,)  # ∂z_l/∂θ_l
    torch.testing.assert_close(gradient, before.T @ at_output)  # (∂F/∂θ_l)ᵀ ∂L/∂z_{l+1}


# --- attention: rows and columns ----------------------------------------------------------------------------------


def attention_of_rows() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return queries, keys (6, 4) and values (6, 3) as rows, and their attention."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(6, d, dtype=torch.float64, generator=generator) for d in (4, 4, 3))
    return q, k, v, scaled_dot_product(q, k, v)[0]


def test_with_tokens_as_columns_the_scores_are_k_transposed_q() -> None:
    q, k, v, right = attention_of_rows()
    Q, K, V = q.T, k.T, v.T  # a token is a column: (d, T)
    assert (Q @ K.T).shape == (4, 4)  # a matrix of dimensions, not of tokens
    by_column = torch.softmax(K.T @ Q / 2, dim=0)  # column i: the weights of query i
    torch.testing.assert_close(by_column.sum(0), torch.ones(6).double())
    torch.testing.assert_close(V @ by_column, right.T)
    by_row = torch.softmax(Q.T @ K / 2, dim=1)  # the transpose: a query is a row
    torch.testing.assert_close(V @ by_row.T, right.T)


def test_the_softmax_runs_over_the_keys_of_a_query() -> None:
    q, k, v, right = attention_of_rows()
    scores = q @ k.T / 2  # G_ij = S(q_i, k_j)
    torch.testing.assert_close(torch.softmax(scores, 1) @ v, right)
    over_queries = torch.softmax(scores, 0)  # "column by column"
    assert (over_queries.sum(1) - 1).abs().max() > 0.3  # no query has weights that sum to 1
    far = torch.full((6,), 10.0).double()
    moved = torch.softmax(scores, 0) @ (v + far[:, None])
    assert (moved - over_queries @ v - 10).abs().max() > 3  # all values moved by 10, and the outputs by another number
    torch.testing.assert_close(scaled_dot_product(q, k, v + far[:, None])[0], right + 10)


def test_one_output_needs_all_values() -> None:
    q, k, v, right = attention_of_rows()
    weights = torch.softmax(k @ q[5] / 2, 0)  # softmax(g_6), (6,)
    torch.testing.assert_close(weights @ v, right[5])  # Σ_j α_6j v_j
    with pytest.raises(RuntimeError):
        v[5] @ weights  # V_6ᵀ softmax(G_6): 3 numbers by 6
    assert (v[5] * weights.sum() - right[5]).abs().max() > 0.3  # and the sum of its weights is 1: only v_6


def test_queries_attend_to_keys() -> None:
    q, k, v, right = attention_of_rows()
    other_query, other_key = q.clone(), k.clone()
    other_query[2] += 1
    other_key[2] += 1
    changed = [(scaled_dot_product(a, b, v)[0] != right).any(1).tolist() for a, b in ((other_query, k), (q, other_key))]
    assert changed[0] == [False, False, True, False, False, False]  # the query's own output
    assert changed[1] == [True] * 6  # a key is read by every query
    torch.testing.assert_close(attention_weights(q, k).sum(1), torch.ones(6).double())  # a distribution for each query


def test_weights_that_depend_on_the_input_multiply_from_the_left() -> None:
    q, k, v, right = attention_of_rows()
    w = attention_weights(q, k)  # W(Q, K): (6, 6)
    torch.testing.assert_close(w @ v, right)
    with pytest.raises(RuntimeError):
        v @ w  # (6, 3) by (6, 6)


def test_a_projection_is_of_rows_or_of_columns() -> None:
    generator = torch.Generator().manual_seed(0)
    x, w = torch.randn(4, dtype=torch.float64, generator=generator), torch.randn(3, 4, dtype=torch.float64)
    torch.testing.assert_close(F.linear(x, w), w @ x)  # a column: W_V x
    torch.testing.assert_close(F.linear(x, w), x @ w.T)  # a row: xᵀ W_Vᵀ
    with pytest.raises(RuntimeError):
        x @ w  # xᵀ W_V
    square = torch.randn(4, 4, dtype=torch.float64, generator=generator)
    assert (x @ square - square @ x).abs().max() > 0.1  # of equal sizes there is no error, and another result


def test_layer_norms_gains_are_vectors() -> None:
    assert nn.LayerNorm(768).weight.shape == nn.LayerNorm(768).bias.shape == (768,)
    model: Any = create_model("gpt2", vocab_size=10, layers=1, dim=64, heads=2)
    assert model.blocks[0].norm1.weight.shape == (64,)
    with pytest.raises(RuntimeError):
        F.layer_norm(torch.zeros(2, 64), (64,), torch.ones(1))


def test_gpts_block_is_the_encoders_with_a_mask() -> None:
    def size(name: str, part: str) -> int:
        with torch.device("meta"):
            block = create_model(name, layers=1).get_submodule(part)
        return sum(p.numel() for p in block.parameters())

    gpt, bert = size("gpt2", "blocks.0"), size("bert-base-uncased", "blocks.0")
    assert gpt == bert == 12 * 768**2 + 13 * 768 == 7_087_872
    encoder, decoder = size("transformer-base", "encoder.0"), size("transformer-base", "decoder.0")
    assert decoder - encoder == 4 * (512**2 + 512) + 2 * 512  # the attention over the source, and its normalization
    model: Any = create_model("gpt2", vocab_size=10, layers=1, dim=64, heads=2)
    assert not [name for name, _ in model.named_modules() if "cross" in name]


def test_a_query_key_matrix_has_the_rank_of_a_head() -> None:
    generator = torch.Generator().manual_seed(0)
    d, d_k = 32, 4
    w_q, w_k, change = (torch.randn(n, d_k, dtype=torch.float64, generator=generator) for n in (d, d, d_k))
    w_qk = w_q @ w_k.T
    assert w_qk.shape == (d, d)
    assert torch.linalg.matrix_rank(w_qk) == d_k
    torch.testing.assert_close((w_q @ change) @ (w_k @ torch.linalg.inv(change).T).T, w_qk)  # d_k² numbers are free
    jacobian = torch.autograd.functional.jacobian(lambda a, b: (a @ b.T).flatten(), (w_q, w_k))
    columns = torch.cat([part.flatten(1) for part in jacobian], 1)
    assert torch.linalg.matrix_rank(columns) == 2 * d * d_k - d_k**2 == 240  # of 1024 numbers


def test_an_embedding_is_no_encoding() -> None:
    torch.manual_seed(0)
    model: Any = create_model("bert-base-uncased", vocab_size=50, layers=1, dim=32, ffn_dim=64, heads=2).eval()
    texts = torch.tensor([[7, 3, 4], [7, 8, 9]])  # the first token is the same
    embedded, encoded = model.embedding(texts), outputs_of(model.blocks[0])
    with torch.no_grad():
        model(texts)
    assert torch.equal(embedded[0, 0], embedded[1, 0])
    assert (encoded[0][0, 0] - encoded[0][1, 0]).abs().max() > 1e-3


def test_a_row_of_minus_infinity_is_not_a_number() -> None:
    hidden = torch.full((1, 3), -math.inf)
    assert torch.softmax(hidden, 1).isnan().all()
    q, k, v, _ = (part.float() for part in attention_of_rows())
    mask = torch.ones(6, 6, dtype=torch.bool)
    mask[2] = False
    plain = torch.softmax((q @ k.T / 2).masked_fill(~mask, -math.inf), 1) @ v
    assert plain[2].isnan().all()
    assert not scaled_dot_product(q, k, v, mask)[0][2].any()  # 0, and no NaN
    q.requires_grad_()
    scaled_dot_product(q, k, v, mask)[0].sum().backward()
    assert q.grad.isfinite().all()


def test_an_odd_dimension_has_a_sine_more() -> None:
    d = 7
    table, position = torch.zeros(5, d), torch.arange(5.0)[:, None]
    angles = position * torch.exp(torch.arange(0, d, 2) * (-math.log(10_000) / d))  # (5, 4)
    table[:, 0::2] = angles.sin()
    with pytest.raises(RuntimeError, match="size"):
        table[:, 1::2] = angles.cos()  # three columns are left for four cosines
    table[:, 1::2] = angles.cos()[:, : d // 2]
    torch.testing.assert_close(sinusoids(torch.arange(5), d), table)


def test_a_sinusoid_alone_repeats_and_all_of_them_do_not() -> None:
    table = sinusoids(torch.arange(20_001), 512, torch.float64)
    assert (table[0, :2] - table[710, :2]).abs().max() < 1e-4  # 710 is 113 turns of 2π
    assert (table[0] - table[710]).abs().max() > 0.9  # the slower ones have not come back
    nearest = torch.cdist(table[:1], table[1:]).min()
    assert nearest > 1  # of 20 000 positions none is close to the first
    slowest = table[:, -2]  # sin(t / 9647): a quarter of a turn is 15 153 positions
    assert slowest[:512].max() < 0.06
    assert slowest[512:].min() > slowest[:512].max()  # what it reads later was never seen in the first 512


# --- outputs, losses and sizes ------------------------------------------------------------------------------------


def test_leaky_relu_is_monotonic() -> None:
    x = torch.linspace(-6, 6, 2001, dtype=torch.float64)
    assert (F.leaky_relu(x, 0.01).diff() > 0).all()
    for bent in (F.silu, F.gelu, F.mish):
        assert (bent(x).diff() < 0).any()  # these are not: they fall before they rise


def test_a_sigmoid_of_a_sigmoid_is_above_a_half() -> None:
    z = torch.linspace(-50, 50, 1001, dtype=torch.float64)
    assert (z.sigmoid().sigmoid() >= 0.5).all()
    assert z.sigmoid().sigmoid().max() < 0.7311  # σ(1)
    assert ((z.sigmoid() >= 0.5) == (z >= 0)).all()


def test_logits_have_no_activation() -> None:
    model = create_model("mlp", in_features=4, num_classes=3)
    logits = model(torch.randn(200, 4, generator=torch.Generator().manual_seed(0)))
    assert logits.min() < 0 < logits.max()
    best = torch.full((1, 10), 0.0)
    best[0, 1] = 1.0  # what sigmoids can say at most
    assert F.cross_entropy(best, torch.tensor([1])).item() == pytest.approx(1.46, abs=0.005)
    z = torch.full((1, 10), -1.0, requires_grad=True)
    F.cross_entropy(z.relu(), torch.tensor([1])).backward()
    assert not z.grad.any()  # all below 0: the loss is ln 10, and nothing is learned


def test_the_rate_scales_a_step_and_the_gradient_directs_it() -> None:
    steps = []
    for rate in (0.01, 0.1):
        weight = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=rate)
        (weight**2 * torch.tensor([1.0, 4.0, 9.0])).sum().backward()
        before, gradient = weight.detach().clone(), weight.grad.clone()
        optimizer.step()
        steps.append(weight.detach() - before)
    torch.testing.assert_close(steps[1], 10 * steps[0])  # the size
    for step in steps:
        assert F.cosine_similarity(step, -gradient, dim=0).item() == pytest.approx(1.0)  # the direction


def test_a_loss_without_parameters_has_no_gradient() -> None:
    x, w = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    with pytest.raises(RuntimeError, match="does not require grad"):
        (x @ w).backward()
    w.requires_grad_()
    (x @ w).backward()
    assert w.grad.tolist() == [1.0, 2.0]


def test_pytorchs_recurrent_layers_have_two_biases() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 5, 3)
    lstm, gru = nn.LSTM(3, 4, batch_first=True), nn.GRU(3, 4, batch_first=True)
    assert sum(p.numel() for p in lstm.parameters()) == 4 * (4 * 3 + 4 * 4 + 2 * 4)
    assert sum(p.numel() for p in gru.parameters()) == 3 * (4 * 3 + 4 * 4 + 2 * 4)
    with torch.no_grad():
        before = [lstm(x)[0], gru(x)[0]]
        for layer in (lstm, gru):
            layer.bias_ih_l0 += layer.bias_hh_l0
            layer.bias_hh_l0.zero_()
        torch.testing.assert_close(lstm(x)[0], before[0])  # one is enough
        assert (gru(x)[0] - before[1]).abs().max() > 1e-3  # the reset gate multiplies the second of n


def test_pytorchs_update_gate_keeps() -> None:
    torch.manual_seed(0)
    cell = nn.GRUCell(3, 4)
    x, h = torch.randn(2, 3), torch.randn(2, 4)
    weights = (cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)
    step = gru_step(x, (h,), weights, "after")
    z, n = step["update"], step["candidate"]
    torch.testing.assert_close(cell(x, h), (1 - z) * n + z * h)
    torch.testing.assert_close(step["state"], cell(x, h))
    assert ((1 - z) * h + z * n - cell(x, h)).abs().max() > 0.05  # as J. Chung and others write it
    with torch.no_grad():
        for part in weights:
            part[4:8] *= -1  # σ(−a) = 1 − σ(a): the same network in their notation
    step = gru_step(x, (h,), weights, "after")
    torch.testing.assert_close((1 - step["update"]) * h + step["update"] * n, (1 - z) * n + z * h)


def test_labels_begin_at_zero() -> None:
    logits = torch.zeros(2, 3)
    assert F.cross_entropy(logits, torch.tensor([0, 2])).item() == pytest.approx(math.log(3))
    with pytest.raises(IndexError):
        F.cross_entropy(logits, torch.tensor([1, 3]))  # 1 … 3 of three classes


def test_sizes_of_networks_have_no_rule() -> None:
    small = {name: card(name).published_parameters for name in ("softmax", "gru-mnist1d", "cnn1d", "gcn")}
    assert small == {"softmax": 410, "gru-mnist1d": 5134, "cnn1d": 5210, "gcn": 23_040}
    counts = [preset.card.published_parameters or 0 for preset in presets().values()]
    assert max(counts) == card("gpt2-xl").published_parameters == 1_557_611_200  # 0.0016 of a trillion


# --- measured -----------------------------------------------------------------------------------------------------


def club_accuracy(relu: bool, seed: int) -> tuple[int, float]:
    """Train a GCN on the karate club by its two leaders: correct members of 32, and the loss at the end."""
    club = networkx.karate_club_graph()
    edges = torch.tensor(list(club.edges)).T
    edges = torch.cat([edges, edges.flip(0)], 1)
    faction = torch.tensor([int(club.nodes[i]["club"] != "Mr. Hi") for i in range(34)])
    leaders, others, x = torch.tensor([0, 33]), torch.arange(1, 33), torch.eye(34)
    torch.manual_seed(seed)
    model = create_model("gcn", in_features=34, num_classes=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(200):
        logits = model(x, edges)
        loss = F.cross_entropy((logits.relu() if relu else logits)[leaders], faction[leaders])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    logits = model.eval()(x, edges)
    logits = logits.relu() if relu else logits
    return int((logits[others].argmax(1) == faction[others]).sum()), loss.item()


def test_a_relu_after_a_gcn_can_keep_a_leader_from_being_learned() -> None:
    (right, loss), (with_relu, stuck) = (club_accuracy(relu, seed=6) for relu in (False, True))
    assert (right, with_relu) == (31, 16)  # of 32
    assert loss < 0.01 < 0.3 < stuck  # the logit of one leader is 0 for good


@pytest.mark.slow
def test_a_relu_after_a_gcn_costs_accuracy_on_the_karate_club() -> None:
    found = {relu: [club_accuracy(relu, seed) for seed in range(10)] for relu in (False, True)}
    mean = {relu: sum(right for right, _ in runs) / 320 for relu, runs in found.items()}
    stuck = {relu: sum(loss > 0.2 for _, loss in runs) for relu, runs in found.items()}
    assert mean[False] == pytest.approx(0.966, abs=0.01)
    assert mean[True] == pytest.approx(0.903, abs=0.02)
    assert stuck == {False: 0, True: 2}


def test_a_regression_with_a_column_and_a_row_learns_the_mean() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 1, generator=generator)
    y = (2 * x + 1 + 0.1 * torch.randn(64, 1, generator=generator)).squeeze(1)  # (64,)
    found = {}
    for squeezed in (True, False):
        torch.manual_seed(0)
        model = nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(300):
            prediction = model(x).squeeze(1) if squeezed else model(x)
            optimizer.zero_grad()
            ((prediction - y) ** 2).mean().backward()
            optimizer.step()
        rmse = (model(x).squeeze(1) - y).square().mean().sqrt().item()
        found[squeezed] = (model.weight.item(), rmse)
    assert found[True] == pytest.approx((2.0, 0.1), abs=0.03)
    assert found[False][0] == pytest.approx(0.0, abs=1e-3)  # no slope is learned
    assert found[False][1] == pytest.approx(y.std(unbiased=False).item(), abs=1e-3)


@pytest.mark.parametrize(("positions", "generalizes"), [("sinusoids", False), ("alibi", True)])
def test_sinusoids_do_not_generalize_to_longer_sequences(positions: str, generalizes: bool) -> None:
    """Trained on 16 letters that repeat after 3 to 6, tested on 16 and on 64. The share of right repeated letters."""
    length, dim = 16, 48
    torch.manual_seed(0)
    net = create_model(
        "parallel-transformer",
        vocab_size=length,
        context_length=4 * length,
        dim=dim,
        layers=2,
        heads=4,
        ffn_dim=8,
        order="pre",
        positions=positions,
        tie_weights=False,
    )
    nn.init.normal_(net.embedding.weight, std=dim**-0.5 if positions == "sinusoids" else 1.0)
    for block in net.blocks:  # larger than GPT-2's initialization, so that 300 updates are enough
        for weight in (block.attention.out.weight, *block.attention.qkv.weight.chunk(3)):
            nn.init.xavier_uniform_(weight.detach())
    generator = torch.Generator().manual_seed(0)

    def texts(count: int, letters: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.randint(0, length, (count, letters), generator=generator)
        period = torch.randint(3, 7, (count, 1), generator=generator)
        return x.gather(1, torch.arange(letters) % period), torch.arange(1, letters) > period

    def accuracy(letters: int) -> float:
        x, again = texts(200, letters)
        with torch.no_grad():
            right = net(x[:, :-1]).argmax(2) == x[:, 1:]
        return right[again].float().mean().item()

    steps = 300
    optimizer = torch.optim.AdamW(net.parameters(), betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, total_steps=steps, pct_start=0.1)
    for _ in range(steps):
        x, _ = texts(32, length)
        loss = F.cross_entropy(net(x[:, :-1]).transpose(1, 2), x[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    net.eval()
    short, long = accuracy(length), accuracy(4 * length)
    assert short > 0.8
    assert (long > short - 0.07) == generalizes, (short, long)
