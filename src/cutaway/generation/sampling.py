"""The next token, drawn from a model's outputs: temperature, the k likeliest, the nucleus.

p_i = exp(z_i / t) / Σ_j exp(z_j / t)

of the k likeliest tokens (A. Fan et al., Hierarchical neural story generation, 2018, https://arxiv.org/abs/1805.04833);
of the smallest set of likeliest tokens that holds at least the probability p (A. Holtzman et al., The curious case of
neural text degeneration, 2019, https://arxiv.org/abs/1904.09751). With both, the nucleus is taken of the k likeliest,
whose probabilities then add up to 1.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import ModelError, SettingError, require


def choose(
    logits: Tensor,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """A token for each row of `logits` (N, V): (N,) int64. A logit of −∞ forbids its token.

    A temperature of 0 takes the likeliest, as top_k=1 does; top_k of 0 and top_p of 1 leave nothing out. Of equally
    likely tokens those with the smaller ids come first. One number is drawn for each row, by `generator`, which may
    stand on another device. Raises SettingError for settings that cannot be, ModelError where a row holds NaN or
    forbids every token.
    """
    check(temperature, top_k, top_p)
    best = logits.amax(1, keepdim=True)
    if not torch.isfinite(best).all():
        raise ModelError("No token can be drawn: the model's outputs are not finite, or every token is forbidden.")
    if temperature == 0 or top_k == 1:
        return logits.argmax(1)
    # The largest becomes 0 before it is divided, so that a small temperature gives −∞ and never ∞ − ∞.
    ranked, order = ((logits - best).double() / temperature).sort(dim=1, descending=True, stable=True)  # (N, V)
    if top_k:
        ranked, order = ranked[:, :top_k], order[:, :top_k]
    p = ranked.softmax(1)
    reached = p.cumsum(1)
    if top_p < 1:
        p = p.masked_fill(reached - p >= top_p, 0)  # what stands before it is enough already; the first always stays
        reached = p.cumsum(1)
    home = generator.device if generator is not None else logits.device
    drawn = torch.rand(len(p), 1, dtype=torch.float64, device=home, generator=generator).to(p.device) * reached[:, -1:]
    place = (reached <= drawn).sum(1, keepdim=True)
    likely = (p > 0).sum(1, keepdim=True)  # they stand first; rounding could lead behind them
    return order.gather(1, place.minimum(likely - 1))[:, 0]


def check(temperature: float, top_k: int, top_p: float) -> None:
    """Raise SettingError for settings that cannot be."""
    ok = math.isfinite(temperature) and temperature >= 0
    require(ok, "temperature", temperature, "a number that is at least 0", SettingError)
    require(top_k >= 0, "top_k", top_k, "at least 0, and 0 leaves no token out", SettingError)
    require(0 < top_p <= 1, "top_p", top_p, "above 0 and at most 1", SettingError)
