"""Gradient flow: the size of activations, gradients and updates of each layer.

    activation   ‖y‖ / √n, the root mean square of the layer's output
    gradient     the root mean square of ∂L/∂y
    weight       ‖w‖ of the layer's own weights and biases, and ‖∂L/∂w‖
    update       ‖Δw‖ of one step: η ‖∂L/∂w‖ for gradient descent; Adam's first step changes every weight by about η
    ratio        ‖Δw‖ / ‖w‖: about 10⁻³ is often considered healthy (A. Karpathy, CS231n, "Babysitting the learning
                 process", <https://cs231n.github.io/neural-networks-3/>)
    dead         fraction of units that are 0 after a ReLU for every example and position, and so get no gradient

Activations and gradients are per element, so that layers of different sizes are comparable. In a healthy network they
have the same order of magnitude in all layers (X. Glorot, Y. Bengio, 2010,
<https://proceedings.mlr.press/v9/glorot10a.html>).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..core.errors import InputShapeError, ModelError, SettingError, check_value
from ..models.base import as_output_tuple
from .ablation import Inputs, as_tuple
from .example_inputs import first_tensor, output_carriers, reject_compiled

RULES = ("sgd", "adam")
ADAM_EPS = 1e-8
# Functions that return 0 below a threshold, in all forms in which a model can call them.
RELUS = {F.relu, F.relu_, F.relu6, F.hardtanh, F.threshold, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_}


@dataclass(frozen=True)
class Layer:
    """One layer, or one ReLU that follows no layer directly, in the order of execution. None: not available."""

    name: str  # as in the state dict; `layer1.0.relu()` for a ReLU of a sum
    type: str
    activation: float | None  # root mean square of its output
    gradient: float | None  # root mean square of ∂L/∂output; None if no gradient reached it
    weight: float | None  # ‖w‖
    weight_gradient: float | None  # ‖∂L/∂w‖
    update: float | None  # ‖Δw‖ of one step
    dead: float | None  # fraction of the units that are 0 after a ReLU for every example
    units: int | None  # number of these units

    @property
    def ratio(self) -> float | None:
        """‖Δw‖ / ‖w‖; None without weights, or if all are 0."""
        return self.update / self.weight if self.update is not None and self.weight else None


def flow(
    model: nn.Module,
    inputs: Inputs | Callable[[], Tensor],
    loss: Callable[[Tensor], Tensor] | None = None,
    *,
    lr: float = 1e-3,
    rule: str = "sgd",
) -> list[Layer]:
    """Measure activations, gradients and weight updates of each layer for one step.

        flow(model, x, lambda outputs: F.cross_entropy(outputs, y))
        flow(model, lambda: F.cross_entropy(model(x), y))

    Layers are the modules with weights of their own. A layer that is called several times has the activation of the
    first call, and the gradient of its weights from all calls. Gradients of parameters, running statistics and the mode
    of the model are left unchanged.

    Args:
        model: The model.
        inputs: The inputs, a tensor (N, …) or several arguments of `forward`; or a function that runs the model and
            returns the loss.
        loss: Function from the outputs of the model to the loss, a scalar tensor. None if `inputs` is a function.
        lr: Learning rate η, above 0, of the update that is measured.
        rule: Update rule: "sgd", or "adam" for the first step of Adam.

    Returns:
        One row for each layer, in the order of execution: `name`, `type`, `activation` and `gradient` (root mean
        squares), `weight`, `weight_gradient` and `update` (norms), `ratio` (of update to weight), `dead` (the fraction
        of ReLU units that are 0 for all examples) and `units`. What a layer does not have is None.

    Raises:
        ModelError: If the loss is not a scalar that depends on trainable weights, or the model is compiled.
        SettingError: If the rule is unknown, or the learning rate is not above 0.
    """
    reject_compiled(model)
    check_value(rule in RULES, "rule", rule, " or ".join(RULES), SettingError)
    check_value(lr > 0, "lr", lr, "above 0", SettingError)
    watch = _Flow(model)
    with _buffers_restored(model), torch.enable_grad(), watch.hooked():
        value = _compute_loss(model, inputs, loss)
        if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
            raise InputShapeError(
                "Invalid loss: must be a scalar that depends on trainable weights. Pass a "
                "function that runs the model and reduces its outputs to a scalar."
            )
        owners = {p: name for name, m in model.named_modules() for p in m.parameters(recurse=False) if p.requires_grad}
        gradients = torch.autograd.grad(value, list(owners), allow_unused=True)
    found = {p: g.to_dense() if g.is_sparse else g for p, g in zip(owners, gradients) if g is not None}
    return [watch.layer(name, found, lr, rule) for name in watch.ran]


def _compute_loss(
    model: nn.Module, inputs: Inputs | Callable[[], Tensor], loss: Callable[[Tensor], Tensor] | None
) -> Tensor | None:
    """Return the loss of the head's outputs, or of the given function. Raises ModelError for inputs without a loss."""
    if loss is not None and not callable(inputs):
        return loss(as_output_tuple(model(*as_tuple(inputs)))[0])
    if loss is None and callable(inputs):
        return inputs()
    raise ModelError(
        "Missing loss: pass inputs and a function of the outputs, e.g. flow(model, x, lambda "
        "y: F.cross_entropy(y, target)), or one function that runs the model."
    )


