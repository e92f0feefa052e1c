"""Views ask models for what they can do: a network of nobody's catalogue is shown as those of the catalogue are."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cutaway.core.spec import ImageSpec, TableSpec
from cutaway.models.base import (
    BaseModel,
    Dense,
    SupportsAdditiveScores,
    SupportsDenseKernel,
    SupportsResidualBlocks,
    TokenGrid,
)
from cutaway.models.registry import Preset, presets
from cutaway.nn.attention import MultiHeadAttention
from cutaway.views.attention_capture import num_heads_by_name
from cutaway.views.attribution import _methods
from cutaway.views.gradients import compare_with_plain
from cutaway.views.inspect_page import describe_view
from cutaway.views.model_layers import attention_modules
from cutaway.views.registry import suitable_views
from cutaway.views.subject import Subject


@dataclass(frozen=True)
class Config:
    """Nothing can be set, but for what the registry asks."""

    num_classes: int = 3


class Mirrored(nn.Module):
    """A convolution whose kernel is half of what it seems."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Parameter(torch.randn(8, 3, 4, 2))

    def dense_kernel(self) -> Tensor:
        """The kernel and its mirror image, (8, 3, 4, 4)."""
        return torch.cat([self.left, self.left.flip(3)], 3)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, H, W) to (N, 8, H − 3, W − 3)."""
        return F.conv2d(x, self.dense_kernel())


class Block(nn.Module):
    """Attention alone."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(8, 2)

    def forward(self, z: Tensor) -> Tensor:
        """(N, T, 8) to itself."""
        return z + self.attention(z)


class Strips(BaseModel):
    """Patches of 4×4 pixels after two tokens of its own, a mirrored convolution, a local response."""

    takes = (ImageSpec,)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.mirrored = Mirrored()
        self.response = nn.LocalResponseNorm(3)
        self.own = nn.Parameter(torch.randn(1, 2, 8))
        self.where = nn.Parameter(torch.randn(16, 8))
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(8, config.num_classes)

    def token_grid(self, height: int, width: int) -> TokenGrid:
        """The patches, after the two."""
        return TokenGrid(height // 4, width // 4, before=2)

    def position_tables(self, num_positions: int) -> dict[str, Tensor]:
        """Those of the patches."""
        return {"where": self.where}

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        maps = self.response(self.mirrored(F.pad(x, (0, 3, 0, 3))))  # (N, 8, H, W)
        z = F.avg_pool2d(maps, 4).flatten(2).transpose(1, 2) + self.where  # (N, 16, 8)
        z = torch.cat([self.own.expand(len(x), -1, -1), z], 1)
        for block in self.blocks:
            z = block(z)
        logits: Tensor = self.head(z[:, 0])
        return logits


class Additive(nn.Module):
    """An attention of its own, over numbers."""

    def compared(self, *args: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """As it is given them."""
        q, k, v, mask, w = args
        return q, k, v, mask, w


class Ladder(BaseModel):
    """Two affine maps, under names of its own."""

    takes = (TableSpec,)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.rung = nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Tanh())
        self.top = nn.Linear(5, config.num_classes)

    def dense_layers(self) -> list[Dense]:
        """Both."""
        return [Dense("rung.0", "rung", norm="rung.1", activation="tanh"), Dense("top", "top")]

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.top(self.rung(x))
        return logits


class Hops(BaseModel):
    """Residual blocks, as many as asked for."""

    takes = (ImageSpec,)

    class Hop(nn.Module):
        """One of them."""

        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 3, padding=1)
            self.downsample: nn.Module = nn.Identity()

        def forward(self, x: Tensor) -> Tensor:
            """As it says."""
            y: Tensor = self.downsample(x) + self.conv(x)
            return y

    def __init__(self, config: Config, hops: int = 4) -> None:
        super().__init__()
        self.config = config
        self.hops = nn.Sequential(*(self.Hop() for _ in range(hops)))
        self.head = nn.Linear(3, 10)

    def residual_blocks(self) -> list[nn.Module]:
        """All."""
        return list(self.hops)

    def reduced(self, fraction: float) -> Hops:
        """With fewer."""
        return Hops(self.config, max(1, round(fraction * len(self.hops))))

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.head(self.hops(x).mean((2, 3)))
        return logits


def opened(network: Any, *shape: int) -> Subject:
    """A network of this file with two random examples."""
    module = ModuleType("own")
    vars(module).update(Model=network, Config=Config, CARD=presets()["mlp"].module.CARD)
    torch.manual_seed(0)
    model = network(Config()).eval()
    return Subject(model, Preset("own", module, model.config), (torch.randn(2, *shape),))


@pytest.mark.parametrize("view", ["filters", "features", "field", "normalization", "attention", "positions"])
def test_an_image_network_of_ones_own_is_shown(view: str) -> None:
    subject = opened(Strips, 3, 16, 16)
    assert view in suitable_views(subject)
    shown = str(describe_view(view, subject))
    assert {
        "filters": "mirrored",
        "features": "blocks.1: principal components of 4×4 tokens",
        "field": "blocks.1",
        "normalization": "the 3 neighboring channels",
        "attention": "r3 c3",
        "positions": "row 3, column 3",
    }[view] in shown


def test_images_of_patches_are_explained_by_rollout() -> None:
    assert "rollout" in _methods(opened(Strips, 3, 16, 16))
    assert isinstance(Mirrored(), SupportsDenseKernel)


def test_a_fully_connected_network_of_ones_own_is_shown() -> None:
    subject = opened(Ladder, 4)
    assert {"backprop", "boundary"} <= set(suitable_views(subject))
    drawing = describe_view("backprop", subject)["drawings"][0]
    assert [layer.get("name") for layer in drawing["layers"]] == [None, "rung.0", "top"]
    assert [column.get("name") for column in describe_view("boundary", subject)["drawings"][0]["columns"]][1:] == [
        "rung.0",
        "top",
    ]
    assert "normalized" in drawing["layers"][1]["neurons"][0]


def test_an_additive_attention_of_ones_own_is_found() -> None:
    model = nn.ModuleDict({"comparing": Additive()})
    assert isinstance(model["comparing"], SupportsAdditiveScores)
    assert list(attention_modules(model)) == list(num_heads_by_name(model)) == ["comparing"]


def test_a_residual_network_of_ones_own_is_compared() -> None:
    assert issubclass(Hops, SupportsResidualBlocks)
    compared = compare_with_plain(opened(Hops, 3, 8, 8))
    assert compared is not None
    assert compared.drawings[0]["title"] == "With and without shortcuts, 5 layers"
