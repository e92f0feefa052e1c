"""View 9: how gradients travel, from the loss back through the layers and through time; and what shortcuts do to them.

For a weight W, its gradient G = ∂L/∂W and a step ΔW of the optimizer, what is shown is ‖∂L/∂output‖ and ‖G‖ of each
layer, and ‖ΔW‖ / ‖W‖, the fraction by which a step moves it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ..draw import charts
from ..draw.description import Drawing, View, table
from ..draw.number_format import number, percent, plural, written
from ..inspect.outputs import carriers
from .common import examples_said, of_these_examples
from .network import layers_of
from .plain_networks import beside_plain
from .run.reproduction import LOG_FROM
from .shortcuts import parted
from .subject import Subject, with_first

SAYS = "how strong gradients are in every layer, what a step moves, dead units, and gradients back through time"
READ = (
    "Follow the curve from the right, where the loss is, to the left. A curve that falls by orders of magnitude means "
    "that the first layers hardly learn (gradients vanish), one that rises that steps there are too long (they "
    "explode). A step should move weights by about a thousandth of their size: far more and training is unsteady, far "
    "less and it stands still. For recurrent networks the second curve shows how much of the loss reaches each step "
    "of the sequence. For residual ones the gradient at each block's input is parted into what comes straight through "
    "the shortcut and what comes through the block's layers, and their like without shortcuts stands beside them."
)
MISLEADS = (
    "These are the gradients of a few examples, at one moment: others give other values, and norms say nothing of "
    "direction. A layer of more weights has a larger norm for that alone. Batch normalization hides the scale of "
    "weights, so that a small step relative to them may still be a large one for what the layer computes. A unit is "
    "called dead if no gradient reaches it from these examples; from others one may. Where there are no targets, "
    "the loss is that of random ones."
)
OPTIONS: dict[str, str] = {}

# How far, in learning rates, a first step moves each weight that has a gradient, whatever that is: Adam and Adagrad
# divide it by its own size, RMSprop by a tenth of it, √(1 − 0.99).
SIGNS = {"adam": 1.0, "adamw": 1.0, "adagrad": 1.0, "rmsprop": 10.0}
# How far in learning rates and gradients: the first step of momentum is that of SGD, Nesterov's is g + 0.9 g.
GRADIENTS = {"sgd": 1.0, "momentum": 1.0, "nesterov": 1.9}
DECAY, TINY = 0.95, 1e-6  # Adadelta's ρ and ε here; its first step is √ε g / √((1 − ρ) g² + ε)
KNOWN = {*SIGNS, *GRADIENTS, "adadelta"}  # optimizers; Muon's step is not one of each layer by itself
USUAL = {"optimizer": "adamw", "lr": 1e-3}  # where neither run nor card says it
MOST = 4e9  # MACs of the examples that are looked at
FEW = 5  # layers from which on they are drawn as a curve
MOST_ROWS = 20
LEAST = 1e-30  # a norm below this is none: it is drawn as missing


def suits(subject: Subject) -> bool:
    """Whether there is something to learn, and a loss that is smooth in it."""
    if getattr(subject.task, "loss_name", "") == "perceptron" and subject.target is None:
        return False
    return any(p.requires_grad for p in subject.model.parameters())


def view(subject: Subject) -> View:
    """Gradient flow by layer, by step for recurrent networks, and beside plain networks for residual ones."""
    flow = gradient_flow(looked_at := affordable(subject))
    optimizer, lr = rate(subject)
    rows = [layer.row(optimizer, lr) for layer in flow.layers]
    drawn = [layer for layer in flow.layers if layer.matrix and not layer.own] or flow.layers
    drawings = _by_layer(drawn, optimizer, lr)
    drawings += [_dead(flow.layers)] if any(layer.dead for layer in flow.layers) else []
    drawings += [_by_step(name, norms) for name, norms in flow.steps.items()]
    said = _said(flow, optimizer, lr)
    for compared in (parted(looked_at), beside_plain(subject)):
        if compared is not None:
            drawings += compared.drawings
            said += f" {compared.said}"
    return View(
        id="gradients",
        title="Gradient flow",
        says=f"From the loss of {_examples(looked_at)}, at the right, back to the input, at the left: how strong the "
        "gradient is that reaches each layer.",
        summary=said,
        table=table(
            {
                "layer": "text",
                "‖∂L/∂output‖": "number",
                "‖∂L/∂weight‖": "number",
                "‖weight‖": "number",
                "step / weight": "number",
                "dead units": "fraction",
            },
            rows,
        ),
        drawings=drawings,
    )


# --- what is measured -----------------------------------------------------------------------------------------


@dataclass
class LayerGradients:
    """A module with weights of its own, in the order in which they were used."""

    name: str
    output: float = 0.0  # ‖∂L/∂output‖ over all examples
    calls: list[float] = field(default_factory=list)  # the same of each time that it ran
    dead: float = 0.0  # fraction of its units that no gradient reaches
    weight: float = 0.0  # ‖W‖ of all its weights
    gradient: float = 0.0  # ‖∂L/∂W‖
    moving: int = 0  # how many weights have a gradient
    slow: float = 0.0  # ‖ΔW‖ of Adadelta's first step at a rate of 1
    own: bool = False  # weights of the model itself, in none of its layers: a class token, a table of positions
    matrix: bool = False  # whether it multiplies by weights: a normalization, which scales, is in the table alone

    def step(self, optimizer: str, lr: float) -> float | None:
        """‖ΔW‖ / ‖W‖ of a first step from here; None where the optimizer's is not known, or no weight is."""
        if not self.weight or optimizer not in KNOWN:
            return None
        if optimizer == "adadelta":
            size = self.slow
        elif optimizer in SIGNS:
            size = SIGNS[optimizer] * math.sqrt(self.moving)
        else:
            size = GRADIENTS[optimizer] * self.gradient
        return lr * size / self.weight

    def row(self, optimizer: str, lr: float) -> list[Any]:
        """Its numbers, as the table has them."""
        output = None if self.own else self.output
        numbers = (output, self.gradient, self.weight, self.step(optimizer, lr), self.dead)
        return [self.name, *map(_finite, numbers)]


