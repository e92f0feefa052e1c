"""Decoding: the likeliest token each time, beams that are never worse, and what ends stays as it is."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from cutaway.errors import SettingError
from cutaway.generation.decoding import NONE, decode
from cutaway.models.seq2seq_gru import Config, Model
from cutaway.spec import Tokens

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
    model = Model(Config(9, 7, embedding=5, hidden=6, attention=4, readout=5, dropout=0.3))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4)
    return model.double()


def sources(seed: int, n: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mask = torch.arange(5) < torch.randint(1, 6, (n, 1), generator=generator)
    return torch.randint(1, 9, (n, 5), generator=generator).where(mask, 0), mask


def log_probability(model: Model, source: Tensor, mask: Tensor, answers: Tensor, longest: int) -> Tensor:
    """log p of decoded answers (N, L), by one forward pass; an answer that was cut off has no end."""
    model.eval()
    lengths = (answers != NONE).sum(1)
    target = nn.functional.pad(answers.masked_fill(answers == NONE, END), (0, 1), value=END)
    so_far = torch.cat([torch.full((len(answers), 1), BEGIN), target[:, :-1]], 1)
    with torch.no_grad():
        logits = model(source, mask, so_far).double()
    logits[:, :, [0, BEGIN]] = -math.inf
    each = logits.log_softmax(2).gather(2, target[:, :, None])[:, :, 0]
    counted = (lengths + 1).clamp(max=longest)
    return each.masked_fill(torch.arange(each.shape[1]) >= counted[:, None], 0).sum(1)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), beams=st.integers(2, 4))
def test_a_beam_is_never_worse_than_greedy(seed: int, beams: int) -> None:
    model = random_model(seed)
    source, mask = sources(seed)
    greedy, wide = (decode(model, source, mask, TARGET, 6, beams=b, alpha=0.0) for b in (1, beams))
    scores = [log_probability(model, source, mask, found, 6) for found in (greedy, wide)]
    assert (scores[1] >= scores[0] - 1e-9).all()


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), alpha=st.sampled_from([0.0, 0.6, 1.0]))
def test_a_beam_of_all_beginnings_finds_the_best_answer(seed: int, alpha: float) -> None:
    model, longest = random_model(seed), 3
    source, mask = sources(seed, 1)
    tokens = [1, *range(4, 7)]
    whole = [y for n in range(longest) for y in itertools.product(tokens, repeat=n)]
    cut = list(itertools.product(tokens, repeat=longest))
    best = -math.inf
    for y in [*whole, *cut]:
        answer = torch.tensor([[*y, *[NONE] * (longest - len(y))]])
        n = min(len(y) + 1, longest)
        best = max(best, log_probability(model, source, mask, answer, longest).item() / ((5 + n) / 6) ** alpha)
    found = decode(model, source, mask, TARGET, longest, beams=30, alpha=alpha)
    padded = nn.functional.pad(found, (0, longest - found.shape[1]), value=NONE)
    n = min(int((padded != NONE).sum()) + 1, longest)
    assert log_probability(model, source, mask, padded, longest).item() / ((5 + n) / 6) ** alpha == pytest.approx(best)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), beams=st.integers(1, 3))
def test_each_source_is_answered_alike_alone_and_in_a_batch(seed: int, beams: int) -> None:
    model = random_model(seed)
    source, mask = sources(seed)
    together = decode(model, source, mask, TARGET, beams=beams)
    assert together.shape[1] <= 7  # half as many again as five
    assert not torch.isin(together, torch.tensor([0, BEGIN, END])).any()
    ended = together == NONE
    assert (ended[:, 1:] >= ended[:, :-1]).all()  # nothing stands behind an end
    for i in range(len(source)):
        alone = decode(model, source[i : i + 1, : int(mask[i].sum())], None, TARGET, beams=beams)[0].tolist()
        assert alone == together[i][together[i] != NONE].tolist()


def test_a_beam_finds_what_greedy_misses() -> None:
    model = Chain({BEGIN: {4: 0.6, 5: 0.4}, 4: {4: 0.35, 6: 0.35, END: 0.3}, 5: {END: 1.0}, 6: {END: 1.0}})
    source = torch.zeros(2, 1, dtype=torch.long)
    assert decode(model, source, None, TARGET, beams=2, alpha=0.0).tolist() == [[5], [5]]  # 0.4 > 0.6 · 0.35
    assert decode(model, source, None, TARGET, 2).tolist() == [[4, 4], [4, 4]]  # cut off
    assert decode(model, source, None, TARGET, 1, beams=3).tolist() == [[4], [4]]


def test_the_penalty_is_for_short_answers() -> None:
    model = Chain({BEGIN: {END: 0.4, 4: 0.6}, 4: {5: 0.9, END: 0.1}, 5: {6: 0.9, END: 0.1}, 6: {END: 0.8, 6: 0.2}})
    source = torch.zeros(1, 1, dtype=torch.long)
    short, long = math.log(0.4), math.log(0.6 * 0.9 * 0.9 * 0.8)
    assert short > long
    assert short / 1**2.0 < long / (9 / 6) ** 2.0
    assert decode(model, source, None, TARGET, 6, beams=4, alpha=0.0).shape == (1, 0)
    assert decode(model, source, None, TARGET, 6, beams=4, alpha=2.0).tolist() == [[4, 5, 6]]


def test_padding_and_begin_are_never_said() -> None:
    model = Chain({BEGIN: {0: 0.5, BEGIN: 0.3, 4: 0.2}, 4: {BEGIN: 0.9, END: 0.1}})
    for beams in (1, 2):
        assert decode(model, torch.zeros(1, 1, dtype=torch.long), None, TARGET, beams=beams).tolist() == [[4]]


def test_the_model_is_left_in_its_mode() -> None:
    model = random_model(0).train()
    source, mask = sources(0)
    assert torch.equal(decode(model, source, mask, TARGET), decode(model, source, mask, TARGET))
    assert model.training
    decode(model.eval(), source, mask, TARGET)
    assert not model.training


@pytest.mark.parametrize(
    ("settings_", "said"), [({"beams": 0}, "beams=0"), ({"longest": 0}, "longest=0"), ({"alpha": -1}, "alpha=-1")]
)
def test_bad_settings_are_refused(settings_: dict[str, int], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        decode(random_model(0), *sources(0), TARGET, **settings_)
