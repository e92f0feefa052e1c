"""The next token, drawn from a model's outputs: temperature, the k likeliest, the nucleus, no repetitions.

p_i = exp(z_i / t) / Σ_j exp(z_j / t)

What is asked for is applied in this order, which is that of transformers:

1. repetition penalty r: a token that stands before already has z / r for z where z > 0, and z · r where z < 0, so that
   r > 1 makes it less likely either way (N. Keskar et al., CTRL, 2019, section 4.1, <https://arxiv.org/abs/1909.05858>,
   divides by r whatever the sign);
2. temperature t;
3. top-k: the k likeliest, and those that are as likely as the last of them (A. Fan et al., Hierarchical neural story
   generation, 2018, <https://arxiv.org/abs/1805.04833>);
4. top-p: of these, whose probabilities then add up to 1, the smallest set of likeliest tokens that holds at least the
   probability p (A. Holtzman et al., The curious case of neural text degeneration, 2019,
   <https://arxiv.org/abs/1904.09751>);
5. min-p: of these, those with at least m times the probability of the likeliest (M. Nguyen et al., 2024,
   <https://arxiv.org/abs/2407.01082>).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypedDict, Unpack

import torch
from torch import Tensor

from ..core.errors import ModelError, SettingError, require

FEW = 256  # likeliest tokens that a nucleus is looked for among first: sorting a whole vocabulary takes far longer


class Settings(TypedDict, total=False):
    """What can be said of how a token is drawn, as keywords; `Sampling` says what each is."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn. Raises SettingError, by name, for what cannot be."""

    temperature: float = 1.0  # 0 takes the likeliest
    top_k: int = 0  # draw from so many likeliest tokens; 0 leaves none out, 1 takes the likeliest
    top_p: float = 1.0  # draw from the likeliest tokens that hold this probability; 1 leaves none out
    min_p: float = 0.0  # draw from tokens of at least this fraction of the largest probability; 0 leaves none out
    repetition_penalty: float = 1.0  # above 1 makes tokens that stand there already less likely; 1 changes nothing

    def __post_init__(self) -> None:
        def reject(ok: bool, name: str, allowed: str) -> None:
            require(ok, name, getattr(self, name), allowed, SettingError)

        t, r = self.temperature, self.repetition_penalty
        reject(math.isfinite(t) and t >= 0, "temperature", "a number that is at least 0")
        reject(self.top_k >= 0, "top_k", "at least 0, and 0 leaves no token out")
        reject(0 < self.top_p <= 1, "top_p", "above 0 and at most 1")
        reject(0 <= self.min_p <= 1, "min_p", "at least 0 and at most 1, and 0 leaves no token out")
        reject(math.isfinite(r) and r > 0, "repetition_penalty", "a number above 0, and 1 changes nothing")

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken, and nothing drawn."""
        return self.temperature == 0 or self.top_k == 1


def choose(
    logits: Tensor,
    *,
    written: Tensor | None = None,
    generator: torch.Generator | None = None,
    **settings: Unpack[Settings],
) -> Tensor:
    """A token for each row of `logits` (N, V): (N,) int64. A logit of −∞ forbids its token.

    `settings` are those of `Sampling`. `written` (N, V), True for tokens that stand there already, is for the
    repetition penalty. Of equally likely tokens the one with the smallest id is the likeliest. One number is drawn for
    each row, by `generator`, which may stand on another device. Raises SettingError for settings that cannot be,
    ModelError where a row holds NaN or forbids every token.
    """
    sampling = Sampling(**settings)
    drawn = None if sampling.greedy else uniform(len(logits), generator, logits.device)
    return draw(logits, sampling, drawn, written)


def uniform(count: int, generator: torch.Generator | None, device: torch.device | str) -> Tensor:
    """`count` numbers, (count,), from 0 on and below 1, float64, by the generator on its device, then on `device`."""
    home = generator.device if generator is not None else device
    return torch.rand(count, dtype=torch.float64, device=home, generator=generator).to(device)


def draw(logits: Tensor, sampling: Sampling, drawn: Tensor | None, written: Tensor | None = None) -> Tensor:
    """The same with the numbers `drawn` (N,), from 0 on and below 1, given: row i takes the first token whose
    probability, with those of all smaller ids, is more than `drawn[i]`. None where the likeliest is taken."""
    logits = _penalized(logits, sampling, written)
    if drawn is None or sampling.greedy:
        best, token = logits.max(1)
        _reject_none(best)
        return token
    reached = _scores(logits, sampling).exp().cumsum(1, dtype=torch.float64)  # (N, V)
    total = reached[:, -1:]
    _reject_none(total)
    # At most 1 − 2⁻⁵³ is drawn, and that times the total is rounded to less than the total: to a token that can be.
    return torch.searchsorted(reached, drawn[:, None] * total, right=True)[:, 0]


def probabilities(logits: Tensor, *, written: Tensor | None = None, **settings: Unpack[Settings]) -> Tensor:
    """The probability (N, V) with which `choose` takes each token."""
    sampling = Sampling(**settings)
    if sampling.greedy:
        token = draw(logits, sampling, None, written)
        return torch.nn.functional.one_hot(token, logits.shape[1]).to(logits.dtype)
    return _scores(_penalized(logits, sampling, written), sampling).softmax(1)


def _penalized(logits: Tensor, sampling: Sampling, written: Tensor | None) -> Tensor:
    """The logits, of at least 32 bits, with the repetition penalty."""
    logits = logits if logits.dtype == torch.float64 else logits.float()
    r = sampling.repetition_penalty
    if written is None or r == 1:
        return logits
    return torch.where(written, torch.where(logits < 0, logits * r, logits / r), logits)


def _scores(logits: Tensor, sampling: Sampling) -> Tensor:
    """(z − max z) / t, (N, V), and −∞ where a token is left out."""
    # The largest becomes 0 before it is divided, so that a small temperature gives −∞ and never ∞ − ∞.
    z = logits - logits.amax(1, keepdim=True)
    if sampling.temperature != 1:
        z = z / max(sampling.temperature, torch.finfo(z.dtype).tiny)
    if 0 < sampling.top_k < z.shape[1]:
        last = z.topk(sampling.top_k, dim=1).values[:, -1:]  # (N, 1)
        z = z.masked_fill(z < last, -math.inf)
    if sampling.top_p < 1:
        z = _nucleus(z, sampling.top_p)
    if sampling.min_p > 0:
        z = z.masked_fill(z < math.log(sampling.min_p), -math.inf)  # the likeliest has 0
    return z


def _nucleus(z: Tensor, top_p: float) -> Tensor:
    """z (N, V) with −∞ outside the smallest set of likeliest tokens that holds the probability `top_p`."""
    whole = z.exp().sum(1, keepdim=True, dtype=torch.float64)  # (N, 1)
    for count in (FEW, z.shape[1]):
        ranked = z.topk(min(count, z.shape[1]), dim=1).values  # (N, count), the largest first
        p = ranked.exp() / whole
        before = p.cumsum(1) - p
        kept = before < top_p  # what stands before it is not enough yet; the first always stays
        if count >= z.shape[1] or not kept[:, -1].any():
            break
    size = kept.sum(1, keepdim=True).clamp(min=1)  # (N, 1); of NaN nothing is kept, and `draw` rejects it
    last = ranked.gather(1, size - 1)  # (N, 1)
    left_out = z < last
    surplus = z.shape[1] - left_out.sum(1, keepdim=True) - size  # (N, 1), tokens as likely as the last, beyond the set
    if surplus.any():  # of these the smaller ids fill the set up
        equal = z == last
        left_out |= equal & (equal.cumsum(1) > equal.sum(1, keepdim=True) - surplus)
    return z.masked_fill(left_out, -math.inf)


def _reject_none(numbers: Tensor) -> None:
    """Raise ModelError where one of the numbers is not finite."""
    if not math.isfinite((numbers if numbers.numel() == 1 else numbers.sum()).item()):
        raise ModelError("No token can be drawn: the model's outputs are not finite, or every token is forbidden.")
