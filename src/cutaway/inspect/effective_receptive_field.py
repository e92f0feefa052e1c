"""The receptive field measured with gradients: its extent and its distribution.

`receptive_field.py` computes how many pixels one output of a layer *can* depend on. Here a gradient is propagated from
the middle of the layer's map. `gradient_extent` measures where it is nonzero, which must give the same number.
`effective_field` measures its size at each pixel: about a Gaussian, whose width grows with the square root of the
depth, while the theoretical field grows linearly with the depth (W. Luo, Y. Li, R. Urtasun, R. Zemel,
Understanding the effective receptive field in deep convolutional neural networks, 2016,
<https://arxiv.org/abs/1701.04128>).
"""

from __future__ import annotations

import contextlib
import copy
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..core.errors import ModelError, UnknownName
from ..core.files import atomic_write
from .receptive_field import VIDEO


def gradient_extent(model: nn.Module, input_shape: Sequence[int], layer: str = "") -> tuple[int, ...]:
    """Return the number of pixels along each axis between the first and the last that affect the middle output of
    `layer`.

    `input_shape` is that of one example, (C, H, W), (C, n), or (T, C, H, W) of a video, whose first extent is in
    frames. `layer` is a module's name as in the state dict, "" for the whole model. For a layer with several calls, the
    first one counts. The field is limited by the image, which should be at least twice as large as the field.

    The result is exact, because no path is hidden or cancelled. It uses a copy of the model in float64 with positive
    weights that sum to 1 for each unit, no bias and neutral running statistics, so with inputs in (0, 1) no ReLU is
    inactive. A maximum passes its gradient to the largest entry only, so it is replaced by the mean of the same window.
    A gradient is then a sum of positive products along paths: it is zero only without a path.

    Layer and group normalization depend on their whole input through the statistics, which the formula does not count.
    Raises UnknownName for an unknown layer, ModelError if its output has no pixels.
    """
    generator = torch.Generator().manual_seed(0)
    positive = _positive(model, generator)
    x = torch.rand(1, *input_shape, dtype=torch.float64, generator=generator)
    with _MeansForMaxima():
        gradient = _gradient_of_middle(positive, x, layer)
    reached = gradient[0].abs().sum(_channels(x) - 1) > 0  # (H, W), or (T, H, W)
    extents = []
    for axis in range(reached.ndim):
        others = tuple(i for i in range(reached.ndim) if i != axis)
        places = (reached.any(others) if others else reached).nonzero().flatten()
        extents.append(int(places[-1] - places[0]) + 1 if len(places) else 0)
    return tuple(extents)


def effective_field(model: nn.Module, inputs: Tensor, layer: str = "") -> Tensor:
    """Return the influence of each pixel on the middle output of `layer`, (H, W), or (T, H, W) of a video, summing to
    1.

    It is |∂y/∂x|, where y is the middle of the layer's map summed over its channels. It is summed over the input's
    channels, averaged over `inputs` (N, C, H, W) or (N, T, C, H, W), and normalized. As in the paper, `inputs` may be
    noise, `torch.randn(...)`; with images it shows the field for those. The model runs in evaluation mode with its own
    weights, and is left unchanged.
    """
    gradient = _gradient_of_middle(model, inputs, layer)
    field = gradient.abs().sum(_channels(inputs)).mean(0)  # (H, W), or (T, H, W)
    total = field.sum()
    if not total > 0:
        raise ModelError(
            f"No gradient arrives from {layer or 'the model'}: its middle output does not move with these inputs. "
            "Take other inputs, or an earlier layer."
        )
    return field / total


