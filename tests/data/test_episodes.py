"""Episodes: classes in one split each, the same draws for the same seed, and what cannot be drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cutaway.core.errors import DataError, SettingError
from cutaway.core.spec import Episodes
from cutaway.data.dataset_base import DataSet, TensorSplit
from cutaway.data.episodes import EpisodeSplit, labelled_episodes, split_by_class
from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings

CLASSES = [f"c{k}" for k in range(12)]


def split(count: int = 12, each: int = 6) -> TensorSplit:
    """So many classes of so many examples, in which the inputs are the example's number and its class."""
    labels = torch.arange(count).repeat_interleave(each)[torch.randperm(count * each)]
    return TensorSplit(torch.stack([torch.arange(count * each), labels], 1).float(), labels)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 99), st.integers(2, 4), st.sampled_from([0.0, 0.1, 0.3]), st.sampled_from([0.0, 0.15, 0.25]))
def test_no_class_is_in_two_splits_and_each_has_as_many_as_an_episode(
    seed: int, ways: int, val: float, test: float
) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(12), 6))
    asked = DataSettings(ways=ways, val=val, test=test, split_seed=seed)
    found, notes = split_by_class(labels, CLASSES, None, asked)
    assert set(found) == {"train"} | ({"val"} if val else set()) | ({"test"} if test else set())
    of = [set(labels[rows].tolist()) for rows in found.values()]
    assert sum(map(len, of)) == len(set.union(*of)) == 12
    assert all(len(own) >= ways for own in of)
    assert sorted(np.concatenate(list(found.values()))) == list(range(72))
    assert notes[-1].startswith("Classes are split")


def test_classes_of_a_group_stay_together() -> None:
    labels, groups = np.repeat(np.arange(12), 6), np.arange(12) // 3
    found, _ = split_by_class(labels, CLASSES, None, DataSettings(ways=2, val=0.25, test=0.25), groups)
    of = [set(groups[labels[rows]].tolist()) for rows in found.values()]
    assert sum(map(len, of)) == len(set.union(*of)) == 4


def test_splits_that_are_given_stand_where_their_classes_are_apart() -> None:
    labels = np.repeat(np.arange(12), 6)
    given_splits = {"train": np.arange(48), "test": np.arange(48, 72)}
    found, notes = split_by_class(labels, CLASSES, given_splits, DataSettings(ways=2))
    assert found["test"].tolist() == list(range(48, 72))
    assert set(labels[found["val"]]) <= set(range(8))
    assert len(notes) == 1
    shared = {"train": np.arange(0, 72, 2), "test": np.arange(1, 72, 2)}
    found, notes = split_by_class(labels, CLASSES, shared, DataSettings(ways=2))
    assert "The train and test splits of this data have classes in common" in notes[0]
    assert not set(labels[found["train"]]) & set(labels[found["test"]])


def test_an_episode_is_of_so_many_classes_support_first() -> None:
    target = Episodes(3, 2, 4)
    episodes = EpisodeSplit(split(), target, 50, CLASSES)
    (batch,) = episodes.batches([torch.arange(50)])
    drawn = batch.inputs[0].view(50, target.size, 2)
    assert (target.support, target.size) == (6, 18)
    for own, y in zip(drawn, batch.target):
        assert y.tolist() == [0, 0, 1, 1, 2, 2, *[0] * 4, *[1] * 4, *[2] * 4]
        numbers, classes = own[:, 0].long(), own[:, 1].long()
        assert len(set(numbers.tolist())) == target.size  # no example is asked that was shown
        named = [set(classes[y == k].tolist()) for k in range(3)]
        assert [len(one) for one in named] == [1, 1, 1]
        assert len(set.union(*named)) == 3


def test_draws_belong_to_the_seed_and_to_the_episode_alone() -> None:
    episodes = EpisodeSplit(split(), Episodes(3, 1, 2), 50, CLASSES)

    def seen(order: list[list[int]], seed: int | None) -> dict[int, list[float]]:
        plan = [torch.tensor(batch) for batch in order]
        found = [batch.inputs[0].view(len(i), -1).tolist() for i, batch in zip(plan, episodes.batches(plan, seed))]
        return dict(zip(torch.cat(plan).tolist(), [row for rows in found for row in rows]))

    together, apart = seen([[4, 7, 9]], 3), seen([[9], [4, 1], [7]], 3)
    assert all(together[i] == apart[i] for i in (4, 7, 9))
    assert seen([[4]], None) == seen([[4]], None)
    assert seen([[4]], 4) != seen([[4]], 3) != seen([[4]], None)
    assert len({tuple(row) for row in seen([list(range(50))], 5).values()}) > 45


