"""Receptive fields of layers: the theoretical extent, and the effective one measured with gradients.

The theoretical field is the number of input pixels along a side that one output can depend on. Along each axis of the
input, a derived tensor has a size, the pixels that one of its entries depends on, and a jump, the pixels between the
fields of two neighbors. A window of k entries with dilation d and stride s changes them to

    size' = size + d (k − 1) jump,    jump' = s · jump

(A. Araujo, W. Norris, J. Sim, Computing receptive fields of convolutional neural networks, Distill 2019,
<https://distill.pub/2019/computing-receptive-fields/>). Where branches merge, the larger field counts. The field can
exceed a small image. Pooling over an axis covers all of it. Statistics of a layer's input (layer and group
normalization) do not count. A linear layer on channels-last maps leaves the field unchanged. For a video, time is an
axis too, whose entries are frames. There is no field where no axis of a tensor can be traced back to one of the input
(flattened, or multiplied by a matrix), nor after a transposed convolution, whose outputs have different fields.

For the effective field, a gradient is propagated from
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from ..core.errors import ModelError, UnknownName
from ..core.files import atomic_write
from ..nn.modules import eval_mode
from .costs import op_name


class Axis(NamedTuple):
    """One axis of a tensor in terms of the input."""

    size: int  # input pixels that one entry depends on
    jump: int  # input pixels between neighboring entries
    whole: int  # all input pixels
    time: bool = False  # whether the pixels are frames of a video

    def window(self, kernel: int, stride: int, dilation: int = 1) -> Axis:
        """Return the axis after windows of `kernel` entries with the given stride and dilation."""
        return self._replace(size=self.size + dilation * (kernel - 1) * self.jump, jump=self.jump * stride)

    def all(self) -> Axis:
        """Return the axis after a sum over it."""
        return self._replace(size=self.whole, jump=0)


class Merged(NamedTuple):
    """Axes that a view has merged and another view can split; such an axis has no field."""

    lengths: tuple[int, ...]
    axes: Field


Field = tuple[Axis | Merged | None, ...]  # one for each axis of a tensor; None for channels and the batch


class ReceptiveFields:
    """The fields of all tensors that depend on the input, propagated through the operations."""

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        """Start from `inputs`: five axes are videos (N, T, C, H, W), three or more are (N, C, *pixels)."""
        self._of: WeakTensorKeyDictionary = WeakTensorKeyDictionary()  # None: depends on the input, with no field
        for x in inputs:
            pixels = [Axis(1, 1, n) for n in x.shape[3 if x.ndim == VIDEO else 2 :]]
            before = (None, Axis(1, 1, x.shape[1], time=True), None) if x.ndim == VIDEO else (None, None)
            self._of[x] = (*before, *pixels) if x.ndim > 2 else None

    def of(self, x: Tensor) -> int | None:
        """Return the field of `x` in pixels, along its longest axis; None without a field."""
        return max((axis.size for axis in self._axes(x) if not axis.time), default=None)

    def frames(self, x: Tensor) -> int | None:
        """Return the field of `x` in frames of a video; None without a field."""
        return max((axis.size for axis in self._axes(x) if axis.time), default=None)

    def _axes(self, x: Tensor) -> Iterator[Axis]:
        field: Field | None = self._of.get(x, None)  # type: ignore[no-untyped-call]
        yield from (part for axis in field or () for part in _parts(axis))

    def follow(self, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> None:
        """Set the field of an operation's results from the fields of its inputs."""
        fields = [self._of[x] for x in tensors_in([*args, *kwargs.values()]) if x in self._of]
        if not fields:
            return
        rule = _pass if torch.Tag.pointwise in op.tags else RULES.get(op_name(op))
        # For a batch of frames, (N·T, C, H, W), the first axis is merged, which does not matter to operations on
        # pixels.
        merged = any(isinstance(axis, Merged) for field in fields if field for axis in field[1:])
        if any(field is None for field in fields) or rule is None or (merged and rule not in AXIS_BY_AXIS):
            field = None
        else:
            field = rule(fields, args)
        for out in tensors_in([result]):
            self._of[out] = field if field is not None and len(field) == out.ndim else None


VIDEO = 5  # axes of a batch of videos, (N, T, C, H, W)


def _parts(axis: Axis | Merged | None) -> Iterator[Axis]:
    """Yield an axis, or those that it was merged from."""
    if isinstance(axis, Axis):
        yield axis
    elif axis is not None:
        for part in axis.axes:
            yield from _parts(part)


