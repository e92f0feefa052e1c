"""Normalization: entries less their mean, by their standard deviation. The kinds differ in which entries share those.

    y = γ (x − μ) / √(σ² + ε) + β,    μ, σ² over the set S

    kind              S for the entry x_{n,c,h,w} of maps (N, C, H, W)             γ, β for each
    batch             the same channel: all n, h, w                                 channel
    layer             the same example: all c, h, w (of a sequence: the same token, all its features)      entry of S
    RMS               as layer; nothing is subtracted, σ² is the mean square        entry of S (no β)
    local response    the same pixel, size neighbouring channels; nothing is subtracted, and
                      y = x / (k + α · mean square)^b                               none

The formulas are written out here; models run PyTorch's fused functions of the same names, and the tests hold the two
equal, gradients included. Of local response they run the one here: PyTorch has no kernel for it either, and what it
takes in its place, a mean over three dimensions, cannot be followed to the pixels that it sees. Variances are means of
squares (biased), but the running one is unbiased, as in PyTorch.

Batch: S. Ioffe, C. Szegedy, 2015, <https://arxiv.org/abs/1502.03167>. Layer: J. Ba, J. Kiros, G. Hinton, 2016,
<https://arxiv.org/abs/1607.06450>. RMS: B. Zhang, R. Sennrich, 2019, <https://arxiv.org/abs/1910.07467>. Local
response: A. Krizhevsky, I. Sutskever, G. Hinton, ImageNet classification with deep convolutional neural networks, 2012.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ..core.errors import ModelError, require


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
    """Batch normalization of x (N, C, ...), channel by channel, as `F.batch_norm`.

    S is all that stands in the same channel: the batch and every pixel, N·H·W entries. In training μ and σ² are those
    of S, and the running statistics (C,), if given, are moved in place towards them by `momentum`:

        running_mean ← (1 − m) running_mean + m μ        running_var ← (1 − m) running_var + m σ² |S|/(|S| − 1)

    Otherwise the running statistics stand in for μ and σ², and examples no longer touch each other; without them the
    batch's are taken then too. `weight` γ and `bias` β are (C,). Raises ModelError where S is one entry in training:
    its variance is nothing.
    """
    axes = [0, *range(2, x.ndim)]
    count = x.numel() // x.shape[1]
    if training or running_mean is None or running_var is None:
        if count <= 1 and training:
            raise ModelError(
                f"Batch normalization learns from more than one entry in each channel, and x is {tuple(x.shape)}: "
                "take a larger batch, or a last batch that is not of one example."
            )
        mean = x.mean(axes)  # (C,)
        var = (x - _by_channel(mean, x)).square().mean(axes)  # (C,)
    else:
        mean, var = running_mean, running_var
    if training and running_mean is not None and running_var is not None:
        with torch.no_grad():
            running_mean.lerp_(mean, momentum)
            running_var.lerp_(var * (count / (count - 1)), momentum)
    y = (x - _by_channel(mean, x)) / torch.sqrt(_by_channel(var, x) + eps)
    if weight is not None:
        y = y * _by_channel(weight, x)
    return y if bias is None else y + _by_channel(bias, x)


def _by_channel(values: Tensor, x: Tensor) -> Tensor:
    """(C,) against x (N, C, ...): (C, 1, ...)."""
    return values.reshape(-1, *[1] * (x.ndim - 2))


def layer_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, *, eps: float = 1e-5
) -> Tensor:
    """Layer normalization of x (..., *shape) over its last axes, as `F.layer_norm`.

    S is the last axes of one example: of tokens (N, T, d) with shape (d,) the d features of one token, of maps with
    shape (C, H, W) the whole of one image. `weight` γ and `bias` β have that shape. Training or not is the same.
    """
    axes = _last_axes(x, shape)
    centred = x - x.mean(axes, keepdim=True)
    y = centred / torch.sqrt(centred.square().mean(axes, keepdim=True) + eps)
    if weight is not None:
        y = y * weight
    return y if bias is None else y + bias


def rms_norm(x: Tensor, shape: Sequence[int], weight: Tensor | None = None, *, eps: float | None = None) -> Tensor:
    """Root-mean-square normalization of x (..., *shape), γ x / √(mean of x² + ε), as `F.rms_norm`.

    S is that of `layer_norm`: the last axes. No mean is subtracted and no β added. Without `eps` it is the
    smallest step of x's type above 1, as in PyTorch.
    """
    axes = _last_axes(x, shape)
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    y = x / torch.sqrt(x.square().mean(axes, keepdim=True) + eps)
    return y if weight is None else y * weight


def _last_axes(x: Tensor, shape: Sequence[int]) -> tuple[int, ...]:
    """The axes of x that `shape` names, from the last."""
    shape = tuple(shape)
    require(
        len(shape) >= 1 and tuple(x.shape[-len(shape) :]) == shape, "shape", shape, f"the last of x's {tuple(x.shape)}"
    )
    return tuple(range(-len(shape), 0))


def local_response_norm(x: Tensor, size: int = 5, *, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """x_c / (k + α/size · Σ x_j²)^β with the sum over `size` neighbouring channels, as `F.local_response_norm`.

    S is one pixel of one example in the channels j from c − ⌊size/2⌋ to c + ⌊(size − 1)/2⌋; there is nothing beyond
    the first and the last, and the division is by `size` all the same. x is (N, C, ...). The paper of 2012 does not
    divide α by size: its α = 10⁻⁴ with size = 5 and k = 2 is α = 5·10⁻⁴, k = 2 here, and in PyTorch.
    """
    require(size >= 1, "size", size, "at least 1")
    channels = x.shape[1]
    beyond = [0, 0] * (x.ndim - 2) + [size // 2, (size - 1) // 2]
    squares = F.pad(x * x, beyond)  # (N, C + size − 1, ...), zeros where there is no channel
    total = squares[:, :channels]
    for i in range(1, size):
        total = total + squares[:, i : i + channels]
    return x / (k + alpha / size * total) ** beta
