"""Convolution and cross-correlation in one, two and three dimensions, by several equivalent methods.

Along one axis, with a kernel w of k entries, stride s, dilation d, and p zeros before and after x:

    cross-correlation   y_i = Σ_a w_a x_{s·i + d·a − p}              a = 0 … k − 1
    convolution         the same with the kernel flipped: w_{k − 1 − a} for w_a
    size                ⌊(n + 2p − d(k − 1) − 1) / s⌋ + 1

With several axes the sum runs over all of them, and in a layer also over the input channels. What deep learning calls
convolution is cross-correlation: `torch.nn.functional.conv2d` correlates. Flipping the kernel has algebraic advantages:
the order of kernels does not matter, and an impulse returns the kernel unchanged.

`method` selects the algorithm; all give the same result (`METHODS`):
    direct      the sum, entry of the kernel by entry
    toeplitz    a product with the matrix that `correlation_matrix` and `convolution_matrix` return
    fft         a product of spectra, by the convolution theorem (J. Cooley, J. Tukey, An algorithm for the machine
                calculation of complex Fourier series, 1965, <https://doi.org/10.1090/S0025-5718-1965-0178586-1>)
    fused       PyTorch's own convolution, which the models use

Shapes. The kernel determines them:
    (k,) or (k₁, k₂)                                one kernel; x is (..., n) or (..., n₁, n₂), signals independent
    (O, C/groups, k), (O, C/groups, k₁, k₂) or      a layer; x is (N, C, n), (N, C, n₁, n₂) or (N, C, n₁, n₂, n₃),
      (O, C/groups, k₁, k₂, k₃)                     and y (N, O, ...)

A single three-dimensional kernel would be read as a one-dimensional layer. Write it as a layer, `kernel[None, None]`,
with x (N, 1, ...).

Padding is a number p for each axis or for all, or a string:
    valid       none: windows that lie inside x;                                          n − k + 1 outputs
    same        the kernel's middle, its entry ⌊(k − 1)/2⌋, on every entry of x;          n
    full        windows that touch x at all;                                              n + k − 1
    circular    as same, with x repeated periodically in place of zeros;                  n

The sizes are those for stride 1; with stride s every s-th of these outputs is kept. The arithmetic follows V. Dumoulin,
F. Visin, A guide to convolution arithmetic for deep learning, 2016, <https://arxiv.org/abs/1603.07285>.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from types import EllipsisType
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ...core.errors import InputShapeError, UnknownName, check_value

Sizes = int | Sequence[int]  # one number for each axis, or one for all
WORDS = ("valid", "same", "full", "circular")


def output_size(n: int, kernel: int, stride: int = 1, padding: int = 0, dilation: int = 1) -> int:
    """Return the number of outputs, ⌊(n + 2p − d(k − 1) − 1)/s⌋ + 1; 0 if no window fits.

    Args:
        n: Number of entries along the axis.
        kernel: Kernel size k.
        stride: Stride s, at least 1.
        padding: Number p of zeros at either end.
        dilation: Dilation d; 1 for a kernel without gaps.

    Example:
        >>> output_size(224, kernel=7, stride=2, padding=3)  # the first convolution of ResNet
        112
        >>> output_size(3, kernel=5)
        0
    """
    return max(0, (n + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1)


class Windows(NamedTuple):
    """The windows of a kernel along one axis."""

    kernel: int
    stride: int
    dilation: int
    before: int  # entries added before the first of x
    after: int
    circular: bool  # pad with x repeated, not with zeros

    @property
    def span(self) -> int:
        """Number of entries from a window's first to its last."""
        return self.dilation * (self.kernel - 1) + 1

    def count(self, n: int) -> int:
        """Return the number of windows on n entries."""
        return output_size(n + self.before + self.after, self.kernel, self.stride, dilation=self.dilation)

    def steps(self, count: int, first: int = 0) -> slice:
        """Return the slice of `count` entries from `first` on, in steps of the stride."""
        return slice(first, first + (count - 1) * self.stride + 1, self.stride)

    def reads(self, n: int) -> Tensor:
        """Return whether output i reads entry j of n through kernel entry a, as booleans (m, k, n)."""
        i, a = torch.arange(self.count(n)), torch.arange(self.kernel)
        j = self.stride * i[:, None] + self.dilation * a - self.before  # (m, k)
        if self.circular:
            j = j % n
        return j[:, :, None] == torch.arange(n)


