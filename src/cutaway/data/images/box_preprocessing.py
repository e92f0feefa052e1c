"""Boxes on their way through the network: into the pixels that it sees, and from there back to those of a person's
image.

A batch's target is (N, M, 5) float32: x1, y1, x2, y2 in pixels of the network's input and the class, −1 − k for a crowd
of class k; rows that are no box are IGNORED throughout.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from ...errors import DataError
from ...spec import Boxes, ImageSizes, ImageSpec
from ..adopted import numbers_of
from ..assembly import Origin, assemble
from ..sets import IGNORED, DataSet, Preprocessing, Split
from ..settings import DataSettings
from ..splits import Rows, complete_split
from . import boxes as reading
from .boxes import Rectangles
from .dataset import at_hand, in_memory
from .file_split import FileSplit
from .files import look_at
from .masks import palette
from .preprocessing import ImagePreprocessing, choose_fit, fit_preprocessing
from .reading import Pixels, Size, covering, inside

READABLE = 256  # pixels of the shorter side of a picture that words are written in
ONE = ("image",)  # images with boxes have no class that a split could be stratified by


@dataclass(frozen=True)
class BoxPreprocessing(ImagePreprocessing):
    """How an image becomes a tensor, and its boxes with it."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the classes."""
        assert isinstance(self.spec.target, Boxes)
        return self.spec.target.names

    def placing(self, size: Size) -> tuple[float, float, float, float]:
        """Where a point (x, y) of an image of that size comes to stand: at (x · a + b, y · c + d), as (a, b, c, d)."""
        (height, width), whole = size, (self.spec.height, self.spec.width)
        drawn = whole
        if self.fit == "pad":
            drawn = inside(size, self.box)
        elif self.fit == "crop":
            # Of two sides one is met, and what is beyond the other is cut on both ends (`reading.crop_to`).
            scale = max(whole[0] / height, whole[1] / width)
            fits = covering(size, whole) == size
            left, top = (width * scale - whole[1]) / 2, (height * scale - whole[0]) / 2
            return (scale, -float(left // 1 if fits else left), scale, -float(top // 1 if fits else top))
        left, top = (whole[1] - drawn[1]) // 2, (whole[0] - drawn[0]) // 2
        return drawn[1] / width, float(left), drawn[0] / height, float(top)

    def moved(self, boxes: Rectangles, size: Size) -> Rectangles:
        """Boxes of an image of that size in the pixels that the network sees: cut where it does, none that leave."""
        a, b, c, d = self.placing(size)
        found = boxes * np.array([a, c, a, c, 1], np.float32) + np.array([b, d, b, d, 0], np.float32)
        found[:, 0:4:2] = found[:, 0:4:2].clip(0, self.spec.width)
        found[:, 1:4:2] = found[:, 1:4:2].clip(0, self.spec.height)
        kept: Rectangles = found[(found[:, 2] > found[:, 0]) & (found[:, 3] > found[:, 1])]
        return kept

    def original(self, boxes: Tensor, size: Size) -> Tensor:
        """Boxes (m, 4) of the network's pixels in those of the image, which has that size: `moved` turned around."""
        a, b, c, d = self.placing(size)
        found = (boxes.double() - boxes.new_tensor([b, d, b, d])) / boxes.new_tensor([a, c, a, c])
        return found.clamp(min=0).minimum(found.new_tensor([size[1], size[0], size[1], size[0]]))

    def fractions(self, boxes: Tensor, size: Size) -> Tensor:
        """Boxes (m, 4) of the network's pixels as fractions of the sides of the image, which has that size."""
        height, width = size
        return self.original(boxes, size) / torch.tensor([width, height, width, height])

    def pictured(self, image: Image.Image, said: Tensor) -> Image.Image:
        """The image in colour, with the boxes (m, 6) that are said of it, their classes and scores; several times as
        large, where words would hide it."""
        times = math.ceil(READABLE / min(image.size))
        picture = image.convert("RGB").resize((image.width * times, image.height * times), Image.Resampling.NEAREST)
        pen = ImageDraw.Draw(picture)
        thick = max(2, min(picture.size) // 150)
        font = ImageFont.load_default(max(10, min(picture.size) // 24))
        colours = [tuple(palette()[3 * k : 3 * k + 3]) for k in range(1, 256)]
        corners = self.original(said[:, :4], (image.height, image.width)) * times
        for (x1, y1, x2, y2), (kind, score) in zip(corners.flip(0).tolist(), said[:, 4:].flip(0).tolist()):
            colour, words = colours[int(kind) % len(colours)], f"{self.names[int(kind)]}: {100 * score:.0f} %"
            pen.rectangle((x1, y1, x2, y2), outline=colour, width=thick)
            left, top, right, bottom = pen.textbbox((0, 0), words, font)
            x, y = min(x1, picture.width - right), max(y1 - bottom - 1, 0)
            pen.rectangle((x + left, y + top - 1, x + right, y + bottom + 1), fill=colour)
            pen.text((x, y), words, "white" if sum(colour) < 384 else "black", font)
        return picture

    def adopted(self, split: Split, theirs: Preprocessing) -> Split:
        """The images of another set, and its boxes where they stand here. Raises DataError for a class that training
        did not know."""
        assert isinstance(theirs, BoxPreprocessing)
        assert split.target is not None, "sets to evaluate on have targets"
        images = [split.image(i) for i in range(len(split))]
        ours = numbers_of(theirs.names, self.names)
        rows = []
        for own, image in zip(split.target, images):
            assert image is not None, "a split of images has them"
            boxes = own[own[:, 0] != IGNORED].clone()
            boxes[:, :4] = theirs.original(boxes[:, :4], (image.height, image.width)).float()
            kind = boxes[:, 4].long()
            boxes[:, 4] = torch.where(kind < 0, -1 - ours[(-1 - kind).clamp(min=0)], ours[kind.clamp(min=0)]).float()
            rows.append(self.moved(boxes.numpy(), (image.height, image.width)))
        prepared = self.examples(images)
        prepared.target = torch.from_numpy(padded(rows))
        return prepared

    def labelled(self, source: str | Path) -> FileSplit:
        """The images of a folder with boxes: all of them, or, where it has splits, those of its test split, else val.

        Raises DataError where it has none, or a class that training did not know.
        """
        path = Path(source).expanduser()
        if not path.is_dir() or not reading.is_boxes(path):
            raise DataError(
                f"{source} is no folder of images with boxes.",
                fix="Give one with annotations.json, or with images/ and labels/, as it was trained on.",
            )
        found = reading.find(path)
        seen = look_at(found.files)
        rows, _ = found.boxes([s.facts.size for s in seen], self.names, drop=False)
        splits = found.splits or {"": np.arange(len(found.files))}
        chosen = next(splits[split] for split in ("test", "val", "train", "") if split in splits)
        target = padded([self.moved(rows[i], seen[i].facts.size) for i in chosen])
        return FileSplit(
            [found.files[i] for i in chosen], torch.from_numpy(target), self, [found.names[i] for i in chosen]
        )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` gives an equal object back."""
        return {**super().to_json(), "form": "boxes"}


def fit_boxes(spec: ImageSpec, images: Any, settings: DataSettings, own_size: Size | None) -> BoxPreprocessing:
    """Fit the preprocessing on training images, as `fit_preprocessing` does. An object at the edge of an image is worth
    as much as one in the middle: unless the setting says otherwise nothing is cut off, and what is not square is
    padded.
    """
    size = (spec.height, spec.width)
    fitted = vars(fit_preprocessing(spec, images, "pad" if settings.resize == "auto" else settings.resize, own_size))
    few = own_size is not None and choose_fit(own_size, size) == "pad"
    return BoxPreprocessing(**{**fitted, "box": fitted["box"] if few or settings.resize == "pad" else size})


def padded(boxes: Sequence[Rectangles]) -> Rectangles:
    """The boxes of n images as one array, (n, M, 5), M the most that one has."""
    target = np.full((len(boxes), max(1, *map(len, boxes)) if boxes else 1, 5), IGNORED, np.float32)
    for row, own in zip(target, boxes):
        row[: len(own)] = own
    return target


def target_for(classes: Sequence[str], boxes: Sequence[Rectangles], train: Rows) -> Boxes:
    """What is learned. Raises DataError where no training image has a box."""
    most = max(len(boxes[i]) for i in train)
    if most == 0:
        raise DataError("No training image has a box: there is nothing to learn.", fix="Add annotations to some.")
    return Boxes(tuple(classes), most)


def box_dataset(
    pixels: Pixels,
    boxes: Sequence[Rectangles],
    classes: Sequence[str],
    origin: Origin,
    settings: DataSettings,
    sizes: ImageSizes,
    splits: Mapping[str, Rows] | None = None,
) -> DataSet:
    """A named set of images with boxes: `pixels` (n, C, h, w), 0…255, the boxes of each, class k named `classes[k]`."""
    indices = complete_split(np.zeros(len(pixels), np.int64), ONE, splits, settings)
    target = target_for(classes, boxes, indices["train"])
    read = at_hand(pixels, indices, lambda _: target, settings, sizes)
    preprocessing = fit_boxes(read.spec, read.training, settings, read.own_size)
    labels = padded([preprocessing.moved(own, read.own_size) for own in boxes])
    held = in_memory(read.images, labels, indices, preprocessing, read.names, read.image)
    return assemble(origin, settings, indices, preprocessing, held, read.notes)
