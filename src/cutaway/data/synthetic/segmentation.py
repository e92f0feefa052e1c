"""Example files of scenes of handwritten digits with masks."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from ..datasets.segmentation import CLASSES, small_scenes
from ..images.segmentation import palette


def masks(path: Path) -> None:
    """Write the scenes of `digit_scenes_small` to train/ and test/, which share no digit."""
    colours = palette()
    for split, scenes in zip(("train", "test"), small_scenes()):
        for folder in ("images", "masks"):
            (path / split / folder).mkdir(parents=True)
        for i, (pixels, mask) in enumerate(zip(scenes.pixels, scenes.classes()), 1):
            Image.fromarray(pixels).save(path / split / "images" / f"{i}.png")
            classes = Image.fromarray(mask)
            classes.putpalette(colours)
            classes.save(path / split / "masks" / f"{i}.png")
    (path / "classes.txt").write_text("\n".join(CLASSES) + "\n", encoding="utf-8")
