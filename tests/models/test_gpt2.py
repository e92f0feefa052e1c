"""GPT-2: counts, first weights, the tied head, context, fitting. Invariances are beside this, oracles in interop."""

from __future__ import annotations

import copy
import dataclasses
import math

import pytest
import torch
from torch import Tensor

from cutaway import create_model
from cutaway.core.errors import ModelError
from cutaway.core.memory_budget import build_on_meta
from cutaway.core.spec import Classes, NextToken, TextSpec, Value
from cutaway.inspect.layers import layer_table
from cutaway.models.gpt2 import CARD, GPT2, PRESETS, Config
from cutaway.models.registry import preset
from cutaway.nn.attention import recording
from cutaway.nn.masks import last_token

from .contract import compile_whole

SMALL = Config(vocab_size=23, context_length=12, dim=24, layers=2, heads=3, dropout=0.0)
COUNTED = {
    "gpt2": (124_439_808, 145_824_153_600),
    "gpt2-medium": (354_823_168, 413_475_536_896),
    "gpt2-large": (774_030_080, 887_285_350_400),
    "gpt2-xl": (1_557_611_200, 1_753_351_782_400),
}


def small(**changes: object) -> GPT2:
    """A small network in float64 and evaluation mode."""
    torch.manual_seed(0)
    return GPT2(dataclasses.replace(SMALL, **changes)).double().eval()


def tokens(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(2, 23, shape, generator=torch.Generator().manual_seed(seed))


# --- counts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
def test_counts_are_the_published_ones(name: str) -> None:
    config, held = PRESETS[name], CARD.published[name]
    d, layers, length = config.dim, config.layers, config.context_length
    formula = 50_257 * d + 1024 * d + layers * (12 * d * d + 13 * d) + 2 * d
    products = length * (layers * (12 * d * d + 2 * length * d) + 50_257 * d)
    assert (held.parameters, held.multiply_adds) == COUNTED[name] == (formula, products)
    counted = layer_table(build_on_meta(preset(name), config), torch.zeros(1, length, dtype=torch.long, device="meta"))
    assert (counted.parameters, counted.multiply_adds, counted.complete) == (*COUNTED[name], True)


# --- first weights ------------------------------------------------------------------------------------------------


def test_first_weights_have_their_deviations() -> None:
    torch.manual_seed(0)
    model = create_model("gpt2", vocab_size=500, context_length=200, dim=192, layers=8, heads=6)
    added = 0.02 / math.sqrt(2 * 8)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            smaller = name.endswith(("attention.out.weight", "mlp.fc2.weight"))
            expected = added if smaller else 0.01 if name == "positions.weight" else 0.02
            assert parameter.std().item() == pytest.approx(expected, rel=0.03), name
            assert parameter.mean().item() == pytest.approx(0, abs=expected / 50), name
        elif name.endswith("bias"):
            assert not parameter.any(), name
        else:
            assert (parameter == 1).all(), name


def test_the_sum_of_what_blocks_add_keeps_its_variance() -> None:
    spreads = []
    for layers in (2, 32):
        torch.manual_seed(0)
        model = GPT2(dataclasses.replace(SMALL, layers=layers, dim=96)).eval()
        with torch.no_grad():
            z = model.embedding(tokens(8, 12)) + model.positions.weight[:12]
            start = z
            for block in model.blocks:
                z = block(z)
        spreads.append((z - start).std().item())
    assert spreads[1] == pytest.approx(spreads[0], rel=0.3)


def test_a_first_guess_is_nearly_even() -> None:
    torch.manual_seed(0)
    model, ids = GPT2(dataclasses.replace(SMALL, dim=96)).eval(), tokens(16, 12)
    loss = torch.nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    assert loss.item() == pytest.approx(math.log(23), abs=0.1)


# --- the head -----------------------------------------------------------------------------------------------------


def test_the_tied_head_is_saved_once() -> None:
    model = small()
    assert model.head.weight is model.embedding.weight
    names = [name for name, _ in model.named_parameters()]
    assert names == list(model.state_dict())
    assert not any(name.startswith("head") for name in names)
    model(tokens(2, 5)).square().sum().backward()
    seen = model.embedding.weight.grad
    assert seen is not None
    assert seen.abs().amax(1).min() > 0  # each token's row, for every logit is of one


def test_logits_are_the_head_of_the_features() -> None:
    ids, mask = tokens(3, 6), torch.arange(6) < torch.tensor([6, 2, 4])[:, None]
    for model in (small(), small(head="classes", num_classes=4)):
        assert torch.equal(model(ids, mask), model.head(model.features(ids, mask)))
    z = small().hidden(ids)
    torch.testing.assert_close(small()(ids), z @ small().embedding.weight.T)


def test_classes_are_read_at_the_last_real_token() -> None:
    model = small(head="classes", num_classes=4)
    ids, lengths = tokens(3, 6), [6, 2, 4]
    mask = torch.arange(6) < torch.tensor(lengths)[:, None]
    z = model.hidden(ids)
    expected = torch.stack([z[row, length - 1] for row, length in enumerate(lengths)])
    assert torch.equal(model.features(ids, mask), expected)
    assert torch.equal(model.features(ids), z[:, -1])
    assert model(ids, mask).shape == (3, 4)
    assert set(dict(model.head.named_parameters())) == {"weight"}


def test_the_last_real_token_of_rows_of_any_length() -> None:
    z, mask = torch.arange(8.0).view(2, 4, 1), torch.tensor([[True, True, False, False], [False] * 4])
    assert last_token(z, mask).flatten().tolist() == [1, 4]
    assert last_token(z, None).flatten().tolist() == [3, 7]


# --- context ------------------------------------------------------------------------------------------------------


def test_a_text_beyond_the_context_is_rejected_with_the_limit() -> None:
    model, words = small(), r"^gpt2 has learned positions for 12 tokens, and these are 13: .*model\.context_length"
    assert model(tokens(1, 12)).shape == (1, 12, 23)
    with pytest.raises(ModelError, match=words):
        model(tokens(1, 13))
    _, cache = model.extend(tokens(1, 12))
    with pytest.raises(ModelError, match=words):
        model.extend(tokens(1, 1), None, cache)
    assert cache.length == 12  # what was rejected was not read


def test_a_cache_takes_the_room_that_the_context_needs_at_once() -> None:
    _, cache = small().extend(tokens(2, 3))
    assert cache.layers[0].keys is not None
    assert cache.layers[0].keys.shape == (2, 3, 12, 8)


# --- the contract -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", ["next", "classes"])
def test_it_keeps_the_contract(head: str) -> None:
    torch.manual_seed(0)
    model, ids = GPT2(dataclasses.replace(SMALL, head=head, dropout=0.1)), tokens(3, 12)
    mask = torch.arange(12) < torch.tensor([12, 5, 1])[:, None]
    y = model.train()(ids, mask)
    y.backward(torch.randn(y.shape))
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name
    assert not torch.equal(model(ids, mask), y)  # dropout
    other = GPT2(model.config).eval()
    other.load_state_dict(copy.deepcopy(model.state_dict()))
    assert torch.equal(other(ids, mask), model.eval()(ids, mask))


def test_the_attention_of_every_block_can_be_seen() -> None:
    model, ids = small(), tokens(2, 5)
    plain = model(ids)
    with recording(model) as seen:
        assert torch.equal(model(ids), plain)
    assert list(seen) == ["blocks.0.attention", "blocks.1.attention"]
    for calls in seen.values():
        (weights,) = [call.weights for call in calls]
        assert weights.shape == (2, 3, 5, 5)
        assert not weights.triu(1).any()
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 5, dtype=torch.float64))


