"""Normalization: (x − mean) / standard deviation. The kinds differ in the entries over which both are computed.

    y = γ (x − μ) / √(σ² + ε) + β,    μ, σ² over the set S

    kind              S for the entry x_{n,c,h,w} of maps (N, C, H, W)             γ, β for each
    batch             the same channel: all n, h, w                                 channel
    layer             the same example: all c, h, w (of a sequence: the same token, all its features)      entry of S
    group             the same example and group of channels: its c, all h, w       channel
    RMS               as layer; nothing is subtracted, σ² is the mean square        entry of S (no β)
    local response    the same pixel, size neighbouring channels; nothing is subtracted, and
                      y = x / (k + α · mean square)^b                               none

The functions implement the formulas literally. Models run PyTorch's fused functions of the same names, and the tests
compare the two, including gradients. For local response, models run the function here: PyTorch has no kernel for it
either, and its implementation by a three-dimensional mean cannot be traced to the pixels that it depends on. Variances
are biased means of squares, but the running variance is unbiased, as in PyTorch.

Batch: S. Ioffe, C. Szegedy, 2015, <https://arxiv.org/abs/1502.03167>. Layer: J. Ba, J. Kiros, G. Hinton, 2016,
<https://arxiv.org/abs/1607.06450>. Group: Y. Wu, K. He, 2018, <https://arxiv.org/abs/1803.08494>. RMS: B. Zhang, R.
Sennrich, 2019, <https://arxiv.org/abs/1910.07467>. Local response: A. Krizhevsky, I. Sutskever, G. Hinton, ImageNet
classification with deep convolutional neural networks, 2012.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ..core.errors import InputShapeError, check_value


def batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Apply batch normalization per channel, as `F.batch_norm`.

    S is all entries of the same channel: the batch and every pixel, N·H·W entries. In training, μ and σ² are computed
    over S, and the running statistics, if given, are updated in place with `momentum` m:

        running_mean ← (1 − m) running_mean + m μ        running_var ← (1 − m) running_var + m σ² |S|/(|S| − 1)

    Otherwise the running statistics replace μ and σ², and examples do not affect each other. Without running
    statistics, those of the batch are used in evaluation too.

    Args:
        x: Input, shape (N, C, ...).
        running_mean: Running mean, shape (C,). None: without running statistics.
        running_var: Running variance, shape (C,). None: without running statistics.
        weight: γ, shape (C,). None: 1.
        bias: β, shape (C,). None: 0.
        training: Whether to use batch statistics.
        momentum: m, the weight of the new statistics.
        eps: ε, added to the variance.

    Returns:
        The normalized input, of the shape of x.

    Raises:
        InputShapeError: In training, if S has a single entry, whose variance is undefined.

    Example:
        >>> x = torch.tensor([[1.0, 10.0], [3.0, 30.0]])  # two examples, two channels
        >>> mean, var = torch.zeros(2), torch.ones(2)
        >>> batch_norm(x, mean, var, training=True)
        tensor([[-1.0000, -1.0000],
                [ 1.0000,  1.0000]])
        >>> mean  # 0.9 · 0 + 0.1 · (2, 20)
        tensor([0.2000, 2.0000])
    """
    axes = [0, *range(2, x.ndim)]
    count = x.numel() // x.shape[1]
    if training or running_mean is None or running_var is None:
        if count <= 1 and training:
            raise InputShapeError(
                f"Batch normalization learns from more than one entry in each channel, and x is {tuple(x.shape)}: "
                "take a larger batch, or a last batch that is not of one example."
            )
        mean = x.mean(axes)  # (C,)
        var = (x - _per_channel(mean, x)).square().mean(axes)  # (C,)
    else:
        mean, var = running_mean, running_var
    if training and running_mean is not None and running_var is not None:
        with torch.no_grad():
            running_mean.lerp_(mean, momentum)
            running_var.lerp_(var * (count / (count - 1)), momentum)
    y = (x - _per_channel(mean, x)) / torch.sqrt(_per_channel(var, x) + eps)
    if weight is not None:
        y = y * _per_channel(weight, x)
    return y if bias is None else y + _per_channel(bias, x)


def _per_channel(values: Tensor, x: Tensor) -> Tensor:
    """Reshape (C,) to (C, 1, ...), so that it broadcasts to x (N, C, ...)."""
    return values.reshape(-1, *[1] * (x.ndim - 2))


def layer_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, *, eps: float = 1e-5
) -> Tensor:
    """Apply layer normalization over the last axes, as `F.layer_norm`.

    S is the last axes of one example: for tokens (N, T, d) with shape (d,) the d features of one token, for maps with
    shape (C, H, W) one whole image. Training and evaluation are the same. γ and β have an entry for each entry of S.
    For images, many networks learn one γ and β for each channel instead: that is `group_norm` with one group.

    Args:
        x: Input, shape (..., *shape).
        shape: Sizes of the last axes.
        weight: γ, of the given shape. None: 1.
        bias: β, of the given shape. None: 0.
        eps: ε, added to the variance.

    Returns:
        The normalized input, of the shape of x.

    Raises:
        ConfigError: If `shape` is empty, or is not the last axes of x.

    Example:
        >>> layer_norm(torch.tensor([[1.0, 3.0], [10.0, 30.0]]), (2,))  # each row on its own
        tensor([[-1.0000,  1.0000],
                [-1.0000,  1.0000]])
    """
    axes = _last_axes(x, shape)
    centred = x - x.mean(axes, keepdim=True)
    y = centred / torch.sqrt(centred.square().mean(axes, keepdim=True) + eps)
    if weight is not None:
        y = y * weight
    return y if bias is None else y + bias


