"""A quantized network beside the float one that it was made of: the error of each layer, and what each layer costs."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_leaves

from ..core.errors import FileError
from ..models.images import answers_of
from ..nn.eval_mode import resting
from ..nn.low_precision import matrices, scheme_of
from ..nn.textbook.folding import fold_batch_norm
from ..runs.run import Run
from .common import seeing
from .network import layers_of
from .subject import Subject, with_first

MANY = 256  # examples that are compared, at most
AT_ONCE = 32  # that go through together
WORK = 1e11  # MACs that all passes may take


@dataclass
class LayerErrors:
    """What is known of one quantized layer."""

    name: str
    kind: str  # as the scheme has it
    count: int  # weights
    weight: float  # relative error of its weights
    own: list[float] = field(default_factory=lambda: [0.0, 0.0])  # Σ(ŷ − y)², Σy² with the float network's inputs
    after: list[float] = field(default_factory=lambda: [0.0, 0.0])  # the same with what the quantized layers give
    alone: Costs | None = None  # this layer quantized, all else float
    without: Costs | None = None  # all quantized but this layer


@dataclass(frozen=True)
class Costs:
    """What a model's answers are, beside those of the float network."""

    error: float  # relative, of the output
    loss: float | None  # the mean; None where there is no target


@dataclass(frozen=True)
class Compared:
    """The float network and the quantized one, side by side."""

    examples: Subject
    layers: list[LayerErrors]
    whole: Costs  # of the float network: an error of 0
    small: Costs


# --- the float network --------------------------------------------------------------------------------------------


def float_of(subject: Subject) -> tuple[nn.Module | None, str]:
    """The network that was quantized, with its normalizations folded where the quantized one's are, or why it is not
    there. Raises FileError for a `before` that is no run."""
    scheme, run = scheme_of(subject.model), subject.run
    assert run is not None
    assert scheme is not None
    folder = Path(subject.options.get("before") or run.about["quantized"]["from"])
    try:
        model = Run(folder, run.module).model
    except FileError:
        if "before" in subject.options:
            raise
        return None, (
            f"The run that it was quantized from, {folder}, is not at hand, so that nothing can be compared: "
            "before=PATH says where it is."
        )
    inputs = with_first(subject, 1).inputs
    with torch.no_grad():
        before = fold_batch_norm(model, *inputs) if scheme["folded"] else copy.deepcopy(model).eval()
    if not fits(before, subject.model):
        return None, f"{folder} is another model than the one that was quantized: before=PATH says where that is."
    return before, ""


def fits(before: nn.Module, model: nn.Module) -> bool:
    """Whether the layers that were quantized are those of the network, and their numbers nearer to them than chance."""
    try:
        pairs = [(weight_of(before, *key), weight_of(model, *key)) for key in keys_of(before, scheme_of(model))]
    except AttributeError:  # no such layer
        return False
    return all(a.shape == b.shape and float((a - b).norm()) <= 0.5 * float(a.norm()) for a, b in pairs)


def keys_of(model: nn.Module, scheme: Any) -> Iterator[tuple[str, str]]:
    """The names of the quantized layers, each with that of a weight of its own."""
    for name in scheme["layers"]:
        for key in matrices(model.get_submodule(name)):
            yield name, key


def weight_of(model: nn.Module, name: str, key: str) -> Tensor:
    """A weight of the layer of that name, as the numbers that it stands for, without gradients."""
    found = getattr(model.get_submodule(name), key)
    assert isinstance(found, Tensor)
    return found.detach()


# --- looking ------------------------------------------------------------------------------------------------------


def compare(subject: Subject, before: nn.Module) -> Compared:
    """The errors of every layer and what each costs, on as many examples as are at hand, up to 256."""
    scheme = scheme_of(subject.model)
    assert scheme is not None
    small = copy.deepcopy(subject.model)
    examples = _examples(subject, len(scheme["layers"]))
    layers = {name: LayerErrors(name, kind, 0, 0.0) for name, kind in scheme["layers"].items()}
    sums: dict[str, list[float]] = {name: [0.0, 0.0] for name in layers}
    for name, key in keys_of(before, scheme):
        w, rounded = weight_of(before, name, key).double(), weight_of(small, name, key).double()
        layers[name].count += w.numel()
        _add(sums[name], rounded - w, w)
    for name, pair in sums.items():
        layers[name].weight = ratio(pair)
    with resting(before), resting(small), torch.no_grad():
        batches = _batches(examples)
        expected = [answers_of(before(*inputs))[0] for inputs, _ in batches]
        costs = _costs_of(examples, before, batches, expected)
        for inputs, _ in batches:
            _layer_errors(before, small, inputs, layers)
        rounded_costs = _costs_of(examples, small, batches, expected)
        for name, layer in layers.items():
            with _swapped(before, small, name, layer.kind):
                layer.alone = _costs_of(examples, before, batches, expected)
                layer.without = _costs_of(examples, small, batches, expected)
    return Compared(examples, [*layers.values()], costs, rounded_costs)


