"""Back-propagation by numbers: the sums of every neuron in the forward pass and its error in the backward pass."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..core.spec import Classes, Value
from ..draw.description import Drawing, View, table
from ..draw.number_format import number
from ..models.base import Dense
from ..nn.activations import formula, softmax
from ..nn.modules import eval_mode
from ..nn.textbook.backprop import Layer, backward, batch_norm_slope, forward, gradient_binary_cross_entropy
from .json_values import to_lists
from .learned_function import features
from .model_layers import find_dense_layers, find_linear
from .subject import Subject, get_target, parse_index

SHOWN = 8  # most neurons of a layer that are shown


class LayerTrace(NamedTuple):
    """The numbers of one layer for one example.

    For the output layer, a is z and `back` is None, except for a single logit of two classes: its a is σ(z), the
    probability of the second class, and `back` is ∂L/∂a.
    """

    name: str  # name of its linear module
    title: str
    activation: str
    weight: Tensor  # (out, in)
    bias: Tensor | None  # (out,)
    x: Tensor  # (in,) inputs
    z: Tensor  # (out,) W x + b
    u: Tensor | None  # (out,) z normalized; None without normalization
    a: Tensor  # (out,) g(u), or g(z)
    back: Tensor | None  # (out,) ∂L/∂a: Wᵀδ of the next layer
    slope: Tensor | None  # (out,) ∂a/∂z; None if neurons share statistics
    delta: Tensor  # (out,) ∂L/∂z

    @property
    def weight_gradient(self) -> Tensor:
        """Return ∂L/∂W = δ xᵀ, (out, in)."""
        return self.delta[:, None] * self.x


def draw_backprop(subject: Subject) -> View:
    """Return the neurons with their numbers for one example, forward and backward."""
    i = parse_index(subject.options, "example", 0, subject.count)
    one = _to_float64(_single_example(subject, i))
    layers, loss = propagate(one)
    kept = [_select_neurons(layers[0].x.abs()), *(_select_neurons(layer.delta.abs()) for layer in layers)]
    how = _delta_formula(one, layers[-1])
    rows = [
        [layer.title, j + 1, z, a, d]
        for layer, js in zip(layers, kept[1:], strict=True)
        for j, z, a, d in zip(js, to_lists(layer.z[js]), to_lists(layer.a[js]), to_lists(layer.delta[js]), strict=True)
    ]
    largest = max(rows, key=lambda row: abs(row[4]))
    drawing: Drawing = {
        "kind": "neurons",
        "title": f"{subject.name(i)}: loss {number(loss)}",
        "layers": [
            _inputs(subject, layers[0], kept[0]),
            *(_layer(one, layers, k, kept, how) for k in range(len(layers))),
        ],
    }
    return View(
        id="backprop",
        title="Back-propagation by numbers",
        says=f"The forward and backward pass of {subject.name(i)} through every neuron; click a neuron for its sums.",
        summary=(
            f"The loss is {number(loss)}{_target_note(one)}. The largest δ among the neurons shown is "
            f"{number(largest[4])}, of neuron {largest[1]} of {largest[0]}. At the output δ = {how[0]}."
        ),
        table=table({"layer": "text", "neuron": "count", "z": "number", "a": "number", "δ": "number"}, rows),
        drawings=[drawing],
    )


# --- the arithmetic -------------------------------------------------------------------------------------------


def _single_example(subject: Subject, i: int) -> Subject:
    """Return the subject with example i alone."""
    return dataclasses.replace(
        subject,
        inputs=tuple(x[i : i + 1] for x in subject.inputs),
        target=None if subject.target is None else subject.target[i : i + 1],
        rows=subject.rows[i : i + 1],
    )


def _to_float64(one: Subject) -> Subject:
    """Return the subject in float64.

    If a network is almost certain, 1 − p is lost in float32, and δ and the loss would be 0.
    """
    target = one.target
    return dataclasses.replace(
        one,
        model=copy.deepcopy(one.model).double(),
        inputs=tuple(x.double() if x.is_floating_point() else x for x in one.inputs),
        target=target.double() if target is not None and target.is_floating_point() else target,
    )


def propagate(one: Subject) -> tuple[list[LayerTrace], float]:
    """Return the numbers of every layer for the subject's one example, and the loss.

    They are computed by `nn/textbook/backprop.py`.
    """
    found = find_dense_layers(one.model)
    layers = [_to_layer(one.model, dense) for dense in found.values()]
    with eval_mode(one.model), torch.no_grad():
        trace = forward(layers, one.inputs[0].flatten(1))
        delta, loss = _output_gradient(one, trace.a[-1][0])
        k = _class(one)
        if k is not None and _is_one_logit(one, trace.a[-1][0], delta, k):
            layers[-1] = layers[-1]._replace(activation="sigmoid")
            trace = forward(layers, one.inputs[0].flatten(1))
        gradients = backward(layers, trace, delta[None])
        if k is not None and layers[-1].activation == "sigmoid":
            into = gradient_binary_cross_entropy(trace.a[-1], torch.tensor([k]))
            gradients[-1] = gradients[-1]._replace(back=into)
        return [
            LayerTrace(
                dense.linear, title, layer.activation, layer.weight, layer.bias, trace.a[i][0], trace.z[i][0],
                None if layer.norm is None else trace.u[i][0], trace.a[i + 1][0],
                None if step.back is None else step.back[0], _slope(layer, trace.u[i][0]), step.delta[0],
            )
            for i, ((title, dense), layer, step) in enumerate(zip(found.items(), layers, gradients, strict=True))
        ], loss  # fmt: skip


def _is_one_logit(one: Subject, z: Tensor, delta: Tensor, k: int) -> bool:
    """Return whether the output is a single logit with the loss −y log σ(z) − (1 − y) log(1 − σ(z)), for y = k."""
    entropy = getattr(one.task, "loss_name", "") == "cross_entropy"
    return entropy and len(z) == 1 and abs(float(z.sigmoid()) - k - float(delta)) < 1e-5


def _slope(layer: Layer, u: Tensor) -> Tensor | None:
    """Return ∂a/∂z of each neuron, or None if neurons share normalization statistics."""
    inner = formula(layer.activation).derivative(u)
    if isinstance(layer.norm, nn.BatchNorm1d):
        return inner * batch_norm_slope(layer.norm)
    return inner if layer.norm is None else None


def _to_layer(model: nn.Module, dense: Dense) -> Layer:
    linear, norm = find_linear(model, dense), model.get_submodule(dense.norm) if dense.norm else None
    return Layer(linear.weight.detach(), None if linear.bias is None else linear.bias.detach(), dense.activation, norm)


class _FixedOutputs(nn.Module):
    """A stand-in for the model that returns given outputs."""

    def __init__(self, outputs: Tensor) -> None:
        super().__init__()
        self.outputs = outputs

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the given outputs."""
        return self.outputs


