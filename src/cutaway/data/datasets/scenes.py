"""Scenes of handwritten digits: what stands where is known exactly, and every digit is one that somebody wrote.

Where no labelled photographs are at hand, scenes stand in for them: for masks, for boxes and for captions alike. Each
is composed by seed of digits of one split, so that no handwriting of a test scene was ever seen in training.
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
INK = 128  # from this level on a pixel is the digit's
TRIES = 30  # for a free place, after which the scene has one digit fewer


@dataclass(frozen=True)
class Placed:
    """A digit in a scene: the box of its ink, [left, right) × [top, bottom), in pixels."""

    label: int
    source: int  # which of the given digits it is
    left: int
    top: int
    right: int
    bottom: int


@dataclass(frozen=True)
class Scenes:
    """Scenes (n, side, side), grey; which of its digits each pixel belongs to, (n, side, side): 0 is the ground, i + 1
    the i-th digit; and the digits of each, in the order in which they were placed."""

    pixels: Pixels
    owners: Pixels
    placed: list[list[Placed]]

    def classes(self) -> Pixels:
        """The mask of each scene, (n, side, side): 0 is the ground, label + 1 a digit of that label."""
        masks = np.zeros_like(self.owners)
        for mask, owners, placed in zip(masks, self.owners, self.placed):
            lookup = np.array([0, *(digit.label + 1 for digit in placed)], np.uint8)
            mask[:] = lookup[owners]
        return masks


def compose(digits: Pixels, labels: npt.NDArray[np.int64], count: int, side: int, seed: int, **sizes: Any) -> Scenes:
    """The first `count` of the scenes that `composed` gives of these digits and sizes."""
    scenes = list(islice(composed(digits, labels, side, seed, **sizes), count))
    pixels, owners, placed = zip(*scenes)
    return Scenes(np.stack(pixels), np.stack(owners), list(placed))


def composed(
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
    """Scenes without end, each of side × side pixels and of `fewest` to `most` of the digits (n, h, w), with their
    labels (n,): its pixels, what owns each of them, and the digits, as in `Scenes`.

    A digit's ink is `smallest` to `largest` pixels high, its proportions are kept, and boxes are at least `gap` pixels
    apart, so that each pixel belongs to one digit at most. Where no free place is found, a scene has fewer.
    """
    rng = np.random.default_rng(seed)
    boxes = ink_boxes(digits).tolist()  # of all at once: each digit is drawn several times
    while True:
        scene, owner = np.zeros((2, side, side), np.uint8)
        placed: list[Placed] = []
        for _ in range(int(rng.integers(fewest, most + 1))):
            source = int(rng.integers(len(digits)))
            first, last, near, far = boxes[source]
            ink = scaled(digits[source, first:last, near:far], rng.uniform(smallest, largest), side)
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
    """The box of the ink of each digit (n, h, w), (n, 4): [top, bottom) × [left, right), in pixels."""
    ink = digits >= np.minimum(INK, digits.max((1, 2), keepdims=True))
    ends = []
    for inked in (ink.any(2), ink.any(1)):  # rows, columns
        ends += [inked.argmax(1), inked.shape[1] - inked[:, ::-1].argmax(1)]
    return np.stack(ends, 1)


def scaled(ink: Pixels, height: float, side: int) -> Pixels:
    """The ink (h, w) at that height, its proportions kept; no wider than `side`. Its box is that of its ink again."""
    factor = min(height / ink.shape[0], side / ink.shape[1])
    size = (max(1, round(ink.shape[1] * factor)), max(1, round(ink.shape[0] * factor)))
    # By way of bytes: Pillow's ways from and to arrays take longer than to scale so few pixels.
    image = Image.frombytes("L", ink.shape[::-1], ink.tobytes()).resize(size, Image.Resampling.BICUBIC)
    found = np.frombuffer(image.tobytes(), np.uint8).reshape(size[::-1])
    inked = found >= min(INK, int(found.max()))
    rows, columns = np.flatnonzero(inked.any(1)), np.flatnonzero(inked.any(0))
    return found[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def _free_place(
    rng: np.random.Generator, placed: list[Placed], shape: tuple[int, ...], side: int, gap: int
) -> tuple[int, int] | None:
    """Top and left of a box of that shape that is `gap` pixels from all others, or None where none was found."""
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
