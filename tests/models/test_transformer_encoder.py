"""The Transformer encoder: its oracle in further configs, counts, padding, blocks without normalization, rejections."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from cutaway import create_model
from cutaway.core.errors import ModelError
from cutaway.core.spec import Classes, SeriesSpec, Tags, TextSpec, Value
from cutaway.inspect.layers import layer_table
from cutaway.models.transformer_encoder import CARD, PRESETS, Block, Config, Model
from cutaway.nn.position import sinusoids
from cutaway.verify import oracle_for
from cutaway.verify.compare import BOUND, compare

from .contract import assert_keeps_the_contract

NAME = "transformer-encoder"
SMALL = Config(vocab_size=23, dim=12, layers=2, heads=3, ffn_dim=20, dropout=0.2, num_classes=4)


def small(**changes: Any) -> Model:
    """A small network in float64 and evaluation mode, none of whose numbers is 0 or 1."""
    torch.manual_seed(0)
    model = Model(dataclasses.replace(SMALL, **changes)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def tokens(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(2, 23, shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"order": "pre"},
        {"head": "tags"},
        {"head": "tags", "order": "pre", "heads": 1, "layers": 3},
        {"pooling": "first"},
        {"norm": "none", "strengths": (0.5, -2.0)},
        {"norm": "none", "head": "tags"},
        {"strengths": (0.3, 0.7)},
        {"base": 50.0},
        {"order": "pre", "strengths": (0.3, 0.7)},
        {"vocab_size": 0, "in_features": 3},
        {"vocab_size": 0, "in_features": 1, "norm": "none", "ffn_dim": None},
    ],
    ids=str,
)
def test_outputs_and_gradients_are_those_of_torch(changes: dict[str, Any]) -> None:
    config = dataclasses.replace(SMALL, **changes)
    measured = compare(Model(config), oracle_for(NAME, config), torch.Generator().manual_seed(1))
    assert measured.outputs <= BOUND
    assert measured.gradients <= BOUND, measured.worst


@pytest.mark.parametrize("wrong", [{"strengths": (1.0, 0.9)}, {"order": "pre"}, {"pooling": "first"}], ids=str)
def test_another_network_is_noticed(wrong: dict[str, Any]) -> None:
    oracle = oracle_for(NAME, dataclasses.replace(SMALL, **wrong))
    assert not compare(Model(SMALL), oracle, torch.Generator().manual_seed(1)).equal


@pytest.mark.parametrize("name", PRESETS)
def test_counts_are_the_cards(name: str) -> None:
    held, config = CARD.published[name], PRESETS[name]
    v, d, length = config.vocab_size, config.dim, 32
    block = 4 * (d * d + d) + 2 * 4 * d * d + 4 * d + d + 2 * 2 * d
    assert held.parameters == v * d + config.layers * block + 2 * d + 2 * d + 2
    assert held.multiply_adds == config.layers * length * (12 * d * d + 2 * length * d) + 2 * d
    with torch.device("meta"):
        counted = layer_table(create_model(name), torch.ones(1, length, dtype=torch.long))
    assert (counted.parameters, counted.multiply_adds, counted.complete) == (held.parameters, held.multiply_adds, True)


@pytest.mark.parametrize("order", ["pre", "post"])
def test_a_block_without_normalization_is_its_equation(order: str) -> None:
    """Z = α₁ S + X, Y = ReLU(Z F₁) F₂, X ← α₂ Y + Z."""
    torch.manual_seed(0)
    config = dataclasses.replace(SMALL, norm="none", order=order, strengths=(0.5, 2.0))
    block = Block(config).double().eval()
    assert not any("norm" in name for name in block.state_dict())
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    s, _ = block.attention.textbook(x)
    z = 0.5 * s + x
    y = F.relu(z @ block.mlp.fc1.weight.mT + block.mlp.fc1.bias) @ block.mlp.fc2.weight.mT + block.mlp.fc2.bias
    torch.testing.assert_close(block(x), 2 * y + z, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("changes", [{}, {"pooling": "first"}, {"head": "tags"}, {"norm": "none"}], ids=str)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(changes: dict[str, Any], side: str) -> None:
    model, ids = small(**changes), tokens(2, 5)
    pad = torch.full((2, 3), 7)
    padded = torch.cat([pad, ids] if side == "left" else [ids, pad], 1)
    mask = torch.cat([pad < 0, ids > 0] if side == "left" else [ids > 0, pad < 0], 1)
    found = model(padded, mask)
    if model.config.head == "tags":
        found = found[:, 3:] if side == "left" else found[:, :5]
    torch.testing.assert_close(found, model(ids), rtol=1e-10, atol=1e-10)


def test_a_text_of_padding_alone_gives_finite_numbers() -> None:
    assert small()(tokens(1, 4), torch.zeros(1, 4, dtype=torch.bool)).isfinite().all()


def test_every_token_attends_to_later_ones() -> None:
    model, ids = small(head="tags"), tokens(1, 6)
    other = ids.clone()
    other[0, 5] = (ids[0, 5] + 1) % 23
    assert (model(ids) - model(other))[0, 0].abs().max() > 1e-6


def test_the_embedding_alone_is_scaled() -> None:
    model, ids = small(), tokens(1, 6)
    expected = model.embedding(ids) * 12**0.5 + sinusoids(torch.arange(6), 12, torch.float64)
    torch.testing.assert_close(model.embed(ids), expected)
    numbers = small(vocab_size=0, in_features=2)
    x = torch.randn(1, 6, 2, dtype=torch.float64)
    torch.testing.assert_close(numbers.embed(x), numbers.embedding(x) + sinusoids(torch.arange(6), 12, torch.float64))


@pytest.mark.parametrize("changes", [{}, {"norm": "none"}, {"order": "pre", "pooling": "first"}], ids=str)
def test_it_keeps_the_contract(changes: dict[str, Any]) -> None:
    torch.manual_seed(0)
    assert_keeps_the_contract(Model(dataclasses.replace(SMALL, **changes)), tokens(3, 9), 4)


def test_a_config_fits_a_data_set() -> None:
    fitted = Config.for_spec(SMALL, TextSpec(90, 64, Classes(("a", "b", "c"))))
    assert (fitted.vocab_size, fitted.head, fitted.num_classes) == (90, "classes", 3)
    fitted = Config.for_spec(SMALL, TextSpec(90, 64, Tags(("x", "y"))))
    assert (fitted.head, fitted.num_classes) == ("tags", 2)
    fitted = Config.for_spec(SMALL, SeriesSpec(40, 3, Value()))
    assert (fitted.vocab_size, fitted.in_features, fitted.head, fitted.num_classes) == (0, 3, "classes", 1)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("vocab_size", -1),
        ("in_features", 0),
        ("dim", 0),
        ("layers", 0),
        ("heads", 3),
        ("ffn_dim", 0),
        ("dropout", 1.0),
        ("order", "sandwich"),
        ("norm", "batch"),
        ("base", 0.0),
        ("strengths", (1.0,)),
        ("strengths", (1.0, float("inf"))),
        ("pooling", "max"),
        ("head", "next"),
        ("num_classes", 0),
    ],
)
def test_bad_values_are_rejected_by_name(field: str, value: Any) -> None:
    with pytest.raises(ModelError, match=f"^Invalid {field}="):
        Config(**{field: value})