def _output_gradient(one: Subject, z: Tensor) -> tuple[Tensor, float]:
    """Return ∂L/∂z of the outputs (K,), from the loss itself, and the loss."""
    with torch.enable_grad():
        outputs = z.detach()[None].requires_grad_()
        loss = dataclasses.replace(one, model=_FixedOutputs(outputs)).loss()
        (delta,) = torch.autograd.grad(loss, outputs)
    return delta[0] + 0.0, float(loss.detach())  # no −0


def _delta_formula(one: Subject, last: LayerTrace) -> tuple[str, list[str]]:
    """Return the formula of δ at the outputs in words and, for each output, in numbers if it is a usual formula."""
    z, delta = last.z.double(), last.delta.double()
    k, width = _class(one), len(z)
    if k is not None and last.back is not None:
        return "a − y with a = σ(z)", [f"{number(float(last.a))} − {k}"]
    if k is not None and width > 1:
        hot = torch.zeros_like(z)
        hot[k] = 1
        p = softmax(z)
        if torch.allclose(p - hot, delta, atol=1e-5):
            return "softmax(z) − t", [f"{number(a)} − {b:.0f}" for a, b in zip(to_lists(p), hot.tolist(), strict=True)]
    if one.target is not None and one.target.is_floating_point() and one.target.ndim == 1 and width == 1:
        t = float(one.target[0])
        if abs(2 * (float(z) - t) - float(delta)) < 1e-5 * max(1.0, abs(float(delta))):
            return "2 (z − t)", [f"2 ({number(float(z))} − {number(t)})"]
    return "∂L/∂z", ["∂L/∂z of the loss"] * width