def save_field(field: Tensor, path: str | os.PathLike[str], *, extent: Sequence[int] | None = None) -> None:
    """Save `field` (H, W) as a PNG: black is 0, white the maximum.

    `extent` (height, width) draws the theoretical field as a centered orange frame.
    """
    shades = (field / field.max() * 255).round().to(torch.uint8)  # (H, W)
    picture = shades[:, :, None].repeat(1, 1, 3)  # (H, W, 3)
    if extent is not None:
        (top, bottom), (left, right) = (
            (max(0, (n - e) // 2), min(n - 1, (n - e) // 2 + e - 1)) for n, e in zip(field.shape, extent)
        )
        frame = torch.zeros(field.shape, dtype=torch.bool)
        frame[[top, bottom], left : right + 1] = True
        frame[top : bottom + 1, [left, right]] = True
        picture[frame] = torch.tensor(ORANGE, dtype=torch.uint8)
    with atomic_write(path) as temporary:
        Image.fromarray(picture.numpy()).save(temporary, format="PNG")


ORANGE = (230, 159, 0)  # distinguishable from gray with any color vision


def _channels(x: Tensor) -> int:
    """Return the axis of the channels: the third for videos (N, T, C, H, W)."""
    return 2 if x.ndim == VIDEO else 1


class _Reached(Exception):
    """Raised when the layer has run, because later modules need not run."""


def _gradient_of_middle(model: nn.Module, inputs: Tensor, layer: str) -> Tensor:
    """Return ∂/∂inputs of the middle entry of `layer`'s map, summed over its channels and the examples."""
    modules = dict(model.named_modules())
    if layer not in modules:
        raise UnknownName("layer", layer, filter(None, modules), "`cutaway show MODEL` lists the layers.")
    answer: list[Tensor] = []

    def catch(module: nn.Module, args: Any, output: Any) -> None:
        answer.append(output)
        raise _Reached

    x = inputs.detach().clone().requires_grad_()
    training = {module: module.training for module in model.modules()}
    handle = modules[layer].register_forward_hook(catch)
    try:
        model.eval()
        with torch.enable_grad(), contextlib.suppress(_Reached):
            model(x.clone())  # a copy, because a first layer may work in place
    finally:
        handle.remove()
        for module, was in training.items():
            module.training = was

    y = answer[0] if answer else None
    if not isinstance(y, Tensor) or y.ndim != x.ndim:
        gives = "is not called" if y is None else f"gives {tuple(getattr(y, 'shape', ())) or type(y).__name__}"
        raise ModelError(
            f"{layer or 'The model'} {gives}: a receptive field needs a map (N, C, *pixels) with {x.ndim - 2} axes of "
            "pixels. Take an earlier layer."
        )
    middle = y
    for axis in range(2, y.ndim):
        middle = middle.narrow(axis, y.shape[axis] // 2, 1)  # (N, channels, 1, ...)
    (gradient,) = torch.autograd.grad(middle.sum(), x, allow_unused=True, materialize_grads=True)
    return gradient


def _positive(model: nn.Module, generator: torch.Generator) -> nn.Module:
    """Return a copy in float64 in which every unit computes a weighted mean with new positive weights."""
    model = copy.deepcopy(model).double()
    for name, values in [*model.named_parameters(), *model.named_buffers()]:
        values.requires_grad_(False)
        if name.endswith(("bias", "running_mean")):
            values.zero_()
        elif name.endswith("running_var"):
            values.fill_(1)
        elif isinstance(values, nn.Parameter):
            values.copy_(torch.rand(values.shape, dtype=values.dtype, generator=generator) + 0.5)
            if values.ndim > 1:
                values.div_(values.sum(tuple(range(1, values.ndim)), keepdim=True))
        elif values.is_floating_point():
            values.abs_()  # kernels that are not trained
    return model


class _MeansForMaxima(TorchFunctionMode):
    """Replaces a maximum over a window by the mean over the same window while active."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call `func` or its replacement."""
        kwargs = kwargs or {}
        if func in _WINDOWED:
            return _mean_of_windows(func, *args, **kwargs)
        return _MEANS.get(func, func)(*args, **kwargs)


_WINDOWED = (F.max_pool1d, F.max_pool2d, F.max_pool3d, torch.max_pool1d, torch.max_pool2d, torch.max_pool3d)
_MEANS: Mapping[Any, Callable[..., Any]] = {
    F.adaptive_max_pool1d: lambda x, size, **_: F.adaptive_avg_pool1d(x, size),
    F.adaptive_max_pool2d: lambda x, size, **_: F.adaptive_avg_pool2d(x, size),
    F.adaptive_max_pool3d: lambda x, size, **_: F.adaptive_avg_pool3d(x, size),
    torch.amax: torch.mean,
    Tensor.amax: torch.mean,
}


def _mean_of_windows(
    pool: Any,
    x: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    """Return the mean of each window of `pool`, of x (N, C, *pixels), computed as a depthwise convolution."""
    axes = x.ndim - 2
    counts = pool(x, kernel_size, stride, padding, dilation, ceil_mode).shape[2:]
    kernels, paddings, dilations = (_each(v, axes) for v in (kernel_size, padding, dilation))
    strides = _each(stride, axes) if stride else kernels
    around = []  # from the last axis to the first; with ceil_mode, the last window exceeds the padding
    for n, m, k, s, p, d in reversed([*zip(x.shape[2:], counts, kernels, strides, paddings, dilations)]):
        around += [p, max(p, (m - 1) * s + d * (k - 1) + 1 - n - p)]
    weight = x.new_full((x.shape[1], 1, *kernels), 1 / math.prod(kernels))
    conv: Callable[..., Tensor] = (F.conv1d, F.conv2d, F.conv3d)[axes - 1]
    return conv(F.pad(x, around), weight, None, strides, 0, dilations, x.shape[1])


def _each(value: Any, axes: int) -> list[int]:
    """Return one number per axis."""
    return [value] * axes if isinstance(value, int) else list(value) * (axes // len(value))
