"""BERT and its kin: counts, heads, padding, segments, what is shared, rejections. Their oracles are transformers'."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from cutaway.core.errors import ModelError
from cutaway.core.spec import Classes, Masked, NextToken, Tags, TextSpec, Value
from cutaway.inspect.layers import preset_layer_table
from cutaway.models import bert
from cutaway.models.bert import HEADS, Bert, Config
from cutaway.models.registry import card, preset
from cutaway.nn.attention import recording

NAMES = ["bert-base-uncased", "bert-large-uncased", "roberta-base", "distilbert-base", "albert-base-v2"]
KINDS = ["bert-base-uncased", "roberta-base", "distilbert-base", "albert-base-v2"]  # one of each
FORMS = [pytest.param(name, head, id=f"{name}-{head}") for name in KINDS for head in HEADS]


def small_config(name: str, **changes: Any) -> Config:
    config: Config = preset(name).config
    sizes: dict[str, Any] = {
        "vocab_size": 30,
        "context_length": 12,
        "dim": 12,
        "layers": 2,
        "heads": 3,
        "num_classes": 4,
    }
    sizes["embedding_dim"] = 6 if config.embedding_dim else None
    return dataclasses.replace(config, **{**sizes, **changes})


def small(name: str, seed: int = 0, **changes: Any) -> Bert:
    """A small network in float64 whose weights are large enough that attention prefers something."""
    torch.manual_seed(seed)
    model = Bert(small_config(name, **changes)).double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn(p.shape, dtype=p.dtype))
    return model


def padded(texts: list[list[int]]) -> tuple[Tensor, Tensor]:
    longest = max(map(len, texts))
    tokens = torch.tensor([text + [0] * (longest - len(text)) for text in texts])
    return tokens, torch.tensor([[True] * len(text) + [False] * (longest - len(text)) for text in texts])


# --- counts -------------------------------------------------------------------------------------------------------

# Of transformers' networks: with the masked head; with the pooled layer and no head. Multiply-adds for 128 tokens, of
# the network with the pooled layer.
COUNTS = {
    "bert-base-uncased": (109_514_298, 109_482_240, 11_174_215_680),
    "bert-large-uncased": (335_174_458, 335_141_888, 39_461_060_608),
    "roberta-base": (124_697_433, 124_645_632, 11_174_215_680),
    "distilbert-base": (66_985_530, 66_362_880 + 768 * 768 + 768, 5_586_812_928 + 768 * 768),
    "albert-base-v2": (11_221_680, 11_683_584, 11_186_798_592),
}


@pytest.mark.parametrize("name", NAMES)
def test_counts_are_the_cards_and_those_of_the_sizes(name: str) -> None:
    found, config = preset(name), preset(name).config
    masked, pooled, adds = COUNTS[name]
    layers = preset_layer_table(found, config)
    assert layers.complete
    assert (layers.parameters, layers.multiply_adds) == (masked, found.card.published_multiply_adds)
    assert found.card.published_parameters == masked
    width = config.embedding_dim or config.dim
    body = adds - config.dim**2
    assert layers.multiply_adds == body + 128 * (config.dim * width + width * config.vocab_size)
    classes = preset_layer_table(found, dataclasses.replace(config, head="classes", num_classes=3))
    assert classes.parameters == pooled + 3 * config.dim + 3
    assert classes.multiply_adds == adds + 3 * config.dim
    tags = preset_layer_table(found, dataclasses.replace(config, head="tags", num_classes=3))
    assert tags.parameters == pooled - config.dim**2 - config.dim + 3 * config.dim + 3


def test_pre_training_with_two_heads_has_the_published_counts() -> None:
    for name, expected in (("bert-base-uncased", 110_106_428), ("bert-large-uncased", 336_226_108)):
        dim = preset(name).config.dim
        pooled_and_next = dim * dim + dim + 2 * dim + 2
        assert COUNTS[name][0] + pooled_and_next == expected


def test_multiply_adds_of_512_tokens() -> None:
    config = dataclasses.replace(preset("bert-base-uncased").config, head="classes")
    assert preset_layer_table(preset("bert-base-uncased"), config, (512,)).multiply_adds == 48_318_971_904 + 2 * 768


# --- what it gives ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "head"), FORMS)
def test_shapes_gradients_and_what_the_head_sees(name: str, head: str) -> None:
    torch.manual_seed(0)
    model = Bert(small_config(name, head=head)).train()
    tokens = torch.randint(2, 30, (5, 9))
    y = model(tokens)
    assert y.shape == {"masked": (5, 9, 30), "classes": (5, 4), "tags": (5, 9, 4)}[head]
    y.backward(torch.randn(y.shape))
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
        assert parameter.grad.abs().max() > 0, key
    model.eval()
    features = model.features(tokens)
    assert features.shape == ((5, 12) if head == "classes" else (5, 9, 12))
    assert torch.equal(model.head(features), model(tokens))
    other = Bert(model.config).eval()
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(tokens), model(tokens))


texts = st.lists(st.lists(st.integers(2, 29), min_size=1, max_size=12), min_size=1, max_size=5)


@pytest.mark.parametrize(("name", "head"), FORMS)
@settings(max_examples=15, deadline=None)
@given(texts=texts, seed=st.integers(0, 99))
def test_a_text_alone_and_in_a_padded_batch_gives_the_same(
    name: str, head: str, texts: list[list[int]], seed: int
) -> None:
    model = small(name, seed, head=head)
    tokens, mask = padded(texts)
    together = model(tokens, mask)
    real = slice(None) if head == "classes" else mask
    assert torch.equal(model(tokens.where(mask, 17), mask)[real], together[real])  # whatever stands there
    for text, answer in zip(texts, together):
        alone = model(torch.tensor([text]))[0]
        torch.testing.assert_close(answer if head == "classes" else answer[: len(text)], alone, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["bert-base-uncased", "albert-base-v2"])
@settings(max_examples=20, deadline=None)
@given(texts=texts, data=st.data())
def test_segments_default_to_zeros(name: str, texts: list[list[int]], data: st.DataObject) -> None:
    model = small(name)
    tokens, mask = padded(texts)
    zeros = torch.zeros_like(tokens)
    assert torch.equal(model(tokens, mask, zeros), model(tokens, mask))
    row = data.draw(st.integers(0, len(texts) - 1))
    zeros[row, data.draw(st.integers(0, len(texts[row]) - 1))] = 1
    changed = (model(tokens, mask, zeros) != model(tokens, mask)).flatten(1).any(1)
    assert changed.nonzero()[:, 0].tolist() == [row]


def test_every_token_looks_at_all_real_ones_and_none_at_padding() -> None:
    model = small("bert-base-uncased")
    tokens, mask = padded([[3, 4, 5, 6], [7, 8]])
    with recording(model) as seen:
        model(tokens, mask)
    assert len(seen) == 2
    for (entry,) in seen.values():
        assert (entry.weights[0] > 0).all()
        assert (entry.weights[1, :, :, :2] > 0).all()
        assert not entry.weights[1, :, :, 2:].any()


def test_where_all_is_real_attention_is_given_no_mask() -> None:
    model = small("bert-base-uncased")
    tokens, _ = padded([[3, 4, 5, 6], [7, 8, 9, 10]])
    with recording(model) as seen:
        given_one = model(tokens, torch.ones_like(tokens, dtype=torch.bool))
    assert [entry.mask for entries in seen.values() for entry in entries] == [None, None]
    assert torch.equal(given_one, model(tokens))


def test_it_can_be_exported_with_a_mask() -> None:
    model = small("bert-base-uncased", head="classes")
    tokens, mask = padded([[3, 4, 5, 6], [7, 8]])
    exported = torch.export.export(model, (tokens, mask)).module()
    torch.testing.assert_close(exported(tokens, mask), model(tokens, mask))
    every = torch.ones_like(mask)
    torch.testing.assert_close(exported(tokens, every), model(tokens, every))


# --- where they differ --------------------------------------------------------------------------------------------


def test_one_block_for_all_layers_is_as_many_blocks_with_its_weights() -> None:
    shared = small("albert-base-v2", layers=3)
    apart = Bert(dataclasses.replace(shared.config, share_layers=False)).double().eval()
    state = shared.state_dict()
    for key in list(state):
        if key.startswith("blocks.0."):
            state |= {key.replace("blocks.0.", f"blocks.{i}."): state[key] for i in (1, 2)}
    apart.load_state_dict(state)
    tokens = torch.randint(2, 30, (3, 8))
    assert torch.equal(apart(tokens), shared(tokens))
    sizes = {sum(p.numel() for p in small("albert-base-v2", layers=n).parameters()) for n in (1, 2, 5)}
    assert len(sizes) == 1


def test_roberta_begins_at_the_third_row_of_positions() -> None:
    model = small("roberta-base")
    assert model.positions.weight.shape == (14, 12)
    y = model(torch.randint(2, 30, (1, 5)))
    y.backward(torch.randn_like(y))
    assert model.positions.weight.grad is not None
    assert model.positions.weight.grad.abs().sum(1).nonzero()[:, 0].tolist() == [2, 3, 4, 5, 6]


def test_dropout_is_applied_at_configured_positions() -> None:
    assert isinstance(small("roberta-base", head="classes").head, bert.ClassHead)
    found = {name: small(name, head="classes").head for name in KINDS}
    ps = {name: (head.before.p, head.dropout.p) for name, head in found.items()}  # type: ignore[union-attr]
    assert ps == {
        "bert-base-uncased": (0.0, 0.1),
        "roberta-base": (0.1, 0.1),
        "distilbert-base": (0.0, 0.2),
        "albert-base-v2": (0.0, 0.1),
    }
    model = Bert(small_config("albert-base-v2", attention_dropout=0.3))
    assert {m.p for m in model.modules() if isinstance(m, nn.Dropout)} == {0.0}
    assert [block.attention.dropout for block in model.blocks] == [0.3]  # type: ignore[union-attr]
    tags = Bert(small_config("bert-base-uncased", head="tags", head_dropout=0.4, dropout=0.0))
    assert tags.tags_dropout.p == 0.4


@pytest.mark.parametrize("name", KINDS)
def test_it_begins_without_a_preference(name: str) -> None:
    torch.manual_seed(0)
    config = dataclasses.replace(preset(name).config, vocab_size=1000, context_length=32, layers=2)
    model = Bert(config).eval()
    for key, p in model.named_parameters():
        if p.ndim == 2:
            assert p.abs().max() <= 0.04, key
            assert 0.015 < p.std() < 0.02, key  # of a normal distribution of 0.02 that is cut off
        else:
            assert (p == (1.0 if "norm" in key and key.endswith("weight") else 0.0)).all(), key
    tokens = torch.randint(2, 1000, (4, 32))
    with torch.no_grad():
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), torch.randint(2, 1000, (4, 32)).flatten())
    assert abs(loss.item() - math.log(1000)) < 0.3


# --- data and rejections --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_it_takes_the_head_that_the_data_asks_for(name: str) -> None:
    found = preset(name)
    assert found.network.special_tokens
    masked = found.configure(TextSpec(50, 9, Masked(50, 49), 47, 48))
    assert (masked.head, masked.vocab_size, masked.context_length) == ("masked", 50, 512)
    classes = found.configure(TextSpec(50, 9, Classes(("a", "b", "c"))))
    assert (classes.head, classes.num_classes) == ("classes", 3)
    value = found.configure(TextSpec(50, 9, Value()))
    assert (value.head, value.num_classes) == ("classes", 1)
    tags = found.configure(TextSpec(50, 9, Tags(("N", "V"))))
    assert (tags.head, tags.num_classes) == ("tags", 2)
    with pytest.raises(ModelError, match="does not learn what this text data asks for"):
        found.configure(TextSpec(50, 9, NextToken(50)))
    with pytest.raises(ModelError, match="reads at most 512 tokens"):
        found.configure(TextSpec(50, 600, Masked(50, 49)))


def test_cards_name_their_own_papers() -> None:
    assert len({card(name).card.link for name in KINDS}) == 4


def test_too_many_tokens_and_segments_that_are_not_known_are_rejected() -> None:
    tokens = torch.full((1, 13), 3)
    with pytest.raises(ModelError, match="learned for 12 tokens, and these are 13"):
        small("roberta-base")(tokens)
    with pytest.raises(ModelError, match="has no segment embeddings"):
        small("distilbert-base")(tokens[:, :3], None, torch.zeros(1, 3, dtype=torch.long))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("vocab_size", 0),
        ("heads", 5),
        ("ffn_dim", 0),
        ("embedding_dim", 0),
        ("token_types", -1),
        ("first_position", -1),
        ("activation", "selu"),
        ("pooler_activation", "gelu"),
        ("eps", 0.0),
        ("dropout", 1.0),
        ("attention_dropout", -0.1),
        ("head_dropout", 1.5),
        ("head", "next"),
    ],
)
def test_values_that_cannot_be_are_rejected_by_name(field: str, value: Any) -> None:
    with pytest.raises(ModelError, match=f"^Invalid {field}="):
        Config(**{field: value})