def tensors_in(values: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested lists and tuples, in order."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_in(value)


def _pass(fields: list[Field], args: Sequence[Any]) -> Field:
    """Return the field of an elementwise operation with broadcasting: the larger field of all inputs."""
    joint: list[Axis | Merged | None] = [None] * max(map(len, fields))
    for field in fields:
        for i, axis in enumerate(field, start=len(joint) - len(field)):
            other = joint[i]
            if isinstance(axis, Axis) and isinstance(other, Axis):
                axis = axis._replace(size=max(axis.size, other.size), jump=max(axis.jump, other.jump))
            elif isinstance(axis, Merged) and isinstance(other, Merged) and axis.lengths == other.lengths:
                axis = Merged(axis.lengths, _pass([axis.axes, other.axes], ()))
            joint[i] = axis or other
    return tuple(joint)


def _convolution(fields: list[Field], args: Sequence[Any]) -> Field | None:
    _, weight, _, stride, _, dilation, transposed = args[:7]
    if transposed or len(fields) > 1:  # a kernel made from the input
        return None
    pixels = _windows(fields[0][2:], weight.shape[2:], stride, dilation)
    return (fields[0][0], None, *pixels)


def _pool(fields: list[Field], args: Sequence[Any]) -> Field:
    kernel = args[1]
    stride = args[2] if len(args) > 2 and args[2] else kernel
    first = len(fields[0]) - len(kernel)
    return (*fields[0][:first], *_windows(fields[0][first:], kernel, stride, [1] * len(kernel)))


def _max_pool(fields: list[Field], args: Sequence[Any]) -> Field:
    kernel = args[1]
    dilation = args[4] if len(args) > 4 else [1]
    spread = [d * (k - 1) + 1 for k, d in zip(kernel, dilation * len(kernel))]
    return _pool(fields, [args[0], spread, args[2] if len(args) > 2 and args[2] else kernel])


def _windows(
    axes: Field, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> Iterator[Axis | None]:
    for axis, k, s, d in zip(axes, kernel, stride, dilation):
        yield axis.window(k, s, d) if isinstance(axis, Axis) else None


def _adaptive_pool(fields: list[Field], args: Sequence[Any]) -> Field:
    """Return windows of equal size if the axis is divisible, else no field."""
    x, size = args[:2]
    field = list(fields[0])
    for i, wanted in enumerate(size, start=len(field) - len(size)):
        axis, has = field[i], x.shape[i]
        if isinstance(axis, Axis):
            if wanted == 1:
                field[i] = axis.all()
            else:
                field[i] = axis.window(has // wanted, has // wanted) if has % wanted == 0 else None
    return tuple(field)


def _reduce(fields: list[Field], args: Sequence[Any]) -> Field | None:
    """Return the field of mean(x, axes, keepdim): a reduced axis covers everything or disappears."""
    if len(args) < 2 or args[1] is None:
        return None
    axes = [args[1]] if isinstance(args[1], int) else args[1]
    field, reduced = fields[0], {i % len(fields[0]) for i in axes}
    if len(args) > 2 and args[2]:
        return tuple(axis.all() if isinstance(axis, Axis) and i in reduced else axis for i, axis in enumerate(field))
    if any(field[i] for i in reduced):
        return None
    return tuple(axis for i, axis in enumerate(field) if i not in reduced)


def _view(fields: list[Field], args: Sequence[Any]) -> Field | None:
    """Return the field of a view that merges successive axes, or splits a merged axis as before."""
    before, after = list(args[0].shape), list(args[1])
    if 0 in before:  # empty tensors do not determine which axes correspond
        return fields[0] if before == after else None
    if -1 in after:
        after[after.index(-1)] = math.prod(before) // -math.prod(after)
    field: list[Axis | Merged | None] = []
    i = j = 0
    while i < len(before) or j < len(after):
        first, start = i, j
        i, j = min(i + 1, len(before)), min(j + 1, len(after))
        while math.prod(before[first:i]) != math.prod(after[start:j]):
            if math.prod(before[first:i]) < math.prod(after[start:j]):
                i += 1
            else:
                j += 1
        axes, lengths = fields[0][first:i], tuple(before[first:i])
        if lengths == tuple(after[start:j]) or not any(axes):
            field += axes if any(axes) else [None] * (j - start)
        elif j - start == 1:
            field.append(Merged(lengths, axes))
        elif len(axes) == 1 and isinstance(axes[0], Merged) and axes[0].lengths == tuple(after[start:j]):
            field += axes[0].axes
        else:
            return None
    return tuple(field)


def _product(fields: list[Field], args: Sequence[Any]) -> Field | None:
    """Return the field of x W, with or without bias, for merged rows and channels as columns; W must not depend on the
    input.
    """
    x = args[-2]
    rows, columns = fields[0] if len(fields) == 1 and len(fields[0]) == 2 else (None, True)
    return (rows, None) if columns is None and isinstance(rows, Merged) and math.prod(rows.lengths) == len(x) else None


def _permute(fields: list[Field], args: Sequence[Any]) -> Field:
    return tuple(fields[0][i] for i in args[1])


def _transpose(fields: list[Field], args: Sequence[Any]) -> Field:
    field = list(fields[0])
    field[args[1]], field[args[2]] = field[args[2]], field[args[1]]
    return tuple(field)


def _unsqueeze(fields: list[Field], args: Sequence[Any]) -> Field:
    field = list(fields[0])
    field.insert(args[1] % (len(field) + 1), None)
    return tuple(field)


def _squeeze(fields: list[Field], args: Sequence[Any]) -> Field:
    axes = [args[1]] if isinstance(args[1], int) else args[1]
    gone = {i % len(fields[0]) for i in axes if args[0].shape[i] == 1}
    return tuple(axis for i, axis in enumerate(fields[0]) if i not in gone)


def _slice(fields: list[Field], args: Sequence[Any]) -> Field:
    """x[start:stop:step] along one axis: neighbours are further apart."""
    field = list(fields[0])
    i, step = args[1] if len(args) > 1 else 0, args[4] if len(args) > 4 else 1
    axis = field[i]
    field[i] = axis.window(1, step) if isinstance(axis, Axis) else None
    return tuple(field)


def _cat(fields: list[Field], args: Sequence[Any]) -> Field | None:
    """Joined along channels or the batch; along pixels there is no single field."""
    i = args[1] if len(args) > 1 else 0
    return None if any(field[i] for field in fields) else _pass(fields, args)


# Rules that accept merged axes.
AXIS_BY_AXIS = (_pass, _view, _product, _permute, _transpose, _unsqueeze, _squeeze)
# All other operations that are not elementwise end the field.
RULES: dict[str, Callable[[list[Field], Sequence[Any]], Field | None]] = {
    "convolution": _convolution,
    "max_pool2d_with_indices": _max_pool,
    "max_pool3d_with_indices": _max_pool,
    "avg_pool2d": _pool,
    "avg_pool3d": _pool,
    "_adaptive_avg_pool2d": _adaptive_pool,
    "_adaptive_avg_pool3d": _adaptive_pool,
    "adaptive_max_pool2d": _adaptive_pool,
    "adaptive_max_pool3d": _adaptive_pool,
    "mean": _reduce,
    "sum": _reduce,
    "amax": _reduce,
    "mm": _product,
    "addmm": _product,
    "view": _view,
    "_unsafe_view": _view,
    "permute": _permute,
    "transpose": _transpose,
    "unsqueeze": _unsqueeze,
    "squeeze": _squeeze,
    "slice": _slice,
    "cat": _cat,
    "native_batch_norm": _pass,
    "_native_batch_norm_legit": _pass,
    "_native_batch_norm_legit_no_training": _pass,
    "_batch_norm_no_update": _pass,
    "native_layer_norm": _pass,
    "native_group_norm": _pass,
    "native_dropout": _pass,
    "constant_pad_nd": _pass,
    "reflection_pad2d": _pass,
    "replication_pad2d": _pass,
    "_to_copy": _pass,
    "detach": _pass,
    "alias": _pass,
}


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
            f"The gradient of {layer or 'the model'} is zero: its central output does not depend on these inputs. "
            "Use other inputs or an earlier layer."
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
    handle = modules[layer].register_forward_hook(catch)
    try:
        with eval_mode(model), torch.enable_grad(), contextlib.suppress(_Reached):
            model(x.clone())  # a copy, because a first layer may work in place
    finally:
        handle.remove()

    y = answer[0] if answer else None
    if not isinstance(y, Tensor) or y.ndim != x.ndim:
        gives = "is not called" if y is None else f"returns {tuple(getattr(y, 'shape', ())) or type(y).__name__}"
        raise ModelError(
            f"{layer or 'The model'} {gives}: a receptive field needs a feature map (N, C, *pixels) with {x.ndim - 2} "
            "axes of pixels. Use an earlier layer."
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
