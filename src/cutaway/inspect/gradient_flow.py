"""How a gradient flows through a model: layer by layer, how large activations, gradients and updates are.

    activation   ‖y‖ / √n of what the layer gives, the root mean square of its numbers
    gradient     the same of ∂L/∂y
    weight       ‖w‖ of all weights and biases of the layer's own, and ‖∂L/∂w‖ beside it
    update       ‖Δw‖ of one step: η ‖∂L/∂w‖ by gradient descent; Adam's first step moves every weight by about η
    ratio        ‖Δw‖ / ‖w‖: about 10⁻³ is often taken for healthy (A. Karpathy, CS231n, "Babysitting the learning
                 process", <https://cs231n.github.io/neural-networks-3/>)
    dead         share of units that are 0 after a ReLU for every example and at every place: nothing is learned there

Activations and gradients are per number, so that layers of different sizes compare; a healthy network keeps them of one
order from layer to layer (X. Glorot, Y. Bengio, 2010, <https://proceedings.mlr.press/v9/glorot10a.html>).
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

from ..core.errors import ModelError, SettingError, require
from ..models.images import answers_of
from .interventions import Inputs, as_tuple
from .outputs import carriers, reject_compiled, tensor_of

RULES = ("sgd", "adam")
ADAM_EPS = 1e-8
# The functions whose result is 0 below some threshold, whichever way a model calls them.
RELUS = {F.relu, F.relu_, F.relu6, F.hardtanh, F.threshold, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_}


@dataclass(frozen=True)
class Layer:
    """One layer, or one ReLU that follows no layer of its own, in the order in which they ran. None: nothing to say."""

    name: str  # as in the state dict; `layer1.0.relu()` for a ReLU of a sum
    type: str
    activation: float | None  # root mean square of what it gives
    gradient: float | None  # root mean square of ∂L/∂output; None where no gradient reached it
    weight: float | None  # ‖w‖
    weight_gradient: float | None  # ‖∂L/∂w‖
    update: float | None  # ‖Δw‖ of one step
    dead: float | None  # share of the units that a ReLU leaves 0 for every example
    units: int | None  # how many units that is a share of

    @property
    def ratio(self) -> float | None:
        """‖Δw‖ / ‖w‖; None without weights, or where they are all 0."""
        return self.update / self.weight if self.update is not None and self.weight else None


def flow(
    model: nn.Module,
    inputs: Inputs | Callable[[], Tensor],
    loss: Callable[[Tensor], Tensor] | None = None,
    *,
    lr: float = 1e-3,
    rule: str = "sgd",
) -> list[Layer]:
    """Say what the gradient of `loss` does at each layer.

        flow(model, x, lambda outputs: F.cross_entropy(outputs, y))
        flow(model, lambda: F.cross_entropy(model(x), y))

    `inputs` are what `forward` takes, as for `attribute`, `ablate` and `patch`, and `loss` makes one number of what the
    head gives; or a function alone runs the model itself and gives the number.

    Layers are the modules with weights of their own. A layer that runs several times has the sizes of its first time
    and the gradient of its weights from all. `lr` is the learning rate η, `rule` what makes an update of a gradient:
    sgd, or adam for its first step. Nothing is left behind: gradients that the parameters hold, running statistics and
    the mode of the model are what they were. Raises ModelError where the loss is not one number that the model's
    weights can change, SettingError for another rule or a rate that is not above 0.
    """
    reject_compiled(model)
    require(rule in RULES, "rule", rule, " or ".join(RULES), SettingError)
    require(lr > 0, "lr", lr, "above 0", SettingError)
    watch = _Flow(model)
    with _buffers_restored(model), torch.enable_grad(), watch.hooked():
        value = _loss_of(model, inputs, loss)
        if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
            raise ModelError(
                "The loss must be one number that the model's weights can change, and this one is none: give a "
                "function that runs the model, with weights that are not frozen, and reduces its outputs to a number."
            )
        owners = {p: name for name, m in model.named_modules() for p in m.parameters(recurse=False) if p.requires_grad}
        gradients = torch.autograd.grad(value, list(owners), allow_unused=True)
    found = {p: g.to_dense() if g.is_sparse else g for p, g in zip(owners, gradients) if g is not None}
    return [watch.layer(name, found, lr, rule) for name in watch.ran]


def _loss_of(
    model: nn.Module, inputs: Inputs | Callable[[], Tensor], loss: Callable[[Tensor], Tensor] | None
) -> Tensor | None:
    """The loss of what the head gives for the inputs, or of the function that stands in their place. Raises ModelError
    for inputs without a loss."""
    if loss is not None and not callable(inputs):
        return loss(answers_of(model(*as_tuple(inputs)))[0])
    if loss is None and callable(inputs):
        return inputs()
    raise ModelError(
        "A gradient is that of a loss: give inputs and a function of what the head gives, as in flow(model, x, lambda "
        "y: F.cross_entropy(y, target)), or one function alone that runs the model."
    )


class _Flow(TorchFunctionMode):
    """Notes sizes while the loss is computed and differentiated, and which ReLU follows which layer."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.modules = dict(model.named_modules())
        self.ran: dict[str, str] = {}  # layers and ReLUs, and their types
        self.activation: dict[str, float] = {}
        self.gradient: dict[str, float] = {}
        self.dead: dict[str, tuple[float, int]] = {}
        self._inside: list[str] = []
        self._from: tuple[str, Tensor, int] | None = None  # the tensor that a layer gave last, and its version

    @contextmanager
    def hooked(self) -> Iterator[None]:
        """Watch the modules and the functions that run within."""
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
        def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            self._inside.pop()
            own = any(True for _ in module.parameters(recurse=False))
            first = tensor_of(module, output)
            if not own or first is None or name in self.ran:
                return
            self.ran[name] = type(module).__name__
            self.activation[name] = _rms(first)
            self._from = (name, first, first._version)
            self._differentiated(name, carriers(module, args, kwargs, output))

        return hook

    def _differentiated(self, name: str, parts: Sequence[tuple[Tensor, Callable[[Tensor], Tensor]]]) -> None:
        """Note the size of ∂L/∂output once it comes; where it comes in several parts, of their sum."""
        waiting = [part for part in parts if part[0].requires_grad]
        several: list[Tensor] = []

        def came(gradient: Tensor) -> None:
            if len(waiting) == 1:
                self.gradient[name] = _rms(gradient)
            else:
                several.append(gradient.detach())
                self.gradient[name] = _rms(torch.stack(several).sum(0))

        for part, whole in waiting:
            part.register_hook(lambda g, whole=whole: came(whole(g)))  # type: ignore[no-untyped-call]

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Carry the function out; after a ReLU, see which units are 0."""
        # A sum that was written in place of what a layer gave is another tensor by its version.
        direct = self._from if self._from and args and self._from[1] is args[0] else None
        layer = direct[0] if direct and direct[1]._version == direct[2] else None
        result = function(*args, **(kwargs or {}))
        if function in RELUS and isinstance(result, Tensor) and result.ndim > 1:
            self._relu(layer, result)
        return result

    def _relu(self, name: str | None, result: Tensor) -> None:
        if name is None:  # of a sum, or of a layer by way of other operations
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
        """All that was noted of a layer."""
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
    """√(mean x²)."""
    return float(x.detach().double().square().mean().sqrt()) if x.numel() else 0.0


def _norm(parts: list[Tensor]) -> float | None:
    """‖·‖ of all parts together; None where there are none."""
    if not parts:
        return None
    return math.sqrt(sum(float(part.detach().double().square().sum()) for part in parts))


@contextmanager
def _buffers_restored(model: nn.Module) -> Iterator[None]:
    """Within it running statistics may change; afterwards they are what they were."""
    before = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, old in before:
                buffer.copy_(old)
