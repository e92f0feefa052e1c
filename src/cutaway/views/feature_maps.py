"""The feature maps of each layer for one example, and its receptive field: extent and influence of each pixel."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from PIL import Image, ImageDraw, ImageStat
from torch import Tensor, nn

from ..checkpoints.custom import CustomPreset
from ..core.errors import ModelError
from ..draw import charts
from ..draw.description import Drawing, View, table
from ..draw.number_format import count, number, percent, plural, shape_text
from ..inspect.layers import LayerTable, layer_table, preset_layer_table
from ..inspect.receptive_field import ORANGE
from ..models.base import TokenGrid
from ..nn.modules import eval_mode
from .json_values import downsample, evenly_spaced, image_url, tensor_url, to_lists
from .model_layers import convolutions, find_token_grid, hook_outputs, patch_blocks, run_example
from .subject import Subject, parse_choice, parse_index

MAPS = 20  # most maps of a layer that are shown
LAYERS = 12  # most layers to choose from
PIXELS = 28  # most pixels per side of a map
INPUT_PIXELS = 112  # most pixels per side of the input image
STEPS = 160  # most steps of a signal
VARIABLES = 4  # most variables of a series that are drawn
COMPONENTS = 6  # most principal components of tokens
COLOURS = ("red", "green", "blue")
INPUT_CHANNELS = 8  # most channels of the input that are shown


class Frame(NamedTuple):
    """A frame of a video."""

    number: int  # counted from 0
    of: int  # frames of the video

    def among(self, maps: int) -> int:
        """Return the index of the frame among `maps` maps over time; layers with a stride have fewer maps."""
        return self.number * maps // self.of


class LayerMaps(NamedTuple):
    """The strongest maps of a layer, at reduced size."""

    kept: list[int]  # the channels shown
    maps: Tensor  # (kept, H, W) or (kept, T)
    size: tuple[int, ...]  # channels, then positions, before reduction
    strength: list[float]  # mean absolute value of each channel shown
    silent: float  # the fraction of all channels that are zero everywhere


def draw_features(subject: Subject) -> View:
    """Return one example's strongest maps in up to twelve layers, or in the selected layer."""
    i = parse_index(subject.options, "example", 0, subject.count)
    frame = _frame(subject, i)
    names = _layers(subject, i)
    asked = parse_choice(subject.options, "layer", names, "layer with maps")
    some = [asked] if asked else evenly_spaced(_main(names), LAYERS)
    seen = _capture_maps(subject, i, some, frame)
    rows: list[list[Any]] = [[name, shape_text(s.size), s.strength[0], s.silent] for name, s in seen.items()]
    options: list[dict[str, Any]] = [
        {"name": name, "drawings": _drawings(subject, i, name, s, frame)} for name, s in seen.items()
    ]
    drawing: Drawing = charts.choice("Feature maps", "layer", options, slider=True)
    first, last = rows[0], rows[-1]
    went = (
        f"{first[0]} has {first[1]} values and {last[0]} {last[1]}"
        if len(rows) > 1
        else f"{first[0]} has {first[1]} values"
    )
    silent = max(rows, key=lambda row: row[3])
    dead = f" In {silent[0]}, {percent(silent[3])} of the channels are zero everywhere." if silent[3] > 0 else ""
    left = (
        f" {len(rows)} of {len(names)} layers with maps are shown; layer= selects another."
        if len(rows) < len(names)
        else ""
    )
    columns = {
        "layer": "text",
        "channels and positions": "text",
        "strongest channel, mean absolute value": "number",
        "inactive channels": "fraction",
    }
    return View(
        id="features",
        title="Feature maps",
        says=f"Outputs of the layers for {_source(subject, i, frame)}: one tile for each channel, the strongest first.",
        summary=f"Channels and positions: {went}.{dead}{left}",
        table=table(columns, rows),
        drawings=[
            *_signal(subject, i),
            *([] if asked else _input_channels(subject, i, frame)),
            *(options[0]["drawings"] if len(options) == 1 else [drawing]),
        ],
    )


# --- capture --------------------------------------------------------------------------------------------------


