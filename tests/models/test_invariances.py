"""What no text model may depend on: the batch that a text stands in, its padding, what comes later, and how it is read.

Every preset that takes text or pairs is here by itself, made small by its settings, once for each thing that it learns.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from cutaway.core.errors import ModelError
from cutaway.core.spec import Classes, Context, Masked, NextToken, PairSpec, Spec, Tags, Target, TextSpec, Tokens
from cutaway.models.registry import Preset, presets

VOCABULARY, LONGEST, BOUND = 23, 24, 1e-9
SMALLER = {  # a setting that is above this is brought down to it
    "vocab_size": VOCABULARY,
    "num_classes": VOCABULARY,
    "context_length": LONGEST,
    "dim": 24,
    "embedding_dim": 12,
    "hidden_dim": 16,
    "ffn_dim": 16,
    "second": 10,
    "layers": 2,
    "decoder_layers": 2,
    "heads": 3,
    "head_dim": 10,
    "filters": 4,
    "attention_dim": 8,
    "readout_dim": 6,
}
TARGETS: tuple[Target, ...] = (
    NextToken(VOCABULARY),
    Masked(VOCABULARY, mask=VOCABULARY - 1),
    Classes(("a", "b", "c")),
    Tags(("a", "b", "c", "d")),
    Context(VOCABULARY, window=2),
)


def small(preset: Preset) -> dict[str, Any]:
    """The settings of the preset that make it small."""
    found = {}
    for field in dataclasses.fields(preset.config):
        value, most = getattr(preset.config, field.name), SMALLER.get(field.name)
        if most is not None and isinstance(value, int) and value > most:
            found[field.name] = most
    return found


def configs(kind: str) -> Iterator[tuple[str, tuple[Preset, Any]]]:
    """A name, and the preset and its small config, for each thing that each preset learns; those that are equal once
    made small, as the sizes of one family, once."""
    known = []
    for preset in presets().values():
        if kind not in preset.takes or getattr(preset.config, "pooling", None) == "flat":  # flat: series of one length
            continue
        config = dataclasses.replace(preset.config, **small(preset))
        for name, spec in specs(preset, kind):
            try:
                fit = type(config).for_spec(config, spec)
            except ModelError:
                continue  # one vocabulary for both sides, tags alone, and the like: said by the preset itself
            if (preset.module, fit) not in known:
                known.append((preset.module, fit))
                yield f"{preset.name}-{name}", (preset, fit)


def specs(preset: Preset, kind: str) -> Iterator[tuple[str, Spec]]:
    """What the preset can learn of that kind of data, by name."""
    model = preset.module.Model
    if kind == "seq2seq":
        tokens = Tokens(VOCABULARY, begin=2, end=3, longest=LONGEST)
        for shared in (True, False) if model.joint_vocab else (False,):
            yield "one" if shared else "two", PairSpec(VOCABULARY, LONGEST, tokens, joint_vocab=shared)
        return
    frame = (VOCABULARY - 3, VOCABULARY - 2) if model.special_tokens else (None, None)
    for target in TARGETS:
        if isinstance(target, preset.targets):
            yield type(target).__name__.lower(), TextSpec(VOCABULARY, LONGEST, target, *frame)


TEXTS, PAIRS = dict(configs("text")), dict(configs("seq2seq"))
LANGUAGE = [name for name in TEXTS if name.endswith("-nexttoken")]
CACHED = [name for name, (preset, _) in TEXTS.items() if hasattr(preset.module.Model, "extend")]


@functools.cache
def model(name: str) -> nn.Module:
    """The model in float64 and evaluation mode, none of whose numbers is 0 or 1."""
    preset, config = (TEXTS | PAIRS)[name]
    torch.manual_seed(0)
    made = preset.build(config).double().eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return made


def ragged(lengths: list[int], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Token ids (N, T), with something at the padding too, and their mask."""
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return torch.randint(4, VOCABULARY - 3, mask.shape, generator=generator), mask


def assert_equal(found: Tensor, expected: Tensor) -> None:
    """Equal to the bound, and numbers at all."""
    assert found.isfinite().all()
    torch.testing.assert_close(found, expected, rtol=BOUND, atol=BOUND)