# --- public functions ---------------------------------------------------------------------------------------------


def correlate(
    x: Tensor,
    kernel: Tensor,
    *,
    padding: Sizes | str = "valid",
    stride: Sizes = 1,
    dilation: Sizes = 1,
    groups: int = 1,
    method: str = "direct",
) -> Tensor:
    """Compute the cross-correlation y_i = Σ_a w_a x_{s·i + d·a − p}, as `torch.nn.functional.conv1d`, `conv2d` and
    `conv3d`.

    For an even kernel, "same" pads as PyTorch does.

    Args:
        x: Inputs, shape (..., n) or (..., n₁, n₂) for one kernel, (N, C, n), (N, C, n₁, n₂) or (N, C, n₁, n₂, n₃) for a
            layer.
        kernel: One kernel, shape (k,) or (k₁, k₂), or the weights of a layer, shape (O, C/groups, k), with one to three
            spatial axes.
        padding: Number of zeros at either end, one number or one for each axis, or "valid" (none), "same", "full" or
            "circular".
        stride: Stride, one number or one for each axis.
        dilation: Dilation, one number or one for each axis; 1 for a kernel without gaps.
        groups: Number of channel groups of a layer; 1 for one kernel.
        method: "direct", "toeplitz", "fft" or "fused". All give the same result up to rounding.

    Returns:
        The outputs: x with its last axes filtered for one kernel, (N, O, ...) for a layer.

    Raises:
        InputShapeError: If x and kernel do not fit, or x is shorter than the kernel.
        ConfigError: If a padding, stride, dilation or number of groups is not allowed, or x has fewer axes than the
            kernel.
        UnknownName: If there is no such method.

    Example:
        >>> x, w = torch.tensor([0.0, 0.0, 1.0, 0.0, 0.0]), torch.tensor([1.0, 2.0, 3.0])
        >>> correlate(x, w)  # an impulse returns the flipped kernel
        tensor([3., 2., 1.])
        >>> correlate(x, w, padding="same")
        tensor([0., 3., 2., 1., 0.])
        >>> correlate(torch.ones(8, 3, 32, 32), torch.ones(16, 3, 5, 5), stride=2, method="fft").shape  # a layer
        torch.Size([8, 16, 14, 14])
    """
    windows = _windows(kernel, padding, stride, dilation, turned=False)
    return _apply(x, kernel, windows, groups, method)


def convolve(
    x: Tensor,
    kernel: Tensor,
    *,
    padding: Sizes | str = "valid",
    stride: Sizes = 1,
    dilation: Sizes = 1,
    groups: int = 1,
    method: str = "direct",
) -> Tensor:
    """Compute the convolution y_i = Σ_a w_{k−1−a} x_{s·i + d·a − p}, as `scipy.signal.convolve` with mode="valid".

    It is `correlate` with the kernel flipped along its spatial axes. For an even kernel, the padding of "same" is
    flipped too.

    Args:
        x: As in `correlate`.
        kernel: As in `correlate`.
        padding: As in `correlate`.
        stride: As in `correlate`.
        dilation: As in `correlate`.
        groups: As in `correlate`.
        method: As in `correlate`.

    Returns:
        The outputs, in the shape that `correlate` returns.

    Raises:
        InputShapeError: As in `correlate`.
        ConfigError: As in `correlate`.
        UnknownName: If there is no such method.

    Example:
        >>> x, w = torch.tensor([0.0, 0.0, 1.0, 0.0, 0.0]), torch.tensor([1.0, 2.0, 3.0])
        >>> convolve(x, w)  # an impulse returns the kernel
        tensor([1., 2., 3.])
        >>> convolve(w, torch.tensor([1.0, 1.0]), padding="full")  # (1 + 2t + 3t²)(1 + t)
        tensor([1., 3., 5., 3.])
    """
    windows = _windows(kernel, padding, stride, dilation, turned=True)
    return _apply(x, _flip(kernel), windows, groups, method)


