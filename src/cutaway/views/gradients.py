"""Gradient flow from the loss back through layers and time, and the effect of shortcuts on it.

For a weight W with the gradient G = ∂L/∂W and an optimizer step ΔW, the view shows ‖∂L/∂output‖ and ‖G‖ of each layer,
and the relative step size ‖ΔW‖ / ‖W‖.

For a block with a shortcut, y = ReLU(F(x) + W_s x), it follows, with g = ∂L/∂y where y > 0 and 0 elsewhere (g = ∂L/∂y
without the outer ReLU),

    ∂L/∂x = W_sᵀ g + (∂F/∂x)ᵀ g

K. He, X. Zhang, S. Ren, J. Sun, Identity mappings in deep residual networks, 2016, equation 5, has it for blocks
without the outer ReLU <https://arxiv.org/abs/1603.05027>: the first part reaches every block at any depth.

Small residual networks are compared with the same networks without shortcuts, at initialization. Without shortcuts and
with batch normalization, gradients do not vanish but grow from layer to layer towards the input (G. Yang et al., A mean
field theory of batch normalization, 2019, <https://arxiv.org/abs/1902.08129>). With shortcuts the growth is that of a
sum, not of a product.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ..draw import charts
from ..draw.description import Drawing, View, table
from ..draw.number_format import SUPERSCRIPT, format_value, number, percent, plural
from ..inspect.captures import capture
from ..inspect.example_inputs import output_carriers
from ..models.base import SupportsResidualBlocks
from ..models.resnet import NoShortcut
from ..nn.modules import batch_norm_mode
from .network import subject_layers
from .run.training import LOG_FROM
from .subject import Subject, examples_text, with_first

SIDE, CHANNELS, EXAMPLES, CLASSES = 16, 3, 8, 10  # size of the reduced networks' inputs, and number of classes
PARTS = (0.25, 0.5, 1.0)  # fractions of the blocks that are compared
MAX_BLOCKS = 27  # most blocks


@dataclass(frozen=True)
class GradientComparison:
    """The drawings and the summary of a comparison."""

    drawings: list[Drawing]
    said: str


def compare_paths(subject: Subject) -> GradientComparison | None:
    """Compare both parts at the input of each block but the first; None without shortcuts or for a single block."""
    norms = path_norms(subject)
    if not norms:
        return None
    named = {name: [x[i] for x in norms] for i, name in enumerate(("through the shortcut", "through the layers"))}
    places = range(2, len(norms) + 2)
    series = [
        {
            "name": name,
            "split": split,
            "points": [[x, float(f"{y:.4g}") if y > 0 else None] for x, y in zip(places, of)],
        }
        for (name, of), split in zip(named.items(), ("test", "val"))
    ]
    direct = sum(a > b for a, b in norms)
    said = (
        f"At the inputs of {direct} of {len(norms)} blocks ({percent(direct / len(norms))}), the larger part of the "
        f"gradient comes through the shortcut."
    )
    return GradientComparison(
        [charts.lines("Gradient at a block's input", "block", series, log=True, zero=False)], said
    )


def path_norms(subject: Subject) -> list[tuple[float, float]]:
    """Return ‖W_sᵀ g‖ and ‖(∂F/∂x)ᵀ g‖ at the input of each block but the first; an empty list without shortcuts.

    Batch normalization uses the statistics of these examples, as in training.
    """
    model = subject.model
    if not isinstance(model, SupportsResidualBlocks) or len(blocks := model.residual_blocks()) < 2:
        return []
    if isinstance(blocks[0].get_submodule("downsample"), NoShortcut):
        return []
    inputs = tuple(x.detach().clone().requires_grad_() if x.is_floating_point() else x for x in subject.inputs)
    subject = dataclasses.replace(subject, inputs=inputs)
    try:
        return _parts(subject, blocks, use_batch_statistics=True)
    except ValueError:  # one value of a unit has no statistics
        return _parts(subject, blocks, use_batch_statistics=False)


def _parts(subject: Subject, blocks: list[nn.Module], use_batch_statistics: bool) -> list[tuple[float, float]]:
    names = {module: name for name, module in subject.model.named_modules()}
    with torch.enable_grad(), torch.random.fork_rng([]), batch_norm_mode(subject.model, use_batch_statistics):
        torch.manual_seed(0)
        with capture(subject.model, ("features", "gradients"), *(names[block] for block in blocks)) as seen:
            torch.autograd.grad(subject.loss(), [x for x in subject.inputs if x.requires_grad])
        found = {block: (seen["features"][names[block]], seen["gradients"][names[block]]) for block in blocks}
        return [_norms(block, *found[before], *found[block]) for before, block in itertools.pairwise(blocks)]


def _norms(block: nn.Module, x: Tensor, whole: Tensor, y: Tensor, above: Tensor) -> tuple[float, float]:
    """Return the norms of the two parts of ∂L/∂x.

    x and y are the input and the output of a block, (N, C, H, W); `whole` is ∂L/∂x and `above` is ∂L/∂y. A block
    without a ReLU after the sum says so in `relu_after_sum`, and one whose shortcut does more than its module
    `downsample` has a method `shortcut_path`.
    """
    x = x.detach().clone().requires_grad_()
    added = getattr(block, "shortcut_path", block.get_submodule("downsample"))(x)
    g = above * (y > 0) if getattr(block, "relu_after_sum", True) else above
    (direct,) = torch.autograd.grad(added, x, g)
    return float(direct.norm()), float((whole - direct).norm())


def compare_with_plain(subject: Subject) -> GradientComparison | None:
    """Compare gradients with and without shortcuts in small networks of the same blocks; None without shortcuts."""
    model = subject.model
    if not isinstance(model, SupportsResidualBlocks):
        return None
    most = min(1.0, MAX_BLOCKS / len(model.residual_blocks()))
    both = [[block_norms(model, part * most, shortcuts) for shortcuts in (True, False)] for part in PARTS]
    found = list({depth: (depth, residual, plain) for (depth, residual), (_, plain) in both}.values())
    depth, residual, plain = found[-1]
    drawings = [
        _lines(
            f"With and without shortcuts, {depth} layers",
            "block",
            [_points(enumerate(norms, 1)) for norms in (residual, plain)],
        )
    ]
    if len(found) > 1:
        drawings.append(
            _lines(
                "First block over last, by depth",
                "layers",
                [_points((d, a[0] / a[-1]) for d, a in by_depth) for by_depth in _norms_by_depth(found)],
            )
        )
    ratios = [norms[0] / norms[-1] if norms[-1] else math.nan for norms in (residual, plain)]
    said = (
        f"In an untrained small version of {depth} layers, the gradient at the first block is {_ratio(ratios[0])} "
        f"times that at the last; without shortcuts, from the same seed, {_ratio(ratios[1])} times."
    )
    return GradientComparison(drawings, said)


def _norms_by_depth(found: list[tuple[int, list[float], list[float]]]) -> list[list[tuple[int, list[float]]]]:
    """Return the depths and norms of the residual networks, and those of the plain ones."""
    return [[(depth, residual) for depth, residual, _ in found], [(depth, plain) for depth, _, plain in found]]


def block_norms(model: SupportsResidualBlocks, fraction: float, shortcuts: bool) -> tuple[int, list[float]]:
    """Return the depth of the reduced network of seed 0, and ‖∂L/∂output‖ of each block for random images and classes.

    The depth is the number of layers with weights from input to output. The blocks are in order, first to last.
    """
    with torch.random.fork_rng([]), torch.enable_grad():
        torch.manual_seed(0)
        small = model.reduced(fraction).train()
        blocks = small.residual_blocks()
        branches = [m for block in blocks for m in block.get_submodule("downsample").modules()]
        depth = sum(isinstance(m, nn.Conv2d | nn.Linear) and m not in branches for m in small.modules())
        for block in blocks if not shortcuts else ():
            block.downsample = NoShortcut()
        names = {module: name for name, module in small.named_modules()}
        images = torch.randn(EXAMPLES, CHANNELS, SIDE, SIDE)
        classes = torch.randint(CLASSES, (EXAMPLES,))
        with capture(small, "gradients", *(names[block] for block in blocks)) as seen:
            F.cross_entropy(small(images), classes).backward()  # type: ignore[no-untyped-call]
    return depth, [float(seen["gradients"][names[block]].norm()) for block in blocks]


def _ratio(ratio: float) -> str:
    """Return a ratio as text with two or three digits, however large."""
    digits, power = f"{ratio:.1e}".split("e") if ratio >= 1e6 else ("", "")
    return f"{digits}×10{power.lstrip('+0').translate(SUPERSCRIPT)}" if power else number(float(f"{ratio:.3g}"))


def _points(pairs: Any) -> list[list[Any]]:
    return [[x, float(f"{y:.4g}") if math.isfinite(y) and y > 0 else None] for x, y in pairs]


def _lines(title: str, x: str, values: list[list[list[Any]]]) -> Drawing:
    names = (("residual", "test"), ("plain", "val"))
    series = [{"name": name, "split": split, "points": v} for (name, split), v in zip(names, values)]
    return charts.lines(title, x, series, log=True, zero=False)


# The size of a first step in learning rates, for optimizers that normalize the gradient: Adam and Adagrad
# divide it by its size, RMSprop by a tenth of its size, √(1 − 0.99).
SIGNS = {"adam": 1.0, "adamw": 1.0, "adagrad": 1.0, "rmsprop": 10.0}
# The size of a first step in learning rates and gradients: momentum is as SGD, Nesterov is g + 0.9 g.
GRADIENTS = {"sgd": 1.0, "momentum": 1.0, "nesterov": 1.9}
DECAY, TINY = 0.95, 1e-6  # ρ and ε of Adadelta; its first step is √ε g / √((1 − ρ) g² + ε)
KNOWN = {*SIGNS, *GRADIENTS, "adadelta"}  # optimizers; Muon's step is not independent by layer
USUAL = {"optimizer": "adamw", "lr": 1e-3}  # defaults without a run or a card
MAX_MACS = 4e9  # most MACs for the examples
FEW = 5  # number of layers from which a curve replaces bars
MOST_ROWS = 20
LEAST = 1e-30  # a smaller norm is drawn as missing


def draw_gradients(subject: Subject) -> View:
    """Return the gradient flow by layer, by step of a recurrent network, and compared with a plain network."""
    flow = gradient_flow(looked_at := limit_examples(subject))
    optimizer, lr = optimizer_and_lr(subject)
    rows = [layer.row(optimizer, lr) for layer in flow.layers]
    drawn = [layer for layer in flow.layers if layer.matrix and not layer.own] or flow.layers
    drawings = _layer_charts(drawn, optimizer, lr)
    drawings += [_dead(flow.layers)] if any(layer.dead for layer in flow.layers) else []
    drawings += [_step_chart(name, norms) for name, norms in flow.steps.items()]
    said = _findings(flow, optimizer, lr)
    for compared in (compare_paths(looked_at), compare_with_plain(subject)):
        if compared is not None:
            drawings += compared.drawings
            said += f" {compared.said}"
    return View(
        id="gradients",
        title="Gradient flow",
        says=f"The norm of the gradient at each layer, from the loss of {_examples(looked_at)} (right) back to the "
        "input (left).",
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


# --- measurement -----------------------------------------------------------------------------------------


@dataclass
class LayerGradients:
    """The gradient norms of a module that has weights of its own."""

    name: str
    output: float = 0.0  # ‖∂L/∂output‖ over all examples
    calls: list[float] = field(default_factory=list)  # the same for each call
    dead: float = 0.0  # fraction of its units without a gradient
    weight: float = 0.0  # ‖W‖ of all its weights
    gradient: float = 0.0  # ‖∂L/∂W‖
    moving: int = 0  # number of weights with a gradient
    slow: float = 0.0  # ‖ΔW‖ of Adadelta's first step at a rate of 1
    own: bool = False  # weights of the model itself, not of a layer: a class token, a position table
    matrix: bool = (
        False  # whether it has a weight matrix: a normalization, which only scales, appears only in the table
    )

    def step(self, optimizer: str, lr: float) -> float | None:
        """Return ‖ΔW‖ / ‖W‖ of the first step, or None if the optimizer is unknown or the layer has no weights."""
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
        """Return the numbers as a row of the table."""
        output = None if self.own else self.output
        numbers = (output, self.gradient, self.weight, self.step(optimizer, lr), self.dead)
        return [self.name, *map(_finite, numbers)]


@dataclass
class GradientFlow:
    """The result of one backward pass."""

    layers: list[LayerGradients]
    steps: dict[str, list[float]] = field(default_factory=dict)  # recurrent layer → the gradient norm at each step


def limit_examples(subject: Subject) -> Subject:
    """Return the subject with the first examples that cost at most MOST MACs, at least one."""
    if subject.kind == "graph" or subject.count == 1:
        return subject
    most = max(1, int(MAX_MACS // max(1, subject_layers(subject).multiply_adds)))
    if most >= subject.count:
        return subject
    return with_first(subject, most)


def _examples(subject: Subject) -> str:
    targets = "" if subject.task is not None and subject.target is not None else ", with random targets"
    return examples_text(subject) + targets


def gradient_flow(subject: Subject) -> GradientFlow:
    """Run one forward and backward pass over the subject's examples and return the gradient norms.

    Gradients, buffers and mode of the model are left unchanged. Batch normalization uses the statistics of these
    examples, as in training; dropout is off.
    """
    inputs = tuple(x.detach().clone().requires_grad_() if x.is_floating_point() else x for x in subject.inputs)
    subject = dataclasses.replace(subject, inputs=inputs)
    try:
        return _backward(subject, use_batch_statistics=True)
    except ValueError:  # one value of a unit has no statistics
        return _backward(subject, use_batch_statistics=False)


def _backward(subject: Subject, use_batch_statistics: bool) -> GradientFlow:
    """Run one forward and backward pass, and return the gradients of each layer and step."""
    model = subject.model
    layers = {
        name: LayerGradients(name)
        for name, module in model.named_modules()
        if any(p.requires_grad for p in module.parameters(recurse=False))
    }
    adadelta = optimizer_and_lr(subject)[0] == "adadelta"
    steps: dict[str, _Steps] = {}
    used: dict[str, None] = {}
    with contextlib.ExitStack() as undo:
        undo.enter_context(torch.enable_grad())
        undo.enter_context(torch.random.fork_rng([]))
        torch.manual_seed(0)
        for name, module in model.named_modules():
            if name in layers and name:
                undo.callback(module.register_forward_hook(_output_hook(layers[name], used), with_kwargs=True).remove)
            if isinstance(module, nn.RNNBase | nn.RNNCellBase):
                steps[name] = _Steps()
                undo.callback(module.register_forward_pre_hook(steps[name].look).remove)
        undo.enter_context(batch_norm_mode(model, use_batch_statistics))
        own = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        given = [x for x in subject.inputs if x.requires_grad]  # so that the input's gradient hooks are called
        found = torch.autograd.grad(subject.loss(), [*(p for _, p in own), *given], allow_unused=True)
    for (name, parameter), gradient in zip(own, found, strict=False):
        layer = layers[name.rpartition(".")[0]]
        layer.weight = math.hypot(layer.weight, _norm(parameter))
        layer.matrix |= parameter.ndim > 1
        if gradient is not None:
            gradient = (
                gradient.coalesce().values() if gradient.is_sparse else gradient
            )  # the gradient of an embedding table
            layer.gradient = math.hypot(layer.gradient, _norm(gradient))
            layer.moving += int(torch.count_nonzero(gradient))
            if adadelta:
                slowed = gradient * math.sqrt(TINY) / (gradient.square() * (1 - DECAY) + TINY).sqrt()
                layer.slow = math.hypot(layer.slow, _norm(slowed))
    if "" in layers:
        layers[""].name, layers[""].own = _own_parameters(model), True
    order = [*([""] if "" in layers else []), *used, *(name for name in layers if name and name not in used)]
    return GradientFlow([layers[name] for name in order], {name: s.norms() for name, s in steps.items() if s.norms()})


def _own_parameters(model: nn.Module) -> str:
    """Return the names of the parameters that belong to the model itself."""
    names = [name for name, _ in model.named_parameters(recurse=False)]
    return " and ".join(names)


def _output_hook(layer: LayerGradients, used: dict[str, None]) -> Any:
    """Return a forward hook that stores in `layer` the norm of the gradient of its output, and its dead channels.

    It also adds the name of the layer to `used`, the layers that were called, in order.

    For a recurrent layer, it includes the gradients of the steps and of the last states, because either may be used.
    """

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

        for part, whole in output_carriers(module, args, kwargs, output):
            if part.requires_grad:
                part.register_hook(lambda g, whole=whole: backward(whole(g)))  # type: ignore[no-untyped-call]

    return hook


class _Steps:
    """Recorder of the gradient of a recurrent layer's input, step by step."""

    def __init__(self) -> None:
        self._calls: list[Tensor] = []  # Σ over the examples of ‖∂L/∂x_t‖², (T,) for a layer, () for a cell

    def look(self, module: nn.Module, args: Any) -> None:
        """Record the gradient of the input; a forward pre-hook."""
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
        """Return ‖∂L/∂x_t‖ of every step, or an empty list for a single step."""
        if not self._calls:
            return []
        longest = max(self._calls, key=lambda call: call.numel())
        squares = longest if longest.ndim else torch.stack([call.double() for call in self._calls if call.ndim == 0])
        return squares.sqrt().tolist() if len(squares) > 1 else []


