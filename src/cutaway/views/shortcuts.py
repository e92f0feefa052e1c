"""The gradient at a residual block's input, split into the part through the shortcut and the part through the layers.

From y = ReLU(F(x) + W_s x) follows, with g = ∂L/∂y where y > 0 and 0 elsewhere,

    ∂L/∂x = W_sᵀ g + (∂F/∂x)ᵀ g

K. He, X. Zhang, S. Ren, J. Sun, Identity mappings in deep residual networks, 2016, equation 5, has it for blocks
without the outer ReLU <https://arxiv.org/abs/1603.05027>: the first part reaches every block at any depth.
"""

from __future__ import annotations

import dataclasses
import itertools

import torch
from torch import Tensor, nn

from ..draw import charts
from ..draw.number_format import percent
from ..inspect.probes import capture
from ..models.base import SupportsResidualBlocks
from ..models.resnet import NoShortcut
from .adversarial import GradientComparison
from .common import batch_norm_mode
from .subject import Subject


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
        f"At {direct} of the inputs of {len(norms)} blocks the part of the gradient that comes straight through the "
        f"shortcut is the larger one ({percent(direct / len(norms))})."
    )
    return GradientComparison(
        [charts.lines("The gradient at a block's input", "block", series, log=True, zero=False)], said
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
