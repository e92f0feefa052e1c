"""The decision boundary over two features, and the activation of every neuron on the same plane."""

from __future__ import annotations

import base64
from typing import Any

import torch
from torch import Tensor, nn

from ..core.spec import Classes, Value
from ..draw.description import Drawing, View, table
from ..draw.number_format import number, percent, plural
from ..models.base import as_base_model
from ..nn.eval_mode import eval_mode
from .common import find_dense_layers, find_linear, get_target, hook_outputs
from .plane import Plane, features, plane
from .subject import Subject

SAYS = "decision boundary over two features of a table, with a map of every neuron over the same plane"
READ = (
    "Each small map is one neuron over the same two features as the large map: purple where its value is above zero, "
    "green where it is below, stronger with distance from zero. The line in it marks where its weighted sum is zero. "
    "Lines between maps are weights, in the same colors; wider lines are larger weights. The large map is the "
    "prediction; filled dots are training examples, rings are test examples."
)
MISLEADS = (
    "For a model of more than two features this is one slice: the other features are fixed at the mean or the most "
    "frequent value of the training data, so an example whose own values differ may lie on the other side of the "
    "boundary. The colors of small maps are scaled for each neuron separately, so a weak neuron looks as strong as an "
    "active one. Far from all dots the map shows an extrapolation, not something learned (M. Hein, M. Andriushchenko, "
    "J. Bitterwolf, Why ReLU networks yield high-confidence predictions far away from the training data, 2019)."
)
OPTIONS = {"features": "the two columns for the axes, e.g. age,income"}

SIZE, SMALL = 60, 24  # cells per side of the large map and of a neuron's map
NEURONS = 8  # most neurons of a layer that are shown
LEVELS = 254  # steps of a map's bytes; even, so that the middle is a step


def suits(subject: Subject) -> bool:
    """Return whether the model is a network of dense layers over two or more numeric columns."""
    return (
        subject.kind == "table"
        and subject.inputs[0].ndim == 2
        and len(features(subject)) >= 2
        and bool(find_dense_layers(subject.model))
    )


def view(subject: Subject) -> View:
    """Return the large map, the neurons' maps by layer, the weights between them, and the examples."""
    on = plane(subject)
    maps, _ = _evaluate(subject, on, SMALL)
    _, fine = _evaluate(subject, on, SIZE)
    answer = _answer(subject, fine, on)
    drawing: Drawing = {
        "kind": "boundary",
        "title": f"Prediction over {on.axes[0].name} and {on.axes[1].name}",
        "axes": [
            {"name": f.name, "low": _short(low), "high": _short(high)}
            for f, (low, high) in zip(on.axes, on.bounds, strict=True)
        ],
        "size": SIZE,
        "small": SMALL,
        "answer": answer,
        "columns": _columns(subject, on, maps),
        "points": _points(subject, on),
        "note": _note(on),
    }
    x, y = (f.name for f in on.axes)
    return View(
        id="boundary",
        title="Decision boundary",
        says=f"The prediction at every {x} and {y}; the small maps show the value of each neuron.",
        summary=_summary(subject, on, answer, fine),
        table=_weights(subject.model),
        drawings=[drawing],
    )


def _evaluate(subject: Subject, on: Plane, size: int) -> tuple[dict[str, Tensor], Tensor]:
    """Return the outputs of the neurons' modules and of the head on the grid, (size², width) each."""
    model = subject.model
    dtype = next(model.parameters()).dtype
    found: dict[str, Tensor] = {}

    def see(name: str, module: nn.Module, args: Any, output: Any) -> None:
        found[name] = output.detach()[:, :NEURONS].clone()

    layers = find_dense_layers(model).values() if size == SMALL else ()
    wanted = [name for layer in layers for name in (layer.gives, layer.sums)]
    with eval_mode(model), torch.no_grad(), hook_outputs(model, see, wanted):
        outputs = model(on.grid(size).to(dtype))
    return found, outputs


# --- the answer -----------------------------------------------------------------------------------------------


