"""Decoding: the likeliest token each time, num_beams, and all sequences where there are few.

That num_beams give the answers and scores of transformers is tested in tests/verify/test_generation.py.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from cutaway.core.errors import ModelError, SettingError
from cutaway.core.spec import Tokens
from cutaway.inference import sequence_decoding
from cutaway.inference.sequence_decoding import NONE, decode, decode_scored, sample
from cutaway.models import bart
from cutaway.models.seq2seq_gru import Config, Model

BEGIN, END = 2, 3
TARGET = Tokens(7, BEGIN, END, 5)


class Chain(nn.Module):
    """Log probabilities of the next token that depend on the last one alone, whatever the source."""

    def __init__(self, table: dict[int, dict[int, float]]) -> None:
        super().__init__()
        self.table = torch.full((7, 7), -math.inf)
        for last, following in table.items():
            for token, p in following.items():
                self.table[last, token] = math.log(p)

    def begin(self, source: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
        return (source,)

    def step(self, token: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        return self.table[token], state


def random_model(seed: int) -> Model:
    """One whose answers differ from source to source and end sooner or later."""
    torch.manual_seed(seed)
    model = Model(Config(9, 7, embedding_dim=5, hidden_dim=6, attention_dim=4, readout_dim=5, dropout=0.3))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4)
    return model.double()


def sources(seed: int, n: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mask = torch.arange(5) < torch.randint(1, 6, (n, 1), generator=generator)
    return torch.randint(1, 9, (n, 5), generator=generator).where(mask, 0), mask


def log_probability(model: Model, source: Tensor, mask: Tensor, answers: Tensor, longest: int) -> Tensor:
    """log p of decoded answers (N, L), by one forward pass; an answer that was cut off has no end. No probability is
    taken from what is never said."""
    model.eval()
    lengths = (answers != NONE).sum(1)
    target = nn.functional.pad(answers.masked_fill(answers == NONE, END), (0, 1), value=END)
    so_far = torch.cat([torch.full((len(answers), 1), BEGIN), target[:, :-1]], 1)
    with torch.no_grad():
        logits = model(source, mask, so_far).double()
    each = logits.log_softmax(2).gather(2, target[:, :, None])[:, :, 0]
    counted = (lengths + 1).clamp(max=longest)
    return each.masked_fill(torch.arange(each.shape[1]) >= counted[:, None], 0).sum(1)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    length_penalty=st.sampled_from([0.0, 0.6, 2.0]),
    penalty=st.sampled_from(["gnmt", "length"]),
)
def test_a_beam_of_one_is_greedy(seed: int, length_penalty: float, penalty: str) -> None:
    model = random_model(seed).eval()
    source, mask = sources(seed)
    greedy, scores = decode_scored(model, source, mask, TARGET, 6, length_penalty=length_penalty, penalty=penalty)
    penalties = [sequence_decoding.PENALTIES[penalty](n, length_penalty) for n in range(1, 7)]
    with torch.no_grad():
        token = torch.full((len(source),), BEGIN)
        found, own = sequence_decoding._beam(model.step, model.begin(source, mask), token, TARGET, penalties, 1)
    assert torch.equal(found[:, : greedy.shape[1]], greedy)
    assert (found[:, greedy.shape[1] :] == NONE).all()
    torch.testing.assert_close(own, scores)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    length_penalty=st.sampled_from([0.0, 0.6, 1.0]),
    penalty=st.sampled_from(["gnmt", "length"]),
)
def test_a_beam_of_all_beginnings_finds_the_best_answer(seed: int, length_penalty: float, penalty: str) -> None:
    model, longest = random_model(seed), 3
    source, mask = sources(seed, 1)
    tokens = [1, *range(4, 7)]
    whole = [y for n in range(longest) for y in itertools.product(tokens, repeat=n)]
    cut = list(itertools.product(tokens, repeat=longest))
    lp = sequence_decoding.PENALTIES[penalty]
    best = -math.inf
    for y in [*whole, *cut]:
        answer = torch.tensor([[*y, *[NONE] * (longest - len(y))]])
        n = min(len(y) + 1, longest)
        best = max(best, log_probability(model, source, mask, answer, longest).item() / lp(n, length_penalty))
    scores = [
        decode_scored(model, source, mask, TARGET, longest, num_beams, length_penalty, penalty=penalty)[1].item()
        for num_beams in (1, 2, 3, 30)
    ]
    assert scores[-1] == pytest.approx(best)
    assert max(scores) == pytest.approx(scores[-1])  # no smaller beam scores higher


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), num_beams=st.integers(1, 4), length_penalty=st.sampled_from([0.0, 0.6]))
def test_a_score_is_that_of_the_answer(seed: int, num_beams: int, length_penalty: float) -> None:
    model, longest = random_model(seed), 6
    source, mask = sources(seed)
    found, scores = decode_scored(model, source, mask, TARGET, longest, num_beams, length_penalty)
    n = ((found != NONE).sum(1) + 1).clamp(max=longest).double()
    expected = log_probability(model, source, mask, found, longest) / ((5 + n) / 6) ** length_penalty
    torch.testing.assert_close(scores, expected)


class Selecting(nn.Module):
    """A model whose state knows its examples itself, and counts how often it is asked for others."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model, self.asked = model, 0

    def begin(self, source: Tensor, mask: Tensor | None) -> State:
        return State(self, self.model.begin(source, mask))

    def step(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        logits, after = self.model.step(token, state.tensors)
        return logits, State(self, after)


class State:
    """Tensors with N first."""

    def __init__(self, owner: Selecting, tensors: tuple[Tensor, ...]) -> None:
        self.owner, self.tensors = owner, tensors

    def select(self, rows: Tensor) -> State:
        """Those of the examples `rows`."""
        self.owner.asked += 1
        return State(self.owner, tuple(x[rows] for x in self.tensors))


def test_what_is_drawn_is_drawn_as_often_as_the_model_says() -> None:
    model, n = random_model(3), 20_000
    source, mask = (x[:1].expand(n, -1) for x in sources(3, 1))
    found = sample(model, source, mask, TARGET, 2, generator=torch.Generator().manual_seed(0), temperature=0.7)
    with torch.no_grad():
        logits = model.eval()(source[:1], mask[:1], torch.tensor([[BEGIN]]))[0, -1].double() / 0.7
    logits[[TARGET.padding, BEGIN]] = -math.inf
    expected = logits.softmax(0)
    first = found[:, 0].masked_fill(found[:, 0] == NONE, END)
    counts = first.bincount(minlength=len(expected)).double()
    assert counts[[TARGET.padding, BEGIN]].sum() == 0
    spread = (n * expected * (1 - expected)).sqrt()  # of a binomial count
    assert ((counts - n * expected).abs() <= 5 * spread).all()


def test_a_row_is_drawn_by_its_generator_alone() -> None:
    model = random_model(1)
    source, mask = sources(1)

    def drawn(rows: slice, **settings: float) -> Tensor:
        generators = [torch.Generator().manual_seed(i) for i in range(len(source))][rows]
        return sample(model, source[rows], mask[rows], TARGET, 6, generator=generators, **settings)  # type: ignore[arg-type]

    before = torch.get_rng_state()
    together = drawn(slice(None))
    assert torch.equal(torch.get_rng_state(), before)  # nobody else's numbers are taken
    torch.rand(3)
    for i in range(len(source)):
        alone = drawn(slice(i, i + 1))[0]
        assert torch.equal(together[i][: len(alone)], alone)
        assert (together[i][len(alone) :] == NONE).all()
    assert torch.equal(drawn(slice(None), temperature=0), decode(model, source, mask, TARGET, 6))
    assert model.training
    with pytest.raises(SettingError, match="temperature=-1"):
        drawn(slice(None), temperature=-1)
    once = drawn(slice(None), repetition_penalty=1e6)
    assert all(len(set(row)) == len(row) for row in ([t for t in r if t != NONE] for r in once.tolist()))


@pytest.mark.parametrize("num_beams", [1, 2, 4])
def test_a_state_that_selects_gives_the_same_and_is_asked_only_where_rows_change(num_beams: int) -> None:
    model = random_model(3)
    source, mask = sources(3)
    selecting = Selecting(model)
    assert torch.equal(
        decode(selecting, source, mask, TARGET, num_beams=num_beams),
        decode(model, source, mask, TARGET, num_beams=num_beams),
    )
    assert selecting.asked <= (0 if num_beams == 1 else 7)
    certain = Selecting(model)
    certain.model = Chain({BEGIN: {4: 0.9, 5: 0.1}, 4: {4: 0.9, END: 0.1}, 5: {5: 1.0}})  # type: ignore[assignment]
    decode(certain, source, None, TARGET, 6, num_beams=2, length_penalty=0.0)
    assert certain.asked == 1  # for two beginnings of each source; from there on 4 4 4 … and 5 5 5 … go on


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), num_beams=st.integers(1, 3))
def test_each_source_is_answered_alike_alone_and_in_a_batch(seed: int, num_beams: int) -> None:
    model = random_model(seed)
    source, mask = sources(seed)
    together = decode(model, source, mask, TARGET, num_beams=num_beams)
    assert together.shape[1] <= 7  # half as many again as five
    assert not torch.isin(together, torch.tensor([0, BEGIN, END])).any()
    ended = together == NONE
    assert (ended[:, 1:] >= ended[:, :-1]).all()  # nothing stands after an end
    for i in range(len(source)):
        alone = decode(model, source[i : i + 1, : int(mask[i].sum())], None, TARGET, num_beams=num_beams)[0].tolist()
        assert alone == together[i][together[i] != NONE].tolist()


