"""Attention masks: which query may attend to which key.

A mask is boolean, True where a query may attend, or a bias that is added to the scores, −∞ where it may not
(A. Vaswani et al., Attention is all you need, 2017, section 3.2.3). Of T queries and S keys its shape is
(N or 1, heads or 1, T or 1, S or 1), or broadcasts to that. Rows are queries.

Users pass a padding mask, (N, T), to a model: True for real tokens, steps or frames. `normalize_padding_mask` validates
it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core.errors import InputShapeError


def normalize_padding_mask(mask: Tensor | None, shape: torch.Size | tuple[int, ...]) -> Tensor | None:
    """Validate a padding mask and convert it to boolean.

    Integers and floats of 0 and 1 are accepted, as tokenizers return them. The values of a boolean mask are not read,
    so it costs nothing.

    Args:
        mask: Padding mask, shape (N, T), or None.
        shape: Shape of the sequences, (N, T, …).

    Returns:
        The boolean mask, shape (N, T), True where a position is real; None without a mask.

    Raises:
        ModelError: If the mask has another shape, or values other than 0 and 1, such as an additive bias.
    """
    if mask is None:
        return None
    if not torch.compiler.is_compiling() and mask.shape != shape[:2]:
        raise InputShapeError(
            f"A mask must have one entry for each place of these sequences, {tuple(shape[:2])}, and this one has the "
            f"shape {tuple(mask.shape)}."
        )
    if mask.dtype == torch.bool:
        return mask
    if torch.compiler.is_exporting():
        raise InputShapeError(
            "In a graph that is exported a mask must be boolean, as no value is known: give mask.bool()."
        )
    if not mask.is_meta and not bool(((mask == 0) | (mask == 1)).all()):
        raise InputShapeError(
            "A mask must say of each place whether it is real, by True and False or by 1 and 0, and this one, "
            f"{str(mask.dtype).removeprefix('torch.')}, has other values: of a bias (0 and −∞) give mask == 0."
        )
    return mask.bool()


def rows_not_right_padded(mask: Tensor) -> Tensor:
    """Return which rows of a mask have a real position after a padded one.

    Args:
        mask: Padding mask, shape (N, T).

    Returns:
        True for such rows, shape (N,).
    """
    return (mask[:, 1:] & ~mask[:, :-1]).any(1)


def is_right_padded(mask: Tensor) -> bool:
    """Return whether all padding is on the right.

    In a compiled graph the answer is unknown, and the result is False. On the meta device the result is True.

    Args:
        mask: Padding mask, shape (N, T).

    Returns:
        Whether the mask is right-padded.
    """
    if mask.is_meta or torch.compiler.is_compiling():
        return mask.is_meta
    return not bool(rows_not_right_padded(mask).any())


def position_ids(mask: Tensor) -> Tensor:
    """Return the position of each token in its sequence, wherever the padding is.

    It is the number of real positions before the token. The values at padding are valid positions without a meaning.

    Args:
        mask: Padding mask, shape (N, T).

    Returns:
        Positions, shape (N, T), int64.
    """
    return (mask.cumsum(1) - 1).clamp(min=0)


def last_token(z: Tensor, mask: Tensor | None) -> Tensor:
    """Return the last real token of each row, (N, dim), of z (N, T, dim); the first token if none is real."""
    if mask is None:
        return z[:, -1]
    places = torch.arange(mask.shape[1], device=mask.device)
    return z[torch.arange(len(z), device=z.device), (mask * places).amax(1)]


def causal_mask(queries: int, keys: int, device: torch.device | str = "cpu") -> Tensor:
    """Return the causal mask: True where a key is not after the query.

    Row t is query t and may attend to keys s ≤ t. With more keys than queries, the queries are the last tokens, because
    the earlier tokens are already processed.

    Args:
        queries: Number of queries T.
        keys: Number of keys S.
        device: Device of the mask.

    Returns:
        The boolean mask, shape (T, S).
    """
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def merge_masks(*masks: Tensor | None) -> Tensor | None:
    """Merge several masks into one: a query may attend where all masks allow it, and biases add up.

    Args:
        masks: Boolean or additive masks that broadcast to (N, heads, T, S). None hides nothing.

    Returns:
        None if all masks are None, a boolean mask if all are boolean, else a bias.

    Raises:
        ModelError: If a mask has an integer type.
    """
    may: Tensor | None = None
    bias: Tensor | None = None
    for mask in masks:
        if mask is None:
            continue
        if mask.dtype == torch.bool:
            may = mask if may is None else may & mask
        elif not mask.is_floating_point():
            raise InputShapeError(f"A mask of attention is boolean or a bias in floating point, not {mask.dtype}.")
        else:
            bias = mask if bias is None else bias + mask
    if bias is None or may is None:
        return may if bias is None else bias
    return bias.masked_fill(~may, -math.inf)


def attention_mask(
    mask: Tensor | None, causal: bool, length: int, device: torch.device | str | None = None
) -> Tensor | None:
    """Return the mask of self-attention for a padding mask and an optional causal mask.

    Args:
        mask: Padding mask, shape (N, T), True for real tokens, or None.
        causal: Whether a token may not attend to those after it.
        length: Number of tokens T.
        device: Device of the result without a padding mask.

    Returns:
        The mask, shape (N or 1, 1, 1 or T, T); None where every token may attend to all.
    """
    keys = None if mask is None else mask[:, None, None, :]  # (N, 1, 1, T)
    if not causal:
        return keys
    where = device or ("cpu" if mask is None else mask.device)
    return merge_masks(keys, causal_mask(length, length, where)[None, None])


def masked_softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Compute the softmax over the visible keys. Hidden keys get no weight and no gradient.

    Args:
        scores: Scores, shape (…, T, S).
        mask: Boolean or additive mask that broadcasts to the scores.

    Returns:
        Weights, shape (…, T, S). Each row sums to 1, or is 0 where no key is visible.
    """
    if mask is None:
        return torch.softmax(scores, dim=-1)
    if mask.dtype == torch.bool:
        hidden = ~mask
    else:
        hidden, scores = mask == -math.inf, scores + mask
    # A row of −∞ only is 0/0. Filling before and after the softmax gives it neither weights nor gradients.
    return torch.softmax(scores.masked_fill(hidden, -math.inf), dim=-1).masked_fill(hidden, 0)
