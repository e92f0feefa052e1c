"""The sanity check of attribution maps: a map must change when the weights of the model are randomized.

J. Adebayo et al., Sanity checks for saliency maps, 2018, section 3.1: cascading randomization. From the output down,
the weights are randomized layer by layer. After each stage the map is computed again and compared with the first one by
the rank correlation of absolute values. A map that stays the same with random weights shows the input, not the model.
All changes are made to a copy.

Matrices are replaced by samples of a normal distribution with mean 0 and the same scale; vectors (biases, gains) are
shuffled. The result is the mean over several random networks, more of them for a small map, which is similar by chance.
Tokens, nodes and edges that are 0 in both maps are excluded, because they are unreachable for any weights.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .differentiable_input import Entry
from .result import Randomisation

STAGES = 6  # after which the map is computed again; more layers are randomized in groups
LEAST_DRAWS, MOST_DRAWS = 3, 12
SPREAD = 0.15  # largest standard deviation of the mean correlation by chance
EXAMPLES = 4  # largest number of examples that are compared

Again = Callable[[Entry], tuple[Tensor, Tensor | None]]  # the method: maps an entry to its map


def randomization_check(
    entry: Entry, values: Tensor, beside: Tensor | None, again: Again, seed: int
) -> Randomisation | None:
    """Return the rank correlations of the map with itself as weights are randomized.

    The result is None for a map of one number, a map of zeros, or a model without weights.
    """
    entry = entry.part(EXAMPLES)
    first = _compared(entry, values, beside)  # (N, n)
    layers = layers_from_the_top(entry)
    if not layers or not bool((first.amax(1) > first.amin(1)).any()):
        return None
    size = int((first != 0).sum(1).clamp(min=2).min())
    draws = min(MOST_DRAWS, max(LEAST_DRAWS, math.ceil(1 / (SPREAD**2 * (size - 1)))))
    stages = _stages(layers)
    sums = [0.0] * len(stages)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(draws):
        model = copy.deepcopy(entry.model)
        modules = dict(model.named_modules())
        done: set[nn.Parameter] = set()
        for k, stage in enumerate(stages):
            for name in stage:
                randomize_module(modules[name], generator, done)
            now = _compared(entry, *again(entry.of(model)))
            sums[k] += _alike(entry, first, now)
    names = tuple(stage[-1] or type(entry.model).__name__ for stage in stages)
    return Randomisation(names, tuple(s / draws for s in sums), draws)


def layers_from_the_top(entry: Entry) -> list[str]:
    """Return the modules with own weights in reverse order of execution; modules that did not run come last."""
    order: dict[str, None] = {}

    def watch(name: str) -> Any:
        return lambda module, args: order.setdefault(name)

    own = {name: m for name, m in entry.model.named_modules() if any(True for _ in m.parameters(recurse=False))}
    handles = [module.register_forward_pre_hook(watch(name)) for name, module in own.items()]
    try:
        with torch.no_grad():
            entry.score(entry.z, entry.rows)
    finally:
        for handle in handles:
            handle.remove()
    return [*reversed(order), *(name for name in reversed(own) if name not in order)]


def _stages(layers: list[str]) -> list[list[str]]:
    """Return the top layer alone, then all others in groups of about equal size."""
    rest = layers[1:]
    groups = min(STAGES - 1, len(rest))
    return [layers[:1], *(rest[k * len(rest) // groups : (k + 1) * len(rest) // groups] for k in range(groups))]


@torch.no_grad()
def randomize_module(module: nn.Module, generator: torch.Generator, done: set[nn.Parameter]) -> None:
    """Randomize a module's own weights in place, except those in `done`."""
    for parameter in module.parameters(recurse=False):
        if parameter in done:
            continue
        done.add(parameter)
        if parameter.ndim >= 2:
            size = float(parameter.float().square().mean().sqrt())
            drawn = torch.randn(parameter.shape, generator=generator) * size
            parameter.copy_(drawn.to(parameter))
        else:
            order = torch.randperm(parameter.numel(), generator=generator)
            parameter.copy_(parameter.flatten()[order].view_as(parameter))


def _compared(entry: Entry, values: Tensor, beside: Tensor | None) -> Tensor:
    """Return the absolute values that are ranked, (N, n): for a graph those of nodes or edges."""
    if entry.kind == "graph":
        return (values.abs() if values.ndim == 1 else values.abs().sum(1))[None]
    sizes = values[: len(entry.z)].flatten(1).abs()
    return sizes if beside is None else torch.cat([sizes, beside[: len(entry.z)].abs()], 1)


def _alike(entry: Entry, first: Tensor, now: Tensor) -> float:
    """Return the mean rank correlation over the examples whose first map is not constant."""
    found = []
    for a, b in zip(first, now):
        said = (a != 0) | (b != 0) if entry.calls or entry.kind == "graph" else torch.ones_like(a, dtype=torch.bool)
        if a.max() > a.min():
            found.append(float(rank_correlation(a[said][None], b[said][None])))
    return sum(found) / len(found)


def rank_correlation(a: Tensor, b: Tensor) -> Tensor:
    """Return Spearman's rank correlation of each row, (N, n) and (N, n) to (N,).

    Ties share their mean rank. The correlation is 0 where a row is constant.
    """
    ranks = [torch.stack([_ranks(row) for row in x.double()]) for x in (a, b)]
    x, y = (r - r.mean(1, keepdim=True) for r in ranks)
    lengths = torch.linalg.vector_norm(x, dim=1) * torch.linalg.vector_norm(y, dim=1)
    correlation: Tensor = (x * y).sum(1) / lengths.clamp(min=1e-12)
    return correlation


def _ranks(x: Tensor) -> Tensor:
    _, place, count = torch.unique(x, return_inverse=True, return_counts=True)
    last = count.cumsum(0).double()
    ranks: Tensor = (last - (count - 1) / 2)[place]
    return ranks
