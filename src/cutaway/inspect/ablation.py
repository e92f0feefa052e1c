"""Interventions in a forward pass, with ablation and activation patching of single parts of a model.

    with cutaway.inspect.intervene(model, Zero("blocks.0.attention", head=3)):
        y = model(x)                                 # without the contribution of that head

    Zero(place)                  zeros
    Scale(place, factor)         the value times a factor
    Replace(place, value)        a number, or a tensor of matching shape
    Noise(place, std)            the value plus normal noise, the same for the same seed
    Transplant(place, inputs)    the value for other inputs of the model

A place is a module's name and optionally channel, unit, position, row, head or edge for a part of its output: see
`captures.py`. `ablate` changes parts one by one and ranks them. `patch` transfers parts from the computation of one
input to another's and measures how much of the difference each restores. This is known as activation patching or causal
tracing: J. Vig et al., 2020 <https://arxiv.org/abs/2004.12265>; K. Meng et al., 2022
<https://arxiv.org/abs/2202.05262>. It shows what this model depends on with these inputs, not what it would have
learned without the part. Later layers can compensate for an ablated part (T. McGrath et al., 2023,
<https://arxiv.org/abs/2307.15771>).

    ablate   a part is zeroed, or changed otherwise, and the outputs, or a metric of them, are compared with before
    patch    a part of the clean computation replaces that of the corrupted one:

             share = (metric(patched) − metric(corrupted)) / (metric(clean) − metric(corrupted))

A share of 1 means that the part alone restores the whole difference, 0 that it restores nothing, and below 0 that it
increases the difference. Shares need not sum to 1. (K. Meng et al., 2022, <https://arxiv.org/abs/2202.05262>;
S. Heimersheim, N. Nanda, How to use and interpret activation patching, 2024, <https://arxiv.org/abs/2404.15255>.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import InputShapeError, ModelError, SettingError, UnknownName, check_value
from ..models.base import as_output_tuple
from ..nn.graphs import MessagePassing
from ..nn.modules import eval_mode
from .captures import OVER_TIME, PARTS, Change, Runs, Site, capture, num_heads
from .example_inputs import reject_compiled

Inputs = Tensor | Sequence[Tensor]  # arguments of the model's forward


class Edit:
    """A change at a place. Base class of Zero, Scale, Replace, Noise and Transplant."""

    place: Site

    def value(self, x: Tensor, run: int, first: int) -> Tensor:
        """Return the replacement of x, in its shape.

        x is the module's whole result at the place in its run-th run of a call; for graph attention that computes its
        heads in groups, from head `first` on.
        """
        raise NotImplementedError

    def change(self, x: Tensor, where: Tensor | None, run: int, first: int) -> Tensor:
        """Return x with the change applied, in the same shape; x itself if nothing changes."""
        if where is not None and not bool(where.any()):
            return x
        new = self.value(x, run, first)
        return new if where is None else torch.where(where, new, x)


class Zero(Edit):
    """Change that replaces a part of a module's output by zeros: `Zero("layer2", channel=[3, 5])`.

    Args:
        module: Name of the module, as in `model.named_modules()`. `name#2` is only its second call in a forward pass.
        **place: The part: channel, unit, position, row, head or edge, each an index or a list of indices. By default,
            the whole output.
    """

    def __init__(self, module: str, **place: Any) -> None:
        self.place = _place(module, place)

    def value(self, x: Tensor, run: int, first: int) -> Tensor:
        """Return zeros in the shape of x."""
        return torch.zeros_like(x)


class Scale(Edit):
    """Change that multiplies a part of a module's output by a factor: `Scale("blocks.0.attention", 0.5, head=3)`.

    Args:
        module: Name of the module, as in `model.named_modules()`. `name#2` is only its second call in a forward pass.
        factor: A number, or a tensor that broadcasts to the output of the module. With `head`, a tensor of shape
            (heads,) has the factor of each head of the layer.
        **place: The part: channel, unit, position, row, head or edge, each an index or a list of indices. By default,
            the whole output.
    """

    def __init__(self, module: str, factor: float | Tensor, **place: Any) -> None:
        self.place, self.factor = _place(module, place), factor

    def value(self, x: Tensor, run: int, first: int) -> Tensor:
        """Return x times the factor. Raises ModelError for a tensor that does not fit."""
        factor = torch.as_tensor(self.factor).to(x)
        if self.place.head is not None and factor.ndim == 1:  # one for each head
            # x is (N, T, heads, d_v), or for graph attention (heads of a group, E)
            factor = factor[:, None] if x.ndim == 4 else factor[first : first + len(x), None]
        return x * _fitted(factor, x, self.place.module, "the factor")


class Replace(Edit):
    """Change that replaces a part of a module's output by a number or a tensor: `Replace("layer2", 1.5, unit=3)`.

    Args:
        module: Name of the module, as in `model.named_modules()`. `name#2` is only its second call in a forward pass.
        value: A number, or a tensor that expands to the shape of the module's output.
        **place: The part: channel, unit, position, row, head or edge, each an index or a list of indices. By default,
            the whole output.
    """

    def __init__(self, module: str, value: float | Tensor, **place: Any) -> None:
        self.place, self.given = _place(module, place), value

    def value(self, x: Tensor, run: int, first: int) -> Tensor:
        """Return the value in the shape of x. Raises ModelError for a tensor that does not fit."""
        given = torch.as_tensor(self.given).to(x)
        return _fitted(given, x, self.place.module, "the value")


class Noise(Edit):
    """Change that adds normal noise to a part of a module's output: `Noise("embedding", 0.1, position=2)`.

    The noise is the same in every forward pass.

    Args:
        module: Name of the module, as in `model.named_modules()`. `name#2` is only its second call in a forward pass.
        std: Standard deviation, at least 0, in the units of the output.
        seed: Seed of the noise.
        **place: The part: channel, unit, position, row, head or edge, each an index or a list of indices. By default,
            the whole output.
    """

    def __init__(self, module: str, std: float, seed: int = 0, **place: Any) -> None:
        check_value(std >= 0, "std", std, "at least 0", SettingError)
        self.place, self.std, self.seed = _place(module, place), std, seed

    def value(self, x: Tensor, run: int, first: int) -> Tensor:
        """Return x plus noise of its shape from its own generator, the same in every call."""
        generator = torch.Generator().manual_seed(self.seed + 7919 * run + first)  # each run of a call has its own
        return x + self.std * torch.randn(x.shape, generator=generator).to(x)


class Transplant(Edit):
    """Change that replaces a part of a module's output by its value for other inputs: `Transplant("layer2", other)`.

    The model runs once on the other inputs, when the `with` block of `intervene` begins.

    Args:
        module: Name of the module, as in `model.named_modules()`. `name#2` is only its second call in a forward pass.
        inputs: The other inputs, a tensor or several arguments of `forward`, with as many examples as the inputs of the
            model in the block, or with one example for all of them.
        **place: The part: channel, unit, position, row, head or edge, each an index or a list of indices. By default,
            the whole output.
    """

    def __init__(self, module: str, inputs: Inputs, **place: Any) -> None:
        self.place, self.inputs = _place(module, place), as_tuple(inputs)
        self.found: list[Tensor] = []  # the values by run of the module
        self.in_turns = False  # whether heads are computed in groups

    def value(self, x: Tensor, run: int, first: int) -> Tensor:
        """Return the recorded value in the shape of x. Raises ModelError if it does not fit, or the module ran less
        often.
        """
        if run > len(self.found):
            raise ModelError(
                f"{self.place.name} is called more often than with the source inputs ({len(self.found)} times): "
                "use inputs of equal length."
            )
        there = self.found[run - 1]
        if self.in_turns:
            there = there[first : first + len(x)]
        return _fitted(there, x, self.place.module, "the source activation")


def _place(module: str, parts: dict[str, Any]) -> Site:
    for name in parts:
        if name not in PARTS:
            raise UnknownName("part of a module", name, PARTS)
    place = Site(module, **parts)
    _ = place.run  # validates the name immediately
    return place


def _attach_keywords(place: Site) -> dict[str, Any]:
    """Return keywords that make `attach` use heads, edges or outputs, as the place does."""
    return {"head": place.head} if place.head is not None else {"edge": place.edge} if place.edge is not None else {}


def as_tuple(inputs: Inputs) -> tuple[Tensor, ...]:
    """Return the arguments of forward as a tuple, also for a single tensor."""
    return (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)


def _fitted(given: Tensor, x: Tensor, module: str, what: str) -> Tensor:
    """Expand `given` to the shape of x. Raises ModelError if it does not fit."""
    try:
        return given.expand(x.shape)
    except RuntimeError:
        raise InputShapeError(
            f"Invalid shape {tuple(given.shape)} of {what}: must fit the activation of {module}, {tuple(x.shape)}."
        ) from None


@contextmanager
def intervene(model: nn.Module, *edits: Edit) -> Iterator[None]:
    """Change the computation of a model within a `with` block.

    Changes of the same part are applied one after the other. Gradients pass through the unchanged parts. The model is
    restored afterwards, also if the block raises an error.

    Args:
        model: The model.
        *edits: The changes: `Zero`, `Scale`, `Replace`, `Noise` or `Transplant`.

    Returns:
        A context manager, whose value is None.

    Raises:
        UnknownName: If a module does not exist.
        ModelError: If the model is compiled, a module has no heads or edges, or, when the model runs, a tensor does not
            fit the output of the module.
        SettingError: When the model runs, if an index is out of range.
    """
    reject_compiled(model)
    for edit in edits:
        edit.place.find(model)
    given: dict[tuple[int, ...], list[Transplant]] = {}
    for edit in edits:
        if isinstance(edit, Transplant):
            given.setdefault(tuple(map(id, edit.inputs)), []).append(edit)
    for transplants in given.values():
        _take(model, transplants)
    with _changing(model, [(edit.place, edit.change) for edit in edits]):
        yield


def _take(model: nn.Module, transplants: Sequence[Transplant]) -> None:
    """Run the model once on common inputs of several transplants, and store their values."""
    found: list[dict[int, list[Tensor]]] = [{} for _ in transplants]

    def keeping(parts: dict[int, list[Tensor]]) -> Change:
        def keep(x: Tensor, where: Tensor | None, run: int, first: int) -> Tensor:
            parts.setdefault(run, []).append(x.detach().clone())
            return x

        return keep

    places = [Site(t.place.name, **_attach_keywords(t.place)) for t in transplants]
    with torch.no_grad(), _changing(model, [(place, keeping(parts)) for place, parts in zip(places, found)]):
        model(*transplants[0].inputs)
    for transplant, parts in zip(transplants, found):
        transplant.found = [torch.cat(of_run) for _, of_run in sorted(parts.items())]
        at_edges = isinstance(transplant.place.find(model), MessagePassing)
        transplant.in_turns = at_edges and bool(_attach_keywords(transplant.place))


@contextmanager
def _changing(model: nn.Module, changes: Sequence[tuple[Site, Change]]) -> Iterator[None]:
    runs = Runs()
    with ExitStack() as undo:
        undo.callback(model.register_forward_pre_hook(lambda *_: runs.begin()).remove)
        for place, change in changes:
            for step in place.attach(model, change, runs):
                undo.callback(step)
        undo.callback(model.register_forward_hook(lambda *_: runs.end(), always_call=True).remove)
        yield


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
    """Ablate one part of a model at a time, and measure the effect on its outputs.

    The model runs once for each part, in eval mode, and is left unchanged.

    Args:
        model: The model.
        inputs: The inputs, a tensor (N, …) or several arguments of `forward`.
        modules: Name of a module or a pattern such as "layer*.conv1", or a list of them.
        by: Kind of the parts: head, channel, unit, position, row or edge. By default, each module as a whole.
        metric: Function from the outputs of the model to a number. By default, the root mean square difference from the
            outputs without the change.
        only: Indices of the parts. By default, all.
        edit: Function that creates the change, called as `edit(module, **part)`. Default: `Zero`.

    Returns:
        One row for each part, the largest change first: `module`, `part` (such as {"head": 3}), `value`, the metric
        with the change, and `change`, its difference from the metric without the change.

    Raises:
        UnknownName: If a module or the kind of part does not exist.
        SettingError: If `only` is given without `by`, or an index is out of range.
        ModelError: If the modules have no such parts.
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
    """Patch one activation at a time from clean inputs into the computation for corrupted inputs (causal tracing).

    The model runs in eval mode, and is left unchanged.

    Args:
        model: The model.
        clean: The clean inputs, a tensor (N, …) or several arguments of `forward`.
        corrupted: The corrupted inputs, in the shapes of the clean ones.
        modules: Name of a module or a pattern such as "layer*.conv1", or a list of them.
        metric: Function from the outputs of the model to a number, such as the logit of the correct class.
        by: Kind of the parts, as for `ablate`. By default, each module as a whole.
        only: Indices of the parts. By default, all.

    Returns:
        One row for each part, the largest share first: `module`, `part`, `value`, the metric of the corrupted inputs
        with the clean part, and `share`, the restored share of the difference in the metric: 1 if the part restores the
        metric of the clean inputs, 0 if it has no effect.

    Raises:
        UnknownName: If a module or the kind of part does not exist.
        SettingError: If `only` is given without `by`, or an index is out of range.
        ModelError: If the metric is equal for both inputs, or the modules have no such parts.
    """
    source, target = as_tuple(clean), as_tuple(corrupted)
    with eval_mode(model), torch.no_grad():
        best, worst = float(metric(_outputs(model, source))), float(metric(_outputs(model, target)))
        if not abs(best - worst) > 0:
            raise ModelError(
                f"The metric is {best:.6g} for both the clean and the corrupted inputs, so there is no difference to "
                "restore. Choose inputs with different metrics."
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
    check_value(by is not None or only is None, "only", only, "left out if whole modules are ablated", SettingError)
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
            raise ModelError(f"{name} is a {type(module).__name__}, which has no attention heads.")
        return range(num_heads(module))
    if by == "edge":
        with capture(model, "messages", name) as seen:
            model(*inputs)
        return list(dict.fromkeys((int(s), int(t)) for s, t in seen["edges"][name].t().tolist()))
    with capture(model, "features", name) as seen:
        model(*inputs)
    if name not in seen["features"]:
        raise ModelError(f"{name} is not called for these inputs.")
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
    raise InputShapeError(f"Invalid by={by!r}: the output of {name}, {tuple(shape)}, has {has}.")
