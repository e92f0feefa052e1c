"""The Transformer: counts, √d, padding, one step at a time, both kinds of vocabulary. Its oracle is in interop."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import cutaway
from cutaway import card, create_model
from cutaway.core.errors import ModelError, SettingError
from cutaway.core.spec import PairSpec, Tokens
from cutaway.inference.sequence_decoding import decode
from cutaway.inspect.layers import layer_table
from cutaway.models.registry import preset
from cutaway.models.transformer import CARD, PRESETS, Config, Model
from cutaway.nn.attention import recording

from . import pairs

SMALL = Config(pairs.VOCABULARY, dim=12, layers=2, heads=3, ffn_dim=20, dropout=0.2)


def small(seed: int = 0, **changes: object) -> Model:
    torch.manual_seed(seed)
    return Model(dataclasses.replace(SMALL, **changes))  # type: ignore[arg-type]  # fields of Config


def build_on_meta(config: Config) -> tuple[nn.Module, Tensor]:
    with torch.device("meta"):
        return Model(config), torch.ones(1, 32, dtype=torch.long)


@pytest.mark.parametrize("name", PRESETS)
def test_counts_are_the_cards(name: str) -> None:
    model, tokens = build_on_meta(PRESETS[name])
    table = layer_table(model, tokens, tokens > 0, tokens)
    held = CARD.published[name]
    assert (table.parameters, table.multiply_adds, table.complete) == (held.parameters, held.multiply_adds, True)


def test_the_published_figures_are_not_those_of_the_definition() -> None:
    d, h, v, n = 512, 2048, 37_000, 6
    attention, mlp, norm = 4 * (d * d + d), 2 * d * h + h + d, 2 * d
    total = v * d + n * (attention + mlp + 2 * norm) + n * (2 * attention + mlp + 3 * norm)
    assert total == card("transformer-base").published_parameters == 63_082_496
    assert card("transformer-big").published_parameters == 214_245_376
    assert any("65 M and 213 M" in divergence.paper for divergence in CARD.divergences)


def test_the_factor_is_the_embeddings_alone() -> None:
    model = small(dim=4, heads=1).eval()
    bottoms: list[Tensor] = []
    for stack in (model.encoder, model.decoder):
        stack[0].register_forward_pre_hook(lambda module, args: bottoms.append(args[0]))
    tokens = torch.tensor([[3, 5, 7]])
    with torch.no_grad():
        model(tokens, None, tokens)
    positions = [math.sin(2), math.cos(2), math.sin(0.02), math.cos(0.02)]
    for bottom in bottoms:
        torch.testing.assert_close(bottom[0, 2], 2 * model.embedding.weight[7] + torch.tensor(positions))
        torch.testing.assert_close(bottom[0, 0], 2 * model.embedding.weight[3] + torch.tensor([0.0, 1.0, 0.0, 1.0]))
    assert len(bottoms) == 2


def test_the_embedding_begins_at_the_scale_of_the_positions() -> None:
    weight = small(vocab_size=500, dim=256, heads=4).embedding.weight
    assert (math.sqrt(256) * weight).std().item() == pytest.approx(1, abs=0.02)


SHAPES = {
    "lengths": st.lists(st.integers(1, 8), min_size=1, max_size=4),
    "steps": st.integers(1, 6),
    "seed": st.integers(0, 99),
}


@pytest.mark.parametrize("order", ["post", "pre"])
@settings(max_examples=15, deadline=None)
@given(**SHAPES)
def test_padding_changes_nothing(order: str, lengths: list[int], steps: int, seed: int) -> None:
    pairs.assert_padding_changes_nothing(pairs.moved(small(order=order), seed), lengths, steps, seed)


@pytest.mark.parametrize("order", ["post", "pre"])
@settings(max_examples=15, deadline=None)
@given(**SHAPES)
def test_one_pass_is_the_steps_one_by_one(order: str, lengths: list[int], steps: int, seed: int) -> None:
    pairs.assert_steps_are_one_pass(pairs.moved(small(order=order, decoder_layers=1), seed), lengths, steps, seed)


def test_no_place_of_the_target_sees_what_comes_after_it() -> None:
    pairs.assert_sees_nothing_ahead(pairs.moved(small()))


def test_an_empty_source_is_rejected() -> None:
    pairs.assert_empty_sources_are_rejected(pairs.moved(small()))


@pytest.mark.parametrize("order", ["post", "pre"])
@pytest.mark.parametrize("shared", [True, False])
def test_it_keeps_the_contract(order: str, shared: bool) -> None:
    pairs.assert_keeps_the_contract(small(order=order, joint_vocab=shared, target_vocab_size=pairs.VOCABULARY), 12)


def test_there_is_no_limit_of_length() -> None:
    model = pairs.moved(small())
    source, mask, so_far = pairs.ragged([3000, 7], 5)
    with torch.no_grad():
        assert model(source, mask, so_far).isfinite().all()


def test_the_attention_can_be_seen() -> None:
    model = pairs.moved(small())
    source, mask, so_far = pairs.ragged([4, 2], 3)
    with torch.no_grad(), recording(model) as seen:
        model(source, mask, so_far)
    looks = {"encoder.0.attention": (4, 4), "decoder.1.attention": (3, 3), "decoder.1.cross_attention": (3, 4)}
    for name, shape in looks.items():
        weights = seen[name][0].weights
        assert weights.shape == (2, 3, *shape)
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, shape[0]).double())
    assert (seen["decoder.1.cross_attention"][0].weights[1, :, :, 2:] == 0).all()
    assert seen["decoder.0.attention"][0].weights.triu(1).abs().max() == 0


def test_one_matrix_is_source_target_and_output() -> None:
    shared, apart = small(), small(joint_vocab=False, target_vocab_size=17)
    assert shared.head.weight is shared.embedding.weight
    assert apart.head.weight is apart.target_embedding.weight  # type: ignore[union-attr]  # it has one
    assert set(apart.state_dict()) - set(shared.state_dict()) == {"target_embedding.weight"}
    source, mask, _ = pairs.ragged([3], 1)
    assert apart(source, mask, torch.tensor([[16, 0]])).shape == (1, 2, 17)


def test_a_config_fits_a_data_set() -> None:
    found = preset("transformer-tiny")
    assert Model.joint_vocab
    together = found.configure(PairSpec(29, 20, Tokens(29, 2, 3, 21), joint_vocab=True))
    assert (together.vocab_size, together.target_vocab_size, together.joint_vocab, together.dim) == (29, 29, True, 128)
    apart = found.configure(PairSpec(29, 20, Tokens(43, 2, 3, 21)), {"dim": "32"})
    assert (apart.vocab_size, apart.target_vocab_size, apart.joint_vocab, apart.dim) == (29, 43, False, 32)
    with pytest.raises(SettingError, match="joint_vocab=true: the data sets joint_vocab to false"):
        found.configure(PairSpec(29, 20, Tokens(43, 2, 3, 21)), {"joint_vocab": "true"})


def test_it_learns_to_turn_sequences_round() -> None:
    torch.manual_seed(0)
    model = create_model("transformer-tiny", vocab_size=10, dim=32, layers=1, heads=4, ffn_dim=64, dropout=0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(150):
        source = torch.randint(4, 10, (32, 5))
        target = torch.cat([source.flip(1), torch.full((32, 1), 3)], 1)  # … and the end
        logits = model(source, None, torch.cat([torch.full((32, 1), 2), target[:, :-1]], 1))
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    source = torch.randint(4, 10, (50, 5))
    for beams in (1, 3):
        answers = decode(model, source, None, Tokens(10, 2, 3, 6), num_beams=beams)
        assert (answers[:, :5] == source.flip(1)).all(1).float().mean() > 0.9


@pytest.mark.parametrize("name", ["transformer-base", "transformer-big"])
def test_the_rate_peaks_as_in_the_paper(name: str) -> None:
    given, dim = CARD.settings[name], PRESETS[name].dim
    assert given["lr"] == pytest.approx(dim**-0.5 * 4000**-0.5, rel=1e-2)
    assert (given["schedule"], given["label_smoothing"], given["optimizer"]) == ("noam", 0.1, "adam")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dropout", 1.0),
        ("dropout", -0.1),
        ("heads", 5),
        ("order", "parallel"),
        ("target_vocab_size", 7),
        *(
            (field, 0)
            for field in ("vocab_size", "target_vocab_size", "dim", "layers", "decoder_layers", "heads", "ffn_dim")
        ),
    ],
)
def test_bad_values_are_rejected_by_name(field: str, value: object) -> None:
    with pytest.raises(ModelError, match=f"^Invalid {field}={value!r}"):
        Config(**{field: value})  # type: ignore[arg-type]


@settings(max_examples=10, deadline=None)
@given(source=st.integers(1, 6), target=st.integers(1, 6), padding=st.integers(1, 3), left=st.booleans())
def test_it_is_called_as_people_call_one(source: int, target: int, padding: int, left: bool) -> None:
    model = small().double().eval()
    src, tgt = (torch.randint(4, pairs.VOCABULARY, (2, length)) for length in (source, target))
    real = torch.ones(2, source, dtype=torch.bool)
    said = model(src, tgt)
    for same in (model(src, tgt, real), model(src, tgt, src_mask=real), model(src, real, tgt), model(src, None, tgt)):
        assert torch.equal(same, said)
    sides = (padding, 0) if left else (0, padding)
    mask = F.pad(torch.ones(2, target, dtype=torch.bool), sides)
    padded = model(src, F.pad(tgt, sides), tgt_mask=mask)
    assert torch.allclose(padded[mask].view_as(said), said, atol=1e-12)


def test_a_target_is_needed() -> None:
    src = torch.ones(1, 3, dtype=torch.int64)
    with pytest.raises(ModelError, match=r"model\(src, tgt\)"):
        small()(src, None)


def test_what_attributes_takes_the_same_order() -> None:
    model = small().eval()
    src, tgt = torch.randint(4, pairs.VOCABULARY, (2, 5)), torch.randint(4, pairs.VOCABULARY, (2, 3))
    real = torch.ones(2, 5, dtype=torch.bool)
    maps = [
        cutaway.inspect.attribute(model, inputs, "gradient", randomise=False)
        for inputs in ((src, real, tgt), (src, tgt), (src, tgt, real))
    ]
    for found in maps:
        assert found.values.shape == (2, 5)
        assert torch.equal(found.values, maps[0].values)
        assert found.beside is not None
        assert torch.equal(found.beside, maps[0].beside)  # type: ignore[arg-type]


def test_what_looks_inside_takes_what_forward_takes_as_a_tuple() -> None:
    model = small().eval()
    src, tgt = torch.tensor([[3, 4, 5]]), torch.tensor([[1, 6]])
    real = torch.ones_like(src, dtype=torch.bool)
    for inputs in ((src, tgt), (src, tgt, real)):
        assert cutaway.inspect.flow(model, inputs, lambda outputs: outputs.square().mean())
        assert cutaway.inspect.attribute(model, inputs, "gradient", target=(1, 3)).values.shape == src.shape
    with pytest.raises(ModelError, match=r"attribute\(model, \(src, tgt\)\)"):
        cutaway.inspect.attribute(model, src, tgt)  # type: ignore[arg-type]