def _norm(x: Tensor) -> float:
    return float(torch.linalg.vector_norm(x.detach()))


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.4g}")


def optimizer_and_lr(subject: Subject) -> tuple[str, float]:
    """Return the optimizer and the learning rate of the run, or the defaults of the preset."""
    said = {**USUAL, **subject.preset.card.settings, **(subject.run.about["settings"] if subject.run else {})}
    return str(said["optimizer"]), float(said["lr"])


# --- drawing ------------------------------------------------------------------------------------------


def lines(title: str, x: str, series: dict[str, list[list[Any]]]) -> Drawing:
    """Return a line chart with a common x axis, on a logarithmic scale if the values span a wide range.

    A logarithmic scale cannot show 0: the line is broken there.
    """
    parts = ("test", "val", "train", "")
    shown = [
        {"name": name, "split": parts[min(k, 3)] if len(series) > 1 else "", "points": points}
        for k, (name, points) in enumerate(series.items())
    ]
    values = [y for points in series.values() for _, y in points if y is not None]
    log = bool(values) and max(values) >= LOG_FROM * min(values)
    return charts.lines(title, x, shown, log=log, zero=not log)  # fmt: skip


def points(values: list[float]) -> list[list[Any]]:
    """Return [1, first], [2, second], …."""
    return [[i + 1, _finite(v) if v > LEAST else None] for i, v in enumerate(values)]


