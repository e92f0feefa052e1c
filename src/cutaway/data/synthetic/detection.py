"""Example images with boxes in COCO format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from PIL import Image

from ..datasets.detection import SMALL_SIDE, compose_splits, small_digits
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
