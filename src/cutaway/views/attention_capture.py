"""What every attention of a model did with one example: queries, keys, values and mask, read beside the fused kernel.

Each is handed on as soon as its module has run, and what is not kept is gone: a deep model on a long text does not hold
the weights of all its layers at once.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..models.base import ComparesByAddition, contract_of
from ..nn.attention import MultiHeadAttention, dot
from ..nn.eval_mode import resting
from ..nn.masks import causal_mask, combined, masked_softmax

Result = TypeVar("Result")


@dataclass(frozen=True)
class AttentionLook:
    """One attention on one example: h heads, T queries, S keys."""

    name: str  # of its module; with the number of the call where it is called again: blocks.0.attention#2
    module: nn.Module
    q: Tensor  # (h, T, d)
    k: Tensor  # (h, S, d)
    v: Tensor  # (h, S, d_v)
    mask: Tensor | None  # (1 or h, T, S), boolean or added to the scores
    scale: float  # what q · k is multiplied with, 1 / √d unless said otherwise
    output: Tensor  # what the module gave, (T, dim)
    cross_attends: bool = False  # over a source, not over itself
    causal: bool = False
    over_frames: bool = False  # each query is a frame of a video, at one place
    compared: Tensor | None = None  # v of vᵀ tanh(q + k), (d,), where the score is additive

    @property
    def heads(self) -> int:
        """How many heads it has."""
        return len(self.q)

    def products(self, head: int) -> Tensor:
        """How well each key suits each query before scale and mask, (T, S): q · k, or vᵀ tanh(q + k)."""
        if self.compared is not None:
            return torch.tanh(self.q[head][:, None] + self.k[head][None]) @ self.compared  # (T, S, d) · (d,)
        return dot(self.q[head], self.k[head])

    def mask_of(self, head: int) -> Tensor | None:
        """The mask of that head, (T, S)."""
        if self.mask is None:
            return None
        return self.mask[head if len(self.mask) > 1 else 0].expand(self.q.shape[1], self.k.shape[1])

    def weights(self, head: int) -> Tensor:
        """How much each query took from each key, (T, S): rows sum to 1, or are 0 where nothing may be seen."""
        return masked_softmax(self.products(head) * self.scale, self.mask_of(head))

    def results(self) -> Tensor:
        """weights · V of all heads, (h, T, d_v)."""
        return torch.stack([self.weights(head) @ self.v[head] for head in range(self.heads)])


def attentions(model: nn.Module) -> dict[str, nn.Module]:
    """The modules that attend, by name."""
    return {name: module for name, module in model.named_modules() if _attends(module)}


def _attends(module: nn.Module) -> bool:
    return isinstance(module, MultiHeadAttention | ComparesByAddition)


def names_of(model: nn.Module) -> dict[str, int]:
    """The looks of one example by name, each with its number of heads, in the order in which the model has them."""
    found: dict[str, int] = {}
    for name, module in attentions(model).items():
        heads, passes = max(1, int(getattr(module, "heads", 1))), _passes(model, name)
        found |= {_named(name, k): heads for k in range(1, passes + 1)}
    return found


def watch(
    model: nn.Module,
    inputs: tuple[Any, ...],
    see: Callable[[AttentionLook], Result],
    row: Callable[[str], int] | None = None,
) -> list[Result]:
    """What `see` makes of every look, in the order of the computation, while the model runs on one example, (1, …).
    Where a module takes parts of an example as rows of its batch, variables of a series, or frames or places of a
    video, `row` tells, by the module's name, which of them is looked at; the first unless it is given."""
    found: list[Result] = []
    times: Counter[str] = Counter()
    steps: dict[str, list[tuple[Tensor, ...]]] = {}

    def many_headed(name: str) -> Any:
        def hook(module: MultiHeadAttention, args: Any, kwargs: Any, output: Tensor) -> None:
            times[name] += 1
            said = _named(name, times[name])
            look = _look(said, module, args, kwargs, output, row(name) if row is not None else 0)
            found.append(see(replace(look, over_frames=contract_of(model).attends_over_frames(name))))

        return hook

    def additive(name: str) -> Any:
        def hook(module: ComparesByAddition, args: Any, kwargs: Any, output: tuple[Tensor, Tensor]) -> None:
            *operands, compared = module.compared(*args)
            steps.setdefault(name, []).append((*(x[0] for x in operands), output[0][0], compared))

        return hook

    handles = [
        module.register_forward_hook(
            many_headed(name) if isinstance(module, MultiHeadAttention) else additive(name), with_kwargs=True
        )
        for name, module in attentions(model).items()
    ]
    try:
        with torch.no_grad(), resting(model):
            model(*inputs)
            for name, taken in steps.items():
                found.append(see(_stepped(name, model.get_submodule(name), taken)))
    finally:
        for handle in handles:
            handle.remove()
    return found


def alone(inputs: tuple[Tensor, ...], i: int) -> tuple[Tensor, ...]:
    """The inputs of example i by itself, (1, …)."""
    return tuple(x[i : i + 1] for x in inputs)


def _named(name: str, k: int) -> str:
    """The name of a module's k-th call, as `capture` has it."""
    return name if k == 1 else f"{name}#{k}"


def _look(name: str, module: MultiHeadAttention, args: Any, kwargs: Any, output: Tensor, row: int) -> AttentionLook:
    given = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    q, k, v = module.split(given["x"], given.get("source"), None, given.get("positions"))
    causal = bool(given.get("causal", False))
    own = causal_mask(q.shape[2], k.shape[2], q.device) if causal else None
    mask = combined(given.get("mask"), own)
    if mask is not None:
        # (rows or 1, heads or 1, T or 1, S), or without what stands first
        mask = mask[min(row, len(mask) - 1)] if mask.ndim == 4 else mask.expand(1, *mask.shape[-2:])
        mask = mask.expand(len(mask), q.shape[2], k.shape[2])  # (1 or h, T, S)
        causal = causal or _hides_what_follows(mask)
    shared = module.heads // module.kv_heads
    return AttentionLook(
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


def _stepped(name: str, module: nn.Module, taken: list[tuple[Tensor, ...]]) -> AttentionLook:
    """The additive attention of all steps of the target as one look with one head."""
    queries, keys, h, mask, contexts, compared = zip(*taken)
    return AttentionLook(
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


def _passes(model: nn.Module, name: str) -> int:
    """How often the model runs that module: ALBERT's one block is all of its blocks."""
    return contract_of(model).block_passes if name.startswith("blocks.") else 1


def _hides_what_follows(mask: Tensor) -> bool:
    """Whether no query may look after itself: T5's decoder says so in its bias."""
    if mask.shape[-1] != mask.shape[-2] or mask.shape[-1] < 2:
        return False
    hidden = ~mask if mask.dtype == torch.bool else mask.isneginf()
    return bool(hidden.triu(1).sum() == len(mask) * mask.shape[-1] * (mask.shape[-1] - 1) // 2)
