"""Losses: PyTorch's fused functions are the formulas, and no finite output makes a loss that is not finite."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutaway.core.errors import SettingError
from cutaway.nn import losses
from cutaway.nn.losses import (
    LOSSES,
    binary_cross_entropy,
    cross_entropy,
    example_weights,
    linear_cross_entropy,
    map_criterion,
    perceptron,
)

sizes = {"n": st.integers(1, 5), "k": st.integers(2, 5), "seed": st.integers(0, 1000)}


def draw(n: int, k: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Logits (n, k), classes (n,) and class weights (k,)."""
    g = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(n, k, generator=g, dtype=torch.float64)
    return logits, torch.randint(k, (n,), generator=g), torch.rand(k, generator=g, dtype=torch.float64) + 0.1


@settings(max_examples=40, deadline=None)
@given(**sizes, smoothing=st.sampled_from([0.0, 0.1, 0.5]), weighted=st.booleans(), shares=st.booleans())
def test_cross_entropy_is_the_formula(
    n: int, k: int, seed: int, smoothing: float, weighted: bool, shares: bool
) -> None:
    logits, target, weights = draw(n, k, seed)
    q = F.one_hot(target, k).double()
    if shares:
        q = target = torch.rand(n, k, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    q = (1 - smoothing) * q + smoothing / k
    w = weights if weighted else torch.ones(k, dtype=torch.float64)
    expected = -(w * q * (logits.exp() / logits.exp().sum(1, keepdim=True)).log()).sum(1)
    found = cross_entropy(logits, target, label_smoothing=smoothing, class_weights=weights if weighted else None)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(**sizes, smoothing=st.sampled_from([0.0, 0.1]))
def test_the_weighted_mean_is_pytorchs(n: int, k: int, seed: int, smoothing: float) -> None:
    logits, target, weights = draw(n, k, seed)
    mean = cross_entropy(logits, target, label_smoothing=smoothing, class_weights=weights).sum()
    mean = mean / example_weights(target, weights).sum()
    expected = F.cross_entropy(logits, target, weight=weights, label_smoothing=smoothing)
    torch.testing.assert_close(mean, expected, rtol=1e-12, atol=1e-14)


@settings(max_examples=25, deadline=None)
@given(**sizes)
def test_one_hot_shares_are_the_classes(n: int, k: int, seed: int) -> None:
    logits, target, weights = draw(n, k, seed)
    shares = F.one_hot(target, k).float()
    for smoothing in (0.0, 0.2):
        torch.testing.assert_close(
            cross_entropy(logits, shares, label_smoothing=smoothing, class_weights=weights),
            cross_entropy(logits, target, label_smoothing=smoothing, class_weights=weights),
        )
    torch.testing.assert_close(
        example_weights(shares, weights).double(), example_weights(target, weights), rtol=1e-6, atol=0
    )
    assert example_weights(target).tolist() == [1.0] * n


@settings(max_examples=40, deadline=None)
@given(**sizes, smoothing=st.sampled_from([0.0, 0.1]), weighted=st.booleans(), shares=st.booleans())
def test_one_logit_is_two_with_the_first_at_zero(
    n: int, k: int, seed: int, smoothing: float, weighted: bool, shares: bool
) -> None:
    del k
    logits, target, weights = draw(n, 2, seed)
    z = logits[:, :1]
    if shares:
        target = torch.softmax(logits.flip(1), 1)
    options = {"label_smoothing": smoothing, "class_weights": weights if weighted else None}
    expected = cross_entropy(torch.cat([torch.zeros_like(z), z], dim=1), target, **options)
    torch.testing.assert_close(cross_entropy(z, target, **options), expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(binary_cross_entropy(z, target, **options), expected, rtol=1e-10, atol=1e-12)


def test_the_gradient_of_cross_entropy_is_the_difference() -> None:
    logits, target, _ = draw(4, 3, 0)
    logits.requires_grad_()
    cross_entropy(logits, target).sum().backward()
    torch.testing.assert_close(logits.grad, logits.softmax(1).detach() - F.one_hot(target, 3))


@pytest.mark.parametrize(
    ("name", "k"),
    [(name, k) for name in sorted(LOSSES) for k in (1, 3) if (name, k) != ("map", 1)],  # map has one for each class
)
@pytest.mark.parametrize("scale", [1e4, -1e4])
def test_extreme_outputs_make_finite_losses_and_gradients(name: str, k: int, scale: float) -> None:
    outputs = scale * torch.tensor([[1.0, -1.0, 0.0], [-1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])[:, :k]
    outputs.requires_grad_()
    target = torch.tensor([0, 1, 0])
    value = LOSSES[name](outputs, outputs.detach().roll(1, 0) if name in ("mse", "half_squared_error") else target)
    value.sum().backward()
    assert value.shape == (3,)
    assert value.isfinite().all()
    assert outputs.grad is not None
    assert outputs.grad.isfinite().all()


def test_extreme_logits_with_class_weights() -> None:
    z = torch.tensor([[1e4], [-1e4]], requires_grad=True)
    value = cross_entropy(z, torch.tensor([0, 1]), class_weights=torch.tensor([2.0, 3.0]))
    assert value.tolist() == [2e4, 3e4]
    value.sum().backward()
    assert z.grad is not None
    assert z.grad.tolist() == [[2.0], [-3.0]]


@settings(max_examples=25, deadline=None)
@given(**sizes)
def test_squared_errors_are_the_formulas(n: int, k: int, seed: int) -> None:
    y, _, _ = draw(n, k, seed)
    t, _, _ = draw(n, k, seed + 1)
    torch.testing.assert_close(losses.half_squared_error(y, t), 0.5 * ((y - t) ** 2).sum(1))
    torch.testing.assert_close(losses.mse(y, t), ((y - t) ** 2).sum(1) / k)
    y.requires_grad_()
    losses.half_squared_error(y, t).sum().backward()
    torch.testing.assert_close(y.grad, (y - t).detach())


def test_a_column_of_outputs_pairs_with_a_row_of_values() -> None:
    outputs, target = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([1.0, 0.0, 0.0])
    assert losses.mse(outputs, target).tolist() == [0, 4, 9]  # and not nine differences
    with pytest.raises(ValueError, match="do not pair"):
        losses.mse(outputs, torch.zeros(3, 2))


def test_the_perceptron_criterion_moves_by_rosenblatts_rule() -> None:
    scores = torch.tensor([[2.0], [-2.0], [0.0], [2.0], [-2.0], [0.0]], requires_grad=True)
    target = torch.tensor([1, 1, 1, 0, 0, 0])
    value = perceptron(scores, target)
    assert value.tolist() == [0, 2, 0, 2, 0, 0]
    value.sum().backward()
    assert scores.grad is not None
    # Minus y at a mistake, and a score of zero is one; nothing where the answer is right.
    assert scores.grad[:, 0].tolist() == [0, -1, -1, 1, 0, 1]


@settings(max_examples=25, deadline=None)
@given(n=st.integers(1, 5), k=st.integers(3, 5), seed=st.integers(0, 1000))
def test_several_perceptrons_are_each_one_against_the_rest(n: int, k: int, seed: int) -> None:
    scores, target, _ = draw(n, k, seed)
    each = sum(perceptron(scores[:, [i]], (target == i).long()) for i in range(k))
    torch.testing.assert_close(perceptron(scores, target), each)


@settings(max_examples=25, deadline=None)
@given(**sizes, rubbish=st.floats(0.1, 5))
def test_the_map_criterion_is_equation_9(n: int, k: int, seed: int, rubbish: float) -> None:
    y = draw(n, k, seed)[0] ** 2
    target = draw(n, k, seed)[1]
    right = y[torch.arange(n), target]
    expected = right + (math.exp(-rubbish) + (-y).exp().sum(1)).log()
    torch.testing.assert_close(map_criterion(-y, target, rubbish=rubbish), expected, rtol=1e-10, atol=1e-12)
    assert (expected > 0).all()


@pytest.mark.parametrize("name", ["perceptron", "map"])
def test_blended_classes_are_rejected_where_a_loss_needs_one(name: str) -> None:
    with pytest.raises(SettingError, match=rf"loss={name}.*mixup"):
        LOSSES[name](torch.zeros(2, 3), torch.full((2, 3), 1 / 3))


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_not_a_number_stays_visible(name: str) -> None:
    outputs = torch.full((1, 2), math.nan)
    target = torch.zeros(1, 2) if name in ("mse", "half_squared_error") else torch.tensor([1])
    assert LOSSES[name](outputs, target).isnan().all()


def last_layer(n: int, d: int, k: int, seed: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Features (n, d), a matrix (k, d), a bias (k,), all of which learn, and classes (n,)."""
    g = torch.Generator().manual_seed(seed)
    drawn = [torch.randn(*shape, generator=g, dtype=dtype).requires_grad_() for shape in ((n, d), (k, d), (k,))]
    return [*drawn, torch.randint(k, (n,), generator=g)]


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(0, 9),
    k=st.integers(2, 12),
    chunk=st.integers(1, 11),
    seed=st.integers(0, 1000),
    smoothing=st.sampled_from([0.0, 0.1, 0.7]),
    biased=st.booleans(),
)
def test_in_chunks_it_is_the_loss_and_every_gradient_of_the_whole(
    n: int, k: int, chunk: int, seed: int, smoothing: float, biased: bool
) -> None:
    x, weight, bias, target = last_layer(n, 4, k, seed)
    learn = [x, weight, bias] if biased else [x, weight]
    given_bias = bias if biased else None
    whole = F.cross_entropy(F.linear(x, weight, given_bias), target, reduction="sum", label_smoothing=smoothing)
    expected = torch.autograd.grad(whole / 3, learn)  # a batch's loss is divided by what was counted
    loss = linear_cross_entropy(x, weight, given_bias, target, label_smoothing=smoothing, chunk=chunk)
    found = torch.autograd.grad(loss / 3, learn)
    torch.testing.assert_close(loss, whole, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_logits_of_any_size_have_a_loss_in_chunks() -> None:
    x = torch.tensor([[3e38], [-3e38], [1e4]], requires_grad=True)
    weight = torch.tensor([[1.0], [-1.0], [0.5]], requires_grad=True)
    loss = linear_cross_entropy(x, weight, None, torch.tensor([0, 1, 0]), chunk=2)
    assert loss.item() == 0
    assert all(torch.isfinite(g).all() for g in torch.autograd.grad(loss, [x, weight]))


@pytest.mark.parametrize("still", range(3), ids=["features", "weight", "bias"])
def test_what_does_not_learn_has_no_gradient_in_chunks(still: int) -> None:
    *layer, target = last_layer(7, 3, 5, seed=1)
    F.cross_entropy(F.linear(*layer), target, reduction="sum").backward()
    expected = [p.grad for p in layer]
    for i, p in enumerate(layer):
        p.grad = None
        p.requires_grad_(i != still)
    linear_cross_entropy(*layer, target, chunk=3).backward()
    assert layer[still].grad is None
    learned = [i for i in range(3) if i != still]
    torch.testing.assert_close([layer[i].grad for i in learned], [expected[i] for i in learned], rtol=1e-10, atol=1e-10)


def test_without_gradients_none_are_made_in_chunks() -> None:
    *layer, target = last_layer(7, 3, 5, seed=2)
    with torch.no_grad():
        loss = linear_cross_entropy(*layer, target, chunk=3)
    assert not loss.requires_grad
    torch.testing.assert_close(loss, F.cross_entropy(F.linear(*layer), target, reduction="sum"))


def test_gradients_that_were_given_away_are_not_given_again() -> None:
    *layer, target = last_layer(7, 3, 5, seed=3)
    loss = linear_cross_entropy(*layer, target, chunk=3)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize(("biased", "label_smoothing"), [(True, 0.0), (False, 0.0), (False, 0.1)])
def test_in_bfloat16_chunks_are_as_near_as_the_whole(biased: bool, label_smoothing: float) -> None:
    x, weight, bias, target = last_layer(96, 32, 50, seed=4, dtype=torch.float32)
    layer = [x, weight, bias] if biased else [x, weight]
    smoothing: dict[str, Any] = {"reduction": "sum", "label_smoothing": label_smoothing}
    exact = torch.autograd.grad(F.cross_entropy(F.linear(*layer), target, **smoothing), layer)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        whole = F.cross_entropy(F.linear(*layer), target, **smoothing)
        chunks = linear_cross_entropy(
            x, weight, bias if biased else None, target, label_smoothing=label_smoothing, chunk=10
        )
    assert chunks.dtype == torch.float32
    assert chunks.item() == pytest.approx(whole.item(), rel=1e-3)
    of_whole, of_chunks = torch.autograd.grad(whole, layer), torch.autograd.grad(chunks, layer)
    for found, other, right in zip(of_chunks, of_whole, exact):
        assert found.dtype == torch.float32
        assert (found - right).norm() < 1.25 * (other - right).norm() < 0.02 * right.norm()


def views(n: int = 5, seed: int = 3) -> tuple[Tensor, Tensor]:
    """Two views of each of n examples, (n, 4)."""
    one, other = torch.randn(2, n, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return one, other


def test_nt_xent_is_the_papers_sum_written_out() -> None:
    one, other = views()
    z, n, tau = torch.cat([one, other]), len(one), 0.3

    def similar(i: int, j: int) -> float:
        return (z[i] @ z[j] / (z[i].norm() * z[j].norm())).item()

    def term(i: int, j: int) -> float:
        others = sum(math.exp(similar(i, k) / tau) for k in range(2 * n) if k != i)
        return -math.log(math.exp(similar(i, j) / tau) / others)

    expected = [(term(i, i + n) + term(i + n, i)) / 2 for i in range(n)]
    assert losses.nt_xent(one, other, tau).tolist() == pytest.approx(expected, rel=1e-12)


def test_nt_xent_knows_no_order_of_pairs_and_no_side() -> None:
    one, other = views()
    order = torch.tensor([3, 0, 4, 1, 2])
    found = losses.nt_xent(one, other, 0.5)
    assert torch.allclose(losses.nt_xent(one[order], other[order], 0.5), found[order], rtol=0, atol=1e-12)
    assert torch.allclose(losses.nt_xent(other, one, 0.5), found, rtol=0, atol=1e-12)
    assert torch.autograd.gradcheck(lambda a, b: losses.nt_xent(a, b, 0.5), [x.requires_grad_() for x in views()])
