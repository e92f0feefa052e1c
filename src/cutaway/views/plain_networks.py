"""Comparison of residual networks with the same networks without shortcuts, at initialization: gradients by depth.

Without shortcuts and with batch normalization, gradients do not vanish but grow from layer to layer towards the input
(G. Yang et al., A mean field theory of batch normalization, 2019, <https://arxiv.org/abs/1902.08129>). With shortcuts
the growth is that of a sum, not of a product.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ..draw import charts
from ..draw.description import Drawing
from ..draw.number_format import SUPERSCRIPT, number
from ..inspect.probes import capture
from ..models.base import SupportsResidualBlocks
from ..models.resnet import NoShortcut
from .subject import Subject

SIDE, CHANNELS, EXAMPLES, CLASSES = 16, 3, 8, 10  # size of the reduced networks' inputs, and number of classes
PARTS = (0.25, 0.5, 1.0)  # fractions of the blocks that are compared
MOST = 27  # most blocks


@dataclass(frozen=True)
class GradientComparison:
    """The drawings and the summary of a comparison."""

    drawings: list[Drawing]
    said: str


def compare_with_plain(subject: Subject) -> GradientComparison | None:
    """Compare gradients with and without shortcuts in small networks of the same blocks; None without shortcuts."""
    model = subject.model
    if not isinstance(model, SupportsResidualBlocks):
        return None
    most = min(1.0, MOST / len(model.residual_blocks()))
    both = [[block_norms(model, part * most, shortcuts) for shortcuts in (True, False)] for part in PARTS]
    found = list({depth: (depth, residual, plain) for (depth, residual), (_, plain) in both}.values())
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
                [_points((d, a[0] / a[-1]) for d, a in by_depth) for by_depth in _norms_by_depth(found)],
            )
        )
    ratios = [norms[0] / norms[-1] if norms[-1] else math.nan for norms in (residual, plain)]
    said = (
        f"As it begins, a small version of {depth} layers has a gradient {_ratio(ratios[0])} times as strong at its "
        f"first block as at its last; without shortcuts, from the same seed, {_ratio(ratios[1])} times."
    )
    return GradientComparison(drawings, said)


def _norms_by_depth(found: list[tuple[int, list[float], list[float]]]) -> list[list[tuple[int, list[float]]]]:
    """Return the depths and norms of the residual networks, and those of the plain ones."""
    return [[(depth, residual) for depth, residual, _ in found], [(depth, plain) for depth, _, plain in found]]


def block_norms(model: SupportsResidualBlocks, fraction: float, shortcuts: bool) -> tuple[int, list[float]]:
    """Return the depth of the reduced network of seed 0, and ‖∂L/∂output‖ of each block for random images and classes.

    The depth is the number of layers with weights from input to output. The blocks are in order, first to last.
    """
    with torch.random.fork_rng([]), torch.enable_grad():
        torch.manual_seed(0)
        small = model.reduced(fraction).train()
        blocks = small.residual_blocks()
        branches = [m for block in blocks for m in block.get_submodule("downsample").modules()]
        depth = sum(isinstance(m, nn.Conv2d | nn.Linear) and m not in branches for m in small.modules())
        for block in blocks if not shortcuts else ():
            block.downsample = NoShortcut()
        names = {module: name for name, module in small.named_modules()}
        images = torch.randn(EXAMPLES, CHANNELS, SIDE, SIDE)
        classes = torch.randint(CLASSES, (EXAMPLES,))
        with capture(small, "gradients", *(names[block] for block in blocks)) as seen:
            F.cross_entropy(small(images), classes).backward()  # type: ignore[no-untyped-call]
    return depth, [float(seen["gradients"][names[block]].norm()) for block in blocks]


def _ratio(ratio: float) -> str:
    """Return a ratio as text with two or three digits, however large."""
    digits, power = f"{ratio:.1e}".split("e") if ratio >= 1e6 else ("", "")
    return f"{digits}×10{power.lstrip('+0').translate(SUPERSCRIPT)}" if power else number(float(f"{ratio:.3g}"))


def _points(pairs: Any) -> list[list[Any]]:
    return [[x, float(f"{y:.4g}") if math.isfinite(y) and y > 0 else None] for x, y in pairs]


def _lines(title: str, x: str, values: list[list[list[Any]]]) -> Drawing:
    names = (("residual", "test"), ("plain", "val"))
    series = [{"name": name, "split": split, "points": v} for (name, split), v in zip(names, values)]
    return charts.lines(title, x, series, log=True, zero=False)
