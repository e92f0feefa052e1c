"""Optimizers: those of PyTorch, fused where possible, and Muon.

Weight decay applies to weights only. Biases and gains of norms (all parameters with fewer than two dimensions) are not
decayed, and if a model lists its decayed weights (`decayed`), no others are. Embeddings are weights: BERT's code decays
them, as the trainer of transformers does, and one that is tied to the output layer is a matrix like others. The rate of
a parameter group is the base rate times the group's "scale", which falls with the distance from the head if
`layer_decay` is set: J. Howard, S. Ruder, ULMFiT, 2018, section 3.2 <https://arxiv.org/abs/1801.06146>.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from torch import nn
from torch.optim import SGD, Adadelta, Adagrad, Adam, AdamW, Optimizer, RMSprop

from ..core.config import as_text
from ..core.errors import SettingError
from ..core.memory_budget import ModelSize
from ..distributed.dtensors import is_sharded
from ..models.base import as_base_model
from .config import TrainSettings
from .muon import Muon
from .parameter_groups import layer_depths, output_layers

# Fused kernels update in one pass over memory. On a CPU the default loop is ten times slower.
FUSED_ON = {"cpu", "cuda", "mps"}
FUSED_IN_PARTS = {"adam", "adamw"}  # optimizers whose fused kernels support sharded weights
# Copies of each weight in the optimizer state. Muon has one for matrices, and two for those left to AdamW.
REMEMBERED = {"sgd": 0, "momentum": 1, "nesterov": 1, "adagrad": 1, "rmsprop": 1, "muon": 1}
OTHERS_REMEMBER = 2  # adadelta, adam, adamw
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True)
class TrainableWeight:
    """A parameter with its rate scale and weight decay."""

    parameter: nn.Parameter
    scale: float  # of the rate
    decays: bool


def training_bytes(size: ModelSize, settings: TrainSettings) -> int:
    """Return the bytes of a model in training: weights, gradients, optimizer state and moving average."""
    if settings.lora:  # few parameters are trainable
        return size.bytes * (2 if settings.precision == "float64" else 1)
    copies = 1 + REMEMBERED.get(settings.optimizer, OTHERS_REMEMBER)
    doubled = 2 if settings.precision == "float64" else 1
    return doubled * (size.bytes + copies * size.trained + (size.bytes if settings.ema else 0))


def build_optimizers(model: nn.Module, settings: TrainSettings) -> list[Optimizer]:
    """Return the optimizers that together update every trainable parameter: one, or two if Muon cannot take all.

    Raises SettingError if there are not two betas, and for settings that sparse gradients of embeddings do not support.
    """
    if len(settings.betas) != 2:
        raise SettingError(f"betas={as_text(settings.betas)} cannot be: two decay rates, as in betas=0.9,0.95.")
    _reject_for_sparse(model, settings)
    decay = 1.0 if settings.layer_decay is None else settings.layer_decay
    patterns = as_base_model(model).decayed
    trainable = [
        TrainableWeight(p, decay**depth, p.ndim >= 2 and any(fnmatchcase(name, pattern) for pattern in patterns))
        for (name, p), depth in zip(model.named_parameters(), layer_depths(model).values())
        if p.requires_grad
    ]
    if settings.optimizer != "muon":
        return [_build(settings.optimizer, trainable, settings, fused=not _has_sparse_gradients(model))]
    hidden = {id(p) for p in _hidden_weights(model)}
    muon = [w for w in trainable if id(w.parameter) in hidden]
    rest = [w for w in trainable if id(w.parameter) not in hidden]
    return [_build(n, ws, settings) for n, ws in (("muon", muon), ("adamw", rest)) if ws]


def _has_sparse_gradients(model: nn.Module) -> bool:
    """Return whether an embedding has sparse gradients."""
    return any(isinstance(m, nn.Embedding) and m.sparse for m in model.modules())


def _reject_for_sparse(model: nn.Module, s: TrainSettings) -> None:
    if _has_sparse_gradients(model) and (s.optimizer not in ("sgd", "adagrad") or s.weight_decay or s.grad_clip):
        raise SettingError(
            "This model updates only the rows of its embeddings that a step uses, which needs optimizer=sgd or "
            f"adagrad, weight_decay=0 and grad_clip=0; these are {s.optimizer}, {s.weight_decay:g} and {s.grad_clip:g}."
        )


def _hidden_weights(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters for Muon, as its author recommends: the matrices and kernels between hidden layers.

    The first layer, heads, embeddings, biases and norms are left to AdamW, as are grouped convolutions, whose kernels
    are several matrices.
    """
    kernels = [m.weight for m in model.modules() if isinstance(m, CONVOLUTIONS)]
    grouped = [m.weight for m in model.modules() if isinstance(m, CONVOLUTIONS) and m.groups > 1]
    embeddings = [m.weight for m in model.modules() if isinstance(m, nn.Embedding)]
    ends = [p for name in output_layers(model) for p in model.get_submodule(name).parameters()]
    weights = [p for p in model.parameters() if p.ndim == 2 or any(p is k for k in kernels)]
    others = {id(p) for p in [*weights[:1], *grouped, *embeddings, *ends]}
    return [p for p in weights if id(p) not in others]


def _build(name: str, weights: list[TrainableWeight], s: TrainSettings, fused: bool = True) -> Optimizer:
    groups = _grouped(weights, s.weight_decay)
    if name == "muon":
        return Muon(groups, lr=s.lr, momentum=s.momentum, weight_decay=s.weight_decay)
    fused = fused and weights[0].parameter.device.type in FUSED_ON
    if is_sharded(weights[0].parameter):
        fused = fused and name in FUSED_IN_PARTS
    eps: dict[str, Any] = {} if s.eps is None else {"eps": s.eps}
    if name in ("sgd", "momentum", "nesterov"):
        momentum = 0.0 if name == "sgd" else s.momentum
        return SGD(groups, lr=s.lr, momentum=momentum, nesterov=name == "nesterov", fused=fused)
    if name == "adagrad":
        return Adagrad(groups, lr=s.lr, fused=fused, **eps)
    if name == "rmsprop":  # no fused kernel
        return RMSprop(groups, lr=s.lr, alpha=s.alpha, foreach=True, **eps)
    if name == "adadelta":  # no fused kernel; M. Zeiler's decay of 0.95
        return Adadelta(groups, lr=s.lr, rho=0.95, foreach=True, **eps)
    first, second = s.betas
    if name == "adam":
        return Adam(groups, lr=s.lr, betas=(first, second), fused=fused, **eps)
    return AdamW(groups, lr=s.lr, betas=(first, second), fused=fused, **eps)


def _grouped(weights: Iterable[TrainableWeight], weight_decay: float) -> list[dict[str, Any]]:
    """Return parameter groups of one scale and decay each, the head's first."""
    groups: dict[tuple[float, bool], dict[str, Any]] = {}
    for w in weights:
        decay = weight_decay if w.decays else 0.0
        new = {"params": [], "scale": w.scale, "decays": w.decays, "weight_decay": decay}
        groups.setdefault((w.scale, w.decays), new)["params"].append(w.parameter)
    return [groups[key] for key in sorted(groups, reverse=True)]