lengths_of = st.lists(st.integers(1, 9), min_size=1, max_size=4)
few = settings(max_examples=15, deadline=None)


def test_every_preset_for_text_and_pairs_is_here() -> None:
    there = {p.module.__name__ for p in presets().values() if {"text", "seq2seq"} & set(p.takes)}
    assert {preset.module.__name__ for preset, _ in (TEXTS | PAIRS).values()} == there
    assert {"gpt2-nexttoken", "gpt2-classes", "parallel-transformer-nexttoken"} <= set(CACHED)
    assert {"gpt2-nexttoken", "lstm-nexttoken"} <= set(LANGUAGE)
    for name, (preset, config) in (TEXTS | PAIRS).items():
        with torch.device("meta"):
            assert sum(p.numel() for p in preset.build(config).parameters()) < 100_000, name


# --- texts --------------------------------------------------------------------------------------------------------


def of_one(answers: Tensor, row: int, length: int, each: bool) -> Tensor:
    """The answers of one text without its padding."""
    return answers[row, :length] if each else answers[row]


@pytest.mark.parametrize("name", TEXTS)
@few
@given(lengths=lengths_of, seed=st.integers(0, 99))
@torch.no_grad()
def test_a_text_alone_is_the_text_in_a_padded_batch(name: str, lengths: list[int], seed: int) -> None:
    net = model(name)
    tokens, mask = ragged(lengths, torch.Generator().manual_seed(seed))
    together = net(tokens, mask)
    each = not name.endswith("-classes")  # an answer for each token
    assert together.shape[: 1 + each] == tokens.shape[: 1 + each]
    other = net(tokens.where(mask, 0), mask)  # something else at the padding
    for row, length in enumerate(lengths):
        assert_equal(of_one(other, row, length, each), of_one(together, row, length, each))
        alone = tokens[row : row + 1, :length]
        for how in (None, torch.ones_like(alone, dtype=torch.bool)):
            assert_equal(of_one(net(alone, how), 0, length, each), of_one(together, row, length, each))


@pytest.mark.parametrize("name", TEXTS)
@few
@given(data=st.data(), lengths=lengths_of, seed=st.integers(0, 99))
@torch.no_grad()
def test_the_order_of_a_batch_is_that_of_its_answers(
    name: str, data: st.DataObject, lengths: list[int], seed: int
) -> None:
    rows = data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, max_size=6))
    tokens, mask = ragged(lengths, torch.Generator().manual_seed(seed))
    assert_equal(model(name)(tokens[rows], mask[rows]), model(name)(tokens, mask)[rows])


@pytest.mark.parametrize("name", LANGUAGE)
@few
@given(data=st.data(), length=st.integers(2, 12), seed=st.integers(0, 99))
@torch.no_grad()
def test_a_later_token_changes_nothing_before_it(name: str, data: st.DataObject, length: int, seed: int) -> None:
    at = data.draw(st.integers(1, length - 1))
    tokens, _ = ragged([length], torch.Generator().manual_seed(seed))
    other = tokens.clone()
    other[:, at:] = (other[:, at:] + 1) % VOCABULARY
    before, after = model(name)(tokens), model(name)(other)
    assert_equal(after[:, :at], before[:, :at])
    assert_equal(model(name)(tokens[:, :at]), before[:, :at])
    assert (after[:, at] - before[:, at]).abs().max() > 1e-6


