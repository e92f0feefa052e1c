"""Learning-rate schedules: the factor on the base rate as a function of training progress.

Progress t is in [0, 1], so that a schedule means the same for epochs and for a time budget.
"""

from __future__ import annotations

import math

from .config import TrainSettings


def lr_factor(settings: TrainSettings, t: float, steps: int) -> float:
    """Return the factor on the learning rate at progress `t` of a training with `steps` updates.

    constant       1
    step           gamma^(milestones passed); K. He et al. 2015 drop to 0.1 at 1/2 and 3/4
    cosine         ½ (1 + cos π t); I. Loshchilov, F. Hutter, SGDR, 2017, <https://arxiv.org/abs/1608.03983>
    warmup-cosine  a linear rise over the fraction `warmup`, then the cosine
    noam           min(s/w, √(w/s)) at update s of w warm-up updates: A. Vaswani et al. 2017, eq. 3, with its peak at 1
    one-cycle      a cosine from 1/25 up over the fraction 0.3, then down to 1/250 000; L. Smith, N. Topin, 2018,
                   <https://arxiv.org/abs/1708.07120>
    wsd            a linear rise, 1, then a linear fall to 0 over the fraction `decay`; S. Hu et al., MiniCPM, 2024,
                   <https://arxiv.org/abs/2404.06395>
    linear         1 − t, at least 1/10 000, as in the code of T. Mikolov et al., word2vec, 2013
    """
    t = min(max(t, 0.0), 1.0)
    name = settings.schedule
    if name == "constant":
        return 1.0
    if name == "step":
        return settings.gamma ** sum(t >= m for m in settings.milestones)
    if name == "linear":
        return max(1.0 - t, 1e-4)
    if name == "cosine":
        return _cosine(t)
    if name == "one-cycle":
        return _one_cycle(t)
    if name == "noam":
        s, w = t * steps + 1, max(1.0, settings.warmup * steps)
        return min(s / w, math.sqrt(w / s))
    # A linear rise does not start at 0, where the first update would have no effect.
    rise = min(1.0, (t * steps + 1) / (settings.warmup * steps)) if settings.warmup * steps >= 1 else 1.0
    if name == "warmup-cosine":
        rest = max(1.0 - settings.warmup, 1e-12)
        return rise if t < settings.warmup else _cosine((t - settings.warmup) / rest)
    return min(rise, (1.0 - t) / settings.decay) if settings.decay else rise  # wsd


def _cosine(t: float) -> float:
    return 0.5 * (1.0 + math.cos(math.pi * t))


def _one_cycle(t: float, peak: float = 0.3, first: float = 1 / 25, last: float = 1 / 250_000) -> float:
    if t < peak:
        return first + (1.0 - first) * (1.0 - _cosine(t / peak))
    return last + (1.0 - last) * _cosine((t - peak) / (1.0 - peak))
