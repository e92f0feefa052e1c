"""Decoding of networks trained by connectionist temporal classification: greedy search and prefix beam search.

Outputs are log probabilities of tokens at each frame, (N, T, K), including the blank (`nn/ctc.py`).

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
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core.errors import SettingError, check_value
from ..nn.ctc import BLANK
from .text import NONE


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
