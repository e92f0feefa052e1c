"""The theoretical receptive field: the number of input pixels along a side that one output can depend on.

Along each axis of the input, a derived tensor has a size, the pixels that one of its entries depends on, and a jump,
the pixels between the fields of two neighbors. A window of k entries with dilation d and stride s changes them to

    size' = size + d (k − 1) jump,    jump' = s · jump

(A. Araujo, W. Norris, J. Sim, Computing receptive fields of convolutional neural networks, Distill 2019,
<https://distill.pub/2019/computing-receptive-fields/>). Where branches merge, the larger field counts. The field can
exceed a small image. Pooling over an axis covers all of it. Statistics of a layer's input (layer and group
normalization) do not count. A linear layer on channels-last maps leaves the field unchanged. For a video, time is an
axis too, whose entries are frames. There is no field where no axis of a tensor can be traced back to one of the input
(flattened, or multiplied by a matrix), nor after a transposed convolution, whose outputs have different fields.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils.weak import WeakTensorKeyDictionary

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
