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
        mask: Padding mask, shape (N, T). None: nothing is padding.
        shape: Shape of the sequences, (N, T, …).

    Returns:
        The boolean mask, shape (N, T), True where a position is real; None without a mask.

    Raises:
        InputShapeError: If the mask has another shape, or values other than 0 and 1, such as an additive bias; in an
            exported graph also if it is not boolean.

    Example:
        >>> tokens = torch.tensor([[5, 7, 9], [4, 0, 0]])  # 0 is padding
        >>> normalize_padding_mask(torch.tensor([[1, 1, 1], [1, 0, 0]]), tokens.shape)
        tensor([[ True,  True,  True],
                [ True, False, False]])
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
        mask: Boolean padding mask, shape (N, T).

    Returns:
        True for such rows, shape (N,).
    """
    return (mask[:, 1:] & ~mask[:, :-1]).any(1)


def is_right_padded(mask: Tensor) -> bool:
    """Return whether all padding is on the right.

    In a compiled graph the values of the mask are unknown, and the result is False. On the meta device it is True.

    Args:
        mask: Boolean padding mask, shape (N, T).

    Returns:
        True if no row has a real position after a padded one.

    Example:
        >>> is_right_padded(torch.tensor([[True, True, False]])), is_right_padded(torch.tensor([[False, True, True]]))
        (True, False)
    """
    if mask.is_meta or torch.compiler.is_compiling():
        return mask.is_meta
    return not bool(rows_not_right_padded(mask).any())


def position_ids(mask: Tensor) -> Tensor:
    """Return the position of each token in its sequence, wherever the padding is.

    It is the number of real positions before the token. The values at padding are valid positions without a meaning.

    Args:
        mask: Boolean padding mask, shape (N, T).

    Returns:
        Positions, shape (N, T), int64.

    Example:
        >>> position_ids(torch.tensor([[True, True, True], [False, True, True]]))  # padding on the left
        tensor([[0, 1, 2],
                [0, 0, 1]])
    """
    return (mask.cumsum(1) - 1).clamp(min=0)


def last_token(z: Tensor, mask: Tensor | None) -> Tensor:
    """Return the last real token of each sequence.

    Args:
        z: Features of the tokens, shape (N, T, dim).
        mask: Boolean padding mask, shape (N, T), with padding on any side. None: all tokens are real.

    Returns:
        Features, shape (N, dim): those of the first token where none is real.

    Example:
        >>> z = torch.tensor([[[1.0], [2.0], [3.0]], [[4.0], [5.0], [6.0]]])
        >>> last_token(z, torch.tensor([[True, True, True], [True, True, False]]))
        tensor([[3.],
                [5.]])
    """
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

    Example:
        >>> causal_mask(3, 3)
        tensor([[ True, False, False],
                [ True,  True, False],
                [ True,  True,  True]])
        >>> causal_mask(1, 3)  # the next token, after two that are cached
        tensor([[True, True, True]])
    """
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def merge_masks(*masks: Tensor | None) -> Tensor | None:
    """Merge several masks into one: a query may attend where all masks allow it, and biases add up.

    Args:
        masks: Boolean or additive masks that broadcast to (N, heads, T, S). None hides nothing.

    Returns:
        None if all masks are None, a boolean mask if all are boolean, else a bias.

    Raises:
        InputShapeError: If a mask has an integer type.

    Example:
        >>> padding = torch.tensor([[True, True, False]])  # the last key is padding
        >>> merge_masks(padding, causal_mask(3, 3), None)
        tensor([[ True, False, False],
                [ True,  True, False],
                [ True,  True, False]])
        >>> merge_masks(padding, torch.tensor([[0.5, 0.0, 0.5]]))
        tensor([[0.5000, 0.0000,   -inf]])
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
        mask: Boolean padding mask, shape (N, T), True for real tokens. None: all tokens are real.
        causal: Whether a token may not attend to those after it.
        length: Number of tokens T.
        device: Device of the causal mask. None: that of `mask`, or the CPU without one.

    Returns:
        The boolean mask, shape (N or 1, 1, 1 or T, T); None where every token may attend to all.

    Example:
        >>> attention_mask(torch.tensor([[True, True, False]]), causal=False, length=3)
        tensor([[[[ True,  True, False]]]])
        >>> attention_mask(torch.tensor([[False, True, True]]), causal=True, length=3)[0, 0]
        tensor([[False, False, False],
                [False,  True, False],
                [False,  True,  True]])
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
        mask: Boolean or additive mask that broadcasts to the scores. None: all keys are visible.

    Returns:
        Weights, shape (…, T, S). Each row sums to 1, or is 0 where no key is visible.

    Example:
        >>> masked_softmax(torch.zeros(2, 3), torch.tensor([[True, True, False], [False, False, False]]))
        tensor([[0.5000, 0.5000, 0.0000],
                [0.0000, 0.0000, 0.0000]])
    """
    if mask is None:
        return torch.softmax(scores, dim=-1)
    if mask.dtype == torch.bool:
        hidden = ~mask
    else:
        hidden, scores = mask == -math.inf, scores + mask
    # A row of −∞ only is 0/0. Filling before and after the softmax gives it neither weights nor gradients.
    return torch.softmax(scores.masked_fill(hidden, -math.inf), dim=-1).masked_fill(hidden, 0)
