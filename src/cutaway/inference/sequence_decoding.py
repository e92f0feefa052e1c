"""Decoding of sequences: greedy and beam search, for CTC networks and sequence-to-sequence models.

Networks trained by connectionist temporal classification (CTC). Outputs are log probabilities of tokens at each frame,
(N, T, K), including the blank (`nn/losses.py`).

Greedy search takes the likeliest token of each frame, merges repeats and removes blanks. The likeliest path need not
give the likeliest text, because the probability of a text is the sum over all its paths. Prefix beam search (A. Graves,
Supervised sequence labelling with recurrent neural networks, 2012, section 7.5; A. Y. Hannun et al., First-pass large
vocabulary continuous speech recognition using bi-directional recurrent DNNs, 2014 <https://arxiv.org/abs/1408.2873>)
computes these sums. It proceeds frame by frame with the B likeliest prefixes l of a text. For each it stores the
probability p_b of the paths that end with a blank and p_n of those that do not:

    p_b'(l) = y(blank) (p_b(l) + p_n(l))
    p_n'(l) = y(l_end) p_n(l) + y(l_end) · (p_b(l⁻) if l_end = l⁻_end else p_b(l⁻) + p_n(l⁻))     where l = l⁻ l_end

All prefixes of all texts of a batch are updated at once. A beam that is wide enough for every prefix finds the
likeliest text.

Sequence-to-sequence models: greedy search, sampling (`sampling.py`) and beam search. A beam keeps the B likeliest
prefixes and the B best finished answers. The score of an answer is

    score(y) = log p(y | x) / lp(n)        n: the tokens of y, including its end
    lp(n) = ((5 + n) / 6)^α                penalty="gnmt": Y. Wu et al., Google's neural machine translation system,
                                           2016 <https://arxiv.org/abs/1609.08144>, equation 14, without coverage
    lp(n) = n^α                            penalty="length": length_penalty in transformers

Log probabilities decrease as a sequence grows, so α = 0 prefers short sequences. α > 0 compensates for this.

At each step the 2B likeliest continuations of all B prefixes are considered, by log p alone. Of the first B, those that
end become answers. The first B that do not end are continued. A search ends when it has B answers and its likeliest
prefix, if it ended now, would score no better than the worst of them. This is the search of transformers'
`generate(num_beams=B, early_stopping=False)`, with the same sequences and scores. It does not guarantee the best
answer: with α > 0 a longer answer could be better, and a beam can lose what greedy search finds. A beam as wide as the
number of possible sequences loses nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol, Unpack, cast

import torch
from torch import Tensor, nn

from ..core.errors import ModelError, SettingError, check_value
from ..core.spec import Tokens
from ..nn.decode_fast_path import DecodeFastPath
from ..nn.losses import BLANK
from ..nn.modules import eval_mode
from .sampling import Sampling, Settings, draw
from .text import BLOCK, NONE, Generators, random_numbers, to_generators


def transcribe(log_probs: Tensor, num_beams: int = 1) -> Tensor:
    """Return the text of each of log_probs (N, T, K): token ids (N, L), padded with NONE. One beam is greedy search."""
    check_value(num_beams >= 1, "num_beams", num_beams, "at least 1", SettingError)
    return best_path(log_probs) if num_beams == 1 else prefix_beam(log_probs, num_beams)[0]


def best_path(log_probs: Tensor) -> Tensor:
    """Return the text of the likeliest token at each frame, (N, L), padded with NONE."""
    path = log_probs.argmax(2)  # (N, T)
    said = path != BLANK
    said[:, 1:] &= path[:, 1:] != path[:, :-1]
    lengths = said.sum(1)
    found = path.new_full((len(path), int(lengths.max()) if len(path) else 0), NONE)
    found[torch.arange(found.shape[1], device=path.device) < lengths[:, None]] = path[said]
    return found


@torch.no_grad()
def prefix_beam(log_probs: Tensor, num_beams: int) -> tuple[Tensor, Tensor]:
    """Return the likeliest text that the beam found, (N, L), padded with NONE, and a log probability (N,) float64.

    The probability sums over the paths that the beam kept. It is a lower bound for that of the text.
    """
    n, frames, tokens = log_probs.shape
    log_probs = log_probs.double()
    others = torch.tensor([k for k in range(tokens) if k != BLANK], device=log_probs.device)
    texts = torch.full((n, 1, frames), NONE, device=log_probs.device)  # the prefixes, (N, B, T), at first the empty one
    lengths = torch.zeros(n, 1, dtype=torch.int64, device=log_probs.device)
    blank = log_probs.new_zeros(n, 1)  # log p_b
    spoken = torch.full_like(blank, -math.inf)  # log p_n
    rows = torch.arange(n, device=log_probs.device)[:, None]  # (N, 1)
    for t in range(frames):
        y, end = log_probs[:, t], texts.gather(2, (lengths - 1).clamp(min=0)[:, :, None])[:, :, 0]  # (N, K), (N, B)
        both = torch.logaddexp(blank, spoken)
        # Extend by each token; a repeated token needs a blank before it.
        longer = both[:, :, None] + y[:, None, :]  # (N, B, K)
        repeats = end.clamp(min=0)[:, :, None]
        again = (blank + y.gather(1, end.clamp(min=0)))[:, :, None]
        longer = torch.where(lengths[:, :, None] > 0, longer.scatter(2, repeats, again), longer)
        longer[:, :, BLANK] = -math.inf
        # Keep the prefix: by a blank, or by a repeat of its last token.
        stays_blank = both + y[:, BLANK, None]
        stays_spoken = torch.where(lengths > 0, spoken + y.gather(1, end.clamp(min=0)), -math.inf)
        # A prefix and one token may be another prefix of the beam: they are one text, with the paths of both.
        shorter = texts.scatter(2, (lengths - 1).clamp(min=0)[:, :, None], NONE)  # each without its last token
        most = t + 1  # largest number of tokens of a prefix
        parents = (texts[:, :, None, :most] == shorter[:, None, :, :most]).all(3)  # (N, B, B): parent, child
        possible = both > -math.inf  # other entries only fill the beam
        parents &= (lengths[:, None, :] == lengths[:, :, None] + 1) & possible[:, None, :] & possible[:, :, None]
        which, parent = parents.any(1), parents.int().argmax(1)  # (N, B): whether it has a parent, and which
        arrives = longer[rows, parent, end.clamp(min=0)].masked_fill(~which, -math.inf)
        stays_spoken = torch.logaddexp(stays_spoken, arrives)
        longer = longer.masked_fill(_marked(parents, end, tokens), -math.inf)

        candidates = torch.cat([torch.logaddexp(stays_blank, stays_spoken), longer[:, :, others].flatten(1)], 1)
        width = texts.shape[1]
        _, chosen = candidates.topk(min(num_beams, candidates.shape[1]), 1)  # (N, B'), the likeliest first
        stays = chosen < width
        grown = (chosen - width).clamp(min=0)
        origin = torch.where(stays, chosen, grown // len(others))
        token = others[grown % len(others)]
        blank = torch.where(stays, stays_blank.gather(1, origin), -math.inf)
        spoken = torch.where(stays, stays_spoken.gather(1, origin), longer[rows, origin, token])
        texts, lengths = texts[rows, origin], lengths.gather(1, origin)
        at = lengths.clamp(max=frames - 1)[:, :, None]
        texts = texts.scatter(2, at, torch.where(stays[:, :, None], texts.gather(2, at), token[:, :, None]))
        lengths = lengths + ~stays
    scores, best = torch.logaddexp(blank, spoken).max(1)
    found, lengths = texts[rows[:, 0], best], lengths[rows[:, 0], best]
    return found[:, : int(lengths.max()) if n else 0], scores


def _marked(parents: Tensor, end: Tensor, tokens: int) -> Tensor:
    """Return which continuations (N, B, K) are prefixes in the beam themselves."""
    found = torch.zeros(*parents.shape[:2], tokens, dtype=torch.int64, device=parents.device)
    index = end.clamp(min=0)[:, None, :].expand_as(parents)
    return found.scatter_add_(2, index, parents.long()).bool()


PENALTIES: dict[str, Callable[[float, float], float]] = {
    "gnmt": lambda n, alpha: ((5 + n) / 6) ** alpha,
    "length": lambda n, alpha: n**alpha,
}


class Selectable(Protocol):
    """Protocol of a state with examples that can be selected, such as `nn.kv_cache.Cache`."""

    def select(self, rows: Tensor) -> Any:
        """Return the state of the examples `rows`, in their order; an index may occur several times."""
        ...


State = tuple[Tensor, ...] | Selectable  # tensors with N first, or an object with `select`
Step = Callable[[Tensor, State], tuple[Tensor, State]]


def decode(
    model: nn.Module,
    source: Tensor,
    mask: Tensor | None,
    target: Tokens,
    longest: int | None = None,
    num_beams: int = 1,
    length_penalty: float = 0.6,
    *,
    penalty: str = "gnmt",
) -> Tensor:
    """Decode the model's answer to each source: ids (N, L) without `end`, padded with NONE.

    `source` (N, …) and its `mask` (N, T) are the arguments of `model.begin`; images have no mask. `model.step(token,
    state)` returns the logits of the next token. One beam is greedy search, more are beam search. Padding is never
    generated, nor is `begin`, unless it is `end` too; their probability is not redistributed.

    An answer that does not end is cut off after `longest` tokens, including its end. The default is 1.5 times the
    longest target of training, limited by the model's context. The model runs in evaluation mode and returns to its
    previous mode. Raises SettingError for beams or lengths below 1, α below 0 or an unknown penalty, and ModelError for
    outputs that are not finite.
    """
    return decode_scored(model, source, mask, target, longest, num_beams, length_penalty, penalty=penalty)[0]


@torch.no_grad()
def decode_scored(
    model: nn.Module,
    source: Tensor,
    mask: Tensor | None,
    target: Tokens,
    longest: int | None = None,
    num_beams: int = 1,
    length_penalty: float = 0.6,
    *,
    penalty: str = "gnmt",
) -> tuple[Tensor, Tensor]:
    """Decode as `decode`, and return the score of each answer too, (N,) float64."""
    check_value(num_beams >= 1, "num_beams", num_beams, "at least 1", SettingError)
    fine = math.isfinite(length_penalty) and length_penalty >= 0
    check_value(fine, "length_penalty", length_penalty, "at least 0", SettingError)
    check_value(penalty in PENALTIES, "penalty", penalty, " or ".join(PENALTIES), SettingError)
    longest = _usual_length(model, target) if longest is None else longest
    check_value(longest >= 1, "longest", longest, "at least 1", SettingError)
    lp = PENALTIES[penalty]
    penalties = [lp(n, length_penalty) for n in range(1, longest + 1)]  # of answers of 1, 2, … tokens
    training = model.training
    model.eval()
    try:
        state = cast(Callable[..., State], model.begin)(source, mask)
        token = torch.full((len(source),), target.begin, device=source.device)
        step = cast(Step, model.step)
        with DecodeFastPath(model)():
            if num_beams == 1:
                found, scores = _greedy(step, state, token, target, penalties)
            else:
                found, scores = _beam(step, state, token, target, penalties, num_beams)
    finally:
        model.train(training)
    if scores.isnan().any():
        raise ModelError("Decoding failed: the model's outputs are not finite.")
    said = (found != NONE).sum(1).max() if found.numel() else 0
    return found[:, : int(said)], scores


def decode_with_log_prob(
    model: nn.Module,
    source: Tensor,
    mask: Tensor | None,
    target: Tokens,
    num_beams: int = 1,
    length_penalty: float = 0.6,
) -> tuple[Tensor, Tensor]:
    """Decode up to the default length, and return the answers and log p of each with its end, (N,) float64."""
    longest = _usual_length(model, target)
    found, scores = decode_scored(model, source, mask, target, longest, num_beams, length_penalty)
    said = ((found != NONE).sum(1) + 1).clamp(max=longest).tolist()
    return found, scores * scores.new_tensor([PENALTIES["gnmt"](n, length_penalty) for n in said])


@torch.no_grad()
def sample(
    model: nn.Module,
    source: Tensor,
    mask: Tensor | None,
    target: Tokens,
    longest: int | None = None,
    *,
    generator: Generators = None,
    **settings: Unpack[Settings],
) -> Tensor:
    """Sample an answer to each source: ids (N, L) without `end`, padded with NONE.

    The arguments are those of `decode`; `settings` are those of `sampling.Sampling`. The repetition penalty counts the
    answer so far. Padding is never sampled, nor is `begin`, unless it is `end` too; their probability is redistributed.
    One `generator` is shared by all rows. With one generator per row, a row does not depend on the rest of the batch.
    """
    sampling = Sampling(**settings)
    longest = _usual_length(model, target) if longest is None else longest
    check_value(longest >= 1, "longest", longest, "at least 1", SettingError)
    n, device = len(source), source.device
    generators = to_generators(generator, n, sampling)
    never = torch.tensor(_forbidden(target), device=device)
    found = torch.full((n, longest), NONE, device=device)
    over = torch.zeros(n, dtype=torch.bool, device=device)
    numbers = written = None
    with eval_mode(model), DecodeFastPath(model)():
        state = cast(Callable[..., State], model.begin)(source, mask)
        token = torch.full((n,), target.begin, device=device)
        for i in range(longest):
            logits, state = _logits(cast(Step, model.step), token, state)
            if generators and i % BLOCK == 0:
                numbers = random_numbers(generators, n, device).unbind()  # BLOCK of (N,)
            if written is None and sampling.repetition_penalty != 1:
                written = torch.zeros_like(logits, dtype=torch.bool)
            forbidding = logits.index_fill(1, never, -math.inf)
            token = draw(forbidding, sampling, None if numbers is None else numbers[i % BLOCK], written)
            if written is not None:
                written.scatter_(1, token[:, None], True)
            over = over | (token == target.end)
            found[:, i] = token.masked_fill(over, NONE)
            if over.all():
                break
    return found[:, : int((found != NONE).sum(1).max()) if n else 0]


def _usual_length(model: nn.Module, target: Tokens) -> int:
    """Return the default maximum length of an answer."""
    longest = target.longest + target.longest // 2
    context = getattr(getattr(model, "config", None), "context_length", None)
    return min(longest, context) if isinstance(context, int) and context > 0 else longest


def _greedy(step: Step, state: State, token: Tensor, target: Tokens, penalties: list[float]) -> tuple[Tensor, Tensor]:
    """Take the likeliest token at each step: ids (N, longest) and scores (N,)."""
    n, device = len(token), token.device
    found = torch.full((n, len(penalties)), NONE, device=device)
    scores = torch.zeros(n, dtype=torch.float64, device=device)
    total = torch.zeros_like(scores)
    over = torch.zeros(n, dtype=torch.bool, device=device)
    never = torch.tensor(_forbidden(target), dtype=torch.int64, device=device)
    for i, lp in enumerate(penalties):
        logits, state = _logits(step, token, state)
        best, token = logits.index_fill(1, never, -math.inf).max(1)  # of equally likely tokens the smallest id
        total += best - logits.logsumexp(1)
        scores = torch.where(over, scores, total / lp)
        over = over | (token == target.end)
        found[:, i] = token.masked_fill(over, NONE)
        if over.all():
            break
    return found, scores


def _beam(
    step: Step, state: State, token: Tensor, target: Tokens, penalties: list[float], num_beams: int
) -> tuple[Tensor, Tensor]:
    """Return the best answer of a beam search: ids (N, longest) and scores (N,). `token` (N,) is the first input."""
    n, device = len(token), token.device
    first = torch.arange(n, device=device)[:, None]  # (N, 1), the row of each example's first prefix
    running = torch.full((n, 1, len(penalties)), NONE, device=device)  # the prefixes: one, then B
    total = torch.zeros(n, 1, dtype=torch.float64, device=device)  # their log p
    answers = torch.full((n, num_beams, len(penalties)), NONE, device=device)  # best first
    scores = torch.full((n, num_beams), -math.inf, dtype=torch.float64, device=device)
    closed = torch.zeros(n, 1, dtype=torch.bool, device=device)
    for i, lp in enumerate(penalties):
        logits, state = _logits(step, token, state)
        # The 2B likeliest continuations of all prefixes are among the 2B likeliest of each.
        log_p, tokens = _likeliest(logits, 2 * num_beams, target)
        width = log_p.shape[1]
        sums = total[:, :, None] + log_p.view(n, -1, width)  # (N, prefixes, width)
        # The model's outputs after an impossible prefix are undefined, possibly NaN.
        sums = sums.masked_fill(total[:, :, None] == -math.inf, -math.inf).flatten(1)
        sums, chosen = sums.topk(min(2 * num_beams, sums.shape[1]), 1)  # (N, 2B), the likeliest first
        parent = chosen // width
        token = tokens.view(n, -1).gather(1, chosen)
        grown = running.gather(1, parent[:, :, None].expand(-1, -1, len(penalties)))  # (N, 2B, longest)
        grown[:, :, i] = token.masked_fill(token == target.end, NONE)

        ends = token == target.end if i + 1 < len(penalties) else torch.ones_like(chosen, dtype=torch.bool)
        counts = ends & (torch.arange(ends.shape[1], device=device) < num_beams) & ~closed
        reached = torch.cat([scores, (sums / lp).masked_fill(~counts, -math.inf)], 1)
        scores, best = reached.topk(num_beams, 1)
        answers = torch.cat([answers, grown], 1).gather(1, best[:, :, None].expand(-1, -1, len(penalties)))

        sums = sums.masked_fill(ends, -math.inf)
        total, going = sums.topk(min(num_beams, sums.shape[1]), 1)  # (N, B)
        closed = closed | (total[:, :1] / lp <= scores[:, -1:])
        if closed.all() or i + 1 == len(penalties):
            break
        running = grown.gather(1, going[:, :, None].expand(-1, -1, len(penalties)))
        token = token.gather(1, going).flatten()  # (N·B,)
        rows = (first + parent.gather(1, going)).flatten()
        state = _selected(state, rows, len(logits))
        first = torch.arange(n, device=device)[:, None] * going.shape[1]
    return answers[:, 0], scores[:, 0]


def _logits(step: Step, token: Tensor, state: State) -> tuple[Tensor, State]:
    """Return the logits of each next token, (N, V), in at least 32 bits, and the state after `token` (N,)."""
    logits, state = step(token, state)
    return logits if logits.dtype == torch.float64 else logits.float(), state


def _forbidden(target: Tokens) -> list[int]:
    """Return the tokens that are never generated."""
    return sorted({target.padding, target.begin} - {target.end})


def _likeliest(logits: Tensor, count: int, target: Tokens) -> tuple[Tensor, Tensor]:
    """Return log p, float64, and ids of the `count` likeliest allowed tokens of each row of logits (N, V).

    Both are (N, at most count), the likeliest first.
    """
    forbidden = _forbidden(target)
    # Take more tokens to leave room for forbidden ones, which is faster than a copy of all logits without them.
    best, tokens = logits.topk(min(count + len(forbidden), logits.shape[1]), 1)
    log_p = (best - logits.logsumexp(1, keepdim=True)).double()
    for token in forbidden:
        log_p = log_p.masked_fill(tokens == token, -math.inf)
    order = log_p.argsort(dim=1, descending=True, stable=True)[:, :count]
    return log_p.gather(1, order), tokens.gather(1, order)


def _selected(state: State, rows: Tensor, before: int) -> State:
    """Return the state of the examples `rows` of `before` examples; the state itself if these are all, in order."""
    if len(rows) == before and torch.equal(rows, torch.arange(before, device=rows.device)):
        return state
    if isinstance(state, tuple):
        return tuple(x.index_select(0, rows) for x in state)
    return cast(State, state.select(rows))


__all__ = ["NONE", "PENALTIES", "decode", "decode_scored", "decode_with_log_prob", "sample"]
