"""Masks: what hides, and many of them made one."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutaway.nn.masks import attention_mask, causal_mask, masked_softmax, merge_masks


def test_a_causal_mask_by_hand() -> None:
    assert causal_mask(3, 3).int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert causal_mask(2, 4).int().tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]  # the queries are the last two


def test_padding_and_order_are_one_mask() -> None:
    real = torch.tensor([[True, True, True], [True, True, False]])
    both = attention_mask(real, True, 3)
    assert both is not None
    assert both.int()[:, 0].tolist() == [[[1, 0, 0], [1, 1, 0], [1, 1, 1]], [[1, 0, 0], [1, 1, 0], [1, 1, 0]]]
    padding = attention_mask(real, False, 3)
    assert padding is not None
    assert padding.shape == (2, 1, 1, 3)
    assert attention_mask(None, False, 3) is None
    order = attention_mask(None, True, 3)
    assert order is not None
    assert order.shape == (1, 1, 3, 3)


def test_biases_add_up_and_what_one_hides_is_hidden() -> None:
    a, b = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5, -math.inf, 0.5])
    found = merge_masks(a, torch.tensor([True, True, False]), None, b)
    assert found is not None
    assert found.tolist() == [1.5, -math.inf, -math.inf]
    assert merge_masks(None, None) is None
    assert merge_masks(a) is a
    wide = merge_masks(torch.zeros(1, 2, 3, 4), torch.ones(5, 1, 1, 4, dtype=torch.bool))
    assert wide is not None
    assert wide.shape == (5, 2, 3, 4)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10_000), count=st.integers(1, 4), order=st.randoms(use_true_random=False))
def test_the_order_of_masks_does_not_matter(seed: int, count: int, order: object) -> None:
    generator = torch.Generator().manual_seed(seed)
    given_masks: list[Tensor | None] = [torch.rand(3, 4, generator=generator) > 0.4 for _ in range(count)]
    given_masks += [torch.randn(3, 4, generator=generator, dtype=torch.float64), None]
    shuffled = list(given_masks)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = merge_masks(*given_masks), merge_masks(*shuffled)
    assert one is not None
    assert other is not None
    torch.testing.assert_close(one, other)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10_000), additive=st.booleans())
def test_a_softmax_is_over_what_is_seen(seed: int, additive: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(4, 5, generator=generator, dtype=torch.float64).requires_grad_()
    may = torch.rand(4, 5, generator=generator) > 0.5
    mask = torch.zeros(4, 5, dtype=torch.float64).masked_fill(~may, -math.inf) if additive else may
    weights = masked_softmax(scores, mask)
    (gradient,) = torch.autograd.grad(weights, scores, torch.randn(4, 5, generator=generator, dtype=torch.float64))
    assert gradient.isfinite().all()
    assert not gradient[~may].any()
    for row, seen, found in zip(scores, may, weights):
        torch.testing.assert_close(found[seen], torch.softmax(row[seen], 0))
        assert not found[~seen].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_without_a_mask_it_is_the_softmax(dtype: torch.dtype) -> None:
    scores = torch.randn(3, 4).to(dtype)
    assert torch.equal(masked_softmax(scores), torch.softmax(scores, -1))
