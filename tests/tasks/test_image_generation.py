"""Images out of noise: losses and bits by hand, the Fréchet distance beside SciPy's square root of a matrix."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm

from cutaway.core.spec import Image, ImageSpec, Noise, from_json, to_json
from cutaway.tasks.image_generation import Denoising, LikelihoodBound, frechet_distance
from cutaway.tasks.task import task_for


@pytest.mark.parametrize("kind", [Image, Noise])
def test_a_target_goes_through_json(kind: type[Image | Noise]) -> None:
    spec = ImageSpec(1, 8, 8, kind(("a", "b"), 64))
    assert from_json(to_json(spec)) == spec
    assert task_for(spec).name == "image generation"
    assert not spec.target.classes, "classes are a condition, and not the answer"


def test_the_loss_of_noise_is_the_mean_squared_error() -> None:
    task = Denoising(Noise(size=12))
    told, noise = torch.randn(2, 5, 3, 2, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = (told - noise).square().mean()
    torch.testing.assert_close(task.loss(told, noise) / task.loss_denominator(noise), expected)
    kept = task.summarize_outputs(told, noise)
    assert task.metrics(kept, task.summarize_target(noise))["loss"].value == pytest.approx(expected.item())
    assert task.summarize_target(noise).numel() == 0


def test_a_bound_in_nats_is_one_in_bits() -> None:
    task = LikelihoodBound(Image(size=10))
    terms = torch.tensor([[5.0, 1.0], [7.0, 3.0]])
    found = task.metrics(terms, torch.zeros(2))
    assert found["loss"].value == 8
    assert found["bits_per_dimension"].value == pytest.approx(8 / math.log(2) / 10)
    assert (found["reconstruction"].value, found["kl"].value) == (6, 2)
    assert task.loss(terms, torch.zeros(2)) / task.loss_denominator(terms) == 8
    assert task.baseline(terms, terms)["value"] == pytest.approx(10 * math.log(256))


def test_the_frechet_distance_is_that_of_scipys_square_root() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(200, 6)) @ rng.normal(size=(6, 6)), rng.normal(size=(150, 6)) + 0.5
    c1, c2 = np.cov(a.T), np.cov(b.T)
    expected = ((a.mean(0) - b.mean(0)) ** 2).sum() + np.trace(c1 + c2 - 2 * np.real(sqrtm(c1 @ c2)))
    first, second = torch.from_numpy(a), torch.from_numpy(b)
    assert frechet_distance(first, second) == pytest.approx(expected, rel=1e-9)
    assert frechet_distance(second, first) == pytest.approx(expected, rel=1e-9)
    assert frechet_distance(first, first) == pytest.approx(0, abs=1e-9)
