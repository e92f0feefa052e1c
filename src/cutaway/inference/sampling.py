"""Sampling of the next token: temperature, top-k, top-p, min-p and repetition penalty.

p_i = exp(z_i / t) / Σ_j exp(z_j / t)

The settings are applied in this order, as in transformers:

1. repetition penalty r: the logit z of a token that already occurs becomes z / r where z > 0, and z · r where z < 0, so
   that r > 1 makes it less likely in both cases (N. Keskar et al., CTRL, 2019, section 4.1,
   <https://arxiv.org/abs/1909.05858>, divide by r for any sign);
2. temperature t;
3. top-k: the k likeliest tokens, and those that are as likely as the last of them (A. Fan et al., Hierarchical neural
   story generation, 2018, <https://arxiv.org/abs/1805.04833>);
4. top-p: of these, with renormalized probabilities, the smallest set of likeliest tokens with a total probability of at
   least p (A. Holtzman et al., The curious case of neural text degeneration, 2019,
   <https://arxiv.org/abs/1904.09751>);
5. min-p: of these, the tokens with at least m times the probability of the likeliest (M. Nguyen et al., 2024,
   <https://arxiv.org/abs/2407.01082>).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypedDict, Unpack

import torch
from torch import Tensor

from ..core.errors import ModelError, SettingError, check_value

FEW = 256  # likeliest tokens among which a nucleus is searched first: sorting the whole vocabulary takes far longer


class Settings(TypedDict, total=False):
    """Type of a dictionary with fields of `Sampling`, all optional, for functions that pass them on.

    Example:
        >>> settings: Settings = {"temperature": 0.8, "top_k": 40}
        >>> Sampling(**settings).top_k
        40
    """

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float


@dataclass(frozen=True)
class Sampling:
    """Sampling settings. The defaults sample from the model's own distribution.

    Args:
        temperature: Divides the logits: below 1 likely tokens become likelier, 0 always takes the likeliest.
        top_k: Number of likeliest tokens to sample from, and those that are as likely as the last of them; 0 keeps all
            tokens, 1 always takes the likeliest.
        top_p: Sample from the smallest set of likeliest tokens with at least this total probability; 1 keeps all.
        min_p: Sample from the tokens with at least this fraction of the largest probability; 0 keeps all.
        repetition_penalty: Above 1, tokens that already occur become less likely; 1 changes nothing.

    Raises:
        SettingError: If a value is not allowed. The message names the setting.

    Example:
        >>> Sampling(temperature=0.7, top_p=0.9).greedy
        False
        >>> Sampling(temperature=0).greedy
        True
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        def reject(ok: bool, name: str, allowed: str) -> None:
            check_value(ok, name, getattr(self, name), allowed, SettingError)

        t, r = self.temperature, self.repetition_penalty
        reject(math.isfinite(t) and t >= 0, "temperature", "a finite number, at least 0")
        reject(self.top_k >= 0, "top_k", "at least 0; 0 keeps all tokens")
        reject(0 < self.top_p <= 1, "top_p", "above 0 and at most 1")
        reject(0 <= self.min_p <= 1, "min_p", "at least 0 and at most 1; 0 keeps all tokens")
        reject(math.isfinite(r) and r > 0, "repetition_penalty", "a number above 0; 1 is no penalty")

    @property
    def greedy(self) -> bool:
        """True if the likeliest token is always taken, for which no random number is needed."""
        return self.temperature == 0 or self.top_k == 1


def choose(
    logits: Tensor,
    *,
    written: Tensor | None = None,
    generator: torch.Generator | None = None,
    **settings: Unpack[Settings],
) -> Tensor:
    """Sample a token for each row of logits.

    Of equally likely tokens the one with the smallest id counts as the likeliest. One random number is drawn per row;
    none if the likeliest token is always taken.

    Args:
        logits: Logits, shape (N, V). −∞ forbids a token.
        written: True for tokens that already occur, shape (N, V), bool, for the repetition penalty; None for none.
        generator: Random number generator, possibly on another device; None for the default one of the logits' device.
        **settings: Fields of `Sampling`, such as `temperature=0.8`.

    Returns:
        Token ids, shape (N,), int64.

    Raises:
        SettingError: If a setting is invalid.
        ModelError: If a row has NaN or forbids every token.

    Example:
        >>> logits = torch.tensor([[2.0, 1.0, -torch.inf], [0.0, 3.0, 1.0]])
        >>> choose(logits, temperature=0)
        tensor([0, 1])
        >>> drawn = choose(logits.repeat(500, 1), generator=torch.Generator().manual_seed(0), top_k=2)
        >>> sorted(set(drawn[::2].tolist())), sorted(set(drawn[1::2].tolist()))
        ([0, 1], [1, 2])
    """
    sampling = Sampling(**settings)
    drawn = None if sampling.greedy else uniform(len(logits), generator, logits.device)
    return draw(logits, sampling, drawn, written)


def uniform(count: int, generator: torch.Generator | None, device: torch.device | str) -> Tensor:
    """Draw uniform random numbers in [0, 1) with the generator on its own device, and move them to `device`.

    Args:
        count: Number of values.
        generator: Random number generator, or None for the default one.
        device: Device of the result.

    Returns:
        The numbers, shape (count,), float64.
    """
    home = generator.device if generator is not None else device
    return torch.rand(count, dtype=torch.float64, device=home, generator=generator).to(device)