def _answer(subject: Subject, outputs: Tensor, on: Plane) -> dict[str, Any]:
    """Return the large map of outputs (n, K): a score for two classes, the predicted class for more, or a value."""
    target = get_target(subject)
    outputs = outputs.double()
    if isinstance(target, Value):
        values = outputs[:, 0] * target.scale + target.mean
        low, high = _scale_range(
            torch.cat([values, *(_in_units(was, target) for _, was in on.points.values() if was is not None)])
        )
        return {"kind": "value", "name": target.column, **_bytes(values, signed=False, low=low, high=high)}
    names = list(target.names) if isinstance(target, Classes) else _classes(subject, outputs)
    if outputs.shape[1] == 1 and not names:
        return {"kind": "value", "name": "output", **_bytes(outputs[:, 0], signed=False)}
    probabilities = _probabilities(subject, outputs)
    if len(names) == 2:
        score = _bytes(_difference(outputs), signed=True)
        if probabilities is None:
            return {"kind": "score", "names": names, **score}
        return {
            "kind": "probability",
            "names": names,
            "sums": score,
            **_bytes(2 * probabilities[:, 1] - 1, signed=True, most=1.0),
        }
    best, said = (probabilities if probabilities is not None else outputs).topk(2, 1)  # (n, 2)
    if probabilities is not None:
        strength = _bytes(best[:, 0], signed=False, low=1 / outputs.shape[1], high=1.0)
    else:
        strength = _bytes(best[:, 0] - best[:, 1], signed=False, low=0.0)
    sure = "probability" if probabilities is not None else "lead"
    return {"kind": "classes", "names": names, "sure": sure, "said": _to_base64(said[:, 0].clamp(max=255)), **strength}


def _in_units(was: Tensor, target: Value) -> Tensor:
    """Return targets (n,) in their original units."""
    return was.double() * target.scale + target.mean


def _scale_range(values: Tensor) -> tuple[float, float]:
    """Return the ends of a colour scale: the 1st and 99th percentiles of the finite values."""
    values = values[values.isfinite()]
    if not len(values):
        return 0.0, 1.0
    low, high = values.quantile(torch.tensor([0.01, 0.99], dtype=values.dtype)).tolist()
    return low, high


def _classes(subject: Subject, outputs: Tensor) -> list[str]:
    """Return class names for data that has none; an empty list if the output is a number."""
    if getattr(subject.config, "num_classes", outputs.shape[1]) == 1:
        return []
    return [f"class {k}" for k in range(max(2, outputs.shape[1]))]


def _probabilities(subject: Subject, outputs: Tensor) -> Tensor | None:
    """Return probabilities (n, K), or None if the model's scores are not probabilities."""
    task = subject.task
    if task is not None and hasattr(task, "probabilities"):
        given: Tensor | None = task.probabilities(outputs)
        return given
    if as_base_model(subject.model).loss:  # its loss is not the logarithm of a probability
        return None
    if outputs.shape[1] == 1:
        p = outputs[:, 0].sigmoid()
        return torch.stack([1 - p, p], 1)
    return outputs.softmax(1)


def _difference(outputs: Tensor) -> Tensor:
    """Return the score of the second class minus that of the first, (n,)."""
    return outputs[:, 0] if outputs.shape[1] == 1 else outputs[:, 1] - outputs[:, 0]


# --- the network ----------------------------------------------------------------------------------------------


def _columns(subject: Subject, on: Plane, maps: dict[str, Tensor]) -> list[dict[str, Any]]:
    """Return the two inputs, and each layer with its neurons' maps and incoming weights."""
    across = (torch.arange(SMALL, dtype=torch.float64) + 0.5) / SMALL * 2 - 1
    places = {0: across.repeat(SMALL), 1: -across.repeat_interleave(SMALL)}
    width = subject.inputs[0].shape[1]
    columns: list[dict[str, Any]] = [
        {
            "title": "inputs",
            "of": width,
            "neurons": [{"name": f.name, "input": i, **_bytes(places[i], signed=True)} for i, f in enumerate(on.axes)],
        }
    ]
    sources = [f.place for f in on.axes]
    for title, layer in find_dense_layers(subject.model).items():
        linear = find_linear(subject.model, layer)
        neurons = []
        for j in range(min(NEURONS, linear.out_features)):
            neuron: dict[str, Any] = {
                "name": _neuron_name(subject, title, j, linear.out_features),
                **_bytes(maps[layer.gives][:, j].double(), signed=True),
            }
            if layer.sums != layer.gives:
                neuron["sums"] = _bytes(maps[layer.sums][:, j].double(), signed=True)
            if linear.bias is not None:
                neuron["bias"] = _short(float(linear.bias.detach()[j]))
            neurons.append(neuron)
        columns.append(
            {
                "title": title,
                "of": linear.out_features,
                "name": layer.linear,
                "sources": sources,
                "weights": [[_short(v) for v in row] for row in linear.weight[: len(neurons), sources].tolist()],
                "neurons": neurons,
            }
        )
        sources = list(range(len(neurons)))
    return columns


