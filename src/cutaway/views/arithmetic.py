"""The arithmetic of a convolution, cell by cell, with the numbers of the real layer."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.errors import ModelError
from ..draw.description import Drawing, View, table
from ..draw.number_format import count, number, plural, shape_text
from .common import Convolution, convolutions, hook_outputs, parse_choice, parse_index, run_example
from .json_values import to_lists
from .subject import Subject

SAYS = "convolution arithmetic: the window slides over the layer's input, and the products sum to each output"
READ = (
    "On the left is part of one input channel of the layer, on the right its output. Point at an output cell, or move "
    "to it with the arrow keys: the window on the left marks the inputs that it is computed from. Between them are the "
    "weights, and below the weights the products, weight times input. The sum of the products, of the other channels "
    "and of the bias is the output. Hatched cells are padding, which counts as zero."
)
MISLEADS = (
    "Only a few cells of one output channel are shown. Of many input channels, those with the largest weight norm are "
    "shown; the others are one term of the sum. Numbers are rounded to four digits, so a sum by hand may differ in the "
    "last digit. The operation is a cross-correlation: the kernel is not flipped, unlike in the convolution of signal "
    "processing. The layer may compute the same result with another algorithm, such as Winograd or FFT."
)
OPTIONS = {
    "layer": "name of the layer",
    "example": "index of the example, from 0",
    "channel": "index of the output channel, from 0",
}

OUT = 8  # most output cells per side
IN = 14  # most input cells per side, if the window allows it
STEPS = 20  # most cells of a signal
CHANNELS = 6  # most input channels that are shown separately


class Pool(NamedTuple):
    """A max or average pooling layer."""

    name: str
    what: str  # max or mean
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]


class InputOutput(NamedTuple):
    """The input (C, *pixels) and output (O, *pixels) of a layer for one example."""

    x: Tensor
    y: Tensor


class Crop(NamedTuple):
    """The part shown along one axis: outputs from `first` and the entries of the padded input that they need."""

    first: int
    outputs: int
    begin: int  # in the padded input
    entries: int


def suits(subject: Subject) -> bool:
    """Return whether the model has a convolution over one axis or two."""
    return bool(_flat(subject))


def view(subject: Subject) -> View:
    """Return the window over one input channel, with products and sums for a part of one output channel."""
    i = parse_index(subject.options, "example", 0, subject.count)
    layers: dict[str, Convolution | Pool] = {**_flat(subject), **_pools(subject.model)}
    name = parse_choice(subject.options, "layer", list(layers), "layer with a window") or _first(subject, layers)
    layer = layers[name]
    seen = _see(subject, i, name)
    channel = parse_index(subject.options, "channel", _strongest(seen.y), len(seen.y))
    crops = [_crop(seen, layer, channel, axis) for axis in range(seen.y.ndim - 1)]
    if isinstance(layer, Pool):
        drawing, parts = _pooling(subject, i, layer, seen, channel, crops)
    else:
        drawing, parts = _convolving(subject, i, layer, seen, channel, crops)
    cell = drawing["output"][0][0]
    terms = ", ".join(f"{part['name']} {number(part['sums'][0][0])}" for part in parts)
    bias = f", bias {number(drawing['bias'])}" if drawing.get("bias") is not None else ""
    how = {"sum": f"the sum of {terms}{bias}", "max": "the largest of its window", "mean": "the mean of its window"}
    at = " and ".join(f"{word} {crop.first + 1}" for word, crop in zip(_axes(crops), crops, strict=True))
    return View(
        id="arithmetic",
        title="Convolution arithmetic" if isinstance(layer, Convolution) else "Pooling arithmetic",
        says=f"How {name} computes channel {channel} of its output for {subject.name(i)}: move the window.",
        summary=(
            f"{name} has a window of {shape_text(layer.kernel)}, stride {shape_text(layer.stride)}, padding"
            f" {shape_text(layer.padding)}. Its output at {at} is {number(cell)}: {how[drawing['what']]}."
        ),
        table=_table(drawing, parts, crops),
        drawings=[drawing],
    )


def _axes(crops: list[Crop]) -> list[str]:
    return ["row", "column"] if len(crops) == 2 else ["step"]


# --- recorded inputs and outputs --------------------------------------------------------------------------------------


def _flat(subject: Subject) -> dict[str, Convolution]:
    """Return the convolutions over one or two axes; a window over three axes cannot be drawn as a grid."""
    return {name: layer for name, layer in convolutions(subject.model).items() if len(layer.kernel) <= 2}


def _pools(model: nn.Module) -> dict[str, Pool]:
    found = {}
    for name, module in model.named_modules():
        if not isinstance(module, nn.MaxPool2d | nn.AvgPool2d | nn.MaxPool1d | nn.AvgPool1d):
            continue
        axes = 2 if isinstance(module, nn.MaxPool2d | nn.AvgPool2d) else 1
        if getattr(module, "dilation", 1) != 1 or module.ceil_mode or getattr(module, "divisor_override", None):
            continue
        what = "max" if isinstance(module, nn.MaxPool2d | nn.MaxPool1d) else "mean"
        sizes = (_each(v, axes) for v in (module.kernel_size, module.stride, module.padding))
        found[name] = Pool(name, what, *sizes)
    return found


def _each(value: Any, axes: int) -> tuple[int, ...]:
    """Return one number for each axis."""
    return (value,) * axes if isinstance(value, int) else tuple(value) * (axes // len(value))


def _first(subject: Subject, layers: dict[str, Convolution | Pool]) -> str:
    """Return the first convolution whose window has more than one entry."""
    names = [name for name, layer in layers.items() if isinstance(layer, Convolution)]
    return next((name for name in names if max(layers[name].kernel) > 1), names[0])


def _see(subject: Subject, i: int, name: str) -> InputOutput:
    """Return the input and output of the layer's first call on the example."""
    found: list[InputOutput] = []

    def see(_: str, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if not found and isinstance(output, Tensor) and len(output):
            found.append(InputOutput(_copy_first(args[0]), _copy_first(output)))

    with hook_outputs(subject.model, see, [name]):
        run_example(subject, i)
    if not found:
        raise ModelError(f"{name} is not called for {subject.name(i)}: choose another layer with layer=.")
    return found[0]


def _copy_first(x: Tensor) -> Tensor:
    """Return a copy of the first example in float64, because later layers may write over x in place."""
    return x[0].detach().to("cpu", torch.float64, copy=True)


def _strongest(y: Tensor) -> int:
    """Return the channel with the largest standard deviation."""
    return int(y.flatten(1).nan_to_num(0.0, 0.0, 0.0).std(1, correction=0).argmax())


def _crop(seen: InputOutput, layer: Convolution | Pool, channel: int, axis: int) -> Crop:
    """Return the part of an axis that fits and where the output varies most."""
    kernel, stride = layer.kernel[axis], layer.stride[axis]
    span = layer.span[axis] if isinstance(layer, Convolution) else kernel
    most = (IN if seen.y.ndim == 3 else STEPS, OUT if seen.y.ndim == 3 else STEPS)
    n = seen.y.shape[1 + axis]
    outputs = max(1, min(most[1], n, (most[0] - span) // stride + 1))
    if outputs == 1 and n > 1 and span + stride <= 2 * most[0]:
        outputs = 2
    y = seen.y[channel].nan_to_num(0.0, 0.0, 0.0)
    line = (y - y.mean()).abs().movedim(axis, 0).reshape(n, -1).sum(1)  # (n,)
    sums = line.unfold(0, outputs, 1).sum(1)
    first = int(sums.argmax())
    return Crop(first, outputs, first * stride, (outputs - 1) * stride + span)


# --- arithmetic -----------------------------------------------------------------------------------------------


def _windows(x: Tensor, layer: Convolution | Pool, crops: list[Crop], fill: float) -> tuple[Tensor, Tensor]:
    """Return the cropped padded input (C, *entries) and its windows (C, *outputs, *kernel)."""
    around = [p for padding in reversed(layer.padding) for p in (padding, padding + max(layer.kernel))]
    part = F.pad(x, around, value=fill)
    for axis, crop in enumerate(crops):
        part = part.narrow(axis + 1, crop.begin, crop.entries)
    dilation = layer.dilation if isinstance(layer, Convolution) else (1,) * len(crops)
    windows = part
    for axis, (crop, s, d, k) in enumerate(zip(crops, layer.stride, dilation, layer.kernel, strict=True)):
        places = torch.arange(crop.outputs)[:, None] * s + torch.arange(k) * d  # (outputs, k)
        windows = windows.movedim(axis + 1, -1)[..., places].movedim(-2, axis + 1)
    return part, windows


def sums(seen: InputOutput, layer: Convolution, channel: int, crops: list[Crop]) -> Tensor:
    """Return Σ w·x over the window for each input channel of the output channel's group, (C / groups, *outputs)."""
    inputs = layer.weight.shape[1]
    group = channel // (len(layer.weight) // layer.groups)
    x = seen.x[group * inputs : (group + 1) * inputs]
    _, windows = _windows(x, layer, crops, 0.0)
    weight = layer.weight[channel].double().cpu()  # (C / groups, *kernel)
    products = windows * weight.view(inputs, *(1 for _ in crops), *layer.kernel)  # (C / groups, *outputs, *kernel)
    return products.flatten(1 + len(crops)).sum(-1)


def _convolving(
    subject: Subject, i: int, layer: Convolution, seen: InputOutput, channel: int, crops: list[Crop]
) -> tuple[Drawing, list[dict[str, Any]]]:
    weight = layer.weight[channel].double().cpu()  # (C / groups, *kernel)
    inputs = len(weight)
    group = channel // (len(layer.weight) // layer.groups)
    x = seen.x[group * inputs : (group + 1) * inputs]
    part, _ = _windows(x, layer, crops, 0.0)
    by_channel = sums(seen, layer, channel, crops)  # (C / groups, *outputs)
    order = weight.flatten(1).norm(dim=1).argsort(descending=True)[:CHANNELS].sort().values.tolist()
    shown = [
        {
            "name": f"channel {group * inputs + c}" if inputs > 1 else "products",
            "input": _grid(part[c]),
            "weights": _grid(weight[c]),
            "sums": _grid(by_channel[c]),
        }
        for c in order
    ]
    if inputs > len(order):
        rest = by_channel.sum(0) - by_channel[order].sum(0)
        shown.append({"name": f"{plural(inputs - len(order), 'other channel')}", "sums": _grid(rest)})
    bias = float(layer.bias[channel]) if layer.bias is not None else None
    drawing = _drawing(subject, i, layer, seen, channel, crops) | {
        "what": "sum",
        "channels": shown,
        "bias": None if bias is None else float(f"{bias:.4g}"),
        "dilation": list(_two(layer.dilation)),
    }
    return drawing, shown


def _pooling(
    subject: Subject, i: int, layer: Pool, seen: InputOutput, channel: int, crops: list[Crop]
) -> tuple[Drawing, list[dict[str, Any]]]:
    fill = float("-inf") if layer.what == "max" else 0.0
    part, windows = _windows(seen.x[channel : channel + 1], layer, crops, fill)
    values = windows[0].flatten(len(crops))
    found = values.amax(-1) if layer.what == "max" else values.mean(-1)
    shown = [{"name": f"channel {channel}", "input": _grid(part[0]), "sums": _grid(found)}]
    drawing = _drawing(subject, i, layer, seen, channel, crops) | {
        "what": layer.what,
        "channels": shown,
        "bias": None,
        "dilation": [1, 1],
    }
    return drawing, shown


# --- drawing --------------------------------------------------------------------------------------------------


def _drawing(
    subject: Subject, i: int, layer: Convolution | Pool, seen: InputOutput, channel: int, crops: list[Crop]
) -> Drawing:
    """Return the keys that all window drawings share: position, sizes and output."""
    y = seen.y[channel]
    begins, sizes = [], []
    for axis, crop in enumerate(crops):
        y = y.narrow(axis, crop.first, crop.outputs)
        begins.append(crop.begin - layer.padding[axis])  # of the real input; below 0 in the padding before it
        sizes.append(seen.x.shape[1 + axis])
    if len(crops) == 1:
        begins, sizes = [0, *begins], [1, *sizes]
    firsts = [crop.first for crop in crops]
    whole_ = " of ".join(("a part", shape_text(seen.y.shape[1:]))) if list(y.shape) != list(seen.y.shape[1:]) else "all"
    return {
        "kind": "convolve",
        "title": f"{layer.name}, channel {channel} of {count(len(seen.y))}: {whole_}",
        "kernel": list(_two(layer.kernel)),
        "stride": list(_two(layer.stride)),
        "begin": begins,
        "size": sizes,
        "first": firsts if len(firsts) == 2 else [0, *firsts],
        "output": _grid(y),
        "columns": _columns(subject, i, layer, seen, crops),
    }


def _two(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return sizes if len(sizes) == 2 else (1, *sizes)


def _grid(x: Tensor) -> list[list[float | None]]:
    """Return values as rows; a single axis becomes one row."""
    grid: list[list[float | None]] = to_lists(x if x.ndim == 2 else x[None])
    return grid


def _columns(subject: Subject, i: int, layer: Convolution | Pool, seen: InputOutput, crops: list[Crop]) -> list[str]:
    """Return the words above the columns of the input, if the layer reads a text directly."""
    if subject.kind != "text" or len(crops) != 1:
        return []
    words = subject.tokens(i)
    if seen.x.shape[1] != len(words):
        return []
    begin = crops[0].begin - layer.padding[0]
    return [words[k] if 0 <= k < len(words) else "" for k in range(begin, begin + crops[0].entries)]


def _table(drawing: Drawing, parts: list[dict[str, Any]], crops: list[Crop]) -> Any:
    """Return every output shown, with its terms."""
    bias = [drawing["bias"]] if drawing["bias"] is not None else []
    rows = []
    for r, line in enumerate(drawing["output"]):
        for c, value in enumerate(line):
            place = [drawing["first"][0] + r + 1, drawing["first"][1] + c + 1][2 - len(crops) :]
            rows.append([*place, *(part["sums"][r][c] for part in parts), *bias, value])
    columns = dict.fromkeys(_axes(crops), "count") | {part["name"]: "number" for part in parts}
    return table(columns | ({"bias": "number"} if bias else {}) | {"output": "number"}, rows)
