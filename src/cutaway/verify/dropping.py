"""Deterministic dropout, so that its positions and rates can be compared between two networks.

Two networks draw dropout in different orders. Within `fixed_dropout` every dropout of PyTorch multiplies by factors
that depend only on its rate p and the index in its tensor: 1 + p cos(i), with i the index along the last axis, and
along the second of four axes (heads, channels). A missing, misplaced or different dropout then changes the outputs, and
a correct one changes them equally. The fused attention kernel does not expose its weights, so it is replaced by plain
operations.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..nn.attention import attention_weights
from ..nn.masks import causal_mask, merge_masks


def factors(x: Tensor, p: float) -> Tensor:
    """Return the factors that replace dropout of rate p on x. They broadcast to x."""

    def along(size: int) -> Tensor:
        return 1 + p * torch.cos(torch.arange(1, size + 1, dtype=x.dtype, device=x.device))

    if x.ndim != 4:
        return along(x.shape[-1])
    places = along(x.shape[-1]) if x[0, 0].numel() > 1 else x.new_ones(1)  # a map of one pixel is a vector of channels
    return places * along(x.shape[1])[:, None, None]


def _dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    return x * factors(x, p) if training and p > 0 else x


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
