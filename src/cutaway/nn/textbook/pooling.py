"""Pooling: one value for each window of a feature map, or the k largest values of a sequence.

Max and average pooling are written explicitly, window by window. The models use PyTorch's fused functions, such as
`F.max_pool2d`, and the tests verify that both agree, including gradients.

Shapes: maps (N, C, *pixels) with one to three spatial axes; a size is a number for each axis, or one for all. Output
sizes are rounded down, as in PyTorch, or up, as in Caffe (`pooled_size`).

k-max pooling and dynamic k-max pooling are from N. Kalchbrenner, E. Grefenstette, P. Blunsom, A convolutional neural
network for modelling sentences, 2014, sections 3.2 and 3.3. <https://arxiv.org/abs/1404.2188>
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ...core.errors import InputShapeError, check_value

Sizes = int | Sequence[int]  # one number for each axis, or one for all


def pooled_size(n: int, kernel: int, stride: int | None = None, padding: int = 0, *, ceil: bool = False) -> int:
    """Return the number of windows: ⌊(n + 2p − k)/s⌋ + 1, or with `ceil` ⌈(n + 2p − k)/s⌉ + 1; 0 if no window fits.

    With `ceil` the last window may extend beyond the end; it is dropped if it would start in the padding after x. Caffe
    rounds up in pooling only; PyTorch does with `ceil_mode=True`.

    Args:
        n: Number of entries along the axis.
        kernel: Window size k.
        stride: Stride s; the window size if None.
        padding: Padding p before and after the entries, at most half of k.
        ceil: Round up.

    Raises:
        ConfigError: If kernel or stride is below 1, or the padding is negative or more than half the kernel.

    Example:
        >>> pooled_size(7, kernel=2), pooled_size(7, kernel=2, ceil=True)
        (3, 4)
        >>> pooled_size(112, kernel=3, stride=2, padding=1)  # the pooling of ResNet
        56
    """
    stride = kernel if stride is None else stride
    check_value(kernel >= 1 and stride >= 1, "kernel, stride", (kernel, stride), "at least 1")
    check_value(0 <= padding <= kernel // 2, "padding", padding, f"at most half of the kernel's {kernel}")
    over = n + 2 * padding - kernel
    count = (-(-over // stride) if ceil else over // stride) + 1
    if ceil and (count - 1) * stride >= n + padding:
        count -= 1  # it would begin after x
    return max(0, count)


def max_pool(
    x: Tensor, kernel: Sizes, stride: Sizes | None = None, padding: Sizes = 0, *, ceil: bool = False
) -> Tensor:
    """Return the maximum of each window, as `F.max_pool1d`, `2d` and `3d`.

    Padding is −∞, which is never the maximum. The gradient goes to the first of equal maxima.

    Args:
        x: Maps, shape (N, C, *pixels), with one to three axes of pixels.
        kernel: Window size, one number or one for each axis.
        stride: Stride, one number or one for each axis; the window size if None.
        padding: Padding before and after each axis, at most half of the window size.
        ceil: Round the number of windows up (`pooled_size`).

    Returns:
        The maxima, shape (N, C, *counts).

    Raises:
        InputShapeError: If x is smaller than a window.
        ConfigError: If x has no allowed shape, or a size, stride or padding is not allowed.

    Example:
        >>> x = torch.arange(16.0).reshape(1, 1, 4, 4)
        >>> max_pool(x, 2)
        tensor([[[[ 5.,  7.],
                  [13., 15.]]]])
    """
    return _windows(x, kernel, stride, padding, ceil, around=-math.inf, beyond=-math.inf).max(-1).values


def average_pool(
    x: Tensor,
    kernel: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    *,
    ceil: bool = False,
    count_padding: bool = True,
) -> Tensor:
    """Return the mean of each window, as `F.avg_pool1d`, `2d` and `3d`.

    Args:
        x: Maps, shape (N, C, *pixels), with one to three axes of pixels.
        kernel: Window size, one number or one for each axis.
        stride: Stride, one number or one for each axis; the window size if None.
        padding: Padding with zeros before and after each axis, at most half of the window size.
        ceil: Round the number of windows up (`pooled_size`). Entries beyond the padding never count.
        count_padding: Count the padding as entries of the mean, as PyTorch's `count_include_pad`.

    Returns:
        The means, shape (N, C, *counts).

    Raises:
        InputShapeError: If x is smaller than a window.
        ConfigError: If x has no allowed shape, or a size, stride or padding is not allowed.

    Example:
        >>> x = torch.ones(1, 1, 4)
        >>> average_pool(x, 2, padding=1)  # a half of the outer windows is padding
        tensor([[[0.5000, 1.0000, 0.5000]]])
        >>> average_pool(x, 2, padding=1, count_padding=False)
        tensor([[[1., 1., 1.]]])
    """
    total = _windows(x, kernel, stride, padding, ceil, around=0.0, beyond=0.0).sum(-1)
    ones = torch.ones_like(x[:1, :1])
    counted = _windows(ones, kernel, stride, padding, ceil, around=float(count_padding), beyond=0.0).sum(-1)
    return total / counted  # (N, C, ...) by (1, 1, ...)


def adaptive_max_pool(x: Tensor, size: Sizes) -> Tensor:
    """Return the maximum of each of `size` cells (`adaptive_cells`), as `F.adaptive_max_pool1d`, `2d` and `3d`.

    Args:
        x: Maps, shape (N, C, *pixels), with one to three axes of pixels.
        size: Number of cells, one number for all axes or one for each.

    Returns:
        The maxima, shape (N, C, *size).

    Raises:
        ConfigError: If x has no allowed shape, or `size` is below 1.

    Example:
        >>> adaptive_max_pool(torch.tensor([[[1.0, 2.0, 9.0, 3.0, 4.0]]]), 2)  # the cells share the third entry
        tensor([[[9., 9.]]])
    """
    return _pool_cells(x, size, lambda cell: cell.max(-1).values)


def adaptive_average_pool(x: Tensor, size: Sizes) -> Tensor:
    """Return the mean of each of `size` cells (`adaptive_cells`), as `F.adaptive_avg_pool1d`, `2d` and `3d`.

    Size 1 is the global mean.

    Args:
        x: Maps, shape (N, C, *pixels), with one to three axes of pixels.
        size: Number of cells, one number for all axes or one for each.

    Returns:
        The means, shape (N, C, *size).

    Raises:
        ConfigError: If x has no allowed shape, or `size` is below 1.

    Example:
        >>> x = torch.arange(16.0).reshape(1, 1, 4, 4)
        >>> adaptive_average_pool(x, 1)
        tensor([[[[7.5000]]]])
        >>> adaptive_average_pool(x, (1, 2))
        tensor([[[[6.5000, 8.5000]]]])
    """
    return _pool_cells(x, size, lambda cell: cell.mean(-1))


def adaptive_cells(n: int, count: int) -> list[slice]:
    """Return `count` cells that cover n entries: cell i is ⌊i n/count⌋ to ⌈(i + 1) n/count⌉, end excluded.

    If n is not divisible by `count`, neighboring cells may share an entry, and their sizes differ by at most one. With
    fewer entries than cells, cells repeat entries.

    Args:
        n: Number of entries along the axis.
        count: Number of cells.

    Raises:
        ConfigError: If n or `count` is below 1.

    Example:
        >>> [(cell.start, cell.stop) for cell in adaptive_cells(5, 3)]
        [(0, 2), (1, 4), (3, 5)]
    """
    check_value(n >= 1 and count >= 1, "count", count, f"at least 1, for at least one entry (there are {n})")
    return [slice(i * n // count, -(-(i + 1) * n // count)) for i in range(count)]


def k_max(x: Tensor, k: int, dim: int = -1) -> Tensor:
    """Return the k largest entries along `dim`, in their original order. Of equal entries the first ones are taken.

    Args:
        x: Sequences, shape (..., n, ...).
        k: Number of entries to keep.
        dim: Axis of the n entries.

    Returns:
        The entries, shape (..., k, ...).

    Raises:
        ConfigError: If k is below 1 or above n.

    Example:
        >>> k_max(torch.tensor([3.0, 1.0, 5.0, 2.0]), 2)
        tensor([3., 5.])
    """
    n = x.shape[dim]
    check_value(1 <= k <= n, "k", k, f"at least 1 and at most the {n} entries that there are")
    # A stable sort, not topk: the choice among equal entries decides the order of the result.
    first = x.sort(dim=dim, descending=True, stable=True).indices.narrow(dim, 0, k)
    return x.gather(dim, first.sort(dim=dim).values)


def dynamic_k(layer: int, layers: int, length: int, k_top: int) -> int:
    """Return k_l = max(k_top, ⌈(L − l)/L · s⌉): the number of entries that layer l of L keeps of s words.

    The last layer keeps k_top for every sentence.

    Args:
        layer: Number l of the layer, from 1.
        layers: Number L of layers.
        length: Number s of words of the sentence.
        k_top: Number of entries that the last layer keeps.

    Raises:
        ConfigError: If the layer is not from 1 to L, or a number is below 1.

    Example:
        >>> [dynamic_k(layer, layers=3, length=18, k_top=3) for layer in (1, 2, 3)]
        [12, 6, 3]
    """
    check_value(1 <= layer <= layers, "layer", layer, f"from 1 to the number of layers, {layers}")
    check_value(length >= 1, "length", length, "at least 1")
    check_value(k_top >= 1, "k_top", k_top, "at least 1")
    return max(k_top, -(-(layers - layer) * length // layers))


def dynamic_k_max(x: Tensor, layer: int, layers: int, length: int, k_top: int) -> Tensor:
    """Return `k_max` over the last axis with k of `dynamic_k`.

    Args:
        x: Sequences, shape (..., n).
        layer: Number l of the layer, from 1.
        layers: Number L of layers.
        length: Number of words of the sentence. It can differ from n, which a convolution changes.
        k_top: Number of entries that the last layer keeps.

    Returns:
        The entries in their original order, shape (..., k_l).

    Raises:
        ConfigError: If the layer is not from 1 to L, a number is below 1, or k_l is above n.

    Example:
        >>> x = torch.tensor([[1.0, 4.0, 2.0, 3.0]])
        >>> dynamic_k_max(x, layer=1, layers=2, length=4, k_top=1)
        tensor([[4., 3.]])
    """
    return k_max(x, dynamic_k(layer, layers, length, k_top))


def _sizes(given: Sizes, axes: int, name: str) -> tuple[int, ...]:
    sizes = (given,) * axes if isinstance(given, int) else tuple(given)
    check_value(len(sizes) == axes, name, given, f"one number or {axes}")
    return sizes


def _windows(
    x: Tensor, kernel: Sizes, stride: Sizes | None, padding: Sizes, ceil: bool, around: float, beyond: float
) -> Tensor:
    """Return every window of (N, C, *pixels), flattened: (N, C, *counts, entries).

    `around` is the value of the padding, `beyond` the value after it for a last window that extends beyond the end.
    """
    axes = x.ndim - 2
    check_value(axes in (1, 2, 3), "x", tuple(x.shape), "maps (N, C, n), (N, C, n₁, n₂) or (N, C, n₁, n₂, n₃)")
    kernels, paddings = _sizes(kernel, axes, "kernel"), _sizes(padding, axes, "padding")
    strides = kernels if stride is None else _sizes(stride, axes, "stride")
    over = []
    for n, k, s, p in zip(x.shape[2:], kernels, strides, paddings):
        count = pooled_size(n, k, s, p, ceil=ceil)
        if count == 0:
            raise InputShapeError(
                f"{n} entries with padding {p} are too few for windows of {k}: take a smaller kernel."
            )
        over.append(max(0, (count - 1) * s + k - (n + 2 * p)))
    x = F.pad(x, [p for p in reversed(paddings) for _ in range(2)], value=around)
    x = F.pad(x, [p for o in reversed(over) for p in (0, o)], value=beyond)
    for axis, (k, s) in enumerate(zip(kernels, strides), start=2):
        x = x.unfold(axis, k, s)  # the window's entries become the last axis
    return x.flatten(-axes)


def _pool_cells(x: Tensor, size: Sizes, pool: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply `pool` to every cell of (N, C, *pixels), flattened to (N, C, entries)."""
    axes = x.ndim - 2
    check_value(axes in (1, 2, 3), "x", tuple(x.shape), "maps (N, C, n), (N, C, n₁, n₂) or (N, C, n₁, n₂, n₃)")
    sizes = _sizes(size, axes, "size")
    cells = itertools.product(*(adaptive_cells(n, m) for n, m in zip(x.shape[2:], sizes)))
    pooled = [pool(x[(slice(None), slice(None), *cell)].flatten(2)) for cell in cells]
    return torch.stack(pooled, -1).reshape(*x.shape[:2], *sizes)
