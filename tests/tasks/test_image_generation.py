"""Images out of noise: losses and bits by hand, the Fréchet distance beside SciPy's square root of a matrix."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm

from cutaway.core.spec import Image, ImageSpec, ImageTokens, Noise, from_json, to_json
from cutaway.tasks.image_generation import Denoising, LikelihoodBound, TokenLikelihood, frechet_distance
from cutaway.tasks.task import task_for


@pytest.mark.parametrize("kind", [Image, Noise, ImageTokens])
def test_a_target_goes_through_json(kind: type[Image | Noise | ImageTokens]) -> None:
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


def test_the_likelihood_of_tokens_is_that_of_the_pixels_one_after_another() -> None:
    task = TokenLikelihood(ImageTokens(size=6, cells=(1, 4)), (3, 1, 2))  # 2 pixels of 3 channels
    logits = torch.tensor([[[0.0, 1.0], [2.0, 0.0]], [[1.0, 1.0], [0.0, 3.0]]])
    target = torch.tensor([[1, 0], [0, 0]])
    p = [[1 / (1 + math.exp(-1)), 1 / (1 + math.exp(-2))], [0.5, 1 / (1 + math.exp(3))]]
    nats = [-sum(map(math.log, of)) for of in p]
    assert task.loss(logits, target).item() / task.loss_denominator(target) == pytest.approx(sum(nats) / 4)
    kept = task.summarize_outputs(logits, target)
    found = task.metrics(kept, target)
    assert found["loss"].value == pytest.approx(sum(nats) / 4)
    assert found["bits_per_token"].value == pytest.approx(sum(nats) / 4 / math.log(2))
    bits = [(nats[0] + math.log(4)) / 6 / math.log(2), nats[1] / 6 / math.log(2)]
    assert found["bits_per_dimension"].value == pytest.approx(sum(bits) / 2)
    assert found["accuracy"].value == pytest.approx(0.75)
    assert [row["bits_per_dimension"] for row in task.predictions(kept)] == pytest.approx(bits)
    assert task.fast_metrics(kept, target)["bits_per_dimension"] == pytest.approx(sum(bits) / 2)


def test_the_baseline_of_tokens_is_a_histogram_of_each_pixel() -> None:
    task = TokenLikelihood(ImageTokens(size=2, cells=(1, 4)), (1, 1, 2))
    train = torch.tensor([[0, 1], [0, 1], [0, 0]])
    found = task.baseline(train, torch.tensor([[0, 1]]))
    value = (-math.log2(4 / 5) - math.log2(3 / 5) + math.log2(4)) / 2
    assert found == {"name": "independent-pixel histogram baseline", "value": pytest.approx(value)}