def test_it_compiles_without_a_break() -> None:
    model, ids = small(), tokens(2, 7)
    compiled = compile_whole(copy.deepcopy(model), dynamic=False)
    torch.testing.assert_close(compiled(ids), model(ids))


def test_it_compiles_whatever_was_compiled_before() -> None:
    model, ids = small(), tokens(3, 7)
    forward = torch.compile(model.forward, backend="eager", dynamic=False)
    for length in range(1, 11):
        forward(tokens(2, length))
    with pytest.raises(RuntimeError, match="no compiled frames"):
        torch.compile(copy.deepcopy(model), backend="eager", fullgraph=True, dynamic=False)(ids)
    torch.testing.assert_close(compile_whole(copy.deepcopy(model), dynamic=False)(ids), model(ids))


def test_a_config_fits_a_data_set() -> None:
    fitted = Config.for_spec(SMALL, TextSpec(90, 64, NextToken(90)))
    assert (fitted.vocab_size, fitted.context_length, fitted.head) == (90, 64, "next")
    fitted = Config.for_spec(SMALL, TextSpec(90, 5, Classes(("a", "b", "c"))))
    assert (fitted.vocab_size, fitted.context_length, fitted.head, fitted.num_classes) == (90, 12, "classes", 3)
    assert Config.for_spec(SMALL, TextSpec(90, 40, Value())).context_length == 40
    with pytest.raises(ModelError, match=r"at most 8 tokens \(model\.context_length\), and the longest text has 9"):
        preset("gpt2").configure(TextSpec(90, 9, NextToken(90)), {"context_length": 8})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("vocab_size", 0),
        ("context_length", 0),
        ("dim", 0),
        ("layers", 0),
        ("heads", 5),
        ("heads", 0),
        ("ffn_dim", 0),
        ("dropout", 1.0),
        ("head", "tags"),
        ("num_classes", 0),
    ],
)
def test_bad_values_are_rejected_by_name(field: str, value: object) -> None:
    with pytest.raises(ModelError, match=f"^Invalid {field}="):
        Config(**{field: value})  # type: ignore[arg-type]
