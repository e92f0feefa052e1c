"""Built-in video data sets: moving digits, generated from scikit-learn's."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..dataset_base import DataSet
from ..folders import FolderContents
from .catalog import NamedSet, Request

SIDE, FRAMES = 24, 16
SEED = 0
# Each direction is a step in pixels, down and to the right.
DIRECTIONS = {
    "east": (0, 1),
    "north-east": (-1, 1),
    "north": (-1, 0),
    "north-west": (-1, -1),
    "west": (0, -1),
    "south-west": (1, -1),
    "south": (1, 0),
    "south-east": (1, 1),
}
FOUR = ("east", "north", "west", "south")  # directions in which the digit is a class too


def open_moving_digits(request: Request) -> DataSet:
    """Generate videos of scikit-learn's digits, each moving in one of eight directions, which is the class."""
    digits, _ = _digits()
    labels = assign_directions(len(digits))
    which = np.arange(len(digits))
    each = "Each digit is in one video, so no digit is in two splits."
    return _build_dataset(request, digits, which, labels, tuple(DIRECTIONS), labels, each)


def open_moving_digits_named(request: Request) -> DataSet:
    """Generate videos of each digit moving in each of four directions; digit and direction form the class."""
    digits, shown = _digits()
    which, way = np.divmod(np.arange(len(FOUR) * len(digits)), len(FOUR))
    directions = np.array([list(DIRECTIONS).index(name) for name in FOUR])[way]
    classes = tuple(f"{digit} {name}" for digit in range(10) for name in FOUR)
    each = "Each digit moves in each of four directions, and its four videos are in one split."
    return _build_dataset(request, digits, which, directions, classes, shown[which] * len(FOUR) + way, each)


def _digits() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Load scikit-learn's digits (n, 8, 8) and their labels (n,)."""
    from sklearn import datasets

    bunch: Any = datasets.load_digits()
    return np.round(bunch.images * (255 / 16)).astype(np.uint8), bunch.target.astype(np.int64)


def _build_dataset(
    request: Request,
    digits: npt.NDArray[np.uint8],
    which: npt.NDArray[np.int64],
    directions: npt.NDArray[np.int64],
    classes: tuple[str, ...],
    labels: npt.NDArray[np.int64],
    each: str,
) -> DataSet:
    """Build the data set in which video i shows the digit which[i]. `each` describes the split of digits in a note."""
    from ..video.dataset import video_dataset  # imported here because it needs a video library

    several, names = len(which) > len(digits), list(DIRECTIONS)
    videos = FolderContents(
        classes,
        list(move_digits(digits[which], directions)),
        [f"digit {i} {names[way]}" if several else f"digit {i}" for i, way in zip(which, directions)],
        labels,
        notes=[
            f"These videos are made, not filmed: each of scikit-learn's {len(digits):,} digits moves by a pixel a "
            f"frame over {SIDE}×{SIDE} pixels and comes back in on the other side. {each} One frame tells nothing of "
            "the direction, and all of them in no order leave a direction and its opposite alike: the best score "
            "without time is one half."
        ],
    )
    groups = which if several else None
    return video_dataset(videos, request.name, request.name, request.settings, request.sizes, groups)


def assign_directions(count: int) -> npt.NDArray[np.int64]:
    """Assign a direction to each video, (count,), balanced and in random order."""
    return np.random.default_rng(SEED).permutation(np.arange(count) % len(DIRECTIONS))


def move_digits(digits: npt.NDArray[np.uint8], labels: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Generate videos (n, FRAMES, SIDE, SIDE) of digits (n, h, w), each moving in its direction from a random place.

    Movement wraps around at the edges, so that positions are uniform in every frame and for every direction.
    """
    n, height, width = digits.shape
    starts = np.random.default_rng(SEED + 1).integers(0, SIDE, (n, 2))
    steps = np.array(list(DIRECTIONS.values()))[labels]  # (n, 2)
    corners = starts[:, None] + np.arange(FRAMES)[:, None] * steps[:, None]  # (n, FRAMES, 2)
    rows = (corners[:, :, :1] + np.arange(height)) % SIDE  # (n, FRAMES, h)
    columns = (corners[:, :, 1:] + np.arange(width)) % SIDE  # (n, FRAMES, w)
    videos = np.zeros((n, FRAMES, SIDE, SIDE), np.uint8)
    video, frame = np.ogrid[:n, :FRAMES]
    videos[video[:, :, None, None], frame[:, :, None, None], rows[:, :, :, None], columns[:, :, None, :]] = digits[
        :, None
    ]
    return videos


NAMED = {
    "moving_digits": NamedSet(
        title="Moving digits: which way each goes",
        kind="video",
        task="classification",
        sizes=f"1 797 videos of {FRAMES} frames, {SIDE} × {SIDE}, grey, 8 classes",
        licence="CC BY 4.0 at the UCI repository, for the digits, which come with scikit-learn; the rest is made here",
        citation="after N. Srivastava et al., Unsupervised learning of video representations using LSTMs, 2015",
        target="direction",
    ),
    "moving_digits_named": NamedSet(
        title="Moving digits: which digit goes which way",
        kind="video",
        task="classification",
        sizes=f"7 188 videos of {FRAMES} frames, {SIDE} × {SIDE}, grey, 40 classes: 10 digits × 4 directions",
        licence="CC BY 4.0 at the UCI repository, for the digits, which come with scikit-learn; the rest is made here",
        citation="after N. Srivastava et al., Unsupervised learning of video representations using LSTMs, 2015",
        target="digit and direction",
    ),
}

OPENERS = {"moving_digits": open_moving_digits, "moving_digits_named": open_moving_digits_named}
