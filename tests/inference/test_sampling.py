"""Drawing the next token: never outside what is allowed, as often as its probability says, whatever does not matter.

That the distributions are those of transformers is tested in tests/verify/test_generation.py.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from cutaway.core.errors import ModelError, SettingError
from cutaway.inference import sampling
from cutaway.inference.sampling import choose, probabilities

few = settings(max_examples=40, deadline=None)
# Multiples of 1/64: no two become equal by rounding.
numbers = st.lists(st.integers(-512, 512).map(lambda k: k / 64), min_size=2, max_size=9, unique=True)
seeds = st.integers(0, 1000)


def draw(logits: list[float] | Tensor, seed: int = 0, times: int = 200, **settings_: Any) -> Tensor:
    rows = torch.as_tensor(logits, dtype=torch.float64).expand(times, -1)
    return choose(rows, generator=torch.Generator().manual_seed(seed), **settings_)


@few
@given(numbers, seeds, st.integers(1, 9))
def test_never_outside_the_k_likeliest(logits: list[float], seed: int, top_k: int) -> None:
    allowed = sorted(range(len(logits)), key=lambda i: -logits[i])[:top_k]
    assert set(draw(logits, seed, top_k=top_k).tolist()) <= set(allowed)


@few
@given(numbers, seeds, st.floats(0.01, 1.0), st.integers(0, 9), st.floats(0.3, 3.0))
def test_never_outside_the_nucleus(
    logits: list[float], seed: int, top_p: float, top_k: int, temperature: float
) -> None:
    order = sorted(range(len(logits)), key=lambda i: -logits[i])[: top_k or None]
    p = (torch.tensor(logits, dtype=torch.float64)[order] / temperature).softmax(0).tolist()
    nucleus: list[int] = []
    held = 0.0
    for i, fraction in zip(order, p):
        if held >= top_p and nucleus:
            break
        nucleus.append(i)
        held += fraction
    found = draw(logits, seed, top_p=top_p, top_k=top_k, temperature=temperature)
    # one more where rounding decides whether the sum has been reached
    borderline = order[: len(nucleus) + (abs(held - top_p) < 1e-12)]
    assert set(found.tolist()) <= set(borderline)


@pytest.mark.parametrize(
    ("given_", "allowed"),
    [
        ({}, [0, 1, 2, 3, 4]),
        ({"temperature": 0.7}, [0, 1, 2, 3, 4]),
        ({"top_k": 2}, [0, 1]),
        ({"top_p": 0.6}, [0, 1]),  # 0.4 does not reach it, 0.65 does
        ({"top_k": 3, "top_p": 0.9}, [0, 1, 2, 3]),  # as likely as the third is the fourth: 0.42, 0.68, 0.84, 1
        ({"top_k": 4, "top_p": 0.75}, [0, 1, 2]),  # of 0.95: 0.42, 0.68, 0.84; of equals the smaller id
        ({"min_p": 0.375}, [0, 1, 2, 3]),  # 0.15 of 0.4
        ({"min_p": 0.4}, [0, 1]),
    ],
)
def test_tokens_come_as_often_as_their_probability_says(given_: dict[str, Any], allowed: list[int]) -> None:
    p = torch.tensor([0.4, 0.25, 0.15, 0.15, 0.05], dtype=torch.float64)
    times = 20_000
    found = draw(p.log() + 3, seed=7, times=times, **given_).bincount(minlength=5).double()
    expected = torch.zeros(5, dtype=torch.float64)
    expected[allowed] = p[allowed] ** (1 / given_.get("temperature", 1.0))
    expected *= times / expected.sum()
    assert found[expected == 0].sum() == 0
    assert chisquare(found[allowed].numpy(), expected[allowed].numpy()).pvalue > 0.01


@few
@given(numbers, seeds, st.floats(-100, 100))
def test_what_does_not_matter(logits: list[float], seed: int, shift: float) -> None:
    """A constant on all logits, and settings that leave nothing out."""
    found = draw(logits, seed)
    exact = torch.tensor(logits, dtype=torch.float64)
    assert torch.equal(draw(exact, seed, top_k=len(logits), top_p=1.0, min_p=0.0, repetition_penalty=3.0), found)
    moved = draw(exact + shift, seed)  # rounding may move a border between two tokens past a drawn number
    assert (moved != found).double().mean() <= 0.01


@few
@given(numbers, st.permutations(range(9)), st.floats(0.05, 1.0), st.integers(0, 9), st.floats(0.0, 1.0))
def test_the_numbers_of_the_tokens_do_not_matter(
    logits: list[float], order: list[int], top_p: float, top_k: int, min_p: float
) -> None:
    places = [i for i in order if i < len(logits)]
    rows = torch.tensor([logits], dtype=torch.float64)
    given_: dict[str, Any] = {"top_p": top_p, "top_k": top_k, "min_p": min_p}
    torch.testing.assert_close(probabilities(rows[:, places], **given_), probabilities(rows, **given_)[:, places])


@few
@given(seeds, st.floats(0.01, 0.999), st.sampled_from([4, 40, 700]))
def test_the_nucleus_is_the_same_however_many_tokens_are_ranked(seed: int, top_p: float, few_: int) -> None:
    """It is looked for among some likeliest tokens first; ties among 700 of few values are many."""
    logits = torch.randint(-4, 5, (3, 700), generator=torch.Generator().manual_seed(seed)).double()
    logits[2] /= 9
    was = sampling.FEW
    try:
        sampling.FEW = few_
        found = probabilities(logits, top_p=top_p)
    finally:
        sampling.FEW = was
    p, order = logits.softmax(1).sort(dim=1, descending=True, stable=True)
    sizes = (p.cumsum(1) - p < top_p - 1e-9).sum(1)
    for row, ranked, size in zip(found, order, sizes.tolist()):
        assert set(ranked[:size].tolist()) <= set(row.nonzero()[:, 0].tolist()) <= set(ranked[: size + 1].tolist())


@few
@given(numbers, seeds, st.floats(1.0, 5.0))
def test_a_penalty_makes_what_was_written_less_likely(logits: list[float], seed: int, penalty: float) -> None:
    rows = torch.tensor([logits], dtype=torch.float64)
    written = torch.rand(rows.shape, generator=torch.Generator().manual_seed(seed)) < 0.5
    before, found = probabilities(rows), probabilities(rows, written=written, repetition_penalty=penalty)
    odds = (found[:, :, None] / found[:, None, :]) / (before[:, :, None] / before[:, None, :])
    assert (odds[written[:, :, None] & ~written[:, None, :]] <= 1 + 1e-9).all()
    assert torch.equal(probabilities(rows, written=written), before)


@few
@given(numbers, seeds)
def test_no_temperature_takes_the_likeliest(logits: list[float], seed: int) -> None:
    best = max(range(len(logits)), key=lambda i: logits[i])
    every: list[dict[str, Any]] = [{"temperature": 0.0}, {"top_k": 1}, {"temperature": 1e-300}, {"top_p": 1e-9}]
    for settings_ in every:
        assert set(draw(logits, seed, **settings_).tolist()) == {best}


def test_equal_logits_fall_to_the_smaller_id() -> None:
    assert set(draw([1.0, 1.0, 1.0], top_k=1).tolist()) == {0}
    assert set(draw([1.0, 1.0, 1.0], temperature=0.0).tolist()) == {0}
    assert set(draw([1.0, 1.0, 1.0], top_p=0.6).tolist()) == {0, 1}
    assert set(draw([1.0, 1.0, 1.0], top_k=2).tolist()) == {0, 1, 2}  # the third is as likely as the second


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_temperature_near_zero_takes_the_likeliest(dtype: torch.dtype) -> None:
    logits = torch.tensor([[0.5, 2.0, 1.0]], dtype=dtype).expand(50, -1)
    assert set(choose(logits, temperature=1e-300, generator=torch.Generator().manual_seed(0)).tolist()) == {1}


@few
@given(numbers, st.floats(0.3, 7.0), st.booleans())
def test_the_largest_number_that_can_be_drawn_leads_to_a_token_that_can_be(
    logits: list[float], temperature: float, single: bool
) -> None:
    row = torch.tensor([[*logits, -torch.inf, -torch.inf]], dtype=torch.float32 if single else torch.float64)
    highest = torch.tensor([1.0], dtype=torch.float64).nextafter(torch.zeros(1, dtype=torch.float64))
    how = sampling.Sampling(temperature=temperature)
    kept = probabilities(row, temperature=temperature)[0].nonzero()[:, 0]
    assert sampling.draw(row, how, highest).item() in kept
    assert sampling.draw(row, how, 0 * highest).item() in kept


def test_a_forbidden_token_is_never_drawn() -> None:
    assert set(draw([0.0, float("-inf"), 0.0], times=2000).tolist()) == {0, 2}


def test_rows_draw_numbers_of_their_own() -> None:
    assert len(set(draw([0.0] * 9, times=50).tolist())) > 5
    half = torch.zeros(4, 9, dtype=torch.bfloat16)
    assert choose(half, generator=torch.Generator().manual_seed(0)).shape == (4,)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), None])
def test_outputs_that_are_none_are_rejected(bad: float | None) -> None:
    row = torch.tensor([[0.0, 1.0], [float("-inf")] * 2 if bad is None else [bad, 0.0]])
    with pytest.raises(ModelError, match="not finite"):
        choose(row)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *[("temperature", -1.0), ("temperature", float("nan")), ("top_k", -1), ("top_p", 0.0), ("top_p", 1.5)],
        *[("min_p", -0.1), ("min_p", 1.1), ("min_p", float("nan")), ("repetition_penalty", 0.0)],
        ("repetition_penalty", float("inf")),
    ],
)
def test_settings_that_cannot_be_are_rejected_by_name(key: str, value: float) -> None:
    with pytest.raises(SettingError, match=key):
        draw([0.0, 1.0], **dict[str, Any]({key: value}))
