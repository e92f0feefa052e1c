"""Diffusion: closed forms beside their composition step by step, Bayes' theorem, and diffusers' schedulers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from cutaway.nn import diffusion
from cutaway.nn.losses import discretized_normal_log_prob, normal_kl

T = 40
BETAS = diffusion.linear_betas(T, 0.01, 0.3)
SIGNAL = diffusion.cumulative_alphas(BETAS)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture(scope="module")
def diffusers() -> Any:
    from cutaway.verify import OracleMissing
    from cutaway.verify.libraries import diffusers_library

    try:
        return diffusers_library()
    except OracleMissing as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(("ours", "theirs"), [("linear", "linear"), ("cosine", "squaredcos_cap_v2")])
def test_schedules_are_diffusers(diffusers: Any, ours: str, theirs: str) -> None:
    scheduler = diffusers.DDPMScheduler(num_train_timesteps=1000, beta_schedule=theirs)
    betas = diffusion.SCHEDULES[ours](1000)
    torch.testing.assert_close(betas.float(), scheduler.betas, rtol=1e-4, atol=1e-7)  # theirs are float32
    torch.testing.assert_close(
        diffusion.cumulative_alphas(betas).float(), scheduler.alphas_cumprod, rtol=1e-3, atol=1e-7
    )


def test_noise_in_one_step_is_noise_step_by_step() -> None:
    scale, variance = torch.ones((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for beta, signal in zip(BETAS, SIGNAL):
        scale, variance = (1 - beta).sqrt() * scale, (1 - beta) * variance + beta
        torch.testing.assert_close(torch.stack([scale**2, variance]), torch.stack([signal, 1 - signal]))
    x0, noise = drawn(2, 3, 4)
    torch.testing.assert_close(diffusion.add_noise(x0, SIGNAL[9], noise), scale_of(9) * x0 + noise_of(9) * noise)


def scale_of(t: int) -> float:
    return math.sqrt(math.prod(1 - b for b in BETAS[: t + 1].tolist()))


def noise_of(t: int) -> float:
    return math.sqrt(1 - scale_of(t) ** 2)


@pytest.mark.parametrize("t", [1, 5, T - 1])
def test_the_posterior_is_bayes(t: int) -> None:
    x0, xt = 0.3, -0.8
    grid = torch.linspace(-12, 12, 400_001, dtype=torch.float64)  # of x_{t−1}
    prior = Normal(scale_of(t - 1) * x0, noise_of(t - 1)).log_prob(grid)
    beta = BETAS[t].item()
    weights = (prior + Normal(math.sqrt(1 - beta) * grid, math.sqrt(beta)).log_prob(torch.tensor(xt))).softmax(0)
    mean = weights @ grid
    variance = weights @ (grid - mean) ** 2
    given = torch.tensor(x0).double(), torch.tensor(xt).double(), SIGNAL[t], SIGNAL[t - 1]
    found = diffusion.posterior(*given)
    torch.testing.assert_close(torch.stack(found), torch.stack([mean, variance]), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("t", "s"), [(9, 8), (T - 1, 20), (5, 0)])
def test_ddim_with_eta_1_is_a_draw_of_the_posterior(t: int, s: int) -> None:
    start, xt, z = drawn(3, 4, 5)
    mean, variance = diffusion.posterior(start, xt, SIGNAL[t], SIGNAL[s])
    stepped = diffusion.ddim_step(xt, start, SIGNAL[t].item(), SIGNAL[s].item(), 1.0, z)
    torch.testing.assert_close(stepped, mean + variance.sqrt() * z)


def test_ddim_without_noise_stays_on_the_way_from_image_to_noise() -> None:
    start, noise = drawn(2, 4, 5)
    xt = diffusion.add_noise(start, SIGNAL[30], noise)
    stepped = diffusion.ddim_step(xt, start, SIGNAL[30].item(), SIGNAL[7].item())
    torch.testing.assert_close(stepped, diffusion.add_noise(start, SIGNAL[7], noise))


@pytest.mark.parametrize("eta", [0.0, 0.6, 1.0])
def test_a_step_is_that_of_diffusers_ddim(diffusers: Any, eta: float) -> None:
    scheduler = diffusers.DDIMScheduler(num_train_timesteps=1000, set_alpha_to_one=True)
    scheduler.set_timesteps(20)
    signal = scheduler.alphas_cumprod.double()
    scheduler.alphas_cumprod, scheduler.final_alpha_cumprod = signal, signal.new_ones(())
    x, predicted, z = drawn(3, 2, 1, 4, 4)
    for t in (950, 400, 0):
        theirs = scheduler.step(
            predicted, t, x, eta=eta, use_clipped_model_output=True, variance_noise=z if eta else None
        )
        start = diffusion.predict_x0(x, predicted, signal[t]).clamp(-1, 1)
        before = signal[t - 50].item() if t else 1.0
        ours = diffusion.ddim_step(x, start, signal[t].item(), before, eta, z)
        torch.testing.assert_close(start, theirs.pred_original_sample)
        torch.testing.assert_close(ours, theirs.prev_sample)


def test_a_step_is_that_of_diffusers_ddpm(diffusers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = diffusers.DDPMScheduler(num_train_timesteps=1000)
    scheduler.alphas_cumprod, scheduler.one = scheduler.alphas_cumprod.double(), torch.ones((), dtype=torch.float64)
    x, predicted, z = drawn(3, 2, 1, 4, 4)
    module = __import__(type(scheduler).__module__, fromlist=["randn_tensor"])
    monkeypatch.setattr(module, "randn_tensor", lambda *args, **more: z)
    for t in (999, 300, 1):
        now, before = scheduler.alphas_cumprod[t].item(), scheduler.alphas_cumprod[t - 1].item()
        start = diffusion.predict_x0(x, predicted, now).clamp(-1, 1)
        theirs = scheduler.step(predicted, t, x).prev_sample
        torch.testing.assert_close(diffusion.ddim_step(x, start, now, before, 1.0, z), theirs)


def test_timesteps_fall_evenly_from_the_last_to_the_first() -> None:
    assert diffusion.sampling_timesteps(1000, 1000) == list(range(999, -1, -1))
    assert diffusion.sampling_timesteps(10, 4) == [9, 6, 3, 0]
    assert diffusion.sampling_timesteps(10, 1) == [9]


@pytest.mark.parametrize("eta", [0.0, 1.0])
def test_samples_of_the_exact_noise_have_the_distribution_of_the_data(eta: float) -> None:
    """Of normal data the mean noise at each x_t is known, and sampling with it in many steps gives that data back."""
    signal = diffusion.cumulative_alphas(diffusion.linear_betas(1000))
    mean, variance = 0.2, 0.05

    def exact(x: Tensor, t: Tensor) -> Tensor:
        a = signal[t][:, None]
        return (1 - a).sqrt() * (x - a.sqrt() * mean) / (a * variance + 1 - a)

    generator = torch.Generator().manual_seed(1)
    noise = torch.randn(5_000, 1, generator=generator, dtype=torch.float64)

    def draw(x: Tensor) -> Tensor:
        return torch.randn(x.shape, generator=generator, dtype=x.dtype)

    found = diffusion.sample(exact, noise, signal, diffusion.sampling_timesteps(1000, 500), eta, draw, clip=False)
    assert found.mean().item() == pytest.approx(mean, abs=0.02)
    assert found.var().item() == pytest.approx(variance, rel=0.12)


def test_guidance_goes_from_no_class_through_the_class_and_beyond() -> None:
    def predict(x: Tensor, t: Tensor, classes: Tensor) -> Tensor:
        return x * 0 + classes[:, None] * 10.0 + t[:, None]

    x, t, classes = torch.zeros(3, 2), torch.tensor([5, 5, 5]), torch.tensor([0, 1, 2])
    for scale in (0.0, 0.5, 1.0, 3.0):
        found = diffusion.classifier_free_guidance(predict, classes, no_class=4, scale=scale)(x, t)
        torch.testing.assert_close(found[:, 0], 45.0 + scale * (classes * 10.0 - 40))


def test_terms_of_the_bound_are_divergences() -> None:
    x0, noise, told = drawn(3, 4, 2).clamp(-1, 1)

    def predict(x: Tensor, t: Tensor) -> Tensor:
        return told

    for t in (1, 7, T - 1):
        xt = diffusion.add_noise(x0, SIGNAL[t], noise)
        start = diffusion.predict_x0(xt, told, SIGNAL[t]).clamp(-1, 1)
        q, p = (diffusion.posterior(x, xt, SIGNAL[t], SIGNAL[t - 1]) for x in (x0, start))
        expected = kl_divergence(Normal(q[0], q[1].sqrt()), Normal(p[0], p[1].sqrt())).sum(1)
        torch.testing.assert_close(diffusion.bound_term(predict, x0, torch.full((4,), t), noise, SIGNAL), expected)
    xt = diffusion.add_noise(x0, SIGNAL[0], noise)
    mean = diffusion.predict_x0(xt, told, SIGNAL[0]).clamp(-1, 1)  # μ̃ of the first timestep is x̂_0
    variance = diffusion.posterior(x0, xt, SIGNAL[1], SIGNAL[0])[1]
    found = diffusion.bound_term(predict, x0, torch.zeros(4, dtype=torch.int64), noise, SIGNAL)
    torch.testing.assert_close(found, -discretized_normal_log_prob(x0, mean, variance.log()).sum(1))
    zero = torch.zeros((), dtype=torch.float64)
    expected = normal_kl(scale_of(T - 1) * x0, zero + math.log(noise_of(T - 1) ** 2), zero, zero).sum(1)
    torch.testing.assert_close(diffusion.prior_term(x0, SIGNAL), expected)


def test_the_bound_of_normal_data_is_its_closed_form() -> None:
    """Of normal data the mean noise at each x_t is known, and so is what each term comes to on average."""
    variance, total = 0.04, 60
    signal = diffusion.cumulative_alphas(diffusion.linear_betas(total, 1e-3, 0.15))
    x0 = drawn(20_000, 1) * math.sqrt(variance)

    def exact(x: Tensor, t: Tensor) -> Tensor:
        a = signal[t][:, None]
        return (1 - a).sqrt() * x / (a * variance + 1 - a)

    generator = torch.Generator().manual_seed(1)
    terms, expected = [], []
    for t in range(1, total):
        noise = torch.randn(x0.shape, generator=generator, dtype=x0.dtype)
        terms.append(diffusion.bound_term(exact, x0, torch.full((len(x0),), t), noise, signal))
        a, before = signal[t].item(), signal[t - 1].item()
        alpha = a / before
        of_x0 = math.sqrt(before) * (1 - alpha) / (1 - a)
        left = variance * (1 - a) / (a * variance + 1 - a)  # the variance of x_0 given x_t
        expected.append(of_x0**2 * left / (2 * (1 - before) / (1 - a) * (1 - alpha)))
    found = torch.stack(terms).sum(0)
    assert abs(found.mean() - sum(expected)) < 5 * found.std() / math.sqrt(len(x0))
    noise = torch.randn(x0.shape, generator=generator, dtype=x0.dtype)
    levels = x0.mul(127.5).round().div(127.5)
    found = found + diffusion.bound_term(exact, levels, torch.zeros(len(x0), dtype=torch.int64), noise, signal)
    found = found + diffusion.prior_term(x0, signal)
    exactly = -discretized_normal_log_prob(
        levels, torch.zeros((), dtype=torch.float64), torch.tensor(math.log(variance)).double()
    )
    assert found.mean() > exactly.mean(), "it bounds −ln p from above"