class _Flow(TorchFunctionMode):
    """Records sizes in the forward and backward pass, and which ReLU follows which layer."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.modules = dict(model.named_modules())
        self.ran: dict[str, str] = {}  # types of layers and ReLUs
        self.activation: dict[str, float] = {}
        self.gradient: dict[str, float] = {}
        self.dead: dict[str, tuple[float, int]] = {}
        self._inside: list[str] = []
        self._from: tuple[str, Tensor, int] | None = None  # the last output of a layer, and its version

    @contextmanager
    def hooked(self) -> Iterator[None]:
        """Record modules and functions within the context."""
        handles = []
        try:
            for name, module in self.modules.items():
                handles.append(module.register_forward_pre_hook(self._entering(name)))
                handles.append(module.register_forward_hook(self._leaving(name), with_kwargs=True))
            with self:
                yield
        finally:
            for handle in handles:
                handle.remove()

    def _entering(self, name: str) -> Any:
        return lambda module, args: self._inside.append(name)

    def _leaving(self, name: str) -> Any:
        """Return a forward hook that measures a module's output and registers the tensors whose gradients are read."""

        def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            self._inside.pop()
            own = any(True for _ in module.parameters(recurse=False))
            first = first_tensor(module, output)
            if not own or first is None or name in self.ran:
                return
            self.ran[name] = type(module).__name__
            self.activation[name] = _rms(first)
            self._from = (name, first, first._version)
            self._differentiated(name, output_carriers(module, args, kwargs, output))

        return hook

    def _differentiated(self, name: str, parts: Sequence[tuple[Tensor, Callable[[Tensor], Tensor]]]) -> None:
        """Record the size of ∂L/∂output in the backward pass, of the sum if it has several parts."""
        waiting = [part for part in parts if part[0].requires_grad]
        several: list[Tensor] = []

        def record(gradient: Tensor) -> None:
            if len(waiting) == 1:
                self.gradient[name] = _rms(gradient)
            else:
                several.append(gradient.detach())
                self.gradient[name] = _rms(torch.stack(several).sum(0))

        for part, whole in waiting:
            part.register_hook(lambda g, whole=whole: record(whole(g)))  # type: ignore[no-untyped-call]

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function; after a ReLU, record which units are 0."""
        # After an in-place sum, the output of a layer has another version and counts as another tensor.
        direct = self._from if self._from and args and self._from[1] is args[0] else None
        layer = direct[0] if direct and direct[1]._version == direct[2] else None
        result = function(*args, **(kwargs or {}))
        if function in RELUS and isinstance(result, Tensor) and result.ndim > 1:
            self._relu(layer, result)
        return result

    def _relu(self, name: str | None, result: Tensor) -> None:
        """Record the units of a ReLU that are 0 for all examples."""
        if name is None:  # after a sum, or after other operations on a layer's output
            name = f"{self._inside[-1] if self._inside else ''}.relu()".lstrip(".")
            if name in self.ran:
                return
            self.ran[name] = "relu"
            self.activation[name] = _rms(result)
            self._differentiated(name, [(result, lambda gradient: gradient)])
        if name in self.dead:
            return
        maps = result.ndim >= 4 or isinstance(self.modules.get(name, None), nn.Conv1d | nn.BatchNorm1d)
        units = result.detach().transpose(1, -1) if maps and result.ndim > 2 else result.detach()
        alive = (units != 0).flatten(0, -2).any(0)  # (units,)
        self.dead[name] = (float((~alive).double().mean()), alive.numel())

    def layer(self, name: str, gradients: dict[nn.Parameter, Tensor], lr: float, rule: str) -> Layer:
        """Return all records of a layer."""
        module = self.modules.get(name)
        weights = list(module.parameters(recurse=False)) if module is not None else []
        found = [gradients[w] for w in weights if w in gradients]
        updates = [lr * (g if rule == "sgd" else g / (g.abs() + ADAM_EPS)) for g in found]
        dead, units = self.dead.get(name, (None, None))
        return Layer(
            name=name,
            type=self.ran[name],
            activation=self.activation[name],
            gradient=self.gradient.get(name),
            weight=_norm([w.detach() for w in weights]),
            weight_gradient=_norm(found),
            update=_norm(updates),
            dead=dead,
            units=units,
        )


def _rms(x: Tensor) -> float:
    """Return √(mean x²)."""
    return float(x.detach().double().square().mean().sqrt()) if x.numel() else 0.0


def _norm(parts: list[Tensor]) -> float | None:
    """Return the joint norm of all parts, or None without parts."""
    if not parts:
        return None
    return math.sqrt(sum(float(part.detach().double().square().sum()) for part in parts))


@contextmanager
def _buffers_restored(model: nn.Module) -> Iterator[None]:
    """Restore running statistics after the context."""
    before = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, old in before:
                buffer.copy_(old)
