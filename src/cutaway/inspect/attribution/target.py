"""Which number of the output is explained: a class, a value, the token after a place, the answer of a node, a class
summed over all pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...core.errors import SettingError
from ...core.spec import Context
from ...models.base import contract_of
from ...models.images import answers_of
from ...nn.masks import real_places

Asked = int | tuple[int | None, int | None] | None  # an output, or (place, output); None: what the model says itself


@dataclass(frozen=True)
class Target:
    """One number of the output for each example: `output` (N,) of those that stand at `place` (N,)."""

    output: Tensor | None  # None where each place has one number
    place: Tensor | None  # a position of a text, a node, a graph; None where the answer is one
    whole: bool = False  # the sum over all places
    graph: bool = False  # the batch is one graph, and a place is a row of the answers

    def of(self, outputs: Tensor, rows: Tensor) -> Tensor:
        """The number for each of the examples `rows` (n,), whose outputs these are, (n, …) → (n,)."""
        if self.whole:
            return outputs.sum(1)
        outputs = of_pixels(outputs)
        if self.graph:
            outputs = outputs[None]  # (1, V, C)
        output = None if self.output is None else self.output[rows]
        every = torch.arange(len(rows), device=rows.device)
        if self.place is not None:
            outputs = outputs[every, self.place[rows]]  # (n, C), or (n,)
        return outputs if output is None else outputs[every, output]

    def part(self, count: int) -> Target:
        """That of the first examples alone."""
        output, place = (None if x is None else x[:count] for x in (self.output, self.place))
        return Target(output, place, self.whole, self.graph)


def of_pixels(outputs: Tensor) -> Tensor:
    """Of answers for each pixel (N, C, H, W) the sums over all pixels, (N, C); others as they are."""
    return outputs.sum((2, 3)) if outputs.ndim == 4 else outputs


def kind_of(inputs: tuple[Tensor, ...]) -> str:
    """The kind of input, told from shapes alone: whole numbers are tokens, numbers beside (2, E) whole ones a graph,
    and numbers of 5, 4, 3 or 2 axes videos, images, series or sounds, and tables."""
    first = inputs[0]
    if not first.is_floating_point():
        third = inputs[2] if len(inputs) == 3 else None
        return "seq2seq" if third is not None and third.ndim == 2 and not third.is_floating_point() else "text"
    beside = inputs[1] if len(inputs) > 1 else None
    if first.ndim == 2 and beside is not None and beside.dtype in (torch.int64, torch.int32):
        return "graph"
    return {5: "video", 4: "image", 3: "series"}.get(first.ndim, "table")


def outputs_of(model: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    """What the head gives, (N, …), as the model has it explained; that of auxiliary heads is left out."""
    outputs: Tensor = answers_of(model(*inputs))[0]
    return contract_of(model).explained(outputs)


def choose(model: nn.Module, inputs: tuple[Tensor, ...], outputs: Tensor, asked: Asked = None) -> Target:
    """The target that is asked for, or what the model says itself: its class, its first forecast, the token that it
    predicts after the last real one, the class of the first node. Raises SettingError for one that is not there."""
    place, output = asked if isinstance(asked, tuple) else (None, asked)
    if kind_of(inputs) == "graph":
        rows = torch.tensor([_within("node" if place is None else "place", place or 0, len(outputs))])
        target = Target(None, rows.to(outputs.device), graph=True)
        return Target(_output(model, outputs[rows], output), target.place, graph=True)
    if getattr(type(model), "targets", ()) == (Context,):  # one number for each word, and their sum for the text
        if place is None:
            return Target(None, None, whole=True)
        return Target(None, outputs.new_full((len(outputs),), _within("place", place, outputs.shape[1])).long())
    if outputs.ndim == 4:
        if place is not None:
            raise SettingError(f"target={place}:{output} cannot be: pixels are not explained one by one, their sum is.")
        return Target(_widest(outputs) if output is None else _output(model, outputs, output), None)
    if outputs.ndim == 2:
        if place is not None:
            raise SettingError(f"target={place}:{output} cannot be: this model gives one answer, without places.")
        return Target(_output(model, outputs, output), None)
    places = _last_real(inputs, outputs.shape[1])
    if place is not None:
        places = torch.full_like(places, _within("place", place, outputs.shape[1]))
    every = torch.arange(len(outputs), device=outputs.device)
    return Target(_output(model, outputs[every, places], output), places)


def _output(model: nn.Module, outputs: Tensor, asked: int | None) -> Tensor:
    """Which of the outputs (n, C), for each example: (n,)."""
    if asked is not None:
        return outputs.new_full((len(outputs),), _within("target", asked, outputs.shape[1])).long()
    if getattr(_config(model), "horizon", 0):  # of forecasts none is the answer: the first
        return torch.zeros(len(outputs), dtype=torch.int64, device=outputs.device)
    return outputs.argmax(1)


def _widest(outputs: Tensor) -> Tensor:
    """The class but the first, the ground, that most pixels of each example (N, C, H, W) are said to be of, (N,)."""
    said = outputs.argmax(1).flatten(1)  # (N, H·W)
    counts = torch.stack([row.bincount(minlength=outputs.shape[1]) for row in said])  # (N, C)
    return counts[:, 1:].argmax(1) + 1 if outputs.shape[1] > 1 else counts.argmax(1)


def _config(model: nn.Module) -> Any:
    return getattr(model, "config", None)


def _last_real(inputs: tuple[Tensor, ...], places: int) -> Tensor:
    """The last real place of each example, (N,): of pairs the last of the target."""
    first = inputs[0]
    mask = inputs[1] if kind_of(inputs) == "text" and len(inputs) > 1 else None
    mask = real_places(mask, first.shape) if mask is not None and mask.shape == (len(first), places) else None
    if mask is None:
        return torch.full((len(first),), places - 1, device=first.device)
    return (mask * torch.arange(places, device=mask.device)).amax(1)


def _within(name: str, value: int, count: int) -> int:
    """The number, counted from the end where it is negative. Raises SettingError where there is no such."""
    if not hasattr(value, "__index__") or not -count <= value < count:
        raise SettingError(f"{name}={value} cannot be: there are {count}, from 0 to {count - 1}.")
    return value % count
