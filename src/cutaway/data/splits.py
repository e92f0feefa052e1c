"""Which example is in which part: seeded, stratified by class, groups kept whole, and told by a hash.

Parts are a dictionary from train, val and test to sorted arrays of example numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from ..errors import DataError, SettingError
from .findings import Finding
from .settings import DataSettings

Rows = npt.NDArray[np.int64]  # example numbers
Array = npt.NDArray[Any]

PARTS = ("train", "val", "test")


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
    """Split examples 0 … n−1 into train, val and test, by numpy's Generator with that seed.

    A share of 0 makes no such part. With `strata` (n,), each of its values is in each part within 1 of its share; with
    `each`, one that has as many examples as there are parts is in all of them, though its share be less. With
    `groups` (n,), all examples of one value are in one part, and the shares are met as well as whole groups allow.
    """
    rng = np.random.default_rng(seed)
    shares = np.array([1 - val - test, val, test])
    classes = np.zeros(n, np.int64) if strata is None else np.unique(strata, return_inverse=True)[1]
    if groups is None:
        part = _by_row(classes, shares, rng, each and strata is not None)
    else:
        part = _by_group(classes, np.unique(groups, return_inverse=True)[1], shares, rng)
    return {name: np.flatnonzero(part == p) for p, name in enumerate(PARTS) if shares[p] > 0}


def drawn_parts(
    n: int, settings: DataSettings, *, val: float, test: float, strata: Array | None = None, groups: Array | None = None
) -> dict[str, Rows]:
    """Split examples 0 … n−1 as the settings ask: by shares, or, with `fold`, that fold of `folds` is the test part and
    the share `val` of the others validates. Raises SettingError for a fold that there is not."""
    seed, fold, folds = settings.split_seed, settings.fold, settings.folds
    if fold is None:
        return split_indices(n, val=val, test=test, seed=seed, strata=strata, groups=groups)
    if fold > folds:
        raise SettingError(f"fold={fold} cannot be: it must be 1 to {folds}, the number of folds.")
    rng, shares = np.random.default_rng(seed), np.full(folds, 1 / folds)
    classes = np.zeros(n, np.int64) if strata is None else np.unique(strata, return_inverse=True)[1]
    if groups is None:
        number = _by_row(classes, shares, rng, each=strata is not None)
    else:
        number = _by_group(classes, np.unique(groups, return_inverse=True)[1], shares, rng)
    rest = np.flatnonzero(number != fold - 1)
    taken = [None if a is None else a[rest] for a in (strata, groups)]
    parts = split_indices(len(rest), val=val, test=0.0, seed=seed, strata=taken[0], groups=taken[1])
    return {name: rest[rows] for name, rows in parts.items()} | {"test": np.flatnonzero(number == fold - 1)}


def draw(rows: Rows, count: int, *, seed: int, strata: Array | None = None) -> Rows:
    """At most `count` of `rows`, at random, sorted; with `strata` (one for each row), of each its share."""
    if count >= len(rows):
        return rows
    share = count / len(rows)
    taken = split_indices(len(rows), val=1 - share, test=0.0, seed=seed, strata=strata, each=False)["train"]
    return rows[taken]


def complete_split(
    labels: Rows, classes: Sequence[str], given: Mapping[str, Rows] | None, settings: DataSettings
) -> dict[str, Rows]:
    """Train, val and test, each class in its share: `given` where it has them, the rest drawn from its train part.

    `limit` then thins out the training examples alone, so that scores at different limits are of the same examples.
    Raises DataError where a part would be empty, or a class would have no training example.
    """
    given = given if given is not None else {"train": np.arange(len(labels))}
    train = given["train"]
    val = 0.0 if "val" in given else settings.val
    test = 0.0 if "test" in given else settings.test
    if val + test >= 1:
        raise SettingError(f"val={val:g} and test={test:g} leave nothing to train on: together they must be below 1.")
    if settings.fold is not None and "test" in given:
        raise SettingError(f"fold={settings.fold} makes a test part, and this data has its own: leave it out.")
    drawn = drawn_parts(len(train), settings, val=val, test=test, strata=labels[train])
    found = {name: train[rows] for name, rows in drawn.items()}
    found |= {name: rows for name, rows in given.items() if name != "train"}
    split = {name: found[name] for name in PARTS if name in found}
    for name, rows in split.items():
        if not len(rows):
            raise DataError(
                f"The {name} part gets no example: val={val:g} and test={test:g} of {len(train):,} examples.",
                mend="Add some, or give shares that leave at least one to each part.",
            )
    if settings.max_samples is not None:
        train = split["train"]
        split["train"] = draw(train, settings.max_samples, seed=settings.split_seed, strata=labels[train])
    taught = np.bincount(labels[split["train"]], minlength=len(classes))
    if (taught == 0).any():
        k = int(taught.argmin())
        limited = f" under max_samples={settings.max_samples}" if settings.max_samples is not None else ""
        raise DataError(
            f"No example of the class {classes[k]!r} is left for training{limited}: it has {(labels == k).sum():,}.",
            mend="Each class needs some for training, besides those for validation and test: add examples, or leave "
            "the class out.",
        )
    return split


def split_hash(parts: Mapping[str, Rows]) -> str:
    """sha256 of which example is in which part."""
    digest = hashlib.sha256()
    for name in sorted(parts):
        digest.update(f"{name} {len(parts[name])}\n".encode())
        digest.update(np.sort(parts[name]).astype("<i8").tobytes())
    return digest.hexdigest()


def straddling(keys: Sequence[Any] | Array, parts: Mapping[str, Rows]) -> list[tuple[Any, dict[str, list[int]]]]:
    """The keys (one for each example: str, bytes or int) that occur in more than one part, with their rows by part.

    An example that stands in several parts by itself (a fixed split that overlaps) is no duplicate.
    """
    column = pl.Series("key", keys)
    placed = pl.concat(
        pl.DataFrame(
            {"key": column.gather(rows), "row": rows.astype(np.int64), "part": pl.repeat(name, len(rows), eager=True)}
        )
        for name, rows in parts.items()
    )
    twice = placed.filter(
        (pl.col("part").n_unique().over("key") > 1) & (pl.col("row").n_unique().over("key") > 1)
    ).sort("row", maintain_order=True)
    found: dict[Any, dict[str, list[int]]] = {}
    for key, row, name in twice.iter_rows():
        found.setdefault(key, {}).setdefault(name, []).append(row)
    return list(found.items())


def straddle_note(
    keys: Sequence[Any] | Array, parts: Mapping[str, Rows], name: Callable[[int], str], what: str = "rows"
) -> str | None:
    """A sentence that counts the duplicates that stand in different parts and names a few; None where there are none.

    `name` gives what a person calls an example, `what` the word for many of them: rows, images.
    """
    found = [rows for _, rows in straddling(keys, parts)]
    if not found:
        return None
    counts = dict.fromkeys(parts, 0)
    pairs: list[str] = []
    for places in found:
        (home, rows), *elsewhere = ((part, places[part]) for part in parts if part in places)
        for part, copies in elsewhere:
            counts[part] += len(copies)
            if len(pairs) < 3:
                pairs.append(f"{name(copies[0])} ({part}) = {name(rows[0])} ({home})")
    counted = " and ".join(f"{k:,} of {len(parts[p]):,} {what} in {p}" for p, k in counts.items() if k)
    return Finding(
        f"Duplicates straddle the split: {counted} equal one of an earlier part in every input, for example "
        f"{'; '.join(pairs)}. On them a score measures memory: remove the copies, or keep them in one split."
    )


def _by_row(classes: Rows, shares: Array, rng: np.random.Generator, each: bool) -> Rows:
    """The part (0, 1, 2) of each example: each class is shuffled and dealt out by `_apportion`."""
    shuffled = rng.permutation(len(classes))
    ordered = shuffled[np.argsort(classes[shuffled], kind="stable")]  # class by class, at random within each
    sizes = np.bincount(classes)
    counts = _apportion(sizes, shares)  # (classes, parts)
    if each:
        _one_to_each(counts, shares)
    part = np.empty(len(classes), np.int64)
    part[ordered] = np.repeat(np.tile(np.arange(len(shares)), len(counts)), counts.ravel())
    return part


def _apportion(sizes: Array, shares: Array) -> Rows:
    """Whole numbers (classes, parts) that add up to `sizes` and are less than 1 from sizes × shares.

    What rounding down leaves over goes to the parts that have been short-changed most by the classes before, so that
    the totals stay near their shares too when there are many small classes.
    """
    ideal = sizes[:, None] * shares  # (classes, parts)
    counts = np.floor(ideal + 1e-9).astype(np.int64)
    owed = np.zeros(len(shares))
    for k in range(len(sizes)):
        fraction = ideal[k] - counts[k]
        owed += fraction
        left = sizes[k] - counts[k].sum()
        open_to = np.where(fraction > 1e-9, owed, -np.inf)  # a part with a whole share gets no more
        given = np.argsort(-open_to, kind="stable")[:left]
        counts[k, given] += 1
        owed[given] -= 1
    return counts


def _one_to_each(counts: Rows, shares: Array) -> None:
    """Give a part that got nothing of a class one example of it, from the part that has most, in place, where there are
    enough: what a part has none of is not measured there."""
    wanted = np.flatnonzero(shares > 0)
    for own in counts:  # those of one class, by part
        if own.sum() < len(wanted):
            continue
        for part in wanted[own[wanted] == 0]:
            own[own.argmax()] -= 1
            own[part] += 1


def _by_group(classes: Rows, groups: Rows, shares: Array, rng: np.random.Generator) -> Rows:
    """The part of each example: groups, the largest first, each to the part that lacks most of what it holds.

    Putting a group with class counts g into a part that still needs r brings |r|² down by 2 r·g − |g|², so the part
    with the largest r·g is taken.
    """
    held = np.zeros((groups.max() + 1, classes.max() + 1))  # (groups, classes)
    np.add.at(held, (groups, classes), 1)
    needed = shares[:, None] * held.sum(0)  # (parts, classes)
    wanted = np.flatnonzero(shares > 0)
    order = rng.permutation(len(held))
    order = order[np.argsort(-held[order].sum(1), kind="stable")]
    part_of = np.empty(len(held), np.int64)
    empty = set(wanted.tolist())
    for done, g in enumerate(order):
        last = len(order) - done <= len(empty)  # as many groups are left as parts without one
        allowed = np.array(sorted(empty)) if last else wanted
        p = allowed[np.argmax(needed[allowed] @ held[g])]
        part_of[g] = p
        needed[p] -= held[g]
        empty.discard(int(p))
    return part_of[groups]


def split_by_position(
    texts: Mapping[str, str], settings: DataSettings, *, whole_words: bool
) -> tuple[dict[str, str], list[str]]:
    """The text of each part, and what a person should know of it: parts that are not given are cut from the end of
    the train part, by their shares of its characters; with `whole_words` at the blank before that place.

    Raises SettingError or DataError where nothing would be left to train on, or nothing for another part.
    """
    val = 0.0 if "val" in texts else settings.val
    test = 0.0 if "test" in texts else settings.test
    if val + test >= 1:
        raise SettingError(f"val={val:g} and test={test:g} leave nothing to train on: together they must be below 1.")
    whole = texts["train"]
    shares = {"train": 1 - val - test, "val": val, "test": test}
    cut = [part for part in PARTS if shares[part]]
    places = [0]
    for part in cut:
        place = min(len(whole), places[-1] + round(shares[part] * len(whole)))
        if part == cut[-1]:
            place = len(whole)
        elif whole_words:
            place = max(whole.rfind(blank, places[-1], place) + 1 for blank in (" ", "\n")) or place
        places.append(place)
    parts = {part: whole[begin:end] for part, (begin, end) in zip(cut, pairwise(places))}
    parts |= {part: text for part, text in texts.items() if part != "train"}
    for part, text in parts.items():
        if not text:
            raise DataError(
                f"The {part} part gets no text: val={val:g} and test={test:g} of {len(whole):,} characters.",
                mend="Give more text, or shares that leave some to each part.",
            )
    if len(cut) == 1:
        return parts, []
    said = ", ".join(f"{part} {len(parts[part]):,}" for part in cut)
    return parts, [f"The text is split by position, the training part first (characters: {said})."]
