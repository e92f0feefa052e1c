"""Variational auto-encoder: encodes images as low-dimensional codes, from which new images are generated.

D. P. Kingma, M. Welling, Auto-encoding variational Bayes, 2013. <https://arxiv.org/abs/1312.6114>
One variance for all pixels, learned with the rest: O. Rybkin, K. Daniilidis, S. Levine, Simple and effective VAE
training with calibrated decoders, 2021, <https://arxiv.org/abs/2006.13202>.

    q(z | x) = N(μ(x), diag σ²(x)),   p(z) = N(0, I),   p(x | z) = N(f(z), s² I)
    z        = μ(x) + σ(x) ε,   ε ~ N(0, I)                                  the reparameterization trick
    ELBO     = ln p(x | z) − KL(q(z | x) ‖ p(z)) ≤ ln p(x) on average        equation 10

p(x | z) is computed over the 256 levels of each pixel (nn/losses.py), so that it is a probability, and the bound is
a number of bits that is comparable with other models of images.

    x ─ conv, ReLU ─ conv, ReLU ─ linear, ReLU ─ linear ─ μ, ln σ²
                                                             │ z
                f ─ conv ─ ReLU, conv ─ ReLU, linear ─ ReLU, linear

Shapes, from an image (N, C, H, W); the convolutions have stride 2, and on the way back are transposed:
    maps of the encoder                (N, widths[i], H/2^(i+1), W/2^(i+1))
    hidden layer                       (N, hidden_dim)
    μ, ln σ², z                        (N, latent_dim) each
    f(z)                               (N, C, H, W)

Without widths and hidden_dim, encoder and decoder are linear; with `levels=0`, a density, the model is then
probabilistic PCA.
"""

from __future__ import annotations

