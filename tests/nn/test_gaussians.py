"""Normal distributions beside torch.distributions and SciPy, and far out in their tails."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.special import log_ndtr
from torch.distributions import Normal, kl_divergence

from cutaway.nn.losses import discretized_normal_log_prob, log_density, normal_kl


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_divergence_and_density_are_torchs() -> None:
    mean1, log1, mean2, log2 = drawn(4, 50)
    p, q = Normal(mean1, (log1 / 2).exp()), Normal(mean2, (log2 / 2).exp())
    torch.testing.assert_close(normal_kl(mean1, log1, mean2, log2), kl_divergence(p, q))
    torch.testing.assert_close(log_density(mean2, mean1, log1), p.log_prob(mean2))


def test_divergence_is_its_mean_over_draws() -> None:
    mean, log_var = torch.tensor([0.7, -0.4]).double()
    x = mean + (log_var / 2).exp() * drawn(200_000)
    zero = torch.zeros((), dtype=torch.float64)
    ratios = log_density(x, mean, log_var) - log_density(x, zero, zero)
    error = ratios.std() / math.sqrt(len(x))
    assert abs(ratios.mean() - normal_kl(mean, log_var, zero, zero)) < 5 * error


@pytest.mark.parametrize(("mean", "log_var"), [(0.0, 0.0), (0.9, -3.0), (-3.0, -6.0), (0.2, -9.0)])
def test_the_levels_of_a_pixel_have_probability_one_together(mean: float, log_var: float) -> None:
    levels = torch.linspace(-1, 1, 256, dtype=torch.float64)
    logs = discretized_normal_log_prob(levels, torch.tensor(mean).double(), torch.tensor(log_var).double())
    torch.testing.assert_close(logs.exp().sum(), torch.ones((), dtype=torch.float64))


def test_an_unlikely_level_keeps_its_logarithm_and_its_gradient() -> None:
    mean = torch.tensor(-0.9, dtype=torch.float64, requires_grad=True)
    x, log_var = torch.tensor([0.9, math.log(1e-4)], dtype=torch.float64)
    log = discretized_normal_log_prob(x, mean, log_var)  # 180 standard deviations
    near = log_ndtr(-(1.8 - 1 / 255) / 0.01)  # nearly all of it is at the level's nearer edge
    assert abs(log.item() - near) < 1e-9 * abs(near)
    (slope,) = torch.autograd.grad(log, mean)
    assert slope == pytest.approx((1.8 - 1 / 255) / 1e-4, rel=1e-3)


def test_many_levels_are_the_density() -> None:
    x, mean = torch.tensor([0.25, -0.5]).double(), torch.zeros(2, dtype=torch.float64)
    x = (x * 5e5).round() / 5e5  # levels that there are
    width = 2 / (1_000_001 - 1)
    found = discretized_normal_log_prob(x, mean, mean, 1_000_001) - math.log(width)
    torch.testing.assert_close(found, log_density(x, mean, mean), atol=1e-7, rtol=0)


def test_single_precision_is_near_double_precision() -> None:
    levels = torch.linspace(-1, 1, 256)
    for log_var in (0.0, -4.0, -8.0):
        single = discretized_normal_log_prob(levels, torch.tensor(0.3), torch.tensor(log_var))
        double = discretized_normal_log_prob(
            levels.double(), torch.tensor(0.3).double(), torch.tensor(log_var).double()
        )
        torch.testing.assert_close(single.double(), double, rtol=1e-3, atol=1e-3)
