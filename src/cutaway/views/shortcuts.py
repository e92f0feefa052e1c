"""The effect of shortcuts on gradients: their part at a block's input, and a comparison with plain networks.

From y = ReLU(F(x) + W_s x) follows, with g = ∂L/∂y where y > 0 and 0 elsewhere,

    ∂L/∂x = W_sᵀ g + (∂F/∂x)ᵀ g

K. He, X. Zhang, S. Ren, J. Sun, Identity mappings in deep residual networks, 2016, equation 5, has it for blocks
without the outer ReLU <https://arxiv.org/abs/1603.05027>: the first part reaches every block at any depth.

Small residual networks are compared with the same networks without shortcuts, at initialization. Without shortcuts and
with batch normalization, gradients do not vanish but grow from layer to layer towards the input (G. Yang et al., A mean
field theory of batch normalization, 2019, <https://arxiv.org/abs/1902.08129>). With shortcuts the growth is that of a
sum, not of a product.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..draw import charts
from ..draw.description import Drawing
from ..draw.number_format import SUPERSCRIPT, number, percent
from ..inspect.probes import capture
from ..models.base import SupportsResidualBlocks
from ..models.resnet import NoShortcut
from .common import batch_norm_mode
from .subject import Subject

SIDE, CHANNELS, EXAMPLES, CLASSES = 16, 3, 8, 10  # size of the reduced networks' inputs, and number of classes
PARTS = (0.25, 0.5, 1.0)  # fractions of the blocks that are compared
MOST = 27  # most blocks


@dataclass(frozen=True)
class GradientComparison:
    """The drawings and the summary of a comparison."""

    drawings: list[Drawing]
    said: str


def compare_paths(subject: Subject) -> GradientComparison | None:
    """Compare both parts at the input of each block but the first; None without shortcuts or for a single block."""
    norms = path_norms(subject)
    if not norms:
        return None
    named = {name: [x[i] for x in norms] for i, name in enumerate(("through the shortcut", "through the layers"))}
    places = range(2, len(norms) + 2)
    series = [
        {
            "name": name,
            "split": split,
            "points": [[x, float(f"{y:.4g}") if y > 0 else None] for x, y in zip(places, of)],
        }
        for (name, of), split in zip(named.items(), ("test", "val"))
    ]
    direct = sum(a > b for a, b in norms)
    said = (
        f"At the inputs of {direct} of {len(norms)} blocks ({percent(direct / len(norms))}), the larger part of the "
        f"gradient comes through the shortcut."
    )
    return GradientComparison(
        [charts.lines("Gradient at a block's input", "block", series, log=True, zero=False)], said
    )


def path_norms(subject: Subject) -> list[tuple[float, float]]:
    """Return ‖W_sᵀ g‖ and ‖(∂F/∂x)ᵀ g‖ at the input of each block but the first; an empty list without shortcuts.

    Batch normalization uses the statistics of these examples, as in training.
    """
    model = subject.model
    if not isinstance(model, SupportsResidualBlocks) or len(blocks := model.residual_blocks()) < 2:
        return []
    if isinstance(blocks[0].get_submodule("downsample"), NoShortcut):
        return []
    inputs = tuple(x.detach().clone().requires_grad_() if x.is_floating_point() else x for x in subject.inputs)
    subject = dataclasses.replace(subject, inputs=inputs)
    try:
        return _parts(subject, blocks, of_the_batch=True)
    except ValueError:  # one value of a unit has no statistics
        return _parts(subject, blocks, of_the_batch=False)


def _parts(subject: Subject, blocks: list[nn.Module], of_the_batch: bool) -> list[tuple[float, float]]:
    names = {module: name for name, module in subject.model.named_modules()}
    with torch.enable_grad(), torch.random.fork_rng([]), batch_norm_mode(subject.model, of_the_batch):
        torch.manual_seed(0)
        with capture(subject.model, ("features", "gradients"), *(names[block] for block in blocks)) as seen:
            torch.autograd.grad(subject.loss(), [x for x in subject.inputs if x.requires_grad])
        found = {block: (seen["features"][names[block]], seen["gradients"][names[block]]) for block in blocks}
        return [
            _norms(block.get_submodule("downsample"), *found[before], *found[block])
            for before, block in itertools.pairwise(blocks)
        ]


def _norms(shortcut: nn.Module, x: Tensor, whole: Tensor, y: Tensor, above: Tensor) -> tuple[float, float]:
    """Return the norms of the two parts of ∂L/∂x.

    x and y are the input and the output of a block, (N, C, H, W); `whole` is ∂L/∂x and `above` is ∂L/∂y.
    """
    x = x.detach().clone().requires_grad_()
    (direct,) = torch.autograd.grad(shortcut(x), x, above * (y > 0))
    return float(direct.norm()), float((whole - direct).norm())


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
        f"In an untrained small version of {depth} layers, the gradient at the first block is {_ratio(ratios[0])} "
        f"times that at the last; without shortcuts, from the same seed, {_ratio(ratios[1])} times."
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
