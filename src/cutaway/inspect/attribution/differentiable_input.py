"""What the output is taken as a function of: the numbers of an input, or, of tokens, their embeddings.

A token is a choice and has no gradient; what it is looked up as has (`embeddings.py`). All look-ups are one tensor
(N, places, d), one after the other. A model that pads its tokens has more places than tokens: they are in the middle.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...core.errors import SettingError
from ...core.spec import OF_TOKENS
from .embeddings import embeddings, looked_up, replaced
from .target import Asked, Target, choose, kind_of, outputs_of

Baseline = Tensor | float | None


@dataclass(frozen=True)
class Call:
    """One look-up: what it gave, and whose places those are."""

    start: int  # of its places among all
    length: int
    side: int  # 0: the tokens; 1: of pairs, the target so far


@dataclass(frozen=True)
class Entry:
    """One number of a model's output as a function of `z`."""

    model: nn.Module
    inputs: tuple[Tensor, ...]
    kind: str
    target: Target
    z: Tensor  # (N, …) as the first input; of tokens (N, places, d); of a graph (1, V, F)
    baseline: Tensor  # as z: what stands for nothing
    about: str  # what the baseline is, in words
    calls: tuple[Call, ...] = ()
    given: Baseline = None  # the baseline as it was asked for

    @property
    def rows(self) -> Tensor:
        """The numbers of the examples, (N,): of a graph there is one."""
        return torch.arange(len(self.z), device=self.z.device)

    def score(self, z: Tensor, rows: Tensor) -> Tensor:
        """F(z): the number that is explained, (n,), for z (n, …) in place of what enters of the examples `rows`."""
        if self.kind == "graph":
            given = [outputs_of(self.model, (x, *self.inputs[1:])) for x in z]
            return torch.cat([self.target.of(y, rows[:1]) for y in given])
        rest = tuple(x[rows] for x in self.inputs[1:])
        if not self.calls:
            return self.target.of(outputs_of(self.model, (z, *rest)), rows)
        parts = torch.split(z, [call.length for call in self.calls], 1)
        with replaced(self.model, parts):
            return self.target.of(outputs_of(self.model, (self.inputs[0][rows], *rest)), rows)

    def laid(self, values: Tensor, how: str) -> tuple[Tensor, Tensor | None]:
        """A number for each element of z as one for each part of the input: pixel, column, token.

        `how`: "sum" over the channels of a pixel or the numbers of an embedding; "largest", the one of greatest size
        with its sign; "norm", the root of the sum of squares; "first", where all of them are the same.
        """
        if self.kind == "graph":
            return values[0], None
        if not self.calls:
            axis = {"image": 1, "video": 2}.get(self.kind)
            return (values if axis is None else _reduced(values, axis, how)), None
        sides = [self._side(values, side, how) for side in (0, 1)]
        first = sides[0] if sides[0] is not None else torch.zeros_like(self.inputs[0], dtype=values.dtype)
        return first, sides[1]

    def _side(self, values: Tensor, side: int, how: str) -> Tensor | None:
        length = self.inputs[2 * side].shape[1] if self.calls and 2 * side < len(self.inputs) else 0
        found = [_middle(values[:, c.start : c.start + c.length], length) for c in self.calls if c.side == side]
        if not found:
            return None
        return _reduced(torch.cat(found, 2), 2, "sum" if how == "largest" else how)  # (N, T)

    def part(self, count: int) -> Entry:
        """The first examples alone."""
        if self.kind == "graph" or count >= len(self.z):
            return self
        target = self.target.part(count)
        inputs = tuple(x[:count] for x in self.inputs)
        z, baseline = self.z[:count], self.baseline[:count]
        return dataclasses.replace(self, inputs=inputs, target=target, z=z, baseline=baseline)

    def of(self, model: nn.Module) -> Entry:
        """The same question to another model of the same shape; tokens are looked up in its own embedding."""
        return _entry(model, self.inputs, self.kind, self.target, self.given if self.calls else self.baseline)


