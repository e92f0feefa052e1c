"""Scenes of two coloured shapes with captions, for text-to-image generation, and a check of drawn scenes.

A scene is 10 × 10 pixels: a red, green, blue or yellow circle, square or triangle above or left of another one, on
white. Its caption names the two in one of two orders:

    a red circle above a blue square  =  a blue square below a red circle

There are 264 scenes of two different objects. The test split has 48 of them, in both orders, which do not occur in
training; each of their objects and relations does. Positions are random, with at least one pixel between the objects,
and both overlap along the other axis, so that only one relation is true. No image occurs twice.

`read_scene` finds the objects of an image by comparing it with every template, pixel by pixel. So a drawn image can be
checked against its caption exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..folders import CAPTIONS

Pixels = npt.NDArray[np.uint8]

SIDE, SHAPE_SIDE = 10, 4  # pixels of a scene, and of a shape
BACKGROUND = (255, 255, 255)
COLORS = {"red": (220, 50, 47), "green": (40, 160, 70), "blue": (40, 90, 200), "yellow": (245, 190, 30)}
SHAPES = {
    "circle": (" ## ", "####", "####", " ## "),
    "square": ("####", "####", "####", "####"),
    "triangle": ("#   ", "##  ", "### ", "####"),
}
MASKS = {name: np.array([[cell == "#" for cell in row] for row in rows]) for name, rows in SHAPES.items()}
# Relation: the axis along which the objects lie, and whether the one that is named first is above or to the left.
RELATIONS = {"above": (0, True), "below": (0, False), "left of": (1, True), "right of": (1, False)}
OVERLAP = 2  # pixels that the two have in common along the other axis, at least
HELD_OUT = 48  # scenes of the test split
COUNTS = {"train": 4_320, "test": 384}  # images: each caption of a scene 10 times, and 4 times


@dataclass(frozen=True)
class Scene:
    """Two objects, each a colour and a shape: `first` is above `second` (axis 0) or left of it (axis 1)."""

    axis: int
    first: tuple[str, str]
    second: tuple[str, str]

    @property
    def captions(self) -> tuple[str, str]:
        """The two captions of the scene: one begins with `first`, the other with `second`."""
        forward, backward = [name for name, (axis, _) in RELATIONS.items() if axis == self.axis]
        first, second = (" ".join(one) for one in (self.first, self.second))
        return f"a {first} {forward} a {second}", f"a {second} {backward} a {first}"


def all_scenes() -> list[Scene]:
    """Return all scenes of two different objects."""
    objects = list(product(COLORS, SHAPES))
    return [Scene(axis, first, second) for axis in (0, 1) for first in objects for second in objects if first != second]


def held_out_scenes() -> list[Scene]:
    """Return the scenes of the test split."""
    scenes = all_scenes()
    return [scenes[i] for i in np.sort(np.random.default_rng(0).permutation(len(scenes))[:HELD_OUT])]


def parse_caption(caption: str) -> Scene:
    """Return the scene that a caption describes. Raises ValueError if it is no caption of such a scene."""
    return _BY_CAPTION[caption] if caption in _BY_CAPTION else _reject(caption)


def _reject(caption: str) -> Scene:
    raise ValueError(f"{caption!r} is no caption of two shapes, such as {next(iter(_BY_CAPTION))!r}")


_BY_CAPTION = {caption: scene for scene in all_scenes() for caption in scene.captions}


def draw_scene(scene: Scene, rng: np.random.Generator) -> Pixels:
    """Draw a scene (SIDE, SIDE, 3) with its objects at random positions."""
    room = SIDE - SHAPE_SIDE
    while True:
        along, across = np.sort(rng.integers(0, room + 1, 2)), rng.integers(0, room + 1, 2)
        if along[1] - along[0] > SHAPE_SIDE and abs(across[1] - across[0]) <= SHAPE_SIDE - OVERLAP:
            break
    corners = np.stack([along, across] if scene.axis == 0 else [across, along], axis=1)  # (2, 2): row and column
    return _paint([(*one, int(row), int(column)) for one, (row, column) in zip((scene.first, scene.second), corners)])


def _paint(objects: list[tuple[str, str, int, int]]) -> Pixels:
    """Return an image with these objects: colour, shape, row and column of the upper left corner."""
    image = np.full((SIDE, SIDE, 3), BACKGROUND, np.uint8)
    for color, shape, row, column in objects:
        image[row : row + SHAPE_SIDE, column : column + SHAPE_SIDE][MASKS[shape]] = COLORS[color]
    return image


def read_scene(image: Image.Image | Pixels) -> Scene | None:
    """Return the scene that an image shows; None unless it is exactly two objects, one relation of which is true."""
    pixels = np.asarray(image.convert("RGB") if isinstance(image, Image.Image) else image)
    if pixels.shape != (SIDE, SIDE, 3):
        return None
    windows = np.lib.stride_tricks.sliding_window_view(pixels, (SHAPE_SIDE, SHAPE_SIDE), (0, 1))  # (7, 7, 3, 4, 4)
    found = []
    for (color, value), (shape, mask) in product(COLORS.items(), MASKS.items()):
        template = np.where(mask, np.array(value)[:, None, None], np.array(BACKGROUND)[:, None, None])  # (3, 4, 4)
        places = np.argwhere((windows == template).all((2, 3, 4)))
        found += [(color, shape, int(row), int(column)) for row, column in places]
    if len(found) != 2 or not np.array_equal(_paint(found), pixels):
        return None
    gaps = [abs(found[0][axis + 2] - found[1][axis + 2]) for axis in (0, 1)]
    axes = [axis for axis in (0, 1) if gaps[axis] >= SHAPE_SIDE and gaps[1 - axis] < SHAPE_SIDE]
    if not axes:  # diagonal: two relations are true
        return None
    first, second = sorted(found, key=lambda one: one[axes[0] + 2])
    return Scene(axes[0], first[:2], second[:2])


def agreement(image: Image.Image | Pixels, caption: str) -> dict[str, bool]:
    """Return which parts of a caption an image shows: colors, shapes, objects (at any place), the whole scene."""
    asked, shown = parse_caption(caption), read_scene(image)
    if shown is None:
        return dict.fromkeys(("colors", "shapes", "objects", "scene"), False)
    (colors, shapes), (drawn_colors, drawn_shapes) = (
        [sorted((one.first[k], one.second[k])) for k in (0, 1)] for one in (asked, shown)
    )
    return {
        "colors": colors == drawn_colors,
        "shapes": shapes == drawn_shapes,
        "objects": sorted((asked.first, asked.second)) == sorted((shown.first, shown.second)),
        "scene": asked == shown,
    }


def write_shapes(folder: Path) -> None:
    """Write a folder train/ and a folder test/ of scenes, each with its captions.tsv."""
    rng = np.random.default_rng(1)
    test = held_out_scenes()
    parts = {"train": [scene for scene in all_scenes() if scene not in test], "test": test}
    seen: set[bytes] = set()
    for split, scenes in parts.items():
        (folder / split).mkdir(parents=True)
        lines = ["file\tcaption"]
        for k in range(COUNTS[split]):
            scene = scenes[k % len(scenes)]
            caption = scene.captions[k // len(scenes) % 2]
            pixels = draw_scene(scene, rng)
            while pixels.tobytes() in seen:
                pixels = draw_scene(scene, rng)
            seen.add(pixels.tobytes())
            Image.fromarray(pixels).save(folder / split / f"{k:04}.png")
            lines.append(f"{k:04}.png\t{caption}")
        (folder / split / CAPTIONS).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
