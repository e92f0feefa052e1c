"""DDPM's U-Net: a diffusion model, which predicts the noise in an image and so generates images from noise.

J. Ho, A. Jain, P. Abbeel, Denoising diffusion probabilistic models, 2020. <https://arxiv.org/abs/2006.11239>
Classes, and their dropout for guidance: J. Ho, T. Salimans, Classifier-free diffusion guidance, 2022,
<https://arxiv.org/abs/2207.12598>.

    x_t = √ᾱ_t x_0 + √(1 − ᾱ_t) ε,   ε ~ N(0, I)            noise is added up to timestep t, at random
    L   = E ‖ε − ε_θ(x_t, t)‖²                              equation 14: predict it

    e    = W₂ SiLU(W₁ [sin(t ω), cos(t ω)]) + class         the timestep and the class, as one vector
    R(h) = s(h) + conv(SiLU(GN(conv(SiLU(GN(h))) + W SiLU(e))))       a residual block; s is 1×1 where channels change
    A(h) = h + W_O softmax(QKᵀ/√d) V                        among the places of a small map, after GN

    x ─ stem ─ R R ──────────────────────────── R R R ─ GN, SiLU, conv ─ ε_θ
                  └ down ─ R R ──────── R R R ─ up ┘
                              └ R A R ─┘

Each block on the way up takes the output of its counterpart on the way down in addition to its own input.

Shapes, from an image (N, C, H, W), `widths` channels at H, H/2, H/4, …:
    vector of the timestep                       (N, 4 · widths[0])
    maps at level i                              (N, widths[i], H/2^i, W/2^i)
    ε_θ                                          (N, C, H, W)
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.errors import InputShapeError, check_value
from ..core.spec import ImageSpec, Noise
from ..nn.diffusion import (
    SCHEDULES,
    Draw,
    Watch,
    classifier_free_guidance,
    cumulative_alphas,
    ignore_step,
    sample,
    sampling_timesteps,
)
from .base import BaseModel
from .card import Card, Divergence, Published, Result
from .config import ValidatedConfig, choice, counts, fraction, min_value, positive


@dataclass(frozen=True)
class Config(ValidatedConfig):
    """Configuration of the network."""

    in_channels: int = positive(3)  # 1 for grey, 3 for RGB
    classes: int = min_value(0, 0)  # number of classes for conditional generation; 0 for none
    widths: tuple[int, ...] = positive((128, 256, 256, 256))  # channels at each resolution, halved from one to the next
    layers: int = positive(2)  # residual blocks at each resolution on the way down; one more on the way up
    attention_levels: tuple[int, ...] = counts((2,))  # the resolutions with self-attention, counted from 1
    groups: int = positive(32)  # of channels in group normalization
    dropout: float = fraction(0.1)  # dropout rate within a residual block
    class_dropout: float = fraction(0.1)  # probability that the class is dropped in training, for guidance
    timesteps: int = min_value(2, 1000)  # T, the steps in which noise is added
    noise_schedule: str = choice("linear", SCHEDULES)  # how much in each: linear (Ho) or cosine (Nichol and Dhariwal)

    def __post_init__(self) -> None:
        super().__post_init__()
        divides = all(width % self.groups == 0 for width in self.widths)
        check_value(divides, "groups", self.groups, f"a divisor of each of widths={self.widths}")
        there = all(level <= len(self.widths) for level in self.attention_levels)
        words = f"resolutions of the {len(self.widths)} that widths has, counted from 1"
        check_value(there, "attention_levels", self.attention_levels, words)

    @classmethod
    def for_spec(cls, preset: Config, spec: ImageSpec) -> Config:
        """Return the preset with the channels and classes of `spec`. Raises ModelError for other targets."""
        assert isinstance(spec.target, Noise), "what the network learns"
        return dataclasses.replace(preset, in_channels=spec.channels, classes=len(spec.target.names))

    @property
    def size_step(self) -> int:
        """Heights and widths are multiples of this, as each resolution halves them."""
        return int(2 ** (len(self.widths) - 1))

    @property
    def least_size(self) -> int:
        """The smallest height and width: two pixels at the lowest resolution."""
        return 2 * self.size_step

    @property
    def signal(self) -> Tensor:
        """ᾱ_t of each timestep, (T,) float64."""
        return cumulative_alphas(SCHEDULES[self.noise_schedule](self.timesteps))


class ResidualBlock(nn.Module):
    """R(h): two convolutions, each after normalization, with the timestep added between them."""

    def __init__(self, in_channels: int, channels: int, config: Config) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(config.groups, in_channels, eps=1e-6)
        self.conv1 = nn.Conv2d(in_channels, channels, 3, padding=1)
        self.time = nn.Linear(4 * config.widths[0], channels)
        self.norm2 = nn.GroupNorm(config.groups, channels, eps=1e-6)
        self.dropout = nn.Dropout(config.dropout)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.shortcut = nn.Conv2d(in_channels, channels, 1) if in_channels != channels else nn.Identity()
        nn.init.zeros_(self.conv2.weight)  # at first the block adds nothing
        nn.init.zeros_(self.conv2.bias)  # type: ignore[arg-type]  # it has one

    def forward(self, h: Tensor, e: Tensor) -> Tensor:
        """Map (N, in_channels, H, W) and the vector (N, 4 · widths[0]) to (N, channels, H, W)."""
        y = self.conv1(F.silu(self.norm1(h)))
        y = y + self.time(F.silu(e))[:, :, None, None]
        y = self.conv2(self.dropout(F.silu(self.norm2(y))))
        out: Tensor = self.shortcut(h) + y
        return out


class SpatialAttention(nn.Module):
    """A(h): single-head attention among all positions of a map."""

    def __init__(self, channels: int, config: Config) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(config.groups, channels, eps=1e-6)
        self.qkv = nn.Linear(channels, 3 * channels)
        self.out = nn.Linear(channels, channels)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, h: Tensor) -> Tensor:
        """Map (N, channels, H, W) to the same shape."""
        places = self.norm(h).flatten(2).transpose(1, 2)  # (N, H·W, channels)
        q, k, v = self.qkv(places)[:, None].chunk(3, dim=-1)  # (N, 1, H·W, channels) each
        seen = self.out(F.scaled_dot_product_attention(q, k, v)[:, 0])  # (N, H·W, channels)
        y: Tensor = h + seen.transpose(1, 2).reshape(h.shape)  # (N, channels, H, W)
        return y


class Downsample(nn.Module):
    """Half the height and width, by a convolution with stride 2: a pixel is added at the right and below."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, stride=2)

    def forward(self, h: Tensor) -> Tensor:
        """Map (N, channels, H, W) to (N, channels, H/2, W/2)."""
        y: Tensor = self.conv(F.pad(h, (0, 1, 0, 1)))
        return y


