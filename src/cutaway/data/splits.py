"""Splits of examples: seeded, stratified by class, with groups kept together, and identified by a hash.

Splits are a dictionary from train, val and test to sorted arrays of example numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.errors import IncompatibleSettingError, NotEnoughDataError, SettingError
from .settings import DataSettings

Rows = npt.NDArray[np.int64]  # example numbers
Array = npt.NDArray[Any]

SPLITS = ("train", "val", "test")


def split_indices(
    n: int,
    *,
    val: float,
    test: float,
    seed: int,
    strata: Array | None = None,
    groups: Array | None = None,
    each: bool = True,
) -> dict[str, Rows]:
    """Split examples 0 … n−1 into train, val and test at random, by numpy's Generator with this seed.

    A split with fraction 0 is omitted. With `strata` (n,), each stratum's count in each split is within 1 of its
    fraction. With `each`, a stratum with at least as many examples as there are splits is in all of them, even if its
    fraction is smaller. With `groups` (n,), all examples of a group are in one split, and the fractions are matched as
    closely as whole groups allow.
    """
    rng = np.random.default_rng(seed)
    fractions = np.array([1 - val - test, val, test])
    classes = np.zeros(n, np.int64) if strata is None else np.unique(strata, return_inverse=True)[1]
    if groups is None:
        split = _stratify_rows(classes, fractions, rng, each and strata is not None)
    else:
        split = _stratify_groups(classes, np.unique(groups, return_inverse=True)[1], fractions, rng)
    return {name: np.flatnonzero(split == p) for p, name in enumerate(SPLITS) if fractions[p] > 0}


def draw_splits(
    n: int, settings: DataSettings, *, val: float, test: float, strata: Array | None = None, groups: Array | None = None
) -> dict[str, Rows]:
    """Split examples 0 … n−1 by the settings: by fractions, or by cross-validation folds.

    With `fold`, that fold of `folds` is the test split, and the fraction `val` of the others is for validation. Raises
    SettingError for a fold that does not exist.
    """
    seed, fold, folds = settings.split_seed, settings.fold, settings.folds
    if fold is None:
        return split_indices(n, val=val, test=test, seed=seed, strata=strata, groups=groups)
    if fold > folds:
        raise SettingError(f"Invalid fold={fold}: must be 1 to {folds}, the number of folds.")
    rng, fractions = np.random.default_rng(seed), np.full(folds, 1 / folds)
    classes = np.zeros(n, np.int64) if strata is None else np.unique(strata, return_inverse=True)[1]
    if groups is None:
        number = _stratify_rows(classes, fractions, rng, each=strata is not None)
    else:
        number = _stratify_groups(classes, np.unique(groups, return_inverse=True)[1], fractions, rng)
    rest = np.flatnonzero(number != fold - 1)
    taken = [None if a is None else a[rest] for a in (strata, groups)]
    splits = split_indices(len(rest), val=val, test=0.0, seed=seed, strata=taken[0], groups=taken[1])
    return {name: rest[rows] for name, rows in splits.items()} | {"test": np.flatnonzero(number == fold - 1)}


def sample_rows(rows: Rows, count: int, *, seed: int, strata: Array | None = None) -> Rows:
    """Sample at most `count` of `rows` at random, sorted; with `strata` (one for each row), in proportion."""
    if count >= len(rows):
        return rows
    fraction = count / len(rows)
    taken = split_indices(len(rows), val=1 - fraction, test=0.0, seed=seed, strata=strata, each=False)["train"]
    return rows[taken]


def remaining_fractions(settings: DataSettings, given: Container[str] = ()) -> tuple[float, float]:
    """Return the fractions of val and test to split off; 0 for splits that are given.

    Raises SettingError if nothing would be left for training.
    """
    val, test = (0.0 if split in given else getattr(settings, split) for split in SPLITS[1:])
    if val + test >= 1:
        raise SettingError(f"val={val:g} and test={test:g} leave nothing to train on: together they must be below 1.")
    return val, test


def complete_split(
    labels: Rows,
    classes: Sequence[str],
    given: Mapping[str, Rows] | None,
    settings: DataSettings,
    groups: Array | None = None,
) -> dict[str, Rows]:
    """Return train, val and test, stratified by class: `given` splits where they exist, the rest drawn from the train
    split.

    Examples with the same value in `groups` (one for each) stay together. `max_samples` reduces only the training
    examples, so that scores remain comparable. Raises DataError if a split would be empty, or a class would have no
    training example.
    """
    given = given if given is not None else {"train": np.arange(len(labels))}
    train = given["train"]
    val, test = remaining_fractions(settings, given)
    if settings.fold is not None and "test" in given:
        raise IncompatibleSettingError(
            f"fold={settings.fold} makes a test split, and this data has its own: leave it out."
        )
    drawn = draw_splits(len(train), settings, val=val, test=test, strata=labels[train], groups=groups)
    found = {name: train[rows] for name, rows in drawn.items()}
    found |= {name: rows for name, rows in given.items() if name != "train"}
    indices = {name: found[name] for name in SPLITS if name in found}
    for name, rows in indices.items():
        if not len(rows):
            raise NotEnoughDataError(
                f"The {name} split gets no example: val={val:g} and test={test:g} of {len(train):,} examples.",
                fix="Add some, or give fractions that leave at least one to each split.",
            )
    if settings.max_samples is not None:
        train = indices["train"]
        indices["train"] = sample_rows(train, settings.max_samples, seed=settings.split_seed, strata=labels[train])
    taught = np.bincount(labels[indices["train"]], minlength=len(classes))
    if (taught == 0).any():
        k = int(taught.argmin())
        limited = f" under max_samples={settings.max_samples}" if settings.max_samples is not None else ""
        raise NotEnoughDataError(
            f"No example of the class {classes[k]!r} is left for training{limited}: it has {(labels == k).sum():,}.",
            fix="Each class needs some for training, in addition to validation and test: add examples, or leave "
            "the class out.",
        )
    return indices


def split_hash(splits: Mapping[str, Rows]) -> str:
    """Return a sha256 of the assignment of examples to splits."""
    digest = hashlib.sha256()
    for name in sorted(splits):
        digest.update(f"{name} {len(splits[name])}\n".encode())
        digest.update(np.sort(splits[name]).astype("<i8").tobytes())
    return digest.hexdigest()


def _stratify_rows(classes: Rows, fractions: Array, rng: np.random.Generator, each: bool) -> Rows:
    """Return the split (0, 1, 2) of each example: each class is shuffled and divided by `_apportion`."""
    shuffled = rng.permutation(len(classes))
    ordered = shuffled[np.argsort(classes[shuffled], kind="stable")]  # class by class, at random within each
    sizes = np.bincount(classes)
    counts = _apportion(sizes, fractions)  # (classes, splits)
    if each:
        _fill_empty_splits(counts, fractions)
    split = np.empty(len(classes), np.int64)
    split[ordered] = np.repeat(np.tile(np.arange(len(fractions)), len(counts)), counts.ravel())
    return split


def _apportion(sizes: Array, fractions: Array) -> Rows:
    """Return integers (classes, splits) that add up to `sizes` and differ by less than 1 from sizes × fractions.

    The remainder of rounding down goes to the splits with the largest accumulated deficit, so that the totals stay near
    their fractions even with many small classes.
    """
    ideal = sizes[:, None] * fractions  # (classes, splits)
    counts = np.floor(ideal + 1e-9).astype(np.int64)
    owed = np.zeros(len(fractions))
    for k in range(len(sizes)):
        fraction = ideal[k] - counts[k]
        owed += fraction
        left = sizes[k] - counts[k].sum()
        open_to = np.where(fraction > 1e-9, owed, -np.inf)  # a split with an integer count gets no more
        given = np.argsort(-open_to, kind="stable")[:left]
        counts[k, given] += 1
        owed[given] -= 1
    return counts


def _fill_empty_splits(counts: Rows, fractions: Array) -> None:
    """Move one example of a class to each split that has none of it, from the split that has most, in place.

    Classes with fewer examples than splits are skipped. A class that is missing from a split cannot be evaluated there.
    """
    wanted = np.flatnonzero(fractions > 0)
    for own in counts:  # counts of one class, by split
        if own.sum() < len(wanted):
            continue
        for split in wanted[own[wanted] == 0]:
            own[own.argmax()] -= 1
            own[split] += 1


def _stratify_groups(classes: Rows, groups: Rows, fractions: Array, rng: np.random.Generator) -> Rows:
    """Return the split of each example: groups, largest first, each to the split with the greatest need for its
    classes.

    Adding a group with class counts g to a split that still needs r reduces |r|² by 2 r·g − |g|², so the split with the
    largest r·g is chosen.
    """
    group_counts = np.zeros((groups.max() + 1, classes.max() + 1))  # (groups, classes)
    np.add.at(group_counts, (groups, classes), 1)
    needed = fractions[:, None] * group_counts.sum(0)  # (splits, classes)
    wanted = np.flatnonzero(fractions > 0)
    order = rng.permutation(len(group_counts))
    order = order[np.argsort(-group_counts[order].sum(1), kind="stable")]
    split_of = np.empty(len(group_counts), np.int64)
    empty = set(wanted.tolist())
    for done, g in enumerate(order):
        last = len(order) - done <= len(empty)  # as many groups are left as splits without one
        allowed = np.array(sorted(empty)) if last else wanted
        p = allowed[np.argmax(needed[allowed] @ group_counts[g])]
        split_of[g] = p
        needed[p] -= group_counts[g]
        empty.discard(int(p))
    return split_of[groups]


def split_by_position(
    texts: Mapping[str, str], settings: DataSettings, *, whole_words: bool
) -> tuple[dict[str, str], list[str]]:
    """Return the text of each split and notes about it. Missing splits are cut from the end of the train split.

    Their sizes are fractions of its characters; with `whole_words` each cut is moved back to the previous blank. Raises
    SettingError or DataError if a split would be empty.
    """
    whole = texts["train"]

    def after_blank(begin: int, place: int) -> int:
        return max(whole.rfind(blank, begin, place) + 1 for blank in (" ", "\n")) or place

    fractions = remaining_fractions(settings, texts)
    places, said = split_ranges(len(whole), *fractions, after_blank if whole_words else None)
    splits = {split: whole[begin:end] for split, (begin, end) in places.items()}
    return splits | {split: text for split, text in texts.items() if split != "train"}, said


def split_ranges(
    length: int, val: float, test: float, after_blank: Callable[[int, int], int] | None = None
) -> tuple[dict[str, tuple[int, int]], list[str]]:
    """Return the range of each split of a text of `length` characters, the training split first, and a note about it.

    `after_blank(begin, place)` moves a cut back to after the last blank since `begin`, to keep words whole. Raises
    DataError if a split would be empty.
    """
    fractions = {"train": 1 - val - test, "val": val, "test": test}
    cut = [split for split in SPLITS if fractions[split]]
    places = [0]
    for split in cut:
        place = min(length, places[-1] + round(fractions[split] * length))
        if split == cut[-1]:
            place = length
        elif after_blank is not None:
            place = after_blank(places[-1], place)
        places.append(place)
    found = dict(zip(cut, pairwise(places)))
    for split, (begin, end) in found.items():
        if begin == end:
            raise NotEnoughDataError(
                f"The {split} split gets no text: val={val:g} and test={test:g} of {length:,} characters.",
                fix="Give more text, or fractions that leave some to each split.",
            )
    if len(cut) == 1:
        return found, []
    said = ", ".join(f"{split} {end - begin:,}" for split, (begin, end) in found.items())
    return found, [f"The text is split by position, the training split first (characters: {said})."]


def filter_splits(splits: Mapping[str, Rows] | None, kept: Rows) -> dict[str, Rows] | None:
    """Return the splits without the rows that are not `kept`. Rows are renumbered by their position in `kept`.

    Raises DataError if a split is empty.
    """
    if splits is None:
        return None
    found = {split: np.flatnonzero(np.isin(kept, rows)) for split, rows in splits.items()}
    for split, rows in found.items():
        if not len(rows):
            raise NotEnoughDataError(
                f"missing=drop would leave nothing of the {split} split.", fix="Repair some of its files."
            )
    return found
