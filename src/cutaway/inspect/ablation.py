"""Ablation and activation patching: the effect of single parts of a model.

    ablate   a part is zeroed, or changed otherwise, and the outputs, or a metric of them, are compared with before
    patch    a part of the clean computation replaces that of the corrupted one:

             share = (metric(patched) − metric(corrupted)) / (metric(clean) − metric(corrupted))

A share of 1 means that the part alone restores the whole difference, 0 that it restores nothing, and below 0 that it
increases the difference. Shares need not sum to 1. (K. Meng et al., 2022, <https://arxiv.org/abs/2202.05262>;
S. Heimersheim, N. Nanda, How to use and interpret activation patching, 2024, <https://arxiv.org/abs/2404.15255>.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import ModelError, SettingError, UnknownName, check_value
from ..models.images import as_output_tuple
from ..nn.eval_mode import eval_mode
from ..nn.graphs import MessagePassing
from .interventions import Edit, Inputs, Transplant, Zero, as_tuple, intervene
from .probes import capture
from .sites import OVER_TIME, PARTS, num_heads

Metric = Callable[[Tensor], Tensor | float]  # maps the head's outputs to one number
Names = str | Sequence[str]
Part = dict[str, Any]  # keywords of a site, such as channel=3


@dataclass(frozen=True)
class Effect:
    """The effect of changing one part."""

    module: str
    part: Part  # such as {"head": 3}; empty for the whole module
    value: float  # the metric with the change
    change: float  # difference to the metric without it; without a metric, the distance of the outputs


@dataclass(frozen=True)
class Restored:
    """The effect of one part of the clean computation."""

    module: str
    part: Part
    value: float  # the metric of the corrupted computation with this part from the clean one
    share: float  # restored share of the difference between corrupted and clean


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
    """Change one part at a time, and measure the effect.

    The model runs once per part in evaluation mode, and is left unchanged.

    Args:
        model: The model.
        inputs: The arguments of `forward`.
        modules: Names of modules, or patterns of names.
        by: Kind of the parts: head, channel, unit, position, row or edge. Default: each module as a whole.
        metric: Maps the head's outputs to one number. Default: root mean square difference of the outputs.
        only: Indices of the parts. Default: all.
        edit: Creates the change as `edit(module, **part)`. Default: `Zero`.

    Returns:
        The effects, largest change first.

    Raises:
        UnknownName: If a module does not exist.
        ModelError: If a module has no such parts.
    """
    given = as_tuple(inputs)
    with eval_mode(model), torch.no_grad():
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
    """Transfer one part at a time from the clean inputs' computation to that of the corrupted inputs.

    Args:
        model: The model.
        clean: The clean arguments of `forward`.
        corrupted: The corrupted arguments of `forward`.
        modules: Names of modules, or patterns of names.
        metric: Maps the head's outputs to one number.
        by: Kind of the parts, as for `ablate`.
        only: Indices of the parts. Default: all.

    Returns:
        The restored share of the difference in the metric for each part, largest first.

    Raises:
        UnknownName: If a module does not exist.
        ModelError: If the metric is equal for both inputs, or if a module has no such parts.
    """
    source, target = as_tuple(clean), as_tuple(corrupted)
    with eval_mode(model), torch.no_grad():
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
    return as_output_tuple(model(*inputs))[0]


def _distance(before: Tensor) -> Metric:
    return lambda outputs: (outputs.double() - before.double()).square().mean().sqrt()


def _parts(
    model: nn.Module, inputs: tuple[Tensor, ...], names: Names, by: str | None, only: Sequence[Any] | None
) -> list[tuple[str, Part]]:
    """Return each module with each of its selected parts."""
    if by is not None and by not in PARTS:
        raise UnknownName("part of a module", by, PARTS)
    check_value(
        by is not None or only is None, "only", only, "left out where modules are changed as a whole", SettingError
    )
    wanted = [names] if isinstance(names, str) else list(names)
    modules = {k: m for k, m in model.named_modules(remove_duplicate=False) if k}
    for name in wanted:
        if not any(fnmatchcase(k, name.partition("#")[0]) for k in modules):
            raise UnknownName("module", name, modules)
    found: list[tuple[str, Part]] = []
    for name in wanted:
        bare, sharp, run = name.partition("#")
        fitting = [k for k in modules if fnmatchcase(k, bare)]
        if len(fitting) > 1 and by is not None:  # of several modules, those with such parts
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
    """Return whether the module can have such parts, judged by its type."""
    if by == "head":
        return bool(num_heads(module))
    return by != "edge" or isinstance(module, MessagePassing)


def _numbers(model: nn.Module, inputs: tuple[Tensor, ...], name: str, module: nn.Module, by: str) -> Sequence[Any]:
    """Return the indices of a module's parts for these inputs."""
    if by == "head":
        if not num_heads(module):
            raise ModelError(f"{name} is a {type(module).__name__}, which has no heads to choose from.")
        return range(num_heads(module))
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
