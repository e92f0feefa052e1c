"""Connectionist temporal classification: the probability of a text without an alignment of characters to frames.

A. Graves, S. Fernández, F. Gomez, J. Schmidhuber, Connectionist temporal classification: labelling unsegmented
sequence data with recurrent neural networks, ICML 2006. <https://doi.org/10.1145/1143844.1143891>

At each of T frames the network outputs y_t(k), the probability of each token k, one of which is the blank. A path π is
one token per frame. B(π) is the text of a path: repeated tokens are merged, then blanks are removed, so that a double
letter needs a blank in between. The probability of a text l is the sum over all paths with that text:

    p(l | x) = Σ_{π: B(π) = l}  Π_t y_t(π_t)

There are too many paths to enumerate. With l' = (blank, l_1, blank, l_2, …, blank) of 2 |l| + 1 states, α_t(s) is the
probability of all prefixes that are in state s after frame t, and β_t(s) that of all suffixes that can follow:

    α_t(s) = y_t(l'_s) (α_{t−1}(s) + α_{t−1}(s − 1) + [l'_s ≠ blank, l'_s ≠ l'_{s−2}] α_{t−1}(s − 2))
    β_t(s) = Σ_{s'} β_{t+1}(s') y_{t+1}(l'_{s'}),     s' = s, s + 1 and, under the same condition, s + 2
    p(l | x) = Σ_s α_t(s) β_t(s)     at any t
    ∂(−log p)/∂z_t(k) = y_t(k) − Σ_{s: l'_s = k} α_t(s) β_t(s) / p(l | x)

z are the logits, y = softmax(z). All computations use logarithms. The paper's β includes the factor y_t(l'_s) too.

Training uses the fused `F.ctc_loss`. The textbook functions below take one sequence. They serve the alignment view and
the tests, which compare them with the fused loss.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

BLANK = 0  # token of the blank
# Logit of every token but the blank in padding. e^x is 0 in every precision, but unlike −∞ it has gradients.
SILENT = -1e4


def ctc_loss(log_probs: Tensor, target: Tensor, lengths: Tensor, blank: int = BLANK) -> Tensor:
    """Return −log p(l | x) of each sequence, (N,), with PyTorch's fused function.

    `log_probs` is (N, T, K), `target` (N, S), of which the first `lengths` (N,) tokens count. All T frames count. The
    loss is +∞ where there are too few frames for the text.
    """
    frames = torch.full((len(log_probs),), log_probs.shape[1])
    return F.ctc_loss(
        log_probs.transpose(0, 1), target, frames, lengths.cpu(), blank=blank, reduction="none"
    )  # of log probabilities (T, N, K)


def frames_needed(target: Tensor) -> int:
    """Return the smallest number of frames for a text (S,): one per token, and a blank between two equal tokens."""
    return len(target) + int((target[1:] == target[:-1]).sum())


def extended_target(target: Tensor, blank: int = BLANK) -> tuple[Tensor, Tensor]:
    """Return l', (2 S + 1,), and a mask of the states that can be reached by skipping the state before."""
    states = target.new_full((2 * len(target) + 1,), blank)
    states[1::2] = target
    skips = torch.zeros_like(states, dtype=torch.bool)
    skips[2:] = (states[2:] != blank) & (states[2:] != states[:-2])
    return states, skips


def forward_variables(log_probs: Tensor, target: Tensor, blank: int = BLANK) -> Tensor:
    """Return log α, (T, 2 S + 1), of one sequence: `log_probs` (T, K), `target` (S,)."""
    states, skips = extended_target(target, blank)
    said = log_probs[:, states]  # (T, 2 S + 1)
    alpha = torch.full_like(said[0], -math.inf)
    alpha[:2] = said[0, :2]  # begin with a blank or with the first token
    found = [alpha]
    for at in said[1:]:
        alpha = at + torch.logsumexp(torch.stack([alpha, _moved(alpha, 1), _moved(alpha, 2, skips)]), 0)
        found.append(alpha)
    return torch.stack(found)


def backward_variables(log_probs: Tensor, target: Tensor, blank: int = BLANK) -> Tensor:
    """Return log β, (T, 2 S + 1), of one sequence: `log_probs` (T, K), `target` (S,)."""
    states, skips = extended_target(target, blank)
    said = log_probs[:, states]  # (T, 2 S + 1)
    beta = torch.full_like(said[0], -math.inf)
    beta[-2:] = 0  # end with the last token or with a blank
    found = [beta]
    for at in said[1:].flip(0):
        ahead = beta + at
        passing = ahead.masked_fill(~skips, -math.inf)
        beta = torch.logsumexp(torch.stack([ahead, _moved(ahead, -1), _moved(passing, -2)]), 0)
        found.append(beta)
    return torch.stack(found[::-1])


def textbook_ctc_loss(log_probs: Tensor, target: Tensor, blank: int = BLANK) -> Tensor:
    """Return −log p(l | x), (), of one sequence, from the last α."""
    return -forward_variables(log_probs, target, blank)[-1, -2:].logsumexp(0)


def occupancies(log_probs: Tensor, target: Tensor, blank: int = BLANK) -> Tensor:
    """Return the probability of each state at each frame given the text l, α_t(s) β_t(s) / p(l | x), (T, 2 S + 1).

    Each row sums to 1. The probability of the states of one token shows where that token is spoken.
    """
    both = forward_variables(log_probs, target, blank) + backward_variables(log_probs, target, blank)
    return (both - both.logsumexp(1, keepdim=True)).exp()


def textbook_gradient(logits: Tensor, target: Tensor, blank: int = BLANK) -> Tensor:
    """Return ∂(−log p)/∂z, (T, K), of one sequence with logits z (T, K)."""
    log_probs = logits.log_softmax(1)
    given = torch.zeros_like(logits)
    given.index_add_(1, extended_target(target, blank)[0], occupancies(log_probs, target, blank))
    return log_probs.exp() - given


def _moved(values: Tensor, by: int, kept: Tensor | None = None) -> Tensor:
    """Shift values (S,) by `by` states; vacated states and those where `kept` is False get −∞."""
    found = torch.full_like(values, -math.inf)
    if by > 0:
        found[by:] = values[:-by]
    else:
        found[:by] = values[-by:]
    return found if kept is None else found.masked_fill(~kept, -math.inf)
