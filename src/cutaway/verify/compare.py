"""Comparison of a model with an independent implementation in float64.

Both have the same weights and inputs. The outputs and all gradients are compared, with deterministic dropout, so that
its positions and rates can be compared. Two networks draw dropout in different orders. Within `fixed_dropout` every
dropout of PyTorch multiplies by factors that depend only on its rate p and the index in its tensor: 1 + p cos(i), with
i the index along the last axis, and along the second of four axes (heads, channels). A missing, misplaced or different
dropout then changes the outputs, and a correct one changes them equally. The fused attention kernel does not expose its
weights, so it is replaced by plain operations.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..models.base import as_output_tuple
from ..nn.attention import attention_weights
from ..nn.masks import causal_mask, merge_masks
from . import Oracle


def dropout_factors(x: Tensor, p: float) -> Tensor:
    """Return the factors that replace dropout of rate p on x. They broadcast to x."""

    def along(size: int) -> Tensor:
        return 1 + p * torch.cos(torch.arange(1, size + 1, dtype=x.dtype, device=x.device))

    if x.ndim != 4:
        return along(x.shape[-1])
    places = along(x.shape[-1]) if x[0, 0].numel() > 1 else x.new_ones(1)  # a map of one pixel is a vector of channels
    return places * along(x.shape[1])[:, None, None]


def _dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    return x * dropout_factors(x, p) if training and p > 0 else x


def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Compute scaled dot-product attention with deterministic dropout of its weights."""
    if enable_gqa:
        k, v = (part.repeat_interleave(q.shape[-3] // part.shape[-3], dim=-3) for part in (k, v))
    own = causal_mask(q.shape[-2], k.shape[-2], q.device) if is_causal else None
    return _dropout(attention_weights(q, k, merge_masks(attn_mask, own), scale=scale), dropout_p) @ v


@contextlib.contextmanager
def fixed_dropout() -> Iterator[None]:
    """Make F.dropout, nn.Dropout and the fused attention kernel deterministic within this context."""
    library: Any = F
    kept = library.dropout, library.scaled_dot_product_attention
    library.dropout, library.scaled_dot_product_attention = _dropout, _attention
    try:
        yield
    finally:
        library.dropout, library.scaled_dot_product_attention = kept


BOUND = 1e-9  # largest relative difference in float64
# A gradient below this fraction of the largest is rounding error: for a bias before a normalization, n terms cancel
# to √n · 2e-16 of their size. For a few thousand terms that is BOUND times this.
NOISE = 1e-5


@dataclass(frozen=True)
class Comparison:
    """Largest relative differences over training and evaluation mode."""

    outputs: float
    gradients: float
    worst: str  # the parameter whose gradient differs most

    @property
    def equal(self) -> bool:
        """Return whether both are within the bound."""
        return self.outputs <= BOUND and self.gradients <= BOUND


def compare(model: nn.Module, oracle: Oracle, generator: torch.Generator) -> Comparison:
    """Run both networks with the same weights, inputs and output gradient, in training and in evaluation mode.

    The weights are perturbed at random first, so that ones and zeros of an initialization hide no error. Training comes
    first, so that evaluation uses normalization statistics that differ from the initial ones. Dropout is deterministic
    (`fixed_dropout`), so that its positions and rates are compared. Only copies of the model and the oracle change.
    Raises ValueError if a weight of either side has no counterpart.
    """
    ours, theirs = copy.deepcopy(model).double(), copy.deepcopy(oracle.module).double()
    with torch.no_grad():
        for p in ours.parameters():
            size = p.abs().mean().clamp(min=0.1)
            p.add_(0.1 * size * torch.randn(p.shape, generator=generator, dtype=p.dtype))
    renamed = give_weights(ours, theirs, oracle)
    outputs, gradients, worst = 0.0, 0.0, ""
    for training in (True, False):
        inputs = oracle.inputs(generator)
        upstream: list[Tensor] = []
        results: list[tuple[tuple[Tensor, ...], dict[str, Tensor | None]]] = []
        for module in (ours, theirs):
            module.train(training).zero_grad()
            with torch.random.fork_rng(devices=[]), fixed_dropout():
                torch.manual_seed(0)
                given = as_output_tuple(module(*inputs))
            if oracle.compared is not None:
                given = tuple(oracle.compared(inputs, answer) for answer in given)
            upstream = upstream or [torch.randn(y.shape, generator=generator, dtype=y.dtype) for y in given]
            torch.autograd.backward(given, upstream)
            results.append((tuple(y.detach() for y in given), named_gradients(module)))
        (answers, grads), (expected, expected_grads) = results
        if len(answers) != len(expected):
            raise ValueError(f"{len(answers)} outputs are compared with {len(expected)}")
        outputs = max(outputs, *(difference(a, b) for a, b in zip(answers, expected)))
        largest = max(float(g.abs().max()) for g in expected_grads.values() if g is not None)
        for key, grad in renamed(grads).items():
            found = difference(grad, expected_grads[key], floor=NOISE * largest)
            if found >= gradients:
                gradients, worst = found, key
    return Comparison(outputs, gradients, worst)


def give_weights(
    ours: nn.Module, theirs: nn.Module, oracle: Oracle
) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """Copy our weights to the oracle's network and return the function that converts our tensors to its names.

    Raises ValueError if a weight of either side has no counterpart.
    """
    if oracle.converted is not None:
        copy_parameters(oracle.converted(dict(ours.named_parameters())), theirs)
        return oracle.converted
    key_map = oracle.key_map if oracle.key_map is not None else {k: k for k in ours.state_dict()}
    copy_weights(ours, theirs, key_map)
    return lambda tensors: {key_map[key]: tensor for key, tensor in tensors.items()}


def named_gradients(module: nn.Module) -> dict[str, Tensor | None]:
    """Return the gradient of each parameter by name."""
    return {name: _dense(parameter.grad) for name, parameter in module.named_parameters()}


def _dense(grad: Tensor | None) -> Tensor | None:
    """Convert a sparse gradient to a dense one."""
    return grad.to_dense() if grad is not None and grad.is_sparse else grad


def copy_weights(ours: nn.Module, theirs: nn.Module, key_map: Mapping[str, str]) -> None:
    """Copy every tensor of our state dict to the oracle's by `key_map`: ours → theirs.

    Raises ValueError if a tensor of either side is left over or two have different shapes.
    """
    source, target = ours.state_dict(), theirs.state_dict()
    unmapped = [k for k in source if k not in key_map]
    unfilled = sorted(set(target) - {key_map[k] for k in source if k in key_map})
    if unmapped or unfilled:
        raise ValueError(f"no counterpart: ours {unmapped[:3]}, the oracle's {unfilled[:3]}")
    for key, tensor in source.items():
        theirs_key = key_map[key]
        if theirs_key not in target or target[theirs_key].shape != tensor.shape:
            raise ValueError(f"{key} {tuple(tensor.shape)} does not fit the oracle's {theirs_key}")
        target[theirs_key].copy_(tensor)


@torch.no_grad()
def copy_parameters(tensors: Mapping[str, Tensor], theirs: nn.Module) -> None:
    """Copy tensors to the oracle's parameters of the same names. Tied parameters have one name.

    Raises ValueError if a tensor of either side is left over or two have different shapes.
    """
    target = dict(theirs.named_parameters())
    unmapped, unfilled = sorted(set(tensors) - set(target)), sorted(set(target) - set(tensors))
    if unmapped or unfilled:
        raise ValueError(f"no counterpart: ours {unmapped[:3]}, the oracle's {unfilled[:3]}")
    for key, tensor in tensors.items():
        if target[key].shape != tensor.shape:
            raise ValueError(f"{key} {tuple(tensor.shape)} does not fit the oracle's {tuple(target[key].shape)}")
        target[key].copy_(tensor)


def difference(a: Tensor | None, b: Tensor | None, floor: float = 0.0) -> float:
    """Return max |a − b| / max |b|, with a denominator of at least `floor`.

    Infinite if one is missing or not finite.
    """
    if a is None and b is None:
        return 0.0
    if a is None or b is None or a.shape != b.shape:
        return float("inf")
    gap = float((a - b).abs().max())
    scale = max(float(b.abs().max()), floor)
    if gap == 0.0:
        return 0.0
    return gap / scale if gap < float("inf") and scale > 0 else float("inf")
