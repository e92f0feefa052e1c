"""Changing what a model computes while it computes it, to learn what depends on it.

with cutaway.inspect.intervene(model, Zero("blocks.0.attention", head=3)):
    y = model(x)                                 # as if that head gave nothing

    Zero(place)                  nothing
    Replace(place, value)        a number, or a tensor that fits what is there
    Noise(place, std)            what is there and normal noise, the same each time for the same seed
    Transplant(place, inputs)    what is there when the model is given other inputs

A place is a module's name and, where less than all of its output is meant, channel, unit, position, row, head or edge:
see `places.py`. `ablate` takes parts out one by one and ranks them; `patch` puts parts of one input's computation into
another's and says how much of the difference each brings back (`ablation.py`). This is known as activation patching or
causal tracing: J. Vig et al., 2020 <https://arxiv.org/abs/2004.12265>; K. Meng et al., 2022
<https://arxiv.org/abs/2202.05262>. What it shows is what this model depends on with these inputs, not what it would
have learned without the part; and what is taken out can be made up for by what comes after it (T. McGrath et al.,
2023, <https://arxiv.org/abs/2307.15771>).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import ModelError, SettingError, UnknownName, require
from ..nn.graphs import MessagePassing
from .outputs import reject_compiled
from .sites import PARTS, Change, Runs, Site

Inputs = Tensor | Sequence[Tensor]  # what the model's forward takes


class Edit:
    """What is to be changed: where, and into what. One of Zero, Replace, Noise and Transplant."""

    place: Site

    def value(self, x: Tensor, run: int, first: int) -> Tensor:
        """What stands in the place of x, in its shape: x is all that the module computes there in its run-th run of a
        call; of graph attention that computes its heads in turns, from head `first` on."""
        raise NotImplementedError

    def change(self, x: Tensor, where: Tensor | None, run: int, first: int) -> Tensor:
        """x with what is to be changed in it, in the same shape; x itself where nothing is."""
        if where is not None and not bool(where.any()):
            return x
        new = self.value(x, run, first)
        return new if where is None else torch.where(where, new, x)


class Zero(Edit):
    """Nothing, in place of what is there: `Zero("layer2", channel=[3, 5])`."""

    def __init__(self, module: str, **place: Any) -> None:
        self.place = _place(module, place)

    def value(self, x: Tensor, run: int, first: int) -> Tensor:
        """Zeros, in the shape of x."""
        return torch.zeros_like(x)


class Replace(Edit):
    """A number or a tensor, in place of what is there: `Replace("layer2", 1.5, unit=3)`."""

    def __init__(self, module: str, value: float | Tensor, **place: Any) -> None:
        self.place, self.given = _place(module, place), value

    def value(self, x: Tensor, run: int, first: int) -> Tensor:
        """The value, in the shape of x. Raises ModelError for a tensor that does not fit."""
        given = torch.as_tensor(self.given).to(x)
        return _fitted(given, x, self.place.module, "the value given")


class Noise(Edit):
    """What is there, and normal noise of that standard deviation: `Noise("embedding", 0.1, position=2)`."""

    def __init__(self, module: str, std: float, seed: int = 0, **place: Any) -> None:
        require(std >= 0, "std", std, "at least 0", SettingError)
        self.place, self.std, self.seed = _place(module, place), std, seed

    def value(self, x: Tensor, run: int, first: int) -> Tensor:
        """x and noise of its shape, drawn from a generator of its own: the same in every call of the model."""
        generator = torch.Generator().manual_seed(self.seed + 7919 * run + first)  # each run of a call has its own
        return x + self.std * torch.randn(x.shape, generator=generator).to(x)


class Transplant(Edit):
    """What is there when the model is given other inputs: `Transplant("layer2", other, position=(4, 4))`.

    The inputs are run once, when the block begins. They have as many examples as those that the model will be given,
    or one, which then stands in all of them.
    """

    def __init__(self, module: str, inputs: Inputs, **place: Any) -> None:
        self.place, self.inputs = _place(module, place), as_tuple(inputs)
        self.found: list[Tensor] = []  # what was there, by the run of the module
        self.in_turns = False  # whether heads are computed some at a time, and come one after the other

    def value(self, x: Tensor, run: int, first: int) -> Tensor:
        """What was there, in the shape of x. Raises ModelError where it does not fit, or the module ran less often."""
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
    _ = place.run  # says at once what is wrong with its name
    return place


def _kind_of(place: Site) -> dict[str, Any]:
    """What makes `attach` look where the place is: at heads, at edges or at outputs."""
    return {"head": place.head} if place.head is not None else {"edge": place.edge} if place.edge is not None else {}


def as_tuple(inputs: Inputs) -> tuple[Tensor, ...]:
    """What forward takes, as a tuple also where it is one tensor."""
    return (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)


def _fitted(given: Tensor, x: Tensor, module: str, what: str) -> Tensor:
    """`given` as large as x. Raises ModelError where it cannot be."""
    try:
        return given.expand(x.shape)
    except RuntimeError:
        raise ModelError(
            f"What is there in {module} is {tuple(x.shape)}, and {what} is {tuple(given.shape)}: give one that fits."
        ) from None


@contextmanager
def intervene(model: nn.Module, *edits: Edit) -> Iterator[None]:
    """While the block runs, the model computes with these changes, one after the other where they meet.

    Gradients go through what is left as it is. Afterwards the model is what it was, also where the block raises.
    Raises UnknownName for a module or a part of one that is not there, ModelError for what does not fit and for heads
    or edges of a module without, and, when the model runs, SettingError for a number that is out of range.
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
    """Run the model once on the inputs that these have in common, and keep what is there for each."""
    found: list[dict[int, list[Tensor]]] = [{} for _ in transplants]

    def keeping(parts: dict[int, list[Tensor]]) -> Change:
        def keep(x: Tensor, where: Tensor | None, run: int, first: int) -> Tensor:
            parts.setdefault(run, []).append(x.detach().clone())
            return x

        return keep

    places = [Site(t.place.name, **_kind_of(t.place)) for t in transplants]
    with torch.no_grad(), _changing(model, [(place, keeping(parts)) for place, parts in zip(places, found)]):
        model(*transplants[0].inputs)
    for transplant, parts in zip(transplants, found):
        transplant.found = [torch.cat(of_run) for _, of_run in sorted(parts.items())]
        at_edges = isinstance(transplant.place.find(model), MessagePassing)
        transplant.in_turns = at_edges and bool(_kind_of(transplant.place))


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
