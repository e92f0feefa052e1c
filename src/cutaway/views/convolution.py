"""Convolutions: their weights as images, and their arithmetic, cell by cell, with the numbers of the real layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from ..core.errors import ModelError, SettingError
from ..draw import charts
from ..draw.description import Drawing, View, table
from ..draw.number_format import count, number, plural, shape_text
from .image_kernels import KERNELS, SIDE, FixedKernels, kernel_text, parse_kernel
from .json_values import downsample, evenly_spaced, image_url, to_lists
from .model_layers import (
    Convolution,
    Pool,
    convolutions,
    find_input_layer,
    flat_convolutions,
    flat_pools,
    hook_outputs,
    run_example,
)
from .subject import Subject, get_target, parse_choice, parse_index

MOST = 64  # most tiles of a layer
LAYERS = 16  # most layers to choose from
PIXELS = 32  # most pixels per side of a tile
CHANNELS = 64  # most channels in a tile of a filter over signals
STEEP = 8  # ratio of channels to steps above which a tile is transposed
RANGES = ("unit", "layer", "global")
PHOTO = 258  # screen pixels of the longer side of a filtered photo
_REPEATED = "The kernels are not flipped, and the border pixels are repeated outside the photo."


def draw_filters(subject: Subject) -> View:
    """Return tiles of up to sixteen layers with filters, or of the selected layer; for a photo, its filtered images."""
    if isinstance(subject.model, FixedKernels) or "kernel" in subject.options:
        return _filtered_photo(subject)
    range_ = subject.options.get("range", "unit")
    if range_ not in RANGES:
        raise SettingError(f"Invalid range={range_}: must be one of {', '.join(RANGES)}.")
    found = convolutions(subject.model)
    dense = find_input_layer(subject)
    names = [*found, *([dense[0]] if dense else [])]
    asked = parse_choice(subject.options, "layer", names, "layer with filters")
    wide = [name for name, c in found.items() if max(c.kernel) > 1] or list(found)
    names = (
        [asked]
        if asked
        else [names[0]]
        if "filter" in subject.options
        else evenly_spaced([*wide, *names[len(found) :]], LAYERS)
    )
    options: list[dict[str, Any]] = []
    rows: list[list[Any]] = []
    for name in names:
        if name in found:
            drawing, said = _tiles(subject, found[name], range_, first=name == next(iter(found)))
        else:
            assert dense is not None
            drawing, said = _templates(subject, *dense, range_)
        options.append({"name": name, "drawings": [drawing, {"kind": "prose", "sentences": [said]}]})
        rows += [[name, tile["label"], tile["norm"]] for tile in drawing["tiles"]]
    for option in options:
        for tile in option["drawings"][0]["tiles"]:
            del tile["norm"]
    drawings = options[0]["drawings"] if len(options) == 1 else [charts.choice("Filters", "layer", options)]
    total = len(wide) + (dense is not None)
    some = (
        f" {len(options)} of {total} layers are shown; layer= selects another."
        if asked is None and len(options) < total
        else ""
    )
    return View(
        id="filters",
        title="Filters",
        says="The weights of each filter as an image; a filter responds most to inputs that look like it.",
        summary=_summary(options, rows) + some,
        table=table({"layer": "text", "filter": "text", "norm of weights": "number"}, rows),
        drawings=drawings,
    )


def _summary(options: list[dict[str, Any]], rows: list[list[Any]]) -> str:
    first = options[0]["name"]
    norms = [(row[2], row[1]) for row in rows if row[0] == first]
    high, low = max(norms), min(norms)
    return (
        f"{first} has {plural(len(norms), 'tile')}; the largest weight norm is that of {high[1]} ({number(high[0])}), "
        f"the smallest that of {low[1]} ({number(low[0])})."
    )


# --- convolutions ---------------------------------------------------------------------------------------------


def _tiles(subject: Subject, layer: Convolution, range_: str, first: bool) -> tuple[Drawing, str]:
    """Return the filters of one convolution, and a sentence that describes them."""
    weight = layer.weight.detach().float().cpu()  # (O, C, *kernel)
    if "filter" in subject.options:
        k = parse_index(subject.options, "filter", 0, len(weight))
        return _slices(layer, weight[k], k, range_)
    norms = weight.flatten(1).norm(dim=1)  # (O,)
    kept = range(min(MOST, len(weight)))
    some = f"{len(kept)} of {count(len(weight))} filters" if len(weight) > len(kept) else f"all {len(weight)} filters"
    what = f"{layer.name}: {some}, {shape_text(layer.weight.shape[1:])} weights each."
    words = _words(subject, layer, weight, kept)
    tiles = []
    weight = _strip(weight)  # (O, C, *kernel) with at most two kernel axes
    colour = weight.ndim == 4 and weight.shape[1] == 3
    largest = float(weight.abs().max()) if range_ != "unit" else 0.0
    for k in kept:
        w = weight[k]  # (C, *kernel)
        tip = [f"filter {k}", f"norm {number(float(norms[k]))}", *words.get(k, [])]
        tile = {"label": str(k), "tip": tip, "norm": float(to_lists(norms[k]))}
        if colour:
            tiles.append(tile | {"image": _coloured(w, largest)})
        elif w.ndim == 2:
            tiles.append(tile | {"values": to_lists(w.T[:, :CHANNELS] if len(w) > STEEP * w.shape[1] else w)})
        else:
            strongest = int(w.flatten(1).norm(dim=1).argmax())
            if len(w) > 1:
                tip.append(f"slice with the largest norm: input channel {strongest}")
            tiles.append(tile | {"values": to_lists(downsample(w[strongest], PIXELS))})
    return charts.tiles(
        layer.name, tiles, range=range_
    ), f"{what} {_how(layer, weight, colour, bool(words), first)}".strip()


def _how(layer: Convolution, weight: Tensor, colour: bool, words: bool, first: bool) -> str:
    """Return a sentence that explains the tiles of a convolution, or an empty string."""
    if colour:
        return "Their inputs are red, green and blue; the tiles use these colors around gray."
    if weight.ndim == 3:
        steps = "words" if words else "steps"
        channels, long = weight.shape[1:]
        some = f", the first {CHANNELS} of {channels}" if channels > CHANNELS else ""
        ways = ("down", "a column") if channels > STEEP * long else ("from left to right", "a row")
        said = f"A tile shows the {steps} of the window {ways[0]}, and {ways[1]} for each input channel{some}."
        return f"{said} Point at a filter for the words that it responds most to." if words else said
    over = layer.weight.ndim == 5
    frames = "The weights of successive frames are side by side, separated by a column." if over else ""
    if weight.shape[1] > 1:
        slices = (
            f"Each has {weight.shape[1]} slices, one for each input channel; the one with the largest norm is shown"
        )
        return f"{slices}. filter= shows all slices of a filter. {frames}".strip()
    return f"Their input is the {'video' if over else 'image'} itself. {frames}".strip() if first else frames


def _slices(layer: Convolution, w: Tensor, k: int, range_: str) -> tuple[Drawing, str]:
    """Return every slice of one filter (C, *kernel)."""
    w = _strip(w[None])[0]
    norms = w.flatten(1).norm(dim=1)
    tiles = [
        {
            "label": f"{k} ← {c}",
            "values": to_lists(downsample(w[c], PIXELS)) if w.ndim == 3 else [to_lists(w[c])],
            "tip": [f"filter {k}, input channel {c}", f"norm {number(float(norms[c]))}"],
            "norm": float(to_lists(norms[c])),
        }
        for c in range(min(MOST, len(w)))
    ]
    some = f"{len(tiles)} of {len(w)} slices" if len(tiles) < len(w) else f"all {plural(len(w), 'slice')}"
    return charts.tiles(
        layer.name, tiles, range=range_
    ), f"{layer.name}, filter {k}: {some}, one for each input channel."


def _strip(weight: Tensor) -> Tensor:
    """Return kernels over frames, (O, C, T, H, W), as strips with a column of zeros between frames.

    The strips have the shape (O, C, H, T · W + T − 1). Other kernels are returned unchanged.
    """
    if weight.ndim != 5:
        return weight
    return F.pad(weight, (0, 1)).movedim(2, 3).flatten(3)[..., :-1]


def _coloured(w: Tensor, largest: float) -> str:
    """Return an RGB filter (3, H, W) as an image, with 0 as grey."""
    most = largest or float(w.abs().max()) or 1.0
    values = downsample(w / most, PIXELS).clamp(-1, 1)
    bytes_ = ((values + 1) / 2 * 255).round().to(torch.uint8)
    return image_url(Image.fromarray(bytes_.movedim(0, -1).contiguous().numpy()))


def _words(subject: Subject, layer: Convolution, weight: Tensor, kept: range) -> dict[int, list[str]]:
    """Return the token with the largest response at each position of the window, for filters over words."""
    embedding = getattr(subject.model, "embedding", None)
    if not isinstance(embedding, nn.Embedding) or weight.ndim != 3 or weight.shape[1] != embedding.embedding_dim:
        return {}
    tokenizer = getattr(subject.preprocessing, "tokenizer", None)
    if tokenizer is None:
        return {}
    written = list(tokenizer.tokens)
    vectors = embedding.weight.detach().float()[: len(written)]  # (V, C)
    best = torch.einsum("vc,ock->okv", vectors[2:], weight[: len(kept)]).argmax(2) + 2  # (O, k), without padding
    return {k: [f"responds most to: {' '.join(written[t] for t in best[k].tolist())}"] for k in kept}


# --- dense layers over images -------------------------------------------------------------------------------


def _templates(subject: Subject, name: str, weight: Tensor, shape: tuple[int, ...], range_: str) -> tuple[Drawing, str]:
    """Return the rows of a dense layer as images in the shape of its input."""
    rows = weight.float().cpu().view(-1, *shape)  # (O, C, H, W) or (O, T, F)
    target = get_target(subject)
    names = getattr(target, "names", None) if name == "head" else None
    if names is not None and len(rows) == 1:
        names = names[1:]
    tiles = []
    largest = float(rows.abs().max()) if range_ != "unit" else 0.0
    for k, row in enumerate(rows[:MOST]):
        label = str(names[k]) if names else str(k)
        norm = float(row.norm())
        tile = {"label": label, "tip": [label, f"norm {number(norm)}"], "norm": float(f"{norm:.4g}")}
        if row.ndim == 3 and len(row) == 3:
            tiles.append(tile | {"image": _coloured(row, largest)})
        elif row.ndim == 3:
            tiles.append(tile | {"values": to_lists(downsample(row[0], PIXELS))})
        else:
            tiles.append(tile | {"values": to_lists(row.T[:CHANNELS])})  # variables by steps
    some = f"{len(tiles)} of {len(rows)}" if len(tiles) < len(rows) else f"all {len(rows)}"
    what = "classes, each as an image of its weights" if names else "neurons, each as an image of its weights"
    return charts.tiles(name, tiles, range=range_), f"{name}: {some} {what}."


# --- kernels on a photo -----------------------------------------------------------------------------------------------


def _filtered_photo(subject: Subject) -> View:
    """Return the photo, the output of each kernel, and of two derivatives the gradient magnitude."""
    i = parse_index(subject.options, "example", 0, subject.count)
    model = subject.model
    own = model.given if isinstance(model, FixedKernels) else parse_kernel("sobel")
    given = parse_kernel(subject.options["kernel"]) if "kernel" in subject.options else own
    x, image = _gray_levels(subject, i)
    with torch.no_grad():
        y = FixedKernels(given).double()(x.double()[None, None])[0]  # (kernels, H, W)
    named = list(zip(given.parts, given.weights, strict=True))
    outputs = dict(zip(given.parts, y, strict=True))
    shown = [_output_tile(name, outputs[name], float(w.sum())) for name, w in named]
    if len(y) == 2:
        outputs["gradient magnitude"] = y.square().sum(0).sqrt()
        shown.append(_magnitude_tile(outputs["gradient magnitude"]))
    last, values = list(outputs.items())[-1]
    row, column = divmod(int(values.abs().argmax()), values.shape[1])
    weights = [
        {"label": name, "values": to_lists(w), "tip": [name, f"sum of the weights {number(float(w.sum()))}"]}
        for name, w in named
    ]
    written = [f"{name[:1].upper()}{name[1:]}: {kernel_text(w.tolist(), number)}." for name, w in named]
    photo = Path(subject.name(i)).name
    return View(
        id="filters",
        title="Filtered photo",
        says=f"{photo}, filtered with {given.name if given.name in KERNELS else 'the given kernel'}.",
        summary=(
            f"{shape_text((x.shape[1], x.shape[0]))} pixels in gray, with levels from 0 to 1. The largest absolute "
            f"value of the {last} output is {number(float(values.abs().max()))}, at row {row + 1} and column "
            f"{column + 1}."
        ),
        table=table(
            {"output": "text", "minimum": "number", "maximum": "number", "mean absolute value": "number"},
            [
                [name, *(to_lists(v) for v in (part.min(), part.max(), part.abs().mean()))]
                for name, part in outputs.items()
            ],
        ),
        drawings=[
            charts.tiles(
                photo,
                [{"label": "original", "image": image_url(image), "tip": ["original", photo]}, *shown],
                pixel=PHOTO / max(x.shape),
            ),
            charts.tiles("Kernels", weights),
            {"kind": "prose", "sentences": [said for said in (given.source, *written, _REPEATED) if said]},
        ],
    )


def _gray_levels(subject: Subject, i: int) -> tuple[Tensor, Image.Image]:
    """Return the gray levels (H, W) of example i, from 0 to 1, and its image at the same size."""
    original = subject.image(i)
    if original is None:
        raise ModelError(
            "kernel= filters an image, and these examples are not image files: give a photo, e.g. cutaway inspect "
            "photo.jpg --view filters kernel=sobel."
        )
    image = original if original.mode in ("L", "RGB") else original.convert("RGB")
    if isinstance(subject.model, FixedKernels):
        x = subject.inputs[0][i, 0]
        return x, image.resize((x.shape[1], x.shape[0]), Image.Resampling.BILINEAR)
    image = image.copy()
    image.thumbnail((SIDE, SIDE))
    return torch.from_numpy(np.array(image.convert("L"))).float() / 255, image


def _output_tile(name: str, y: Tensor, total: float) -> dict[str, Any]:
    """Return the output of a kernel with this sum of weights as an image.

    A derivative, whose sum is 0, is drawn around middle gray; a blur, whose sum is 1, with the levels of the photo.
    """
    most = _nearly_largest(y)
    if abs(total) < 1e-4:
        tip, ends = [f"gray is 0, white {number(most)} or more, black {number(-most)} or less"], (-most, most)
    elif abs(total - 1) < 1e-4:
        tip, ends = ["black is 0 or less, white 1 or more"], (0.0, 1.0)
    else:
        ends = (float(y.min()), float(y.max()))
        tip = [f"black is {number(ends[0])}, white {number(ends[1])}"]
    along = {"x": "from left to right: large at vertical edges", "y": "downwards: large at horizontal edges"}
    said = along.get(name.rpartition(" ")[2])
    return {"label": name, "image": _gray_url(y, *ends), "tip": [name, *([said] if said else []), *tip]}


def _magnitude_tile(y: Tensor) -> dict[str, Any]:
    """Return the gradient magnitude as an image."""
    most = _nearly_largest(y)
    tip = ["gradient magnitude: √(x² + y²)", f"black is 0, white {number(most)} or more"]
    return {"label": "gradient magnitude", "image": _gray_url(y, 0.0, most), "tip": tip}


def _nearly_largest(y: Tensor) -> float:
    """Return an absolute value that half a percent of the pixels exceed, so that few of them do not darken the rest."""
    return float(y.abs().flatten().quantile(0.995)) or float(y.abs().max()) or 1.0


def _gray_url(y: Tensor, low: float, high: float) -> str:
    """Return values (H, W) as a gray image: `low` is black and `high` white."""
    levels = (255 * (y - low) / ((high - low) or 1.0)).clamp(0, 255).round().to(torch.uint8)
    return image_url(Image.fromarray(levels.numpy()))


OUT = 8  # most output cells per side
IN = 14  # most input cells per side, if the window allows it
STEPS = 20  # most cells of a signal
WINDOW_CHANNELS = 6  # most input channels that are shown separately


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


def draw_arithmetic(subject: Subject) -> View:
    """Return the window over one input channel, with products and sums for a part of one output channel."""
    i = parse_index(subject.options, "example", 0, subject.count)
    layers: dict[str, Convolution | Pool] = {**flat_convolutions(subject.model), **flat_pools(subject.model)}
    asked = parse_choice(subject.options, "layer", list(layers), "layer with a window")
    name = _first(layers) if asked is None else asked
    layer = layers[name]
    called = f"layer {name}" if name.isdigit() else name or subject.called  # "" is the model itself
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
        says=f"How {called} computes channel {channel} of its output for {subject.name(i)}: move the window.",
        summary=(
            f"{called} has a window of {shape_text(layer.kernel)}, stride {shape_text(layer.stride)}, padding"
            f" {shape_text(layer.padding)}. Its output at {at} is {number(cell)}: {how[drawing['what']]}."
        ),
        table=_table(drawing, parts, crops),
        drawings=[drawing],
    )


def _axes(crops: list[Crop]) -> list[str]:
    return ["row", "column"] if len(crops) == 2 else ["step"]


# --- recorded inputs and outputs --------------------------------------------------------------------------------------


def _first(layers: dict[str, Convolution | Pool]) -> str:
    """Return the first convolution whose window has more than one entry; without convolutions, the first such pool."""
    names = [name for name, layer in layers.items() if isinstance(layer, Convolution)] or list(layers)
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
        raise ModelError(
            f"{name or subject.called} is not called for {subject.name(i)}: choose another layer with layer=."
        )
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
    """Return the drawing of a convolution's window with its products, and the rows of the table."""
    weight = layer.weight[channel].double().cpu()  # (C / groups, *kernel)
    inputs = len(weight)
    group = channel // (len(layer.weight) // layer.groups)
    x = seen.x[group * inputs : (group + 1) * inputs]
    part, _ = _windows(x, layer, crops, 0.0)
    by_channel = sums(seen, layer, channel, crops)  # (C / groups, *outputs)
    order = weight.flatten(1).norm(dim=1).argsort(descending=True)[:WINDOW_CHANNELS].sort().values.tolist()
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
    drawing = _window_drawing(subject, i, layer, seen, channel, crops) | {
        "what": "sum",
        "channels": shown,
        "bias": None if bias is None else float(f"{bias:.4g}"),
        "dilation": list(_two(layer.dilation)),
    }
    return drawing, shown


def _pooling(
    subject: Subject, i: int, layer: Pool, seen: InputOutput, channel: int, crops: list[Crop]
) -> tuple[Drawing, list[dict[str, Any]]]:
    """Return the drawing of a pooling window, and the rows of the table."""
    fill = float("-inf") if layer.what == "max" else 0.0 if layer.counts_padding else float("nan")
    part, windows = _windows(seen.x[channel : channel + 1], layer, crops, fill)
    values = windows[0].flatten(len(crops))
    found = values.amax(-1) if layer.what == "max" else values.mean(-1) if layer.counts_padding else values.nanmean(-1)
    shown = [{"name": f"channel {channel}", "input": _grid(part[0]), "sums": _grid(found)}]
    drawing = _window_drawing(subject, i, layer, seen, channel, crops) | {
        "what": layer.what,
        "channels": shown,
        "bias": None,
        "dilation": [1, 1],
    }
    return drawing, shown


# --- drawing --------------------------------------------------------------------------------------------------


def _window_drawing(
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
        "title": f"{layer.name or subject.called}, channel {channel} of {count(len(seen.y))}: {whole_}",
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
