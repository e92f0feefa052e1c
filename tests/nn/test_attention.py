"""Attention: by hand, by the fused kernel, by PyTorch's own layer, and what does not change it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from cutaway.core.errors import ModelError
from cutaway.models.seq2seq_gru import AdditiveAttention
from cutaway.nn.attention import (
    MultiHeadAttention,
    Score,
    additive,
    attend,
    bilinear,
    causal_mask,
    cosine,
    dot,
    merge_masks,
    query_key,
    recording,
    scaled_dot,
    scaled_dot_product,
)
from cutaway.nn.kv_cache import LayerCache


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Float64 numbers from the standard normal distribution."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def layer(dim: int = 12, heads: int = 3, **changes: Any) -> MultiHeadAttention:
    """A layer in float64 whose biases are not zero."""
    torch.manual_seed(0)
    made = MultiHeadAttention(dim, heads, **changes).double()
    for name, parameter in made.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
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
    """No mask, each query up to its own place, the last keys padding in one example, one query that sees nothing, an
    example that sees nothing; biases, alone and with what they hide."""
    causal = causal_mask(queries, keys)
    padding = torch.ones(2, 1, 1, keys, dtype=torch.bool)
    padding[1, ..., -2:] = False
    blind = causal.clone()
    blind[1] = False
    empty = torch.ones(2, 1, 1, keys, dtype=torch.bool)
    empty[1] = False
    bias = normal(1, 1, queries, keys, seed=9)
    return {
        "none": None,
        "causal": causal,
        "padding": padding,
        "blind": blind,
        "empty": empty,
        "bias": bias,
        "bias-blind": merge_masks(bias, blind),
        "bias-empty": merge_masks(bias, empty, causal),
    }


MASKS = tuple(masks(5, 6))


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("values", [4, 7])
@pytest.mark.parametrize("scale", [None, 0.3], ids=["root", "set"])
def test_the_textbook_equals_the_fused_kernel(name: str, values: int, scale: float | None) -> None:
    mask = masks(5, 6)[name]
    q, k = normal(2, 3, 5, 4, seed=1), normal(2, 3, 6, 4, seed=2)
    inputs = [t.requires_grad_() for t in (q, k, normal(2, 3, 6, values, seed=3))]
    if mask is not None and mask.is_floating_point():
        inputs.append(mask.requires_grad_())
    upstream = normal(2, 3, 5, values, seed=4)
    written, _ = scaled_dot_product(*inputs[:3], mask, scale=scale)
    fused = F.scaled_dot_product_attention(*inputs[:3], attn_mask=mask, scale=scale)
    torch.testing.assert_close(written, fused, rtol=1e-12, atol=1e-12)
    found = torch.autograd.grad(written, inputs, upstream)
    for ours, theirs in zip(found, torch.autograd.grad(fused, inputs, upstream)):
        assert ours.isfinite().all()
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["blind", "bias-blind"])
def test_a_query_that_sees_nothing_takes_nothing_and_passes_no_gradient(name: str) -> None:
    q = normal(1, 5, 4).requires_grad_()
    mask = masks(5, 6)[name]
    assert mask is not None
    result, weights = scaled_dot_product(q, normal(1, 6, 4), normal(1, 6, 4), mask.squeeze())
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


# --- scores -------------------------------------------------------------------------------------------------------


def test_each_score_is_its_formula() -> None:
    q, k = normal(2, 3, 4), normal(2, 5, 4, seed=1)
    w, u, v = normal(6, 4, seed=2), normal(6, 4, seed=3), normal(6, seed=4)
    square = normal(4, 4, seed=5)
    formulas: dict[Score, Callable[[Tensor, Tensor], Tensor]] = {
        dot: torch.dot,
        cosine: lambda a, b: torch.dot(a, b) / (a.norm() * b.norm()),
        scaled_dot: lambda a, b: torch.dot(a, b) / 2,
        additive(w, u, v): lambda a, b: torch.dot(v, torch.tanh(w @ a + u @ b)),
        bilinear(square): lambda a, b: torch.dot(a, square @ b),
    }
    for score, formula in formulas.items():
        expected = torch.stack(
            [torch.stack([torch.stack([formula(a, b) for b in k[n]]) for a in q[n]]) for n in (0, 1)]
        )
        torch.testing.assert_close(score(q, k), expected, rtol=1e-12, atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(size=st.floats(1e-3, 1e3), other=st.floats(1e-3, 1e3), seed=st.integers(0, 99))
def test_a_cosine_does_not_ask_for_lengths(size: float, other: float, seed: int) -> None:
    q, k = normal(3, 4, seed=seed), normal(5, 4, seed=seed + 1)
    found = cosine(size * q, other * k)
    torch.testing.assert_close(found, cosine(q, k), rtol=1e-10, atol=1e-10)
    assert found.abs().max() <= 1 + 1e-12
    torch.testing.assert_close(cosine(q, q).diagonal(), torch.ones(3, dtype=torch.float64))
    assert not cosine(torch.zeros_like(q), k).any()


def test_queries_and_keys_of_different_sizes_can_be_compared() -> None:
    q, k = normal(2, 3, 4), normal(2, 5, 7, seed=1)
    assert additive(normal(6, 4), normal(6, 7), normal(6))(q, k).shape == (2, 3, 5)
    assert bilinear(normal(4, 7))(q, k).shape == (2, 3, 5)


@pytest.mark.parametrize("name", MASKS)
def test_attention_by_the_scaled_dot_product_is_equation_1(name: str) -> None:
    mask = masks(5, 6)[name]
    q, k, v = normal(2, 1, 5, 4), normal(2, 1, 6, 4, seed=1), normal(2, 1, 6, 3, seed=2)
    for found, expected in zip(attend(scaled_dot, q, k, v, mask), scaled_dot_product(q, k, v, mask)):
        assert torch.equal(found, expected)
    _, weights = attend(cosine, q, k, v, mask)
    sums = weights.sum(-1)
    torch.testing.assert_close(sums, (sums > 0).double())  # 1, or 0 where a query may look nowhere


def test_additive_attention_is_that_of_the_recurrent_encoder_decoder() -> None:
    torch.manual_seed(0)
    theirs = AdditiveAttention(state=4, source=6, width=5).double()
    s, h, mask = normal(2, 4), normal(2, 7, 6, seed=1), masks(2, 7)["padding"]
    assert mask is not None
    context, weights = theirs(s, theirs.key(h), h, mask[:, 0, 0])
    # The bias of the sum is that of one more number, 1, of each key.
    u = torch.cat([theirs.key.weight, theirs.key.bias[:, None]], 1)
    keys = torch.cat([h, torch.ones(2, 7, 1, dtype=torch.float64)], 2)
    found, seen = attend(additive(theirs.query.weight, u, theirs.v), s[:, None], keys, h, mask[:, 0])
    torch.testing.assert_close(found[:, 0], context, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(seen[:, 0], weights, rtol=1e-12, atol=1e-12)


def test_one_matrix_for_queries_and_keys_is_the_two() -> None:
    """(W_Q x) · (W_K y) = xᵀ W_QK y, for each head; dim 12 against d_k = 4."""
    attention, x = layer(bias=False), normal(2, 5, 12)
    w_q, w_k, _ = (part.unflatten(0, (3, 4)) for part in attention.qkv.weight.split(12))  # (heads, d_k, dim)
    joint = query_key(w_q, w_k)
    assert joint.shape == (3, 12, 12)
    assert torch.linalg.matrix_rank(joint).tolist() == [4, 4, 4]
    q, k, v = attention.project_qkv(x)
    torch.testing.assert_close(bilinear(joint)(x[:, None], x[:, None]), dot(q, k), rtol=1e-12, atol=1e-12)
    halved = bilinear(joint / 2)  # 1 / √d_k
    found, _ = attend(halved, x[:, None], x[:, None], v)
    torch.testing.assert_close(attention.merge_heads(found), attention(x), rtol=1e-12, atol=1e-12)


# --- the layer ----------------------------------------------------------------------------------------------------

SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "values": {"key_dim": 4, "value_dim": 7},
    "grouped": {"heads": 6, "kv_heads": 2},
    "multi-query": {"heads": 6, "kv_heads": 1, "value_dim": 5, "key_dim": 4},
    "crossing": {"source": 8},
    "crossing-grouped": {"source": 8, "heads": 6, "kv_heads": 3, "key_dim": 4, "value_dim": 3},
    "turned": {"rotates": True},
    "turned-grouped": {"rotates": True, "heads": 6, "kv_heads": 2, "key_dim": 4},
    "scaled": {"scale": 1.0, "bias": False},
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
def test_the_layers_two_paths_are_equal(shape: str, name: str, causal: bool) -> None:
    """Outputs and all gradients, those of what comes in among them; the recorded weights are the textbook's."""
    attention, x = layer(**SHAPES[shape]), normal(2, 5, 12).requires_grad_()
    source = normal(2, 6, 8, seed=3).requires_grad_() if attention.cross_attends else None
    keys = 5 if source is None else 6
    how: dict[str, Any] = {"mask": masks(5, keys)[name], "causal": causal}
    how["positions"] = torch.arange(5) if attention.rotates else None
    learned = [x, *([] if source is None else [source]), *attention.parameters()]
    upstream = normal(2, 5, 12, seed=1)
    fused = attention(x, source, **how)
    with recording(attention) as seen:
        assert torch.equal(attention(x, source, **how), fused)
    written, weights = attention.textbook(x, source, **how)
    assert weights.shape == (2, attention.heads, 5, keys)
    torch.testing.assert_close(weights.sum(-1), (weights.sum(-1) > 0).double())
    assert torch.equal(seen[""][0].weights, weights)
    torch.testing.assert_close(written, fused, rtol=1e-12, atol=1e-12)
    expected = torch.autograd.grad(fused, learned, upstream)
    for ours, theirs in zip(torch.autograd.grad(written, learned, upstream), expected):
        assert ours.isfinite().all()
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("shape", [s for s in SHAPES if "crossing" not in s])
@pytest.mark.parametrize("pieces", [(5,), (4, 1), (1, 1, 1, 1, 1), (2, 3)], ids=str)
@torch.no_grad()
def test_with_a_cache_the_pieces_are_the_whole(shape: str, pieces: tuple[int, ...]) -> None:
    """`causal` alone says it, in both paths: the queries are the last of the keys."""
    attention, x = layer(**SHAPES[shape]), normal(2, 5, 12)
    places = torch.arange(5)
    whole = attention(x, causal=True, positions=places)
    _, expected = attention.textbook(x, causal=True, positions=places)
    kept, kept_too, kept_silently = LayerCache(), LayerCache(3), LayerCache()
    for part, at in zip(x.split(pieces, 1), places.split(pieces)):
        how: dict[str, Any] = {"causal": True, "positions": at}
        with recording(attention) as seen:
            found = attention(part, cache=kept, **how)
        written, weights = attention.textbook(part, cache=kept_too, **how)
        assert torch.equal(found, attention(part, cache=kept_silently, **how))
        assert torch.equal(seen[""][0].weights, weights)
        torch.testing.assert_close(found, whole[:, at], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(written, found, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(weights, expected[:, :, at][..., : kept.length], rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_the_keys_of_a_source_are_made_once() -> None:
    attention, x, source = layer(source=8, heads=6, kv_heads=2), normal(2, 5, 12), normal(2, 7, 8, seed=1)
    mask = masks(5, 7)["padding"]
    whole, slot = attention(x, source, mask=mask), LayerCache()
    steps = [attention(part, source if i == 0 else None, mask=mask, cache=slot) for i, part in enumerate(x.split(1, 1))]
    torch.testing.assert_close(torch.cat(steps, 1), whole, rtol=1e-12, atol=1e-12)
    assert slot.length == 7
    assert slot.keys is not None
    assert slot.keys.shape == (2, 2, 7, 2)


def test_shared_keys_are_keys_of_several_heads() -> None:
    """Grouped heads are heads whose keys and values happen to be equal."""
    grouped, plain, x = layer(heads=6, kv_heads=2), layer(heads=6), normal(2, 5, 12)

    def spread(rows: Tensor) -> Tensor:
        q, k, v = rows.split([12, 4, 4])
        return torch.cat([q, *(part.unflatten(0, (2, 2)).repeat_interleave(3, 0).flatten(0, 1) for part in (k, v))])

    with torch.no_grad():
        plain.load_state_dict(
            {name: spread(t) if name.startswith("qkv") else t for name, t in grouped.state_dict().items()}
        )
    torch.testing.assert_close(grouped(x, causal=True), plain(x, causal=True), rtol=1e-12, atol=1e-12)


def test_what_is_recorded_ends_with_the_recording() -> None:
    attention, x = layer(), normal(2, 5, 12)
    with recording(attention) as outer:
        attention(x)
        with recording(attention) as inner:
            attention(x)
        attention(x)
    attention(x)
    assert (len(outer[""]), len(inner[""])) == (2, 1)
    assert attention.seen is None
    model = nn.Sequential(layer(), nn.Linear(12, 12).double(), layer())
    with pytest.raises(RuntimeError), recording(model) as found:
        model(normal(2, 5, 13))
    assert list(found) == ["0", "2"]
    assert model[0].seen is None


def test_dropout_is_of_the_weights_and_for_training() -> None:
    attention, x = layer(dropout=0.5), normal(2, 5, 12)
    torch.manual_seed(0)
    assert not torch.equal(attention.train()(x), attention(x))
    written, _ = attention.textbook(x)
    torch.testing.assert_close(attention.eval()(x), written, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["padding", "bias-blind"])
def test_masks_serve_in_mixed_precision(kind: str) -> None:
    attention, x = layer().float(), normal(2, 5, 12).float()
    mask = masks(5, 5)[kind]
    assert mask is not None
    mask = mask if mask.dtype == torch.bool else mask.float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = attention(x, mask=mask)
    torch.testing.assert_close(found.float(), attention(x, mask=mask), rtol=0.05, atol=0.05)


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
def test_heads_that_do_not_divide_are_rejected(heads: int) -> None:
    with pytest.raises(ModelError, match=f"^Invalid heads={heads}: .*dim=12"):
        MultiHeadAttention(12, heads)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"kv_heads": 2}, "kv_heads"),
        ({"kv_heads": 0}, "kv_heads"),
        ({"key_dim": 0}, "key_dim"),
        ({"value_dim": 0}, "value_dim"),
        ({"key_dim": 3, "rotates": True}, "key_dim"),
        ({"source": 8, "rotates": True}, "rotates"),
    ],
    ids=str,
)
def test_invalid_fields_are_rejected_by_name(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ModelError, match=f"^Invalid {field}="):
        MultiHeadAttention(12, 3, **changes)
