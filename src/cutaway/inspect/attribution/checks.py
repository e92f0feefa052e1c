"""The sanity check of maps: does the map change when the model forgets what it has learned?

J. Adebayo et al., Sanity checks for saliency maps, 2018, section 3.1: cascading randomisation. From the output down,
layer by layer, weights are made random, each layer staying so; after each the map is drawn again and compared with the
first by the rank correlation of its sizes. What is still the same map when nothing that was learned is left says
something of the input, not of the model. Everything is done to a copy.

Matrices are drawn anew from a normal distribution about 0 with their own size; vectors (biases, gains) are shuffled.
The mean over several random networks is taken, more for a small map, which is alike by chance. Tokens, nodes and
edges of which neither map says anything are left out: they cannot be reached, whatever the weights are.
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

STAGES = 6  # at which the map is drawn again; more layers than that are made random several at once
LEAST_DRAWS, MOST_DRAWS = 3, 12
SPREAD = 0.15  # of the mean correlation that chance alone gives, at most
EXAMPLES = 4  # that are compared, at most

Again = Callable[[Entry], tuple[Tensor, Tensor | None]]  # the method: from an entry to its map


def randomised(entry: Entry, values: Tensor, beside: Tensor | None, again: Again, seed: int) -> Randomisation | None:
    """The rank correlations of the map with itself as weights become random; None where there is nothing to compare:
    a map of one number, one that is 0 everywhere, a model without weights."""
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
                randomise(modules[name], generator, done)
            now = _compared(entry, *again(entry.of(model)))
            sums[k] += _alike(entry, first, now)
    names = tuple(stage[-1] or type(entry.model).__name__ for stage in stages)
    return Randomisation(names, tuple(s / draws for s in sums), draws)


def layers_from_the_top(entry: Entry) -> list[str]:
    """The modules with weights of their own, the last that ran first; those that did not run as modules come last."""
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
    """The top layer by itself, then all others in about equal groups."""
    rest = layers[1:]
    groups = min(STAGES - 1, len(rest))
    return [layers[:1], *(rest[k * len(rest) // groups : (k + 1) * len(rest) // groups] for k in range(groups))]


@torch.no_grad()
def randomise(module: nn.Module, generator: torch.Generator, done: set[nn.Parameter]) -> None:
    """Make a module's own weights random in place, those of `done` excepted."""
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
    """The sizes that are ranked, (N, n): of a graph those of nodes or edges."""
    if entry.kind == "graph":
        return (values.abs() if values.ndim == 1 else values.abs().sum(1))[None]
    sizes = values[: len(entry.z)].flatten(1).abs()
    return sizes if beside is None else torch.cat([sizes, beside[: len(entry.z)].abs()], 1)


def _alike(entry: Entry, first: Tensor, now: Tensor) -> float:
    """The mean rank correlation of the examples whose first map is not of one value."""
    found = []
    for a, b in zip(first, now):
        said = (a != 0) | (b != 0) if entry.calls or entry.kind == "graph" else torch.ones_like(a, dtype=torch.bool)
        if a.max() > a.min():
            found.append(float(rank_correlation(a[said][None], b[said][None])))
    return sum(found) / len(found)


def rank_correlation(a: Tensor, b: Tensor) -> Tensor:
    """Spearman's rank correlation of each row, (N, n) and (N, n) to (N,): equal values share a mean rank. 0 where all
    values of a row are equal."""
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
