"""Interventions: changes of a model's intermediate results during a forward pass.

with cutaway.inspect.intervene(model, Zero("blocks.0.attention", head=3)):
    y = model(x)                                 # without the contribution of that head

    Zero(place)                  zeros
    Replace(place, value)        a number, or a tensor of matching shape
    Noise(place, std)            the value plus normal noise, the same for the same seed
    Transplant(place, inputs)    the value for other inputs of the model

A place is a module's name and optionally channel, unit, position, row, head or edge for a part of its output: see
`sites.py`. `ablate` changes parts one by one and ranks them. `patch` transfers parts from the computation of one input
to another's and measures how much of the difference each restores (`ablation.py`). This is known as activation patching
or causal tracing: J. Vig et al., 2020 <https://arxiv.org/abs/2004.12265>; K. Meng et al., 2022
<https://arxiv.org/abs/2202.05262>. It shows what this model depends on with these inputs, not what it would have
learned without the part. Later layers can compensate for an ablated part (T. McGrath et al., 2023,
<https://arxiv.org/abs/2307.15771>).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import ModelError, SettingError, UnknownName, check_value
from ..nn.graphs import MessagePassing
from .outputs import reject_compiled
from .sites import PARTS, Change, Runs, Site

Inputs = Tensor | Sequence[Tensor]  # arguments of the model's forward


class Edit:
    """A change at a place. Base class of Zero, Replace, Noise and Transplant."""

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
    """Replaces a part by zeros: `Zero("layer2", channel=[3, 5])`.

    Args:
        module: Name of the module.
        place: Keywords channel, unit, position, row, head or edge.
    """

    def __init__(self, module: str, **place: Any) -> None:
        self.place = _place(module, place)

    def value(self, x: Tensor, run: int, first: int) -> Tensor:
        """Return zeros in the shape of x."""
        return torch.zeros_like(x)


class Replace(Edit):
    """Replaces a part by a number or a tensor: `Replace("layer2", 1.5, unit=3)`.

    Args:
        module: Name of the module.
        value: A number, or a tensor that expands to the part.
        place: Keywords channel, unit, position, row, head or edge.
    """

    def __init__(self, module: str, value: float | Tensor, **place: Any) -> None:
        self.place, self.given = _place(module, place), value

    def value(self, x: Tensor, run: int, first: int) -> Tensor:
        """Return the value in the shape of x. Raises ModelError for a tensor that does not fit."""
        given = torch.as_tensor(self.given).to(x)
        return _fitted(given, x, self.place.module, "the value given")


class Noise(Edit):
    """Adds normal noise of a given standard deviation: `Noise("embedding", 0.1, position=2)`.

    Args:
        module: Name of the module.
        std: Standard deviation, at least 0.
        seed: Seed of the noise.
        place: Keywords channel, unit, position, row, head or edge.
    """

    def __init__(self, module: str, std: float, seed: int = 0, **place: Any) -> None:
        check_value(std >= 0, "std", std, "at least 0", SettingError)
        self.place, self.std, self.seed = _place(module, place), std, seed

    def value(self, x: Tensor, run: int, first: int) -> Tensor:
        """Return x plus noise of its shape from its own generator, the same in every call."""
        generator = torch.Generator().manual_seed(self.seed + 7919 * run + first)  # each run of a call has its own
        return x + self.std * torch.randn(x.shape, generator=generator).to(x)


class Transplant(Edit):
    """Replaces a part by its value for other inputs: `Transplant("layer2", other, position=(4, 4))`.

    The model runs once on the other inputs, when the block begins.

    Args:
        module: Name of the module.
        inputs: Arguments of `forward`, with as many examples as the later inputs, or one for all of them.
        place: Keywords channel, unit, position, row, head or edge.
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
                f"{self.place.name} runs more often than with the inputs to be transplanted, {len(self.found)} times: "
                "give inputs of one length."
            )
        there = self.found[run - 1]
        if self.in_turns:
            there = there[first : first + len(x)]
        return _fitted(there, x, self.place.module, "what is to be transplanted")


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
        raise ModelError(
            f"What is there in {module} is {tuple(x.shape)}, and {what} is {tuple(given.shape)}: give one that fits."
        ) from None


@contextmanager
def intervene(model: nn.Module, *edits: Edit) -> Iterator[None]:
    """Apply changes to the model's computation within the context, one after the other where they overlap.

    Gradients pass through the unchanged parts. The model is restored afterwards, also if the block raises.

    Args:
        model: The model.
        edits: The changes: `Zero`, `Replace`, `Noise` or `Transplant`.

    Raises:
        UnknownName: If a module or a kind of part does not exist.
        ModelError: If a value does not fit, or a module has no heads or edges.
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