def correlation_matrix(
    kernel: Tensor,
    size: Sizes,
    *,
    padding: Sizes | str = "valid",
    stride: Sizes = 1,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """Return the matrix T with `correlate(x, w)` = T x, for x of `size` pixels.

    For one kernel along one axis with stride 1 it is a Toeplitz matrix, constant along every diagonal: T_ij = w_{j − i
    + p}. For two axes it consists of such blocks. For a layer there is such a matrix for each pair of output and input
    channel, zero between groups. Circular padding makes it circulant. Its transpose propagates gradients back and is a
    convolution: for "valid" the one with "full".

    Args:
        kernel: One kernel, or the weights of a layer, as in `correlate`.
        size: Number of pixels of x, one number for all axes or one for each.
        padding: As in `correlate`.
        stride: As in `correlate`.
        dilation: As in `correlate`.
        groups: As in `correlate`.

    Returns:
        T, shape (outputs, inputs), with all axes of outputs and inputs flattened, channels first.

    Raises:
        InputShapeError: If the kernel has no allowed shape, or is longer than `size`.
        ConfigError: If a size, padding, stride, dilation or number of groups is not allowed.

    Example:
        >>> w = torch.tensor([1.0, 2.0, 3.0])
        >>> correlation_matrix(w, 5)
        tensor([[1., 2., 3., 0., 0.],
                [0., 1., 2., 3., 0.],
                [0., 0., 1., 2., 3.]])
        >>> x = torch.randn(5)
        >>> bool(torch.allclose(correlation_matrix(w, 5) @ x, correlate(x, w), atol=1e-6))
        True
    """
    windows = _windows(kernel, padding, stride, dilation, turned=False)
    sizes = _sizes(size, len(windows), "size")
    _reject_misfits(sizes, kernel, windows, groups)
    return _matrix(_weight(kernel), windows, sizes, groups)


def convolution_matrix(
    kernel: Tensor,
    size: Sizes,
    *,
    padding: Sizes | str = "valid",
    stride: Sizes = 1,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """Return the matrix T with `convolve(x, w)` = T x: for one axis T_ij = w_{s·i − j + k − 1 − p}, with dilation 1.

    Args:
        kernel: One kernel, or the weights of a layer, as in `correlate`.
        size: Number of pixels of x, one number for all axes or one for each.
        padding: As in `correlate`.
        stride: As in `correlate`.
        dilation: As in `correlate`.
        groups: As in `correlate`.

    Returns:
        T, shape (outputs, inputs), with all axes of outputs and inputs flattened, channels first.

    Raises:
        InputShapeError: If the kernel has no allowed shape, or is longer than `size`.
        ConfigError: If a size, padding, stride, dilation or number of groups is not allowed.

    Example:
        >>> w = torch.tensor([1.0, 2.0, 3.0])
        >>> convolution_matrix(w, 5)
        tensor([[3., 2., 1., 0., 0.],
                [0., 3., 2., 1., 0.],
                [0., 0., 3., 2., 1.]])
        >>> back = correlation_matrix(w, 5).T  # the gradient of correlation is a full convolution
        >>> bool((back == convolution_matrix(w, 3, padding="full")).all())
        True
    """
    windows = _windows(kernel, padding, stride, dilation, turned=True)
    sizes = _sizes(size, len(windows), "size")
    _reject_misfits(sizes, kernel, windows, groups)
    return _matrix(_weight(_flip(kernel)), windows, sizes, groups)


# --- named kernels ------------------------------------------------------------------------------------------------


def binomial(size: int = 5) -> Tensor:
    """Return the binomial approximation of a Gaussian: a row of Pascal's triangle over its sum.

    Its variance is (size − 1)/4 pixels². In two dimensions: `torch.outer(binomial(), binomial())`.

    Args:
        size: Number of entries.

    Returns:
        The kernel, shape (size,), with sum 1.

    Raises:
        ConfigError: If `size` is below 1.

    Example:
        >>> binomial(5) * 16
        tensor([1., 4., 6., 4., 1.])
    """
    check_value(size >= 1, "size", size, "at least 1")
    row = torch.tensor([float(math.comb(size - 1, i)) for i in range(size)])
    return row / row.sum()


def sobel_x() -> Tensor:
    """Return the kernel (−1 0 1)(−2 0 2)(−1 0 1): the derivative along x, from column to column, for vertical edges.

    Correlated, it is positive where brightness grows to the right, 8 times the slope; convolved, it has the opposite
    sign. It is a difference along x, smoothed along y by 4 `binomial(3)`.

    Returns:
        The kernel, shape (3, 3).

    Example:
        >>> ramp = torch.arange(5.0).expand(3, 5)  # brightness grows by 1 from column to column
        >>> correlate(ramp, sobel_x())
        tensor([[8., 8., 8.]])
    """
    return torch.outer(torch.tensor([1.0, 2.0, 1.0]), torch.tensor([-1.0, 0.0, 1.0]))


def sobel_y() -> Tensor:
    """Return the kernel (−1 −2 −1)(0 0 0)(1 2 1): the derivative along y, downwards, for horizontal edges.

    It is the transpose of `sobel_x`.

    Returns:
        The kernel, shape (3, 3).

    Example:
        >>> ramp = torch.arange(3.0)[:, None].expand(3, 5)  # brightness grows by 1 from row to row
        >>> correlate(ramp, sobel_y())
        tensor([[8., 8., 8.]])
        >>> correlate(ramp, sobel_x())
        tensor([[0., 0., 0.]])
    """
    return sobel_x().T.contiguous()


# --- arguments to windows and layers ------------------------------------------------------------------------------


def _sizes(given: Sizes, axes: int, name: str, least: int = 1) -> tuple[int, ...]:
    sizes = (given,) * axes if isinstance(given, int) else tuple(given)
    check_value(len(sizes) == axes and min(sizes) >= least, name, given, f"at least {least}, one number or {axes}")
    return sizes


def _windows(kernel: Tensor, padding: Sizes | str, stride: Sizes, dilation: Sizes, turned: bool) -> tuple[Windows, ...]:
    """Return the windows along each axis. For a flipped kernel its middle is flipped too."""
    axes = _axes(kernel)
    if not 1 <= kernel.ndim <= 5 or kernel.numel() == 0:
        raise InputShapeError(
            f"Invalid kernel of shape {tuple(kernel.shape)}: must be (k,), (k₁, k₂), or a layer's "
            "(outputs, inputs/groups, k), with k₁, k₂ or k₁, k₂, k₃ for k, with at least one entry."
        )
    sizes = kernel.shape[-axes:]
    strides, dilations = _sizes(stride, axes, "stride"), _sizes(dilation, axes, "dilation")
    spare = [d * (k - 1) for k, d in zip(sizes, dilations)]
    if isinstance(padding, str):
        check_value(padding in WORDS, "padding", padding, f"a number or one of {', '.join(WORDS)}")
        if padding in ("same", "circular"):
            before = [n - n // 2 if turned else n // 2 for n in spare]
            around = [(b, n - b) for b, n in zip(before, spare)]
        else:
            around = [(n, n) if padding == "full" else (0, 0) for n in spare]
    else:
        around = [(p, p) for p in _sizes(padding, axes, "padding", least=0)]
    circular = padding == "circular"
    return tuple(Windows(k, s, d, *pad, circular) for k, s, d, pad in zip(sizes, strides, dilations, around))


def _axes(kernel: Tensor) -> int:
    """Return the number of spatial axes of a kernel: all axes of a single kernel, all but two of a layer's."""
    return kernel.ndim if kernel.ndim <= 2 else kernel.ndim - 2


def _flip(kernel: Tensor) -> Tensor:
    """Return the kernel flipped along its spatial axes, not its channels."""
    return kernel.flip(tuple(range(-_axes(kernel), 0)))


def _weight(kernel: Tensor) -> Tensor:
    """Return the kernel as the weights of a layer: (O, C/groups, ...)."""
    return kernel[None, None] if kernel.ndim <= 2 else kernel


def _as_layer(x: Tensor, kernel: Tensor, windows: tuple[Windows, ...], groups: int) -> tuple[Tensor, Tensor]:
    """Return x as (N, C, ...) and the kernel as (O, C/groups, ...). Raises ModelError if they do not fit."""
    axes, weight = len(windows), _weight(kernel)
    if kernel.ndim <= 2:
        check_value(x.ndim >= axes, "x", tuple(x.shape), f"a tensor of at least {axes} axes, as the kernel has")
        x = x.reshape(math.prod(x.shape[: x.ndim - axes]), 1, *x.shape[x.ndim - axes :])
    elif x.ndim != kernel.ndim or x.shape[1] != kernel.shape[1] * groups:
        raise InputShapeError(
            f"x of shape {tuple(x.shape)} does not fit a kernel of shape {tuple(kernel.shape)} with groups={groups}: "
            f"it must be (N, {kernel.shape[1] * groups}, {('n', 'n₁, n₂', 'n₁, n₂, n₃')[axes - 1]})."
        )
    _reject_misfits(x.shape[2:], kernel, windows, groups)
    return x, weight


def _apply(x: Tensor, kernel: Tensor, windows: tuple[Windows, ...], groups: int, method: str) -> Tensor:
    """Correlate by `method`, and return the result in the shape that belongs to x and the kernel."""
    if method not in METHODS:
        raise UnknownName("method", method, METHODS)
    y = METHODS[method](*_as_layer(x, kernel, windows, groups), windows, groups)  # (N, O, ...)
    return y.reshape(*x.shape[: x.ndim - len(windows)], *y.shape[2:]) if kernel.ndim <= 2 else y


def _reject_misfits(size: Sequence[int], kernel: Tensor, windows: tuple[Windows, ...], groups: int) -> None:
    """Raise ModelError if the outputs cannot be divided into the groups, or no window fits on `size` pixels."""
    outputs = len(_weight(kernel))
    check_value(groups >= 1 and outputs % groups == 0, "groups", groups, f"a divisor of the outputs, {outputs}")
    for n, window in zip(size, windows):
        if n == 0 or window.count(n) == 0:
            raise InputShapeError(
                f"{n} entries with {window.before} before and {window.after} after are too few for windows of "
                f'{window.span}: pad more, as padding="same", or take a smaller kernel or dilation.'
            )


# --- four methods, each from x (N, C, ...) and weight (O, C/groups, ...) to (N, O, ...) ------------------------------


def _pad(x: Tensor, windows: tuple[Windows, ...]) -> Tensor:
    """Return x with its padding: zeros, or x repeated."""
    for axis, window in enumerate(windows, start=2):
        n = x.shape[axis]
        if window.circular and window.span > 1:
            x = x.index_select(axis, torch.arange(-window.before, n + window.after, device=x.device) % n)
    if windows[0].circular:
        return x
    around = [p for window in reversed(windows) for p in (window.before, window.after)]
    return F.pad(x, around) if any(around) else x


def _index_last_axes(x: Tensor, index: Sequence[int | slice]) -> Tensor:
    """Return x[..., *index], with an index or a slice for each spatial axis."""
    entries: tuple[int | slice | EllipsisType, ...] = (..., *index)
    return x[entries]


def _direct(x: Tensor, weight: Tensor, windows: tuple[Windows, ...], groups: int) -> Tensor:
    """Compute the sum directly: for each entry of the kernel, its weight times the entries of x under it."""
    counts = [window.count(n) for n, window in zip(x.shape[2:], windows)]
    x = torch.unflatten(_pad(x, windows), 1, (groups, -1))  # (N, groups, C/groups, ...)
    weight = torch.unflatten(weight, 0, (groups, -1))  # (groups, O/groups, C/groups, ...)
    y = x.new_zeros(())
    for entry in itertools.product(*(range(window.kernel) for window in windows)):
        steps = [w.steps(m, first=a * w.dilation) for a, w, m in zip(entry, windows, counts)]
        y = y + torch.einsum("ngc...,goc->ngo...", _index_last_axes(x, steps), _index_last_axes(weight, entry))
    return y.flatten(1, 2)  # (N, O, ...)


def _toeplitz(x: Tensor, weight: Tensor, windows: tuple[Windows, ...], groups: int) -> Tensor:
    """Compute T x, with every example flattened to a vector."""
    matrix = _matrix(weight, windows, x.shape[2:], groups)
    counts = [window.count(n) for n, window in zip(x.shape[2:], windows)]
    return torch.unflatten(x.flatten(1) @ matrix.T, 1, (len(weight), *counts))  # (N, O, ...)


def _matrix(weight: Tensor, windows: tuple[Windows, ...], size: Sequence[int], groups: int) -> Tensor:
    """Return T_{(o, i), (c, j)} = Σ_a w_{o, c, a} [output i reads entry j through a], (O·m, C·n)."""
    outputs, inputs = weight.shape[:2]
    dense = weight.new_zeros(groups, outputs // groups, groups, inputs, *weight.shape[2:])
    for g, part in enumerate(torch.unflatten(weight, 0, (groups, -1))):  # no weights between groups
        dense[g, :, g] = part
    dense = dense.flatten(2, 3).flatten(0, 1)  # (O, C, ...)
    reads = [window.reads(n).to(weight) for n, window in zip(size, windows)]  # (m, k, n) for each axis
    letters = ("oca,iaj->oicj", "ocab,iaj,lbm->oilcjm", "ocabd,iaj,lbm,pdq->oilpcjmq")[len(windows) - 1]
    matrix = torch.einsum(letters, dense, *reads)
    return matrix.flatten(len(windows) + 1).flatten(0, len(windows))  # (O·m, C·n)


def _fft(x: Tensor, weight: Tensor, windows: tuple[Windows, ...], groups: int) -> Tensor:
    """Multiply the spectra: a shift in x rotates phases, and the kernel's conjugate rotates them back.

    The transform treats its signals as circular. Padded x is at least as long as a window, so only the last span − 1
    windows wrap around, and these are cut off.
    """
    counts = [window.count(n) for n, window in zip(x.shape[2:], windows)]
    x = _pad(x, windows)
    axes = tuple(range(-len(windows), 0))
    size = [_fast_length(n) for n in x.shape[2:]]
    x_hat = torch.fft.rfftn(x, size, axes).unflatten(1, (groups, -1))  # (N, groups, C/groups, ...)
    w_hat = torch.fft.rfftn(_spread(weight, windows), size, axes).conj().unflatten(0, (groups, -1))
    y_hat = torch.einsum("ngc...,goc...->ngo...", x_hat, w_hat).flatten(1, 2)  # (N, O, ...)
    y: Tensor = torch.fft.irfftn(y_hat, size, axes)
    return _index_last_axes(y, [window.steps(m) for window, m in zip(windows, counts)])


def _spread(weight: Tensor, windows: tuple[Windows, ...]) -> Tensor:
    """Return the kernel with d − 1 zeros between its entries."""
    if all(window.dilation == 1 for window in windows):
        return weight
    wide = weight.new_zeros(*weight.shape[:2], *(window.span for window in windows))
    _index_last_axes(wide, [slice(None, None, window.dilation) for window in windows]).copy_(weight)
    return wide


def _fast_length(n: int) -> int:
    """Return the smallest number from n on with no prime factor but 2, 3 and 5: transforms of such lengths are fast."""
    while True:
        rest = n
        for factor in (2, 3, 5):
            while rest % factor == 0:
                rest //= factor
        if rest == 1:
            return n
        n += 1


def _fused(x: Tensor, weight: Tensor, windows: tuple[Windows, ...], groups: int) -> Tensor:
    """Call PyTorch's own convolution."""
    conv: Callable[..., Tensor] = (F.conv1d, F.conv2d, F.conv3d)[len(windows) - 1]
    stride, dilation = [window.stride for window in windows], [window.dilation for window in windows]
    return conv(_pad(x, windows), weight, None, stride, 0, dilation, groups)


METHODS: dict[str, Callable[[Tensor, Tensor, tuple[Windows, ...], int], Tensor]] = {
    "direct": _direct,
    "toeplitz": _toeplitz,
    "fft": _fft,
    "fused": _fused,
}