@pytest.mark.parametrize("name", CACHED)
@few
@given(data=st.data(), seed=st.integers(0, 99))
@torch.no_grad()
def test_read_in_any_pieces_is_read_at_once(name: str, data: st.DataObject, seed: int) -> None:
    """Each piece has so many tokens of each row, none among them; some of the rows are chosen on the way."""
    net: Any = model(name)
    sizes = data.draw(st.lists(st.lists(st.integers(0, 4), min_size=3, max_size=3), min_size=1, max_size=4))
    sizes = [[max(n, 1) for n in sizes[0]], *(piece for piece in sizes[1:] if max(piece))]
    texts = torch.randint(4, VOCABULARY - 3, (3, LONGEST), generator=torch.Generator().manual_seed(seed))
    read, rows, cache = [0, 0, 0], [0, 1, 2], None
    for piece in sizes:
        tokens, mask = torch.zeros(len(rows), max(piece), dtype=torch.long), []
        for i, row in enumerate(rows):
            tokens[i, : piece[row]] = texts[row, read[row] : read[row] + piece[row]]
            mask.append([place < piece[row] for place in range(max(piece))])
        real = torch.tensor(mask)
        logits, cache = net.extend(tokens, None if real.all() else real, cache)
        read = [n + more for n, more in zip(read, piece)]
        for i, row in enumerate(rows):
            if piece[row]:
                whole = net(texts[row : row + 1, : read[row]])
                assert_equal(logits[i], whole[0, -1] if whole.ndim == 3 else whole[0])
        chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=4))
        rows, cache = [rows[i] for i in chosen], cache.select(torch.tensor(chosen))


# --- masks as people have them ------------------------------------------------------------------------------------

# Networks that count positions by place, padding and all, as transformers does: tests/verify/test_masks.py.
BY_PLACE = ("bert", "distilbert", "albert", "bart")


def in_front(lengths: list[int], seed: int) -> tuple[Tensor, Tensor]:
    """Token ids (N, T) and a mask whose padding stands in front."""
    tokens, mask = ragged(lengths, torch.Generator().manual_seed(seed))
    return tokens, mask.flip(1)


def answered(name: str, tokens: Tensor, mask: Tensor, so_far: Tensor) -> Tensor:
    if name not in PAIRS:
        return model(name)(tokens, mask)  # type: ignore[no-any-return]
    if name.startswith("transformer-"):
        return model(name)(tokens, so_far, src_mask=mask)  # type: ignore[no-any-return]
    return model(name)(tokens, mask, so_far)  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", [*TEXTS, *PAIRS])
@few
@given(lengths=lengths_of, steps=st.integers(1, 6), seed=st.integers(0, 99))
@torch.no_grad()
def test_padding_in_front_is_not_read_or_rejected(name: str, lengths: list[int], steps: int, seed: int) -> None:
    (tokens, mask), (*_, so_far) = in_front(lengths, seed), drawn(lengths, steps, seed)
    each = name in TEXTS and not name.endswith("-classes")
    other = torch.where(mask, tokens, (tokens + 1) % VOCABULARY)
    try:
        found = answered(name, tokens, mask, so_far)
    except ModelError as rejected:
        assert "padding" in str(rejected), rejected  # noqa: PT017  # either is right
        assert not mask.all()
        return
    changed = answered(name, other, mask, so_far)
    assert_equal(changed[mask] if each else changed, found[mask] if each else found)
    if (TEXTS | PAIRS)[name][0].module.__name__.rpartition(".")[2] in BY_PLACE:
        return
    for row, length in enumerate(lengths):
        alone = answered(name, tokens[row : row + 1, -length:], mask[row : row + 1, -length:], so_far[row : row + 1])[0]
        assert_equal(found[row, -length:] if each else found[row], alone)


@pytest.mark.parametrize("name", [*TEXTS, *PAIRS])
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.float32, torch.float64, torch.bfloat16])
@torch.no_grad()
def test_a_mask_of_zeros_and_ones_is_a_mask(name: str, dtype: torch.dtype) -> None:
    tokens, mask, so_far = drawn([7, 2, 4], 3, 0)
    expected = answered(name, tokens, mask, so_far)
    assert torch.equal(answered(name, tokens, mask.to(dtype), so_far), expected)
    if name in PAIRS:
        net: Any = model(name)
        states = [net.begin(tokens, seen) for seen in (mask, mask.to(dtype))]
        first, second = (net.step(so_far[:, 0], state)[0] for state in states)
        assert torch.equal(first, second)
    if name in CACHED:
        net = model(name)
        assert torch.equal(net.extend(tokens, mask.to(dtype))[0], net.extend(tokens, mask)[0])


