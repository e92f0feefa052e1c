"""Splits cover every example once, keep fractions by class, keep groups whole, repeat by seed; duplicates are told."""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.core.errors import SettingError
from cutaway.data.settings import DataSettings
from cutaway.data.splits import (
    SPLITS,
    complete_split,
    draw_splits,
    remaining_fractions,
    sample_rows,
    split_hash,
    split_indices,
)

fractions = st.tuples(st.floats(0.0, 0.45), st.floats(0.0, 0.45))
class_sizes = st.lists(st.integers(1, 60), min_size=1, max_size=12)


def labels_of(sizes: list[int], seed: int) -> np.ndarray:
    names = np.repeat([f"class {k}" for k in range(len(sizes))], sizes)
    return np.random.default_rng(seed).permutation(names)


@settings(max_examples=150, deadline=None)
@given(sizes=class_sizes, fractions=fractions, seed=st.integers(0, 9), stratify=st.booleans())
def test_every_example_once_and_every_class_within_one_of_its_share(
    sizes: list[int], fractions: tuple[float, float], seed: int, stratify: bool
) -> None:
    labels = labels_of(sizes, seed)
    val, test = fractions
    splits = split_indices(len(labels), val=val, test=test, seed=seed, strata=labels if stratify else None)
    wanted = {split: fraction for split, fraction in zip(SPLITS, (1 - val - test, val, test)) if fraction > 0}
    assert list(splits) == list(wanted)
    assert np.array_equal(np.sort(np.concatenate(list(splits.values()))), np.arange(len(labels)))
    for split, fraction in wanted.items():
        assert np.array_equal(splits[split], np.sort(splits[split]))
        counts = [(int((labels[splits[split]] == name).sum()), int((labels == name).sum())) for name in set(labels)]
        whole = [
            size for _, size in counts if size * min(wanted.values()) < 1
        ]  # one is given where it has a right to less
        assert abs(len(splits[split]) - fraction * len(labels)) < 1.001 + (len(whole) * len(wanted) if stratify else 0)
        for own, size in counts if stratify else ():
            assert abs(own - fraction * size) < 1.001 + (len(wanted) if size * min(wanted.values()) < 1 else 0)
            assert own or size < len(wanted)


def test_the_seed_gives_the_split_and_its_hash() -> None:
    def split(seed: int) -> dict[str, np.ndarray]:
        return split_indices(200, val=0.15, test=0.15, seed=seed)

    assert all(np.array_equal(split(3)[p], split(3)[p]) for p in SPLITS)
    assert split_hash(split(3)) == split_hash(split(3)) != split_hash(split(4))
    assert [len(split(3)[p]) for p in SPLITS] == [140, 30, 30]
    # Kept from the first version: runs that were trained then must find the same rows in their test split.
    assert split_hash(split(3)) == "d21d0ea2003c52955354f970a569bf50665460f768f04f98490ed112022732c8"


def test_the_seed_moves_whole_groups_too() -> None:
    groups = np.repeat(np.arange(30), 4)

    def split(seed: int) -> str:
        return split_hash(split_indices(120, val=0.2, test=0.2, seed=seed, groups=groups))

    assert split(1) == split(1) != split(2)


def test_the_hash_tells_which_part_holds_which_example_and_not_the_order() -> None:
    splits = {"train": np.array([0, 2]), "val": np.array([1])}
    assert split_hash(splits) == split_hash({"val": np.array([1]), "train": np.array([2, 0])})
    assert split_hash(splits) != split_hash({"train": np.array([1]), "val": np.array([0, 2])})
    content = b"train 2\n" + struct.pack("<2q", 0, 2) + b"val 1\n" + struct.pack("<q", 1)
    assert split_hash(splits) == hashlib.sha256(content).hexdigest()


def test_rows_of_every_place_are_as_likely_in_every_part() -> None:
    hits = np.zeros(100)
    for seed in range(300):
        hits[split_indices(100, val=0.2, test=0.2, seed=seed)["val"]] += 1
    assert hits.min() > 30  # of 300 × 0.2 = 60 expected, standard deviation 7
    assert hits.max() < 95


@settings(max_examples=100, deadline=None)
@given(
    group_sizes=st.lists(st.integers(1, 12), min_size=3, max_size=40),
    classes=st.integers(1, 4),
    seed=st.integers(0, 9),
)
def test_groups_stay_whole_and_no_part_is_empty(group_sizes: list[int], classes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.repeat(np.arange(len(group_sizes)), group_sizes))
    labels = rng.integers(0, classes, len(groups))
    splits = split_indices(len(groups), val=0.15, test=0.15, seed=seed, strata=labels, groups=groups)
    assert np.array_equal(np.sort(np.concatenate(list(splits.values()))), np.arange(len(groups)))
    held = [set(groups[rows]) for rows in splits.values()]
    assert all(held)
    assert sum(map(len, held)) == len(set(groups))


