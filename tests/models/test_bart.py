"""BART: counts, positions and their limit, padding, one step at a time. Its oracle is in interop."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutaway import create_model
from cutaway.core.errors import ModelError
from cutaway.core.spec import PairSpec, Tokens
from cutaway.inspect.layers import layer_table
from cutaway.models.bart import CARD, PRESETS, Config, Model
from cutaway.models.registry import preset

from . import pairs

SMALL = Config(pairs.VOCABULARY, context_length=10, dim=12, layers=2, heads=3, ffn_dim=20, dropout=0.2)


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
    assert held.parameters == {"bart-base": 139_420_416, "bart-large": 406_291_456}[name]


SHAPES = {
    "lengths": st.lists(st.integers(1, 10), min_size=1, max_size=4),
    "steps": st.integers(1, 10),
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


def test_positions_begin_at_the_third_row() -> None:
    model = small().eval()
    bottoms: list[Tensor] = []
    for stack in (model.encoder, model.decoder):
        stack[0].register_forward_pre_hook(lambda module, args: bottoms.append(args[0]))
    tokens = torch.tensor([[3, 5, 7]])
    with torch.no_grad():
        model(tokens, None, tokens)
        for bottom, name in zip(bottoms, ("encoder", "decoder")):
            table, norm = getattr(model, f"{name}_positions").weight, getattr(model, f"{name}_norm")
            torch.testing.assert_close(bottom[0, 0], norm(model.embedding.weight[3] + table[2]))
            torch.testing.assert_close(bottom[0, 2], norm(model.embedding.weight[7] + table[4]))
    assert len(bottoms) == 2


def test_texts_beyond_the_context_are_rejected_by_both_numbers() -> None:
    model = small().eval()
    long, short = torch.ones(1, 11, dtype=torch.long), torch.ones(1, 10, dtype=torch.long)
    said = "learned positions for 10 tokens on either side, and these are 11"
    for source, target in ((long, short), (short, long)):
        with pytest.raises(ModelError, match=said):
            model(source, None, target)
    with pytest.raises(ModelError, match=said):
        model.begin(long)
    with torch.no_grad():
        state = model.begin(short)
        for _ in range(10):
            _, state = model.step(torch.tensor([1]), state)
        with pytest.raises(ModelError, match=said):
            model.step(torch.tensor([1]), state)


def test_the_constant_of_the_output_is_kept_and_does_not_learn() -> None:
    model = small().eval()
    source, mask, so_far = pairs.ragged([3], 2)
    before = model(source, mask, so_far)
    assert "head.constant" in model.state_dict()
    assert "head.constant" not in dict(model.named_parameters())
    model.load_state_dict({**model.state_dict(), "head.constant": torch.arange(13.0)[None]})
    torch.testing.assert_close(model(source, mask, so_far), before + torch.arange(13.0))
    seen, matrix, bias = model.head.last(model.features(source, mask, so_far))
    torch.testing.assert_close(seen @ matrix.T + bias, before + torch.arange(13.0))


def test_it_begins_with_the_published_weights() -> None:
    torch.manual_seed(0)
    model = create_model("bart-base", vocab_size=2000, layers=1)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            assert parameter.std().item() == pytest.approx(0.02, rel=0.02), name
        else:
            assert (parameter == (0 if name.endswith("bias") else 1)).all(), name


def test_a_config_fits_a_data_set() -> None:
    found = preset("bart-base")
    assert Model.joint_vocab
    fitted = found.configure(PairSpec(29, 20, Tokens(29, 0, 1, 21), joint_vocab=True))
    assert (fitted.vocab_size, fitted.context_length) == (29, 1024)
    assert found.configure(PairSpec(29, 2000, Tokens(29, 0, 1, 21), joint_vocab=True)).context_length == 2000
    assert found.configure(PairSpec(29, 20, Tokens(29, 0, 1, 1001), joint_vocab=True)).context_length == 1501
    with pytest.raises(ModelError, match=r"the two sides of this data are tokenized separately\. Add tokenizer=bpe"):
        found.configure(PairSpec(29, 20, Tokens(29, 2, 3, 21)))
    with pytest.raises(ModelError, match="reads at most 64 tokens"):
        found.configure(PairSpec(29, 65, Tokens(29, 0, 1, 21), joint_vocab=True), {"context_length": "64"})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("heads", 5),
        *((field, 1.0) for field in ("dropout", "attention_dropout", "activation_dropout")),
        *(
            (field, 0)
            for field in ("vocab_size", "context_length", "dim", "layers", "decoder_layers", "heads", "ffn_dim")
        ),
    ],
)
def test_bad_values_are_rejected_by_name(field: str, value: float) -> None:
    with pytest.raises(ModelError, match=f"^Invalid {field}={value}"):
        Config(**{field: value})  # type: ignore[arg-type]