def _neuron_name(subject: Subject, title: str, j: int, width: int) -> str:
    """Return the name of a neuron; an output neuron has the name of its class."""
    if title != "output":
        return f"{title}, neuron {j + 1}"
    target = get_target(subject)
    if isinstance(target, Classes):
        return target.names[j if width > 1 else -1]
    return target.column if isinstance(target, Value) else "output" if width == 1 else f"class {j}"


# --- points, words and numbers --------------------------------------------------------------------------------


def _points(subject: Subject, on: Plane) -> list[dict[str, Any]]:
    """Return the coordinates and targets of the examples of each split."""
    target = get_target(subject)
    found = []
    for split, (at, was) in on.points.items():
        if isinstance(target, Value) and was is not None:
            values: list[Any] | None = [_short(v) for v in _in_units(was, target).tolist()]
        elif isinstance(target, Classes) and was is not None and not was.is_floating_point():
            values = was.tolist()
        else:
            values = None
        found.append({"split": split, "at": [[_short(x), _short(y)] for x, y in at.tolist()], "is": values})
    return found


def _note(on: Plane) -> str:
    """Return a sentence on the features that are held constant."""
    if not on.held:
        return ""
    most = 6
    rest = f" and {plural(len(on.held) - most, 'other')}" if len(on.held) > most else ""
    return f"Fixed: {', '.join(on.held[:most])}{rest}."


def _summary(subject: Subject, on: Plane, answer: dict[str, Any], outputs: Tensor) -> str:
    names = answer.get("names")
    note = _note(on)
    if not names:
        values = answer["low"], answer["high"]
        said = f"Over the plane, {answer['name']} ranges from {number(values[0])} to {number(values[1])}."
        return f"{said} {note}".strip()
    if len(names) == 2:
        decided = (_difference(outputs.double()) > 0).long()
    else:
        decided = outputs.argmax(1)
    parts = decided.bincount(minlength=len(names)).double() / len(decided)
    order = parts.argsort(descending=True)[:4].tolist()
    areas = ", ".join(f"{percent(float(parts[k]))} {names[k]}" for k in order if parts[k] > 0)
    said = f"Predicted area of the plane: {areas}."
    test = _accuracy(subject)
    return " ".join(s for s in (said, test, note) if s)


def _accuracy(subject: Subject) -> str:
    """Return the accuracy on the opened examples, with all of their own features, in words."""
    if subject.task is None or subject.target is None or subject.run is None:
        return ""
    metrics = subject.task.fast_metrics(subject.outputs(), subject.target)
    if "accuracy" not in metrics:
        return ""
    return f"Accuracy on the {plural(subject.count, 'example')} shown: {percent(metrics['accuracy'])}."


def _weights(model: nn.Module) -> Any:
    """Return every weight shown, as rows of a table."""
    rows = []
    for title, layer in find_dense_layers(model).items():
        linear = find_linear(model, layer)
        for j in range(min(NEURONS, linear.out_features)):
            if linear.bias is not None:
                rows.append([title, j + 1, "bias", _short(float(linear.bias.detach()[j]))])
            some = linear.weight.detach()[j, :NEURONS].tolist()
            rows += [[title, j + 1, f"from {i + 1}", _short(w)] for i, w in enumerate(some)]
    return table({"layer": "text", "neuron": "count", "weight": "text", "value": "number"}, rows)


def _bytes(
    values: Tensor, signed: bool, most: float | None = None, low: float | None = None, high: float | None = None
) -> dict[str, Any]:
    """Return a map (n,) as `bytes`, in base64 with one byte per value: low + byte / 254 · (high − low).

    In signed maps 0 is byte 127. Values that are not finite are clamped to the nearest end.
    """
    values = values.detach().double()
    finite = values[values.isfinite()]
    if signed:
        most = most if most is not None else (float(finite.abs().max()) if len(finite) else 0.0) or 1.0
        low, high = -most, most
    else:
        low = low if low is not None else float(finite.min()) if len(finite) else 0.0
        high = high if high is not None else float(finite.max()) if len(finite) else 1.0
        high = high if high > low else low + 1.0
    values = values.nan_to_num(low, posinf=high, neginf=low).clamp(low, high)
    return {"bytes": _to_base64((values - low) / (high - low) * LEVELS), "low": _short(low), "high": _short(high)}


def _to_base64(values: Tensor) -> str:
    return base64.b64encode(values.round().to(torch.uint8).numpy().tobytes()).decode()


def _short(value: float) -> float | None:
    """Return a value with four significant digits, or None if it is not finite."""
    return float(f"{value:.4g}") if value - value == 0 else None
