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

SAYS = "quantization error of each layer, weights before and after, and the effect of each layer on the output"
READ = (
    "An error is relative: the norm of the difference from the float network divided by the norm of the float output, "
    "so 1 % is a signal-to-noise ratio of 40 dB. A layer's own error uses the float network's inputs; the accumulated "
    "error uses the outputs of the preceding quantized layers. Next is the effect of each layer: the error of the "
    "model's output and the change of its loss if only this layer is quantized, and if all layers but this one are "
    "quantized. A layer that stands out is worth keeping in float. In the histogram of integers, see how many values "
    "are used: if nearly all are near 0, a few large weights determine the step size."
)
MISLEADS = (
    "An output error is not a prediction error: a class stays the same until another score exceeds it, so 5 % may cost "
    "no accuracy and 1 % a point. Errors are not additive: later layers can cancel or clip them, and the layer with "
    "the largest error alone need not be the one whose exclusion helps most. Loss changes over so small a sample are "
    "partly noise, and may be negative. A histogram is over all weights of a layer, while each channel or group has "
    "its own step size. Nothing here shows speed."
)
OPTIONS = {
    "layer": "name of the layer whose weights are shown",
    "before": "path of the float run that it was quantized from, if that was moved",
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
