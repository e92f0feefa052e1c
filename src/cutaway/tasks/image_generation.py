"""Image generation: the network learns the distribution of images, so that new ones can be sampled.

Denoising predicts the noise that was added to an image (J. Ho, A. Jain, P. Abbeel, 2020, equation 14,
<https://arxiv.org/abs/2006.11239>). Outputs and target are noise (N, C, H, W), and

    loss = (1/D) ‖ε − ε_θ(x_t, t)‖²,   D = C · H · W; the loss is 1 where no noise is predicted

A likelihood bound (D. P. Kingma, M. Welling, 2013, equation 3, <https://arxiv.org/abs/1312.6114>) has outputs (N, 2),
its terms in nats, and

    loss = −ELBO = −E ln p(x | z) + KL(q(z | x) ‖ p(z)) ≥ −ln p(x);   bits per dimension = loss / (D ln 2)

The likelihood of image tokens (M. Chen et al., 2020, equation 2, `data/images/tokens.py`) is exact. Outputs are logits
(N, T, k), the target (N, T) is the token of each pixel, and

    loss = −(1/T) Σ_t ln p(token_t | tokens before it)
    bits per dimension = (T loss + Σ_t ln |cell(token_t)|) / (D ln 2)

The cell of a token are the colours that it stands for, taken as equally likely; it is 1 where no colour is lost. So
bits per dimension are those of the image with 256 levels, as for the other models, and bits per token those of the
image in the colours of the palette. Where images have classes, p is given the class.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..core.spec import Image, ImageTokens, Noise
from ..statistics.intervals import Metric, mean

LEVELS = 256  # levels of a pixel
RECONSTRUCTION, DIVERGENCE = range(2)  # indices of the terms of the bound


class Denoising:
    """Mean squared error of the predicted noise."""

    NOUN = "noise in images"
    name = "image generation"
    default_monitor = "loss"
    monitors: tuple[str, ...] = ("loss",)
    loss_name = "mse"
    LOSSES = ("mse",)
    OPTIONS = ()

    def __init__(self, target: Noise) -> None:
        self.target = target

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the loss summed over the batch, ()."""
        return F.mse_loss(outputs, target, reduction="sum") / self.target.size

    def loss_denominator(self, target: Tensor) -> float:
        """Return the number of images in the batch."""
        return len(target)

    def summarize_outputs(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return what evaluation stores: the loss of each image, (N, 1), at its sampled timestep."""
        return (outputs - target).square().flatten(1).mean(1, keepdim=True)

    def summarize_target(self, target: Tensor) -> Tensor:
        """Return the stored targets: nothing, (N, 0), because the noise is as large as the images."""
        return target.flatten(1)[:, :0]

    def losses(self, kept: Tensor, target: Tensor) -> Tensor:
        """Return the loss of each image, (N,)."""
        del target
        return kept[:, 0]

    def fast_metrics(self, kept: Tensor, target: Tensor) -> dict[str, float]:
        """Return the loss."""
        del target
        return {"loss": kept.double().mean().item()}

    def metrics(self, kept: Tensor, target: Tensor) -> dict[str, Metric]:
        """Return the loss."""
        del target
        return {"loss": mean(kept[:, 0].double().cpu().numpy())}

    def details(self, kept: Tensor, target: Tensor) -> dict[str, Any]:
        """Return nothing."""
        del kept, target
        return {}

    def baseline(self, train_target: Tensor, target: Tensor) -> dict[str, Any]:
        """Return the loss of predicting no noise: the variance of the noise."""
        del train_target, target
        return {"name": "zero-prediction baseline", "value": 1.0}

    def predictions(self, kept: Tensor) -> list[dict[str, Any]]:
        """Return the loss of each image."""
        return [{"loss": loss} for loss in kept[:, 0].tolist()]

    def example_results(self, kept: Tensor, target: Tensor) -> list[dict[str, Any]]:
        """Return rows that are never wrong: the error depends on the noise level, and little on the image."""
        del target
        return [_row("image", "predicted noise", loss, wrong=False) for loss in kept[:, 0].tolist()]


class LikelihoodBound:
    """−ELBO in nats per image, and in bits per dimension, which are comparable between image sizes."""

    NOUN = "images"
    name = "image generation"
    default_monitor = "loss"
    monitors: tuple[str, ...] = ("loss", "bits_per_dimension")
    loss_name = "negative_elbo"
    LOSSES = ("negative_elbo",)
    OPTIONS = ()

    def __init__(self, target: Image) -> None:
        self.target = target

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the loss summed over the batch, ()."""
        del target
        return outputs.sum()

    def loss_denominator(self, target: Tensor) -> float:
        """Return the number of images in the batch."""
        return len(target)

    def losses(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the loss of each image, (N,)."""
        del target
        return outputs.sum(1)

    def fast_metrics(self, outputs: Tensor, target: Tensor) -> dict[str, float]:
        """Return the loss and bits per dimension."""
        loss = self.losses(outputs, target).double().mean().item()
        return {"loss": loss, "bits_per_dimension": loss / self._nats}

    def metrics(self, outputs: Tensor, target: Tensor) -> dict[str, Metric]:
        """Return the loss and its two terms in nats, and bits per dimension."""
        loss = mean(self.losses(outputs, target).double().cpu().numpy())
        terms = outputs.double().cpu().numpy()
        return {
            "loss": loss,
            "bits_per_dimension": loss.map(lambda x: x / self._nats),
            "reconstruction": mean(terms[:, RECONSTRUCTION]),
            "kl": mean(terms[:, DIVERGENCE]),
        }

    def details(self, outputs: Tensor, target: Tensor) -> dict[str, Any]:
        """Return nothing."""
        del outputs, target
        return {}

    def baseline(self, train_target: Tensor, target: Tensor) -> dict[str, Any]:
        """Return the loss of a uniform distribution over the levels of every pixel: 8 bits per dimension."""
        del train_target, target
        return {"name": "uniform-pixel baseline", "value": self.target.size * math.log(LEVELS)}

    def predictions(self, outputs: Tensor) -> list[dict[str, Any]]:
        """Return the loss of each image in nats and bits per dimension; outliers have the largest."""
        rows = zip(outputs.sum(1).tolist(), outputs.tolist())
        return [
            {"loss": loss, "bits_per_dimension": loss / self._nats, "reconstruction": terms[0], "kl": terms[1]}
            for loss, terms in rows
        ]

    def example_results(self, outputs: Tensor, target: Tensor) -> list[dict[str, Any]]:
        """Return the loss of each image."""
        losses = self.losses(outputs, target).tolist()
        return [_row("image", f"{loss / self._nats:.2f} bits per dimension", loss, wrong=True) for loss in losses]

    @property
    def _nats(self) -> float:
        """Nats of an image with one bit per dimension."""
        return self.target.size * math.log(2)


NATS, WITHIN, CORRECT = range(3)  # what evaluation stores of an image of tokens


class TokenLikelihood:
    """Cross-entropy of each pixel's token, and the likelihood of images in bits per dimension."""

    NOUN = "image tokens"
    name = "image generation"
    default_monitor = "bits_per_dimension"
    monitors: tuple[str, ...] = ("bits_per_dimension", "loss", "bits_per_token", "accuracy")
    loss_name = "cross_entropy"
    LOSSES = ("cross_entropy",)
    OPTIONS = ("shape",)

    def __init__(self, target: ImageTokens, shape: tuple[int, ...]) -> None:
        self.target = target
        self.pixels = math.prod(shape[1:])  # T
        self.within = torch.tensor(target.cells, dtype=torch.float64).log()  # ln |cell| of each token, (k,)

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the loss summed over all pixels of the batch, ()."""
        return F.cross_entropy(outputs.flatten(0, 1), target.flatten(), reduction="sum")

    def loss_denominator(self, target: Tensor) -> float:
        """Return the number of pixels in the batch."""
        return target.numel()

    def summarize_outputs(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return what evaluation stores of each image, (N, 3): nats of its tokens and within cells, correct tokens."""
        nats = F.cross_entropy(outputs.flatten(0, 1), target.flatten(), reduction="none").view_as(target)
        within = self.within.to(outputs)[target]
        correct = outputs.argmax(2) == target
        return torch.stack([part.sum(1).float() for part in (nats, within, correct)], dim=1)

    def losses(self, kept: Tensor, target: Tensor) -> Tensor:
        """Return the loss of each image in nats per token, (N,)."""
        del target
        return kept[:, NATS] / self.pixels

    def fast_metrics(self, kept: Tensor, target: Tensor) -> dict[str, float]:
        """Return the loss and bits per dimension."""
        del target
        loss, bits = kept[:, NATS].double().mean().item() / self.pixels, self._bits(kept).mean().item()
        return {"loss": loss, "bits_per_dimension": bits}

    def metrics(self, kept: Tensor, target: Tensor) -> dict[str, Metric]:
        """Return the loss in nats per token, bits per dimension and per token, and the fraction of correct tokens."""
        del target
        loss, correct = (kept[:, part].double().cpu().numpy() / self.pixels for part in (NATS, CORRECT))
        return {
            "loss": mean(loss),
            "bits_per_dimension": mean(self._bits(kept).cpu().numpy()),
            "bits_per_token": mean(loss / math.log(2)),
            "accuracy": mean(correct),
        }

    def details(self, kept: Tensor, target: Tensor) -> dict[str, Any]:
        """Return nothing."""
        del kept, target
        return {}

    def baseline(self, train_target: Tensor, target: Tensor) -> dict[str, Any]:
        """Return the bits per dimension of independent pixels, given the training tokens (n, T)."""
        counts = F.one_hot(train_target, self.target.outputs).sum(0)  # (T, k)
        return self.baseline_from_counts(counts, target)

    def baseline_from_counts(self, counts: Tensor, target: Tensor) -> dict[str, Any]:
        """Return the bits per dimension of independent pixels, given the count of each token at each pixel, (T, k).

        Add-one smoothing makes tokens that do not occur in training unlikely instead of impossible.
        """
        smoothed = counts.double() + 1
        nats = self.within - (smoothed / smoothed.sum(1, keepdim=True)).log()  # (T, k)
        of_each = nats.expand(len(target), -1, -1).gather(2, target[..., None])  # (n, T, 1)
        value = of_each.sum((1, 2)).mean().item() / self._nats
        return {"name": "independent-pixel histogram baseline", "value": value}

    def predictions(self, kept: Tensor) -> list[dict[str, Any]]:
        """Return the loss of each image in nats per token, and its bits per dimension; outliers have the largest."""
        losses = (kept[:, NATS] / self.pixels).tolist()
        return [{"loss": loss, "bits_per_dimension": bits} for loss, bits in zip(losses, self._bits(kept).tolist())]

    def example_results(self, kept: Tensor, target: Tensor) -> list[dict[str, Any]]:
        """Return the loss of each image."""
        losses = self.losses(kept, target).tolist()
        words = [f"{bits:.2f} bits per dimension" for bits in self._bits(kept).tolist()]
        return [_row("image", predicted, loss, wrong=True) for predicted, loss in zip(words, losses)]

    def _bits(self, kept: Tensor) -> Tensor:
        """Return the bits per dimension of each image, (N,) float64."""
        return (kept[:, NATS].double() + kept[:, WITHIN].double()) / self._nats

    @property
    def _nats(self) -> float:
        """Nats of an image with one bit per dimension."""
        return self.target.size * math.log(2)


def frechet_distance(first: Tensor, second: Tensor) -> float:
    """Return the Fréchet distance of normal distributions fitted to features (n, d) and (m, d).

        d² = ‖μ₁ − μ₂‖² + tr(C₁ + C₂ − 2 (C₁ C₂)^½)

    With features of an Inception network it is the FID (M. Heusel et al., GANs trained by a two time-scale update rule
    converge to a local Nash equilibrium, 2017, <https://arxiv.org/abs/1706.08500>). With another network it is
    comparable only between results of that network. It is computed in float64. tr (C₁ C₂)^½ is the sum of the roots of
    the eigenvalues of C₁^½ C₂ C₁^½, which are real and not negative.
    """
    first, second = first.double(), second.double()
    c1, c2 = torch.cov(first.T).reshape(first.shape[1], -1), torch.cov(second.T).reshape(second.shape[1], -1)
    values, vectors = torch.linalg.eigh(c1)
    root = vectors * values.clamp(min=0).sqrt() @ vectors.T
    crossed = torch.linalg.eigvalsh(root @ c2 @ root).clamp(min=0).sqrt().sum()
    gap = (first.mean(0) - second.mean(0)).square().sum()
    return float(gap + c1.trace() + c2.trace() - 2 * crossed)


def _row(actual: str, predicted: str, loss: float, *, wrong: bool) -> dict[str, Any]:
    return {"actual": actual, "predicted": predicted, "confidence": None, "loss": loss, "wrong": wrong}
