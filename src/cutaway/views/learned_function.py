"""The function that a network has learned over one or two features of a table, and the neurons that it is made of.

The axes are in the data's units, and all other features are constant: a plane shows the decision boundary, a line the
predicted value.

For a network with one hidden layer, ŷ(x) = b + Σ_j w_j g(v_j x + c_j): each neuron is a bend or a step. With enough
neurons the sum approximates any continuous function on an interval (G. Cybenko, Approximation by superpositions of a
sigmoidal function, 1989, <https://doi.org/10.1007/BF02551274>; K. Hornik, 1991). The theorem says that such weights
exist, not that training finds them.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn

from ..core.errors import SettingError, UnknownName
from ..core.spec import Classes, Value
from ..data.dataset_base import Split
from ..data.tables.column_types import Category, Encoder, Numeric, format_cell
from ..data.tables.transforms import TablePreprocessing
from ..draw import charts
from ..draw.description import Drawing, View, table
from ..draw.number_format import number, percent, plural
from ..models.base import Dense, as_base_model
from ..nn.modules import eval_mode
from .model_layers import find_dense_layers, find_linear, hook_outputs
from .subject import Subject, get_target

MARGIN = 0.08  # margin of the plane, as a fraction of the points' range
MOST_EXAMPLES = 200  # most points of each split
MAX_TRAINING = 1000  # training examples that the constants are computed from


SplitPoints = dict[str, tuple[Tensor, Tensor | None]]  # split → coordinates (n, 2) in the data's units, targets (n,)


@dataclass(frozen=True)
class Feature:
    """One axis: a column of the data, or one input of the model."""

    name: str
    place: int  # index of the first of its inputs
    encoder: Numeric | None  # None: the input without scaling

    def inputs(self, values: Tensor) -> Tensor:
        """Return values (n,) in the data's units as model inputs."""
        if self.encoder is None:
            return values
        cells = pl.Series(values.double().tolist(), dtype=pl.Float64)
        return torch.from_numpy(self.encoder.encode(cells)[:, 0].copy()).to(values)

    def values(self, inputs: Tensor) -> Tensor:
        """Return model inputs (n,) in the data's units."""
        if self.encoder is None:
            return inputs
        return torch.from_numpy(_unscaled(self.encoder, inputs.double().numpy())).to(inputs)


@dataclass(frozen=True)
class Plane:
    """A plane on which the model is evaluated, with all inputs but two held constant."""

    axes: tuple[Feature, Feature]
    base: Tensor  # (F,) constant values of the inputs
    held: tuple[str, ...]  # the other columns, each with its value in words
    bounds: tuple[tuple[float, float], tuple[float, float]]  # bounds of x and y
    points: SplitPoints

    def grid(self, size: int) -> Tensor:
        """Return inputs (size², F) at the centres of size × size cells, row by row from the largest y."""
        centres = (torch.arange(size, dtype=torch.float64) + 0.5) / size
        x, y = (low + centres * (high - low) for low, high in self.bounds)
        inputs = self.base.repeat(size, size, 1)  # (size, size, F)
        inputs[:, :, self.axes[0].place] = self.axes[0].inputs(x).to(inputs)
        inputs[:, :, self.axes[1].place] = self.axes[1].inputs(y.flip(0)).to(inputs)[:, None]
        return inputs.flatten(0, 1)


@dataclass(frozen=True)
class Line:
    """A line on which the model is evaluated, with all inputs but one held constant."""

    axis: Feature
    base: Tensor  # (F,) constant values of the inputs
    held: tuple[str, ...]  # the other columns, each with its value in words
    bounds: tuple[float, float]
    points: SplitPoints  # split → coordinates (n, 1), targets (n,)

    def grid(self, size: int) -> tuple[Tensor, Tensor]:
        """Return evenly spaced values (size,) in the data's units, and the inputs (size, F) there."""
        x = torch.linspace(*self.bounds, size, dtype=torch.float64)
        inputs = self.base.repeat(size, 1)
        inputs[:, self.axis.place] = self.axis.inputs(x).to(inputs)
        return x, inputs


def features(subject: Subject) -> list[Feature]:
    """Return the features that can be an axis: numeric columns, or all inputs without a table's preprocessing."""
    given = subject.preprocessing
    if isinstance(given, TablePreprocessing):
        return [
            Feature(e.name, place, e) for place, e in _places(given) if isinstance(e, Numeric) and e.kind == "number"
        ]
    return [Feature(f"x{i + 1}", i, None) for i in range(subject.inputs[0].shape[1])]


