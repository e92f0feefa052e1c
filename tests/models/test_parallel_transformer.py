"""The parallel Transformer: its oracle in further configs, counts, orders and strengths, rejections."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutaway import create_model, inspect
from cutaway.core.errors import ModelError
from cutaway.core.spec import Classes, NextToken, TextSpec, Value
from cutaway.inspect.layers import layer_table
from cutaway.models.parallel_transformer import CARD, ORDERS, PRESETS, Config, Model
from cutaway.models.registry import preset
from cutaway.nn.attention import query_key
from cutaway.nn.decode_fast_path import DecodeFastPath
from cutaway.nn.position import alibi, rotation
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
        {"norm": "none", "strengths": (0.5, -2.0)},
        {"norm": "none", "order": "pre"},
        {"norm": "none", "order": "post", "positions": "none"},
        {"base": 50.0},
        {"positions": "alibi"},
        {"positions": "alibi", "heads": 4, "head": "classes"},
        {"positions": "alibi", "heads": 6, "kv_heads": 2},
        {"positions": "sinusoids"},
        {"positions": "sinusoids", "base": 50.0, "tie_weights": False},
        {"positions": "learned"},
        {"positions": "none"},
        {"score": "bilinear"},
        {"score": "bilinear", "positions": "alibi", "order": "pre"},
        {"score": "bilinear", "positions": "none", "base": 50.0, "heads": 4},
    ],
    ids=str,
)
def test_outputs_and_gradients_are_the_loops(changes: dict[str, Any]) -> None:
    config = dataclasses.replace(SMALL, **changes)
    measured = compare(Model(config), oracle_for(NAME, config), torch.Generator().manual_seed(1))
    assert measured.outputs <= BOUND
    assert measured.gradients <= BOUND, measured.worst


@pytest.mark.parametrize(
    "changes",
    [{"strengths": (1.0, 0.9)}, {"positions": "alibi"}, {"positions": "none"}, {"base": 9_999.0}],
    ids=str,
)
def test_other_settings_are_noticed(changes: dict[str, Any]) -> None:
    oracle = oracle_for(NAME, dataclasses.replace(SMALL, **changes))
    assert not compare(Model(SMALL), oracle, torch.Generator().manual_seed(1)).equal


@pytest.mark.parametrize(
    "changes",
    [{"order": "pre"}, {"kv_heads": 1}, {"norm": "none"}, {"positions": "learned"}, {"score": "bilinear"}],
    ids=str,
)
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


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"head": "classes"},
        {"norm": "none"},
        {"positions": "alibi"},
        {"positions": "learned"},
        {"score": "bilinear"},
    ],
    ids=str,
)
def test_it_keeps_the_contract(changes: dict[str, Any]) -> None:
    torch.manual_seed(0)
    head = changes.get("head", "next")
    length = 16 if "positions" in changes else 12  # a learned table has no gradient beyond the text
    model, ids = Model(dataclasses.replace(SMALL, dropout=0.1, **changes)), tokens(3, length)
    with torch.no_grad():
        for parameter in model.parameters():  # without normalization the first gradients are tiny
            parameter.add_(0.1 * torch.randn_like(parameter))
    mask = torch.arange(length) < torch.tensor([length, 5, 1])[:, None]
    y = model.train()(ids, mask)
    assert y.shape == ((3, length, 23) if head == "next" else (3, 2))
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
        ("norm", "batch"),
        ("positions", "relative"),
        ("base", 0.5),
        ("score", "additive"),
        ("strengths", (1.0,)),
        ("strengths", (1.0, float("nan"))),
        ("head", "tags"),
        ("num_classes", 0),
    ],
)
def test_bad_values_are_rejected_by_name(field: str, value: Any) -> None:
    with pytest.raises(ModelError, match=f"^Invalid {field}="):
        Config(**{field: value})


FORMS: tuple[dict[str, Any], ...] = (
    {"positions": "alibi"},
    {"positions": "alibi", "heads": 6, "kv_heads": 2},
    {"positions": "sinusoids"},
    {"positions": "learned"},
    {"positions": "none", "norm": "none"},
    {"base": 20.0},
    {"score": "bilinear"},
    {"score": "bilinear", "positions": "alibi", "norm": "none", "order": "post"},
)


@pytest.mark.parametrize("changes", FORMS, ids=str)
@torch.no_grad()
def test_every_form_continues_from_a_cache(changes: dict[str, Any]) -> None:
    """Token by token, with the fast path too, and from texts of two lengths with padding on the left."""
    model, ids = small(**changes), tokens(2, 9)
    whole = model(ids)
    logits, cache = model.extend(ids[:, :4], every=True)
    torch.testing.assert_close(logits, whole[:, :4], rtol=1e-10, atol=1e-12)
    lean = DecodeFastPath(model)
    for t in range(4, 9):
        with lean() if t % 2 else contextlib.nullcontext():
            logits, cache = model.extend(ids[:, t : t + 1], None, cache)
        torch.testing.assert_close(logits, whole[:, t], rtol=1e-10, atol=1e-12)

    padded, mask = torch.cat([ids[:, :2], ids], 1), torch.ones(2, 11, dtype=torch.bool)
    mask[:, :2] = False
    torch.testing.assert_close(model(padded, mask)[:, 2:], whole, rtol=1e-10, atol=1e-12)
    _, cache = model.extend(padded[:, :6], mask[:, :6])
    for t in range(6, 11):
        logits, cache = model.extend(padded[:, t : t + 1], None, cache)
        torch.testing.assert_close(logits, whole[:, t - 2], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("changes", FORMS, ids=str)
@torch.no_grad()
def test_captured_weights_of_every_form_are_the_textbooks(changes: dict[str, Any]) -> None:
    model, ids = small(layers=1, **changes), tokens(2, 6)
    block, seen = model.blocks[0], torch.ones(6, 6, dtype=torch.bool).tril()[None, None]
    with inspect.capture(model, "attention") as found:
        model(ids)
    weights = found["attention"]["blocks.0.attention"]
    if model.config.positions == "alibi":
        seen = alibi(seen, model.config.heads, torch.float64)
    z = model._embed(ids, torch.arange(6))
    first = z if model.config.order == "post" else block.norm1(z)
    positions = rotation(torch.arange(6), block.attention.key_dim, torch.float64, model.config.base)
    expected = block.attention.textbook(first, mask=seen, positions=positions)[1]
    torch.testing.assert_close(weights, expected, rtol=1e-10, atol=1e-12)


@torch.no_grad()
def test_a_bilinear_score_with_the_product_of_two_matrices_is_the_factored_network() -> None:
    factored, whole = small(positions="alibi"), small(positions="alibi", score="bilinear")
    tensors = factored.state_dict()
    for i in range(2):
        q, k, v = tensors[f"blocks.{i}.attention.qkv.weight"].split(24)
        heads = [query_key(a, b).mT for a, b in zip(q.split(8), k.split(8))]
        tensors[f"blocks.{i}.attention.qkv.weight"] = torch.cat([*heads, v])
    whole.load_state_dict(tensors)
    ids = tokens(2, 9)
    torch.testing.assert_close(whole(ids), factored(ids), rtol=1e-10, atol=1e-12)
    free = small(score="bilinear").blocks[0].attention.qkv.weight[:24]
    assert torch.linalg.matrix_rank(free) == 24  # of the factored one at most d_k = 8
    assert all(torch.linalg.matrix_rank(head) == 8 for head in heads)


def test_keys_of_a_bilinear_score_are_cached_once() -> None:
    _, cache = small(score="bilinear").extend(tokens(2, 5))
    keys, values = cache.layers[0].known()
    assert (keys.shape, values.shape) == ((2, 1, 5, 24), (2, 3, 5, 8))


def test_a_bilinear_score_has_its_own_keys() -> None:
    with pytest.raises(ModelError, match=r"^Invalid kv_heads=1: must be auto or heads=8 with score=bilinear"):
        Config(score="bilinear", kv_heads=1)


@pytest.mark.parametrize(("positions", "equal"), [("none", True), ("alibi", False), ("learned", False)])
@torch.no_grad()
def test_only_positions_tell_equal_tokens_apart(positions: str, equal: bool) -> None:
    """Two earlier tokens exchanged: without positions one layer cannot notice."""
    model, ids = small(layers=1, positions=positions), tokens(1, 6)
    swapped = ids[:, [3, 1, 2, 0, 4, 5]]
    assert torch.allclose(model(ids)[:, -1], model(swapped)[:, -1]) == equal
