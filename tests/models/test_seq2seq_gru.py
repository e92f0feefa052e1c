"""The encoder–decoder with attention: counts, padding, one step at a time, rejections. Its oracle is in interop."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutaway import create_model
from cutaway.core.errors import ModelError
from cutaway.core.spec import Classes, PairSpec, Tokens
from cutaway.inspect.captures import capture
from cutaway.inspect.layers import layer_table
from cutaway.models.seq2seq_gru import CARD, Config, Model
from cutaway.verify import oracle_for
from cutaway.verify.compare import compare

SMALL = Config(11, 13, embedding_dim=6, hidden_dim=5, attention_dim=7, readout_dim=4, dropout=0.0)


def small(seed: int = 0, **changes: int) -> Model:
    torch.manual_seed(seed)
    return Model(Config(**{**vars(SMALL), **changes})).double().eval()


def ragged(lengths: list[int], steps: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    source = torch.randint(1, 11, mask.shape, generator=generator).where(mask, 0)
    return source, mask, torch.randint(0, 13, (len(lengths), steps), generator=generator)


def test_counts_are_the_cards() -> None:
    held = CARD.published["seq2seq-gru"]
    e, n, a, r, v, w = 128, 256, 128, 128, 32, 48
    encoder = 2 * (3 * n * (e + n) + 6 * n)
    decoder = 3 * n * (e + 2 * n + n) + 6 * n
    attention = a * n + (a * 2 * n + a) + a
    readout = 2 * r * (3 * n + e) + 2 * r + w * r + w
    assert held.parameters == (v + w) * e + encoder + (n * n + n) + decoder + attention + readout
    source, target = torch.ones(1, 10, dtype=torch.long), torch.ones(1, 10, dtype=torch.long)
    layers = layer_table(create_model("seq2seq-gru"), source, source > 0, target)
    assert (layers.parameters, layers.complete) == (held.parameters, True)
    read = 2 * 3 * n * (e + n) + 2 * n * a  # for each token of the source
    each = n * a + 10 * a + 10 * 2 * n + 3 * n * (e + 3 * n) + 2 * r * (3 * n + e) + w * r  # of the target
    assert layers.multiply_adds == held.multiply_adds == 10 * read + n * n + 10 * each
    assert [row.name for row in layers.rows if row.name.startswith("attention")] == [
        "attention.key",
        "attention.query",
        "attention",
    ]


@pytest.mark.parametrize("layers", [1, 2])
def test_it_is_its_oracle_with_any_number_of_layers(layers: int) -> None:
    config = Config(**{**vars(SMALL), "layers": layers})
    assert compare(Model(config), oracle_for("seq2seq-gru", config), torch.Generator().manual_seed(layers)).equal


@settings(max_examples=25, deadline=None)
@given(lengths=st.lists(st.integers(1, 8), min_size=1, max_size=5), steps=st.integers(1, 5), seed=st.integers(0, 99))
def test_padding_changes_nothing(lengths: list[int], steps: int, seed: int) -> None:
    model = small(seed)
    source, mask, so_far = ragged(lengths, steps, torch.Generator().manual_seed(seed))
    together = model(source, mask, so_far)
    assert together.shape == (len(lengths), steps, 13)
    source[~mask] = 10  # whatever stands there
    torch.testing.assert_close(model(source, mask, so_far), together, rtol=0, atol=0)
    for i, length in enumerate(lengths):
        alone = model(source[i : i + 1, :length], None, so_far[i : i + 1])
        torch.testing.assert_close(alone[0], together[i], rtol=1e-10, atol=1e-12)


@settings(max_examples=20, deadline=None)
@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4), steps=st.integers(1, 6), seed=st.integers(0, 99))
def test_one_pass_is_the_steps_one_by_one(lengths: list[int], steps: int, seed: int) -> None:
    model = small(seed, layers=2)
    source, mask, so_far = ragged(lengths, steps, torch.Generator().manual_seed(seed))
    state = model.begin(source, mask)
    assert all(len(x) == len(lengths) for x in state)
    logits = []
    for token in so_far.unbind(1):
        step, state = model.step(token, state)
        logits.append(step)
    torch.testing.assert_close(torch.stack(logits, 1), model(source, mask, so_far), rtol=1e-10, atol=1e-12)


def test_no_place_of_the_target_sees_what_comes_after_it() -> None:
    model = small()
    source, mask, so_far = ragged([4, 3], 6, torch.Generator().manual_seed(0))
    before = model(source, mask, so_far)
    so_far[:, 4:] = (so_far[:, 4:] + 1) % 13
    after = model(source, mask, so_far)
    assert torch.equal(after[:, :4], before[:, :4])
    assert not torch.allclose(after[:, 4:], before[:, 4:])


def test_the_attention_can_be_seen() -> None:
    model = small()
    source, mask, so_far = ragged([4, 2], 3, torch.Generator().manual_seed(0))
    weights: list[Tensor] = []
    handle = model.attention.register_forward_hook(lambda module, args, output: weights.append(output[1]))
    model(source, mask, so_far)
    handle.remove()
    seen = torch.stack(weights, 1)  # (N, S, T)
    assert seen.shape == (2, 3, 4)
    assert (seen[~mask[:, None].expand_as(seen)] == 0).all()
    torch.testing.assert_close(seen.sum(2), torch.ones(2, 3).double())
    with capture(model, "features", "attention") as found:
        model(source, mask, so_far)
    assert found["features"]["attention"].shape == (2, 10)  # the first context


def test_it_keeps_the_contract() -> None:
    torch.manual_seed(0)
    model = Model(Config(11, 13))
    source, mask, so_far = ragged([5, 3, 5], 4, torch.Generator().manual_seed(0))
    y = model.train()(source, mask, so_far)
    y.backward(torch.randn(y.shape))
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name
    assert model.features(source, mask, so_far).shape == (3, 4, 128)
    assert not torch.equal(model(source, mask, so_far), y)  # dropout
    other = Model(model.config).eval()
    other.load_state_dict(copy.deepcopy(model.state_dict()))
    assert torch.equal(other(source, mask, so_far), model.eval()(source, mask, so_far))
    assert model.embedding.num_embeddings == 11


def test_a_config_fits_a_data_set() -> None:
    fitted = Config.for_spec(SMALL, PairSpec(29, 20, Tokens(43, 2, 3, 21)))
    assert (fitted.vocab_size, fitted.target_vocab_size, fitted.hidden_dim) == (29, 43, 5)
    with pytest.raises(ModelError, match="predicts a sequence of tokens, and the target 'class' is not one"):
        Config.for_spec(SMALL, PairSpec(29, 20, Classes(("a", "b"))))  # type: ignore[arg-type]


def test_an_empty_source_is_rejected() -> None:
    source, mask, so_far = ragged([3, 2], 2, torch.Generator().manual_seed(0))
    mask[1] = False
    with pytest.raises(ModelError, match="Sequence 1 of the batch has no real step"):
        small()(source, mask, so_far)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("vocab_size", 1),
        ("dropout", 1.0),
        ("dropout", -0.1),
        *(
            (field, 0)
            for field in ("target_vocab_size", "embedding_dim", "hidden_dim", "attention_dim", "readout_dim", "layers")
        ),
    ],
)
def test_bad_values_are_rejected_by_name(field: str, value: float) -> None:
    with pytest.raises(ModelError, match=f"^Invalid {field}={value}"):
        Config(**{field: value})  # type: ignore[arg-type]