def test_a_beam_finds_what_greedy_misses() -> None:
    model = Chain({BEGIN: {4: 0.6, 5: 0.4}, 4: {4: 0.35, 6: 0.35, END: 0.3}, 5: {END: 1.0}, 6: {END: 1.0}})
    source = torch.zeros(2, 1, dtype=torch.long)
    # 0.4 > 0.6 · 0.35
    assert decode(model, source, None, TARGET, num_beams=2, length_penalty=0.0).tolist() == [[5], [5]]
    assert decode(model, source, None, TARGET, 2).tolist() == [[4, 4], [4, 4]]  # cut off
    assert decode(model, source, None, TARGET, 1, num_beams=3).tolist() == [[4], [4]]


def test_the_penalty_is_for_short_answers() -> None:
    model = Chain({BEGIN: {END: 0.4, 4: 0.6}, 4: {5: 0.9, END: 0.1}, 5: {6: 0.9, END: 0.1}, 6: {END: 0.8, 6: 0.2}})
    source = torch.zeros(1, 1, dtype=torch.long)
    short, long = math.log(0.4), math.log(0.6 * 0.9 * 0.9 * 0.8)
    assert short > long
    assert short / 1**2.0 < long / (9 / 6) ** 2.0
    assert decode(model, source, None, TARGET, 6, num_beams=4, length_penalty=0.0).shape == (1, 0)
    assert decode(model, source, None, TARGET, 6, num_beams=4, length_penalty=2.0).tolist() == [[4, 5, 6]]