def plane(subject: Subject) -> Plane:
    """Return the plane of the two features of `features=A,B`, by default the first two."""
    axes = _selected_axes(features(subject), subject.options)
    training, shown = _load_points(subject, axes)
    base, held = _constants(subject, training, {f.place for f in axes})
    everywhere = torch.cat([at for at, _ in shown.values()]).double()
    low, high = everywhere.amin(0), everywhere.amax(0)
    beyond = MARGIN * (high - low).where(high > low, torch.ones(2, dtype=torch.float64))
    bounds = tuple(zip((low - beyond).tolist(), (high + beyond).tolist(), strict=True))
    return Plane(axes, base, held, (bounds[0], bounds[1]), shown)


def line(subject: Subject) -> Line:
    """Return the line of the feature of `feature=A`, by default the first, over the range of the examples."""
    by_name = {f.name: f for f in features(subject)}
    name = subject.options.get("feature") or next(iter(by_name))
    if name not in by_name:
        raise UnknownName("column of numbers", name, by_name, code="CUT-203")
    axis = by_name[name]
    training, shown = _load_points(subject, (axis,))
    base, held = _constants(subject, training, {axis.place})
    everywhere = torch.cat([at for at, _ in shown.values()]).double()
    low, high = float(everywhere.min()), float(everywhere.max())
    return Line(axis, base, held, (low, high) if high > low else (low - 1, high + 1), shown)


def _load_points(subject: Subject, axes: tuple[Feature, ...]) -> tuple[Tensor, SplitPoints]:
    """Return the inputs that the constants are computed from, (n, F), and the examples to show."""
    parts = subject.data.splits if subject.data is not None else {}
    if not parts:
        target = subject.target if subject.task is not None else None
        return subject.inputs[0], {"examples": (_coordinates(subject.inputs[0], axes), target)}
    training = _inputs(parts.get("train", next(iter(parts.values()))), MAX_TRAINING)
    return training, {name: _split_points(parts[name], axes) for name in ("train", "test") if name in parts}


def _selected_axes(known: list[Feature], options: Mapping[str, str]) -> tuple[Feature, Feature]:
    by_name = {f.name: f for f in known}
    names = [name.strip() for name in options.get("features", "").split(",") if name.strip()]
    for name in names:
        if name not in by_name:
            raise UnknownName("column of numbers", name, by_name, code="CUT-203")
    if names and (len(names) != 2 or names[0] == names[1]):
        raise SettingError(f"Invalid features={options['features']}: must be two columns, e.g. features=age,income.")
    first, second = (by_name[name] for name in names) if names else known[:2]
    return first, second


def _places(given: TablePreprocessing) -> list[tuple[int, Encoder]]:
    """Return each column's encoder with the index of its first input."""
    found, place = [], 0
    for encoder in given.encoders:
        found.append((place, encoder))
        place += len(encoder.features)
    return found


def _constants(subject: Subject, training: Tensor, free: set[int]) -> tuple[Tensor, tuple[str, ...]]:
    """Return the constant inputs and their names with values: means of numbers, most frequent values of categories."""
    base = training.mean(0)
    given = subject.preprocessing
    if not isinstance(given, TablePreprocessing):
        words = [f"x{i + 1} = {number(v)}" for i, v in enumerate(base.tolist()) if i not in free]
        return base, tuple(words)
    said = []
    for place, encoder in _places(given):
        block = slice(place, place + len(encoder.features))
        if isinstance(encoder, Category):
            commonest = int(training[:, block].sum(0).argmax())
            base[block] = 0
            base[place + commonest] = 1
            said.append(f"{encoder.features[commonest]}")
            continue
        if encoder.missing:
            base[block.stop - 1] = 0
        if encoder.kind == "yes/no" and place not in free:  # a mean between yes and no has no meaning
            base[place] = training[:, place].median()
        if place not in free:
            value = float(_unscaled(encoder, np.array([float(base[place])]))[0])
            said.append(f"{encoder.name} = {_cell(encoder, value)}")
    return base, tuple(said)


def _cell(encoder: Numeric, value: float) -> str:
    """Return a value as text: a number, a date, or one of two words."""
    return number(value) if encoder.kind == "number" else format_cell(round(value), encoder.type)


def _unscaled(encoder: Numeric, inputs: np.ndarray) -> np.ndarray:
    """Return inputs (n,) in the units of the column."""
    if encoder.curve:
        quantiles, places = np.array(encoder.curve).T
        return np.asarray(np.interp(inputs, places, quantiles))
    return np.asarray(inputs * encoder.scale + encoder.mean)


def _inputs(split: Split, most: int) -> Tensor:
    """Return the inputs of the split's first examples, (n, F)."""
    return next(iter(split.batches([torch.arange(min(most, len(split)))]))).inputs[0]


def _split_points(split: Split, axes: tuple[Feature, ...]) -> tuple[Tensor, Tensor | None]:
    inputs = _inputs(split, MOST_EXAMPLES)
    return _coordinates(inputs, axes), None if split.target is None else split.target[: len(inputs)]


