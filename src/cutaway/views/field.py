"""The receptive field of each layer: its theoretical extent, and the pixels with the largest influence."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from PIL import Image, ImageDraw
from torch import Tensor, nn

from ..checkpoints.custom import CustomPreset
from ..core.errors import ModelError
from ..draw import charts
from ..draw.description import Drawing, View, table
from ..draw.number_format import count, number, percent, plural
from ..inspect.layers import LayerTable, layer_table, preset_layer_table
from ..inspect.receptive_field import ORANGE
from ..nn.eval_mode import eval_mode
from .common import convolutions, evenly_spaced, find_token_grid, hook_outputs, parse_choice, parse_index, patch_blocks
from .json_values import downsample, image_url, to_lists
from .subject import Subject

SAYS = "receptive field of each layer on the image: theoretical, and effective by the gradient"
READ = (
    "The orange frame is the theoretical receptive field of the middle of the layer's map: no pixel outside it can "
    "change the value. The color is the effective receptive field: how much each pixel changes the value, by the "
    "gradient, averaged over examples. With depth, the theoretical field grows at every layer, and the effective field "
    "more slowly: with the square root of the depth."
)
MISLEADS = (
    "The frame shows which pixels can matter, but most have little effect: the gradient is strongest in the middle and "
    "decays towards the edges roughly like a Gaussian (W. Luo, Y. Li, R. Urtasun, R. Zemel, Understanding the "
    "effective receptive field in deep convolutional neural networks, 2016). Gradients describe small changes to these "
    "examples; other examples activate other units. If the field is larger than the image, part of the frame lies "
    "outside it."
)
OPTIONS = {"layer": "name of a single layer", "example": "index of the example whose image is shown, from 0"}

LAYERS = 6
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


def suits(subject: Subject) -> bool:
    """Return whether the model is for images and has convolutions; vision transformers have them too."""
    return subject.kind == "image" and subject.inputs[0].ndim == 4 and bool(convolutions(subject.model))


def view(subject: Subject) -> View:
    """Return the receptive fields of up to six layers on one example's image."""
    i = parse_index(subject.options, "example", 0, subject.count)
    layers = _table(subject)
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


def _table(subject: Subject) -> LayerTable:
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
    return evenly_spaced(names if last in names else [*names, last], LAYERS)


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