class Upsample(nn.Module):
    """Twice the height and width: each pixel four times, then a convolution."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, h: Tensor) -> Tensor:
        """Map (N, channels, H, W) to (N, channels, 2H, 2W)."""
        y: Tensor = self.conv(F.interpolate(h, scale_factor=2.0, mode="nearest"))
        return y


class Level(nn.Module):
    """The residual blocks of one resolution, each optionally followed by attention."""

    def __init__(self, in_channels: list[int], channels: int, attends: bool, config: Config) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(ResidualBlock(n, channels, config) for n in in_channels)
        self.attentions = nn.ModuleList(
            SpatialAttention(channels, config) if attends else nn.Identity() for _ in in_channels
        )

    def forward(self, h: Tensor, e: Tensor, skips: list[Tensor]) -> Tensor:
        """Run the blocks on the way down, and append the output of each to `skips`."""
        for block, attention in zip(self.blocks, self.attentions):
            h = attention(block(h, e))
            skips.append(h)
        return h

    def back(self, h: Tensor, e: Tensor, skips: list[Tensor]) -> Tensor:
        """Run the blocks on the way up; each takes the output of its counterpart from `skips`."""
        for block, attention in zip(self.blocks, self.attentions):
            h = attention(block(torch.cat([h, skips.pop()], dim=1), e))
        return h


class DDPM(BaseModel):
    """A network that maps noisy images (N, C, H, W) to their noise, (N, C, H, W)."""

    takes = (ImageSpec,)
    targets = (Noise,)
    image_scale: Tensor  # √ᾱ_t
    noise_scale: Tensor  # √(1 − ᾱ_t)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        widths, dim = config.widths, 4 * config.widths[0]
        self.time1 = nn.Linear(widths[0], dim)
        self.time2 = nn.Linear(dim, dim)
        self.classes = nn.Embedding(config.classes + 1, dim) if config.classes else None  # the last is "no class"
        self.stem = nn.Conv2d(config.in_channels, widths[0], 3, padding=1)
        self.down, self.downsample = nn.ModuleList(), nn.ModuleList()
        channels, kept = widths[0], [widths[0]]  # what each map on the way down has
        for level, width in enumerate(widths, 1):
            inputs = [channels] + [width] * (config.layers - 1)
            self.down.append(Level(inputs, width, level in config.attention_levels, config))
            kept += [width] * config.layers
            if level < len(widths):
                self.downsample.append(Downsample(width))
                kept.append(width)
            channels = width
        self.middle1 = ResidualBlock(channels, channels, config)
        self.middle_attention = SpatialAttention(channels, config)
        self.middle2 = ResidualBlock(channels, channels, config)
        self.up, self.upsample = nn.ModuleList(), nn.ModuleList()
        for level, width in reversed(list(enumerate(widths, 1))):
            inputs = [before + kept.pop() for before in [channels] + [width] * config.layers]
            self.up.append(Level(inputs, width, level in config.attention_levels, config))
            if level > 1:
                self.upsample.append(Upsample(width))
            channels = width
        self.norm = nn.GroupNorm(config.groups, channels, eps=1e-6)
        self.head = nn.Conv2d(channels, config.in_channels, 3, padding=1)
        nn.init.zeros_(self.head.weight)  # at first no noise is predicted
        nn.init.zeros_(self.head.bias)  # type: ignore[arg-type]  # it has one
        # √ᾱ_t and √(1 − ᾱ_t) of each timestep: not weights, and not saved.
        self.register_buffer("image_scale", config.signal.sqrt(), persistent=False)
        self.register_buffer("noise_scale", (1 - config.signal).sqrt(), persistent=False)

    def forward(
        self, x: Tensor, t: Tensor | None = None, noise: Tensor | None = None, classes: Tensor | None = None
    ) -> Tensor:
        """Return the noise in x_t, (N, C, H, W).

        Args:
            x: Images x_t, shape (N, C, H, W), or x_0 if `noise` is given.
            t: Timesteps, shape (N,), int64, or fractions of T from 0 to below 1. All are 0 if None.
            noise: Noise ε, from which x_t is computed.
            classes: Classes, shape (N,), int64; the number of classes means no class. None means no class for all.
        """
        return self.head(self.features(x, t, noise, classes))  # type: ignore[no-any-return]

    def features(
        self, x: Tensor, t: Tensor | None = None, noise: Tensor | None = None, classes: Tensor | None = None
    ) -> Tensor:
        """Return the input of the last convolution, (N, widths[0], H, W).

        Raises ModelError for sizes that cannot be halved.
        """
        step = self.config.size_step
        if x.shape[2] % step or x.shape[3] % step:
            raise InputShapeError(
                f"ddpm-unet halves images {len(self.config.widths) - 1} times, and these are "
                f"{x.shape[2]}×{x.shape[3]}: bring them to a multiple of {step}, as image_size does."
            )
        t = self._timesteps(x, t)
        if noise is not None:
            at = (t, None, None, None)
            x = self.image_scale[at].to(x) * x + self.noise_scale[at].to(x) * noise  # scales are (N, 1, 1, 1)
        e = self._vector(x, t, classes)
        h = self.stem(x)
        skips = [h]
        for i, level in enumerate(self.down):
            h = level(h, e, skips)
            if i < len(self.downsample):
                h = self.downsample[i](h)
                skips.append(h)
        h = self.middle2(self.middle_attention(self.middle1(h, e)), e)
        for i, level in enumerate(self.up):
            h = level.back(h, e, skips)  # type: ignore[operator]  # each is a Level
            if i < len(self.upsample):
                h = self.upsample[i](h)
        return F.silu(self.norm(h))

    def draw(
        self,
        noise: Tensor,
        classes: Tensor | None = None,
        *,
        steps: int = 50,
        guidance: float = 1.0,
        eta: float = 0.0,
        more: Draw = torch.randn_like,
        watch: Watch = ignore_step,
    ) -> Tensor:
        """Return images (N, C, H, W) generated from `noise` of that shape.

        Args:
            noise: Noise, shape (N, C, H, W).
            classes: Classes to generate, shape (N,).
            steps: Number of timesteps.
            guidance: Scale of classifier-free guidance towards the classes.
            eta: 0 for DDIM, 1 for ancestral sampling.
            more: Function that draws the noise of ancestral sampling.
            watch: Called with the timestep, x_t and x̂_0 at each step.
        """

        def predict(x: Tensor, t: Tensor, classes: Tensor | None = None) -> Tensor:
            return cast(Tensor, self(x, t, None, classes))

        towards = (
            predict if classes is None else classifier_free_guidance(predict, classes, self.config.classes, guidance)
        )
        times = sampling_timesteps(self.config.timesteps, steps)
        return sample(towards, noise, self.config.signal, times, eta, more, watch=watch)

    def _timesteps(self, x: Tensor, t: Tensor | None) -> Tensor:
        if t is None:
            return torch.zeros(x.shape[0], dtype=torch.int64, device=x.device)
        return (t * self.config.timesteps).long() if t.is_floating_point() else t

    def _vector(self, x: Tensor, t: Tensor, classes: Tensor | None) -> Tensor:
        """Return e of timesteps (N,) and classes (N,): (N, 4 · widths[0])."""
        half = self.config.widths[0] // 2
        powers = torch.arange(half, device=x.device, dtype=torch.float64) / max(1, half - 1)
        angles = t[:, None] * 10_000.0**-powers  # (N, widths[0] / 2)
        e: Tensor = self.time2(F.silu(self.time1(torch.cat([angles.sin(), angles.cos()], dim=1).to(x.dtype))))
        if self.classes is None:
            return e
        none = torch.full_like(t, self.config.classes)
        if classes is None:
            return e + cast(Tensor, self.classes(none))
        kept = F.dropout(torch.ones_like(e[:, 0]), self.config.class_dropout, self.training) > 0  # (N,)
        return e + cast(Tensor, self.classes(classes.where(kept, none)))


Model = DDPM

PRESETS = {
    "ddpm-unet": Config(),
    "ddpm-unet-small": Config(
        widths=(16, 32, 64), layers=1, attention_levels=(3,), groups=8, dropout=0.0, noise_schedule="cosine"
    ),
}

_SETTINGS = {"optimizer": "adam", "weight_decay": 0.0, "grad_clip": 1.0}

CARD = Card(
    title="Denoising diffusion probabilistic models",
    authors="J. Ho, A. Jain, P. Abbeel",
    year=2020,
    link="https://arxiv.org/abs/2006.11239",
    family="generative",
    equation="x_t = √ᾱ_t x_0 + √(1 − ᾱ_t) ε;  L = E ‖ε − ε_θ(x_t, t)‖²",
    oracle="diffusers' UNet2DModel",
    published={
        "ddpm-unet": Published(
            35_746_307,
            6_221_856_768,
            (3, 32, 32),
            "the weights in circulation (google/ddpm-cifar10-32); multiply-adds computed",
            paper="35.7 million, appendix B",
        ),
        "ddpm-unet-small": Published(687_347, 73_893_888, (3, 28, 28), "computed from the definition above"),
    },
    divergences=(
        Divergence(
            "classes",
            paper="none; Ho and Salimans, 2022: a vector added to that of the timestep, hidden for 10 to 20 % of the "
            "images",
            here="as in 2022, where the images have classes, hidden for 10 %",
            common="the same vector (diffusers' num_class_embeds)",
        ),
        Divergence(
            "guidance",
            paper="(1 + w) ε(x, c) − w ε(x)",
            here="ε(x) + s (ε(x, c) − ε(x)), s = 1 + w: 1 is without guidance",
            common="as here (diffusers' guidance_scale)",
        ),
        Divergence(
            "initialization",
            paper="not specified",
            here="PyTorch's default, but zeros for the last convolution, the second of each block, and the output of "
            "attention: at first no noise is predicted, and every residual branch is 0",
            common="PyTorch's own, without zeros (diffusers)",
        ),
        Divergence(
            "variance of a step backwards",
            paper="β_t or β̃_t, with similar results",
            here="β̃_t",
            common="either (diffusers' fixed_small and fixed_large)",
        ),
        Divergence(
            "sampling",
            paper="1 000 steps, each with noise",
            here="50 steps with noise by default: --steps 1000 as in the paper, --eta 0 without noise (DDIM)",
            common="either",
        ),
        Divergence(
            "learning rate",
            paper="2e-4, 800 000 updates of 128 images, decay of the averaged weights 0.9999",
            here="ddpm-unet: as in the paper, for the given number of epochs",
        ),
    ),
    results={
        "ddpm-unet": (
            Result("CIFAR-10", {"FID": 3.17, "Inception score": 9.46}, "unconditional", "the paper, abstract", unit=""),
        ),
    },
    settings={
        "ddpm-unet": _SETTINGS
        | {"lr": 2e-4, "batch_size": 128, "schedule": "constant", "ema": 0.9999, "flip": True, "epochs": 100},
        "ddpm-unet-small": _SETTINGS | {"lr": 1e-3, "batch_size": 32, "ema": 0.999, "epochs": 2},
    },
)