def _examples(subject: Subject, layers: int) -> Subject:
    """The examples that are compared: more of the split that the first are of, as many as can be afforded."""
    if subject.kind == "graph":
        return subject
    a_pass = max(1, layers_of(subject).multiply_adds)
    most = max(1, min(MANY, int(WORK / (2 * (layers + 2) * a_pass))))
    of_data = subject.data is not None and subject.split in subject.data.splits.values()
    found = subject.others(most) if of_data else with_first(subject, most)
    assert found is not None
    return dataclasses.replace(found, options=subject.options)


Batches = Sequence[tuple[tuple[Tensor, ...], Tensor | None]]


def _batches(subject: Subject) -> Batches:
    if subject.kind == "graph":
        return [(subject.inputs, subject.target)]
    cut = [torch.split(x, AT_ONCE) for x in subject.inputs]
    targets = torch.split(subject.target, AT_ONCE) if subject.target is not None else [None] * len(cut[0])
    return [*zip(zip(*cut), targets)]


def _costs_of(subject: Subject, model: nn.Module, batches: Batches, expected: Sequence[Tensor]) -> Costs:
    """The error of the output and the mean loss of a model; the loss is None where the target is not known."""
    pair, loss, counted = [0.0, 0.0], 0.0, 0.0
    for (inputs, target), right in zip(batches, expected):
        outputs = answers_of(model(*inputs))[0]
        _add(pair, outputs.double() - right.double(), right.double())
        if subject.task is not None and target is not None:
            loss += float(subject.task.loss(outputs, target))
            counted += float(subject.task.count(target))
    return Costs(ratio(pair), loss / counted if counted else None)


def _layer_errors(
    before: nn.Module, small: nn.Module, inputs: tuple[Tensor, ...], layers: dict[str, LayerErrors]
) -> None:
    """Add what a batch says of each layer: with the inputs that the float network gives it, and with its own."""
    floats: dict[str, list[Tensor]] = {name: [] for name in layers}
    calls = dict.fromkeys(layers, 0)

    def keep(name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        y = _numbers(output)
        floats[name].append(y)
        _add(layers[name].own, _numbers(small.get_submodule(name)(*args, **kwargs)) - y, y)

    def against(name: str, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if calls[name] < len(floats[name]):
            y = floats[name][calls[name]]
            _add(layers[name].after, _numbers(output) - y, y)
        calls[name] += 1

    handles = [
        before.get_submodule(name).register_forward_hook(
            lambda module, args, kwargs, output, name=name: keep(name, module, args, kwargs, output), with_kwargs=True
        )
        for name in layers
    ]
    try:
        before(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    with seeing(small, against, [*layers]):
        small(*inputs)


def _numbers(output: Any) -> Tensor:
    """What a layer gives, of a recurrent one its steps, as one row of numbers."""
    first = output[0] if isinstance(output, tuple) and not isinstance(output, PackedSequence) else output
    first = first.data if isinstance(first, PackedSequence) else first
    return torch.cat([x.detach().double().flatten() for x in tree_leaves(first) if isinstance(x, Tensor)])


def _add(pair: list[float], difference: Tensor, of: Tensor) -> None:
    pair[0] += float(difference.square().sum())
    pair[1] += float(of.square().sum())


def ratio(pair: Sequence[float]) -> float:
    """The relative error: of nothing at all 0, of what should be 0 and is not infinity."""
    return math.sqrt(pair[0] / pair[1]) if pair[1] else 0.0 if not pair[0] else math.inf


@contextlib.contextmanager
def _swapped(one: nn.Module, other: nn.Module, name: str, kind: str) -> Iterator[None]:
    """Inside the block each of the two networks has the other's layer of that name. What is stored is the same layer
    with other numbers, which others may share; the rest are other layers."""

    def swap() -> None:
        a, b = one.get_submodule(name), other.get_submodule(name)
        if kind == "stored":
            for key, parameter in matrices(a).items():
                theirs = getattr(b, key)
                parameter.data, theirs.data = theirs.data, parameter.data
        elif name:
            one.set_submodule(name, b)
            other.set_submodule(name, a)

    swap()
    try:
        yield
    finally:
        swap()
