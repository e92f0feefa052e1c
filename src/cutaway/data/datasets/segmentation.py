"""Built-in segmentation data sets: scenes of handwritten digits with exact masks."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from ..build import DataSource
from ..dataset_base import DataSet
from ..images.build import mask_dataset
from .catalog import NAMED as FIRST
from .catalog import NamedSet, Request
from .formats import read_labelled_idx
from .scenes import Scenes, compose

CLASSES = ("ground", *"0123456789")
TRAIN, TEST, SIDE = 2000, 500, 64
SMALL_TRAIN, SMALL_TEST, SMALL_SIDE, SMALL_MOST = 800, 100, 32, 3
DIGITS = 1400  # of scikit-learn's 1 797: those of the training scenes
SEED = 0


def open_digit_scenes(request: Request) -> DataSet:
    """Compose scenes of MNIST's digits."""
    made = []
    for i, (part, count) in enumerate((("train", TRAIN), ("t10k", TEST))):
        images, labels = (request.place / f"{part}-{what}-ubyte.gz" for what in ("images-idx3", "labels-idx1"))
        made.append(compose(*read_labelled_idx(images, labels, 10), count, SIDE, SEED + i))
    return _dataset(request, made, 4)


def open_digit_scenes_small(request: Request) -> DataSet:
    """Compose scenes of scikit-learn's digits."""
    return _dataset(request, small_scenes(), SMALL_MOST)


def small_scenes() -> list[Scenes]:
    """Compose training and test scenes of scikit-learn's digits, with no digit in both."""
    from sklearn import datasets  # imported here because it takes a second

    bunch: Any = datasets.load_digits()
    digits = np.round(bunch.images * (255 / 16)).astype(np.uint8)  # (n, 8, 8)
    made = []
    for i, (rows, count) in enumerate(((slice(DIGITS), SMALL_TRAIN), (slice(DIGITS, None), SMALL_TEST))):
        scale = {"smallest": 10, "largest": 16}
        made.append(compose(digits[rows], bunch.target[rows], count, SMALL_SIDE, SEED + i, most=SMALL_MOST, **scale))
    return made


def _dataset(request: Request, made: list[Scenes], most: int) -> DataSet:
    """Build the data set of scenes with up to `most` digits. The second item of `made` is the test split."""
    pixels = np.concatenate([scenes.pixels for scenes in made])[:, None]  # (n, 1, side, side)
    masks = np.concatenate([scenes.classes() for scenes in made])
    note = (
        f"These scenes are composed, not photographed: up to {most} digits that people wrote, at random places and "
        "sizes. The digits of test scenes stand in no other scene; those of validation scenes may."
    )
    fingerprint = hashlib.sha256(pixels.tobytes() + masks.tobytes()).hexdigest()
    origin = DataSource(request.name, request.name, fingerprint, [note])
    train, test = (len(scenes.pixels) for scenes in made)
    splits = {"train": np.arange(train), "test": np.arange(train, train + test)}
    return mask_dataset(pixels, masks, CLASSES, origin, request.settings, request.sizes, splits)


NAMED = {
    "digit_scenes": NamedSet(
        title="Scenes of MNIST's digits: which digit each pixel is of",
        kind="image",
        task="semantic segmentation",
        sizes=f"2 000 training and {TEST} test images with masks, {SIDE} × {SIDE}, grey, 11 classes",
        licence=FIRST["mnist"].licence,
        citation=FIRST["mnist"].citation,
        target="mask",
        folder=FIRST["mnist"].folder,
        files=FIRST["mnist"].files,
    ),
    "digit_scenes_small": NamedSet(
        title="Small scenes of scikit-learn's digits: which digit each pixel is of",
        kind="image",
        task="semantic segmentation",
        sizes=f"{SMALL_TRAIN} training and {SMALL_TEST} test images with masks, {SMALL_SIDE} × {SMALL_SIDE}, grey, "
        "11 classes",
        licence=FIRST["digits"].licence,
        citation=FIRST["digits"].citation,
        target="mask",
    ),
}

OPENERS = {"digit_scenes": open_digit_scenes, "digit_scenes_small": open_digit_scenes_small}
