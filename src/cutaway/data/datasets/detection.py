"""Built-in object detection data sets: scenes composed of MNIST's or scikit-learn's handwritten digits."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..dataset_base import DataSet
from ..images.detection import Rectangles, box_dataset
from ..splits import SPLITS
from .catalog import NAMED as FIRST
from .catalog import NamedSet, Request
from .formats import read_labelled_idx
from .published import DIGITS, published_source
from .scenes import Pixels, Scenes, compose

Digits = tuple[Pixels, npt.NDArray[np.int64]]  # (n, h, w), (n,)

SIDE, COUNTS = 64, {"train": 4000, "val": 400, "test": 1000}
KEPT_FOR_VAL = 6000  # of MNIST's training digits
SMALL_SIDE, SMALL_COUNTS = 48, {"train": 1200, "val": 150, "test": 300}


def open_digit_boxes(request: Request) -> DataSet:
    """Compose scenes of MNIST's digits: test scenes of its test digits, validation scenes of other training digits."""
    place = request.place
    train, labels = read_labelled_idx(place / "train-images-idx3-ubyte.gz", place / "train-labels-idx1-ubyte.gz", 10)
    test, test_labels = read_labelled_idx(place / "t10k-images-idx3-ubyte.gz", place / "t10k-labels-idx1-ubyte.gz", 10)
    digits = {
        "train": (train[:-KEPT_FOR_VAL], labels[:-KEPT_FOR_VAL]),
        "val": (train[-KEPT_FOR_VAL:], labels[-KEPT_FOR_VAL:]),
        "test": (test, test_labels),
    }
    return _scenes(request, digits, COUNTS, SIDE, smallest=16, largest=32)


def open_digit_boxes_small(request: Request) -> DataSet:
    """Compose scenes of scikit-learn's digits of 8×8 pixels, with no digit in two splits."""
    return _scenes(request, small_digits(), SMALL_COUNTS, SMALL_SIDE, smallest=12, largest=24)


def small_digits() -> dict[str, Digits]:
    """Load scikit-learn's digits, 0…255, in three splits."""
    from sklearn import datasets

    bunch: Any = datasets.load_digits()
    pixels, labels = np.round(bunch.images * (255 / 16)).astype(np.uint8), bunch.target.astype(np.int64)
    order = np.random.default_rng(0).permutation(len(labels))
    return {split: (pixels[rows], labels[rows]) for split, rows in zip(SPLITS, np.split(order, [1200, 1400]))}


def compose_splits(digits: dict[str, Digits], counts: dict[str, int], side: int, **sizes: float) -> dict[str, Scenes]:
    """Compose `counts` scenes for each split from its digits, with a separate seed for each."""
    return {
        split: compose(*digits[split], count, side, seed, smallest=sizes["smallest"], largest=sizes["largest"])
        for seed, (split, count) in enumerate(counts.items())
    }


def rectangles(scenes: Scenes) -> list[Rectangles]:
    """Return the boxes of each scene, (m, 5): x1, y1, x2, y2 and the digit."""
    rows = [[(d.left, d.top, d.right, d.bottom, d.label) for d in placed] for placed in scenes.placed]
    return [np.array(own, np.float32).reshape(-1, 5) for own in rows]


def _scenes(request: Request, digits: dict[str, Digits], counts: dict[str, int], side: int, **sizes: float) -> DataSet:
    scenes = compose_splits(digits, counts, side, **sizes)
    ends = np.cumsum([0, *counts.values()])
    splits = {split: np.arange(ends[i], ends[i + 1]) for i, split in enumerate(counts)}
    pixels = np.concatenate([s.pixels for s in scenes.values()])[:, None]  # (n, 1, side, side)
    boxes = [own for s in scenes.values() for own in rectangles(s)]
    content = hashlib.sha256(pixels.tobytes() + np.concatenate(boxes).tobytes()).hexdigest()
    return box_dataset(
        pixels,
        boxes,
        DIGITS,
        replace(published_source(request), fingerprint=content),
        request.settings,
        request.sizes,
        splits,
    )


def _named(title: str, counts: dict[str, int], side: int, of: NamedSet, citation: str) -> NamedSet:
    sizes_text = ", ".join(f"{count:,} {split}".replace(",", " ") for split, count in counts.items())
    return NamedSet(
        title=title,
        kind="image",
        task="object detection",
        sizes=f"{sizes_text} scenes of 1 to 4 digits, {side} × {side}, grey",
        licence=of.licence,
        citation=citation,
        target="boxes",
        folder=of.folder,
        files=of.files,
    )


NAMED = {
    "digit_boxes": _named("Digits in scenes: a box around each", COUNTS, SIDE, FIRST["mnist"], FIRST["mnist"].citation),
    "digit_boxes_small": _named(
        "Small digits in scenes: a box around each", SMALL_COUNTS, SMALL_SIDE, FIRST["digits"], FIRST["digits"].citation
    ),
}

OPENERS = {"digit_boxes": open_digit_boxes, "digit_boxes_small": open_digit_boxes_small}