def test_the_penalty_of_the_length_alone() -> None:
    model = Chain({BEGIN: {END: 0.5, 4: 0.5}, 4: {END: 0.6, 4: 0.4}})
    source = torch.zeros(1, 1, dtype=torch.long)
    found, score = decode_scored(model, source, None, TARGET, 6, num_beams=3, length_penalty=1.0, penalty="length")
    assert found.tolist() == [[4]]
    assert score.item() == pytest.approx(math.log(0.5 * 0.6) / 2)  # above log 0.5, and above (log 0.5 · 0.4 · 0.6) / 3


def test_padding_and_begin_are_never_said() -> None:
    model = Chain({BEGIN: {0: 0.5, BEGIN: 0.3, 4: 0.2}, 4: {BEGIN: 0.9, END: 0.1}})
    for num_beams in (1, 2):
        assert decode(model, torch.zeros(1, 1, dtype=torch.long), None, TARGET, num_beams=num_beams).tolist() == [[4]]


def test_what_begins_an_answer_may_end_it() -> None:
    """As of BART, whose padding has another id too."""
    target = Tokens(7, begin=2, end=2, longest=5, padding=1)
    model = Chain({2: {1: 0.5, 0: 0.4, 2: 0.1}, 0: {0: 0.3, 2: 0.7}})
    for num_beams in (1, 2):
        assert decode(model, torch.zeros(1, 1, dtype=torch.long), None, target, num_beams=num_beams).tolist() == [[0]]


def test_no_answer_is_longer_than_the_model_reads() -> None:
    torch.manual_seed(0)
    model = bart.Model(bart.Config(vocab_size=9, context_length=4, dim=8, layers=1, heads=2))
    target = Tokens(9, begin=2, end=3, longest=20)
    with torch.no_grad():
        model.embedding.weight[3] = -10 * model.embedding.weight.sum(0)
    for num_beams in (1, 3):
        assert decode(model, torch.full((2, 3), 5), None, target, num_beams=num_beams).shape[1] <= 4


def test_outputs_that_are_no_numbers_are_rejected() -> None:
    model = random_model(0)
    with torch.no_grad():
        model.head.bias.fill_(math.nan)
    for num_beams in (1, 3):
        with pytest.raises(ModelError, match="not finite"):
            decode(model, *sources(0), TARGET, num_beams=num_beams)


def test_the_model_is_left_in_its_mode() -> None:
    model = random_model(0).train()
    source, mask = sources(0)
    assert torch.equal(decode(model, source, mask, TARGET), decode(model, source, mask, TARGET))
    assert model.training
    decode(model.eval(), source, mask, TARGET)
    assert not model.training


@pytest.mark.parametrize(
    ("settings_", "said"),
    [
        ({"num_beams": 0}, "num_beams=0"),
        ({"longest": 0}, "longest=0"),
        ({"length_penalty": -1}, "length_penalty=-1"),
        ({"length_penalty": math.nan}, "length_penalty=nan"),
        ({"penalty": "none"}, "Invalid penalty='none': must be gnmt or length"),
    ],
)
def test_bad_settings_are_rejected(settings_: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        decode(random_model(0), *sources(0), TARGET, **settings_)
