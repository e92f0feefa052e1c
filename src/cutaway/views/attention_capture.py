"""Captured attention of every layer on one example: queries, keys, values and mask, and labels of the positions.

Values are recorded next to the fused kernel. Each record is passed on as soon as its module has run and is then
released. A deep model on a long text therefore does not hold the weights of all its layers at once.
"""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..data.dataset_base import IGNORED
from ..models.base import SupportsAdditiveScores, SupportsDecoding, as_base_model
from ..nn.attention import MultiHeadAttention, dot
from ..nn.masks import causal_mask, masked_softmax, merge_masks
from ..nn.modules import eval_mode
from .model_layers import attention_modules, find_token_grid
from .subject import Subject

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

    def attention_mask(self, head: int) -> Tensor | None:
        """Return the mask of a head, (T, S)."""
        if self.mask is None:
            return None
        return self.mask[head if len(self.mask) > 1 else 0].expand(self.q.shape[1], self.k.shape[1])

    def weights(self, head: int) -> Tensor:
        """Return the attention weights of a head, (T, S): rows sum to 1, or are 0 where all keys are masked."""
        return masked_softmax(self.products(head) * self.scale, self.attention_mask(head))

    def results(self) -> Tensor:
        """Return weights · V of all heads, (h, T, d_v)."""
        return torch.stack([self.weights(head) @ self.v[head] for head in range(self.heads)])


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
    """Return the record of one call of a multi-head attention module, for one row of its batch."""
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


FRAME_SECONDS = 0.010  # seconds per frame of a spectrogram


@dataclass(frozen=True)
class TokenPositions:
    """The positions of one side of an attention layer."""

    labels: list[str]
    real: Tensor  # indices in the row of the batch, (n,), without padding
    grid: tuple[int, int] | None = None  # rows and columns of patches, after `before` tokens without a position
    before: int = 0
    step: int = 1  # pixels from one patch to the next

    def distances(self) -> Tensor:
        """Return the distances of positions, (n, n), in tokens, or in pixels between the centres of patches.

        The distance is NaN for tokens without a position.
        """
        place = torch.arange(len(self.labels), dtype=torch.float32)
        if self.grid is None:
            return (place[:, None] - place[None]).abs()
        at = place - self.before
        point = torch.stack([at // self.grid[1], at % self.grid[1]], dim=1) * self.step  # (n, 2)
        apart = torch.cdist(point, point)
        apart[: self.before] = math.nan
        apart[:, : self.before] = math.nan
        return apart


def token_positions(subject: Subject, i: int) -> tuple[TokenPositions, TokenPositions]:
    """Return the positions of example i: those of the input and those of the output sequence.

    Both are the same if there is only one sequence. For a video, they are the patches of a frame, and its frames.
    """
    if subject.kind == "image":
        found = _patches(subject) if subject.inputs[0].ndim == 4 else _tokens(subject, i, 0)
        return found, _tokens(subject, i, 1) if isinstance(subject.model, SupportsDecoding) else found
    if subject.kind == "video":
        frames = torch.arange(subject.inputs[0].shape[1])
        real = subject.inputs[1][i].bool().nonzero()[:, 0] if len(subject.inputs) > 1 else frames
        return _patches(subject), TokenPositions([f"frame {t}" for t in real.tolist()], real)
    if subject.kind == "audio":
        return _times(subject, i), _tokens(subject, i, 1)
    patches = as_base_model(subject.model).series_patches()
    if subject.kind == "series" and patches is not None:
        labels = [_span(first, last, patches.seen) for first, last in patches.spans]
        steps = TokenPositions(labels, torch.arange(len(labels)))
        return steps, steps
    source = _tokens(subject, i, 0)
    return source, _tokens(subject, i, 1) if subject.kind == "seq2seq" else source


def query_key_positions(
    look: AttentionCapture, both: tuple[TokenPositions, TokenPositions]
) -> tuple[TokenPositions, TokenPositions]:
    """Return the positions of the queries of an attention layer, and those of its keys."""
    source, target = both
    if look.cross_attends:
        return target, source
    own = target if look.name.startswith("decoder") or look.over_frames else source
    return own, own


def _tokens(subject: Subject, i: int, side: int) -> TokenPositions:
    ids = subject.inputs[0 if side == 0 else -1][i]
    if side == 0:
        mask = subject.inputs[1][i] if len(subject.inputs) > 1 else torch.ones_like(ids, dtype=torch.bool)
        real = mask.nonzero()[:, 0]
    else:
        real = torch.arange(_target_length(subject, ids, i))
    labels = subject.tokens(i, side)
    return TokenPositions(labels[: len(real)] if side else labels, real)


def _times(subject: Subject, i: int) -> TokenPositions:
    """Return the output positions of a network for a recording, labelled by their start time."""
    frames = subject.inputs[1][i].sum()[None]
    places = int(as_base_model(subject.model).output_frames(frames))
    each = int(frames) / places * FRAME_SECONDS
    return TokenPositions([f"{t * each:.2f} s" for t in range(places)], torch.arange(places))


def _span(first: int, last: int, seen: int | None) -> str:
    """Return the label of the steps of a token: "9 to 14", or "9" for one step; "+2" is step 2 of the forecast."""
    if seen is not None and first >= seen:
        return f"+{first - seen + 1}"
    return f"{first + 1}" if first == last else f"{first + 1} to {last + 1}"


def _target_length(subject: Subject, ids: Tensor, i: int) -> int:
    """Return the number of real target tokens: those with a prediction."""
    target = subject.target
    if target is not None and target.ndim == 2 and target.shape[1] == len(ids):
        return max(1, int((target[i] != IGNORED).sum()))
    return len(ids)


def _patches(subject: Subject) -> TokenPositions:
    grid = find_token_grid(subject)
    assert grid is not None, "attention in an image or a frame is over its patches or positions"
    rows, columns, before = grid
    labels = ["class token"] * before + [f"r{r} c{c}" for r in range(rows) for c in range(columns)]  # as cells
    return TokenPositions(
        labels, torch.arange(len(labels)), (rows, columns), before, subject.inputs[0].shape[-2] // rows
    )
