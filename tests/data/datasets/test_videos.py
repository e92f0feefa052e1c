"""Moving digits: they move as they are said to, and only time tells where to."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from sklearn import datasets

from cutaway.core.spec import Classes, VideoSpec
from cutaway.data.datasets.digit_scenes import DIRECTIONS, FRAMES, VIDEO_SIDE, assign_directions, move_digits
from cutaway.data.open_data import open_named
from cutaway.data.settings import DataSettings
from cutaway.data.video.transforms import VideoSplit

DIGITS = np.round(datasets.load_digits().images[:80] * (255 / 16)).astype(np.uint8)
STEPS = list(DIRECTIONS.values())


def test_a_digit_moves_by_a_step_a_frame() -> None:
    labels = assign_directions(len(DIGITS))
    videos = move_digits(DIGITS, labels)
    assert videos.shape == (80, FRAMES, VIDEO_SIDE, VIDEO_SIDE)
    for video, label in zip(videos, labels):
        for before, after in itertools.pairwise(video):
            np.testing.assert_array_equal(after, np.roll(before, STEPS[label], axis=(0, 1)))


def test_it_is_the_digit_that_moves() -> None:
    videos = move_digits(DIGITS, assign_directions(len(DIGITS)))
    padded = np.zeros((80, VIDEO_SIDE, VIDEO_SIDE), np.uint8)
    padded[:, :8, :8] = DIGITS
    for video, digit in zip(videos, padded):
        places = [(r, c) for r in range(VIDEO_SIDE) for c in range(VIDEO_SIDE)]
        assert any(np.array_equal(np.roll(digit, place, axis=(0, 1)), video[0]) for place in places)


def test_directions_are_eight_and_equally_frequent() -> None:
    assert len(set(STEPS)) == 8
    assert all(
        (-r, -c) in STEPS for r, c in STEPS
    )  # each with its opposite, whose frames are the same in another order
    counts = np.bincount(assign_directions(1797), minlength=8)
    assert counts.max() - counts.min() <= 1


def test_every_place_is_as_likely_whatever_the_direction() -> None:
    labels = np.repeat(np.arange(8), 3000)
    point = np.ones((len(labels), 1, 1), np.uint8)
    videos = move_digits(point, labels)
    for label in range(8):
        for frame in (0, FRAMES - 1):
            fraction = videos[labels == label, frame].mean(0) * VIDEO_SIDE**2
            assert fraction.sum() == pytest.approx(VIDEO_SIDE**2)
            halves = fraction[: VIDEO_SIDE // 2].mean(), fraction[:, : VIDEO_SIDE // 2].mean()
            assert all(abs(half - 1) < 0.1 for half in halves)  # 3 000 draws: five standard deviations of 1 / √3 000


def test_the_set() -> None:
    data = open_named("moving_digits", DataSettings())
    assert data.spec == VideoSpec(FRAMES, 1, VIDEO_SIDE, VIDEO_SIDE, Classes(tuple(DIRECTIONS)))
    assert {p: len(found) for p, found in data.splits.items()} == {"train": 1258, "val": 270, "test": 269}
    names = [found.name(i) for found in data.splits.values() for i in range(len(found))]
    assert len(set(names)) == len(names) == 1797  # no digit in two splits
    (note,) = data.notes
    assert "made, not filmed" in note


def test_settings_reach_it() -> None:
    data = open_named("moving_digits", DataSettings(max_samples=20, frames=4, image_size=32, color="rgb"))
    assert data.spec.shape == (4, 3, 32, 32)
    train = data.splits["train"]
    assert isinstance(train, VideoSplit)
    assert len(train) == 20
    (batch,) = train.batches([train.plan(20, None)[0]])
    assert batch.inputs[0].shape == (20, 4, 3, 32, 32)
    again = open_named("moving_digits", DataSettings(max_samples=20))
    assert again.fingerprint == data.fingerprint
    assert again.split_hash == data.split_hash


def test_digit_and_direction_are_asked_for_and_no_digit_is_in_two_splits() -> None:
    data = open_named("moving_digits_named", DataSettings())
    assert isinstance(data.spec.target, Classes)
    assert len(data.spec.target.names) == 40
    digits = {}
    for name, split in data.splits.items():
        assert isinstance(split, VideoSplit)
        digits[name] = {split.name(i).split()[1] for i in range(len(split))}
        assert len(split) == 4 * len(digits[name])  # each digit in each direction
    assert not digits["train"] & digits["test"]
    assert not digits["train"] & digits["val"]
    split = data.splits["test"]
    assert isinstance(split, VideoSplit)
    assert split.target is not None
    for i in range(8):
        way = data.spec.target.names[int(split.target[i])].split()[1]
        assert split.name(i).endswith(way)