def _frame(subject: Subject, i: int) -> Frame | None:
    """Return the selected frame of a video, by default the middle one; None for other data."""
    if subject.kind != "video":
        return None
    frames = int(subject.inputs[1][i].sum()) if len(subject.inputs) > 1 else subject.inputs[0].shape[1]
    return Frame(parse_index(subject.options, "frame", frames // 2, frames), frames)


def _source(subject: Subject, i: int, frame: Frame | None) -> str:
    return subject.name(i) if frame is None else f"frame {frame.number} of {subject.name(i)}"


def _extract_maps(module: nn.Module, output: Any, frame: Frame | None = None) -> Tensor | None:
    """Return the first example's maps of a module's output, (C, H, W), or (C, T) for a convolution over steps, or None.

    For a video, the maps are those of the frame. Other outputs with three axes are tokens and have no maps.
    """
    y = output[0] if isinstance(output, tuple) and output else output
    if not isinstance(y, Tensor) or not y.is_floating_point() or not len(y):
        return None
    if y.ndim == 5 and y.shape[3] * y.shape[4] > 1:  # (1, C, T', H, W)
        return y[0, :, frame.among(y.shape[2]) if frame else 0].detach()
    if y.ndim == 4 and y.shape[2] * y.shape[3] > 1:  # (1, C, H, W); for a video with separate frames (T, C, H, W)
        return y[frame.among(len(y)) if frame else 0].detach()
    return y[0].detach() if y.ndim == 3 and isinstance(module, nn.Conv1d) else None


def _layers(subject: Subject, i: int) -> list[str]:
    """Return the modules with maps, in call order."""
    found: dict[str, None] = {}
    blocks = patch_blocks(subject)

    def see(name: str, module: nn.Module, args: Any, output: Any) -> None:
        if name in blocks or _extract_maps(module, output) is not None:
            found.setdefault(name)

    with hook_outputs(subject.model, see):
        run_example(subject, i)
    return list(found)


def _main(names: list[str]) -> list[str]:
    """Return the outermost modules if there are too many to choose from."""
    depth = 0
    while len(names) > LAYERS and depth < 4:
        outer = [name for name in names if name.count(".") <= depth]
        if len(outer) >= 4:
            return outer
        depth += 1
    return names


def _capture_maps(subject: Subject, i: int, names: list[str], frame: Frame | None) -> dict[str, LayerMaps]:
    """Return the maps of the layers, each reduced when its layer has run."""
    found: dict[str, LayerMaps] = {}
    grid, blocks = find_token_grid(subject), patch_blocks(subject)

    def see(name: str, module: nn.Module, args: Any, output: Any) -> None:
        if grid is not None and name in blocks:
            found.setdefault(name, _tokens(grid, output[0]))
        elif (y := _extract_maps(module, output, frame)) is not None:
            found.setdefault(name, _strongest(y.float().cpu()))

    with hook_outputs(subject.model, see, names):
        run_example(subject, i)
    return found


def _strongest(y: Tensor) -> LayerMaps:
    """Return the strongest maps of y, (C, H, W) or (C, T); values that are not finite, such as masks, count as zero."""
    y = y.nan_to_num(0.0, 0.0, 0.0)
    strength = y.abs().flatten(1).mean(1)  # (C,)
    kept = strength.argsort(descending=True)[:MAPS]
    maps = y[kept].clone()
    if maps.ndim == 3:
        maps = downsample(maps, PIXELS)
    elif maps.shape[1] > STEPS:
        maps = torch.nn.functional.adaptive_avg_pool1d(maps, STEPS)
    silent = float((y.flatten(1) == 0).all(1).double().mean())
    return LayerMaps(kept.tolist(), maps, tuple(y.shape), to_lists(strength[kept]), silent)


def _tokens(grid: TokenGrid, z: Tensor) -> LayerMaps:
    """Return the norm and the principal components of the patch tokens z (T, D), as maps over patches."""
    height, width = grid.rows, grid.columns
    z = z[grid.before :].detach().float().cpu()  # without the class token
    centred = z - z.mean(0)
    _, scales, directions = torch.linalg.svd(centred, full_matrices=False)
    most = min(COMPONENTS, len(scales))
    maps = (centred @ directions[:most].T).T.view(most, height, width)  # (components, H, W)
    parts = scales[:most].square() / scales.square().sum().clamp(min=1e-30)
    lengths = z.norm(dim=1).view(1, height, width)
    return LayerMaps(
        [-1, *range(most)],
        torch.cat([lengths, maps]),
        (z.shape[1], height, width),
        to_lists(torch.cat([lengths.mean()[None], parts])),
        0.0,
    )


# --- drawing --------------------------------------------------------------------------------------------------


def _drawings(subject: Subject, i: int, name: str, seen: LayerMaps, frame: Frame | None) -> list[Drawing]:
    """Return the maps of one layer as tiles, with the distribution of their strength."""
    if -1 in seen.kept:
        return _token_drawings(subject, i, name, seen)
    if seen.maps.ndim == 2:
        return [_over_steps(subject, i, name, seen)]
    tiles = [
        {
            "label": str(k),
            "values": to_lists(values),
            "tip": [
                f"channel {k}",
                f"mean absolute value {number(s)}",
            ],
        }
        for k, s, values in zip(seen.kept, seen.strength, seen.maps, strict=True)
    ]
    given = _input_tile(subject, i, frame)
    some = (
        f"the {len(tiles)} strongest of {count(seen.size[0])} channels"
        if len(tiles) < seen.size[0]
        else plural(len(tiles), "channel")
    )
    title = f"{name}: {some}, {shape_text(seen.size[1:])} positions each"
    return [charts.tiles(title, [*given, *tiles])]


def _input_tile(subject: Subject, i: int, frame: Frame | None = None) -> list[dict[str, Any]]:
    """Return the input image, or the frame of a video, as a tile."""
    image, x = subject.image(i), subject.inputs[0][i]
    if frame is not None:
        image, x = None, x[frame.number]
    if image is None and x.ndim != 3:
        return []
    url = image_url(image, INPUT_PIXELS) if image is not None else tensor_url(downsample(x.float(), INPUT_PIXELS))
    return [{"label": "input", "image": url, "tip": ["input", subject.name(i)]}]


def _input_channels(subject: Subject, i: int, frame: Frame | None) -> list[Drawing]:
    """Return the channels of an input image as gray tiles: red, green and blue; none for one channel without colors.

    A model of one channel reads a color image in gray: the tile is that gray image.
    """
    x = subject.inputs[0][i] if frame is None else subject.inputs[0][i][frame.number]
    if x.ndim != 3 or not 1 <= len(x) <= INPUT_CHANNELS:
        return []
    image = subject.image(i) if frame is None and len(x) in (1, 3) else None
    if len(x) == 1 and (image is None or image.mode == "L"):
        return []
    names = ("gray",) if len(x) == 1 else COLOURS if len(x) == 3 else tuple(f"channel {k}" for k in range(len(x)))
    if image is not None:
        given = image.convert("L" if len(x) == 1 else "RGB")
        parts = given.split()
        means = [f"mean {number(float(ImageStat.Stat(part).mean[0]))} of 255" for part in parts]
    else:  # scaled to the common range of all channels, so that they can be compared
        low, high = float(x.min()), float(x.max())
        scaled = (255 * (x.float() - low) / ((high - low) or 1.0)).round().to(torch.uint8).cpu()
        parts = tuple(Image.fromarray(part.numpy()) for part in scaled)
        means = [f"mean {number(float(part.float().mean()))}" for part in x]
    tiles = [
        {"label": name, "image": image_url(part, INPUT_PIXELS), "tip": [f"{name}: brighter is more", said]}
        for name, part, said in zip(names, parts, means, strict=True)
    ]
    what = "the gray channel" if len(x) == 1 else ", ".join(names[:-1]) + f" and {names[-1]}"
    return [charts.tiles(f"Input: {what}", tiles)]


def _signal(subject: Subject, i: int) -> list[Drawing]:
    """Return the input series as lines, standardized as the model receives it."""
    x = subject.inputs[0][i]
    if subject.kind != "series" or x.ndim != 2:
        return []
    series = [
        {"name": f"variable {v + 1}", "split": "", "points": [[t + 1, y] for t, y in enumerate(to_lists(x[:, v]))]}
        for v in range(min(VARIABLES, x.shape[1]))
    ]
    return [charts.lines(f"Input: {subject.name(i)}", "step", series, zero=False)]


def _token_drawings(subject: Subject, i: int, name: str, seen: LayerMaps) -> list[Drawing]:
    """Return the token of each patch as maps: its norm, and its channels."""
    places = shape_text(seen.size[1:])
    first = [
        {
            "label": "length",
            "values": to_lists(seen.maps[0]),
            "tip": ["norm of each token", f"mean {number(seen.strength[0])}"],
        }
    ]
    components = [
        {
            "label": f"component {k + 1}",
            "values": to_lists(values),
            "tip": [f"principal component {k + 1}", f"{percent(part)} of the tokens' variance"],
        }
        for k, part, values in zip(seen.kept[1:], seen.strength[1:], seen.maps[1:], strict=True)
    ]
    return [
        charts.tiles(f"{name}: principal components of {places} tokens", [*_input_tile(subject, i), *components]),
        charts.tiles(f"{name}: norm of each token", first, scale="amount"),
    ]


def _over_steps(subject: Subject, i: int, name: str, seen: LayerMaps) -> Drawing:
    """Return a map of channels by steps, with the strongest channels first."""
    steps = seen.maps.shape[1]
    some = (
        f"the {len(seen.kept)} strongest of {count(seen.size[0])} channels"
        if len(seen.kept) < seen.size[0]
        else plural(len(seen.kept), "channel")
    )
    fewer = f", means over {number(seen.size[1] / steps)} steps each" if steps < seen.size[1] else ""
    return charts.matrix(
        f"{name}: {some}, {seen.size[1]} steps{fewer}",
        to_lists(seen.maps),
        ("channel", [f"channel {k}" for k in seen.kept]),
        ("step", _steps(subject, i, name, steps)),
    )


def _steps(subject: Subject, i: int, name: str, steps: int) -> list[str]:
    """Return a name for each step: for text, the words of its window, if each step is a window."""
    numbers = [str(k + 1) for k in range(steps)]
    if subject.kind != "text":
        return numbers
    layer = convolutions(subject.model).get(name)
    words = subject.tokens(i)
    if layer is None or steps != len(words) + 2 * layer.padding[0] - layer.span[0] + 1:
        return numbers
    padded = ["·"] * layer.padding[0] + words + ["·"] * layer.padding[0]
    return [" ".join(padded[k : k + layer.span[0]]) for k in range(steps)]


FIELD_LAYERS = 6
DEAR = 4  # most layers, if one example alone exceeds WORK
EXAMPLES = 8  # most examples that gradients are averaged over
WORK = 6e9  # most MACs of the view
COVERED = 0.95  # fraction of the gradient inside the effective field
SIDE = 256  # most pixels per side of the image with the frame
CELLS = 56  # most cells per side of the map


class Field(NamedTuple):
    """The receptive field of one layer."""

    theoretical: int  # pixels across
    map: Tensor  # (H, W), the fraction of the gradient at each pixel
    effective: int  # width in pixels of the square, centred on the gradient, with 95 % of it
    frame: tuple[tuple[int, int], tuple[int, int]]  # (first, last + 1) pixel of the rows and of the columns


def draw_field(subject: Subject) -> View:
    """Return the receptive fields of up to six layers on one example's image."""
    i = parse_index(subject.options, "example", 0, subject.count)
    layers = _layer_table(subject)
    known = _fields(subject, layers)
    asked = parse_choice(subject.options, "layer", list(known), "layer with a receptive field")
    names = [asked] if asked else _growing(known)
    if layers.multiply_adds > WORK:
        names = evenly_spaced(names, DEAR)
    n = _affordable(subject, layers, len(names))
    order = [i, *(k for k in range(subject.count) if k != i)][:n]
    maps = _gradients(subject, tuple(part[order] for part in subject.inputs), names)
    found = {name: _field(known[name], maps[name]) for name in names if name in maps}
    if not found:
        raise ModelError(
            f"The gradient of {', '.join(names)} is zero for this example: choose another layer or example."
        )
    height, width = subject.inputs[0].shape[2:]
    rows = [[name, f.theoretical, f.effective, _inside(f)] for name, f in found.items()]
    last, end = list(found)[-1], list(found.values())[-1]
    columns = {
        "layer": "text",
        "theoretical field, pixels": "count",
        "95 % of the gradient, pixels": "count",
        "gradient in the middle half": "fraction",
    }
    return View(
        id="field",
        title="Receptive field",
        says="The theoretical receptive field of each layer (orange frame) and the effect of each pixel (color).",
        summary=(
            f"The receptive field of {last} is {plural(end.theoretical, 'pixel')} wide in an image of "
            f"{count(max(height, width))}; 95\u202f% of its gradient lies within {count(end.effective)}. "
            f"Gradients are averaged over {plural(len(order), 'example')}."
        ),
        table=table(columns, rows),
        drawings=[_overlay(subject, i, found), *_bars(found)],
    )


# --- layers and their theoretical fields -------------------------------------------------------------------


def _layer_table(subject: Subject) -> LayerTable:
    """Return the layers by the preset's config, or by running the model if it is custom or has no such table."""
    shape = tuple(subject.inputs[0].shape[1:])
    if isinstance(subject.preset, CustomPreset):
        return layer_table(subject.model, subject.inputs[0][:1])
    try:
        return preset_layer_table(subject.preset, subject.config, shape)
    except ModelError:
        return layer_table(subject.model, subject.inputs[0][:1])


def _fields(subject: Subject, layers: LayerTable) -> dict[str, int]:
    """Return the theoretical field of every module that has one, in call order; tokens cover the whole image."""
    found = {}
    height, width = subject.inputs[0].shape[2:]
    blocks = patch_blocks(subject)
    for name, row in layers.blocks.items():
        if name in blocks:
            found[name] = max(height, width)
        elif name and row.receptive_field and len(row.shape) == 4 and row.shape[2] * row.shape[3] > 1:
            found[name] = row.receptive_field
    return found


def _growing(known: dict[str, int]) -> list[str]:
    """Return the layers at which the field grows, evenly spaced, and the last layer."""
    first: dict[int, str] = {}
    for name, size in known.items():
        if size > max(first, default=1):
            first[size] = name
    names = list(first.values()) or list(known)[:1]
    last = list(known)[-1]
    return evenly_spaced(names if last in names else [*names, last], FIELD_LAYERS)


def _affordable(subject: Subject, layers: LayerTable, names: int) -> int:
    """Return the number of examples whose gradients can be computed."""
    for_one = layers.multiply_adds / max(1, layers.input[0]) * (1 + names / 2)
    return max(1, min(EXAMPLES, subject.count, int(WORK / max(1.0, for_one))))


# --- effective field -----------------------------------------------------------------------------------------


def _gradients(subject: Subject, inputs: tuple[Tensor, ...], names: list[str]) -> dict[str, Tensor]:
    """Return, for each layer, the influence of every pixel on the middle of its map, (H, W), summing to 1.

    Layers without a gradient are left out. It takes one forward pass and one backward pass per layer.
    """
    middles: dict[str, Tensor] = {}
    grid = find_token_grid(subject)

    def store_middle(name: str, module: nn.Module, args: Any, output: Any) -> None:
        y = output[0] if isinstance(output, tuple) else output
        if name in middles or not isinstance(y, Tensor):
            return
        if y.ndim == 3 and grid is not None:  # tokens: use the middle patch
            middles[name] = y[:, grid.before + (grid.rows // 2) * grid.columns + grid.columns // 2].sum()
        else:
            middles[name] = y[:, :, y.shape[2] // 2, y.shape[3] // 2].sum()

    x, *others = inputs
    x = x.detach().clone().requires_grad_()
    with eval_mode(subject.model), torch.enable_grad(), hook_outputs(subject.model, store_middle, names):
        subject.model(x.clone(), *others)  # a copy, because a first layer may write over x in place
    found = {}
    for k, (name, middle) in enumerate(middles.items()):
        (gradient,) = torch.autograd.grad(
            middle, x, retain_graph=k + 1 < len(middles), allow_unused=True, materialize_grads=True
        )
        spread = gradient.detach().abs().sum(1).mean(0).double()  # (H, W)
        if float(spread.sum()) > 0:
            found[name] = spread / spread.sum()
    return {name: found[name] for name in names if name in found}


def _field(theoretical: int, spread: Tensor) -> Field:
    height, width = spread.shape
    frame = (_ends(spread.sum(1), theoretical), _ends(spread.sum(0), theoretical))
    rows, columns = torch.arange(height), torch.arange(width)
    y, x = float((spread.sum(1) * rows).sum()), float((spread.sum(0) * columns).sum())
    far = torch.maximum((rows - y).abs()[:, None], (columns - x).abs()[None])  # (H, W), from the gradient's middle
    order = far.flatten().argsort()
    enough = int((spread.flatten()[order].cumsum(0) < COVERED).sum())
    radius = float(far.flatten()[order[min(enough, len(order) - 1)]])
    effective = min(theoretical, round(2 * radius) + 1, max(height, width))
    return Field(theoretical, spread, effective, frame)


def _ends(line: Tensor, size: int) -> tuple[int, int]:
    """Return the start and end of a field of `size` along an axis, from the positions with a nonzero gradient.

    An end inside the image fixes the field. If neither or both ends are inside, the field is centred on them.
    """
    places = (line > 0).nonzero().flatten()
    first, last, n = int(places[0]), int(places[-1]) + 1, len(line)
    if first > 0 and last == n:
        return first, first + size
    if first == 0 and last < n:
        return last - size, last
    begin = round((first + last - size) / 2)
    return begin, begin + size


def _inside(f: Field) -> float:
    """Return the fraction of the gradient in the middle half of the frame, a quarter of its area."""
    (top, bottom), (left, right) = f.frame
    quarter = f.theoretical / 4
    rows, columns = torch.arange(f.map.shape[0]) + 0.5, torch.arange(f.map.shape[1]) + 0.5
    down = (rows > top + quarter) & (rows < bottom - quarter)
    across = (columns > left + quarter) & (columns < right - quarter)
    return float(to_lists(f.map[down][:, across].sum()))


# --- drawing --------------------------------------------------------------------------------------------------


def _overlay(subject: Subject, i: int, found: dict[str, Field]) -> Drawing:
    """Return the effective receptive fields over the image, with the frames of the theoretical ones."""
    items = []
    x = subject.inputs[0][i]
    for name, f in found.items():
        tip = [
            name,
            f"{plural(f.theoretical, 'pixel')} wide",
            f"95\u202f% of the gradient within {count(f.effective)}",
            f"{percent(_inside(f))} of it in the middle quarter of the frame's area",
        ]
        values = downsample(f.map.float()[None], CELLS)[0]
        items.append(
            {
                "label": name,
                "image": _framed(x, f.frame),
                "values": to_lists(values / values.max()),
                "tip": tip,
                "warning": None,
            }
        )
    height, width = x.shape[1:]
    title = f"Fields on {subject.name(i)}, {number(height)}×{number(width)} pixels"
    return charts.overlay(title, items, scale="amount")


def _framed(x: Tensor, frame: tuple[tuple[int, int], tuple[int, int]]) -> str:
    """Return the input image (C, H, W) in grey with the frame drawn on it."""
    grey = x.detach().float().cpu().mean(0)
    grey = (grey - grey.min()) / (grey.max() - grey.min()).clamp(min=1e-12)
    image = Image.fromarray((grey * 255).round().to(torch.uint8).numpy()).convert("RGB")
    scale = max(1, SIDE // max(image.size))
    image = image.resize((image.width * scale, image.height * scale), Image.Resampling.NEAREST)
    (top, bottom), (left, right) = ((first * scale, after * scale - 1) for first, after in frame)
    thick = max(2, max(image.size) // 100)
    inner = (max(left, -thick), max(top, -thick), min(right, image.width + thick), min(bottom, image.height + thick))
    ImageDraw.Draw(image).rectangle(inner, outline=ORANGE, width=thick)
    return image_url(image.quantize(64).convert("RGB"), SIDE)


def _bars(found: dict[str, Field]) -> list[Drawing]:
    """Return the theoretical and the effective width of each layer's field as bars."""
    if len(found) < 2:
        return []
    rows = [
        {
            "label": name,
            "cells": [{"value": f.theoretical}, {"value": f.effective}],
            "tip": [
                name,
                f"{plural(f.theoretical, 'pixel')} wide",
                f"95\u202f% of the gradient within {count(f.effective)}",
            ],
        }
        for name, f in found.items()
    ]
    columns = [
        charts.bar("theoretical, pixels"),
        charts.bar("95\u202f% within"),
    ]
    return [charts.rows("Fields by layer", columns, rows)]