def test_all_classes_and_examples_come_as_often() -> None:
    episodes = EpisodeSplit(split(12, 6), Episodes(3, 1, 2), 3000, CLASSES)
    (batch,) = episodes.batches([torch.arange(3000)], seed=1)
    counts = batch.inputs[0][:, 0].long().bincount(minlength=72)
    expected = 3000 * 9 / 72  # 375; the standard deviation is less than its root
    assert (counts - expected).abs().max() < 5 * expected**0.5


def folder(path: Path, splits: dict[str, list[str]], each: int = 5) -> Path:
    """A folder of class folders of small images, with or without splits."""
    rng = np.random.default_rng(0)
    for name, classes in splits.items():
        for one in classes:
            (path / name / one).mkdir(parents=True)
            for i in range(each):
                pixels = rng.integers(0, 256, (9, 9), np.uint8)
                Image.fromarray(pixels).save(path / name / one / f"{i}.png")
    return path


def opened(path: Path | str, **given: Any) -> DataSet:
    return open_data(path, DataSettings(**{"ways": 2, "queries": 2, **given}), targets=(Episodes,))


@pytest.mark.parametrize("memory", [512, 0])
def test_a_folder_whose_splits_have_other_classes_is_taken_as_it_is(tmp_path: Path, memory: int) -> None:
    path = folder(tmp_path, {"train": ["a", "b", "c"], "val": ["d", "e"], "test": ["f", "g"]})
    data = opened(path, memory=memory, workers=0)
    test = data.splits["test"]
    assert isinstance(test, EpisodeSplit)
    assert {test.classes[k] for k in test.of_class} == {"f", "g"}
    (batch,) = test.batches([torch.arange(3)])
    assert batch.inputs[0].shape == (3 * 6, 1, 9, 9)
    assert data.spec.target == Episodes(2, 1, 2)
    picture = test.image(0)
    assert picture is not None
    assert test.name(0).startswith("episode 0: ")
    with pytest.raises(DataError, match="class without training images"):  # where classes are learned
        open_data(path, DataSettings())


def test_other_labelled_images_make_episodes_of_their_own_classes(tmp_path: Path) -> None:
    data = opened(folder(tmp_path / "own", {"": list("abcdefgh")}))
    other = data.preprocessing.labelled(folder(tmp_path / "other", {"": list("xyz")}))
    assert isinstance(other, EpisodeSplit)
    assert other.classes == ("x", "y", "z")


def test_sets_with_splits_by_example_are_split_by_class() -> None:
    data = opened("digits", ways=3)
    kinds = [set(s.of_class) for s in data.splits.values() if isinstance(s, EpisodeSplit)]
    assert [len(kind) for kind in kinds] == [4, 3, 3]
    assert len(set.union(*kinds)) == 10


@pytest.mark.parametrize(
    ("given_settings", "error", "said"),
    [
        ({"ways": 4}, SettingError, r"ways=4 is too large: .* 10 classes are fewer than 3 times as many"),
        ({"ways": 3, "shots": 100, "queries": 90}, DataError,
         r"The class '\d' has 1[78]\d examples in the train split, and an episode takes 190 .*shots=100"),
        ({"ways": 2, "max_samples": 12, "queries": 4}, DataError, r"has [123] examples in the train split"),
        ({"ways": 2, "mixup": 0.3}, SettingError, "mixup=0.3 blends images and their classes"),
    ],
)  # fmt: skip
def test_what_the_data_has_too_little_for_is_named(given_settings: Any, error: Any, said: str) -> None:
    with pytest.raises(error, match=said):
        opened("digits", **given_settings)


def test_given_splits_with_too_few_classes_are_named(tmp_path: Path) -> None:
    path = folder(tmp_path, {"train": ["a", "b", "c", "x"], "val": ["d", "e", "y"], "test": ["f", "g"]})
    with pytest.raises(SettingError, match=r"Invalid ways=3: the test split has 2 classes \(f, g\)"):
        opened(path, ways=3)


def test_other_examples_are_held_to_it_too() -> None:
    with pytest.raises(DataError, match=r"The class 'c0' has 6 examples in the test split, and an episode takes 7"):
        labelled_episodes(split(), Episodes(3, 2, 5), CLASSES)
