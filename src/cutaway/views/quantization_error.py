"""Comparison of a quantized network with its float original: the error and the cost of each layer."""

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
from ..models.base import as_output_tuple
from ..nn.eval_mode import eval_mode
from ..nn.low_precision import matrices, quantization_scheme
from ..nn.textbook.folding import fold_batch_norm
from ..runs.run import Run
from .common import hook_outputs
from .network import subject_layers
from .subject import Subject, with_first

MANY = 256  # most examples that are compared
AT_ONCE = 32  # examples per batch
WORK = 1e11  # most MACs of all passes


@dataclass
class LayerErrors:
    """The errors of one quantized layer."""

    name: str
    kind: str  # as in the scheme
    count: int  # weights
    weight: float  # relative error of its weights
    own: list[float] = field(default_factory=lambda: [0.0, 0.0])  # Σ(ŷ − y)², Σy² with the float network's inputs
    after: list[float] = field(default_factory=lambda: [0.0, 0.0])  # the same with the inputs from the quantized layers
    alone: Costs | None = None  # only this layer quantized
    without: Costs | None = None  # all layers but this one quantized


@dataclass(frozen=True)
class Costs:
    """The error and the loss of a model, relative to the float network."""

    error: float  # relative error of the output
    loss: float | None  # mean loss; None without targets


@dataclass(frozen=True)
class QuantizationComparison:
    """The comparison of the float network and the quantized one."""

    examples: Subject
    layers: list[LayerErrors]
    whole: Costs  # of the float network: an error of 0
    small: Costs


# --- the float network --------------------------------------------------------------------------------------------


def load_float_model(subject: Subject) -> tuple[nn.Module | None, str]:
    """Return the float network with the same batch-norm folding, or None and the reason why it is unavailable.

    Raises:
        FileError: If the option `before` is not a run.
    """
    scheme, run = quantization_scheme(subject.model), subject.run
    assert run is not None
    assert scheme is not None
    folder = Path(subject.options.get("before") or run.about["quantized"]["from"])
    try:
        model = Run(folder, run.module).model
    except FileError:
        if "before" in subject.options:
            raise
        return None, (f"The float run {folder} was not found: set before=PATH to compare with it.")
    inputs = with_first(subject, 1).inputs
    with torch.no_grad():
        before = fold_batch_norm(model, *inputs) if scheme["folded"] else copy.deepcopy(model).eval()
    if not is_same_model(before, subject.model):
        return None, f"{folder} is not the model that was quantized: set before=PATH to the float run."
    return before, ""


def is_same_model(before: nn.Module, model: nn.Module) -> bool:
    """Return whether the quantized layers exist in the float network, with weights within half of their norm."""
    try:
        pairs = [
            (dequantized_weight(before, *key), dequantized_weight(model, *key))
            for key in quantized_weights(before, quantization_scheme(model))
        ]
    except AttributeError:  # no such layer
        return False
    return all(a.shape == b.shape and float((a - b).norm()) <= 0.5 * float(a.norm()) for a, b in pairs)


def quantized_weights(model: nn.Module, scheme: Any) -> Iterator[tuple[str, str]]:
    """Yield the names of the quantized layers, each with the name of one of its weights."""
    for name in scheme["layers"]:
        for key in matrices(model.get_submodule(name)):
            yield name, key


def dequantized_weight(model: nn.Module, name: str, key: str) -> Tensor:
    """Return a dequantized weight of the layer `name`, without gradients."""
    found = getattr(model.get_submodule(name), key)
    assert isinstance(found, Tensor)
    return found.detach()


# --- comparison ------------------------------------------------------------------------------------------------------


def compare_layers(subject: Subject, before: nn.Module) -> QuantizationComparison:
    """Return the errors and the cost of every layer, on up to 256 of the available examples."""
    scheme = quantization_scheme(subject.model)
    assert scheme is not None
    small = copy.deepcopy(subject.model)
    examples = _examples(subject, len(scheme["layers"]))
    layers = {name: LayerErrors(name, kind, 0, 0.0) for name, kind in scheme["layers"].items()}
    sums: dict[str, list[float]] = {name: [0.0, 0.0] for name in layers}
    for name, key in quantized_weights(before, scheme):
        w, rounded = dequantized_weight(before, name, key).double(), dequantized_weight(small, name, key).double()
        layers[name].count += w.numel()
        _add(sums[name], rounded - w, w)
    for name, pair in sums.items():
        layers[name].weight = relative_error(pair)
    with eval_mode(before), eval_mode(small), torch.no_grad():
        batches = _batches(examples)
        expected = [as_output_tuple(before(*inputs))[0] for inputs, _ in batches]
        costs = _measure_costs(examples, before, batches, expected)
        for inputs, _ in batches:
            _layer_errors(before, small, inputs, layers)
        rounded_costs = _measure_costs(examples, small, batches, expected)
        for name, layer in layers.items():
            with _swap_layers(before, small, name, layer.kind):
                layer.alone = _measure_costs(examples, before, batches, expected)
                layer.without = _measure_costs(examples, small, batches, expected)
    return QuantizationComparison(examples, [*layers.values()], costs, rounded_costs)


def _examples(subject: Subject, layers: int) -> Subject:
    """Return the examples to compare: more of the same split, up to the budget of MACs."""
    if subject.kind == "graph":
        return subject
    a_pass = max(1, subject_layers(subject).multiply_adds)
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


def _measure_costs(subject: Subject, model: nn.Module, batches: Batches, expected: Sequence[Tensor]) -> Costs:
    """Return the error of the output and the mean loss of a model; the loss is None without targets."""
    pair, loss, counted = [0.0, 0.0], 0.0, 0.0
    for (inputs, target), right in zip(batches, expected):
        outputs = as_output_tuple(model(*inputs))[0]
        _add(pair, outputs.double() - right.double(), right.double())
        if subject.task is not None and target is not None:
            loss += float(subject.task.loss(outputs, target))
            counted += float(subject.task.loss_denominator(target))
    return Costs(relative_error(pair), loss / counted if counted else None)


def _layer_errors(
    before: nn.Module, small: nn.Module, inputs: tuple[Tensor, ...], layers: dict[str, LayerErrors]
) -> None:
    """Add the errors of a batch to each layer: with the inputs of the float network, and with its own inputs."""
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
    with hook_outputs(small, against, [*layers]):
        small(*inputs)


def _numbers(output: Any) -> Tensor:
    """Return the output of a layer, or the steps of a recurrent layer, as one row of numbers."""
    first = output[0] if isinstance(output, tuple) and not isinstance(output, PackedSequence) else output
    first = first.data if isinstance(first, PackedSequence) else first
    return torch.cat([x.detach().double().flatten() for x in tree_leaves(first) if isinstance(x, Tensor)])


def _add(pair: list[float], difference: Tensor, of: Tensor) -> None:
    pair[0] += float(difference.square().sum())
    pair[1] += float(of.square().sum())


def relative_error(pair: Sequence[float]) -> float:
    """Return the relative error: 0 for 0 / 0, and infinity if only the reference is 0."""
    return math.sqrt(pair[0] / pair[1]) if pair[1] else 0.0 if not pair[0] else math.inf


@contextlib.contextmanager
def _swap_layers(one: nn.Module, other: nn.Module, name: str, kind: str) -> Iterator[None]:
    """Swap the layer `name` of two networks inside the block.

    A stored layer keeps its module, which other modules may share, and swaps only its values. Other layers are
    replaced.
    """

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