@dataclass
class Flow:
    """What one backward pass shows."""

    layers: list[LayerGradients]
    steps: dict[str, list[float]] = field(default_factory=dict)  # recurrent layer → the norm that reaches each step


def affordable(subject: Subject) -> Subject:
    """The subject with as many of its first examples as take no more than MOST MACs, at least one."""
    if subject.kind == "graph" or subject.count == 1:
        return subject
    most = max(1, int(MOST // max(1, layers_of(subject).multiply_adds)))
    if most >= subject.count:
        return subject
    return with_first(subject, most)


def _examples(subject: Subject) -> str:
    targets = "" if subject.task is not None and subject.target is not None else ", with targets drawn at random"
    return examples_said(subject) + targets


def gradient_flow(subject: Subject) -> Flow:
    """One forward and backward pass over the subject's examples, of which norms alone are kept. The model is left as it
    was: its gradients, its buffers and its mode too.

    Batch normalization takes the statistics of these examples, as in training; nothing is dropped.
    """
    inputs = tuple(x.detach().clone().requires_grad_() if x.is_floating_point() else x for x in subject.inputs)
    subject = dataclasses.replace(subject, inputs=inputs)
    try:
        return _backward(subject, of_the_batch=True)
    except ValueError:  # one value of a unit has no statistics
        return _backward(subject, of_the_batch=False)


def _backward(subject: Subject, of_the_batch: bool) -> Flow:
    model = subject.model
    layers = {
        name: LayerGradients(name)
        for name, module in model.named_modules()
        if any(p.requires_grad for p in module.parameters(recurse=False))
    }
    adadelta = rate(subject)[0] == "adadelta"
    steps: dict[str, _Steps] = {}
    used: dict[str, None] = {}
    with contextlib.ExitStack() as undo:
        undo.enter_context(torch.enable_grad())
        undo.enter_context(torch.random.fork_rng([]))
        torch.manual_seed(0)
        for name, module in model.named_modules():
            if name in layers and name:
                undo.callback(module.register_forward_hook(_output(layers[name], used), with_kwargs=True).remove)
            if isinstance(module, nn.RNNBase | nn.RNNCellBase):
                steps[name] = _Steps()
                undo.callback(module.register_forward_pre_hook(steps[name].look).remove)
        undo.enter_context(of_these_examples(model, of_the_batch))
        own = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        given = [x for x in subject.inputs if x.requires_grad]  # or nothing would be told of what reads them
        found = torch.autograd.grad(subject.loss(), [*(p for _, p in own), *given], allow_unused=True)
    for (name, parameter), gradient in zip(own, found, strict=False):
        layer = layers[name.rpartition(".")[0]]
        layer.weight = math.hypot(layer.weight, _norm(parameter))
        layer.matrix |= parameter.ndim > 1
        if gradient is not None:
            gradient = gradient.coalesce().values() if gradient.is_sparse else gradient  # that of a table of words
            layer.gradient = math.hypot(layer.gradient, _norm(gradient))
            layer.moving += int(torch.count_nonzero(gradient))
            if adadelta:
                slowed = gradient * math.sqrt(TINY) / (gradient.square() * (1 - DECAY) + TINY).sqrt()
                layer.slow = math.hypot(layer.slow, _norm(slowed))
    if "" in layers:
        layers[""].name, layers[""].own = _own(model), True
    order = [*([""] if "" in layers else []), *used, *(name for name in layers if name and name not in used)]
    return Flow([layers[name] for name in order], {name: s.norms() for name, s in steps.items() if s.norms()})


def _own(model: nn.Module) -> str:
    """The weights that belong to the model itself, by their names."""
    names = [name for name, _ in model.named_parameters(recurse=False)]
    return " and ".join(names)


def _output(layer: LayerGradients, used: dict[str, None]) -> Any:
    """A hook that notes the gradient of what a module gives, when it comes: of a recurrent layer that of its steps and
    of its last states together, as either may be what is read."""

    def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        used.setdefault(layer.name)
        call, came = len(layer.calls), list[Tensor]()
        layer.calls.append(0.0)

        def backward(part: Tensor) -> None:
            came.append(part.detach())
            gradient = came[0] if len(came) == 1 else torch.stack(came).sum(0)
            layer.calls[call] = _norm(gradient)
            layer.output = math.hypot(*layer.calls)
            if gradient.ndim >= 2:
                along = 1 if gradient.ndim >= 4 or isinstance(module, nn.Conv1d | nn.BatchNorm1d) else -1
                reached = gradient.movedim(along, 0).flatten(1).ne(0).any(1)
                layer.dead = 1 - float(reached.float().mean())

        for part, whole in carriers(module, args, kwargs, output):
            if part.requires_grad:
                part.register_hook(lambda g, whole=whole: backward(whole(g)))  # type: ignore[no-untyped-call]

    return hook


class _Steps:
    """The gradient of what a recurrent layer reads, step by step: how much of the loss depends on each."""

    def __init__(self) -> None:
        self._calls: list[Tensor] = []  # Σ over the examples of ‖∂L/∂x_t‖², (T,) for a layer, () for a cell

    def look(self, module: nn.Module, args: Any) -> None:
        """A hook before the layer reads."""
        given = args[0] if args else None
        bundle = given if isinstance(given, PackedSequence) else None
        x = bundle.data if bundle is not None else given
        if not isinstance(x, Tensor) or not x.requires_grad:
            return
        call = len(self._calls)
        self._calls.append(torch.zeros(()))

        def backward(gradient: Tensor) -> None:
            square = gradient.detach().double().square().sum(-1)
            if bundle is not None:
                step = torch.arange(len(bundle.batch_sizes)).repeat_interleave(bundle.batch_sizes)
                self._calls[call] = torch.zeros(len(bundle.batch_sizes)).double().index_add(0, step, square.cpu())
            elif isinstance(module, nn.RNNBase):
                batch_first = square.ndim == 2 and module.batch_first
                self._calls[call] = square.sum(0) if batch_first else square.sum(1) if square.ndim == 2 else square
            else:
                self._calls[call] = square.sum()

        x.register_hook(backward)  # type: ignore[no-untyped-call]

    def norms(self) -> list[float]:
        """‖∂L/∂x_t‖ for every step that was read; none where it read but one."""
        if not self._calls:
            return []
        longest = max(self._calls, key=lambda call: call.numel())
        squares = longest if longest.ndim else torch.stack([call.double() for call in self._calls if call.ndim == 0])
        return squares.sqrt().tolist() if len(squares) > 1 else []


def _norm(x: Tensor) -> float:
    return float(torch.linalg.vector_norm(x.detach()))


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.4g}")


def rate(subject: Subject) -> tuple[str, float]:
    """The optimizer and the learning rate of the run, or those that the preset is usually trained with."""
    said = {**USUAL, **subject.preset.card.settings, **(subject.run.about["settings"] if subject.run else {})}
    return str(said["optimizer"]), float(said["lr"])


# --- how it is drawn ------------------------------------------------------------------------------------------


def lines(title: str, x: str, series: dict[str, list[list[Any]]]) -> Drawing:
    """Curves over a common x, on a logarithmic scale where values are far apart. What is 0 cannot stand on one: the
    line is broken there."""
    parts = ("test", "val", "train", "")
    shown = [
        {"name": name, "split": parts[min(k, 3)] if len(series) > 1 else "", "points": points}
        for k, (name, points) in enumerate(series.items())
    ]
    values = [y for points in series.values() for _, y in points if y is not None]
    log = bool(values) and max(values) >= LOG_FROM * min(values)
    return charts.lines(title, x, shown, log=log, zero=not log)  # fmt: skip


def points(values: list[float]) -> list[list[Any]]:
    """[1, first], [2, second], …"""
    return [[i + 1, _finite(v) if v > LEAST else None] for i, v in enumerate(values)]


def bars(title: str, labels: list[str], columns: dict[str, list[float]], format: str = "number") -> Drawing:
    """A row for each label, with a bar in each column."""
    rows = [
        {
            "label": label,
            "cells": [{"value": _finite(column[i])} for column in columns.values()],
            "tip": [label, *(f"{name} {written(column[i], format)}" for name, column in columns.items())],
        }
        for i, label in enumerate(labels)
    ]
    heads = [charts.bar(name, format) for name in columns]
    return charts.rows(title, heads, rows)


def _by_layer(layers: list[LayerGradients], optimizer: str, lr: float) -> list[Drawing]:
    """Curves from layer to layer; of few layers, bars with their names."""
    names = [layer.name for layer in layers]
    norms = {"output": [layer.output for layer in layers], "weight": [layer.gradient for layer in layers]}
    moves = [layer.step(optimizer, lr) or 0.0 for layer in layers]
    about = ("Gradient of outputs and of weights", f"First step of {optimizer} over weight")
    if len(layers) < FEW:
        drawn = [bars(about[0], names, norms), bars(about[1], names, {"step / weight": moves})]
    else:
        by_layer = {name: points(values) for name, values in norms.items()}
        drawn = [lines(about[0], "layer", by_layer), lines(about[1], "layer", {"": points(moves)})]
    return drawn if optimizer in KNOWN else drawn[:1]


def _dead(layers: list[LayerGradients]) -> Drawing:
    shown = sorted((layer for layer in layers if layer.dead), key=lambda layer: -layer.dead)[:MOST_ROWS]
    columns = {"dead": [layer.dead for layer in shown]}
    return bars("Dead units: no gradient reaches them", [layer.name for layer in shown], columns, "fraction")


def _by_step(name: str, norms: list[float]) -> Drawing:
    return lines(f"Gradient that reaches the steps of {name}", "step", {"": points(norms)})


def _said(flow: Flow, optimizer: str, lr: float) -> str:
    """The findings, with numbers."""
    known = [layer for layer in flow.layers if layer.gradient > LEAST]
    known = [layer for layer in known if not layer.own] or known
    if not known:
        return "No gradient reaches any weight from these examples."
    first, last = known[0], known[-1]
    ratio = first.gradient / last.gradient
    said = f"The gradient of the weights has norm {number(last.gradient)} in {last.name}"
    said += f" and {number(first.gradient)} in {first.name}, {_times(ratio)}." if first is not last else "."
    moved = [(step, layer.name) for layer in known if (step := layer.step(optimizer, lr)) is not None]
    if moved:
        (low, least), (high, most) = min(moved), max(moved)
        said += f" A first step of {optimizer} at lr {number(lr)} moves the weights by {number(low)} of their size"
        said += f" ({least}) to {number(high)} ({most})." if least != most else "."
    if optimizer not in KNOWN:
        said += f" How far a first step of {optimizer} moves the weights is not known here."
    dead = max(flow.layers, key=lambda layer: layer.dead)
    if dead.dead:
        some = sum(1 for layer in flow.layers if layer.dead)
        said += f" {plural(some, 'layer')} with dead units; most in {dead.name}, {percent(dead.dead)}."
    for name, norms in flow.steps.items():
        reached = [v for v in norms if v > LEAST]
        if reached:
            said += f" Back through {plural(len(norms), 'step')}, the gradient that {name} reads goes from "
            said += f"{number(norms[-1])} at the last to {number(norms[0])} at the first."
    return said


def _times(ratio: float) -> str:
    if 0.8 <= ratio <= 1.25:
        return "about as much"
    return f"{number(ratio)} times as much" if ratio > 1 else f"{number(1 / ratio)} times less"


__all__ = ["gradient_flow", "view"]
