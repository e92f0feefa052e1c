"""Attention: by hand, by the fused kernel, by PyTorch's own layer, and what does not change it."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from cutaway.errors import ModelError
from cutaway.nn.attention import MultiHeadAttention, scaled_dot_product


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Float64 numbers from the standard normal distribution."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def layer(dim: int = 12, heads: int = 3) -> MultiHeadAttention:
    """A layer in float64 whose biases are not zero."""
    torch.manual_seed(0)
    made = MultiHeadAttention(dim, heads).double()
    for bias in (made.qkv.bias, made.out.bias):
        nn.init.normal_(bias)
    return made


def test_an_example_by_hand() -> None:
    """d_k = 4, so scores are halved: 2 ln 3 becomes ln 3, whose exponential is 3, beside e⁰ = 1."""
    q = torch.tensor([[1.0, 0, 0, 0]])
    k = torch.tensor([[2 * math.log(3), 0, 0, 0], [0, 5, 0, 0]])
    v = torch.tensor([[4.0, 0], [8, -4]])
    result, weights = scaled_dot_product(q, k, v)
    torch.testing.assert_close(weights, torch.tensor([[0.75, 0.25]]))
    torch.testing.assert_close(result, torch.tensor([[5.0, -1.0]]))


def masks(queries: int, keys: int) -> dict[str, Tensor | None]:
    """No mask, each query up to its own place, the last keys padding in one example, one query that sees nothing."""
    causal = torch.ones(queries, keys, dtype=torch.bool).tril()
    padding = torch.ones(2, 1, 1, keys, dtype=torch.bool)
    padding[1, ..., -2:] = False
    blind = causal.clone()
    blind[1] = False
    return {"none": None, "causal": causal, "padding": padding, "blind": blind}


@pytest.mark.parametrize("name", ["none", "causal", "padding", "blind"])
@pytest.mark.parametrize("values", [4, 7])
def test_the_textbook_equals_the_fused_kernel(name: str, values: int) -> None:
    mask = masks(5, 6)[name]
    q, k = normal(2, 3, 5, 4, seed=1), normal(2, 3, 6, 4, seed=2)
    inputs = [t.requires_grad_() for t in (q, k, normal(2, 3, 6, values, seed=3))]
    upstream = normal(2, 3, 5, values, seed=4)
    written, _ = scaled_dot_product(*inputs, mask)
    fused = F.scaled_dot_product_attention(*inputs, attn_mask=mask)
    torch.testing.assert_close(written, fused, rtol=1e-12, atol=1e-12)
    for ours, theirs in zip(
        torch.autograd.grad(written, inputs, upstream), torch.autograd.grad(fused, inputs, upstream)
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_a_query_that_sees_nothing_takes_nothing_and_passes_no_gradient() -> None:
    q = normal(1, 5, 4).requires_grad_()
    result, weights = scaled_dot_product(q, normal(1, 6, 4), normal(1, 6, 4), masks(5, 6)["blind"])
    result.sum().backward()
    assert q.grad is not None
    assert not result[0, 1].any()
    assert not weights[0, 1].any()
    assert not q.grad[0, 1].any()
    assert q.grad[0, 2].any()


def test_what_is_masked_has_no_weight_and_no_say() -> None:
    mask = masks(5, 6)["padding"]
    q, k, v = normal(2, 1, 5, 4), normal(2, 1, 6, 4, seed=1), normal(2, 1, 6, 4, seed=2)
    result, weights = scaled_dot_product(q, k, v, mask)
    assert not weights[1, ..., -2:].any()
    k[1, :, -2:], v[1, :, -2:] = 100, -100
    assert torch.equal(scaled_dot_product(q, k, v, mask)[0], result)
    assert not torch.equal(scaled_dot_product(q, k, v)[0][1], result[1])


def test_the_layers_two_paths_are_equal() -> None:
    attention, x = layer(), normal(2, 5, 12)
    fused = attention(x)
    gradients = torch.autograd.grad(fused, list(attention.parameters()), normal(2, 5, 12, seed=1))
    written, weights = attention.textbook(x)
    assert weights.shape == (2, 3, 5, 5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 5, dtype=torch.float64))
    torch.testing.assert_close(written, fused, rtol=1e-12, atol=1e-12)
    found = torch.autograd.grad(written, list(attention.parameters()), normal(2, 5, 12, seed=1))
    for ours, theirs in zip(found, gradients):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)


def test_it_is_pytorchs_multi_head_attention() -> None:
    attention, x = layer(), normal(2, 5, 12)
    theirs = nn.MultiheadAttention(12, 3, batch_first=True).double()
    theirs.load_state_dict(
        {
            "in_proj_weight": attention.qkv.weight,
            "in_proj_bias": attention.qkv.bias,
            "out_proj.weight": attention.out.weight,
            "out_proj.bias": attention.out.bias,
        }
    )
    expected, expected_weights = theirs(x, x, x, average_attn_weights=False)
    _, weights = attention.textbook(x)
    torch.testing.assert_close(attention(x), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(weights, expected_weights, rtol=1e-12, atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(data=st.data(), heads=st.sampled_from([1, 2, 3, 6]), tokens=st.integers(1, 7))
def test_the_order_of_tokens_is_the_order_of_results(data: st.DataObject, heads: int, tokens: int) -> None:
    order = data.draw(st.permutations(range(tokens)))
    attention, x = layer(heads=heads), normal(2, tokens, 12)
    torch.testing.assert_close(attention(x[:, order]), attention(x)[:, order], rtol=1e-11, atol=1e-11)


@settings(max_examples=25, deadline=None)
@given(dim=st.integers(1, 40), shift=st.floats(-50, 50))
def test_one_number_added_to_all_scores_of_a_query_changes_nothing(dim: int, shift: float) -> None:
    q, k, v = normal(3, dim), normal(4, dim, seed=1), normal(4, 2, seed=2)
    # Moving every key by the same vector adds q · vector to all scores of q.
    moved, _ = scaled_dot_product(q, k + shift / dim, v)
    torch.testing.assert_close(moved, scaled_dot_product(q, k, v)[0], rtol=1e-9, atol=1e-9)


def test_each_of_the_three_matrices_has_xaviers_spread() -> None:
    torch.manual_seed(0)
    for weight in MultiHeadAttention(128, 4).qkv.weight.chunk(3):
        assert weight.var().item() == pytest.approx(2 / (128 + 128), rel=0.05)


@pytest.mark.parametrize("heads", [0, 5])
def test_heads_that_do_not_divide_are_refused(heads: int) -> None:
    with pytest.raises(ModelError, match=f"^heads={heads} .*dim=12"):
        MultiHeadAttention(12, heads)
