"""Captured attention of every layer on one example: queries, keys, values and mask, recorded next to the fused kernel.

Each record is passed on as soon as its module has run and is then released. A deep model on a long text therefore does
not hold the weights of all its layers at once.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..models.base import SupportsAdditiveScores, as_base_model
from ..nn.attention import MultiHeadAttention, dot
from ..nn.eval_mode import eval_mode
from ..nn.masks import causal_mask, masked_softmax, merge_masks

Result = TypeVar("Result")


@dataclass(frozen=True)
class AttentionCapture:
    """One attention layer on one example: h heads, T queries, S keys."""

    name: str  # of its module; a later call has its number: blocks.0.attention#2
    module: nn.Module
    q: Tensor  # (h, T, d)
    k: Tensor  # (h, S, d)
    v: Tensor  # (h, S, d_v)
    mask: Tensor | None  # (1 or h, T, S), boolean or added to the scores
    scale: float  # factor of q · k, by default 1 / √d
    output: Tensor  # output of the module, (T, dim)
    cross_attends: bool = False  # attends to a source, not to itself
    causal: bool = False
    over_frames: bool = False  # each query is a frame of a video, at one patch
    compared: Tensor | None = None  # v of vᵀ tanh(q + k), (d,), if the score is additive

    @property
    def heads(self) -> int:
        """Return the number of heads."""
        return len(self.q)

    def products(self, head: int) -> Tensor:
        """Return the unscaled scores of a head before the mask, (T, S): q · k, or vᵀ tanh(q + k)."""
        if self.compared is not None:
            return torch.tanh(self.q[head][:, None] + self.k[head][None]) @ self.compared  # (T, S, d) · (d,)
        return dot(self.q[head], self.k[head])

    def mask_of(self, head: int) -> Tensor | None:
        """Return the mask of a head, (T, S)."""
        if self.mask is None:
            return None
        return self.mask[head if len(self.mask) > 1 else 0].expand(self.q.shape[1], self.k.shape[1])

    def weights(self, head: int) -> Tensor:
        """Return the attention weights of a head, (T, S): rows sum to 1, or are 0 where all keys are masked."""
        return masked_softmax(self.products(head) * self.scale, self.mask_of(head))

    def results(self) -> Tensor:
        """Return weights · V of all heads, (h, T, d_v)."""
        return torch.stack([self.weights(head) @ self.v[head] for head in range(self.heads)])


def attention_modules(model: nn.Module) -> dict[str, nn.Module]:
    """Return the attention modules by name."""
    return {name: module for name, module in model.named_modules() if _attends(module)}


def _attends(module: nn.Module) -> bool:
    return isinstance(module, MultiHeadAttention | SupportsAdditiveScores)


def num_heads_by_name(model: nn.Module) -> dict[str, int]:
    """Return the attention calls of one example by name, each with its number of heads, in model order."""
    found: dict[str, int] = {}
    for name, module in attention_modules(model).items():
        heads, passes = max(1, int(getattr(module, "heads", 1))), _num_passes(model, name)
        found |= {_call_name(name, k): heads for k in range(1, passes + 1)}
    return found


def capture_attention(
    model: nn.Module,
    inputs: tuple[Any, ...],
    see: Callable[[AttentionCapture], Result],
    row: Callable[[str], int] | None = None,
) -> list[Result]:
    """Run the model on one example, (1, …), and return `see(record)` of every attention call in order of computation.

    A module may take parts of an example as rows of its batch: variables of a series, or frames or places of a video.
    `row` returns, for a module's name, the row to record; by default the first.
    """
    found: list[Result] = []
    times: Counter[str] = Counter()
    steps: dict[str, list[tuple[Tensor, ...]]] = {}

    def many_headed(name: str) -> Any:
        def hook(module: MultiHeadAttention, args: Any, kwargs: Any, output: Tensor) -> None:
            times[name] += 1
            said = _call_name(name, times[name])
            look = _record(said, module, args, kwargs, output, row(name) if row is not None else 0)
            found.append(see(replace(look, over_frames=as_base_model(model).is_temporal_attention(name))))

        return hook

    def additive(name: str) -> Any:
        def hook(module: SupportsAdditiveScores, args: Any, kwargs: Any, output: tuple[Tensor, Tensor]) -> None:
            *operands, compared = module.compared(*args)
            steps.setdefault(name, []).append((*(x[0] for x in operands), output[0][0], compared))

        return hook

    handles = [
        module.register_forward_hook(
            many_headed(name) if isinstance(module, MultiHeadAttention) else additive(name), with_kwargs=True
        )
        for name, module in attention_modules(model).items()
    ]
    try:
        with torch.no_grad(), eval_mode(model):
            model(*inputs)
            for name, taken in steps.items():
                found.append(see(_merge_steps(name, model.get_submodule(name), taken)))
    finally:
        for handle in handles:
            handle.remove()
    return found


def single_example(inputs: tuple[Tensor, ...], i: int) -> tuple[Tensor, ...]:
    """Return the inputs of example i, (1, …)."""
    return tuple(x[i : i + 1] for x in inputs)


def _call_name(name: str, k: int) -> str:
    """Return the name of a module's k-th call, as `capture` writes it."""
    return name if k == 1 else f"{name}#{k}"


def _record(
    name: str, module: MultiHeadAttention, args: Any, kwargs: Any, output: Tensor, row: int
) -> AttentionCapture:
    given = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    q, k, v = module.project_qkv(given["x"], given.get("source"), None, given.get("positions"))
    causal = bool(given.get("causal", False))
    own = causal_mask(q.shape[2], k.shape[2], q.device) if causal else None
    mask = merge_masks(given.get("mask"), own)
    if mask is not None:
        # (rows or 1, heads or 1, T or 1, S), or without the leading axes
        mask = mask[min(row, len(mask) - 1)] if mask.ndim == 4 else mask.expand(1, *mask.shape[-2:])
        mask = mask.expand(len(mask), q.shape[2], k.shape[2])  # (1 or h, T, S)
        causal = causal or _is_causal(mask)
    shared = module.heads // module.kv_heads
    return AttentionCapture(
        name,
        module,
        q[row],
        k[row].repeat_interleave(shared, dim=0),
        v[row].repeat_interleave(shared, dim=0),
        mask,
        module.scale,
        output[row].detach(),
        cross_attends=module.cross_attends,
        causal=causal and not module.cross_attends,
    )


def _merge_steps(name: str, module: nn.Module, taken: list[tuple[Tensor, ...]]) -> AttentionCapture:
    """Return the additive attention of all target steps as one record with one head."""
    queries, keys, h, mask, contexts, compared = zip(*taken)
    return AttentionCapture(
        name,
        module,
        torch.stack(queries)[None],
        keys[0][None],
        h[0][None],
        mask[0].expand(1, len(queries), -1),
        1.0,
        torch.stack(contexts),
        cross_attends=True,
        compared=compared[0].detach(),
    )


def _num_passes(model: nn.Module, name: str) -> int:
    """Return the number of times that the model runs the module: ALBERT's one block is all of its blocks."""
    return as_base_model(model).block_passes if name.startswith("blocks.") else 1


def _is_causal(mask: Tensor) -> bool:
    """Return whether the mask is causal: T5's decoder has its causal mask in the bias."""
    if mask.shape[-1] != mask.shape[-2] or mask.shape[-1] < 2:
        return False
    hidden = ~mask if mask.dtype == torch.bool else mask.isneginf()
    return bool(hidden.triu(1).sum() == len(mask) * mask.shape[-1] * (mask.shape[-1] - 1) // 2)
