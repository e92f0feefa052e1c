"""Optimizers (those of PyTorch, fused where possible, and Muon) and learning-rate schedules.

Weight decay applies to weights only. Biases and gains of norms (all parameters with fewer than two dimensions) are not
decayed, and if a model lists its decayed weights (`decayed`), no others are. Embeddings are weights: BERT's code decays
them, as the trainer of transformers does, and one that is tied to the output layer is a matrix like others. The rate of
a parameter group is the base rate times the group's "scale", which falls with the distance from the head if
`layer_decay` is set: J. Howard, S. Ruder, ULMFiT, 2018, section 3.2 <https://arxiv.org/abs/1801.06146>.

Muon: momentum whose matrices are orthogonalized before each step, for matrices and convolution kernels.

K. Jordan et al., Muon: an optimizer for hidden layers in neural networks, 2024.
<https://kellerjordan.github.io/posts/muon/>

    M ← M + (1 − μ)(G − M),   N = G + μ (M − G)          Nesterov's momentum
    X₀ = N/‖N‖,   X ← a X + (b A + c A²) X,  A = X Xᵀ      five times: singular values become about 1
    W ← (1 − η λ) W − η · 0.2 √max(rows, columns) · X

The factor gives steps of the size of AdamW's, so that both share one rate: J. Liu et al., Muon is scalable for LLM
training, 2025 <https://arxiv.org/abs/2502.16982>. A convolution kernel (out, in, k, k) is treated as the matrix (out,
in·k·k) that maps patches to channels, as in K. Jordan's CIFAR-10 scripts. PyTorch's `torch.optim.Muon`, which gives
bit-identical results on matrices, rejects kernels.

If weights are sharded, each process keeps the momentum of its shard. The matrices are gathered one after another in all
processes, and each process updates its shard.

Learning-rate schedules: the factor on the base rate as a function of training progress.

Progress t is in [0, 1], so that a schedule means the same for epochs and for a time budget.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adadelta, Adagrad, Adam, AdamW, Optimizer, RMSprop

from ..core.config import as_text
from ..core.errors import SettingError
from ..core.memory_budget import ModelSize
from ..distributed.tensor_parallel import from_local, full_tensor, is_sharded, local_part, shard_like
from ..models.base import as_base_model
from .config import TrainSettings
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
        raise SettingError(f"Invalid betas={as_text(settings.betas)}: must be two decay rates, as in betas=0.9,0.95.")
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


A, B, C = 3.4445, -4.7750, 2.0315  # chosen by the author for the steepest rise at 0, not to end at 1 exactly
ITERATIONS = 5
LEAST_NORM = 1e-7
ADAMW_STEP = 0.2  # root mean square of AdamW's steps, in units of the rate


class Muon(Optimizer):
    """Muon optimizer for weights with two or more dimensions."""

    def __init__(
        self,
        params: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        lr: float,
        momentum: float,
        weight_decay: float,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # no closure is needed here
        """Update every weight that has a gradient."""
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(weight)
                average = local_part(state["momentum_buffer"]).lerp_(local_part(weight.grad), 1 - group["momentum"])
                ahead = local_part(weight.grad).lerp(average, group["momentum"])
                matrix = full_tensor(from_local(weight, ahead)).flatten(1)  # (out, in·k·k)
                size = ADAMW_STEP * math.sqrt(max(matrix.shape))
                own = local_part(weight)
                own.mul_(1 - group["lr"] * group["weight_decay"])
                step = shard_like(orthogonalize(matrix).view(weight.shape).to(weight.dtype), weight)
                own.add_(local_part(step), alpha=-group["lr"] * size)


def orthogonalize(matrix: Tensor) -> Tensor:
    """Return approximately U Vᵀ of the singular value decomposition U S Vᵀ of a matrix (m, n), in bfloat16.

    The singular values of the result are between about 0.7 and 1.2. It is computed by Newton–Schulz iteration, which
    needs only matrix products.
    """
    x = matrix.bfloat16()
    tall = len(x) > x.shape[1]
    x = x.T if tall else x  # (the smaller of m and n, the larger): A is as small as can be
    x = x / x.norm().clamp(min=LEAST_NORM)
    for _ in range(ITERATIONS):
        a = x @ x.T
        x = torch.addmm(x, torch.addmm(a, a, a, beta=B, alpha=C), x, beta=A)
    return x.T if tall else x


def lr_factor(settings: TrainSettings, t: float, steps: int) -> float:
    """Return the factor on the learning rate at progress `t` of a training with `steps` updates.

    constant       1
    step           gamma^(milestones passed); K. He et al. 2015 drop to 0.1 at 1/2 and 3/4
    cosine         ½ (1 + cos π t); I. Loshchilov, F. Hutter, SGDR, 2017, <https://arxiv.org/abs/1608.03983>
    warmup-cosine  a linear rise over the fraction `warmup`, then the cosine
    noam           min(s/w, √(w/s)) at update s of w warm-up updates: A. Vaswani et al. 2017, eq. 3, with its peak at 1
    one-cycle      a cosine from 1/25 up over the fraction 0.3, then down to 1/250 000; L. Smith, N. Topin, 2018,
                   <https://arxiv.org/abs/1708.07120>
    wsd            a linear rise, 1, then a linear fall to 0 over the fraction `decay`; S. Hu et al., MiniCPM, 2024,
                   <https://arxiv.org/abs/2404.06395>
    linear         1 − t, at least 1/10 000, as in the code of T. Mikolov et al., word2vec, 2013
    """
    t = min(max(t, 0.0), 1.0)
    name = settings.schedule
    if name == "constant":
        return 1.0
    if name == "step":
        return settings.gamma ** sum(t >= m for m in settings.milestones)
    if name == "linear":
        return max(1.0 - t, 1e-4)
    if name == "cosine":
        return _cosine(t)
    if name == "one-cycle":
        return _one_cycle(t)
    if name == "noam":
        s, w = t * steps + 1, max(1.0, settings.warmup * steps)
        return min(s / w, math.sqrt(w / s))
    # A linear rise does not start at 0, where the first update would have no effect.
    rise = min(1.0, (t * steps + 1) / (settings.warmup * steps)) if settings.warmup * steps >= 1 else 1.0
    if name == "warmup-cosine":
        rest = max(1.0 - settings.warmup, 1e-12)
        return rise if t < settings.warmup else _cosine((t - settings.warmup) / rest)
    return min(rise, (1.0 - t) / settings.decay) if settings.decay else rise  # wsd


def _cosine(t: float) -> float:
    return 0.5 * (1.0 + math.cos(math.pi * t))


def _one_cycle(t: float, peak_at: float = 0.3, first: float = 1 / 25, last: float = 1 / 250_000) -> float:
    """Return the factor at t: a cosine rise from `first` to 1 at `peak_at`, then a cosine fall to `last`."""
    if t < peak_at:
        return first + (1.0 - first) * (1.0 - _cosine(t / peak_at))
    return last + (1.0 - last) * _cosine((t - peak_at) / (1.0 - peak_at))
