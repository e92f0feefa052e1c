"""The effect of quantization: the error of each layer, the cost of each layer, and weights before and after."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ..draw import charts
from ..draw.description import Drawing, View, table
from ..draw.number_format import number, percent, plural
from ..nn.low_precision import matrices, quantization_scheme, quantized_integers
from .common import evenly_spaced, examples_text, parse_choice
from .json_values import to_lists
from .quantization_error import (
    LayerErrors,
    QuantizationComparison,
    compare_layers,
    dequantized_weight,
    load_float_model,
    relative_error,
)
from .subject import Subject

SAYS = "Quantization: the error of each layer beside the float network, weights before and after, and which layer hurts"
READ = (
    "An error is relative: the norm of the difference from the float network over the norm of what that gives, so that "
    "1 % is a signal-to-noise ratio of 40 dB. A layer's own error is with the float network's inputs; the accumulated "
    "one is with what the quantized layers before it give. Then comes what each layer costs: the error of the model's "
    "output and the change of its loss where this layer is quantized and all else is float, and where all is quantized "
    "and this layer is float. Look for one that stands out: left in float, it gives back most of what was lost. Of the "
    "integers, look how many are in use: where nearly all are near 0, a few large weights have set the step."
)
MISLEADS = (
    "An error of outputs is not one of answers: a class stays the same until its score is overtaken, so that 5 % may "
    "cost nothing and 1 % a point. Errors do not add up: what one layer does another can cancel or cut off, and "
    "the layer that hurts most alone need not be the one whose absence helps most. Changes of the loss of so few "
    "examples are partly chance, and may be gains. A histogram is of all weights of a layer, and each channel or group "
    "has a step of its own. Nothing here says what is slow."
)
OPTIONS = {
    "layer": "the layer whose weights are drawn, by its name",
    "before": "the run that it was quantized from, where that was moved",
}

LAYERS = 12  # most layers whose weights are drawn
ROWS = 40  # most layers that are drawn as labelled rows
BINS = 48


def suits(subject: Subject) -> bool:
    """Return whether the subject is a run that `cutaway quantize` wrote."""
    return subject.run is not None and quantization_scheme(subject.model) is not None


def view(subject: Subject) -> View:
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
    options = [{"name": name, "drawings": inside} for name, inside in weights.items()]
    one = (
        next(iter(weights.values())) if len(weights) == 1 else [charts.choice("Weights", "layer", options, slider=True)]
    )
    return View(
        id="quantization",
        title="Quantization",
        says="How far each layer of the quantized network is from the float one, what each costs, and its weights "
        "before and after.",
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
    title = "Relative error of what each layer gives"
    if len(found.layers) > ROWS:
        drawn = [{"name": name, "points": _points(values)} for name, values in series.items()]
        return charts.lines(title, "layer", drawn, format="fraction")
    rows = [
        {
            "label": layer.name or "the model",
            "cells": [{"value": _finite(values[i])} for values in series.values()],
            "tip": [
                layer.name,
                f"{layer.kind}, {plural(layer.count, 'weight')}, off by {percent(layer.weight)}",
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
    heads = [charts.bar("this layer alone", "fraction"), charts.bar("all but this layer", "fraction")]
    drawn = [_bars("Relative error of the output", heads, layers, [("error", 0.0), ("error", 0.0)])]
    if found.whole.loss is not None:
        first = found.whole.loss
        signed = [{"name": name, "format": "number", "mark": "signed"} for name in ("this layer alone", "all but this")]
        title = f"Loss, less that of the float network, {number(first)}"
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
    known = found.layers
    where = examples_text(found.examples)
    words = [f"On {where} the quantized network's output is off by {percent(found.small.error)}"]
    words[0] += f" ({_decibels(found.small.error)})."
    if found.whole.loss is not None and found.small.loss is not None:
        words.append(f"The loss goes from {number(found.whole.loss)} to {number(found.small.loss)}.")
    worst = max(known, key=_costs_alone)
    if worst.alone is not None and worst.alone.error:
        words.append(
            f"Alone {worst.name or 'the model itself'} costs most: quantized by itself it puts the output off by "
            f"{percent(worst.alone.error)}."
        )
    best = min(known, key=lambda layer: layer.without.error if layer.without else math.inf)
    if best.without is not None and best.without.error < found.small.error:
        words.append(f"With {best.name} in float and all else quantized it is off by {percent(best.without.error)}.")
    low, high = min(layer.weight for layer in known), max(layer.weight for layer in known)
    words.append(f"Weights are off by {percent(low)} to {percent(high)} of their size.")
    return " ".join(words)


def _costs_alone(layer: LayerErrors) -> float:
    return layer.alone.error if layer.alone is not None else 0.0


def _table(found: QuantizationComparison) -> Any:
    fractions = ("weights off by", "own error", "accumulated", "output, this alone", "output, all but this")
    columns = {"layer": "text", "kind": "text", "weights": "count", **dict.fromkeys(fractions, "fraction")}
    columns |= {"signal to noise": "text", "loss, this alone": "number", "loss, all but this": "number"}
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
