"""What depends on which part of a model: parts taken out one by one, or carried over from another input.

    ablate   a part is zeroed, or changed otherwise, and the outputs, or a metric of them, compared with what they were
    patch    a part of one computation, the clean one, is put into another, the corrupted one:

             share = (metric(patched) − metric(corrupted)) / (metric(clean) − metric(corrupted))

1 means that the part alone brings the whole difference back, 0 that it brings nothing, below 0 that it makes it larger.
Shares of several parts need not sum to 1. (K. Meng et al., 2022, <https://arxiv.org/abs/2202.05262>; S. Heimersheim,
N. Nanda, How to use and interpret activation patching, 2024, <https://arxiv.org/abs/2404.15255>.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import ModelError, SettingError, UnknownName, require
from ..models.images import answers_of
from ..nn.eval_mode import resting
from ..nn.graphs import MessagePassing
from .interventions import Edit, Inputs, Transplant, Zero, as_tuple, intervene
from .probes import capture
from .sites import OVER_TIME, PARTS, heads_of

Metric = Callable[[Tensor], Tensor | float]  # what the head gives, to one number
Names = str | Sequence[str]
Part = dict[str, Any]  # as channel=3: what a place is told by


@dataclass(frozen=True)
class Effect:
    """What changes when one part is changed."""

    module: str
    part: Part  # as {"head": 3}; empty for the whole module
    value: float  # of the metric, with the change
    change: float  # what the metric was without it, taken off; without a metric, how far the outputs move


@dataclass(frozen=True)
class Restored:
    """What one part of the clean computation brings back."""

    module: str
    part: Part
    value: float  # of the metric, in the corrupted computation with this part from the clean one
    share: float  # of the difference between corrupted and clean


def ablate(
    model: nn.Module,
    inputs: Inputs,
    modules: Names,
    *,
    by: str | None = None,
    metric: Metric | None = None,
    only: Sequence[Any] | None = None,
    edit: Callable[..., Edit] = Zero,
) -> list[Effect]:
    """Change one part after another, and say how much that changes: the largest change first.

    `modules` are names or patterns of names; `by` is head, channel, unit, position, row or edge, whose numbers `only`
    may choose from; without it each module is changed as a whole. `metric` makes one number of what the head gives;
    without one it is the root mean square of the differences of the outputs. `edit(module, **part)` makes the change:
    Zero unless said. It takes a run of the model for each part, in evaluation mode, which is left as it was.

    Raises UnknownName for modules that are not there, ModelError for those that have no such parts.
    """
    given = as_tuple(inputs)
    with resting(model), torch.no_grad():
        before = _outputs(model, given)
        measure = metric or _distance(before)
        was = float(measure(before))
        effects = []
        for module, part in _parts(model, given, modules, by, only):
            with intervene(model, edit(module, **part)):
                value = float(measure(_outputs(model, given)))
            effects.append(Effect(module, part, value, value - was))
    return sorted(effects, key=lambda effect: -abs(effect.change))


def patch(
    model: nn.Module,
    clean: Inputs,
    corrupted: Inputs,
    modules: Names,
    metric: Metric,
    *,
    by: str | None = None,
    only: Sequence[Any] | None = None,
) -> list[Restored]:
    """Carry one part after another over from the clean inputs' computation into the corrupted ones', and say how much
    of the difference in the metric each brings back: the largest share first. The rest is as for `ablate`.

    Raises ModelError where the metric does not tell clean and corrupted inputs apart.
    """
    source, target = as_tuple(clean), as_tuple(corrupted)
    with resting(model), torch.no_grad():
        best, worst = float(metric(_outputs(model, source))), float(metric(_outputs(model, target)))
        if not abs(best - worst) > 0:
            raise ModelError(
                f"The metric is {best:.6g} for the clean inputs and for the corrupted ones: there is no difference to "
                "bring back. Choose inputs that it tells apart."
            )
        found = []
        for module, part in _parts(model, target, modules, by, only):
            with intervene(model, Transplant(module, source, **part)):
                value = float(metric(_outputs(model, target)))
            found.append(Restored(module, part, value, (value - worst) / (best - worst)))
    return sorted(found, key=lambda restored: -restored.share)


def _outputs(model: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    return answers_of(model(*inputs))[0]


def _distance(before: Tensor) -> Metric:
    return lambda outputs: (outputs.double() - before.double()).square().mean().sqrt()


def _parts(
    model: nn.Module, inputs: tuple[Tensor, ...], names: Names, by: str | None, only: Sequence[Any] | None
) -> list[tuple[str, Part]]:
    """Each module and each part of it that is asked for."""
    if by is not None and by not in PARTS:
        raise UnknownName("part of a module", by, PARTS)
    require(by is not None or only is None, "only", only, "left out where modules are changed as a whole", SettingError)
    wanted = [names] if isinstance(names, str) else list(names)
    modules = {k: m for k, m in model.named_modules(remove_duplicate=False) if k}
    for name in wanted:
        if not any(fnmatchcase(k, name.partition("#")[0]) for k in modules):
            raise UnknownName("module", name, modules)
    found: list[tuple[str, Part]] = []
    for name in wanted:
        bare, sharp, run = name.partition("#")
        fitting = [k for k in modules if fnmatchcase(k, bare)]
        if len(fitting) > 1 and by is not None:  # of many, those that have such parts
            fitting = [k for k in fitting if _has(modules[k], by)] or fitting[:1]
        for k in fitting:
            if by is None:
                found.append((k + sharp + run, {}))
                continue
            every = list(_numbers(model, inputs, k, modules[k], by))
            for number in every if only is None else only:
                found.append((k + sharp + run, {by: number}))
    return list({(k, str(part)): (k, part) for k, part in found}.values())


def _has(module: nn.Module, by: str) -> bool:
    """Whether the module may have such parts, as far as its type tells."""
    if by == "head":
        return bool(heads_of(module))
    return by != "edge" or isinstance(module, MessagePassing)


def _numbers(model: nn.Module, inputs: tuple[Tensor, ...], name: str, module: nn.Module, by: str) -> Sequence[Any]:
    """The numbers of the parts that a module has, with these inputs."""
    if by == "head":
        if not heads_of(module):
            raise ModelError(f"{name} is a {type(module).__name__}, which has no heads to choose from.")
        return range(heads_of(module))
    if by == "edge":
        with capture(model, "messages", name) as seen:
            model(*inputs)
        return list(dict.fromkeys((int(s), int(t)) for s, t in seen["edges"][name].t().tolist()))
    with capture(model, "features", name) as seen:
        model(*inputs)
    if name not in seen["features"]:
        raise ModelError(f"{name} gives nothing with these inputs: the model does not run it.")
    shape = seen["features"][name].shape
    maps = len(shape) >= 4 or (len(shape) == 3 and isinstance(module, OVER_TIME))
    if by == "row":
        return range(shape[0])
    if by == "position" and len(shape) == 4:
        return [(i, j) for i in range(shape[2]) for j in range(shape[3])]
    if by == "position" and len(shape) == 3:
        return range(shape[2 if maps else 1])
    if by == ("channel" if maps else "unit"):
        return range(shape[1 if maps else -1])
    has = "channels and positions" if maps else "units and positions" if len(shape) == 3 else "units"
    raise ModelError(f"{name} gives {tuple(shape)}, which has no {by}s to take apart; it has {has}.")