import dataclasses
import math
from collections import OrderedDict
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from ..core.errors import InputShapeError, check_value
from ..core.spec import Image, ImageSpec
from ..nn.losses import discretized_normal_log_prob, log_density, normal_kl
from .base import BaseModel
from .card import Card, Divergence, Published
from .config import ValidatedConfig, counts, min_value, positive


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    in_channels: int = positive(1)  # 1 for grey, 3 for RGB
    sides: tuple[int, ...] = positive((28, 28))  # height and width of the images
    widths: tuple[int, ...] = counts((32, 64))  # channels of the convolutions, each of which halves the image
    hidden_dim: int = min_value(0, 256)  # units of the hidden layer of encoder and decoder; 0 for none
    latent_dim: int = positive(20)  # dimension of a code
    levels: int = min_value(0, 256)  # levels of a pixel; 0 for real-valued images, with p(x | z) as a density

    def __post_init__(self) -> None:
        super().__post_init__()
        check_value(len(self.sides) == 2, "sides", self.sides, "two numbers")
        check_value(self.levels != 1, "levels", self.levels, "0, or at least 2")

    def check(self) -> None:
        """Raise ModelError if settings contradict each other; before the data is known they cannot be judged."""
        words = f"multiples of {self.size_step}, as the convolutions halve them"
        check_value(all(side % self.size_step == 0 for side in self.sides), "sides", self.sides, words)
        words = f"at most the {self.size} numbers of an image"
        check_value(self.latent_dim <= self.size, "latent_dim", self.latent_dim, words)

    @classmethod
    def for_spec(cls, preset: Config, spec: ImageSpec) -> Config:
        """Return the preset with the channels and the size of `spec`."""
        return dataclasses.replace(preset, in_channels=spec.channels, sides=(spec.height, spec.width))

    @property
    def size(self) -> int:
        """The numbers of an image."""
        return self.in_channels * math.prod(self.sides)

    @property
    def size_step(self) -> int:
        """Heights and widths are multiples of this."""
        return int(2 ** len(self.widths))

    @property
    def least_size(self) -> int:
        """The smallest height and width."""
        return 2 * self.size_step

    @property
    def last_maps(self) -> tuple[int, int, int]:
        """The channels, height and width of the encoder's last convolution."""
        height, width = (side // self.size_step for side in self.sides)
        return (self.widths or (self.in_channels,))[-1], height, width


class VAE(BaseModel):
    """Images (N, C, H, W) to the two terms of −ELBO in nats, (N, 2): −ln p(x | z), and the KL divergence."""

    takes = (ImageSpec,)
    targets = (Image,)

    def __init__(self, config: Config) -> None:
        super().__init__()
        config.check()
        self.config = config
        maps, hidden, latent = math.prod(config.last_maps), config.hidden_dim, config.latent_dim
        channels = (config.in_channels, *config.widths)
        down: list[tuple[str, nn.Module]] = []
        for i, (before, width) in enumerate(pairwise(channels), 1):
            down += [(f"conv{i}", nn.Conv2d(before, width, 4, stride=2, padding=1)), (f"relu{i}", nn.ReLU())]
        down.append(("flatten", nn.Flatten()))
        if hidden:
            down += [("hidden", nn.Linear(maps, hidden)), ("relu", nn.ReLU())]
        self.encoder = nn.Sequential(OrderedDict(down))
        self.code = nn.Linear(hidden or maps, 2 * latent)  # μ and ln σ²
        up: list[tuple[str, nn.Module]] = []
        if hidden:
            up += [("hidden", nn.Linear(latent, hidden)), ("relu", nn.ReLU())]
        up += [("maps", nn.Linear(hidden or latent, maps)), ("unflatten", nn.Unflatten(1, config.last_maps))]
        for i, (before, width) in reversed(list(enumerate(zip(channels[1:], channels), 1))):
            up += [(f"relu{i}", nn.ReLU()), (f"conv{i}", nn.ConvTranspose2d(before, width, 4, stride=2, padding=1))]
        self.decoder = nn.Sequential(OrderedDict(up))
        self.log_var = nn.Parameter(torch.zeros(()))  # ln s²

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        """Return −ln p(x | z) and KL(q(z | x) ‖ p(z)) of each image, in nats, (N, 2).

        z is sampled with the first latent_dim numbers of `noise` (N, …); without noise it is the mean. Raises
        ModelError for images of another size.
        """
        mean, log_var = self.encode(x)
        z = mean
        if noise is not None:
            z = mean + (0.5 * log_var).exp() * noise.flatten(1)[:, : self.config.latent_dim]
        f = self.decode(z)
        if self.config.levels:
            terms = discretized_normal_log_prob(x, f, self.log_var, self.config.levels)
        else:
            terms = log_density(x, f, self.log_var)
        zero = torch.zeros_like(mean)
        kl = normal_kl(mean, log_var, zero, zero).sum(1)
        return torch.stack([-terms.flatten(1).sum(1), kl], dim=1)

    def features(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        """Return the mean of each image's code, (N, latent_dim)."""
        del noise
        return self.encode(x)[0]

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return μ and ln σ² of q(z | x), (N, latent_dim) each. Raises ModelError for images of another size."""
        expected = (self.config.in_channels, *self.config.sides)
        if x.shape[1:] != expected:
            raise InputShapeError(
                f"This vae takes images of shape {expected}, and these are {tuple(x.shape[1:])}: bring them to that "
                "size, or build one with other sides."
            )
        mean, log_var = self.code(self.encoder(x)).chunk(2, dim=1)  # (N, latent_dim) each
        return mean, log_var

    def draw(self, noise: Tensor) -> Tensor:
        """Return new images (N, C, H, W), decoded from the first latent_dim numbers of `noise` (N, …)."""
        return self.decode(noise.flatten(1)[:, : self.config.latent_dim])

    def decode(self, z: Tensor) -> Tensor:
        """Return f(z), the images (N, C, H, W) of codes (N, latent_dim), usually between −1 and 1."""
        f: Tensor = self.decoder(z)
        return f


Model = VAE

PRESETS = {"vae": Config()}

CARD = Card(
    title="Auto-encoding variational Bayes",
    authors="D. P. Kingma, M. Welling",
    year=2013,
    link="https://arxiv.org/abs/1312.6114",
    family="generative",
    equation="z = μ(x) + σ(x) ε;  ELBO = ln p(x | z) − KL(N(μ, σ²) ‖ N(0, I))",
    oracle="torch.nn.Sequential and torch.distributions, built by hand; probabilistic PCA",
    published={"vae": Published(1_691_370, 5_032_960, (1, 28, 28), "computed from the definition above")},
    divergences=(
        Divergence(
            "layers",
            paper="one hidden layer of 500 units and tanh, fully connected",
            here="two convolutions and a hidden layer of 256, ReLU; transposed convolutions in the decoder",
            common="either",
        ),
        Divergence(
            "p(x | z)",
            paper="Bernoulli for MNIST, with grey levels as probabilities; normal, with a separate variance "
            "for each pixel, for faces",
            here="normal with one learned variance, integrated over each of the 256 levels",
            common="Bernoulli, or a squared error, which is a normal distribution whose variance is 1 or ½",
        ),
        Divergence(
            "samples of z",
            paper="one for each image and step (L = 1)",
            here="one; in evaluation a fixed sample",
            common="one",
        ),
    ),
    settings={
        "vae": {
            "optimizer": "adam",
            "lr": 1e-3,
            "weight_decay": 0.0,
            "schedule": "cosine",
            "batch_size": 64,
            "epochs": 15,
        }
    },
)
