"""Tar shards as examples with classes, by an index that is built in one scan if it is missing.

`cutaway prepare` writes an index next to its shards. For other shards an index is built on first use and cached as long
as their sizes and times are unchanged.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import DataError, FileError, Problem
from ..findings import similar_name_hint
from ..folders import FileKind, FolderContents, normalize_name
from ..parallel import map_in_threads
from ..splits import SPLITS, Rows
from ..tables.column_types import natural_order
from .index import Arrays, Index, index_path
from .manifest import AGAIN, file_sha256, is_prepared, read_manifest
from .members import Member, Members, Names
from .tars import examples, list_shards

INDEX = "index.safetensors"  # beside the shards that `cutaway prepare` wrote
UNLABELLED = -1


@dataclass(frozen=True)
class FileInspector:
    """The functions that inspect files of a kind before training."""

    kind: FileKind
    look: Callable[[Any], Any]  # of a path or member: the result of inspection, with its `digest`; or a Problem
    pack: Callable[[Sequence[Any]], Arrays]  # results as arrays, each (n, …)
    unusable: Callable[[Sequence[Problem], int], DataError]  # the error that names the problems, given the total
    read: Callable[[Any, Any], Problem | None]  # the problem of a file when it is read completely, after inspection

    def look_whole(self, file: Any) -> Any:
        """Inspect a file and read it completely; return the result, or the problem if it cannot be read."""
        look = self.look(file)
        return look if isinstance(look, Problem) else self.read(file, look) or look


@dataclass(frozen=True)
class Read:
    """The content of an index, as the kinds of data use it."""

    found: FolderContents[Any]
    looks: Arrays
    fingerprint: str


def read_shards(
    path: Path, looking: FileInspector, classes: bool = True, drop: bool = False, apart: bool = False
) -> Read:
    """Return the examples of tar shards and the results of inspecting them.

    With `classes` each example needs one, and there must be two classes, in the training split unless the classes of
    splits are to be `apart`. With `drop`, examples without a class are left out. Raises DataError if shards or examples
    cannot be used.
    """
    index, said = load_or_build_index(path, looking, drop)
    index, left = _complete(index, path, classes, drop)
    notes = [note for note in (*said, left) if note]
    present = np.bincount(index.labels[index.labels >= 0], minlength=len(index.classes)) > 0
    if classes and present.sum() < 2:
        raise DataError(
            f"The shards of {path} hold one class only, {index.classes[int(present.argmax())]}: there is nothing to "
            "tell apart.",
            fix="Add examples of another class.",
        )
    if classes and not apart and index.splits is not None:
        _reject_untaught(index, path)
    labels = index.labels if classes else np.zeros(len(index), np.int64)
    members = _members(index, path)
    found = FolderContents(index.classes if classes else (), members, index.names, labels, index.splits, notes)
    return Read(found, index.arrays, index.fingerprint)


def load_or_build_index(path: Path, looking: FileInspector, drop: bool = False) -> tuple[Index, list[str]]:
    """Return the index of these shards, and a note if it had to be built.

    With `drop` it is built by reading every example completely. Raises DataError if a prepared shard is missing or has
    another size.
    """
    if not path.is_file() and is_prepared(path):
        then = read_manifest(path).about.get("index")  # checks that every shard exists with its size
        own = Index.load(path / INDEX)
        if own is None or then not in (None, file_sha256(path / INDEX)):  # earlier versions did not store it
            raise DataError(f"{path / INDEX} is missing or damaged: nothing says what stands where.", fix=AGAIN)
        return own, []
    now = {name: [shard.stat().st_size, shard.stat().st_mtime_ns] for name, shard in _named(path)}
    place = index_path(path, looking.kind.kind + "-drop" * drop)
    kept = Index.load(place)
    if kept is not None and kept.places == now:
        return kept, []
    made = make_index(path, looking, drop)
    try:
        made.save(place)
        where = f"is kept in {place} for as long as the shards stay as they are"
    except FileError:
        where = "is kept in memory, as the cache cannot be written"
    return made, [f"The shards had no index: they were read once to make one ({len(made):,} examples), which {where}."]


def make_index(path: Path, looking: FileInspector, drop: bool = False) -> Index:
    """Build an index by reading every shard once.

    Raises DataError that names every unusable example; with `drop` these are among the problems of the index.
    """
    of_split, names = list_shards(path), [name for name, _ in _named(path)]
    arrays: list[Arrays] = []
    written: list[str | None] = []
    called: list[str] = []
    problems: list[Problem] = []
    damaged: list[Problem] = []
    number = 0
    for split, shards in of_split.items():
        for shard in shards:
            found, odd = examples(shard, looking.kind)
            problems += odd
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # problems are reported here instead of as library warnings
                look = looking.look_whole if drop else looking.look
                looks = list(map_in_threads(look, [example.media for example in found]))
            bad = [look for look in looks if isinstance(look, Problem)]
            if drop:
                problems += bad
                found = [example for example, look in zip(found, looks) if not isinstance(look, Problem)]
                looks = [look for look in looks if not isinstance(look, Problem)]
            else:
                damaged += bad
            if not damaged and found:
                own = member_locations([example.media for example in found], number) | looking.pack(looks)
                arrays.append(own | ({"split": np.full(len(found), SPLITS.index(split), np.uint8)} if split else {}))
            written += [example.label and normalize_name(example.label) for example in found]
            called += [f"{names[number]}/{example.media.name}" for example in found]
            number += 1
    if damaged:
        raise looking.unusable(damaged, len(called))
    if not called:
        raise DataError(f"The shards of {path} hold no {looking.kind.plural}.", problems)
    classes = tuple(natural_order({label for label in written if label is not None}))
    numbers = {label: k for k, label in enumerate(classes)}
    label = np.array([UNLABELLED if one is None else numbers[one] for one in written], np.int64)
    joined = {key: np.concatenate([part[key] for part in arrays]) for key in arrays[0]} | {"label": label}
    stats = {name: shard.stat() for name, shard in _named(path)}
    places = {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()}
    return Index(looking.kind.kind, classes, Names.of(called), joined, places, tuple(problems))


def member_locations(members: Sequence[Member], shard: int) -> Arrays:
    """Return the locations of these members of the shard with this number."""
    return {
        "shard": np.full(len(members), shard, np.int32),
        "offset": np.array([member.offset for member in members], np.int64),
        "size": np.array([member.size for member in members], np.int64),
    }


def labelled_shards(path: Path, looking: FileInspector, names: Sequence[str]) -> Read:
    """Return the examples of shards with their classes as indices into `names`.

    If there are splits, the test split is used, else val. Raises DataError for a class that was not in training.
    """
    index, said = load_or_build_index(path, looking)
    index, _ = _complete(index, path, bool(names), drop=False)
    present: list[int] = np.unique(index.labels).tolist() if names else []
    number = {normalize_name(name): k for k, name in enumerate(names)}
    unknown = [index.classes[k] for k in present if normalize_name(index.classes[k]) not in number]
    if unknown:
        raise DataError(
            f"The shards of {path} have the class {unknown[0]!r}, and the model was trained on {', '.join(names)}."
            f"{similar_name_hint(unknown[0], names)}"
        )
    splits = index.splits or {"": np.arange(len(index))}
    rows = next(splits[split] for split in ("test", "val", "train", "") if split in splits)
    labels = np.zeros(len(rows), np.int64)
    if names:
        labels = np.array([number.get(normalize_name(name), UNLABELLED) for name in index.classes])
        labels = labels[index.labels[rows]]
    found = FolderContents(tuple(names), _members(index, path).part(rows), index.names.part(rows), labels, notes=said)
    return Read(found, {key: array[rows] for key, array in index.arrays.items()}, index.fingerprint)


def all_members(path: Path, looking: FileInspector) -> Members:
    """Return all images, recordings or videos of shards, of every split and class."""
    return _members(load_or_build_index(path, looking)[0], path)


def _members(index: Index, path: Path) -> Members:
    shards = [path if path.is_file() else path / name for name in index.places]
    return Members(shards, index.names, index.arrays)


def _named(path: Path) -> list[tuple[str, Path]]:
    """Return every shard with its name in the folder, split by split."""
    shards = [shard for of_split in list_shards(path).values() for shard in of_split]
    return [(shard.name if path.is_file() else str(shard.relative_to(path)), shard) for shard in shards]


def _complete(index: Index, path: Path, classes: bool, drop: bool) -> tuple[Index, str | None]:
    """Return the examples that have a class, if required, and a note on the others.

    Raises DataError that names them unless `drop` is set.
    """
    without = np.flatnonzero(index.labels < 0) if classes else np.zeros(0, np.int64)
    unlabelled = [Problem(index.names[i], "it has no class: no KEY.cls or KEY.json says one") for i in without.tolist()]
    problems = [*index.problems, *unlabelled]
    if not problems:
        return index, None
    kept: Rows = np.setdiff1d(np.arange(len(index)), without)
    if not drop or not len(kept):
        raise DataError(
            f"{len(problems):,} keys in the shards of {path} cannot be used:",
            problems,
            "Give each example one file and its class, or leave those out with missing=drop.",
        )
    some = "; ".join(map(str, problems[:3])) + ("; …" if len(problems) > 3 else "")
    return index.part(kept) if len(without) else index, f"missing=drop left out {len(problems):,} keys: {some}."


def _reject_untaught(index: Index, path: Path) -> None:
    """Raise DataError if a class has no example in the training split."""
    splits = index.splits or {}
    taught = np.unique(index.labels[splits["train"]])
    for split, rows in splits.items():
        strange = np.setdiff1d(index.labels[rows], taught)
        if len(strange):
            raise DataError(
                f"The class {index.classes[int(strange[0])]} stands in the shards of {split} and in none of training "
                f"in {path}.",
                fix="Add shards with training examples of it, or leave the class out.",
            )
