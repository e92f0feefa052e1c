"""Oracles of generative models.

The variational auto-encoder has hand-written layers and torch.distributions. DDPM's U-Net is the UNet2DModel of
diffusers, with x_t from its own scheduler. Image GPT is the GPT2LMHeadModel of transformers, with an output layer for
the colours.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

from ..checkpoints.diffusers import SCHEDULES, to_diffusers_names
from ..checkpoints.huggingface import to_transformers_names
from ..checkpoints.huggingface.gpt2 import GPT2_FAMILY
from ..models import ddpm_unet, image_gpt, vae
from . import Oracle, OracleMissing
from .huggingface import OutputField
from .libraries import make_torchvision_importable, transformers_library


class PlainVAE(nn.Module):
    """Same network, with levels as differences of the normal distribution function."""

    def __init__(self, config: vae.Config) -> None:
        super().__init__()
        self.config = config
        channels, height, width = config.last_maps
        maps = channels * height * width
        down: list[nn.Module] = []
        up: list[nn.Module] = []
        before = config.in_channels
        for after in config.widths:
            down += [nn.Conv2d(before, after, 4, 2, 1), nn.ReLU()]
            up = [nn.ReLU(), nn.ConvTranspose2d(after, before, 4, 2, 1), *up]
            before = after
        self.down = nn.Sequential(*down, nn.Flatten(), nn.Linear(maps, config.hidden_dim), nn.ReLU())
        self.code = nn.Linear(config.hidden_dim, 2 * config.latent_dim)
        hidden = [nn.Linear(config.latent_dim, config.hidden_dim), nn.ReLU(), nn.Linear(config.hidden_dim, maps)]
        self.up = nn.Sequential(*hidden, nn.Unflatten(1, (channels, height, width)), *up)
        self.log_var = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor, noise: Tensor) -> Tensor:
        """Return −ln p(x | z) and the divergence, shape (N, 2)."""
        d = self.config.latent_dim
        code = self.code(self.down(x))
        q = Normal(code[:, :d], (code[:, d:] / 2).exp())
        p = Normal(self.up(q.loc + q.scale * noise.flatten(1)[:, :d]), (self.log_var / 2).exp())
        half = 1 / (self.config.levels - 1)
        upper = torch.where(x > 1 - half, torch.ones_like(x), p.cdf(x + half))  # type: ignore[no-untyped-call]
        lower = torch.where(x < -1 + half, torch.zeros_like(x), p.cdf(x - half))  # type: ignore[no-untyped-call]
        level = (upper - lower).log()
        divergence = kl_divergence(q, Normal(torch.zeros_like(q.loc), torch.ones_like(q.scale)))
        return torch.stack([-level.flatten(1).sum(1), divergence.sum(1)], dim=1)


def plain_vae(config: vae.Config) -> Oracle:
    """Build the network for a config with hidden layers and levels; no other options are supported."""
    theirs = PlainVAE(config)

    def draw(generator: torch.Generator) -> tuple[Tensor, ...]:
        shape = (3, config.in_channels, *config.sides)
        levels = torch.randint(config.levels, shape, generator=generator, dtype=torch.float64)
        noise = torch.randn(shape, generator=generator, dtype=torch.float64)
        return levels / (config.levels - 1) * 2 - 1, noise

    def converted(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return dict(zip(dict(theirs.named_parameters()), tensors.values()))  # layer by layer in both

    return Oracle(theirs, draw, converted=converted)


IMAGE_SIDE = 8  # side of the compared images in pixels; more for more resolutions


class ScheduledUNet(nn.Module):
    """Network of diffusers with noise that its scheduler adds."""

    def __init__(self, unet: nn.Module, scheduler: Any, timesteps: int) -> None:
        super().__init__()
        self.unet, self.scheduler, self.timesteps = unet, scheduler, timesteps

    def forward(self, x: Tensor, t: Tensor, noise: Tensor, classes: Tensor | None = None) -> Tensor:
        """Return the predicted noise (N, C, H, W)."""
        t = (t * self.timesteps).long()
        found: Tensor = self.unet(self.scheduler.add_noise(x, noise, t), t, class_labels=classes).sample
        return found


class TimestepEmbedding(nn.Module):
    """Timestep embedding of diffusers in float64. Theirs is always float32."""

    def __init__(self, half: int) -> None:
        super().__init__()
        self.frequencies = [10_000 ** (-i / (half - 1)) for i in range(half)]

    def forward(self, t: Tensor) -> Tensor:
        """Map timesteps (N,) to (N, 2 · half)."""
        angles = torch.outer(t.double(), torch.tensor(self.frequencies, dtype=torch.float64))
        return torch.cat([angles.sin(), angles.cos()], dim=1)


def diffusers_library() -> Any:
    """Import diffusers. Raises OracleMissing, with the reason, if it cannot be imported."""
    make_torchvision_importable()
    try:
        import diffusers
    except (ImportError, RuntimeError) as error:
        raise OracleMissing(f"diffusers cannot be imported here ({str(error).splitlines()[0]}).") from error
    return diffusers


def diffusers_unet(config: ddpm_unet.Config) -> Oracle:
    """Build the network of diffusers for a config."""
    library = diffusers_library()
    levels = range(1, len(config.widths) + 1)
    kinds = ["Attn" if level in config.attention_levels else "" for level in levels]
    unet = library.UNet2DModel(
        in_channels=config.in_channels,
        out_channels=config.in_channels,
        block_out_channels=config.widths,
        layers_per_block=config.layers,
        down_block_types=[f"{kind}DownBlock2D" for kind in kinds],
        up_block_types=[f"{kind}UpBlock2D" for kind in reversed(kinds)],
        norm_num_groups=config.groups,
        norm_eps=1e-6,
        dropout=config.dropout,
        attention_head_dim=None,
        downsample_padding=0,
        flip_sin_to_cos=False,
        freq_shift=1,
        num_class_embeds=config.classes + 1 if config.classes else None,
    )
    unet.time_proj = TimestepEmbedding(config.widths[0] // 2)
    scheduler = library.DDPMScheduler(
        num_train_timesteps=config.timesteps,
        beta_schedule=SCHEDULES[config.noise_schedule],
    )
    scheduler.alphas_cumprod = config.signal  # float64; tests/nn compare it with theirs, which is float32
    side = max(IMAGE_SIDE, config.least_size)

    def draw(generator: torch.Generator) -> tuple[Tensor, ...]:
        x, noise = (
            torch.randn(2, config.in_channels, side, side, generator=generator, dtype=torch.float64) for _ in range(2)
        )
        t = torch.rand(2, generator=generator, dtype=torch.float64)
        classes = torch.randint(config.classes + 1, (2,), generator=generator)
        return (x, t, noise, classes) if config.classes else (x, t, noise)

    module = ScheduledUNet(unet, scheduler, config.timesteps)
    return Oracle(module, draw, converted=_to_unet_names)


def _to_unet_names(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    return {f"unet.{name}": tensor for name, tensor in to_diffusers_names(tensors).items()}


def transformers_image_gpt(config: image_gpt.Config) -> Oracle:
    """Build GPT2LMHeadModel with a separate output layer, which has no rows for start tokens."""
    library = transformers_library()
    model = library.GPT2LMHeadModel(
        library.GPT2Config(
            vocab_size=config.vocab_size,
            n_positions=config.context_length,
            n_embd=config.dim,
            n_layer=config.layers,
            n_head=config.heads,
            n_inner=config.ffn_dim,
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=None,
            **dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop"), config.dropout),
        )
    )
    model.lm_head = nn.Linear(config.dim, config.colors, bias=False)
    model.set_attn_implementation("eager")

    def draw(generator: torch.Generator) -> tuple[Tensor, ...]:
        first = config.no_class + 1  # of the words
        caption = torch.randint(first, first + max(1, config.words), (3, config.caption), generator=generator)
        start = torch.randint(config.colors, config.no_class + 1, (3, 1), generator=generator)
        pixels = torch.randint(config.colors, (3, math.prod(config.sides) - 1), generator=generator)
        return (torch.cat([caption, start, pixels], dim=1),)

    def converted(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        named = {key.replace("head.weight", "head.unembedding"): tensor for key, tensor in tensors.items()}
        return {f"model.{key}": tensor for key, tensor in to_transformers_names(GPT2_FAMILY, named).items()}

    return Oracle(PixelLogits(model, config.caption), draw, converted=converted)


class PixelLogits(OutputField):
    """A language model of transformers whose first outputs, at the tokens of a caption, are left out."""

    def __init__(self, model: nn.Module, caption: int) -> None:
        super().__init__(model)
        self.caption = caption

    def forward(self, tokens: Tensor, mask: Tensor | None = None, target: Tensor | None = None) -> Tensor:
        """Return the logits from the start token on, (N, T, k)."""
        return super().forward(tokens, mask, target)[:, self.caption :]


ORACLES = {
    **dict.fromkeys(vae.PRESETS, plain_vae),
    **dict.fromkeys(ddpm_unet.PRESETS, diffusers_unet),
    **dict.fromkeys(image_gpt.PRESETS, transformers_image_gpt),
}

REDUCED = {
    # At the paper's size one comparison takes a minute, so the channels are reduced at the same resolutions.
    "ddpm-unet": ddpm_unet.Config(widths=(8, 16, 16, 16), layers=2, attention_levels=(2,), groups=4),
    # Fewer pixels, colours and layers, and the same number of heads, with two dimensions each.
    "image-gpt-s": dataclasses.replace(
        image_gpt.PRESETS["image-gpt-s"], colors=20, classes=3, sides=(4, 5), dim=16, layers=2
    ),
}
