"""The variational auto-encoder: probabilistic PCA as its linear case, counts, shapes, rejections."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from cutaway import create_model
from cutaway.core.errors import ModelError
from cutaway.core.spec import Image, ImageSpec
from cutaway.inspect.example_inputs import example_shape
from cutaway.inspect.layers import layer_table
from cutaway.models.registry import presets
from cutaway.models.vae import CARD, VAE, Config

from .contract import assert_keeps_the_contract

SMALL = Config(sides=(8, 8), widths=(4, 6), hidden_dim=12, latent_dim=3)
COMPONENTS = 5


def test_it_is_opened_with_images_of_its_own_size() -> None:
    assert example_shape(presets()["vae"], Config(sides=(16, 8))) == (1, 16, 8)


def test_counts_are_those_of_the_card() -> None:
    held = CARD.published["vae"]
    layers = layer_table(create_model("vae"), torch.zeros(1, *held.at))
    assert (layers.parameters, layers.multiply_adds, layers.complete) == (held.parameters, held.multiply_adds, True)


def test_it_keeps_the_contract() -> None:
    torch.manual_seed(0)
    assert_keeps_the_contract(VAE(SMALL), torch.rand(5, 1, 8, 8) * 2 - 1, 2)


def linear() -> tuple[VAE, torch.Tensor, PCA]:
    """A linear VAE whose weights are those of probabilistic PCA in closed form (M. E. Tipping, C. M. Bishop, 1999)."""
    x = load_digits().data / 8 - 1
    pca = PCA(COMPONENTS).fit(x)
    n = len(x)
    noise = pca.noise_variance_ * (n - 1) / n  # the maximum of the likelihood divides by n
    values = pca.explained_variance_ * (n - 1) / n
    directions = torch.from_numpy(pca.components_.T)  # (64, components)
    gain = torch.from_numpy(np.sqrt(values - noise))
    mean = torch.from_numpy(pca.mean_)
    model = VAE(Config(sides=(8, 8), widths=(), hidden_dim=0, latent_dim=COMPONENTS, levels=0)).double()
    with torch.no_grad():
        w = directions * gain  # W, with Wᵀ W diagonal
        posterior = w.T / torch.from_numpy(values)[:, None]  # M⁻¹ Wᵀ, M = Wᵀ W + σ² I
        model.code.weight[:COMPONENTS] = posterior
        model.code.bias[:COMPONENTS] = -posterior @ mean
        model.code.weight[COMPONENTS:] = 0
        model.code.bias[COMPONENTS:] = torch.from_numpy(np.log(noise / values))
        maps = model.get_submodule("decoder.maps")
        assert isinstance(maps, torch.nn.Linear)
        maps.weight.copy_(w)
        maps.bias.copy_(mean)
        model.log_var.fill_(math.log(noise))
    pca.noise_variance_, pca.explained_variance_ = noise, values
    return model, torch.from_numpy(x).view(-1, 1, 8, 8), pca


def exact(model: VAE, x: torch.Tensor) -> torch.Tensor:
    """−ELBO of a linear VAE, its mean over z in closed form: at the mean, and half the trace of what z adds."""
    terms = model(x)
    maps = model.get_submodule("decoder.maps")
    assert isinstance(maps, torch.nn.Linear)
    spread = model.encode(x)[1].exp() @ maps.weight.square().sum(0)
    return terms.sum(1) + 0.5 * spread / model.log_var.exp()


def test_a_linear_vae_at_its_optimum_is_probabilistic_pca() -> None:
    model, x, pca = linear()
    elbo = -exact(model, x)
    expected = pca.score_samples(x.flatten(1).numpy())
    np.testing.assert_allclose(elbo.detach().numpy(), expected, rtol=1e-9)  # the bound is tight for every image
    assert -elbo.mean().item() == pytest.approx(-pca.score(x.flatten(1).numpy()), rel=1e-9)


def test_nothing_is_better_than_probabilistic_pca() -> None:
    model, x, _ = linear()
    exact(model, x).mean().backward()
    for name, parameter in model.named_parameters():
        if name == "code.weight":  # the optimum has the same variance for every image; its gradient vanishes too
            assert parameter.grad is not None
        assert parameter.grad is not None
        assert parameter.grad.abs().max() < 1e-8, name


def test_draws_of_z_estimate_the_exact_bound() -> None:
    model, x, _ = linear()
    noise = torch.randn(300, *x[:1].shape[1:], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    one = x[:1].expand(300, -1, -1, -1)
    found = model(one, noise).sum(1)
    error = found.std() / math.sqrt(300)
    assert abs(found.mean() - exact(model, x[:1])[0]) < 5 * error


def test_a_config_fits_a_data_set() -> None:
    fitted = Config.for_spec(Config(), ImageSpec(3, 32, 20, Image(size=1920)))
    assert (fitted.in_channels, fitted.sides, fitted.size) == (3, (32, 20), 1920)
    assert VAE(fitted).draw(torch.randn(2, 3, 32, 20)).shape == (2, 3, 32, 20)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sides": (8, 9)}, r"Invalid sides=\(8, 9\): must be multiples of 4"),
        ({"latent_dim": 65}, "Invalid latent_dim=65: must be at most the 64 numbers"),
        ({"levels": 1}, "Invalid levels=1"),
    ],
)
def test_invalid_settings_are_rejected_by_name(changes: dict[str, int], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        VAE(dataclasses.replace(SMALL, **changes))  # type: ignore[arg-type]  # sizes


def test_images_of_another_size_are_rejected() -> None:
    with pytest.raises(ModelError, match=r"takes images of shape \(1, 8, 8\), and these are \(1, 12, 8\)"):
        VAE(SMALL)(torch.zeros(1, 1, 12, 8))
