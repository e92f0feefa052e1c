"""The explained number of an output.

It is a class, a value, the token after a position, the output of a node, or a class summed over all pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...core.errors import SettingError
from ...core.spec import Context
from ...models.base import as_base_model, as_output_tuple
from ...nn.masks import normalize_padding_mask

Asked = int | tuple[int | None, int | None] | None  # an output, or (position, output); None: the model's own prediction


@dataclass(frozen=True)
class Target:
    """One number of the output per example: `output` (N,) at position `place` (N,)."""

    output: Tensor | None  # None where each position has one number
    place: Tensor | None  # a position of a text, a node, a graph; None for a single output
    whole: bool = False  # the sum over all positions
    graph: bool = False  # the batch is one graph, and a position is a row of the outputs

    def of(self, outputs: Tensor, rows: Tensor) -> Tensor:
        """Return the number for each of the examples `rows` (n,) with these outputs, (n, …) to (n,)."""
        if self.whole:
            return outputs.sum(1)
        outputs = sum_pixels(outputs)
        if self.graph:
            outputs = outputs[None]  # (1, V, C)
        output = None if self.output is None else self.output[rows]
        every = torch.arange(len(rows), device=rows.device)
        if self.place is not None:
            outputs = outputs[every, self.place[rows]]  # (n, C), or (n,)
        return outputs if output is None else outputs[every, output]

    def part(self, count: int) -> Target:
        """Return the target of the first examples."""
        output, place = (None if x is None else x[:count] for x in (self.output, self.place))
        return Target(output, place, self.whole, self.graph)


def sum_pixels(outputs: Tensor) -> Tensor:
    """Sum outputs per pixel (N, C, H, W) over all pixels, (N, C); others are unchanged."""
    return outputs.sum((2, 3)) if outputs.ndim == 4 else outputs


def input_kind(inputs: tuple[Tensor, ...]) -> str:
    """Return the kind of input, inferred from shapes and types.

    Integers are tokens; numbers with integers (2, E) are a graph; numbers with 5, 4, 3 or 2 axes are videos, images,
    series or sounds, and tables.
    """
    first = inputs[0]
    if not first.is_floating_point():
        third = inputs[2] if len(inputs) == 3 else None
        return "seq2seq" if third is not None and third.ndim == 2 and not third.is_floating_point() else "text"
    beside = inputs[1] if len(inputs) > 1 else None
    if first.ndim == 2 and beside is not None and beside.dtype in (torch.int64, torch.int32):
        return "graph"
    return {5: "video", 4: "image", 3: "series"}.get(first.ndim, "table")


def explained_outputs(model: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    """Return the outputs of the head in the form that the model explains, (N, …), without auxiliary heads."""
    outputs: Tensor = as_output_tuple(model(*inputs))[0]
    return as_base_model(model).explained(outputs)


def select_target(model: nn.Module, inputs: tuple[Tensor, ...], outputs: Tensor, asked: Asked = None) -> Target:
    """Return the given target, or by default the model's own prediction. Raises SettingError if it does not exist.

    The prediction is the class, the first forecast, the token after the last real one, or the class of the first node.
    """
    place, output = asked if isinstance(asked, tuple) else (None, asked)
    if input_kind(inputs) == "graph":
        rows = torch.tensor([_within("node" if place is None else "place", place or 0, len(outputs))])
        target = Target(None, rows.to(outputs.device), graph=True)
        return Target(_output(model, outputs[rows], output), target.place, graph=True)
    if getattr(type(model), "targets", ()) == (Context,):  # one number per word, and their sum for the text
        if place is None:
            return Target(None, None, whole=True)
        return Target(None, outputs.new_full((len(outputs),), _within("place", place, outputs.shape[1])).long())
    if outputs.ndim == 4:
        if place is not None:
            raise SettingError(f"Invalid target={place}:{output}: single pixels cannot be explained, only their sum.")
        return Target(_widest(outputs) if output is None else _output(model, outputs, output), None)
    if outputs.ndim == 2:
        if place is not None:
            raise SettingError(f"Invalid target={place}:{output}: this model has one output without positions.")
        return Target(_output(model, outputs, output), None)
    places = _last_real(inputs, outputs.shape[1])
    if place is not None:
        places = torch.full_like(places, _within("place", place, outputs.shape[1]))
    every = torch.arange(len(outputs), device=outputs.device)
    return Target(_output(model, outputs[every, places], output), places)


def _output(model: nn.Module, outputs: Tensor, asked: int | None) -> Tensor:
    """Return the explained output of (n, C) for each example, (n,)."""
    if asked is not None:
        return outputs.new_full((len(outputs),), _within("target", asked, outputs.shape[1])).long()
    if getattr(_config(model), "horizon", 0):  # the first forecast
        return torch.zeros(len(outputs), dtype=torch.int64, device=outputs.device)
    return outputs.argmax(1)


def _widest(outputs: Tensor) -> Tensor:
    """Return the class except the background that most pixels of each example (N, C, H, W) are predicted as, (N,)."""
    said = outputs.argmax(1).flatten(1)  # (N, H·W)
    counts = torch.stack([row.bincount(minlength=outputs.shape[1]) for row in said])  # (N, C)
    return counts[:, 1:].argmax(1) + 1 if outputs.shape[1] > 1 else counts.argmax(1)


def _config(model: nn.Module) -> Any:
    return getattr(model, "config", None)


def _last_real(inputs: tuple[Tensor, ...], places: int) -> Tensor:
    """Return the last real position of each example, (N,); for pairs that of the target."""
    first = inputs[0]
    mask = inputs[1] if input_kind(inputs) == "text" and len(inputs) > 1 else None
    mask = (
        normalize_padding_mask(mask, first.shape) if mask is not None and mask.shape == (len(first), places) else None
    )
    if mask is None:
        return torch.full((len(first),), places - 1, device=first.device)
    return (mask * torch.arange(places, device=mask.device)).amax(1)


def _within(name: str, value: int, count: int) -> int:
    """Return the index, counted from the end if negative. Raises SettingError if it is out of range."""
    if not hasattr(value, "__index__") or not -count <= value < count:
        raise SettingError(f"Invalid {name}={value}: must be from 0 to {count - 1}.")
    return value % count
