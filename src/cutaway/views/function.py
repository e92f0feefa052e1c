"""The function of one feature that a network has learned, and the neurons that add up to it.

For a network with one hidden layer, ŷ(x) = b + Σ_j w_j g(v_j x + c_j): each neuron is a bend or a step. With enough
neurons the sum approximates any continuous function on an interval (G. Cybenko, Approximation by superpositions of a
sigmoidal function, 1989, <https://doi.org/10.1007/BF02551274>; K. Hornik, 1991). The theorem says that such weights
exist, not that training finds them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..core.spec import Value
from ..draw import charts
from ..draw.description import Drawing, View, table
from ..draw.number_format import number, plural
from ..models.base import Dense
from ..nn.eval_mode import eval_mode
from .common import find_dense_layers, find_linear, get_target, hook_outputs
from .plane import Line, features, line
from .subject import Subject

SAYS = "the learned function of one numeric feature of a table, and the neurons that sum to it"
READ = (
    "The curve is the prediction over the values of one feature; dots are examples. Below it, for a network with one "
    "hidden layer, each line is one neuron times its output weight: with the bias they sum to the curve. A wider layer "
    "has more such terms."
)
MISLEADS = (
    "For a table with more columns this is one slice: the other features are fixed at the mean or the most frequent "
    "value of the training data, so an example with other values may lie off the curve. Outside the range of the "
    "examples the curve is an extrapolation, not something learned. Single neurons need not have a meaning: other "
    "neurons could sum to the same curve."
)
OPTIONS = {"feature": "column for the axis, e.g. age"}

POINTS = 121  # points of a curve
NEURONS = 32  # most neurons that are drawn: those that change the curve most


def suits(subject: Subject) -> bool:
    """Return whether the model predicts a number from a table with a numeric column."""
    return (
        subject.kind == "table"
        and subject.inputs[0].ndim == 2
        and isinstance(get_target(subject), Value)
        and bool(features(subject))
    )


def view(subject: Subject) -> View:
    """Return the curve with the examples, and the neurons of a single hidden layer."""
    target, on = get_target(subject), line(subject)
    assert isinstance(target, Value)
    x, said, neurons = _evaluate(subject, on)
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
            [[_short(a), _short(b)] for a, b in zip(x.tolist(), curve.tolist())][:: POINTS // 20],
        ),
        drawings=drawings,
    )


def _evaluate(subject: Subject, on: Line) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return inputs (n,), outputs (n,), and the contributions of the neurons of a single hidden layer (n, width)."""
    model = subject.model
    x, inputs = on.grid(POINTS)
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
    series: list[dict[str, Any]] = [
        {
            "name": {"train": "training", "test": "test"}.get(name, name),
            "split": {"train": "train", "test": "val"}.get(name, "val"),
            "dots": True,
            "points": sorted(_points(at[:, 0], was.double() * target.scale + target.mean)),
        }
        for name, (at, was) in on.points.items()
        if was is not None
    ]
    series.append({"name": "model", "split": "test", "points": _points(x, curve)})
    return charts.lines(f"{target.column} over {on.axis.name}", on.axis.name, series, zero=False)


def _neurons(on: Line, x: Tensor, each: Tensor) -> Drawing:
    """Return a chart of the neurons that change the curve most: the centred contribution of each."""
    each = each - each.mean(0)
    most = each.std(0).argsort(descending=True)[:NEURONS].sort().values.tolist()
    which = f"the {len(most)} with the largest contribution" if len(most) < each.shape[1] else "each times its weight"
    series = [{"name": "", "split": "train", "points": _points(x, each[:, j])} for j in most]
    return charts.lines(f"Neurons: {which}", on.axis.name, series, zero=False)


def _points(x: Tensor, y: Tensor) -> list[list[float]]:
    return [[_short(a), _short(b)] for a, b in zip(x.tolist(), y.tolist())]


def _short(value: float) -> float:
    return float(f"{value:.5g}")
