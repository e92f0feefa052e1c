"""The block: each order against its formula, what it looks at, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cutaway.errors import ModelError
from cutaway.nn.attention import MultiHeadAttention, recording
from cutaway.nn.cache import Cache, Slot
from cutaway.nn.masks import causal_mask
from cutaway.nn.transformer import ACTIVATIONS, MANY, MLP, ORDERS, Block, Tied


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Float64 numbers from the standard normal distribution."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def block(**changes: Any) -> Block:
    """A block in float64 and evaluation mode, none of whose numbers is 0 or 1."""
    torch.manual_seed(0)
    made = Block(8, 2, 12, **changes).double().eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return made


def written_norm(layer: nn.Module, z: Tensor) -> Tensor:
    """Layer or RMS normalization by its formula."""
    weight = layer.get_parameter("weight")
    if isinstance(layer, nn.RMSNorm):
        return z / (z.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight
    centred = z - z.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight + layer.get_parameter("bias")


def written(b: Block, z: Tensor, source: Tensor | None = None, strengths: tuple[float, float] = (1, 1)) -> Tensor:
    """The block by the formulas of its file."""
    one, two = strengths

    def norm1(x: Tensor) -> Tensor:
        return written_norm(b.norm1, x)

    def attention(x: Tensor) -> Tensor:
        return b.attention.textbook(x, mask=causal_mask(x.shape[1], x.shape[1]))[0]

    def crossing(x: Tensor) -> Tensor:
        return b.cross_attention.textbook(x, source)[0]

    def mlp(x: Tensor) -> Tensor:
        first, second = b.mlp.fc1, b.mlp.fc2
        u = x @ first.weight.mT + (0 if first.bias is None else first.bias)
        return b.mlp.activation(u) @ second.weight.mT + (0 if second.bias is None else second.bias)

    if b.order == "parallel":
        y = norm1(z)
        return z + one * attention(y) + two * mlp(y)
    if b.order == "pre":
        z = z + one * attention(norm1(z))
        if source is not None:
            z = z + crossing(written_norm(b.cross_norm, z))
        return z + two * mlp(written_norm(b.norm2, z))
    z = norm1(z + one * attention(z))
    if source is not None:
        z = written_norm(b.cross_norm, z + crossing(z))
    return written_norm(b.norm2, z + two * mlp(z))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("strengths", [(1.0, 1.0), (0.5, -2.0)], ids=["full", "strengths"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "bare"])
def test_each_order_is_its_formula(order: str, norm: str, strengths: tuple[float, float], bias: bool) -> None:
    b, z = block(order=order, norm=norm, strengths=strengths, bias=bias), normal(2, 5, 8).requires_grad_()
    upstream, learned = normal(2, 5, 8, seed=1), [z, *b.parameters()]
    found, expected = b(z, causal=True), written(b, z, strengths=strengths)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    theirs = torch.autograd.grad(expected, learned, upstream)
    for ours, other in zip(torch.autograd.grad(found, learned, upstream), theirs):
        torch.testing.assert_close(ours, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("order", ["pre", "post"])
@torch.no_grad()
def test_a_block_that_looks_at_a_source_is_its_formula(order: str) -> None:
    b, z, source = block(order=order, crosses=True), normal(2, 5, 8), normal(2, 3, 8, seed=2)
    whole = b(z, causal=True, source=source)
    torch.testing.assert_close(whole, written(b, z, source), rtol=1e-12, atol=1e-12)
    own, crossing = Slot(), Slot()
    steps = [
        b(part, cache=own, source=source if i == 0 else None, crossing=crossing) for i, part in enumerate(z.split(1, 1))
    ]
    torch.testing.assert_close(torch.cat(steps, 1), whole, rtol=1e-12, atol=1e-12)
    mask = torch.tensor([True, True, False]).view(1, 1, 1, 3)
    torch.testing.assert_close(b(z, causal=True, source=source, source_mask=mask), written(b, z, source[:, :2]))


def test_the_three_orders_differ_and_have_the_norms_that_they_need() -> None:
    z = normal(2, 5, 8)
    names = {order: {n.split(".")[0] for n in block(order=order).state_dict()} for order in ORDERS}
    assert names["pre"] == names["post"] == names["parallel"] | {"norm2"}
    found = [block(order=order)(z) for order in ORDERS]
    assert not any(torch.allclose(a, b) for i, a in enumerate(found) for b in found[:i])


def test_strength_0_of_both_leaves_the_stream() -> None:
    z = normal(2, 5, 8)
    assert torch.equal(block(order="parallel", strengths=(0.0, 0.0))(z), z)
    attention_alone = block(order="parallel", strengths=(1.0, 0.0))
    torch.testing.assert_close(attention_alone(z), z + attention_alone.attention(attention_alone.norm1(z)))


KINDS: list[dict[str, Any]] = [{}, {"kv_heads": 1}, {"rotates": True}, {"crosses": True}]
RECORDED = [(order, kind) for order in ORDERS for kind in KINDS if not (order == "parallel" and "crosses" in kind)]


@pytest.mark.parametrize(("order", "changes"), RECORDED, ids=str)
@pytest.mark.parametrize("cached", [False, True], ids=["whole", "cached"])
@torch.no_grad()
def test_recording_gives_the_textbooks_weights_and_changes_no_bit(
    order: str, changes: dict[str, Any], cached: bool
) -> None:
    b, z = block(order=order, **changes), normal(2, 5, 8)
    source = normal(2, 3, 8, seed=2) if "crosses" in changes else None
    mask = torch.tensor([[True] * 5, [True, True, True, False, False]])

    def run(module: nn.Module) -> list[Tensor]:
        cache, outputs = Cache(1), []
        for part, real in zip(z.split(2 if cached else 5, 1), mask.split(2 if cached else 5, 1)):
            positions, seen, causal = cache.read(part[..., 0].long(), real)
            slot = cache.slots[0] if cached else None
            outputs.append(module(part, seen, causal=causal, cache=slot, positions=positions, source=source))
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
            calls.setdefault("cross_attention" if self.crosses else "attention", []).append(weights)
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


def test_pytorchs_encoder_layer_is_a_block() -> None:
    for order in ("pre", "post"):
        b = block(order=order, activation="relu")
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
        torch.testing.assert_close(b(z), theirs(z), rtol=1e-12, atol=1e-12)


def test_dropout_stands_where_it_is_said() -> None:
    """Of what is added, within the MLP, of the weights of attention: one at a time."""
    z = normal(2, 5, 8)
    for field in ("dropout", "attention_dropout", "mlp_dropout"):
        b = block(**{field: 0.5})
        assert torch.equal(b(z), b(z))
        b.train()
        torch.manual_seed(0)
        first = b(z)
        assert not torch.equal(b(z), first)
        torch.manual_seed(0)
        assert torch.equal(b(z), first)
    b = block(dropout=0.999999, order="pre").train()
    torch.testing.assert_close(b(z), z)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_an_mlp_is_two_layers_and_a_function(activation: str) -> None:
    torch.manual_seed(0)
    mlp, x = MLP(4, 6, activation).double(), normal(3, 4)
    hidden = x @ mlp.fc1.weight.mT + mlp.fc1.bias
    g = {
        "relu": hidden.clamp(min=0),
        "gelu": hidden * (1 + torch.erf(hidden / 2**0.5)) / 2,
        "gelu-tanh": hidden / 2 * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (hidden + 0.044715 * hidden**3))),
        "silu": hidden / (1 + torch.exp(-hidden)),
        "tanh": torch.tanh(hidden),
    }[activation]
    torch.testing.assert_close(mlp(x), g @ mlp.fc2.weight.mT + mlp.fc2.bias, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("bias", [False, True])
def test_a_tied_layer_is_the_embedding(bias: bool) -> None:
    torch.manual_seed(0)
    embedding = nn.Embedding(7, 4)
    model = nn.ModuleDict({"embedding": embedding, "head": Tied(embedding, bias=bias)})
    assert set(model.state_dict()) == {"embedding.weight"} | ({"head.bias"} if bias else set())
    assert len(list(model.parameters())) == 1 + bias
    x = torch.randn(2, 3, 4)
    torch.testing.assert_close(model["head"](x), F.linear(x, embedding.weight))
    model.double()
    assert model["head"](x.double()).dtype == torch.float64
    assert model["head"].weight is embedding.weight  # also where the parameters were replaced


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"order": "before"}, "order"),
        ({"activation": "gelu-new"}, "activation"),
        ({"norm": "batch"}, "norm"),
        ({"order": "parallel", "crosses": True}, "order"),
    ],
    ids=str,
)
def test_unknown_choices_are_refused_by_name(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ModelError, match=f"^{field}="):
        block(**changes)


@pytest.mark.parametrize("rows", [1, 2, 64, 65])
@pytest.mark.parametrize("bias", [False, True])
def test_tied_outputs_are_those_of_a_linear_layer_whichever_way_the_product_is_made(rows: int, bias: bool) -> None:
    torch.manual_seed(0)
    embedding = nn.Embedding(MANY, 8).double()
    tied = Tied(embedding, bias=bias).double()
    if tied.bias is not None:
        nn.init.normal_(tied.bias)
    x = torch.randn(rows, 1, 8, dtype=torch.float64)
    with torch.no_grad():
        found = tied(x)
        assert found.is_contiguous()
        torch.testing.assert_close(found, F.linear(x, embedding.weight, tied.bias), rtol=1e-12, atol=1e-12)
