"""Scenes composed of real handwritten digits, with known positions.

The scenes replace labelled photographs for masks, boxes and captions. Each is composed from a seed of digits of one
split, so that no handwriting of a test scene occurs in training.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

Pixels = npt.NDArray[np.uint8]
INK = 128  # smallest level of ink pixels
TRIES = 30  # attempts to find a free place, after which the scene has one digit fewer


@dataclass(frozen=True)
class Placed:
    """A digit in a scene: the box of its ink, [left, right) × [top, bottom), in pixels."""

    label: int
    source: int  # index of the source digit
    left: int
    top: int
    right: int
    bottom: int


@dataclass(frozen=True)
class Scenes:
    """Grey scenes (n, side, side) with the owner of each pixel, (n, side, side), and the digits of each scene.

    The owner 0 is the background and i + 1 is the i-th digit in order of placement.
    """

    pixels: Pixels
    owners: Pixels
    placed: list[list[Placed]]

    def classes(self) -> Pixels:
        """Return the mask of each scene, (n, side, side): 0 is the background, label + 1 a digit of that label."""
        masks = np.zeros_like(self.owners)
        for mask, owners, placed in zip(masks, self.owners, self.placed):
            lookup = np.array([0, *(digit.label + 1 for digit in placed)], np.uint8)
            mask[:] = lookup[owners]
        return masks


def compose(digits: Pixels, labels: npt.NDArray[np.int64], count: int, side: int, seed: int, **sizes: Any) -> Scenes:
    """Compose `count` scenes. See `composed`."""
    scenes = list(islice(generate_scenes(digits, labels, side, seed, **sizes), count))
    pixels, owners, placed = zip(*scenes)
    return Scenes(np.stack(pixels), np.stack(owners), list(placed))


def generate_scenes(
    digits: Pixels,
    labels: npt.NDArray[np.int64],
    side: int,
    seed: int,
    *,
    fewest: int = 1,
    most: int = 4,
    smallest: float = 16,
    largest: float = 32,
    gap: int = 1,
) -> Iterator[tuple[Pixels, Pixels, list[Placed]]]:
    """Generate scenes endlessly, each of side × side pixels with `fewest` to `most` digits.

    `digits` is (n, h, w), `labels` (n,). Yields the pixels, their owners and the digits, as in `Scenes`. A digit's ink
    is `smallest` to `largest` pixels high with its aspect ratio, and boxes are at least `gap` pixels apart, so that
    each pixel belongs to at most one digit. A scene has fewer digits if no free place is found.
    """
    rng = np.random.default_rng(seed)
    boxes = ink_boxes(digits).tolist()  # of all digits once, because each is drawn several times
    while True:
        scene, owner = np.zeros((2, side, side), np.uint8)
        placed: list[Placed] = []
        for _ in range(int(rng.integers(fewest, most + 1))):
            source = int(rng.integers(len(digits)))
            first, last, near, far = boxes[source]
            ink = scale_ink(digits[source, first:last, near:far], rng.uniform(smallest, largest), side)
            found = _free_place(rng, placed, ink.shape, side, gap)
            if found is None:
                continue
            top, left = found
            bottom, right = top + ink.shape[0], left + ink.shape[1]
            scene[top:bottom, left:right] = ink
            owner[top:bottom, left:right][ink >= INK] = len(placed) + 1
            placed.append(Placed(int(labels[source]), source, left, top, right, bottom))
        yield scene, owner, placed


def ink_boxes(digits: Pixels) -> npt.NDArray[np.int64]:
    """Return the box of the ink of each digit (n, h, w), (n, 4): [top, bottom) × [left, right), in pixels."""
    ink = digits >= np.minimum(INK, digits.max((1, 2), keepdims=True))
    ends = []
    for inked in (ink.any(2), ink.any(1)):  # rows, columns
        ends += [inked.argmax(1), inked.shape[1] - inked[:, ::-1].argmax(1)]
    return np.stack(ends, 1)


def scale_ink(ink: Pixels, height: float, side: int) -> Pixels:
    """Resize the ink (h, w) to this height with its aspect ratio, at most `side` wide, and crop it to its ink box."""
    factor = min(height / ink.shape[0], side / ink.shape[1])
    size = (max(1, round(ink.shape[1] * factor)), max(1, round(ink.shape[0] * factor)))
    # Conversion via bytes: Pillow's array conversion takes longer than resizing so few pixels.
    image = Image.frombytes("L", ink.shape[::-1], ink.tobytes()).resize(size, Image.Resampling.BICUBIC)
    found = np.frombuffer(image.tobytes(), np.uint8).reshape(size[::-1])
    inked = found >= min(INK, int(found.max()))
    rows, columns = np.flatnonzero(inked.any(1)), np.flatnonzero(inked.any(0))
    return found[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def _free_place(
    rng: np.random.Generator, placed: list[Placed], shape: tuple[int, ...], side: int, gap: int
) -> tuple[int, int] | None:
    """Find the top and left of a box of this shape at least `gap` pixels from all others, or None."""
    height, width = shape[:2]
    for _ in range(TRIES):
        top, left = int(rng.integers(side - height + 1)), int(rng.integers(side - width + 1))
        bottom, right = top + height, left + width
        if all(
            right + gap <= d.left or d.right + gap <= left or bottom + gap <= d.top or d.bottom + gap <= top
            for d in placed
        ):
            return top, left
    return None
