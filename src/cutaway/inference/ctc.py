"""Texts out of a network that was learned by connectionist temporal classification: the best path, or the best text.

Outputs are log probabilities of tokens at each frame, (N, T, K), the blank among them (`nn/ctc.py`).

Greedy search takes the likeliest token of each frame and reads the path that they make: repeats once, blanks left out.
The likeliest path need not read the likeliest text, whose probability is that of all paths that read it. Prefix beam
search (A. Graves, Supervised sequence labelling with recurrent neural networks, 2012, section 7.5; A. Y. Hannun et al.,
First-pass large vocabulary continuous speech recognition using bi-directional recurrent DNNs, 2014
<https://arxiv.org/abs/1408.2873>) adds those up. It goes from frame to frame with the B likeliest beginnings l of a
text, and of each with the probability of the paths that end with a blank, p_b, and of those that do not, p_n:

    p_b'(l) = y(blank) (p_b(l) + p_n(l))
    p_n'(l) = y(l_end) p_n(l) + y(l_end) · (p_b(l⁻) if l_end = l⁻_end else p_b(l⁻) + p_n(l⁻))     where l = l⁻ l_end

All texts of a batch and all their beginnings take a step at once here. A beam that is wide enough to hold every
beginning there is gives the likeliest text.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core.errors import SettingError, require
from ..nn.ctc import BLANK
from .text import NONE


def transcribe(log_probs: Tensor, num_beams: int = 1) -> Tensor:
    """The text of each of log_probs (N, T, K): token ids (N, L), NONE after its end. One beam is greedy search."""
    require(num_beams >= 1, "num_beams", num_beams, "at least 1", SettingError)
    return best_path(log_probs) if num_beams == 1 else prefix_beam(log_probs, num_beams)[0]


def best_path(log_probs: Tensor) -> Tensor:
    """What the likeliest token of each frame reads, (N, L), NONE after its end."""
    path = log_probs.argmax(2)  # (N, T)
    said = path != BLANK
    said[:, 1:] &= path[:, 1:] != path[:, :-1]
    lengths = said.sum(1)
    found = path.new_full((len(path), int(lengths.max()) if len(path) else 0), NONE)
    found[torch.arange(found.shape[1], device=path.device) < lengths[:, None]] = path[said]
    return found


@torch.no_grad()
def prefix_beam(log_probs: Tensor, num_beams: int) -> tuple[Tensor, Tensor]:
    """The likeliest text that the beam found, (N, L), NONE after its end, and the log probability of those of its
    paths that the beam kept, (N,) float64: at most that of the text."""
    n, frames, tokens = log_probs.shape
    log_probs = log_probs.double()
    others = torch.tensor([k for k in range(tokens) if k != BLANK], device=log_probs.device)
    texts = torch.full((n, 1, frames), NONE, device=log_probs.device)  # the beginnings, (N, B, T); first the empty one
    lengths = torch.zeros(n, 1, dtype=torch.int64, device=log_probs.device)
    blank = log_probs.new_zeros(n, 1)  # log p_b
    spoken = torch.full_like(blank, -math.inf)  # log p_n
    rows = torch.arange(n, device=log_probs.device)[:, None]  # (N, 1)
    for t in range(frames):
        y, end = log_probs[:, t], texts.gather(2, (lengths - 1).clamp(min=0)[:, :, None])[:, :, 0]  # (N, K), (N, B)
        both = torch.logaddexp(blank, spoken)
        # What goes on with each token; a repeat needs a blank before it.
        longer = both[:, :, None] + y[:, None, :]  # (N, B, K)
        repeats = end.clamp(min=0)[:, :, None]
        again = (blank + y.gather(1, end.clamp(min=0)))[:, :, None]
        longer = torch.where(lengths[:, :, None] > 0, longer.scatter(2, repeats, again), longer)
        longer[:, :, BLANK] = -math.inf
        # What stays: by a blank, or by its last token going on.
        stays_blank = both + y[:, BLANK, None]
        stays_spoken = torch.where(lengths > 0, spoken + y.gather(1, end.clamp(min=0)), -math.inf)
        # A beginning and one token may be another of the beginnings: it is one text, with the paths of both.
        shorter = texts.scatter(2, (lengths - 1).clamp(min=0)[:, :, None], NONE)  # each without its last token
        most = t + 1  # tokens that any of them can have
        parents = (texts[:, :, None, :most] == shorter[:, None, :, :most]).all(3)  # (N, B, B): of which, is which
        possible = both > -math.inf  # what is not only fills the beam
        parents &= (lengths[:, None, :] == lengths[:, :, None] + 1) & possible[:, None, :] & possible[:, :, None]
        which, parent = parents.any(1), parents.int().argmax(1)  # (N, B): whether it has one, and which
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
    """Which continuations (N, B, K) are beginnings that stand in the beam themselves."""
    found = torch.zeros(*parents.shape[:2], tokens, dtype=torch.int64, device=parents.device)
    index = end.clamp(min=0)[:, None, :].expand_as(parents)
    return found.scatter_add_(2, index, parents.long()).bool()
