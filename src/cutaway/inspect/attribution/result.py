"""The settings of an attribution method and its result: the map, with checks for completeness and for dependence on the
weights.

A map must change when the weights of the model are randomized. J. Adebayo et al., Sanity checks for saliency maps,
2018, section 3.1: cascading randomization. From the output down, the weights are randomized layer by layer. After each
stage the map is computed again and compared with the first one by the rank correlation of absolute values. A map that
stays the same with random weights shows the input, not the model. All changes are made to a copy.

Matrices are replaced by samples of a normal distribution with mean 0 and the same scale; vectors (biases, gains) are
shuffled. The result is the mean over several random networks, more of them for a small map, which is similar by chance.
Tokens, nodes and edges that are 0 in both maps are excluded, because they are unreachable for any weights.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...nn.modules import eval_mode
from .explained_output import Entry, Target

AT_ONCE = 1 << 22  # largest number of elements in one pass


@dataclass(frozen=True)
class MethodSettings:
    """Settings of a method."""

    steps: int | None = None  # points of the integral, or random samples; None: until convergence
    layer: str | None = None  # for Grad-CAM
    window: int | None = None  # side of the occlusion window, in pixels
    background: Tensor | None = None  # reference examples, as the first input, for GradientShap
    seed: int = 0


@dataclass(frozen=True)
class AttributionMap:
    """The result of a method."""

    values: Tensor  # one number for each part of the input
    total: Tensor  # (N,), their sum
    beside: Tensor | None = None  # for pairs: the other side
    start: Tensor | None = None  # (N,), F(baseline), if it differs from that of the entry
    tolerance: float | None = None  # tolerated relative gap; None: the values need not sum to the change
    about: str | None = None  # description of the baseline, if it differs from that of the entry
    based: bool = True  # whether there is a baseline
    layer: str | None = None
    steps: int | None = None


def absolute_sum(*maps: Tensor | None, examples: int) -> Tensor:
    """Return Σ |a| of each example, (N,)."""
    return torch.stack([m.detach().reshape(examples, -1).abs().sum(1) for m in maps if m is not None]).sum(0)


def copies_per_pass(entry: Entry) -> int:
    """Return the number of copies of the examples in one pass."""
    return max(1, AT_ONCE // max(1, entry.z.numel()))


def doubled(first: int, most: int) -> Iterator[int]:
    """Yield `first` and its doubles, up to `most`."""
    for k in range(int(math.log2(max(most // first, 1))) + 1):
        yield first * 2**k


@contextmanager
def isolated(model: nn.Module, seed: int) -> Iterator[None]:
    """Run with the model in evaluation mode and random numbers from `seed`, and restore the previous state afterwards.

    This includes the mode, and torch's and numpy's random states. Library warnings, which users cannot act on, are
    hidden.
    """
    state = np.random.get_state()  # noqa: NPY002  # captum draws from it
    try:
        with (
            eval_mode(model),
            warnings.catch_warnings(),
            torch.random.fork_rng([]),
            torch.enable_grad(),
            torch.backends.cudnn.flags(
                enabled=False
            ),  # recurrent layers have no gradient with cuDNN in evaluation mode
        ):
            warnings.simplefilter("ignore")
            torch.manual_seed(seed)
            np.random.seed(seed % 2**32)  # noqa: NPY002
            yield
    finally:
        np.random.set_state(state)  # noqa: NPY002


ALIKE = 0.7  # rank correlation from which on maps count as equal: they share half of their variance


@dataclass(frozen=True)
class Completeness:
    """The check that attributions sum to the change of the output: Σ a_i = F(x) − F(baseline)."""

    sum: Tensor  # (N,), sum of the attributions
    change: Tensor  # (N,), change of the output from the baseline to the input
    size: Tensor  # (N,), Σ |a_i|
    tolerance: float | None  # tolerated relative gap; None: the method does not guarantee a sum
    rounding: Tensor | float = 0.0  # (N,), rounding error of F(x) and F(baseline)

    @property
    def gap(self) -> float:
        """The largest |Σ a − change| of the examples, in units of the output."""
        return float((self.sum - self.change).abs().max())

    @property
    def relative(self) -> float:
        """The largest gap beyond rounding, relative to the change or to Σ |a|, whichever is larger.

        Attributions that cancel out are thus compared with their own size. The value is 0 if all are 0.
        """
        return float((((self.sum - self.change).abs() - self.rounding).clamp(min=0) / self._scale).max())

    @property
    def _scale(self) -> Tensor:
        return torch.maximum(self.change.abs(), self.size).clamp(min=1e-12)

    @property
    def passed(self) -> bool | None:
        """True if the gap is tolerated, None if the method does not guarantee a sum. NaN does not pass."""
        return None if self.tolerance is None else self.relative <= self.tolerance

    @property
    def says(self) -> str:
        """The finding as a sentence."""
        if self.tolerance is None:
            return "The values of this method need not sum to the change of the output."
        total, change = float(self.sum[0]), float(self.change[0])
        of = "the change" if bool((self.change.abs() >= self.size).all()) else "the sum of absolute values"
        found = f"The values sum to {_format_number(total)}; the output changes by {_format_number(change)}"
        found += f" (gap {100 * self.relative:.1f}\u202f% of {of})."
        if self.passed:
            return found
        return f"{found} They should be equal: the attribution is incomplete."


@dataclass(frozen=True)
class Randomisation:
    """The check that the map changes when weights are randomized, layer by layer from the output down.

    After J. Adebayo, J. Gilmer, M. Muelly, I. Goodfellow, M. Hardt, B. Kim, Sanity checks for saliency maps, 2018,
    section 3. <https://arxiv.org/abs/1810.03292>
    """

    layers: tuple[str, ...]  # the last randomized layer at each stage; all layers above it are random too
    correlation: tuple[float, ...]  # Spearman's correlation of |map| with the first one at each stage
    draws: int  # number of random networks in the mean

    @property
    def last(self) -> float:
        """The correlation with all weights random."""
        return self.correlation[-1]

    @property
    def passed(self) -> bool:
        """True if the map with random weights differs."""
        return self.last < ALIKE

    @property
    def says(self) -> str:
        """The finding as a sentence."""
        found = f"The rank correlation of the map with that of fully randomized weights is {_format_number(self.last)}."
        if self.passed:
            return found
        return f"{found} The map reflects the input and the architecture more than the learned weights."


@dataclass(frozen=True)
class Attribution:
    """The attribution of one number of the output to the parts of the input."""

    method: str
    kind: str  # of the input: table, image, series, text, pairs, video, graph
    values: (
        Tensor  # (N, F), images (N, H, W), series (N, T, F), tokens (N, T), video (N, T, H, W), graphs (V, F) or (E,)
    )
    beside: Tensor | None  # for pairs, (N, S): the tokens of the target so far
    baseline: Tensor | None  # the neutral input, or its embedding; None if none is needed
    about: str  # description of the baseline
    target: Target
    output: Tensor  # (N,), the explained number
    completeness: Completeness
    randomisation: Randomisation | None = None
    why_not: str = ""  # the reason why the weights were not randomized
    layer: str | None = None  # for Grad-CAM
    steps: int | None = None  # points of the integral, or random samples

    def __repr__(self) -> str:
        return f"Attribution({self.method!r}, {self.kind}, values {tuple(self.values.shape)}, passed={self.passed})"

    @property
    def checks(self) -> tuple[Completeness | Randomisation, ...]:
        """All checks of the map."""
        return (self.completeness, self.randomisation) if self.randomisation else (self.completeness,)

    @property
    def passed(self) -> bool:
        """True if no check failed. A check that was not run, or does not apply, does not count; `says` has the
        details.
        """
        return all(check.passed is not False for check in self.checks)

    @property
    def says(self) -> str:
        """The findings of the checks as text."""
        return " ".join([*(check.says for check in self.checks), *([self.why_not] if self.why_not else [])])

    @property
    def warning(self) -> str | None:
        """The sentences of the checks that failed, which a picture must show, or None."""
        failed = [check.says for check in self.checks if check.passed is False]
        return " ".join(failed) or None


def _format_number(value: float) -> str:
    """Format with three digits and a minus sign."""
    return f"{value:.3g}".replace("-", "−")


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
