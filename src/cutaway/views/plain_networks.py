"""Residual networks beside the same networks without shortcuts, as they begin: where gradients go, depth by depth.

Without shortcuts and with batch normalization gradients do not vanish but grow from layer to layer towards the input
(G. Yang et al., A mean field theory of batch normalization, 2019, <https://arxiv.org/abs/1902.08129>); with shortcuts
the growth is that of a sum, not of a product.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..draw.description import Drawing
from ..draw.words import SUPERSCRIPT, number
from ..models import resnet
from .subject import Subject

SIDE, EXAMPLES, WIDTH, CLASSES = 16, 8, 8, 10  # of the small version that is compared
PARTS = (0.25, 0.5, 1.0)  # of the blocks, for the depths that are compared
MOST = 27  # blocks


@dataclass(frozen=True)
class Compared:
    """What the comparison shows."""

    drawings: list[Drawing]
    said: str


class Nothing(nn.Module):
    """In place of a shortcut: adds nothing."""

    def forward(self, x: Tensor) -> Tensor:
        """One zero."""
        return x.new_zeros(())


def beside_plain(subject: Subject) -> Compared | None:
    """Gradients with and without shortcuts in small networks of the same blocks; None where there are no shortcuts."""
    config = subject.config
    if not isinstance(config, resnet.Config):
        return None
    depths = [_small(config, part) for part in PARTS]
    depths = list({small.layers: small for small in depths}.values())
    found = [(_layers(small), block_norms(small, True), block_norms(small, False)) for small in depths]
    depth, residual, plain = found[-1]
    drawings = [
        _lines(
            f"With and without shortcuts, {depth} layers",
            "block",
            [_points(enumerate(norms, 1)) for norms in (residual, plain)],
        )
    ]
    if len(found) > 1:
        drawings.append(
            _lines(
                "First block over last, by depth",
                "layers",
                [_points((d, a[0] / a[-1]) for d, a in by_depth) for by_depth in _by_depth(found)],
            )
        )
    ratios = [norms[0] / norms[-1] if norms[-1] else math.nan for norms in (residual, plain)]
    said = (
        f"As it begins, a small version of {depth} layers has a gradient {_written(ratios[0])} times as strong at its "
        f"first block as at its last; without shortcuts, from the same seed, {_written(ratios[1])} times."
    )
    return Compared(drawings, said)


def _by_depth(found: list[tuple[int, list[float], list[float]]]) -> list[list[tuple[int, list[float]]]]:
    """The norms of the residual networks with their depths, and those of the plain ones."""
    return [[(depth, residual) for depth, residual, _ in found], [(depth, plain) for depth, _, plain in found]]


def block_norms(config: resnet.Config, shortcuts: bool) -> list[float]:
    """‖∂L/∂output‖ of each block of the network of seed 0, for random images and classes; blocks from first to last."""
    norms: dict[int, float] = {}
    with torch.random.fork_rng([]), torch.enable_grad():
        torch.manual_seed(0)
        model = resnet.Model(config).train()
        blocks = [m for m in model.modules() if isinstance(m, resnet.BasicBlock | resnet.Bottleneck)]
        for i, block in enumerate(blocks):
            if not shortcuts:
                block.downsample = Nothing()
            block.register_forward_hook(_note(norms, i))
        images = torch.randn(EXAMPLES, config.in_channels, SIDE, SIDE)
        classes = torch.randint(config.num_classes, (EXAMPLES,))
        F.cross_entropy(model(images), classes).backward()  # type: ignore[no-untyped-call]
    return [norms[i] for i in range(len(blocks))]


def _note(norms: dict[int, float], i: int) -> Any:
    def hook(module: nn.Module, args: Any, output: Tensor) -> None:
        output.register_hook(lambda g: norms.__setitem__(i, float(g.norm())))  # type: ignore[no-untyped-call]

    return hook


def _small(config: resnet.Config, part: float) -> resnet.Config:
    """The blocks of a network, or a part of them, at a size that takes no time."""
    part *= min(1.0, MOST / sum(config.layers))
    blocks = tuple(max(1, round(part * n)) for n in config.layers)
    return dataclasses.replace(config, layers=blocks, width=WIDTH, stem="cifar", in_channels=3, num_classes=CLASSES)


def _written(ratio: float) -> str:
    """A ratio to two digits, however large."""
    digits, power = f"{ratio:.1e}".split("e") if ratio >= 1e6 else ("", "")
    return f"{digits}×10{power.lstrip('+0').translate(SUPERSCRIPT)}" if power else number(float(f"{ratio:.3g}"))


def _layers(config: resnet.Config) -> int:
    """The layers with weights on the way from input to output."""
    return sum(config.layers) * (2 if config.block == "basic" else 3) + 2


def _points(pairs: Any) -> list[list[Any]]:
    return [[x, float(f"{y:.4g}") if math.isfinite(y) and y > 0 else None] for x, y in pairs]


def _lines(title: str, x: str, values: list[list[list[Any]]]) -> Drawing:
    names = (("residual", "test"), ("plain", "val"))
    series = [{"name": name, "part": part, "points": v} for (name, part), v in zip(names, values)]
    return {
        "kind": "lines", "title": title, "x": x, "format": "number", "log": True, "zero": False, "series": series,
        "mark": None,
    }  # fmt: skip
