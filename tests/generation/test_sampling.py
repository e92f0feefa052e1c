"""Drawing the next token: never outside what is allowed, as often as its probability says, whatever does not matter."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from cutaway.errors import ModelError, SettingError
from cutaway.generation.sampling import choose

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
    for i, share in zip(order, p):
        if held >= top_p and nucleus:
            break
        nucleus.append(i)
        held += share
    found = draw(logits, seed, top_p=top_p, top_k=top_k, temperature=temperature)
    # one more where rounding decides whether the sum has been reached
    borderline = order[: len(nucleus) + (abs(held - top_p) < 1e-12)]
    assert set(found.tolist()) <= set(borderline)


@pytest.mark.parametrize(
    ("given_", "allowed"),
    [
        ({}, [0, 1, 2, 3, 4]),
        ({"temperature": 0.7}, [0, 1, 2, 3, 4]),
        ({"top_k": 3}, [0, 1, 2]),
        ({"top_p": 0.6}, [0, 1]),  # 0.4 does not reach it, 0.65 does
        ({"top_k": 4, "top_p": 0.75}, [0, 1, 2]),  # of 0.95: 0.42, 0.68, 0.84
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
@given(numbers, seeds, st.floats(-100, 100), st.permutations(range(9)))
def test_what_does_not_matter(logits: list[float], seed: int, shift: float, order: list[int]) -> None:
    """A constant on all logits, the numbers of the tokens, a top_k of all tokens."""
    found = draw(logits, seed)
    exact = torch.tensor(logits, dtype=torch.float64)
    places = [i for i in order if i < len(logits)]
    assert torch.equal(torch.tensor(places)[draw(exact[places], seed)], found)
    assert torch.equal(draw(exact, seed, top_k=len(logits)), found)
    moved = draw(exact + shift, seed)  # rounding may move a border between two tokens past a drawn number
    assert (moved != found).double().mean() <= 0.01


@few
@given(numbers, seeds)
def test_no_temperature_takes_the_likeliest(logits: list[float], seed: int) -> None:
    best = max(range(len(logits)), key=lambda i: logits[i])
    every: list[dict[str, Any]] = [{"temperature": 0.0}, {"top_k": 1}, {"temperature": 1e-300}, {"top_p": 1e-9}]
    for settings_ in every:
        assert set(draw(logits, seed, **settings_).tolist()) == {best}


def test_equal_logits_fall_to_the_smaller_id() -> None:
    assert set(draw([1.0, 1.0, 1.0], top_k=1).tolist()) == {0}
    assert set(draw([1.0, 1.0, 1.0], top_k=2).tolist()) == {0, 1}


def test_a_forbidden_token_is_never_drawn() -> None:
    assert set(draw([0.0, float("-inf"), 0.0], times=2000).tolist()) == {0, 2}


def test_rows_draw_numbers_of_their_own() -> None:
    assert len(set(draw([0.0] * 9, times=50).tolist())) > 5
    half = torch.zeros(4, 9, dtype=torch.bfloat16)
    assert choose(half, generator=torch.Generator().manual_seed(0)).shape == (4,)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), None])
def test_outputs_that_are_none_are_refused(bad: float | None) -> None:
    row = torch.tensor([[0.0, 1.0], [float("-inf")] * 2 if bad is None else [bad, 0.0]])
    with pytest.raises(ModelError, match="not finite"):
        choose(row)


@pytest.mark.parametrize(
    ("key", "value"),
    [("temperature", -1.0), ("temperature", float("nan")), ("top_k", -1), ("top_p", 0.0), ("top_p", 1.5)],
)
def test_settings_that_cannot_be_are_refused_by_name(key: str, value: float) -> None:
    with pytest.raises(SettingError, match=key):
        draw([0.0, 1.0], **dict[str, Any]({key: value}))
