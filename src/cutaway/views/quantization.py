"""The effect of quantization: error and cost of each layer against the float original, and its weights."""

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
from ..draw import charts
from ..draw.description import Drawing, View, table
from ..draw.number_format import number, percent, plural
from ..models.base import as_output_tuple
from ..nn.low_precision import matrices, quantization_scheme, quantized_integers
from ..nn.modules import eval_mode
from ..nn.textbook.folding import fold_batch_norm
from ..runs.run import Run
from .json_values import evenly_spaced, to_lists
from .model_layers import hook_outputs
from .network import subject_layers
from .subject import Subject, examples_text, parse_choice, with_first

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


LAYERS = 12  # most layers whose weights are drawn
ROWS = 40  # most layers that are drawn as labelled rows
BINS = 48


def draw_quantization(subject: Subject) -> View:
    """Return errors and costs by layer, and the weights of up to twelve layers or of the selected one."""
    scheme = quantization_scheme(subject.model)
    assert scheme is not None
    names = [*scheme["layers"]]
    asked = parse_choice(subject.options, "layer", names, "quantized layer")
    before, why = load_float_model(subject)
    some = [asked] if asked else evenly_spaced(names, LAYERS)
    if before is None:
        drawings = {name: _weights(subject.model, None, name, scheme) for name in some}
        columns, rows = {"layer": "text", "kind": "text"}, [[name, scheme["layers"][name]] for name in names]
        return _view(why, table(columns, rows), [], drawings)
    found = compare_layers(subject, before)
    drawings = {name: _weights(subject.model, before, name, scheme) for name in some}
    return _view(_summary(found), _table(found), [_errors(found), *_costs(found)], drawings)


def _view(summary: str, numbers: Any, above: list[Drawing], weights: dict[str, list[Drawing]]) -> View:
    """Return the view with the drawings of the weights of each layer to choose from."""
    options = [{"name": name, "drawings": inside} for name, inside in weights.items()]
    one = (
        next(iter(weights.values())) if len(weights) == 1 else [charts.choice("Weights", "layer", options, slider=True)]
    )
    return View(
        id="quantization",
        title="Quantization",
        says="The error of each layer of the quantized network, its effect on the output, and its weights before and "
        "after.",
        summary=summary,
        table=numbers,
        drawings=[*above, *one],
    )


# --- drawing ------------------------------------------------------------------------------------------------------


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.4g}")


def _decibels(error: float) -> str:
    return f"{-20 * math.log10(error):.1f} dB" if 0 < error < math.inf else "∞ dB" if error == 0 else "unknown"


def _errors(found: QuantizationComparison) -> Drawing:
    """Return a chart of the error of each layer, on its own and accumulated."""
    series = {
        "its own": [relative_error(layer.own) for layer in found.layers],
        "accumulated": [relative_error(layer.after) for layer in found.layers],
    }
    title = "Relative error of each layer's output"
    if len(found.layers) > ROWS:
        drawn = [{"name": name, "points": _points(values)} for name, values in series.items()]
        return charts.lines(title, "layer", drawn, format="fraction")
    rows = [
        {
            "label": layer.name or "the model",
            "cells": [{"value": _finite(values[i])} for values in series.values()],
            "tip": [
                layer.name,
                f"{layer.kind}, {plural(layer.count, 'weight')}, relative error {percent(layer.weight)}",
                *(f"{name} {percent(values[i])}, {_decibels(values[i])}" for name, values in series.items()),
            ],
        }
        for i, layer in enumerate(found.layers)
    ]
    return charts.rows(title, [charts.bar(name, "fraction") for name in series], rows)


def _points(values: list[float]) -> list[list[Any]]:
    return [[i + 1, _finite(value)] for i, value in enumerate(values)]


def _costs(found: QuantizationComparison) -> list[Drawing]:
    """Return charts of the cost of each layer alone and without it; if there are many layers, the most costly ones."""
    layers = found.layers
    if len(layers) > ROWS:
        layers = sorted(layers, key=lambda layer: -_costs_alone(layer))[:ROWS]
    heads = [charts.bar("this layer only", "fraction"), charts.bar("all but this layer", "fraction")]
    drawn = [_bars("Relative error of the output", heads, layers, [("error", 0.0), ("error", 0.0)])]
    if found.whole.loss is not None:
        first = found.whole.loss
        signed = [{"name": name, "format": "number", "mark": "signed"} for name in ("this layer only", "all but this")]
        title = f"Change of the loss from the float network's, {number(first)}"
        drawn.append(_bars(title, signed, layers, [("loss", first), ("loss", first)]))
    return drawn