def group_norm(
    x: Tensor, groups: int, weight: Tensor | None = None, bias: Tensor | None = None, *, eps: float = 1e-5
) -> Tensor:
    """Apply group normalization, as `F.group_norm`.

    S is the channels of one group of one example, at every pixel. γ and β have an entry for each channel. With
    `groups=1`, S is one whole example: layer normalization of (C, H, W) with one γ and β for each channel. With
    `groups=C`, it is instance normalization.

    Args:
        x: Input, shape (N, C, ...).
        groups: Number of groups of consecutive channels, a divisor of C.
        weight: γ, shape (C,). None: 1.
        bias: β, shape (C,). None: 0.
        eps: ε, added to the variance.

    Returns:
        The normalized input, of the shape of x.

    Raises:
        ConfigError: If `groups` is less than 1 or no divisor of C.

    Example:
        >>> group_norm(torch.tensor([[1.0, 3.0, 10.0, 30.0]]), groups=2)  # one example, four channels
        tensor([[-1.0000,  1.0000, -1.0000,  1.0000]])
    """
    channels = x.shape[1]
    check_value(groups >= 1 and channels % groups == 0, "groups", groups, f"a divisor of the channels, {channels}")
    parts = x.reshape(len(x), groups, -1)  # (N, groups, C/groups · pixels)
    y = layer_norm(parts, parts.shape[-1:], eps=eps).reshape(x.shape)
    if weight is not None:
        y = y * _per_channel(weight, x)
    return y if bias is None else y + _per_channel(bias, x)


def rms_norm(x: Tensor, shape: Sequence[int], weight: Tensor | None = None, *, eps: float | None = None) -> Tensor:
    """Apply root-mean-square normalization over the last axes, γ x / √(mean of x² + ε), as `F.rms_norm`.

    S is the same as for `layer_norm`. No mean is subtracted and no β is added.

    Args:
        x: Input, shape (..., *shape).
        shape: Sizes of the last axes.
        weight: γ, of the given shape. None: 1.
        eps: ε, added to the mean square. None: the machine epsilon of x's type, as in PyTorch.

    Returns:
        The normalized input, of the shape of x.

    Raises:
        ConfigError: If `shape` is empty, or is not the last axes of x.

    Example:
        >>> rms_norm(torch.tensor([1.0, 7.0]), (2,))  # divided by √((1 + 49) / 2) = 5
        tensor([0.2000, 1.4000])
    """
    axes = _last_axes(x, shape)
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    y = x / torch.sqrt(x.square().mean(axes, keepdim=True) + eps)
    return y if weight is None else y * weight


def _last_axes(x: Tensor, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the axes of x that `shape` covers, as negative indices."""
    shape = tuple(shape)
    check_value(
        len(shape) >= 1 and tuple(x.shape[-len(shape) :]) == shape, "shape", shape, f"the last of x's {tuple(x.shape)}"
    )
    return tuple(range(-len(shape), 0))


def local_response_norm(x: Tensor, size: int = 5, *, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """Return x_c / (k + α/size · Σ x_j²)^β, summed over neighboring channels, as `F.local_response_norm`.

    S is one pixel of one example in the channels j from c − ⌊size/2⌋ to c + ⌊(size − 1)/2⌋. Channels outside the range
    count as 0, and the divisor is always `size`. The paper of 2012 does not divide α by size: its α = 10⁻⁴ with size =
    5 and k = 2 corresponds to α = 5·10⁻⁴, k = 2 here and in PyTorch.

    Args:
        x: Input, shape (N, C, ...).
        size: Number of neighboring channels, including the channel itself.
        alpha: α.
        beta: β.
        k: k.

    Returns:
        The normalized input, of the shape of x.

    Raises:
        ConfigError: If `size` is less than 1.

    Example:
        >>> x = torch.ones(1, 4, 1, 1)  # at the ends there are fewer neighbors
        >>> local_response_norm(x, size=3, alpha=3.0, beta=1.0, k=0.0).flatten()
        tensor([0.5000, 0.3333, 0.3333, 0.5000])
    """
    check_value(size >= 1, "size", size, "at least 1")
    channels = x.shape[1]
    beyond = [0, 0] * (x.ndim - 2) + [size // 2, (size - 1) // 2]
    squares = F.pad(x * x, beyond)  # (N, C + size − 1, ...), zeros where there is no channel
    total = squares[:, :channels]
    for i in range(1, size):
        total = total + squares[:, i : i + channels]
    return x / (k + alpha / size * total) ** beta
