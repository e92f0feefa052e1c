"""Examples of a data set with their labels, as a page: what a network will be trained on.

Images are a grid with a row for each class, masks are drawn over them in the colours of their classes, boxes around the
objects, and captions below. Recordings are waveforms, with their transcripts if there are any; signals and forecasts
are curves; rows of tables, texts, pairs, nodes, links and graphs are lines of a table. The examples are drawn at random
from the training split, by a seed.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from ..core.errors import DataError, Problem
from ..core.spec import Boxes, Horizon, Mask, Spec, Transcript, Value
from ..core.version import __version__
from ..data.audio.audio_files import read_samples
from ..data.dataset_base import IGNORED, DataSet, Split, inverse_transform
from ..data.images.detection import BoxPreprocessing
from ..data.images.segmentation import MaskPreprocessing, overlay_mask
from ..data.open_data import infer_kind, open_data
from ..data.series.transforms import WindowSplit
from ..data.settings import DataSettings
from ..draw import charts
from ..draw.description import Drawing, Page, View, table
from ..draw.number_format import count, number, plural, shape_text
from .json_values import downsample, evenly_spaced, image_url, tensor_url
from .run.task_results import swatch

PER_CLASS = 8  # default number of examples of each class
MAX_CLASSES = 20  # most classes on a page
WINDOWS = 6  # most windows of a forecast that are drawn
WITHOUT_CLASSES = 3  # times as many examples, if there are no classes
PIXELS = 96  # most pixels of the longer side of a thumbnail
LARGE = 192  # the same of an image with a mask or with boxes
CHARS = 200  # most characters of a column or a text
STEPS = 200  # most steps of a signal
COLUMNS = 12  # most columns of a table
WAVE = (160, 56)  # pixels of a waveform, width and height
NOUNS = {
    "image": "image", "table": "row", "text": "text", "seq2seq": "pair", "series": "signal", "audio": "recording",
    "video": "video", "graph": "example",
}  # fmt: skip


def open_examples(source: Any, settings: DataSettings) -> DataSet:
    """Open data without a model. A graph that has no target column is opened with its links as the target."""
    try:
        return open_data(source, settings)
    except DataError as error:
        if settings.target is not None or infer_kind(source, settings) != "graph":
            raise
        try:
            return open_data(source, replace(settings, links=True))
        except DataError:
            raise error from None


def examples_page(data: DataSet, per_class: int = PER_CLASS, seed: int = 0) -> Page:
    """Return the page of a data set: its splits, and random examples of the training split with their labels.

    Args:
        data: The data set.
        per_class: Number of examples of each class; three times as many if there are no classes.
        seed: Seed of the choice.

    Returns:
        The description of the page.
    """
    name = "train" if "train" in data.splits else next(iter(data.splits))
    split = data.splits[name]
    single: Any = getattr(split, "single_examples", None)  # of episodes
    split = single() if single else split
    groups = choose_examples(split, data.spec, per_class, seed)
    noun = NOUNS.get(data.spec.kind, "example")
    sizes = ", ".join(f"{key} {count(len(value))}" for key, value in data.splits.items())
    shown = sum(len(rows) for _, _, rows in groups)
    classes = len(getattr(data.spec.target, "names", ()))
    of = f" of {len(groups)} {'class' if len(groups) == 1 else 'classes'}" if groups[0][0] else ""
    rest = f" {len(groups)} of {count(classes)} classes are shown." if of and classes > len(groups) else ""
    view = View(
        id="examples",
        title="Examples",
        says=f"Random {noun}s of the {name} split with their {_shown_target(data)}; seed {seed}.",
        summary=f"{plural(shown, noun)}{of}. Splits: {sizes}.{rest}",
        table=table(
            {"class": "text", "example": "text", "label": "text"},
            [[key, split.name(i), label(split, data.spec, i)] for key, _, rows in groups for i in rows],
        ),
        drawings=_drawings(data, split, groups),
    )
    return Page(
        title=f"Examples of {data.name}",
        views=[_head(data, sizes), view],
        colophon=f"Cutaway {__version__} · This page is self-contained and loads nothing from the network.",
    )


def _shown_target(data: DataSet) -> str:
    """Return the noun of the targets that are shown."""
    if isinstance(data.spec.target, Mask):
        return "masks; pale pixels are not labelled"
    if isinstance(data.spec.target, Horizon):
        return "steps to forecast"
    return "boxes" if isinstance(data.spec.target, Boxes) else "labels"


def _head(data: DataSet, sizes: str) -> View:
    shape = getattr(data.spec, "shape", None)
    of = f", each of shape {shape_text(shape)}" if shape else ""
    notes: list[Drawing] = [{"kind": "prose", "sentences": list(data.notes)}] if data.notes else []
    return View(
        id="opened",
        title=data.name,
        says=f"{data.spec.kind.capitalize()} data{of}: {sizes}.",
        summary=f"Read from {data.source}." + (f" Licence: {data.licence}." if data.licence else ""),
        table=table({"split": "text", "examples": "count"}, [[key, len(split)] for key, split in data.splits.items()]),
        drawings=notes,
    )


# --- choice -----------------------------------------------------------------------------------------------------------


def choose_examples(split: Split, spec: Spec, per_class: int, seed: int) -> list[tuple[str, int, list[int]]]:
    """Return the name of each class, the number of its examples, and some of them at random, in order.

    Without classes there is one group with an empty name.
    """
    generator = torch.Generator().manual_seed(seed)

    def some(of: Tensor, most: int) -> list[int]:
        chosen: list[int] = of[torch.randperm(len(of), generator=generator)[:most]].sort().values.tolist()
        return chosen

    labels = _labels(split, spec)
    if labels is None:
        everything = torch.arange(len(split))
        return [("", len(split), some(everything, WITHOUT_CLASSES * per_class))]
    names = getattr(spec.target, "names", ())
    present = evenly_spaced(sorted({*labels.tolist()}), MAX_CLASSES)
    found = []
    for k in present:
        own = (labels == k).nonzero().flatten()
        found.append((str(names[k]), len(own), some(own, per_class)))
    return found


def _labels(split: Split, spec: Spec) -> Tensor | None:
    """Return the class of every example, (n,), or None if the examples have no single class."""
    names, target = getattr(spec.target, "names", ()), split.target
    if not names or target is None or len(target) != len(split):
        return None
    if target.ndim == 2 and target.is_floating_point() and target.shape[1] == len(names):
        target = target.argmax(1)  # probabilities
    whole = target.ndim == 1 and not target.is_floating_point() and len(target) > 0
    return target if whole and int(target.min()) >= 0 and int(target.max()) < len(names) else None


def label(split: Split, spec: Spec, i: int) -> str:
    """Return the label of example i: its class, or its value in the units of the data; "" for other targets.

    The label of a mask or of boxes is the classes in it, that of a recording with a transcript the transcript.
    """
    labels, target = _labels(split, spec), spec.target
    if isinstance(target, Mask) and split.target is not None:  # the number of pixels of each class
        return ", ".join(name for name, size in zip(target.names[1:], split.target[i, 1:].tolist()) if size)
    if isinstance(target, Boxes) and split.target is not None:
        kinds = split.target[i, :, 4].long().tolist()
        found = {target.names[k if k >= 0 else -1 - k] for k in kinds if k != IGNORED}
        return ", ".join(name for name in target.names if name in found)
    if labels is not None:
        return str(getattr(target, "names", ())[int(labels[i])])
    given = split.target
    if isinstance(target, Transcript) and given is not None and given.ndim == 2:
        return "".join(target.alphabet[k - 1] for k in given[i].tolist() if 0 < k <= len(target.alphabet))
    if isinstance(target, Value) and given is not None and given.ndim == 1 and len(given) == len(split):
        own = inverse_transform(split, given[i : i + 1], torch.tensor([i]))
        return number(float(own[0]) * target.scale + target.mean)
    return ""


# --- drawings ---------------------------------------------------------------------------------------------------------


def _drawings(data: DataSet, split: Split, groups: Sequence[tuple[str, int, list[int]]]) -> list[Drawing]:
    """Return the examples as images, waveforms, curves or lines of a table, by the kind of data."""
    kind = data.spec.kind
    if isinstance(data.preprocessing, BoxPreprocessing):
        return [_boxed(data.preprocessing, split, data.spec, [i for _, _, rows in groups for i in rows])]
    if isinstance(data.preprocessing, MaskPreprocessing):
        return [_grid(data, split, groups, _masked), _legend(data.preprocessing.target)]
    if kind in ("image", "video"):
        return [_grid(data, split, groups, _thumbnail)]
    if kind == "audio":
        return [_grid(data, split, groups, _waveform)]
    if isinstance(data.spec.target, Horizon) and isinstance(split, WindowSplit) and split.targets is not None:
        chosen = evenly_spaced([i for _, _, rows in groups for i in rows], WINDOWS)
        return [*(_window(split, data.spec.target, i) for i in chosen), _lines(split, data.spec, groups)]
    first = next((i for _, _, rows in groups for i in rows), None)
    if kind == "series" and first is not None and not split.row(first):
        return [_curves(split, data.spec, *group) for group in groups]
    return [_lines(split, data.spec, groups)]


def _grid(data: DataSet, split: Split, groups: Sequence[tuple[str, int, list[int]]], draw: Any) -> Drawing:
    """Return a grid of small images, with a row for each class."""
    noun = NOUNS.get(data.spec.kind, "example")
    tiles = []
    for name, size, rows in groups:
        for i in rows:
            said, row = label(split, data.spec, i), split.row(i) or {}
            file = Path(split.name(i)).name
            tiles.append(
                {
                    "label": file if name else said or next(iter(row.values()), file),
                    "group": f"{name}: {len(rows)} of {plural(size, noun)}" if name else "",
                    "image": draw(data, split, i),
                    "tip": [said or split.name(i), split.name(i), *_cells(row)],
                    "key": f"{name} {i}",
                }
            )
    return charts.tiles(f"Random {noun}s", tiles)


def _thumbnail(data: DataSet, split: Split, i: int) -> str:
    """Return an image before preprocessing, or the model's input if there is none."""
    image = split.image(i)
    if image is not None:
        return image_url(image, PIXELS)
    x = next(iter(split.batches([torch.tensor([i])]))).inputs[0][0]
    x = x[len(x) // 2] if x.ndim == 4 else x  # the middle frame of a video
    return tensor_url(downsample(x, PIXELS))


def _masked(data: DataSet, split: Split, i: int) -> str:
    """Return an image at the size of the model's input with its mask over it."""
    own = data.preprocessing
    assert isinstance(own, MaskPreprocessing)
    batch = next(iter(split.batches([torch.tensor([i])])))
    pixels, mask = own.to_pixels(batch.inputs[0])[0], batch.target[0].numpy()
    return image_url(Image.fromarray(overlay_mask(pixels, mask, own.target.ignored)), LARGE)


def _legend(target: Mask) -> Drawing:
    """Return the colours of the classes, without the background."""
    named = list(enumerate(target.names))[1:]
    return charts.tiles(
        "Colours of the classes", [{"label": name, "image": swatch(k), "tip": [name], "key": name} for k, name in named]
    )


def _boxed(own: BoxPreprocessing, split: Split, spec: Spec, rows: Sequence[int]) -> Drawing:
    """Return images with the boxes of their objects."""
    items, names = [], own.names
    for i in rows:
        image = split.image(i)
        assert image is not None, "a split of images has them"
        assert split.target is not None
        found = split.target[i]
        found = found[found[:, 0] != IGNORED]
        corners = own.fractions(found[:, :4], (image.height, image.width)).tolist()
        kinds = found[:, 4].long().tolist()  # of a crowd, -1 - class
        boxes = [
            {"box": [round(n, 4) for n in box], "name": names[k] if k >= 0 else f"{names[-1 - k]} (crowd)",
             "score": None, "kind": "actual"}
            for box, k in zip(corners, kinds)
        ]  # fmt: skip
        items.append(
            {
                "name": Path(split.name(i)).name,
                "image": image_url(image, LARGE),
                "boxes": boxes,
                "words": label(split, spec, i) or "no boxes",
                "note": "",
                "lines": [],
            }
        )
    return {"kind": "gallery", "title": "Random images", "items": items}


def _waveform(data: DataSet, split: Split, i: int) -> str:
    """Return the waveform of a recording; its spectrogram if its file is not found."""
    name = Path(split.name(i))
    for path in (name, Path(data.source).expanduser() / name):
        if not path.is_file():
            continue
        samples = read_samples(path)
        if isinstance(samples, Problem):
            break
        return image_url(_draw_waveform(samples), WAVE[0])
    batch = next(iter(split.batches([torch.tensor([i])])))
    x = batch.inputs[0][0]  # (T, F)
    return tensor_url(downsample(x.T.flip(0)[None], WAVE[0]))


def _draw_waveform(samples: np.ndarray[Any, Any]) -> Image.Image:
    """Draw the range of the samples in each column of pixels."""
    width, height = WAVE
    image = Image.new("L", WAVE, 255)
    draw = ImageDraw.Draw(image)
    most = float(np.abs(samples).max()) or 1.0
    for x, part in enumerate(np.array_split(samples, width)):
        low, high = (part.min(), part.max()) if len(part) else (0.0, 0.0)
        ends = [(height - 1) / 2 * (1 - v / most) for v in (high, low)]
        draw.line([(x, ends[0]), (x, ends[1])], fill=60)
    return image


def _curves(split: Split, spec: Spec, name: str, size: int, rows: list[int]) -> Drawing:
    """Return the first variable of some signals as curves."""
    series = []
    for i in rows:
        batch = next(iter(split.batches([torch.tensor([i])])))
        x = batch.inputs[0][0]  # (T, F)
        real = x[batch.inputs[1][0]] if len(batch.inputs) > 1 and batch.inputs[1].dtype == torch.bool else x
        steps = evenly_spaced(range(len(real)), STEPS)
        points = [[t + 1, float(f"{float(real[t].flatten()[0]):.4g}")] for t in steps]
        series.append({"name": "" if name else label(split, spec, i), "split": "train", "points": points})
    title = f"{name}: {len(rows)} of {plural(size, 'signal')}" if name else f"{plural(len(rows), 'signal')}"
    return charts.lines(f"{title}, standardized", "step", series, zero=False)


def _window(split: WindowSplit, target: Horizon, i: int) -> Drawing:
    """Return the first forecast variable of a window as curves: the steps that are seen, and those to forecast."""
    assert split.targets is not None
    start, columns = int(split.starts[i]), len(target.columns)
    both = split.targets[start - split.history : start + split.horizon]  # (T + H, C)
    own = inverse_transform(split, both.reshape(1, -1), torch.tensor([i])).reshape(-1, columns)[:, 0]
    values = (own.double() * target.scale[0] + target.mean[0]).tolist()
    points = [[t - split.history + 1, float(f"{v:.4g}")] for t, v in enumerate(values) if v == v]  # NaN: not measured
    seen = [point for point in points if point[0] <= 0]
    ahead = [*seen[-1:], *(point for point in points if point[0] > 0)]  # joined to what is seen
    series = [
        {"name": "", "split": "train", "points": seen},
        {"name": "to forecast", "split": "val", "points": ahead},
    ]
    return charts.lines(f"{target.columns[0]}, {split.name(i)}", "step", series, zero=False)


def _lines(split: Split, spec: Spec, groups: Sequence[tuple[str, int, list[int]]]) -> Drawing:
    """Return a table with a line for each example: its label, and its columns or its name."""
    chosen = [i for _, _, rows in groups for i in rows]
    given = {i: split.row(i) or {} for i in chosen}
    columns = list(dict.fromkeys(key for row in given.values() for key in row))
    shown = columns[:COLUMNS]
    labels = {i: label(split, spec, i) for i in chosen}
    named = any(labels.values()) and getattr(spec.target, "column", "") not in shown
    heads = [*(["label"] if named else []), *([] if shown else ["example"])]
    head = dict.fromkeys(heads, "text") | {(f"{c} (data)" if c in heads else c): "text" for c in shown}
    rows = [
        [
            *([labels[i]] if named else []),
            *([] if shown else [split.name(i)]),
            *(_shorten(given[i].get(c, "")) for c in shown),
        ]
        for i in chosen
    ]
    more = [f"{COLUMNS} of {len(columns)} columns are shown."] if len(columns) > COLUMNS else []
    return {"kind": "prose", "title": "Random examples", "sentences": more, "table": table(head, rows)}


def _cells(row: dict[str, str]) -> list[str]:
    return [_shorten(f"{key}: {value}") for key, value in row.items()]


def _shorten(text: str) -> str:
    return textwrap.shorten(str(text), CHARS, placeholder=" …")
