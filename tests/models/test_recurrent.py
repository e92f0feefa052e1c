"""What the three recurrent networks share: lengths, read-outs, states handed on, rejections, costs.

Their oracle is in tests/verify, their steps in tests/nn, forecasts in test_forecasting.py.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutaway import create_model
from cutaway.checkpoints.saving import load_model, save_model
from cutaway.core.errors import ModelError
from cutaway.core.spec import AudioSpec, Classes, Context, Horizon, NextToken, SeriesSpec, Tags, TextSpec, Value
from cutaway.models import gru, lstm, rnn
from cutaway.models.base import RecurrentModel
from cutaway.models.registry import preset
from cutaway.nn import recurrent as layers

from .contract import assert_keeps_the_contract

FAMILIES = {"rnn": rnn, "lstm": lstm, "gru": gru}
EACH = pytest.mark.parametrize("name", FAMILIES)
CLASSES = Classes(("a", "b", "c"))
FORECAST = Horizon(4, ("load", "price"), (0.0, 0.0), (1.0, 1.0))


def model_of(name: str, seed: int = 0, **changes: Any) -> RecurrentModel:
    """A small network in float64, in evaluation mode."""
    torch.manual_seed(seed)
    config = FAMILIES[name].Config(**{"hidden_dim": 5, "num_classes": 3, **changes})
    model: RecurrentModel = FAMILIES[name].Model(config).double().eval()
    return model


def sentences(count: int, longest: int, seed: int = 0, vocab_size: int = 11) -> tuple[Tensor, Tensor]:
    """Token ids, padded with 0, and the mask; the first is the longest."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (count,), generator=generator)
    lengths[0] = longest
    mask = torch.arange(longest) < lengths[:, None]
    return torch.randint(1, vocab_size, (count, longest), generator=generator).where(mask, 0), mask


# --- lengths ------------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(sorted(FAMILIES)),
    read=st.sampled_from(["last", "mean", "max", "every"]),
    bidirectional=st.booleans(),
    depth=st.integers(1, 2),
    cut=st.booleans(),
    seed=st.integers(0, 99),
)
def test_a_sequence_alone_is_answered_as_in_a_padded_batch_in_any_order(
    name: str, read: str, bidirectional: bool, depth: int, cut: bool, seed: int
) -> None:
    model = model_of(name, seed, vocab_size=11, pooling=read, bidirectional=bidirectional, layers=depth)
    tokens, mask = sentences(6, 8, seed)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(seed))
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(layers, "LEAST_WORK", 0 if cut else 10**9)
        together = model(tokens, mask)
        torch.testing.assert_close(model(tokens[order], mask[order]), together[order])
        for i, length in enumerate(mask.sum(1).tolist()):
            alone = model(tokens[i : i + 1, :length])[0]
            torch.testing.assert_close(together[i, :length] if read == "every" else together[i], alone)
        rubbish = tokens.masked_fill(~mask, 7)  # what stands in the padding is not read
        torch.testing.assert_close(
            model(rubbish, mask)[mask] if read == "every" else model(rubbish, mask),
            together[mask] if read == "every" else together,
        )


