"""Oracle of the variational auto-encoder: hand-written layers and torch.distributions."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

from ..models.vae import PRESETS, Config
from . import Oracle


class PlainVAE(nn.Module):
    """Same network, with levels as differences of the normal distribution function."""

    def __init__(self, config: Config) -> None:
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


def plain_vae(config: Config) -> Oracle:
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


ORACLES = dict.fromkeys(PRESETS, plain_vae)