def bars(title: str, labels: list[str], columns: dict[str, list[float]], format: str = "number") -> Drawing:
    """Return a row for each label, with a bar in each column."""
    rows = [
        {
            "label": label,
            "cells": [{"value": _finite(column[i])} for column in columns.values()],
            "tip": [label, *(f"{name} {format_value(column[i], format)}" for name, column in columns.items())],
        }
        for i, label in enumerate(labels)
    ]
    heads = [charts.bar(name, format) for name in columns]
    return charts.rows(title, heads, rows)


def _layer_charts(layers: list[LayerGradients], optimizer: str, lr: float) -> list[Drawing]:
    """Return line charts over layers or, for few layers, labelled bars."""
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


def _step_chart(name: str, norms: list[float]) -> Drawing:
    return lines(f"Gradient at the steps of {name}", "step", {"": points(norms)})


def _findings(flow: GradientFlow, optimizer: str, lr: float) -> str:
    """Return the findings in words, with numbers."""
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
        said += f" A first step of {optimizer} at lr {number(lr)} changes the weights by {number(low)} of their size"
        said += f" ({least}) to {number(high)} ({most})." if least != most else "."
    if optimizer not in KNOWN:
        said += f" The size of the first step of {optimizer} is not known."
    dead = max(flow.layers, key=lambda layer: layer.dead)
    if dead.dead:
        some = sum(1 for layer in flow.layers if layer.dead)
        said += f" {plural(some, 'layer')} with dead units; most in {dead.name}, {percent(dead.dead)}."
    for name, norms in flow.steps.items():
        reached = [v for v in norms if v > LEAST]
        if reached:
            said += f" Back through {plural(len(norms), 'step')}, the gradient at the input of {name} goes from "
            said += f"{number(norms[-1])} at the last to {number(norms[0])} at the first."
    return said


def _times(ratio: float) -> str:
    if 0.8 <= ratio <= 1.25:
        return "about as much"
    return f"{number(ratio)} times as much" if ratio > 1 else f"{number(1 / ratio)} times less"
