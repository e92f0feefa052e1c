"""The explained output as a function of a differentiable input: one number for each example, and what it depends on.

The number is a class, a value, the token after a position, the output of a node, or a class summed over all pixels. The
input is numbers or, for tokens, their embeddings: tokens are discrete and have no gradient, but their embeddings do.

All lookups of embeddings are concatenated to one tensor (N, positions, d). A model that pads its tokens has more
positions than tokens; these are in the middle. The input embeddings of a model are its `nn.Embedding` modules with a
name that ends in "embedding" (positions and segments have other names). The output of each call in a forward pass can
be recorded or replaced.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ...core.errors import IncompatibleSettingError, ModelError, SettingError
from ...core.spec import OF_TOKENS, Context
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
        return Target(_explained_index(model, outputs[rows], output), target.place, graph=True)
    if getattr(type(model), "targets", ()) == (Context,):  # one number per word, and their sum for the text
        if place is None:
            return Target(None, None, whole=True)
        return Target(None, outputs.new_full((len(outputs),), _within("place", place, outputs.shape[1])).long())
    if outputs.ndim == 4:
        if place is not None:
            raise IncompatibleSettingError(
                f"Invalid target={place}:{output}: single pixels cannot be explained, only their sum."
            )
        return Target(_widest(outputs) if output is None else _explained_index(model, outputs, output), None)
    if outputs.ndim == 2:
        if place is not None:
            raise SettingError(f"Invalid target={place}:{output}: this model has one output without positions.")
        return Target(_explained_index(model, outputs, output), None)
    places = _last_real(inputs, outputs.shape[1])
    if place is not None:
        places = torch.full_like(places, _within("place", place, outputs.shape[1]))
    every = torch.arange(len(outputs), device=outputs.device)
    return Target(_explained_index(model, outputs[every, places], output), places)


def _explained_index(model: nn.Module, outputs: Tensor, asked: int | None) -> Tensor:
    """Return the index of the explained one of the outputs (n, C) for each example, (n,).

    It is `asked`, or else the first forecast of a series and the largest output of other models.
    """
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


Baseline = Tensor | float | None


@dataclass(frozen=True)
class Call:
    """One embedding lookup: its positions among all, and the side that they belong to."""

    start: int  # of its positions among all
    length: int
    side: int  # 0: the tokens; 1: for pairs, the target so far


@dataclass(frozen=True)
class Entry:
    """One number of a model's output as a function of `z`."""

    model: nn.Module
    inputs: tuple[Tensor, ...]
    kind: str
    target: Target
    z: Tensor  # (N, …) as the first input; for tokens (N, positions, d); for a graph (1, V, F)
    baseline: Tensor  # as z: the neutral input
    about: str  # description of the baseline
    calls: tuple[Call, ...] = ()
    given: Baseline = None  # the baseline as given by the user

    @property
    def rows(self) -> Tensor:
        """The indices of the examples, (N,); a graph has one."""
        return torch.arange(len(self.z), device=self.z.device)

    def score(self, z: Tensor, rows: Tensor) -> Tensor:
        """Return F(z), the explained number, (n,), for z (n, …) in place of the input of the examples `rows`."""
        if self.kind == "graph":
            given = [explained_outputs(self.model, (x, *self.inputs[1:])) for x in z]
            return torch.cat([self.target.of(y, rows[:1]) for y in given])
        rest = tuple(x[rows] for x in self.inputs[1:])
        if not self.calls:
            return self.target.of(explained_outputs(self.model, (z, *rest)), rows)
        parts = torch.split(z, [call.length for call in self.calls], 1)
        with replace_lookups(self.model, parts):
            return self.target.of(explained_outputs(self.model, (self.inputs[0][rows], *rest)), rows)

    def laid(self, values: Tensor, how: str) -> tuple[Tensor, Tensor | None]:
        """Reduce values for each element of z to values for each part of the input: pixel, column, token.

        `how` is "sum" over the channels of a pixel or the features of an embedding; "largest" for the largest absolute
        value with its sign; "norm" for the Euclidean norm; or "first" where all values are equal.
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
        """Return the entry of the first examples."""
        if self.kind == "graph" or count >= len(self.z):
            return self
        target = self.target.part(count)
        inputs = tuple(x[:count] for x in self.inputs)
        z, baseline = self.z[:count], self.baseline[:count]
        return dataclasses.replace(self, inputs=inputs, target=target, z=z, baseline=baseline)

    def of(self, model: nn.Module) -> Entry:
        """Return the same entry for another model of the same shape; tokens use its own embedding."""
        return _entry(model, self.inputs, self.kind, self.target, self.given if self.calls else self.baseline)


def build_entry(model: nn.Module, inputs: tuple[Tensor, ...], asked: Asked = None, baseline: Baseline = None) -> Entry:
    """Create the entry of a model at these inputs.

    The default of `baseline` is zero; it is a number or a tensor like the first input. For tokens the default is the
    mean embedding of the vocabulary, or it is the index of one token: on a path from zeros, a normalization would see a
    single direction. Raises SettingError for an invalid target or baseline, ModelError for a model without an input
    embedding.
    """
    with torch.no_grad():
        outputs = explained_outputs(model, inputs)
    target = select_target(model, inputs, outputs, asked)
    return _entry(model, inputs, input_kind(inputs), target, baseline)


def _entry(model: nn.Module, inputs: tuple[Tensor, ...], kind: str, target: Target, baseline: Baseline) -> Entry:
    """Return the inputs with their baseline, as a function of numbers or of embeddings."""
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
            f"Invalid baseline of shape {tuple(given.shape)}: must fit the input, {tuple(z.shape)}."
        ) from None
    return Entry(model, inputs, kind, target, z, start, "zero" if zero else "the given baseline")


def _embedded(model: nn.Module, inputs: tuple[Tensor, ...], kind: str, target: Target, baseline: Baseline) -> Entry:
    """Return the embeddings of the tokens with their baseline, as inputs of the explained output."""
    found = record_lookups(model, inputs)
    starts = [sum(f.output.shape[1] for f in found[:k]) for k in range(len(found))]
    calls = tuple(Call(start, f.output.shape[1], f.side) for start, f in zip(starts, found))
    z = torch.cat([f.output for f in found], 1)  # (N, places, d)
    if baseline is None:
        start, about = torch.cat([f.mean for f in found], 1), "the mean embedding of the vocabulary"
    else:
        start, about = _of_token(model, inputs, baseline), f"the embedding of token {baseline}"
    own = torch.zeros_like(z[..., :1], dtype=torch.bool)
    for call in calls:  # padding is the same in the baseline, so that it has no attribution
        mask = inputs[1] if call.side == 0 and len(inputs) > 1 else None
        own[:, call.start : call.start + call.length] = _padding(inputs[2 * call.side], mask, call.length)[..., None]
    return Entry(model, inputs, kind, target, z, torch.where(own, z, start), about, calls, baseline)


def _of_token(model: nn.Module, inputs: tuple[Tensor, ...], token: Baseline) -> Tensor:
    """Return z with all tokens replaced by this one."""
    sizes = [module.num_embeddings for module in embeddings(model)]
    if not isinstance(token, int) or not 0 <= token < min(sizes):
        raise SettingError(f"Invalid baseline={token!r}: must be a token id below {min(sizes)}.")
    other = tuple(torch.full_like(x, token) if x.dtype == torch.int64 and x.ndim == 2 else x for x in inputs)
    return torch.cat([f.output for f in record_lookups(model, other)], 1)


def _padding(tokens: Tensor, mask: Tensor | None, places: int) -> Tensor:
    """Return a mask (N, positions), True at padding."""
    known = mask is not None and mask.dtype == torch.bool
    real = mask if mask is not None and known else torch.ones_like(tokens, dtype=torch.bool)
    return ~_middle(real[..., None], places)[..., 0]


def _middle(x: Tensor, length: int) -> Tensor:
    """Return the `length` middle positions of x (N, L, d), padded with zeros if it has fewer."""
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


def embeddings(model: nn.Module) -> list[nn.Embedding]:
    """Return the input embeddings. Raises ModelError if there are none."""
    found = [m for name, m in model.named_modules() if isinstance(m, nn.Embedding) and name.endswith("embedding")]
    if not found:
        raise ModelError(
            f"{type(model).__name__} has no input embedding: no nn.Embedding in it has a name that ends in 'embedding'."
        )
    return found


@contextmanager
def _hooked(model: nn.Module, hook: Any) -> Iterator[None]:
    with ExitStack() as stack:
        for module in embeddings(model):
            handle: RemovableHandle = module.register_forward_hook(hook)
            stack.callback(handle.remove)
        yield


@contextmanager
def replace_lookups(model: nn.Module, parts: tuple[Tensor, ...]) -> Iterator[None]:
    """Replace the outputs of the lookups, in order, by the given parts within the context."""
    left = iter(parts)
    with _hooked(model, lambda module, args, output: next(left)):
        yield


@dataclass(frozen=True)
class LookUp:
    """One call of an embedding."""

    module: nn.Embedding
    output: Tensor  # (N, L, d)
    side: int  # 1: the target so far of a pair; 0: all others

    @property
    def mean(self) -> Tensor:
        """The mean embedding of the vocabulary at each position, (N, L, d)."""
        return self.module.weight.detach().mean(0).expand_as(self.output)


def record_lookups(model: nn.Module, inputs: tuple[Tensor, ...]) -> list[LookUp]:
    """Return the output of each embedding call in one forward pass, in order."""
    found: list[LookUp] = []
    pairs = input_kind(inputs) == "seq2seq"

    def keep(module: nn.Embedding, args: Any, output: Tensor) -> None:
        # The source of a pair comes first, also where both sides share one embedding.
        found.append(LookUp(module, output.detach().clone(), int(pairs and bool(found))))

    with _hooked(model, keep), torch.no_grad():
        model(*inputs)
    return found
