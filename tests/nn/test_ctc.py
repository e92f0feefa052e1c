"""Connectionist temporal classification: the textbook, PyTorch's and all paths one by one give the same."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutaway.nn.losses import (
    BLANK,
    SILENT,
    backward_variables,
    ctc_loss,
    forward_variables,
    frames_needed,
    occupancies,
    textbook_ctc_loss,
    textbook_gradient,
)

TEXTS = st.lists(st.integers(1, 3), min_size=0, max_size=5)


def logits(frames: int, tokens: int = 4, seed: int = 0, batch: int | None = None) -> Tensor:
    shape = (frames, tokens) if batch is None else (batch, frames, tokens)
    return 2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def read(path: tuple[int, ...]) -> tuple[int, ...]:
    """B(π)."""
    return tuple(token for token, _ in itertools.groupby(path) if token != BLANK)


@pytest.mark.parametrize("text", [(), (1,), (1, 1), (2, 1), (1, 2, 1), (2, 2, 2)])
def test_the_probability_is_that_of_all_paths_that_read_the_text(text: tuple[int, ...]) -> None:
    y = logits(5).log_softmax(1)
    paths = [p for p in itertools.product(range(4), repeat=5) if read(p) == text]
    by_paths = -torch.stack([y[range(5), p].sum() for p in paths]).logsumexp(0)
    torch.testing.assert_close(textbook_ctc_loss(y, torch.tensor(text, dtype=torch.int64)), by_paths)


@settings(max_examples=60, deadline=None)
@given(text=TEXTS, frames=st.integers(1, 12), seed=st.integers(0, 99))
def test_loss_and_gradient_are_pytorchs(text: list[int], frames: int, seed: int) -> None:
    target = torch.tensor(text, dtype=torch.int64)
    assume(frames_needed(target) <= frames)
    z = logits(frames, seed=seed).requires_grad_()
    loss = F.ctc_loss(z.log_softmax(1)[:, None], target[None], (frames,), (len(text),), reduction="sum")
    loss.backward()  # type: ignore[no-untyped-call]
    y = z.detach().log_softmax(1)
    torch.testing.assert_close(textbook_ctc_loss(y, target), loss.detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(textbook_gradient(z.detach(), target), z.grad, rtol=1e-10, atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(text=TEXTS, frames=st.integers(1, 12), more=st.integers(0, 4))
def test_every_frame_gives_the_same_probability(text: list[int], frames: int, more: int) -> None:
    target = torch.tensor(text, dtype=torch.int64)
    y = logits(frames_needed(target) + more + 1).log_softmax(1)
    both = forward_variables(y, target) + backward_variables(y, target)
    torch.testing.assert_close(-both.logsumexp(1), textbook_ctc_loss(y, target).expand(len(y)))
    torch.testing.assert_close(occupancies(y, target).sum(1), torch.ones(len(y), dtype=torch.float64))


@settings(max_examples=30, deadline=None)
@given(texts=st.lists(TEXTS, min_size=1, max_size=4), more=st.integers(0, 5), silent=st.integers(0, 5))
def test_a_batch_and_the_blank_for_certain_change_nothing(texts: list[list[int]], more: int, silent: int) -> None:
    longest = max(map(len, texts))
    target = torch.tensor([[*t, *[3] * (longest - len(t))] for t in texts]).view(len(texts), longest)
    lengths = torch.tensor([len(t) for t in texts])
    z = logits(2 * longest + more + 1, batch=len(texts))
    padding = torch.tensor([0.0] + [SILENT] * 3, dtype=torch.float64).expand(len(texts), silent, 4)
    longer = torch.cat([z, padding], 1).requires_grad_()
    losses = ctc_loss(longer.log_softmax(2), target, lengths)
    losses.sum().backward()  # type: ignore[no-untyped-call]
    assert longer.grad is not None
    for i, text in enumerate(texts):
        alone = torch.tensor(text, dtype=torch.int64)
        torch.testing.assert_close(losses[i].detach(), textbook_ctc_loss(z[i].log_softmax(1), alone))
        torch.testing.assert_close(longer.grad[i, : z.shape[1]], textbook_gradient(z[i], alone), rtol=1e-9, atol=1e-12)
        assert not longer.grad[i, z.shape[1] :].any()


@pytest.mark.parametrize(("text", "needed"), [((), 0), ((1,), 1), ((1, 2), 2), ((1, 1), 3), ((1, 1, 1, 2), 6)])
def test_a_text_needs_frames_and_more_where_it_repeats(text: tuple[int, ...], needed: int) -> None:
    target = torch.tensor(text, dtype=torch.int64)
    assert frames_needed(target) == needed
    lengths = torch.tensor([len(text)])
    assert ctc_loss(logits(max(needed, 1), batch=1).log_softmax(2), target[None], lengths).isfinite().all()
    if needed > 1:
        assert ctc_loss(logits(needed - 1, batch=1).log_softmax(2), target[None], lengths).item() == math.inf
        assert textbook_ctc_loss(logits(needed - 1).log_softmax(1), target).item() == math.inf


def test_silence_is_certain_in_every_precision() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        said = torch.tensor([0.0, SILENT, SILENT], dtype=dtype).softmax(0)
        assert said.tolist() == [1, 0, 0]
