"""T5: counts, distances, padding, one step at a time, the first weights. Its oracle is in interop."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway import create_model
from cutaway.core.errors import ModelError
from cutaway.core.spec import PairSpec, Tokens
from cutaway.inspect.layers import layer_table
from cutaway.models.registry import preset
from cutaway.models.t5 import CARD, PRESETS, Config, Model
from cutaway.nn.attention import recording

from . import pairs

SMALL = Config(
    pairs.VOCABULARY, dim=12, layers=2, heads=3, head_dim=5, ffn_dim=20, num_buckets=8, max_distance=9, dropout=0.2
)


def small(seed: int = 0, **changes: object) -> Model:
    torch.manual_seed(seed)
    return Model(dataclasses.replace(SMALL, **changes))  # type: ignore[arg-type]  # fields of Config


@pytest.mark.parametrize("name", PRESETS)
def test_counts_are_the_published_ones(name: str) -> None:
    with torch.device("meta"):
        model, tokens = Model(PRESETS[name]), torch.ones(1, 32, dtype=torch.long)
    table = layer_table(model, tokens, tokens > 0, tokens)
    held = CARD.published[name]
    assert (table.parameters, table.multiply_adds, table.complete) == (held.parameters, held.multiply_adds, True)
    assert held.parameters == {"t5-small": 60_506_624, "t5-base": 222_903_552}[name]


SHAPES = {
    "lengths": st.lists(st.integers(1, 12), min_size=1, max_size=4),
    "steps": st.integers(1, 12),
    "seed": st.integers(0, 99),
}


@settings(max_examples=20, deadline=None)
@given(**SHAPES)
def test_padding_changes_nothing(lengths: list[int], steps: int, seed: int) -> None:
    pairs.assert_padding_changes_nothing(pairs.moved(small(), seed), lengths, steps, seed)


@settings(max_examples=20, deadline=None)
@given(**SHAPES)
def test_one_pass_is_the_steps_one_by_one(lengths: list[int], steps: int, seed: int) -> None:
    pairs.assert_steps_are_one_pass(pairs.moved(small(decoder_layers=3), seed), lengths, steps, seed)


def test_no_place_of_the_target_sees_what_comes_after_it() -> None:
    pairs.assert_sees_nothing_ahead(pairs.moved(small()))


def test_an_empty_source_is_rejected() -> None:
    pairs.assert_empty_sources_are_rejected(pairs.moved(small()))


def test_it_keeps_the_contract() -> None:
    pairs.assert_keeps_the_contract(small(), 12)


def test_the_encoder_knows_distances_and_no_places() -> None:
    """The same tokens give the same wherever they stand, as long as all others stand as far from them."""
    model = pairs.moved(small())
    tokens = torch.tensor([[4, 7, 9, 5, 6, 8]])
    with torch.no_grad():
        model.encoder_bias.table.weight.zero_()
        order = torch.tensor([3, 0, 5, 1, 4, 2])
        without = model.encode(tokens, None)
        torch.testing.assert_close(model.encode(tokens[:, order], None), without[:, order])
        model.encoder_bias.table.weight.normal_()
        assert not torch.allclose(model.encode(tokens[:, order], None), model.encode(tokens, None)[:, order])
        mask = torch.tensor([[[[False, False, True, True, True, True]]]])
        later = model.encode(torch.tensor([[1, 2, 4, 7, 9, 5]]), mask)[:, 2:]
        torch.testing.assert_close(later, model.encode(tokens[:, :4], None))


def test_every_block_of_a_stack_has_the_same_bias_and_the_look_over_the_source_none() -> None:
    model = pairs.moved(small())
    source, mask, so_far = pairs.ragged([7, 3], 5)
    with torch.no_grad(), recording(model) as seen:
        model(source, mask, so_far)
    for stack, length in (("encoder", 7), ("decoder", 5)):
        first, second = (seen[f"{stack}.{i}.attention"][0] for i in range(2))
        assert first.scale == 1.0
        assert first.mask is not None
        assert second.mask is not None
        assert torch.equal(first.mask, second.mask)
        table = getattr(model, f"{stack}_bias")
        bias = table(length, length)
        open_ = first.mask > -torch.inf
        torch.testing.assert_close(first.mask[open_], bias.expand_as(first.mask)[open_])
    look = seen["decoder.0.cross_attention"][0].mask
    assert look is not None
    assert look.dtype == torch.bool


def test_it_begins_with_the_published_weights() -> None:
    torch.manual_seed(0)
    model = create_model("t5-small", vocab_size=2000, layers=1)
    d, k, h, f = 512, 64, 8, 2048
    q, key, v = model.encoder[0].attention.qkv.weight.split(h * k)
    cross = model.decoder[0].cross_attention
    deviations = [
        (model.embedding.weight, 1.0),
        (q, (d * k) ** -0.5),
        (key, d**-0.5),
        (v, d**-0.5),
        (cross.q.weight, (d * k) ** -0.5),
        (cross.kv.weight, d**-0.5),
        (cross.out.weight, (h * k) ** -0.5),
        (model.decoder[0].mlp.fc1.weight, d**-0.5),
        (model.decoder[0].mlp.fc2.weight, f**-0.5),
    ]
    for weight, deviation in deviations:
        assert weight.std().item() == pytest.approx(deviation, rel=0.01)
    assert model.decoder_bias.table.weight.std().item() == pytest.approx(d**-0.5, rel=0.2)
    assert not [name for name, _ in model.named_parameters() if name.endswith("bias")]


def test_a_config_fits_a_data_set() -> None:
    found = preset("t5-small")
    assert Model.joint_vocab
    assert found.configure(PairSpec(29, 20, Tokens(29, 0, 1, 21), joint_vocab=True)).vocab_size == 29
    with pytest.raises(ModelError, match=r"the two sides of this data are tokenized separately\. Add tokenizer=bpe"):
        found.configure(PairSpec(29, 20, Tokens(29, 2, 3, 21)))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dropout", 1.0),
        ("num_buckets", 6),
        ("max_distance", 16),
        *(
            (field, 0)
            for field in (
                "vocab_size",
                "dim",
                "layers",
                "decoder_layers",
                "heads",
                "head_dim",
                "ffn_dim",
                "num_buckets",
            )
        ),
    ],
)
def test_bad_values_are_rejected_by_name(field: str, value: float) -> None:
    with pytest.raises(ModelError, match=f"^Invalid {field}={value}"):
        Config(**{field: value})  # type: ignore[arg-type]
