"""The parallel Transformer: its oracle in further configs, counts, orders and strengths, rejections."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutaway import create_model
from cutaway.core.errors import ModelError
from cutaway.core.spec import Classes, NextToken, TextSpec, Value
from cutaway.inspect.layers import layer_table
from cutaway.models.parallel_transformer import CARD, ORDERS, PRESETS, Config, Model
from cutaway.models.registry import preset
from cutaway.verify import oracle_for
from cutaway.verify.compare import BOUND, compare

from .contract import compile_whole

NAME = "parallel-transformer"
SMALL = Config(vocab_size=23, context_length=16, dim=24, layers=2, heads=3, dropout=0.0)


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
        {"order": "post", "strengths": (0.5, 2.0)},
        {"head": "classes", "num_classes": 4},
        {"head": "classes", "order": "post"},
        {"strengths": (0.3, -0.7), "kv_heads": 1},
        {"ffn_dim": 17, "heads": 6, "kv_heads": 2},
        {"heads": 1, "layers": 5},
    ],
    ids=str,
)
def test_outputs_and_gradients_are_the_loops(changes: dict[str, Any]) -> None:
    config = dataclasses.replace(SMALL, **changes)
    measured = compare(Model(config), oracle_for(NAME, config), torch.Generator().manual_seed(1))
    assert measured.outputs <= BOUND
    assert measured.gradients <= BOUND, measured.worst


def test_other_strengths_are_noticed() -> None:
    oracle = oracle_for(NAME, dataclasses.replace(SMALL, strengths=(1.0, 0.9)))
    assert not compare(Model(SMALL), oracle, torch.Generator().manual_seed(1)).equal


@pytest.mark.parametrize("changes", [{"order": "pre"}, {"kv_heads": 1}], ids=str)
def test_another_network_does_not_even_fit(changes: dict[str, Any]) -> None:
    oracle = oracle_for(NAME, dataclasses.replace(SMALL, **changes))
    with pytest.raises(ValueError, match=r"counterpart|does not fit"):
        compare(Model(SMALL), oracle, torch.Generator().manual_seed(1))


def test_counts_are_the_cards() -> None:
    held, config = CARD.published[NAME], PRESETS[NAME]
    v, d, layers, length = config.vocab_size, config.dim, config.layers, config.context_length
    assert held.parameters == v * d + layers * (12 * d * d + 2 * d) + 2 * d
    assert held.multiply_adds == length * (layers * (12 * d * d + 2 * length * d) + v * d)
    counted = layer_table(create_model(NAME), torch.zeros(1, length, dtype=torch.long))
    assert (counted.parameters, counted.multiply_adds, counted.complete) == (held.parameters, held.multiply_adds, True)


def test_the_orders_have_as_many_parameters_but_for_their_norms() -> None:
    counts = {order: sum(p.numel() for p in small(order=order).parameters()) for order in ORDERS}
    norm = 2 * 24
    assert counts["pre"] == counts["parallel"] + 2 * norm  # a second one in each block
    assert counts["post"] == counts["pre"] - norm  # none at the end


@pytest.mark.parametrize("order", ORDERS)
def test_strengths_of_nothing_leave_the_stream(order: str) -> None:
    model, ids = small(order=order, strengths=(0.0, 0.0)), tokens(2, 5)
    z = model.embedding(ids)
    for block in model.blocks:
        z = block.norm2(block.norm1(z)) if order == "post" else z
    torch.testing.assert_close(model.hidden(ids), model.norm(z))


def test_strengths_are_those_of_what_is_added() -> None:
    """α A(y) is A with W_O α times as large, and α M(y) M with W₂ and its bias."""
    strong, plain, ids = small(strengths=(0.3, 1.7)), small(), tokens(2, 5)
    with torch.no_grad():
        for block in plain.blocks:
            block.attention.out.weight *= 0.3
            block.mlp.fc2.weight *= 1.7
    torch.testing.assert_close(strong(ids), plain(ids))


@settings(max_examples=15, deadline=None)
@given(shift=st.integers(1, 12), order=st.sampled_from(ORDERS), seed=st.integers(0, 99))
@torch.no_grad()
def test_positions_count_by_their_distance_alone(shift: int, order: str, seed: int) -> None:
    """A text answers as it does when it stands further on, behind tokens that it may not look at."""
    model, ids = small(order=order), tokens(2, 4, seed=seed)
    z, places = model.embedding(ids), torch.arange(4)
    found = []
    for positions in (places, places + shift):
        y = z
        for block in model.blocks:
            y = block(y, positions)
        found.append(model.norm(y))
    torch.testing.assert_close(found[1], found[0], rtol=1e-9, atol=1e-9)
    assert torch.equal(found[0], model.hidden(ids))


def test_position_of_a_token_changes_the_output() -> None:
    model, ids = small(), tokens(1, 6)
    swapped = ids.clone()
    swapped[:, [0, 3]] = ids[:, [3, 0]]
    assert (model(ids) - model(swapped))[:, -1].abs().max() > 1e-6


@pytest.mark.parametrize("head", ["next", "classes"])
def test_it_keeps_the_contract(head: str) -> None:
    torch.manual_seed(0)
    model, ids = Model(dataclasses.replace(SMALL, head=head, dropout=0.1)), tokens(3, 12)
    mask = torch.arange(12) < torch.tensor([12, 5, 1])[:, None]
    y = model.train()(ids, mask)
    assert y.shape == ((3, 12, 23) if head == "next" else (3, 2))
    y.backward(torch.randn(y.shape))
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name
    assert not torch.equal(model(ids, mask), y)  # dropout
    other = Model(model.config).eval()
    other.load_state_dict(copy.deepcopy(model.state_dict()))
    assert torch.equal(other(ids, mask), model.eval()(ids, mask))
    assert torch.equal(model(ids, mask), model.head(model.features(ids, mask)))
    assert not any(name.startswith("head") for name in model.state_dict()) or head == "classes"


def test_it_compiles_without_a_break() -> None:
    model, ids = small(kv_heads=1), tokens(2, 7)
    compiled = compile_whole(copy.deepcopy(model), dynamic=False)
    torch.testing.assert_close(compiled(ids), model(ids))


def test_a_text_beyond_the_context_is_rejected_with_the_limit() -> None:
    with pytest.raises(ModelError, match=r"^parallel-transformer was trained for 16 tokens, and these are 17: "):
        small()(tokens(1, 17))


def test_a_config_fits_a_data_set_and_is_set_as_typed() -> None:
    fitted = Config.for_spec(SMALL, TextSpec(90, 64, NextToken(90)))
    assert (fitted.vocab_size, fitted.context_length, fitted.head) == (90, 64, "next")
    fitted = Config.for_spec(SMALL, TextSpec(90, 5, Classes(("a", "b", "c"))))
    assert (fitted.context_length, fitted.head, fitted.num_classes) == (16, "classes", 3)
    assert Config.for_spec(SMALL, TextSpec(90, 40, Value())).num_classes == 1
    typed = preset(NAME).configure(None, {"strengths": "0.5,2", "order": "pre", "kv_heads": "2"})
    assert (typed.strengths, typed.order, typed.kv_heads) == ((0.5, 2.0), "pre", 2)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("vocab_size", 0),
        ("context_length", 0),
        ("dim", 0),
        ("layers", 0),
        ("heads", 0),
        ("heads", 256),  # one number for each has no pair
        ("kv_heads", 3),
        ("kv_heads", 0),
        ("ffn_dim", 0),
        ("dropout", -0.1),
        ("order", "sandwich"),
        ("strengths", (1.0,)),
        ("strengths", (1.0, float("nan"))),
        ("head", "tags"),
        ("num_classes", 0),
    ],
)
def test_bad_values_are_rejected_by_name(field: str, value: Any) -> None:
    with pytest.raises(ModelError, match=f"^Invalid {field}="):
        Config(**{field: value})
