"""What blocks are made of beside attention: the MLP and the output layer that is the embedding."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from cutaway.nn.attention import MultiHeadAttention
from cutaway.nn.transformer import ACTIVATIONS, MANY, MLP, Unembedding, is_block


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_an_mlp_is_two_layers_and_a_function(activation: str) -> None:
    torch.manual_seed(0)
    mlp, x = MLP(4, 6, activation).double(), torch.randn(3, 4, dtype=torch.float64)
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
    model = nn.ModuleDict({"embedding": embedding, "head": Unembedding(embedding, bias=bias)})
    assert set(model.state_dict()) == {"embedding.weight"} | ({"head.bias"} if bias else set())
    assert len(list(model.parameters())) == 1 + bias
    x = torch.randn(2, 3, 4)
    torch.testing.assert_close(model["head"](x), F.linear(x, embedding.weight))
    model.double()
    assert model["head"](x.double()).dtype == torch.float64
    assert model["head"].weight is embedding.weight  # also where the parameters were replaced


@pytest.mark.parametrize("rows", [1, 2, 64, 65])
@pytest.mark.parametrize("bias", [False, True])
def test_tied_outputs_are_those_of_a_linear_layer_whichever_way_the_product_is_made(rows: int, bias: bool) -> None:
    torch.manual_seed(0)
    embedding = nn.Embedding(MANY, 8).double()
    tied = Unembedding(embedding, bias=bias).double()
    if tied.bias is not None:
        nn.init.normal_(tied.bias)
    x = torch.randn(rows, 1, 8, dtype=torch.float64)
    with torch.no_grad():
        found = tied(x)
        assert found.is_contiguous()
        torch.testing.assert_close(found, F.linear(x, embedding.weight, tied.bias), rtol=1e-12, atol=1e-12)


def test_a_block_is_told_by_its_attention_and_its_mlp() -> None:
    block = nn.Module()
    block.attention = MultiHeadAttention(4, 2)
    assert not is_block(block)
    block.mlp = MLP(4, 6)
    assert is_block(block)
    assert not is_block(block.mlp)
