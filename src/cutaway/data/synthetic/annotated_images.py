"""Example images with boxes in COCO format.

Example files of scenes of handwritten digits with masks.

Example images with captions.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from PIL import Image

from ..datasets.captions import SMALL, compose_described, scikit_learn_digits
from ..datasets.detection import SMALL_SIDE, compose_splits, small_digits
from ..datasets.segmentation import CLASSES, small_scenes
from ..folders import CAPTIONS
from ..images.segmentation import palette
from .signals import DIGITS

COUNTS = {"train": 900, "val": 100, "test": 200}


def scenes(folder: Path) -> None:
    """Write scenes of scikit-learn's digits as PNG files in train/, val/ and test/, each with an annotations.json.

    No digit is in the scenes of two splits.
    """
    composed = compose_splits(small_digits(), COUNTS, SMALL_SIDE, smallest=12, largest=24)
    for split, of_split in composed.items():
        (folder / split).mkdir(parents=True)
        images: list[dict[str, Any]] = []
        annotations: list[dict[str, Any]] = []
        for i, (pixels, placed) in enumerate(zip(of_split.pixels, of_split.placed)):
            name = f"{i:04}.png"
            Image.fromarray(pixels).save(folder / split / name)
            images.append({"id": i, "file_name": name, "width": SMALL_SIDE, "height": SMALL_SIDE})
            for d in placed:
                box = [d.left, d.top, d.right - d.left, d.bottom - d.top]
                annotations.append(
                    {
                        "id": len(annotations),
                        "image_id": i,
                        "category_id": d.label,
                        "bbox": box,
                        "area": box[2] * box[3],
                    }
                )
        categories = [{"id": k, "name": name} for k, name in enumerate(DIGITS)]
        document = {"images": images, "annotations": annotations, "categories": categories}
        (folder / split / "annotations.json").write_text(json.dumps(document))


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


COUNT = 3_000


def captions(folder: Path) -> None:
    """Write scenes of two of scikit-learn's digits as PNG files, and every true caption of each in captions.tsv."""
    pixels, texts = compose_described(*scikit_learn_digits(), COUNT, SMALL, seed=0, most=2)
    lines = ["file\tcaption"]
    (folder / "scenes").mkdir(parents=True)
    for i, (scene, of_scene) in enumerate(zip(pixels, texts, strict=True)):
        file = f"scenes/{i:04}.png"
        Image.fromarray(scene).save(folder / file)
        lines += [f"{file}\t{text}" for text in of_scene]
    (folder / CAPTIONS).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