def _class(one: Subject) -> int | None:
    target = one.target
    return int(target[0]) if target is not None and not target.is_floating_point() and target.ndim == 1 else None


# --- drawing --------------------------------------------------------------------------------------------------


def _select_neurons(size: Tensor) -> list[int]:
    """Return the neurons to show, in their order: all, or the eight with the largest numbers."""
    if len(size) <= SHOWN:
        return list(range(len(size)))
    found: list[int] = size.nan_to_num().argsort(descending=True, stable=True)[:SHOWN].sort().values.tolist()
    return found


def _inputs(subject: Subject, first: LayerTrace, kept: list[int]) -> dict[str, Any]:
    names = {f.place: f.name for f in features(subject)} if subject.kind == "table" else {}
    columns = getattr(subject.spec, "columns", ())
    said = [names.get(i) or (columns[i] if i < len(columns) else f"x{i + 1}") for i in kept]
    values = to_lists(first.x[kept])
    neurons = [{"name": name, "a": value} for name, value in zip(said, values, strict=True)]
    return {"title": "inputs", "of": len(first.x), "neurons": neurons}


def _layer(
    one: Subject, layers: list[LayerTrace], k: int, kept: list[list[int]], how: tuple[str, list[str]]
) -> dict[str, Any]:
    """Return a layer's shown neurons, with weights and gradients from the shown neurons of the previous layer."""
    layer, js, sources = layers[k], kept[k + 1], kept[k]
    last = k + 1 == len(layers)
    shown = layer.weight[js][:, sources]  # (shown, sources)
    rest = layer.weight[js] @ layer.x - shown @ layer.x[sources]
    neurons = []
    for n, j in enumerate(js):
        neuron = {
            "name": _neuron_name(one, layer, j),
            "index": j,
            "z": to_lists(layer.z[j]),
            "a": to_lists(layer.a[j]),
            "delta": to_lists(layer.delta[j]),
            "bias": None if layer.bias is None else to_lists(layer.bias[j]),
            "rest": to_lists(rest[n]) if len(sources) < len(layer.x) else None,
        }
        if layer.u is not None:
            neuron["normalized"] = to_lists(layer.u[j])
        if last:
            neuron["how"] = how[1][j]
            if layer.back is not None and bool(layer.back.isfinite().all()):  # infinite where a is 0 or 1
                assert layer.slope is not None
                neuron["back"], neuron["slope"] = to_lists(layer.back[j]), to_lists(layer.slope[j])
        else:
            after = layers[k + 1]
            assert layer.back is not None
            neuron["back"] = to_lists(layer.back[j])
            neuron["slope"] = None if layer.slope is None else to_lists(layer.slope[j])
            there = after.weight[kept[k + 2], j] @ after.delta[kept[k + 2]]
            neuron["back_rest"] = to_lists(layer.back[j] - there) if len(kept[k + 2]) < len(after.delta) else None
        neurons.append(neuron)
    return {
        "title": layer.title,
        "of": len(layer.z),
        "name": layer.name,
        "activation": layer.activation.replace("_", " "),
        "sources": sources,
        "weights": to_lists(shown),
        "gradients": to_lists(layer.weight_gradient[js][:, sources]),
        "hidden_inputs": len(layer.x) - len(sources),
        "neurons": neurons,
    }


def _neuron_name(one: Subject, layer: LayerTrace, j: int) -> str:
    target = get_target(one)
    if layer.title != "output":
        return f"neuron {j + 1}"
    if isinstance(target, Classes):
        return target.names[j if len(layer.z) > 1 else -1]
    return target.column if isinstance(target, Value) else f"output {j + 1}"


def _target_note(one: Subject) -> str:
    """Return the target of the example, in words."""
    target, k = get_target(one), _class(one)
    if isinstance(target, Classes) and k is not None:
        return f"; the example is {target.names[k]}"
    if isinstance(target, Value) and one.target is not None:
        return f"; the example's {target.column} is {number(float(one.target[0]) * target.scale + target.mean)}"
    return ", against a random target"
