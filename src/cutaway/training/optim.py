"""Optimizers (those of PyTorch, fused where possible, and Muon), learning-rate schedules and parameter groups.

Parameter groups are the heads, frozen layers, blocks, distances from the head, and low-rank adaptation (LoRA).

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
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adadelta, Adagrad, Adam, AdamW, Optimizer, RMSprop

from ..core.config import as_text, shorten
from ..core.errors import IncompatibleSettingError, SettingError, closest_names
from ..core.memory_budget import ModelSize
from ..core.spec import Spec, TokenTarget
from ..distributed.tensor_parallel import from_local, full_tensor, is_sharded, local_part, shard_like
from ..models.base import as_base_model
from ..nn.lora import adapt, adaptable
from ..nn.modules import NORMS
from ..nn.transformer import is_block
from .config import TrainSettings

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
        raise IncompatibleSettingError(
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
    """Build the optimizer of that name for the weights, fused if the device and the sharding allow it."""
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


# --- parameter groups ---------------------------------------------------------------------------------------------

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
BLOCK_FRACTION = 0.02  # smallest fraction of the parameters in a layer that is its own block
HEAD = "head"  # name of the child that is the head
PROJECTION = "projection"  # name of the child before the head during contrastive training
BACKBONE_FRACTION = 0.9  # a child with more of the parameters is the whole backbone and is split


def output_layers(model: nn.Module) -> list[str]:
    """Return the names of the output layers.

    These are the child `head` if there is one, else the last linear layer or convolution, and the last layer of each
    auxiliary head, which is a child whose name begins with aux.
    """
    layers = [name for name, module in model.named_modules() if isinstance(module, LAYERS)]
    last = {auxiliary_head(name): name for name in layers if name.split(".")[0] != PROJECTION}
    if isinstance(getattr(model, HEAD, None), nn.Module):
        last[""] = HEAD
    return list(last.values())


def auxiliary_head(name: str) -> str:
    """Return the child that is the auxiliary head containing `name`, or an empty string."""
    child = name.split(".")[0]
    return child if child.lower().startswith("aux") else ""


def backbone_names(model: nn.Module) -> set[str]:
    """Return the names of all parameters and modules except the heads and what belongs only to auxiliary heads.

    For a model that is built on another network, these are the names within that network, since everything after it is
    the head.
    """
    names = {name for name, _ in [*model.named_parameters(), *model.named_modules()] if name}
    if (built_on := as_base_model(model).built_on) is not None:
        return {name for name in names if built_on[0] in _enclosing_names(name)}
    ends = set(output_layers(model))
    return {name for name in names if not auxiliary_head(name) and ends.isdisjoint(_enclosing_names(name))}


def match_frozen(model: nn.Module, patterns: Sequence[str]) -> set[str]:
    """Return the names of parameters and modules that the patterns match.

    `conv1` is everything in that module, `layer*` all modules with such names, `*.bias` all such parameters. Raises
    SettingError for a pattern without a match.
    """
    names = [name for name, _ in [*model.named_modules(), *model.named_parameters()] if name]
    found: set[str] = set()
    for pattern in patterns:
        meant = {name for name in names if any(fnmatchcase(part, pattern) for part in _enclosing_names(name))}
        if not meant:
            near = closest_names(pattern, names) or [name for name, _ in model.named_children()]
            raise SettingError(
                f"freeze={shorten(as_text(tuple(patterns)))}: no layer has a name like {shorten(pattern)!r}. "
                f"There are {', '.join(near[:5])}; `cutaway show` lists them all."
            )
        found |= meant
    return found


def has_batch_norm(model: nn.Module) -> bool:
    """Return whether any layer is batch normalization."""
    return any(isinstance(module, NORMS) for module in model.modules())


def find_blocks(model: nn.Module) -> list[nn.Module]:
    """Return the consecutive parts of the model that hold most of its weights.

    These are the blocks of a Transformer, and in other models the larger layers, or blocks of layers, of a
    `Sequential`. They are not nested.
    """
    least = BLOCK_FRACTION * sum(p.numel() for p in model.parameters())
    found: list[nn.Module] = []
    inside: set[nn.Module] = set()
    for module in model.modules():
        parts = module.children() if isinstance(module, nn.Sequential) else []
        for one in [module] if is_block(module) else parts:
            large = is_block(one) or sum(p.numel() for p in one.parameters()) >= least
            if large and one not in inside and not isinstance(one, nn.Sequential):
                found.append(one)
                inside |= set(one.modules())
    return found


def set_trainable(model: nn.Module, learnable: Collection[str], frozen: Collection[str]) -> None:
    """Set training mode, and `requires_grad` for the `learnable` parameters except those in `frozen`.

    `frozen` has names of parameters and modules. A batch norm is in evaluation mode if it is frozen itself, or all its
    parameters are.
    """
    model.train()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in learnable and name not in frozen)
    for name, module in model.named_modules():
        if isinstance(module, NORMS):
            own = [f"{name}.{key}" for key, _ in module.named_parameters()]
            if name in frozen or (own and all(key in frozen for key in own)):
                module.eval()


def layer_depths(model: nn.Module) -> dict[str, int]:
    """Return the distance of each parameter from the head in groups of layers, 0 for the heads.

    The groups are the model's children in order. A child with nearly all of the backbone's parameters is split into its
    own children, and so is a list of Transformer blocks. A child with vectors alone, such as a norm, belongs to the
    group before it. An auxiliary head is a head.
    """
    rest = backbone_names(model)
    total = sum(p.numel() for name, p in model.named_parameters() if name in rest)
    sets = [[name for name in group if name in rest] for group in _groups(model, "", BACKBONE_FRACTION * total)]
    sets = [group for group in sets if group]
    found = {name: len(sets) - i for i, group in enumerate(sets) for name in group}
    return {name: found.get(name, 0) for name, _ in model.named_parameters()}


def _groups(module: nn.Module, prefix: str, large: float) -> list[list[str]]:
    """Return the parameter names of each group in `module`, whose own name is `prefix`, from input to output.

    Parameters of the module itself, such as positions, belong to its first group.
    """
    groups = [[prefix + name for name, _ in module.named_parameters(recurse=False)]]
    for name, child in module.named_children():
        inside = {f"{prefix}{name}.{key}": p for key, p in child.named_parameters()}
        if not prefix and auxiliary_head(name):
            continue
        stack = isinstance(child, nn.ModuleList) and all(map(is_block, child))
        if (stack or sum(p.numel() for p in inside.values()) > large) and any(child.children()):
            groups += _groups(child, f"{prefix}{name}.", large)
        elif all(p.ndim < 2 for p in inside.values()) and any(groups):
            groups[-1] += inside
        else:
            groups.append(list(inside))
    own, *rest = groups
    return [own + rest[0], *rest[1:]] if rest else [own]


def _enclosing_names(name: str) -> Iterator[str]:
    """Yield the name and those of all modules that contain it: a.b.c, a.b, a."""
    while name:
        yield name
        name = name.rpartition(".")[0]


def add_lora(model: nn.Module, spec: Spec, settings: TrainSettings) -> list[str]:
    """Add LoRA to layers of the model (`nn.lora`), and return a note on the number of trainable parameters.

    Raises SettingError if the model has no pretrained weights, or no such layers.
    """
    assert settings.lora is not None
    if not settings.weights:
        raise IncompatibleSettingError(
            f"lora={settings.lora} keeps the weights as they begin, and without weights they begin at random: give "
            "weights=FILE, or leave it out."
        )
    ends = [name for name in output_layers(model) if not auxiliary_head(name)]
    names = [name for name in adaptable(model, settings.lora_layers) if name not in ends]
    if not names:
        linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear) and name not in ends]
        has = f"its linear layers are {', '.join(linear[:5])}" if linear else "it has no linear layers before its head"
        asked = (
            f"lora_layers={shorten(as_text(settings.lora_layers))}" if settings.lora_layers else "layers of attention"
        )
        way = "give some of them as lora_layers" if linear else "leave lora out, or freeze layers instead"
        raise IncompatibleSettingError(
            f"lora={settings.lora} finds no {asked} in {type(model).__name__}; {has}: {way}."
        )
    adapt(model, names, settings.lora, settings.lora_alpha)
    if not isinstance(spec.target, TokenTarget):
        for end in ends:
            model.get_submodule(end).requires_grad_(True)
    learns = sum(p.numel() for p in model.parameters() if p.requires_grad)
    whole = sum(p.numel() for p in model.parameters())
    return [f"LoRA: {learns:,} numbers learn, and {whole - learns:,} stay as they are ({len(names)} layers adapted)."]