def entry_of(model: nn.Module, inputs: tuple[Tensor, ...], asked: Asked = None, baseline: Baseline = None) -> Entry:
    """What is explained of the model at these inputs.

    `baseline` is zero unless given: a number or a tensor like the first input. Of tokens it is the mean embedding of
    the vocabulary, or that of one token: on a way from zeros a normalization would see one direction all along.
    Raises SettingError for a target or baseline that cannot be, ModelError for a model without an input embedding.
    """
    with torch.no_grad():
        outputs = outputs_of(model, inputs)
    target = choose(model, inputs, outputs, asked)
    return _entry(model, inputs, kind_of(inputs), target, baseline)


def _entry(model: nn.Module, inputs: tuple[Tensor, ...], kind: str, target: Target, baseline: Baseline) -> Entry:
    if kind in OF_TOKENS:
        return _embedded(model, inputs, kind, target, baseline)
    z = inputs[0].detach()
    if kind == "graph":
        z = z[None]  # (1, V, F)
    zero = baseline is None or (isinstance(baseline, int | float) and baseline == 0)
    given = torch.as_tensor(0.0 if baseline is None else baseline, dtype=z.dtype, device=z.device)
    try:
        start = given.expand_as(z).clone()
    except RuntimeError:
        raise SettingError(
            f"baseline of shape {tuple(given.shape)} cannot be: it must fit the input, {tuple(z.shape)}."
        ) from None
    return Entry(model, inputs, kind, target, z, start, "zero" if zero else "the baseline given")


def _embedded(model: nn.Module, inputs: tuple[Tensor, ...], kind: str, target: Target, baseline: Baseline) -> Entry:
    found = looked_up(model, inputs)
    starts = [sum(f.output.shape[1] for f in found[:k]) for k in range(len(found))]
    calls = tuple(Call(start, f.output.shape[1], f.side) for start, f in zip(starts, found))
    z = torch.cat([f.output for f in found], 1)  # (N, places, d)
    if baseline is None:
        start, about = torch.cat([f.mean for f in found], 1), "the mean embedding of the vocabulary"
    else:
        start, about = _of_token(model, inputs, baseline), f"the embedding of token {baseline}"
    own = torch.zeros_like(z[..., :1], dtype=torch.bool)
    for call in calls:  # padding is the same in the baseline, so that it can have done nothing
        mask = inputs[1] if call.side == 0 and len(inputs) > 1 else None
        own[:, call.start : call.start + call.length] = _padding(inputs[2 * call.side], mask, call.length)[..., None]
    return Entry(model, inputs, kind, target, z, torch.where(own, z, start), about, calls, baseline)


def _of_token(model: nn.Module, inputs: tuple[Tensor, ...], token: Baseline) -> Tensor:
    """z where all tokens are this one."""
    sizes = [module.num_embeddings for module in embeddings(model)]
    if not isinstance(token, int) or not 0 <= token < min(sizes):
        raise SettingError(f"baseline={token!r} cannot be: of tokens it is the number of one, below {min(sizes)}.")
    other = tuple(torch.full_like(x, token) if x.dtype == torch.int64 and x.ndim == 2 else x for x in inputs)
    return torch.cat([f.output for f in looked_up(model, other)], 1)


def _padding(tokens: Tensor, mask: Tensor | None, places: int) -> Tensor:
    """(N, places), True where no real token stands."""
    known = mask is not None and mask.dtype == torch.bool
    real = mask if mask is not None and known else torch.ones_like(tokens, dtype=torch.bool)
    return ~_middle(real[..., None], places)[..., 0]


def _middle(x: Tensor, length: int) -> Tensor:
    """The `length` places in the middle of x (N, L, d); zeros around it where it has fewer."""
    if x.shape[1] >= length:
        return x.narrow(1, (x.shape[1] - length) // 2, length)
    before = (length - x.shape[1]) // 2
    return nn.functional.pad(x, (0, 0, before, length - x.shape[1] - before))


def _reduced(x: Tensor, axis: int, how: str) -> Tensor:
    if how == "sum":
        return x.sum(axis)
    if how == "norm":
        length: Tensor = torch.linalg.vector_norm(x, dim=axis)
        return length
    if how == "first":
        return x.select(axis, 0)
    return torch.gather(x, axis, x.abs().argmax(axis, keepdim=True)).squeeze(axis)