def draw(logits: Tensor, sampling: Sampling, drawn: Tensor | None, written: Tensor | None = None) -> Tensor:
    """Choose a token for each row of logits with given random numbers.

    Row i takes the first token whose cumulative probability, in the order of ids, exceeds `drawn[i]`.

    Args:
        logits: Logits, shape (N, V). −∞ forbids a token.
        sampling: The sampling settings.
        drawn: Random numbers in [0, 1), shape (N,), float64, on the device of the logits; None to take the likeliest
            token.
        written: True for tokens that already occur, shape (N, V), bool, for the repetition penalty; None for none.

    Returns:
        Token ids, shape (N,), int64.

    Raises:
        ModelError: If a row has NaN or forbids every token.

    Example:
        >>> logits = torch.tensor([[0.25, 0.25, 0.5]]).log().repeat(4, 1)
        >>> draw(logits, Sampling(), torch.tensor([0.1, 0.3, 0.6, 0.9], dtype=torch.float64))
        tensor([0, 1, 2, 2])
    """
    logits = _penalized(logits, sampling, written)
    if drawn is None or sampling.greedy:
        best, token = logits.max(1)
        _reject_none(best)
        return token
    reached = _scores(logits, sampling).exp().cumsum(1, dtype=torch.float64)  # (N, V)
    total = reached[:, -1:]
    _reject_none(total)
    # The largest number is 1 − 2⁻⁵³. Its product with the total rounds to less than the total: to a possible token.
    return torch.searchsorted(reached, drawn[:, None] * total, right=True)[:, 0]


def probabilities(logits: Tensor, *, written: Tensor | None = None, **settings: Unpack[Settings]) -> Tensor:
    """Return the probability with which `choose` takes each token.

    Args:
        logits: Logits, shape (N, V). −∞ forbids a token.
        written: True for tokens that already occur, shape (N, V), bool, for the repetition penalty; None for none.
        **settings: Fields of `Sampling`, such as `top_p=0.9`.

    Returns:
        Probabilities, shape (N, V). Each row sums to 1, or is NaN if it has NaN or forbids every token.

    Raises:
        SettingError: If a setting is invalid.
        ModelError: If the likeliest token is always taken, and a row has NaN or forbids every token.

    Example:
        >>> logits = torch.tensor([[0.5, 0.3, 0.2]]).log()
        >>> probabilities(logits, top_k=2)
        tensor([[0.6250, 0.3750, 0.0000]])
        >>> probabilities(logits, temperature=0)
        tensor([[1., 0., 0.]])
    """
    sampling = Sampling(**settings)
    if sampling.greedy:
        token = draw(logits, sampling, None, written)
        return torch.nn.functional.one_hot(token, logits.shape[1]).to(logits.dtype)
    return _scores(_penalized(logits, sampling, written), sampling).softmax(1)


def _penalized(logits: Tensor, sampling: Sampling, written: Tensor | None) -> Tensor:
    """Apply the repetition penalty, in at least 32 bits."""
    logits = logits if logits.dtype == torch.float64 else logits.float()
    r = sampling.repetition_penalty
    if written is None or r == 1:
        return logits
    return torch.where(written, torch.where(logits < 0, logits * r, logits / r), logits)


def _scores(logits: Tensor, sampling: Sampling) -> Tensor:
    """Return (z − max z) / t, (N, V), and −∞ for excluded tokens."""
    # The largest logit becomes 0 before the division, so that a small temperature gives −∞ and never ∞ − ∞.
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
    """Set z (N, V) to −∞ outside the smallest set of likeliest tokens with a total probability of `top_p`."""
    whole = z.exp().sum(1, keepdim=True, dtype=torch.float64)  # (N, 1)
    for count in (FEW, z.shape[1]):
        ranked = z.topk(min(count, z.shape[1]), dim=1).values  # (N, count), the largest first
        p = ranked.exp() / whole
        before = p.cumsum(1) - p
        kept = before < top_p  # the tokens before it do not suffice; the first is always kept
        if count >= z.shape[1] or not kept[:, -1].any():
            break
    size = kept.sum(1, keepdim=True).clamp(min=1)  # (N, 1); of NaN nothing is kept, which `draw` rejects
    last = ranked.gather(1, size - 1)  # (N, 1)
    left_out = z < last
    surplus = z.shape[1] - left_out.sum(1, keepdim=True) - size  # (N, 1), tokens as likely as the last, beyond the set
    if surplus.any():  # of these, the smaller ids complete the set
        equal = z == last
        left_out |= equal & (equal.cumsum(1) > equal.sum(1, keepdim=True) - surplus)
    return z.masked_fill(left_out, -math.inf)


def _reject_none(numbers: Tensor) -> None:
    """Raise ModelError if a number is not finite."""
    if not math.isfinite((numbers if numbers.numel() == 1 else numbers.sum()).item()):
        raise ModelError("No token can be sampled: the model's outputs are not finite, or all tokens are masked.")
