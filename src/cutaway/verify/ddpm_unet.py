"""Oracle of DDPM's U-Net: the UNet2DModel of diffusers with x_t from its own scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..checkpoints.diffusers import SCHEDULES, to_diffusers_names
from ..models.ddpm_unet import PRESETS, Config
from . import Oracle, OracleMissing
from .operators import make_torchvision_importable

SIDE = 8  # side of the compared images in pixels; more for more resolutions


class Scheduled(nn.Module):
    """Network of diffusers with noise that its scheduler adds."""

    def __init__(self, unet: nn.Module, scheduler: Any, timesteps: int) -> None:
        super().__init__()
        self.unet, self.scheduler, self.timesteps = unet, scheduler, timesteps

    def forward(self, x: Tensor, t: Tensor, noise: Tensor, classes: Tensor | None = None) -> Tensor:
        """Return the predicted noise (N, C, H, W)."""
        t = (t * self.timesteps).long()
        found: Tensor = self.unet(self.scheduler.add_noise(x, noise, t), t, class_labels=classes).sample
        return found


class Sinusoids(nn.Module):
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


def diffusers_unet(config: Config) -> Oracle:
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
    unet.time_proj = Sinusoids(config.widths[0] // 2)
    scheduler = library.DDPMScheduler(
        num_train_timesteps=config.timesteps,
        beta_schedule=SCHEDULES[config.noise_schedule],
    )
    scheduler.alphas_cumprod = config.signal  # float64; tests/nn compare it with theirs, which is float32
    side = max(SIDE, config.least_size)

    def draw(generator: torch.Generator) -> tuple[Tensor, ...]:
        x, noise = (
            torch.randn(2, config.in_channels, side, side, generator=generator, dtype=torch.float64) for _ in range(2)
        )
        t = torch.rand(2, generator=generator, dtype=torch.float64)
        classes = torch.randint(config.classes + 1, (2,), generator=generator)
        return (x, t, noise, classes) if config.classes else (x, t, noise)

    module = Scheduled(unet, scheduler, config.timesteps)
    return Oracle(module, draw, converted=_renamed)


def _renamed(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    return {f"unet.{name}": tensor for name, tensor in to_diffusers_names(tensors).items()}


ORACLES = dict.fromkeys(PRESETS, diffusers_unet)
# At the paper's size one comparison takes a minute, so the channels are reduced at the same resolutions.
REDUCED = {"ddpm-unet": Config(widths=(8, 16, 16, 16), layers=2, attention_levels=(2,), groups=4)}
