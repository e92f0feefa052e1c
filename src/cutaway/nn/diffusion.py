"""Diffusion models: the forward noising process, samplers, and the variational bound.

J. Ho, A. Jain, P. Abbeel, Denoising diffusion probabilistic models, 2020, <https://arxiv.org/abs/2006.11239>;
J. Song, C. Meng, S. Ermon, Denoising diffusion implicit models, 2020, <https://arxiv.org/abs/2010.02502>;
A. Nichol, P. Dhariwal, Improved denoising diffusion probabilistic models, 2021, <https://arxiv.org/abs/2102.09672>.

With α_t = 1 − β_t and ᾱ_t = α_0 α_1 … α_t (timesteps count from 0 to T − 1 here, from 1 to T in the papers; ᾱ₋₁ = 1):

    q(x_t | x_{t−1})      = N(√α_t x_{t−1}, β_t I)
    q(x_t | x_0)          = N(√ᾱ_t x_0, (1 − ᾱ_t) I)                                            (4)
    q(x_{t−1} | x_t, x_0) = N(μ̃_t, β̃_t I)                                                     (6, 7)
        μ̃_t = √ᾱ_{t−1} β_t / (1 − ᾱ_t) x_0 + √α_t (1 − ᾱ_{t−1}) / (1 − ᾱ_t) x_t
        β̃_t = (1 − ᾱ_{t−1}) / (1 − ᾱ_t) β_t
    x̂_0                   = (x_t − √(1 − ᾱ_t) ε_θ(x_t, t)) / √ᾱ_t

All functions are pure. They take a network as `predict(x, t)`, which maps images x_t (N, …) and timesteps (N,) int64 to
their noise ε_θ (N, …). Schedules are float64, (T,).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .losses import HIGHEST, LOWEST, discretized_normal_log_prob, normal_kl

Predict = Callable[[Tensor, Tensor], Tensor]
Draw = Callable[[Tensor], Tensor]
Watch = Callable[[int, Tensor, Tensor], None]
FIRST, LAST = 1e-4, 0.02  # β of the linear schedule
OFFSET, MOST = 0.008, 0.999  # of the cosine schedule


def linear_betas(steps: int, first: float = FIRST, last: float = LAST) -> Tensor:
    """Return β_t from `first` to `last` in equal steps (Ho et al., section 4), (T,)."""
    return torch.linspace(first, last, steps, dtype=torch.float64)


def cosine_betas(steps: int) -> Tensor:
    """Return the cosine schedule of Nichol and Dhariwal, equation 17, (T,).

    β_t = min(1 − f(t + 1)/f(t), 0.999), f(t) = cos²((t/T + s)/(1 + s) · π/2), s = 0.008. ᾱ falls nearly linearly. With
    the linear schedule, small images are pure noise long before the end.
    """
    t = torch.arange(steps + 1, dtype=torch.float64) / steps
    f = ((t + OFFSET) / (1 + OFFSET) * math.pi / 2).cos().square()
    return (1 - f[1:] / f[:-1]).clamp(max=MOST)


SCHEDULES: dict[str, Callable[[int], Tensor]] = {"linear": linear_betas, "cosine": cosine_betas}


def cumulative_alphas(betas: Tensor) -> Tensor:
    """Return ᾱ_t of each timestep, (T,): the fraction of the variance that comes from the image."""
    return (1 - betas).cumprod(0)


def add_noise(x0: Tensor, signal: Tensor | float, noise: Tensor) -> Tensor:
    """Sample q(x_t | x_0): √ᾱ_t x_0 + √(1 − ᾱ_t) ε, equation 4. `signal` is ᾱ_t and broadcasts to x0."""
    signal = torch.as_tensor(signal, dtype=x0.dtype, device=x0.device)
    return signal.sqrt() * x0 + (1 - signal).sqrt() * noise


def posterior(x0: Tensor, xt: Tensor, signal: Tensor | float, before: Tensor | float) -> tuple[Tensor, Tensor]:
    """Return mean and variance of q(x_s | x_t, x_0), equations 6 and 7.

    `signal` is ᾱ_t. `before` is ᾱ_s of an earlier timestep s, not necessarily the one before t: the timesteps in
    between count as one step with α = ᾱ_t / ᾱ_s.
    """
    signal, before = (torch.as_tensor(part, dtype=x0.dtype, device=x0.device) for part in (signal, before))
    alpha = signal / before
    mean = before.sqrt() * (1 - alpha) / (1 - signal) * x0 + alpha.sqrt() * (1 - before) / (1 - signal) * xt
    return mean, (1 - before) / (1 - signal) * (1 - alpha)


def predict_x0(xt: Tensor, noise: Tensor, signal: Tensor | float) -> Tensor:
    """Return x̂_0, the image that gives x_t with the given `noise`; `signal` is ᾱ_t."""
    signal = torch.as_tensor(signal, dtype=xt.dtype, device=xt.device)
    return (xt - (1 - signal).sqrt() * noise) / signal.sqrt()


def ddim_step(
    xt: Tensor,
    start: Tensor,
    signal: float,
    before: float,
    eta: float = 0.0,
    noise: Tensor | None = None,
) -> Tensor:
    """Return x_s from x_t and the predicted x̂_0 = `start` (Song et al., equations 12 and 16).

        x_s = √ᾱ_s x̂_0 + √(1 − ᾱ_s − σ²) ε̂ + σ z,   σ² = η² (1 − ᾱ_s)/(1 − ᾱ_t) (1 − ᾱ_t/ᾱ_s)

    `signal` is ᾱ_t and `before` is ᾱ_s, as in `posterior`. ε̂ is the noise in x_t given x̂_0. η = 0 is deterministic
    (DDIM). η = 1 is ancestral sampling from the posterior (DDPM, with σ² = β̃_t). For η > 0 `noise` z is required.
    """
    error = (xt - math.sqrt(signal) * start) / math.sqrt(1 - signal)
    variance = eta**2 * (1 - before) / (1 - signal) * (1 - signal / before)
    xs = math.sqrt(before) * start + math.sqrt(max(0.0, 1 - before - variance)) * error
    if not variance:
        return xs
    assert noise is not None, "sampling with eta needs noise"
    return xs + math.sqrt(variance) * noise


def ignore_step(t: int, xt: Tensor, start: Tensor) -> None:
    """Ignore the intermediate results of `sample`: the default of its `watch`."""


def sampling_timesteps(total: int, steps: int) -> list[int]:
    """Return `steps` of the timesteps T − 1 … 0, evenly spaced, with both ends; a single step is T − 1."""
    if steps == 1:
        return [total - 1]
    return [round((total - 1) * (1 - k / (steps - 1))) for k in range(steps)]


def sample(
    predict: Predict,
    noise: Tensor,
    signal: Tensor,
    times: Sequence[int],
    eta: float = 0.0,
    draw: Draw = torch.randn_like,
    *,
    clip: bool = True,
    watch: Watch = ignore_step,
) -> Tensor:
    """Generate images (N, …) from `noise` x_T (N, …).

    `times` are the falling timesteps, `signal` (T,) is ᾱ. `eta` is 0 for DDIM and 1 for ancestral sampling. `draw`
    returns noise of the shape of its argument. `clip` clips each x̂_0 to the range of images, −1 … 1. `watch` receives
    t, x_t and x̂_0 of each step. Gradients are tracked unless the caller uses `torch.no_grad()`.
    """
    x = noise
    for t, s in zip(times, [*times[1:], -1]):
        now, before = float(signal[t]), float(signal[s]) if s >= 0 else 1.0
        predicted = predict(x, torch.full((len(x),), t, dtype=torch.int64, device=x.device))
        start = predict_x0(x, predicted, now)
        if clip:
            start = start.clamp(LOWEST, HIGHEST)
        watch(t, x, start)
        x = ddim_step(x, start, now, before, eta, draw(x) if eta and s >= 0 else torch.zeros_like(x))
    return x


def classifier_free_guidance(
    predict: Callable[[Tensor, Tensor, Tensor], Tensor], classes: Tensor, no_class: int, scale: float
) -> Predict:
    """Return a noise predictor with classifier-free guidance: ε(x) + scale · (ε(x, c) − ε(x)).

    `predict` is called as `predict(x, t, classes)`. After J. Ho, T. Salimans, Classifier-free diffusion guidance, 2022,
    <https://arxiv.org/abs/2207.12598>, whose w is scale − 1. Scale 0 ignores the classes (N,), scale 1 is the plain
    conditional network, and a scale above 1 strengthens the effect of the class. `no_class` is the index for "no
    class".
    """
    none = torch.full_like(classes, no_class)

    def predicted(x: Tensor, t: Tensor) -> Tensor:
        if scale in (0, 1):
            return predict(x, t, classes if scale else none)
        both = predict(x.repeat(2, *[1] * (x.ndim - 1)), t.repeat(2), torch.cat([none, classes]))  # (2N, …)
        without, given = both.chunk(2)
        return without + scale * (given - without)

    return predicted


def prior_term(x0: Tensor, signal: Tensor) -> Tensor:
    """Return L_T of the variational bound, KL(q(x_T | x_0) ‖ N(0, I)) in nats, (N,).

    It measures the information about the image that remains in the noise.
    """
    last = float(signal[-1])
    zero = torch.zeros((), dtype=x0.dtype, device=x0.device)
    return normal_kl(math.sqrt(last) * x0, zero + math.log1p(-last), zero, zero).flatten(1).sum(1)


def bound_term(predict: Predict, x0: Tensor, t: Tensor, noise: Tensor, signal: Tensor) -> Tensor:
    """Return the term of the variational bound at timesteps t (N,) of images x0 (N, …), in nats, (N,): equation 5.

        L_t = KL(q(x_{t−1} | x_t, x_0) ‖ N(μ̃_t(x_t, x̂_0), β̃_t I)) for t > 0,   L_0 = −ln p(x_0 | x_1)

    x_t is sampled with `noise`. L_0 is the probability of the 256 levels of a pixel. It uses the variance β̃ of the
    next timestep, because its own is 0. The sum of all T terms and of `prior_term` is an upper bound of −ln p(x_0).
    """
    at = (slice(None), *[None] * (x0.ndim - 1))  # (N, 1, …)
    padded = torch.cat([signal.new_ones(1), signal])
    now, before = padded[t.cpu() + 1][at].to(x0), padded[t.cpu()][at].to(x0)
    xt = add_noise(x0, now, noise)
    start = predict_x0(xt, predict(xt, t), now).clamp(LOWEST, HIGHEST)
    mean, variance = posterior(start, xt, now, before)
    expected, _ = posterior(x0, xt, now, before)
    least = float((1 - signal[0]) / (1 - signal[1]) * (1 - signal[1] / signal[0]))  # β̃ of timestep 1
    variance = variance.clamp(min=least)
    kl = (expected - mean).square() / (2 * variance)
    first = -discretized_normal_log_prob(x0, mean, variance.log().expand_as(x0))
    return torch.where((t == 0)[at], first, kl).flatten(1).sum(1)
