"""Sequences out of a model that answers a source token after token: the likeliest next token, or a beam of several.

A beam keeps the B beginnings with the highest scores and goes on from all of them. The score is that of Y. Wu et al.,
Google's neural machine translation system, 2016 <https://arxiv.org/abs/1609.08144>, equation 14 (without coverage):

    score(y) = log p(y | x) / ((5 + n) / 6)^α        n: the tokens of y, its end among them

Log probabilities only fall as a sequence grows, so that α = 0 prefers short ones; α > 0 makes up for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from ..errors import SettingError, require
from ..spec import Tokens

PAD = 0
NONE = -1  # behind the end of a decoded sequence
State = tuple[Tensor, ...]  # each with N first
Step = Callable[[Tensor, State], tuple[Tensor, State]]


@torch.no_grad()
def decode(
    model: nn.Module,
    source: Tensor,
    mask: Tensor | None,
    target: Tokens,
    longest: int | None = None,
    beams: int = 1,
    alpha: float = 0.6,
) -> Tensor:
    """What the model answers to each source: ids (N, L) without `end`, NONE behind it.

    `source` (N, T) and `mask` (N, T) are what `model.begin(source, mask)` takes; `model.step(token, state)` gives the
    logits of the next token. With one beam the likeliest next token is taken each time (greedy). With more, what has
    ended stays in the beam as it is, and the answer is the best that ever ended, the greedy one among them: a beam
    alone can lose that on the way, and score lower. α counts there alone. Padding and `begin` are never said.

    An answer that does not end is cut off after `longest` tokens, its end among them: half as many again as the longest
    target of training where it is None. The model runs in evaluation mode and is left in the mode that it was in.
    Raises SettingError for beams or lengths below 1, or α below 0.
    """
    require(beams >= 1, "beams", beams, "at least 1", SettingError)
    require(alpha >= 0, "alpha", alpha, "at least 0", SettingError)
    longest = longest if longest is not None else target.longest + target.longest // 2
    require(longest >= 1, "longest", longest, "at least 1", SettingError)
    training = model.training
    model.eval()
    try:
        state = cast(Callable[..., State], model.begin)(source, mask)
        step = cast(Step, model.step)
        found, scores = _greedy(step, state, target, longest, alpha)
        if beams > 1:
            found = _beam(step, state, target, longest, beams, alpha, found, scores)
    finally:
        model.train(training)
    ends = (found != NONE).sum(1).max() if found.numel() else 0
    return found[:, : int(ends)]


def _greedy(step: Step, state: State, target: Tokens, longest: int, alpha: float) -> tuple[Tensor, Tensor]:
    """The likeliest token each time: ids (N, longest) and scores (N,)."""
    n, device = len(state[0]), state[0].device
    found = torch.full((n, longest), NONE, device=device)
    total = torch.zeros(n, dtype=torch.double, device=device)
    said = torch.zeros(n, device=device)
    token = torch.full((n,), target.begin, device=device)
    over = torch.zeros(n, dtype=torch.bool, device=device)
    for i in range(longest):
        log_p, state = _log_probabilities(step, token, state, target)
        best, token = log_p.max(1)
        total += best.masked_fill(over, 0)
        said += ~over
        over = over | (token == target.end)
        found[:, i] = token.masked_fill(over, NONE)
        if over.all():
            break
    return found, total / _penalty(said, alpha)


def _beam(
    step: Step, state: State, target: Tokens, longest: int, beams: int, alpha: float, best: Tensor, score: Tensor
) -> Tensor:
    """The best of all that ends in a beam, and of `best` (N, longest), which has `score` (N,): ids (N, longest)."""
    n, device = len(state[0]), state[0].device
    state = tuple(x.repeat_interleave(beams, 0) for x in state)  # (N·B, …)
    found = torch.full((n, beams, longest), NONE, device=device)
    # All beams of an example begin alike: but for the first they are impossible, or all would go on alike.
    total = torch.full((n, beams), -math.inf, dtype=torch.double, device=device)
    total[:, 0] = 0
    said = torch.zeros(n, beams, device=device)
    over = torch.zeros(n, beams, dtype=torch.bool, device=device)
    token = torch.full((n * beams,), target.begin, device=device)
    first = torch.arange(n, device=device)[:, None] * beams  # the row of each example's first beam
    for i in range(longest):
        log_p, state = _log_probabilities(step, token, state, target)
        log_p = log_p.view(n, beams, -1)  # (N, B, V)
        # What is over stays as it is: it goes on with `end` alone, at no cost.
        log_p = log_p.masked_fill(over[:, :, None], -math.inf)
        log_p[:, :, target.end] = log_p[:, :, target.end].masked_fill(over, 0)
        sums = total[:, :, None] + log_p  # (N, B, V)
        lengths = said + ~over  # (N, B)
        chosen = (sums / _penalty(lengths, alpha)[:, :, None]).flatten(1).topk(beams, 1).indices  # (N, B), best first
        parent, token = chosen // log_p.shape[2], chosen % log_p.shape[2]
        total = sums.flatten(1).gather(1, chosen)
        said, over = lengths.gather(1, parent), over.gather(1, parent) | (token == target.end)
        found = found.gather(1, parent[:, :, None].expand_as(found))
        found[:, :, i] = token.masked_fill(over, NONE)
        ended = over if i < longest - 1 else torch.ones_like(over)  # the last of all are cut off
        scores, which = (total / _penalty(said, alpha)).masked_fill(~ended, -math.inf).max(1)  # (N,)
        better = scores > score
        best = torch.where(better[:, None], found[torch.arange(n, device=device), which], best)
        score = torch.where(better, scores, score)
        # No probability is above 1: what is not over can come to no more than this.
        if (total.masked_fill(over, -math.inf).max(1).values / ((5 + longest) / 6) ** alpha <= score).all():
            break
        rows = (first + parent).flatten()  # (N·B,)
        state = tuple(x[rows] for x in state)
        token = token.flatten()
    return best


def _log_probabilities(step: Step, token: Tensor, state: State, target: Tokens) -> tuple[Tensor, State]:
    """Of each next token, (N, V) float64, after the beginnings that end with `token`."""
    logits, state = step(token, state)
    logits = logits.double()
    logits[:, [PAD, target.begin]] = -math.inf
    return logits.log_softmax(1), state


def _penalty(lengths: Tensor, alpha: float) -> Tensor:
    """((5 + n) / 6)^α."""
    return ((5 + lengths.double()) / 6) ** alpha


__all__ = ["NONE", "decode"]