@pytest.mark.parametrize("name", [*TEXTS, *PAIRS])
def test_another_mask_is_rejected(name: str) -> None:
    tokens, mask, so_far = drawn([7, 2, 4], 3, 0)
    bias = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
    for wrong in (bias, bias.clamp(min=-1e9), mask * 2, mask * 0.5):
        with pytest.raises(ModelError, match="by True and False or by 1 and 0"):
            answered(name, tokens, wrong, so_far)
    for wrong in (mask[:, :-1], mask[:2], mask[:, None], mask[0]):
        with pytest.raises(ModelError, match="one entry for each place"):
            answered(name, tokens, wrong, so_far)


# --- pairs --------------------------------------------------------------------------------------------------------


def drawn(lengths: list[int], steps: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Source ids, their mask, and as many rows of target so far."""
    generator = torch.Generator().manual_seed(seed)
    source, mask = ragged(lengths, generator)
    return source, mask, torch.randint(2, VOCABULARY, (len(lengths), steps), generator=generator)


def chosen_state(state: Any, rows: list[int]) -> Any:
    """The state of these rows: a cache, or tensors with the rows first."""
    which = torch.tensor(rows)
    return tuple(part[which] for part in state) if isinstance(state, tuple) else state.select(which)


@pytest.mark.parametrize("name", PAIRS)
@few
@given(lengths=lengths_of, steps=st.integers(1, 6), seed=st.integers(0, 99))
@torch.no_grad()
def test_a_pair_alone_is_the_pair_in_a_padded_batch(name: str, lengths: list[int], steps: int, seed: int) -> None:
    net, (source, mask, target) = model(name), drawn(lengths, steps, seed)
    together = net(source, mask, target)
    assert together.shape == (len(lengths), steps, VOCABULARY)
    assert_equal(net(source.where(mask, 0), mask, target), together)
    for row, length in enumerate(lengths):
        alone = source[row : row + 1, :length]
        for how in (None, torch.ones_like(alone, dtype=torch.bool)):
            assert_equal(net(alone, how, target[row : row + 1])[0], together[row])


@pytest.mark.parametrize("name", PAIRS)
@few
@given(data=st.data(), lengths=lengths_of, seed=st.integers(0, 99))
@torch.no_grad()
def test_the_order_of_pairs_is_that_of_their_answers(
    name: str, data: st.DataObject, lengths: list[int], seed: int
) -> None:
    rows = data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, max_size=6))
    source, mask, target = drawn(lengths, 4, seed)
    assert_equal(model(name)(source[rows], mask[rows], target[rows]), model(name)(source, mask, target)[rows])


@pytest.mark.parametrize("name", PAIRS)
@few
@given(data=st.data(), lengths=lengths_of, steps=st.integers(2, 8), seed=st.integers(0, 99))
@torch.no_grad()
def test_a_later_token_of_the_target_changes_nothing_before_it(
    name: str, data: st.DataObject, lengths: list[int], steps: int, seed: int
) -> None:
    at = data.draw(st.integers(1, steps - 1))
    net, (source, mask, target) = model(name), drawn(lengths, steps, seed)
    other = target.clone()
    other[:, at:] = (other[:, at:] + 1) % VOCABULARY
    before, after = net(source, mask, target), net(source, mask, other)
    assert_equal(after[:, :at], before[:, :at])
    assert (after[:, at] - before[:, at]).abs().max() > 1e-6
    source[:, 0] = (source[:, 0] + 1) % VOCABULARY
    assert (net(source, mask, target) - before).abs().amax((1, 2)).min() > 1e-6  # the source is read


@pytest.mark.parametrize("name", PAIRS)
@few
@given(data=st.data(), lengths=lengths_of, steps=st.integers(1, 6), seed=st.integers(0, 99))
@torch.no_grad()
def test_step_by_step_is_at_once_and_rows_can_be_chosen(
    name: str, data: st.DataObject, lengths: list[int], steps: int, seed: int
) -> None:
    net: Any = model(name)
    source, mask, target = drawn(lengths, steps, seed)
    whole, rows = net(source, mask, target), list(range(len(lengths)))
    state = net.begin(source, None if mask.all() else mask)
    for i in range(steps):
        logits, state = net.step(target[rows, i], state)
        assert_equal(logits, whole[rows, i])
        chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=4))
        rows, state = [rows[k] for k in chosen], chosen_state(state, chosen)