def _bars(
    title: str, columns: list[dict[str, Any]], layers: list[LayerErrors], what: Sequence[tuple[str, float]]
) -> Drawing:
    rows = []
    for layer in layers:
        both = [getattr(costs, key) - first for costs, (key, first) in zip((layer.alone, layer.without), what)]
        said = [f"{column['name']}: {_written(value, column)}" for column, value in zip(columns, both)]
        cells = [{"value": _finite(value)} for value in both]
        rows.append({"label": layer.name or "the model", "cells": cells, "tip": [layer.name, *said]})
    return charts.rows(title, columns, rows)


def _written(value: float, column: dict[str, Any]) -> str:
    return percent(value) if column["format"] == "fraction" else number(value)


def _weights(model: nn.Module, before: nn.Module | None, name: str, scheme: Any) -> list[Drawing]:
    """Return the distribution of a layer's weights before and after, and of the stored integers."""
    keys = [*matrices((before if before is not None else model).get_submodule(name))] or ["weight"]
    after = torch.cat([dequantized_weight(model, name, key).float().flatten() for key in keys])
    series = [("after", after)]
    if before is not None:
        series.insert(
            0, ("before", torch.cat([dequantized_weight(before, name, key).float().flatten() for key in keys]))
        )
    every = torch.cat([values for _, values in series])
    low, high = float(every.min()), float(every.max())
    high = high if high > low else low + 1e-6 * max(1.0, abs(low))
    edges = torch.linspace(low, high, BINS + 1, dtype=torch.float64)
    lines = []
    for label, values in series:
        part = torch.histc(values, BINS, low, high) / len(values)
        middles = to_lists((edges[1:] + edges[:-1]) / 2)
        lines.append({"name": label, "points": [[x, y] for x, y in zip(middles, to_lists(part))]})
    drawn = [charts.lines(f"Weights of {name}", "weight", lines, format="fraction")]
    integers = [q for key in keys if (q := quantized_integers(model, name, key)) is not None]
    if not integers:
        return drawn
    q = torch.cat([x.flatten() for x in integers])
    four = int(q.abs().max()) <= 8 and scheme["bits"] == 4
    left, width, bins = (-8.5, 1, 16) if four else (-127.5, 5, 51)
    counts = torch.histc(q.float(), bins, left, left + width * bins)
    return [*drawn, {
        "kind": "histogram",
        "title": f"Integers of {name}: {len(torch.unique(q))} of {width * bins} in use",
        "edges": [left + width * i for i in range(bins + 1)],
        "counts": counts.long().tolist(),
        "of": "integer",
        "x": "integer",
    }]  # fmt: skip


def _summary(found: QuantizationComparison) -> str:
    """Return a summary of the errors, the loss and the most expensive layers."""
    known = found.layers
    where = examples_text(found.examples)
    words = [f"On {where}, the relative error of the quantized network's output is {percent(found.small.error)}"]
    words[0] += f" ({_decibels(found.small.error)})."
    if found.whole.loss is not None and found.small.loss is not None:
        words.append(f"The loss goes from {number(found.whole.loss)} to {number(found.small.loss)}.")
    worst = max(known, key=_costs_alone)
    if worst.alone is not None and worst.alone.error:
        words.append(
            f"{worst.name or 'the model itself'} has the largest effect: with only this layer quantized, the output "
            f"error is {percent(worst.alone.error)}."
        )
    best = min(known, key=lambda layer: layer.without.error if layer.without else math.inf)
    if best.without is not None and best.without.error < found.small.error:
        words.append(f"With {best.name} in float and all else quantized, it is {percent(best.without.error)}.")
    low, high = min(layer.weight for layer in known), max(layer.weight for layer in known)
    words.append(f"Relative errors of the weights are {percent(low)} to {percent(high)}.")
    return " ".join(words)


def _costs_alone(layer: LayerErrors) -> float:
    return layer.alone.error if layer.alone is not None else 0.0


def _table(found: QuantizationComparison) -> Any:
    """Return a table of the error and the cost of each layer."""
    fractions = ("weight error", "own error", "accumulated", "output, this only", "output, all but this")
    columns = {"layer": "text", "kind": "text", "weights": "count", **dict.fromkeys(fractions, "fraction")}
    columns |= {"signal to noise": "text", "loss, this only": "number", "loss, all but this": "number"}
    rows = []
    for layer in found.layers:
        assert layer.alone is not None
        assert layer.without is not None
        own, after = relative_error(layer.own), relative_error(layer.after)
        errors = (layer.weight, own, after, layer.alone.error, layer.without.error)
        losses = (layer.alone.loss, layer.without.loss)
        rows.append([
            layer.name, layer.kind, layer.count, *map(_finite, errors), _decibels(after), *map(_finite, losses),
        ])  # fmt: skip
    return table(columns, rows)
