"""The feature maps of each layer for one example."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..draw import charts
from ..draw.description import Drawing, View, table
from ..draw.number_format import count, number, percent, plural, shape_text
from ..models.base import TokenGrid
from .common import (
    convolutions,
    evenly_spaced,
    find_token_grid,
    hook_outputs,
    parse_choice,
    parse_index,
    patch_blocks,
    run_example,
)
from .json_values import downsample, image_url, tensor_url, to_lists
from .subject import Subject

SAYS = "feature maps: the output of each channel of a layer for one example"
READ = (
    "The input image comes first; every other tile is one channel of the layer: purple where it is above zero, green "
    "below, gray at zero. Channels are sorted by their mean absolute value; the number is the index of the channel. "
    "Deeper layers have fewer positions and more abstract features. For a vision transformer, the tiles are the "
    "principal components of its tokens, arranged like the patches."
)
MISLEADS = (
    "The maps are of one example: a channel that is inactive here may be active for the next. The function of a "
    "channel cannot be read off one image. Each map has its own color range, so weak maps look as strong as others; "
    "choose one range for all to compare them. Layers are shown as their module outputs them, often before the "
    "activation. Tokens late in a transformer need not describe their own patch (T. Darcet, M. Oquab, J. Mairal, P. "
    "Bojanowski, Vision transformers need registers, 2023)."
)
OPTIONS = {
    "layer": "name of the layer",
    "example": "index of the example, from 0",
    "frame": "frame of a video, from 0; default the middle one",
}

MAPS = 20  # most maps of a layer that are shown
LAYERS = 12  # most layers to choose from
PIXELS = 28  # most pixels per side of a map
INPUT_PIXELS = 112  # most pixels per side of the input image
STEPS = 160  # most steps of a signal
VARIABLES = 4  # most variables of a series that are drawn
COMPONENTS = 6  # most principal components of tokens


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


def suits(subject: Subject) -> bool:
    """Return whether the model's layers have maps: it has convolutions, or it is a vision transformer."""
    return bool(convolutions(subject.model) or patch_blocks(subject))


def view(subject: Subject) -> View:
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
        drawings=[*_signal(subject, i), *(options[0]["drawings"] if len(options) == 1 else [drawing])],
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