def test_many_small_groups_come_near_the_shares_of_every_class() -> None:
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 300, 3000)
    labels = (rng.random(3000) < 0.2).astype(int)
    splits = split_indices(3000, val=0.15, test=0.15, seed=1, strata=labels, groups=groups)
    for split, fraction in zip(SPLITS, (0.7, 0.15, 0.15)):
        assert len(splits[split]) / 3000 == pytest.approx(fraction, abs=0.01)
        assert labels[splits[split]].mean() == pytest.approx(labels.mean(), abs=0.01)


@settings(max_examples=60, deadline=None)
@given(sizes=class_sizes, count=st.integers(1, 80), seed=st.integers(0, 9))
def test_a_draw_has_the_asked_size_and_of_each_class_its_share(sizes: list[int], count: int, seed: int) -> None:
    labels = labels_of(sizes, seed)
    rows = np.flatnonzero(np.ones(len(labels))) * 7
    drawn = sample_rows(rows, count, seed=seed, strata=labels)
    assert len(drawn) == len(set(drawn)) == min(count, len(rows))
    assert set(drawn) <= set(rows)
    for name in set(labels):
        fraction = (labels == name).sum() * len(drawn) / len(rows)
        assert abs((labels[np.isin(rows, drawn)] == name).sum() - fraction) < 1.001


@given(
    n=st.integers(20, 120),
    folds=st.integers(2, 7),
    seed=st.integers(0, 5),
    classes=st.integers(1, 3),
    grouped=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_folds_are_test_parts_that_share_nothing_and_leave_nothing_out(
    n: int, folds: int, seed: int, classes: int, grouped: bool
) -> None:
    strata = np.arange(n) % classes
    groups = np.arange(n) // 2 if grouped else None
    tests = []
    for fold in range(1, folds + 1):
        asked = DataSettings(fold=fold, folds=folds, split_seed=seed)
        splits = draw_splits(n, asked, val=0.2, test=0.15, strata=strata, groups=groups)
        assert sorted(np.concatenate(list(splits.values()))) == list(range(n))
        if groups is not None:
            assert not set(groups[splits["test"]]) & set(groups[splits["train"]])
        tests.append(splits["test"])
    assert sorted(np.concatenate(tests)) == list(range(n))
    assert max(map(len, tests)) - min(map(len, tests)) <= (classes if groups is None else 2 * classes + 2)


def test_a_fold_that_there_is_not_is_rejected() -> None:
    with pytest.raises(SettingError, match="Invalid fold=11: must be 1 to 10"):
        draw_splits(50, DataSettings(fold=11), val=0.1, test=0.1)


@pytest.mark.parametrize("size", range(3, 12))
@pytest.mark.parametrize(("val", "test"), [(0.15, 0.15), (0.02, 0.3), (0.01, 0.01)])
def test_a_class_of_three_is_in_every_part(size: int, val: float, test: float) -> None:
    strata = np.array([0] * 200 + [1] * size)
    for seed in range(3):
        splits = split_indices(len(strata), val=val, test=test, seed=seed, strata=strata)
        assert all((strata[rows] == 1).any() for rows in splits.values())
        assert sum(map(len, splits.values())) == len(strata)
    two = np.array([0] * 200 + [1] * 2)
    splits = split_indices(len(two), val=0.0, test=0.1, seed=0, strata=two)
    assert all((two[rows] == 1).any() for rows in splits.values())


def test_a_fold_has_each_class_that_is_large_enough() -> None:
    strata = np.array([0] * 103 + [1] * 11)
    for fold in range(1, 6):
        splits = draw_splits(len(strata), DataSettings(fold=fold, folds=5), val=0.1, test=0.0, strata=strata)
        assert all((strata[rows] == 1).any() for rows in splits.values())


def test_groups_stay_together_in_every_fold() -> None:
    labels, groups = np.arange(200, dtype=np.int64) % 2, np.arange(200) // 5
    tested = []
    for fold in range(1, 5):
        splits = complete_split(labels, ["a", "b"], None, DataSettings(fold=fold, folds=4), groups)
        held = [set(groups[rows]) for rows in splits.values()]
        assert not any(a & b for i, a in enumerate(held) for b in held[:i])
        tested.append(splits["test"])
    assert np.array_equal(np.sort(np.concatenate(tested)), np.arange(200))


def test_fractions_that_leave_nothing_are_rejected() -> None:
    assert remaining_fractions(DataSettings(val=0.2, test=0.3), {"train": 1, "test": 1}) == (0.2, 0.0)
    with pytest.raises(SettingError, match=r"val=0\.6 and test=0\.4 leave nothing to train on"):
        remaining_fractions(DataSettings(val=0.6, test=0.4))
