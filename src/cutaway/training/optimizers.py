"""How gradients become updates: PyTorch's optimizers, in their fused form where there is one.

Decay is for weights: biases and the gains of norms (all parameters of fewer than two dimensions) have none.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from .settings import TrainSettings

# The fused kernels do the whole update in one pass over memory; on a CPU the default loop is an order slower.
FUSED_ON = {"cpu", "cuda", "mps"}


def build_optimizers(model: nn.Module, settings: TrainSettings) -> list[Optimizer]:
    """The optimizers that together update every trainable parameter once: one, or two where Muon cannot take all."""
    trainable = [p for p in model.parameters() if p.requires_grad]
    if settings.optimizer != "muon":
        return [_build(settings.optimizer, trainable, settings)]
    # Muon orthogonalises matrices between hidden layers; the first and last layers, kernels, biases and norms
    # are for AdamW, as its author says. <https://kellerjordan.github.io/posts/muon/>
    matrices = [p for p in trainable if p.ndim == 2]
    hidden = {id(p) for p in matrices[1:-1]}
    muon = [p for p in trainable if id(p) in hidden]
    rest = [p for p in trainable if id(p) not in hidden]
    return [_build(n, ps, settings) for n, ps in (("muon", muon), ("adamw", rest)) if ps]


def _build(name: str, parameters: list[nn.Parameter], s: TrainSettings) -> Optimizer:
    if name == "muon":  # matches AdamW's size of update, so that both share one learning rate
        return torch.optim.Muon(
            parameters,
            lr=s.lr,
            momentum=s.momentum,
            weight_decay=s.weight_decay,
            adjust_lr_fn="match_rms_adamw",
        )
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": s.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    groups = [g for g in groups if g["params"]]
    fused = parameters[0].device.type in FUSED_ON
    if name in ("sgd", "momentum", "nesterov"):
        momentum = 0.0 if name == "sgd" else s.momentum
        return torch.optim.SGD(groups, lr=s.lr, momentum=momentum, nesterov=name == "nesterov", fused=fused)
    if name == "adagrad":
        return torch.optim.Adagrad(groups, lr=s.lr, fused=fused)
    if name == "rmsprop":  # has no fused form
        return torch.optim.RMSprop(groups, lr=s.lr, foreach=True)
    if name == "adam":
        return torch.optim.Adam(groups, lr=s.lr, fused=fused)
    return torch.optim.AdamW(groups, lr=s.lr, fused=fused)
