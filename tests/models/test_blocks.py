"""The blocks of all Transformers: each against its formula, what it looks at, and where its dropout stands."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cutaway.models import parallel_transformer
from cutaway.nn.attention import MultiHeadAttention, recording
from cutaway.nn.kv_cache import Cache, LayerCache
from cutaway.nn.masks import causal_mask
from cutaway.nn.position import rotation
from tests.models.blocks import CACHED, CROSSING, FORMS, block, through

POST = ("bert", "bart", "bart, decoder", "transformer, post", "transformer, post, decoder", "parallel, post")
TURNED = torch.arange(5)  # positions of five tokens


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Float64 numbers from the standard normal distribution."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def written_norm(layer: nn.Module, z: Tensor) -> Tensor:
    """Layer or RMS normalization by its formula."""
    weight, eps = layer.get_parameter("weight"), layer.eps
    if isinstance(layer, nn.RMSNorm):
        return z / (z.square().mean(-1, keepdim=True) + eps).sqrt() * weight
    centred = z - z.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt() * weight + layer.get_parameter("bias")


def written(form: str, b: Any, z: Tensor, causal: bool, source: Tensor | None = None) -> Tensor:
    """The block by the formulas of its file."""
    one, two = getattr(b, "strengths", (1.0, 1.0))

    def attention(x: Tensor) -> Tensor:
        mask = causal_mask(x.shape[1], x.shape[1]) if causal else None
        found: Tensor = b.attention.textbook(x, mask=mask, positions=TURNED)[0]
        return found

    def crossing(x: Tensor) -> Tensor:
        found: Tensor = b.cross_attention.textbook(x, source)[0]
        return found

    def mlp(x: Tensor) -> Tensor:
        first, second = b.mlp.fc1, b.mlp.fc2
        u = x @ first.weight.mT + (0 if first.bias is None else first.bias)
        y: Tensor = b.mlp.activation(u) @ second.weight.mT + (0 if second.bias is None else second.bias)
        return y

    if form in ("parallel", "parallel, strengths"):
        y = written_norm(b.norm1, z)
        return z + one * attention(y) + two * mlp(y)
    if form not in POST:
        z = z + one * attention(written_norm(b.norm1, z))
        if source is not None:
            z = z + crossing(written_norm(b.cross_norm, z))
        return z + two * mlp(written_norm(b.norm2, z))
    z = written_norm(b.norm1, z + one * attention(z))
    if source is not None:
        z = written_norm(b.cross_norm, z + crossing(z))
    return written_norm(b.norm2, z + two * mlp(z))


@pytest.mark.parametrize("form", FORMS)
def test_each_block_is_its_formula(form: str) -> None:
    b, z = block(form), normal(2, 5, 8).requires_grad_()
    causal = form not in ("vit", "bert")
    source = normal(2, 3, 8, seed=2) if form in CROSSING else None
    upstream, learned = normal(2, 5, 8, seed=1), [z, *b.parameters()]
    found = through(b, z, causal=causal, source=source, positions=TURNED)
    expected = written(form, b, z, causal, source)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    theirs = torch.autograd.grad(expected, learned, upstream)
    for ours, other in zip(torch.autograd.grad(found, learned, upstream), theirs):
        torch.testing.assert_close(ours, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("form", CROSSING)
@torch.no_grad()
def test_block_with_cross_attention_continues_from_caches_with_a_mask(form: str) -> None:
    b, z, source = block(form), normal(2, 5, 8), normal(2, 3, 8, seed=2)
    whole = through(b, z, causal=True, source=source)
    own, crossing = LayerCache(), LayerCache()
    steps = [
        through(b, part, cache=own, source=source if i == 0 else None, cross_kv=crossing)
        for i, part in enumerate(z.split(1, 1))
    ]
    torch.testing.assert_close(torch.cat(steps, 1), whole, rtol=1e-12, atol=1e-12)
    mask = torch.tensor([True, True, False]).view(1, 1, 1, 3)
    found = through(b, z, causal=True, source=source, source_mask=mask)
    torch.testing.assert_close(found, written(form, b, z, True, source[:, :2]))


def test_the_orders_differ_and_have_the_norms_that_they_need() -> None:
    z, forms = normal(2, 5, 8), [f"parallel{order}" for order in ("", ", pre", ", post")]
    changes: dict[str, Any] = {"strengths": (1.0, 1.0), "kv_heads": None}
    names = [{n.split(".")[0] for n in block(form).state_dict()} for form in forms]
    assert names[1] == names[2] == names[0] | {"norm2"}
    found = [through(block(form, **changes), z, positions=TURNED) for form in forms]
    assert not any(torch.allclose(a, b) for i, a in enumerate(found) for b in found[:i])
    assert len(parallel_transformer.ORDERS) == 3


def test_strength_0_of_both_leaves_the_stream() -> None:
    z = normal(2, 5, 8)
    assert torch.equal(through(block("parallel", strengths=(0.0, 0.0)), z, positions=TURNED), z)
    alone = block("parallel", strengths=(1.0, 0.0))
    expected = z + alone.attention(alone.norm1(z), causal=True, positions=TURNED)
    torch.testing.assert_close(through(alone, z, causal=True, positions=TURNED), expected)


@pytest.mark.parametrize("form", CACHED)
@pytest.mark.parametrize("cached", [False, True], ids=["whole", "cached"])
@torch.no_grad()
def test_recording_gives_the_textbooks_weights_and_changes_no_bit(form: str, cached: bool) -> None:
    b, z, source = block(form), normal(2, 5, 8), normal(2, 3, 8, seed=2)
    mask = torch.tensor([[True] * 5, [True, True, True, False, False]])

    def run(module: nn.Module) -> list[Tensor]:
        cache, outputs = Cache(1), []
        for part, real in zip(z.split(2 if cached else 5, 1), mask.split(2 if cached else 5, 1)):
            positions, seen, causal = cache.read(part[..., 0].long(), real)
            slot = cache.layers[0] if cached else None
            turn = rotation(positions, 4, z.dtype)
            outputs.append(through(module, part, seen, causal=causal, cache=slot, positions=turn, source=source))
        return outputs

    plain = run(b)
    with recording(b) as found:
        recorded = run(b)
    assert all(torch.equal(one, other) for one, other in zip(recorded, plain))

    calls: dict[str, list[Tensor]] = {}

    class Written(MultiHeadAttention):
        """The textbook in place of the fused kernel."""

        def forward(self, x: Tensor, source: Tensor | None = None, **how: Any) -> Tensor:
            result, weights = self.textbook(x, source, **how)
            calls.setdefault("cross_attention" if self.cross_attends else "attention", []).append(weights)
            return result

    for layer in b.modules():
        if isinstance(layer, MultiHeadAttention):
            layer.__class__ = Written
    for one, other in zip(run(b), plain):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    assert found.keys() == calls.keys()
    for name, seen in found.items():
        assert len(seen) == len(calls[name]) == (3 if cached else 1)
        for one, weights in zip(seen, calls[name]):
            torch.testing.assert_close(one.weights, weights, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("order", ["pre", "post"])
def test_pytorchs_encoder_layer_is_the_transformers_block(order: str) -> None:
    b = block(f"transformer, {order}")
    theirs = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True, norm_first=order == "pre").double().eval()
    names = {"attention.qkv.": "self_attn.in_proj_", "attention.out": "self_attn.out_proj"}
    names |= {"mlp.fc1": "linear1", "mlp.fc2": "linear2"}
    state = {}
    for name, tensor in b.state_dict().items():
        for ours, there in names.items():
            name = name.replace(ours, there)
        state[name] = tensor
    theirs.load_state_dict(state)
    z = normal(2, 5, 8)
    torch.testing.assert_close(through(b, z), theirs(z), rtol=1e-12, atol=1e-12)


def test_dropout_is_applied_at_documented_positions() -> None:
    """Of what is added, within the MLP, of the attention weights: one at a time."""
    z, none = normal(2, 5, 8), {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
    for field in none:
        b = block("bart", **{**none, field: 0.5})
        assert torch.equal(through(b, z), through(b, z))
        b.train()
        torch.manual_seed(0)
        first = through(b, z)
        assert not torch.equal(through(b, z), first)
        torch.manual_seed(0)
        assert torch.equal(through(b, z), first)
    b = block("transformer, pre", dropout=0.999999).train()
    torch.testing.assert_close(through(b, z), z)
    for bare in ("drops_attention", "drops_mlp"):
        b = block("bert", dropout=0.5, attention_dropout=0.0, **{bare: False}).train()
        assert not torch.equal(through(b, z), through(b, z))
    b = block("bert", dropout=0.5, attention_dropout=0.0, drops_attention=False, drops_mlp=False).train()
    assert torch.equal(through(b, z), through(b, z))