def _coordinates(inputs: Tensor, axes: tuple[Feature, ...]) -> Tensor:
    """Return the coordinates of inputs (n, F) in the data's units, (n, 2) or (n, 1)."""
    return torch.stack([f.values(inputs[:, f.place].double()) for f in axes], 1)


SIZE, SMALL = 60, 24  # cells per side of the large map and of a neuron's map
NEURONS = 8  # most neurons of a layer that are shown
LEVELS = 254  # steps of a map's bytes; even, so that the middle is a step


def draw_boundary(subject: Subject) -> View:
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
    """Return the area of each predicted class or the range of values, the accuracy, and the constant features."""
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


CURVE_POINTS = 121  # points of a curve
CURVE_NEURONS = 32  # most neurons that are drawn: those that change the curve most


def draw_function(subject: Subject) -> View:
    """Return the curve with the examples, and the neurons of a single hidden layer."""
    target, on = get_target(subject), line(subject)
    assert isinstance(target, Value)
    x, said, neurons = _evaluate_line(subject, on)
    curve = said * target.scale + target.mean
    drawings = [_curve(on, target, x, curve)]
    summary = f"For {on.axis.name} from {number(on.bounds[0])} to {number(on.bounds[1])}, predictions range from "
    summary += f"{number(float(curve.min()))} to {number(float(curve.max()))} ({target.column})."
    if neurons is not None:
        drawings.append(_neurons(on, x, neurons * target.scale))
        summary += f" {plural(neurons.shape[1], 'neuron')} sum to the curve."
    if on.held:
        summary += f" Fixed: {', '.join(on.held[:8])}{' …' if len(on.held) > 8 else ''}."
    return View(
        id="function",
        title="Learned function",
        says=f"The prediction of {target.column} over {on.axis.name}, and the contribution of each neuron.",
        summary=summary,
        table=table(
            {on.axis.name: "number", target.column: "number"},
            [[_round_point(a), _round_point(b)] for a, b in zip(x.tolist(), curve.tolist())][:: CURVE_POINTS // 20],
        ),
        drawings=drawings,
    )


def _evaluate_line(subject: Subject, on: Line) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return inputs (n,), outputs (n,), and the contributions of the neurons of a single hidden layer (n, width)."""
    model = subject.model
    x, inputs = on.grid(CURVE_POINTS)
    found: dict[str, Tensor] = {}

    def see(name: str, module: nn.Module, args: Any, output: Any) -> None:
        found[name] = output.detach().clone()

    hidden = _only_hidden(subject)
    dtype = next(model.parameters()).dtype
    with eval_mode(model), torch.no_grad(), hook_outputs(model, see, [hidden[0].gives] if hidden else []):
        said = model(inputs.to(dtype))[:, 0].double()
    if hidden is None:
        return x, said, None
    weight = find_linear(model, hidden[1]).weight.detach().double()[0]  # (width,)
    return x, said, found[hidden[0].gives].double() * weight


def _only_hidden(subject: Subject) -> tuple[Dense, Dense] | None:
    """Return the hidden layer and the head of a network with one hidden layer, or None."""
    layers = list(find_dense_layers(subject.model).values())
    return (layers[0], layers[1]) if len(layers) == 2 else None


def _curve(on: Line, target: Value, x: Tensor, curve: Tensor) -> Drawing:
    """Return a chart of the prediction over the feature, with the examples of each split as dots."""
    series: list[dict[str, Any]] = [
        {
            "name": {"train": "training", "test": "test"}.get(name, name),
            "split": {"train": "train", "test": "val"}.get(name, "val"),
            "dots": True,
            "points": sorted(_curve_points(at[:, 0], was.double() * target.scale + target.mean)),
        }
        for name, (at, was) in on.points.items()
        if was is not None
    ]
    series.append({"name": "model", "split": "test", "points": _curve_points(x, curve)})
    return charts.lines(f"{target.column} over {on.axis.name}", on.axis.name, series, zero=False)


def _neurons(on: Line, x: Tensor, each: Tensor) -> Drawing:
    """Return a chart of the neurons that change the curve most: the centred contribution of each."""
    each = each - each.mean(0)
    most = each.std(0).argsort(descending=True)[:CURVE_NEURONS].sort().values.tolist()
    which = f"the {len(most)} with the largest contribution" if len(most) < each.shape[1] else "each times its weight"
    series = [{"name": "", "split": "train", "points": _curve_points(x, each[:, j])} for j in most]
    return charts.lines(f"Neurons: {which}", on.axis.name, series, zero=False)


def _curve_points(x: Tensor, y: Tensor) -> list[list[float]]:
    return [[_round_point(a), _round_point(b)] for a, b in zip(x.tolist(), y.tolist())]


def _round_point(value: float) -> float:
    return float(f"{value:.5g}")