@EACH
@pytest.mark.parametrize("bidirectional", [False, True], ids=["one way", "both"])
@pytest.mark.parametrize("read", ["last", "mean", "max", "flat", "every"])
def test_the_equations_step_by_step_are_the_network(name: str, bidirectional: bool, read: str) -> None:
    changes: dict[str, Any] = {"layers": 2, "bidirectional": bidirectional, "pooling": read, "in_features": 4}
    model = model_of(name, steps=6 if read == "flat" else 0, **changes)
    x = torch.randn(3, 6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    found, expected, learned = model.textbook(x), model(x), [x, *model.parameters()]
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    slopes = [torch.autograd.grad(y.square().sum(), learned) for y in (found, expected)]
    for ours, fused in zip(*slopes):
        torch.testing.assert_close(ours, fused, rtol=1e-9, atol=1e-12)


def test_words_and_relu_step_by_step_are_the_network() -> None:
    tokens = sentences(3, 5)[0]
    for name in FAMILIES:
        model = model_of(name, vocab_size=11, pooling="every")
        torch.testing.assert_close(model.textbook(tokens), model(tokens), rtol=1e-12, atol=1e-12)
    model = model_of("rnn", activation="relu", in_features=2)
    x = torch.randn(3, 6, 2, dtype=torch.float64)
    torch.testing.assert_close(model.textbook(x), model(x), rtol=1e-12, atol=1e-12)


@EACH
def test_a_mask_of_all_real_steps_is_no_mask(name: str) -> None:
    model, (tokens, _) = model_of(name, vocab_size=11), sentences(3, 6)
    assert torch.equal(model(tokens, torch.ones(3, 6, dtype=torch.bool)), model(tokens))


@EACH
def test_masks_as_people_have_them(name: str) -> None:
    """Of tokens, of steps of numbers, and of a state that is carried on."""
    tokens, mask = sentences(4, 6)
    numbers = torch.randn(4, 6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    words, series = model_of(name, vocab_size=11, pooling="every"), model_of(name, in_features=3)
    asked: list[Any] = [
        lambda seen: words(tokens, seen),
        lambda seen: series(numbers, seen),
        lambda seen: words.advance(tokens, seen)[0],
    ]
    for ask in asked:
        for dtype in (torch.int64, torch.uint8, torch.float32):
            assert torch.equal(ask(mask.to(dtype)), ask(mask))
        with pytest.raises(ModelError, match="padding before a real step"):
            ask(mask.flip(1))
        with pytest.raises(ModelError, match="by True and False or by 1 and 0"):
            ask(torch.zeros(mask.shape).masked_fill(~mask, -torch.inf))
        for wrong in (mask[:, :-1], mask[:1]):
            with pytest.raises(ModelError, match="one entry for each place"):
                ask(wrong)


@EACH
def test_read_outs(name: str) -> None:
    tokens, mask = sentences(3, 6)
    every = model_of(name, vocab_size=11, pooling="every", bidirectional=True)
    states = every.features(tokens, mask)
    assert states.shape == (3, 6, 10)
    assert not states[~mask].any()
    lengths = mask.sum(1)
    expected = {
        "last": torch.stack([torch.cat([s[n - 1, :5], s[0, 5:]]) for s, n in zip(states, lengths, strict=True)]),
        "mean": torch.stack([s[:n].mean(0) for s, n in zip(states, lengths, strict=True)]),
        "max": torch.stack([s[:n].amax(0) for s, n in zip(states, lengths, strict=True)]),
    }
    for read, seen in expected.items():
        model = model_of(name, vocab_size=11, pooling=read, bidirectional=True)
        model.load_state_dict(every.state_dict())
        torch.testing.assert_close(model.features(tokens, mask), seen)
    auto = model_of(name, vocab_size=11, bidirectional=True)
    auto.load_state_dict(every.state_dict())
    torch.testing.assert_close(auto.features(tokens, mask), expected["last"])


@EACH
def test_flat_reads_every_step_of_one_length(name: str) -> None:
    model = model_of(name, pooling="flat", steps=6, in_features=2)
    x = torch.randn(3, 6, 2, dtype=torch.float64)
    assert model.features(x).shape == (3, 30)
    ragged = torch.ones(3, 6, dtype=torch.bool)
    ragged[1, 4:] = False
    for given_ in ((x[:, :5],), (x, ragged)):
        with pytest.raises(ModelError, match="pooling=flat has weights for each of 6 steps"):
            model(*given_)


# --- language models ----------------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(
    name=st.sampled_from(sorted(FAMILIES)),
    depth=st.integers(1, 2),
    tied=st.booleans(),
    windows=st.lists(st.integers(1, 5), min_size=1, max_size=4),
)
def test_windows_with_the_state_handed_on_are_one_long_pass(
    name: str, depth: int, tied: bool, windows: list[int]
) -> None:
    model = model_of(name, vocab_size=11, num_classes=11, pooling="every", layers=depth, tie_weights=tied)
    tokens, _ = sentences(3, sum(windows))
    tokens = tokens.clamp(min=1)
    whole, state, found = model(tokens), None, []
    for window in tokens.split(windows, dim=1):
        answers, state = model.advance(window, torch.ones_like(window, dtype=torch.bool), state)
        assert [part.shape for part in state] == [(depth, 3, 5)] * (2 if name == "lstm" else 1)
        found.append(answers)
    torch.testing.assert_close(torch.cat(found, 1), whole)


@EACH
def test_a_state_is_that_of_the_last_real_step(name: str) -> None:
    model = model_of(name, vocab_size=11, num_classes=11, pooling="every", layers=2)
    tokens, mask = sentences(4, 6)
    answers, state = model.advance(tokens, mask)
    torch.testing.assert_close(answers, model(tokens, mask))
    for i, length in enumerate(mask.sum(1).tolist()):
        _, alone = model.advance(tokens[i : i + 1, :length])
        for part, own in zip(state, alone, strict=True):
            torch.testing.assert_close(part[:, i : i + 1], own)


@EACH
def test_no_token_sees_what_comes_after_it(name: str) -> None:
    model = model_of(name, vocab_size=11, num_classes=11, pooling="every")
    tokens, _ = sentences(2, 8)
    other = tokens.clone()
    other[:, 5:] = 3
    before, after = model(tokens), model(other)
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.equal(before[:, 5:], after[:, 5:])


@EACH
def test_tied_is_one_matrix(name: str, tmp_path: Path) -> None:
    model = model_of(name, vocab_size=11, num_classes=11, pooling="every", tie_weights=True)
    assert model.embedding is not None
    assert model.head.weight is model.embedding.weight
    assert 0.05 < model.head.weight.abs().max() <= 0.1
    untied = model_of(name, vocab_size=11, num_classes=11, pooling="every")
    counts = [sum(p.numel() for p in m.parameters()) for m in (untied, model)]
    assert counts[0] - counts[1] == 11 * 5
    save_model(model, tmp_path, preset(name))
    loaded, _ = load_model(tmp_path)
    assert loaded.head.weight is loaded.embedding.weight  # type: ignore[union-attr]
    tokens, mask = sentences(3, 5)
    assert torch.equal(loaded(tokens, mask), model(tokens, mask))


@pytest.mark.parametrize("changes", [{"pooling": "last"}, {"pooling": "every", "bidirectional": True}])
def test_models_without_a_carried_state_are_rejected(changes: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="a unidirectional network with an output at each step can continue"):
        model_of("gru", vocab_size=11, **changes).advance(sentences(2, 3)[0])


# --- fitted to data -----------------------------------------------------------------------------------------------

SPECS: list[tuple[Any, dict[str, Any]]] = [
    (TextSpec(50, 9, CLASSES), {"vocab_size": 50, "pooling": "auto", "num_classes": 3}),
    (TextSpec(50, 9, Value()), {"vocab_size": 50, "num_classes": 1}),
    (TextSpec(50, 9, Tags(("N", "V"))), {"vocab_size": 50, "pooling": "every", "num_classes": 2}),
    (TextSpec(50, 9, NextToken(50)), {"vocab_size": 50, "pooling": "every", "num_classes": 50}),
    (SeriesSpec(30, 4, CLASSES), {"vocab_size": 0, "in_features": 4, "num_classes": 3}),
    (SeriesSpec(30, 4, FORECAST), {"in_features": 4, "horizon": 4, "known_future": 0, "num_classes": 8}),
    (
        SeriesSpec(30, 4, FORECAST, known_future=2),
        {"in_features": 4, "horizon": 4, "known_future": 2, "num_classes": 8},
    ),
    (AudioSpec(99, 16, CLASSES), {"vocab_size": 0, "in_features": 16, "num_classes": 3}),
]


@EACH
@pytest.mark.parametrize(("spec", "fitted"), SPECS, ids=lambda v: type(getattr(v, "target", None)).__name__)
def test_a_config_fits_a_data_set(name: str, spec: Any, fitted: dict[str, Any]) -> None:
    config = preset(name).configure(spec)
    assert {key: getattr(config, key) for key in fitted} == fitted
    FAMILIES[name].Model(config)


def test_settings_that_are_typed_stay() -> None:
    config = preset("lstm").configure(
        TextSpec(50, 9, NextToken(50)), {"tie_weights": "true", "hidden_dim": "7", "layers": "2"}
    )
    assert (config.tie_weights, config.hidden_dim, config.layers, config.pooling) == (True, 7, 2, "every")
    config = preset("gru").configure(SeriesSpec(30, 2, FORECAST), {"recursive": "true", "relative": "true"})
    assert (config.recursive, config.relative, config.forecasts_step_by_step) == (True, True, True)
    config = preset("gru-mnist1d").configure(SeriesSpec(30, 2, CLASSES))
    assert (config.steps, config.in_features, config.pooling) == (30, 2, "flat")


@pytest.mark.parametrize(
    ("spec", "asked", "words"),
    [
        (TextSpec(50, 9, NextToken(50)), {"bidirectional": True}, "false in a language model"),
        (TextSpec(50, 9, NextToken(50)), {"pooling": "mean"}, "every or auto: each token has a target"),
        (TextSpec(50, 9, Tags(("N", "V"))), {"pooling": "last"}, "every or auto: each token has a target"),
        (TextSpec(50, 9, Tags(("N", "V"))), {"tie_weights": True}, "false in all but a language model"),
        (TextSpec(50, 9, CLASSES), {"pooling": "flat"}, "last, mean or max where lengths differ"),
        (TextSpec(50, 9, CLASSES), {"recursive": True}, "left out: nothing is forecast"),
        (AudioSpec(99, 16, CLASSES), {"relative": True}, "left out: nothing is forecast"),
        (SeriesSpec(30, 4, FORECAST), {"recursive": True}, "of 4, 2 are forecast and 0 known in advance"),
        (SeriesSpec(30, 4, FORECAST), {"pooling": "every"}, "last, mean, max or flat for a forecast"),
        (
            SeriesSpec(30, 3, FORECAST, known_future=1),
            {"bidirectional": True},
            "step-by-step forecasts continue from the last state",
        ),
        (
            SeriesSpec(30, 3, FORECAST, known_future=1),
            {"pooling": "mean"},
            "step-by-step forecasts continue from the last state",
        ),
    ],
    ids=lambda v: str(v)[:30],
)
def test_what_a_network_cannot_answer_is_rejected_before_it_is_built(
    spec: Any, asked: dict[str, Any], words: str
) -> None:
    with pytest.raises(ModelError, match=words):
        preset("gru").configure(spec, asked)


def test_what_no_recurrent_network_learns_is_rejected() -> None:
    with pytest.raises(ModelError, match="cannot learn the context of a token"):
        gru.Config.for_spec(gru.Config(), TextSpec(50, 9, Context(50)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_dim": 0}, "^Invalid hidden_dim=0"),
        ({"layers": 0}, "^Invalid layers=0"),
        ({"in_features": 0}, "^Invalid in_features=0"),
        ({"num_classes": 0}, "^Invalid num_classes=0"),
        ({"vocab_size": -1}, "^Invalid vocab_size=-1"),
        ({"dropout": 1.0}, "^Invalid dropout=1.0"),
        ({"pooling": "first"}, "^Invalid pooling='first': must be auto, last, mean"),
        ({"tie_weights": True, "embedding_dim": 9}, "^Invalid embedding_dim=9: must be 0 or hidden_dim=128"),
        ({"tie_weights": True, "bidirectional": True}, "^Invalid bidirectional=True"),
        ({"recursive": True, "bidirectional": True}, "^Invalid bidirectional=True"),
    ],
    ids=str,
)
def test_bad_values_are_rejected_by_name(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        gru.Config(**changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tie_weights": True, "vocab_size": 9}, "^Invalid tie_weights=True"),
        ({"pooling": "flat"}, "^Invalid steps=0"),
        ({"horizon": 3}, "^Invalid num_classes=10: must be a multiple of the 3 steps"),
        ({"horizon": 5}, r"^Invalid num_classes=10: must be at most horizon times in_features, 5 · 1"),
        ({"horizon": 5, "vocab_size": 9}, "^Invalid vocab_size=9"),
        ({"known_future": 2}, "^Invalid known_future=2"),
    ],
    ids=str,
)
def test_settings_that_contradict_each_other_build_nothing(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        gru.Model(gru.Config(**changes))


def test_inputs_of_another_kind_are_rejected() -> None:
    words, numbers = model_of("gru", vocab_size=11), model_of("gru", in_features=2)
    for x in (torch.zeros(2, 3), torch.zeros(2, 3, 1, dtype=torch.int64)):
        with pytest.raises(ModelError, match="takes token ids"):
            words(x)
    for x in (torch.zeros(2, 3, 1), torch.zeros(2, 3)):
        with pytest.raises(ModelError, match=r"takes sequences of shape \(N, T, 2\)"):
            numbers(x)
    with pytest.raises(ModelError, match="padding before a real step"):
        numbers(torch.zeros(1, 2, 2, dtype=torch.float64), torch.tensor([[False, True]]))


# --- learning, keeping -------------------------------------------------------------------------------------------


@EACH
def test_it_keeps_the_contract(name: str) -> None:
    torch.manual_seed(0)
    family = FAMILIES[name]
    model = family.Model(family.Config(hidden_dim=6, layers=2, bidirectional=True, in_features=2, num_classes=4))
    assert_keeps_the_contract(model, torch.randn(5, 7, 2), 4)


@EACH
@pytest.mark.parametrize("read", ["last", "mean", "max", "every"])
def test_a_batch_can_be_learned_by_heart(name: str, read: str) -> None:
    torch.manual_seed(0)
    family = FAMILIES[name]
    model = family.Model(family.Config(vocab_size=11, hidden_dim=24, pooling=read, num_classes=3))
    tokens, mask = sentences(8, 6)
    target = torch.randint(3, (8, 6) if read == "every" else (8,), generator=torch.Generator().manual_seed(1))
    if read == "every":  # each token's own tag, so that it can be known
        target = (tokens % 3).masked_fill(~mask, -100)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(120):
        optimizer.zero_grad()
        answers = model(tokens, mask)
        loss = F.cross_entropy(answers.flatten(0, -2), target.flatten(), ignore_index=-100)
        loss.backward()
        optimizer.step()
    assert loss < 0.1


@EACH
def test_saved_and_loaded(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = create_model(name, vocab_size=11, hidden_dim=6, layers=2, bidirectional=True, num_classes=3).eval()
    save_model(model, tmp_path, preset(name))
    loaded, _ = load_model(tmp_path)
    tokens, mask = sentences(3, 5)
    assert torch.equal(loaded(tokens, mask), model(tokens, mask))


def test_dropout_is_before_the_head_in_training_alone() -> None:
    model, (tokens, mask) = model_of("lstm", vocab_size=11, dropout=0.5), sentences(3, 5)
    assert torch.equal(model(tokens, mask), model(tokens, mask))
    model.train()
    assert not torch.equal(model(tokens, mask), model(tokens, mask))
    assert model.rnn.dropout == 0  # one layer has no other above it
    assert model_of("lstm", layers=2, dropout=0.5).rnn.dropout == 0.5


def test_the_three_configs_are_alike() -> None:
    shared = [f.name for f in dataclasses.fields(gru.Config)]
    assert [f.name for f in dataclasses.fields(rnn.Config)] == [*shared, "activation"]
    assert [f.name for f in dataclasses.fields(lstm.Config)] == [*shared, "forget_bias"]
