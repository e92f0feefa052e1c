"""The weights of layers over images or signals, drawn as images."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from ..core.errors import SettingError
from ..draw import charts
from ..draw.description import Drawing, View, table
from ..draw.number_format import count, number, plural, shape_text
from .common import (
    Convolution,
    convolutions,
    evenly_spaced,
    find_dense_layers,
    find_linear,
    get_target,
    parse_choice,
    parse_index,
)
from .json_values import downsample, image_url, to_lists
from .subject import Subject

SAYS = "filters of convolutions, patch embeddings and first dense layers, as images of their weights"
READ = (
    "Each tile is a filter: purple weights are positive, green weights negative, gray weights near zero. A filter "
    "responds most to an input that looks like its tile; a filter over several video frames is a strip of tiles, the "
    "first frame on the left. Filters over red, green and blue are drawn in these colors around gray. Choose whether "
    "the color range is that of each tile, of the layer, or of all layers."
)
MISLEADS = (
    "Only the first layer reads the image itself: a later filter reads feature maps of other filters, and its shape "
    "means little without them. For later layers the slice with the largest norm is shown, not the whole filter. With "
    "its own color range, a filter with tiny weights looks as strong as the rest; compare its norm."
)
OPTIONS = {
    "layer": "name of the layer",
    "filter": "index of one filter, from 0, to show all its slices",
    "range": "scope of the color range: unit, layer or global",
}

MOST = 64  # most tiles of a layer
LAYERS = 16  # most layers to choose from
PIXELS = 32  # most pixels per side of a tile
CHANNELS = 64  # most channels in a tile of a filter over signals
STEEP = 8  # ratio of channels to steps above which a tile is transposed
RANGES = ("unit", "layer", "global")


def suits(subject: Subject) -> bool:
    """Return whether the model has a convolution, or a first dense layer over an image or a signal."""
    return bool(convolutions(subject.model)) or _dense(subject) is not None


def view(subject: Subject) -> View:
    """Return tiles of up to sixteen layers with filters, or of the selected layer."""
    range_ = subject.options.get("range", "unit")
    if range_ not in RANGES:
        raise SettingError(f"Invalid range={range_}: must be one of {', '.join(RANGES)}.")
    found = convolutions(subject.model)
    dense = _dense(subject)
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
    return _drawing(layer.name, tiles, range_), f"{what} {_how(layer, weight, colour, bool(words), first)}".strip()


def _how(layer: Convolution, weight: Tensor, colour: bool, words: bool, first: bool) -> str:
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
    return _drawing(layer.name, tiles, range_), f"{layer.name}, filter {k}: {some}, one for each input channel."


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


def _drawing(title: str, tiles: list[dict[str, Any]], range_: str) -> Drawing:
    return charts.tiles(title, tiles, range=range_)


# --- dense layers over images -------------------------------------------------------------------------------


def _dense(subject: Subject) -> tuple[str, Tensor, tuple[int, ...]] | None:
    """Return the name, weights (O, F) and input shape of a first dense layer over an image or a signal."""
    layers = list(find_dense_layers(subject.model).values())
    if not layers or subject.kind not in ("image", "series") or subject.inputs[0].ndim < 3:
        return None
    return layers[0].linear, find_linear(subject.model, layers[0]).weight.detach(), tuple(subject.inputs[0].shape[1:])


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
    return _drawing(name, tiles, range_), f"{name}: {some} {what}."
