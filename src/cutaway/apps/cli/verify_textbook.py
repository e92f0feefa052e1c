"""Checks of `cutaway verify` against textbook code, without other libraries: fast layers, caches, optimizer updates."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ...core.spec import ImageSpec, Tokens
from ...inspect.example_inputs import example_shape
from ...inspect.gates import unroll
from ...models.base import SupportsDecoding, SupportsKVCache, SupportsState
from ...models.registry import Preset
from ...nn.attention import MultiHeadAttention
from ...nn.normalization import batch_norm, layer_norm, rms_norm
from ...nn.recurrent import to_state_tuple
from ...nn.textbook.convolution import correlate
from ...verify.compare import difference

STEPS, RATE_STEPS = 7, 3  # tokens of a text; updates of a parameter
WORDS = 40


def compare_layers(model: nn.Module, inputs: tuple[Tensor, ...]) -> Iterator[tuple[str, float]]:
    """Compare the layers of a model in eval mode with their textbook versions, and yield names and relative
    differences.

    Of several layers of one type with the same settings, only the first is compared, except for attention.
    """
    calls: list[tuple[str, nn.Module, tuple[Any, ...], dict[str, Any]]] = []
    hooks = []
    seen: set[str] = set()
    for name, module in model.named_modules():
        kind = f"{type(module).__name__}{module.extra_repr()}"
        known = isinstance(module, (MultiHeadAttention, *TEXTBOOK_LAYERS))
        if known and (isinstance(module, MultiHeadAttention) or kind not in seen):
            seen.add(kind)

            def keep(module: nn.Module, args: Any, kwargs: Any, output: Any, name: str = name) -> None:
                calls.append((name, module, args, kwargs))

            hooks.append(module.register_forward_hook(keep, with_kwargs=True))
    try:
        with torch.no_grad():
            model(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        for name, module, args, kwargs in calls:  # run again, because the output may have been modified in place
            if isinstance(module, MultiHeadAttention):
                yield name, difference(module(*args, **kwargs), module.textbook(*args, **kwargs)[0])
            else:
                write = next(write for kind, write in TEXTBOOK_LAYERS.items() if isinstance(module, kind))
                yield name, difference(*write(module, args[0]))


def _convolution(layer: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """Compare a convolution on a corner of the feature map, because the textbook version is slow."""
    spans = [d * (k - 1) + 1 for k, d in zip(layer.kernel_size, layer.dilation)]
    corner = x[:1]
    for axis, span in enumerate(spans):
        corner = corner.narrow(2 + axis, 0, min(x.shape[2 + axis], span + 2 * layer.stride[axis]))
    y = correlate(
        corner,
        layer.weight,
        padding=layer.padding,
        stride=layer.stride,
        dilation=layer.dilation,
        groups=layer.groups,
    )
    bias = 0 if layer.bias is None else layer.bias.reshape(-1, *[1] * len(spans))
    return layer(corner), y + bias


def _batch_norm(layer: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """Compare batch normalization in eval mode, and output and running statistics of a training step."""
    kept = {"momentum": layer.momentum, "eps": layer.eps}
    affine, copied = (layer.weight, layer.bias), copy.deepcopy(layer).train()
    mean, var = layer.running_mean.clone(), layer.running_var.clone()
    alone = batch_norm(x, mean, var, *affine, eps=layer.eps)
    learned = batch_norm(x, mean, var, *affine, training=True, **kept)
    given = (layer(x), copied(x), copied.running_mean, copied.running_var)
    return _flatten_and_concatenate(given), _flatten_and_concatenate((alone, learned, mean, var))


def _flatten_and_concatenate(parts: Iterable[Tensor]) -> Tensor:
    return torch.cat([part.flatten() for part in parts])


def _layer_norm(layer: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    return layer(x), layer_norm(x, layer.normalized_shape, layer.weight, layer.bias, eps=layer.eps)


def _rms_norm(layer: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    return layer(x), rms_norm(x, layer.normalized_shape, layer.weight, eps=layer.eps)


def _recurrent(layer: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """Compare a recurrent layer on sequences of equal length, because batches of mixed lengths are packed."""
    x = torch.randn(2, STEPS, layer.input_size, dtype=layer.weight_hh_l0.dtype)
    y, last = layer(x)
    written, final, _ = unroll(layer, x)
    return _flatten_and_concatenate((y, *to_state_tuple(last))), _flatten_and_concatenate((written, *final))


TEXTBOOK_LAYERS: dict[Any, Any] = {
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.Conv3d: _convolution,
    nn.BatchNorm1d: _batch_norm,
    nn.BatchNorm2d: _batch_norm,
    nn.BatchNorm3d: _batch_norm,
    nn.LayerNorm: _layer_norm,
    nn.RMSNorm: _rms_norm,
    nn.RNNBase: _recurrent,
}


@torch.no_grad()
def compare_cached(found: Preset, config: Any, model: Any) -> float | None:
    """Return the difference between outputs computed token by token with a cache and outputs for the whole sequence;
    None if the model does not generate sequences."""
    model = model.double().eval()
    whole: Any = model  # typed as Any, so that it can be called as a module
    generator = torch.Generator().manual_seed(0)

    def tokens(*shape: int, below: int) -> Tensor:
        return torch.randint(2, below, shape, generator=generator)

    if isinstance(model, SupportsKVCache) and getattr(config, "head", "next") == "next":
        text = tokens(2, STEPS, below=config.vocab_size)
        together = whole(text)
        answer, cache = model.extend(text[:, :3])
        alone = [answer]
        for t in range(3, STEPS):
            answer, cache = model.extend(text[:, t : t + 1], None, cache)
            alone.append(answer)
        return difference(torch.stack(alone, 1), together[:, 2:])
    if isinstance(model, SupportsDecoding):
        if Tokens in found.targets and found.takes == (ImageSpec.kind,):
            shape, sizes = example_shape(found, config), found.image_sizes(config)
            side = sizes.enough(2 * sizes.least)
            read = [torch.randn(2, shape[0], side, side, generator=generator, dtype=torch.float64)]
        else:
            mask = torch.arange(STEPS) < torch.tensor([STEPS, 4])[:, None]
            read = [tokens(2, STEPS, below=config.vocab_size).where(mask, 0), mask]
        target = tokens(2, STEPS, below=getattr(config, "target_vocab_size", None) or config.vocab_size)
        state, alone = model.begin(*read), []
        for t in range(STEPS):
            answer, state = model.step(target[:, t], state)
            alone.append(answer)
        return difference(torch.stack(alone, 1), whole(*read, target))
    if isinstance(model, SupportsState):
        overrides = {"vocab_size": WORDS, "embedding_dim": 8, "hidden_dim": 8, "pooling": "every", "num_classes": WORDS}
        reader: Any = (
            found.build(dataclasses.replace(config, **overrides, steps=0, bidirectional=False)).double().eval()
        )
        text = tokens(2, STEPS, below=WORDS)
        first, state = reader.advance(text[:, :3])
        second, _ = reader.advance(text[:, 3:], None, state)
        return difference(torch.cat([first, second], 1), reader(text))
    return None


def compare_updates(settings: Any) -> tuple[str, float] | None:
    """Return the optimizer of the settings, and the largest difference of its updates from the textbook's.

    A weight, which decays, and a bias, which does not, are compared. Returns None for an optimizer without a textbook
    version.
    """
    from ...training.optim import build_optimizers

    write = UPDATES.get(settings.optimizer)
    if write is None:
        return None
    generator = torch.Generator().manual_seed(0)
    layer = nn.Linear(4, 3).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    optimizers = build_optimizers(layer, settings)
    worst = 0.0
    written: dict[str, tuple[Tensor, dict[str, Tensor]]] = {
        name: (p.detach().clone(), {}) for name, p in layer.named_parameters()
    }
    for t in range(1, RATE_STEPS + 1):
        for name, parameter in layer.named_parameters():
            gradient = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.grad = gradient.clone()
            weight, state = written[name]
            decay = settings.weight_decay if name == "weight" else 0.0
            written[name] = (write(weight, gradient, state, settings.lr, decay, settings.momentum, t), state)
        for optimizer in optimizers:
            optimizer.step()
        worst = max(worst, *(difference(p.detach(), written[name][0]) for name, p in layer.named_parameters()))
    return settings.optimizer, worst


def _sgd(w: Tensor, g: Tensor, state: dict[str, Tensor], lr: float, decay: float, momentum: float, t: int) -> Tensor:
    """w ← w − η (g + λ w)."""
    return w - lr * (g + decay * w)


def _momentum(
    w: Tensor, g: Tensor, state: dict[str, Tensor], lr: float, decay: float, momentum: float, t: int
) -> Tensor:
    """v ← μ v + g + λ w;  w ← w − η v. In the first step v is the gradient."""
    g = g + decay * w
    state["v"] = momentum * state["v"] + g if "v" in state else g
    return w - lr * state["v"]


def _nesterov(
    w: Tensor, g: Tensor, state: dict[str, Tensor], lr: float, decay: float, momentum: float, t: int
) -> Tensor:
    """v as in momentum;  w ← w − η (g + λ w + μ v)."""
    g = g + decay * w
    state["v"] = momentum * state["v"] + g if "v" in state else g
    return w - lr * (g + momentum * state["v"])


def _adagrad(
    w: Tensor, g: Tensor, state: dict[str, Tensor], lr: float, decay: float, momentum: float, t: int
) -> Tensor:
    """s ← s + g²;  w ← w − η g / (√s + ε)."""
    g = g + decay * w
    state["s"] = state.get("s", torch.zeros_like(w)) + g * g
    return w - lr * g / (state["s"].sqrt() + 1e-10)


def _rmsprop(
    w: Tensor, g: Tensor, state: dict[str, Tensor], lr: float, decay: float, momentum: float, t: int
) -> Tensor:
    """s ← 0.99 s + 0.01 g²;  w ← w − η g / (√s + ε)."""
    g = g + decay * w
    state["s"] = 0.99 * state.get("s", torch.zeros_like(w)) + 0.01 * g * g
    return w - lr * g / (state["s"].sqrt() + 1e-8)


def _adam(w: Tensor, g: Tensor, state: dict[str, Tensor], lr: float, decay: float, momentum: float, t: int) -> Tensor:
    """m ← 0.9 m + 0.1 g;  s ← 0.999 s + 0.001 g²;  w ← w − η m̂ / (√ŝ + ε), both divided by 1 − βᵗ."""
    g = g + decay * w
    state["m"] = 0.9 * state.get("m", torch.zeros_like(w)) + 0.1 * g
    state["s"] = 0.999 * state.get("s", torch.zeros_like(w)) + 0.001 * g * g
    return w - lr * (state["m"] / (1 - 0.9**t)) / ((state["s"] / (1 - 0.999**t)).sqrt() + 1e-8)


def _adamw(w: Tensor, g: Tensor, state: dict[str, Tensor], lr: float, decay: float, momentum: float, t: int) -> Tensor:
    """w ← w − η λ w, then Adam without decay."""
    return _adam(w - lr * decay * w, g, state, lr, 0.0, momentum, t)


UPDATES = {
    "sgd": _sgd,
    "momentum": _momentum,
    "nesterov": _nesterov,
    "adagrad": _adagrad,
    "rmsprop": _rmsprop,
    "adam": _adam,
    "adamw": _adamw,
}
