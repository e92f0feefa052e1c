"""Dropout without chance, so that where it stands and how strong it is can be compared between two networks.

Two networks draw dropout in orders of their own. Within `fixed_dropout` every dropout of PyTorch's multiplies by
factors that its rate p and the place of a number in its tensor decide: 1 + p cos(i), i the place along the last axis,
and along the second where there are four (heads, channels). A dropout that is missing, stands elsewhere or has another
rate then changes the outputs, and one that stands where it should changes them alike. The fused attention kernel, whose
weights nobody sees, is written out meanwhile.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..nn.attention import attention_weights
from ..nn.masks import causal_mask, combined


def factors(x: Tensor, p: float) -> Tensor:
    """What stands for dropout of the rate p on x: it broadcasts to x."""

    def along(size: int) -> Tensor:
        return 1 + p * torch.cos(torch.arange(1, size + 1, dtype=x.dtype, device=x.device))

    if x.ndim != 4:
        return along(x.shape[-1])
    places = along(x.shape[-1]) if x[0, 0].numel() > 1 else x.new_ones(1)  # a map of one pixel is a list of channels
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
    """The fused kernel's result, its weights dropped as those of a network that writes them out."""
    if enable_gqa:
        k, v = (part.repeat_interleave(q.shape[-3] // part.shape[-3], dim=-3) for part in (k, v))
    own = causal_mask(q.shape[-2], k.shape[-2], q.device) if is_causal else None
    return _dropout(attention_weights(q, k, combined(attn_mask, own), scale=scale), dropout_p) @ v


@contextlib.contextmanager
def fixed_dropout() -> Iterator[None]:
    """Within it F.dropout, and with it nn.Dropout, is no chance, nor is that of the fused attention kernel."""
    library: Any = F
    kept = library.dropout, library.scaled_dot_product_attention
    library.dropout, library.scaled_dot_product_attention = _dropout, _attention
    try:
        yield
    finally:
        library.dropout, library.scaled_dot_product_attention = kept
