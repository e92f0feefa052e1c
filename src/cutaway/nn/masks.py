"""Masks: which query may look at which key, told once for all reasons that there are.

A mask is boolean, True where the query may look, or a bias that is added to the scores, −∞ where it may not
(A. Vaswani et al., Attention is all you need, 2017, section 3.2.3). Of T queries and S keys its shape is
(N or 1, heads or 1, T or 1, S or 1), or what broadcasts to that; rows are queries.

What a person hands to a model is another mask, (N, T): which tokens, steps or frames are real. `real_places` is the one
door that it comes in by.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core.errors import ModelError


def real_places(mask: Tensor | None, shape: torch.Size | tuple[int, ...]) -> Tensor | None:
    """The mask of sequences of `shape` (N, T, …) as networks read it, boolean, (N, T), True where a place is real.

    Whole numbers and floats of 0 and 1 say the same, as tokenizers give them. Raises ModelError for other numbers, a
    bias among them, and for another shape. A boolean mask costs nothing: its values are not looked at.
    """
    if mask is None:
        return None
    if not torch.compiler.is_compiling() and mask.shape != shape[:2]:
        raise ModelError(
            f"A mask must have one entry for each place of these sequences, {tuple(shape[:2])}, and this one has the "
            f"shape {tuple(mask.shape)}."
        )
    if mask.dtype == torch.bool:
        return mask
    if torch.compiler.is_exporting():
        raise ModelError("In a graph that is exported a mask must be boolean, as no value is known: give mask.bool().")
    if not mask.is_meta and not bool(((mask == 0) | (mask == 1)).all()):
        raise ModelError(
            "A mask must say of each place whether it is real, by True and False or by 1 and 0, and this one, "
            f"{str(mask.dtype).removeprefix('torch.')}, has other values: of a bias (0 and −∞) give mask == 0."
        )
    return mask.bool()


def after_padding(mask: Tensor) -> Tensor:
    """Which rows of a mask (N, T) have a real place after one that is not, (N,)."""
    return (mask[:, 1:] & ~mask[:, :-1]).any(1)


def real_first(mask: Tensor) -> bool:
    """Whether all padding of a mask (N, T) stands after what is real. In a graph that is compiled nobody can know, and
    it is not said to be so; on the meta device it is."""
    if mask.is_meta or torch.compiler.is_compiling():
        return mask.is_meta
    return not bool(after_padding(mask).any())


def places_among_real(mask: Tensor) -> Tensor:
    """How many real places stand before each, (N, T) int64, of a mask (N, T): the position that a token has in its text
    wherever padding stands. Of padding it means nothing, and is a position that there is."""
    return (mask.cumsum(1) - 1).clamp(min=0)


def causal_mask(queries: int, keys: int, device: torch.device | str = "cpu") -> Tensor:
    """True where a key does not stand after the query, (T, S): row t looks at key s ≤ t, rows being queries.

    With more keys than queries the queries are the last: those before them were read already.
    """
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def combined(*masks: Tensor | None) -> Tensor | None:
    """One mask of several: a query may look where each of them lets it, and biases add up. None hides nothing; the
    result is None where all are, boolean where all are, and a bias otherwise. Shapes broadcast to (N, heads, T, S).
    Raises ModelError for a mask of whole numbers."""
    may: Tensor | None = None
    bias: Tensor | None = None
    for mask in masks:
        if mask is None:
            continue
        if mask.dtype == torch.bool:
            may = mask if may is None else may & mask
        elif not mask.is_floating_point():
            raise ModelError(f"A mask of attention is boolean or a bias in floating point, not {mask.dtype}.")
        else:
            bias = mask if bias is None else bias + mask
    if bias is None or may is None:
        return may if bias is None else bias
    return bias.masked_fill(~may, -math.inf)


def visible(mask: Tensor | None, causal: bool, length: int, device: torch.device | str | None = None) -> Tensor | None:
    """The one mask of self-attention among `length` tokens, (N or 1, 1, 1 or T, T), of `mask` (N, T), True where a
    token is real, and of whether a token may look at those after it; None where every token sees all. It is on the
    mask's device, or on `device` where there is none."""
    keys = None if mask is None else mask[:, None, None, :]  # (N, 1, 1, T)
    if not causal:
        return keys
    where = device or ("cpu" if mask is None else mask.device)
    return combined(keys, causal_mask(length, length, where)[None, None])


def masked_softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Softmax over the keys that a query may look at, (…, T, S): each row sums to 1, or is 0 where there is no such
    key. What is hidden has no weight, and no gradient passes it."""
    if mask is None:
        return torch.softmax(scores, dim=-1)
    if mask.dtype == torch.bool:
        hidden = ~mask
    else:
        hidden, scores = mask == -math.inf, scores + mask
    # A row of nothing but −∞ is 0/0: filled before and after, it has neither weights nor gradients.
    return torch.softmax(scores.masked_fill(hidden, -math.inf), dim=-1).masked_fill(hidden, 0)
