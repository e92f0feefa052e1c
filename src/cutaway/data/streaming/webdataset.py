"""Tar shards in the WebDataset convention, whose content is found by reading only headers.

    train-000000.tar      000000.jpg  000000.cls  000001.jpg  000001.cls  …
    val-000000.tar        …

Files with the same key, the name up to its first dot, are one example: one image, recording or video; its class in
KEY.cls, as a number or a word, or in KEY.json under "class", "label" or "cls". Shards that are named like splits, or
are in folders with such names, are the splits.

A. Aizman, G. Maltby, T. Breuel, "High performance I/O for large scale deep learning", 2019,
https://arxiv.org/abs/2001.01858

Tar shards as examples with classes, by an index that is built in one scan if it is missing.

`cutaway prepare` writes an index next to its shards. For other shards an index is built on first use and cached as long
as their sizes and times are unchanged.

Cached index of folders with many files, so that the next start neither lists nor opens them.

The index is valid as long as the folders' modification times are unchanged; adding, removing or renaming a file changes
them. Overwriting a file does not, so a hundred files are checked when the index is opened, and each file again whenever
it is read.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tarfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import (
    DataError,
    DataMismatchError,
    FileError,
    FolderLayoutError,
    NotEnoughDataError,
    Problem,
    UnsupportedDataError,
)
from ...core.files import error_reason, exists, open_regular
from ..findings import leave_out, reject_fill, similar_name_hint
from ..folders import (
    AUDIO,
    IMAGES,
    SPLIT_FOLDERS,
    VIDEOS,
    FileKind,
    FolderContents,
    dominant_kind,
    fingerprint_files,
    list_entries,
    normalize_name,
)
from ..parallel import map_in_threads
from ..settings import DataSettings
from ..splits import SPLITS, Rows
from ..tables.column_types import natural_order
from .file_index import FIX, Arrays, Files, Index, Member, Members, Names, index_path
from .shards import AGAIN, file_sha256, is_prepared, read_manifest

TAR = ".tar"
COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
KEY = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)", re.DOTALL)  # the same as in WebDataset
LABELS = ("class", "label", "cls")  # keys of the class in KEY.json
KINDS = (IMAGES, AUDIO, VIDEOS)
BLOCK = 512  # bytes of a header; everything in a tar is padded to a multiple
MOST_OF_A_LABEL = 1 << 20


@dataclass(frozen=True)
class Example:
    """The files of one key."""

    media: Member
    label: str | None  # the class as written


def is_sharded(path: Path) -> bool:
    """Return whether a path is a tar shard, or a folder that holds some, directly or in folders named like splits."""
    if path.suffix.lower() == TAR:
        return exists(path) and path.is_file()
    tars = path.is_dir() and any(p.suffix.lower() == TAR or _is_compressed(p) for p in _inside(path))
    return (
        tars and dominant_kind(path) is None
    )  # a tar next to class folders is the archive from which they were unpacked


def list_shards(path: Path) -> dict[str, list[Path]]:
    """Return the shards of each split, sorted by name; under "" if their names contain no split.

    Raises DataError if only some are named like splits, or one is compressed.
    """
    found: dict[str, list[Path]] = {}
    if path.is_file():
        return {"": [path]}
    for shard in _inside(path):
        if _is_compressed(shard):
            raise UnsupportedDataError(
                f"The shard {shard} is compressed, so its members cannot be read by one seek.",
                fix="Unpack it once, as by gunzip: images, audio and videos are compressed already.",
            )
        if shard.suffix.lower() == TAR:
            word = shard.parent.name if shard.parent != path else re.split(r"[-_.]", shard.name)[0]
            found.setdefault(SPLIT_FOLDERS.get(word.lower(), ""), []).append(shard)
    if "" in found and len(found) > 1:
        others = next(split for split in found if split)
        raise FolderLayoutError(
            f"{path} holds shards that are named like a split, such as {found[others][0].name}, and others that are "
            f"not, such as {found[''][0].name}.",
            fix="Name all of them like splits (train-*.tar, val-*.tar, test-*.tar), or none.",
        )
    if "" not in found and "train" not in found:
        raise FolderLayoutError(
            f"{path} has shards of {' and '.join(found)} and none for training.", fix="Add train-*.tar."
        )
    return found


def kind_of_shards(path: Path) -> FileKind:
    """Return the kind of the first example. Raises DataError if it is none that can be read."""
    first = next(shard for shards in list_shards(path).values() for shard in shards)
    for name, _, _ in members(first):
        for kind in KINDS:
            if Path(name.lower()).suffix in kind.suffixes:
                return kind
    suffixes = ", ".join(suffix for kind in KINDS for suffix in kind.suffixes)
    raise UnsupportedDataError(f"The shard {first} holds no image, recording or video ({suffixes}).")


def members(shard: Path) -> Iterator[tuple[str, int, int]]:
    """Yield the name, offset and size of each file in a shard.

    Raises DataError if the shard is not a tar, damaged or truncated, after the last complete file.
    """
    last, end = "", 0
    try:
        size = shard.stat().st_size
        with open_regular(shard) as file, tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                last, end = member.name, member.offset_data + member.size
                if end > size:
                    raise _broken_shard_error(shard, f"it ends within {last}: it was cut short")
                if member.isreg():
                    yield member.name, member.offset_data, member.size
    except (tarfile.TarError, OSError) as error:
        if isinstance(error, DataError):
            raise
        what = error_reason(error) if isinstance(error, OSError) else str(error)
        raise _broken_shard_error(
            shard, f"it is cut short or damaged after {last} ({what})" if last else f"it is not a tar file ({what})"
        ) from error
    # Python's reader treats an unreadable header as the end: a complete tar ends with zeros.
    with open_regular(shard) as file:
        file.seek(-(-end // BLOCK) * BLOCK)
        after = file.read(BLOCK)
    if after.strip(b"\0") or len(after) < BLOCK:
        where = f"after {last}" if last else "at its begin"
        raise _broken_shard_error(
            shard, f"{where} it is damaged" if after else f"it ends {where} without the mark of its end"
        )


def examples(shard: Path, kind: FileKind) -> tuple[list[Example], list[Problem]]:
    """Return the examples of a shard, in order, and the keys that form none.

    Raises DataError if the shard cannot be read, or a key occurs twice in it.
    """
    found: dict[str, dict[str, Member]] = {}
    order: list[str] = []  # the key of each file, in order
    for name, offset, size in members(shard):
        if (match := KEY.fullmatch(name)) is None:
            continue
        key, extension = match[1], match[2].lower()
        files = found.setdefault(key, {})
        if extension in files or (files and order[-1] != key):
            raise FolderLayoutError(
                f"The key {key} occurs twice in the shard {shard}, at {name}: which files are one example is not told.",
                fix="Give each example a key of its own, and let its files follow one another.",
            )
        files[extension] = Member(shard, name, offset, size)
        order.append(key)
    made: list[Example] = []
    problems: list[Problem] = []
    for key, files in found.items():
        media = [file for extension, file in files.items() if f".{extension.split('.')[-1]}" in kind.suffixes]
        if len(media) == 1:
            made.append(Example(media[0], read_label(files)))
        else:
            others = [c for c in KINDS if c is not kind and any(f.suffix.lower() in c.suffixes for f in files.values())]
            what = f"it is {others[0].kind}, and the others are {kind.plural}" if others else f"no {kind.kind}"
            what = f"{len(media)} {kind.plural}, and an example has one" if media else what
            problems.append(Problem(f"the key {key} in {shard}", what))
    return made, problems


def read_label(files: Mapping[str, Member]) -> str | None:
    """Return the class of an example; None if none exists, or it cannot be read."""
    member = files.get("cls", files.get("json"))
    if member is None or member.size > MOST_OF_A_LABEL:
        return None
    try:
        text = member.read().decode()
        if member is files.get("cls"):
            return text.strip() or None
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    found = next((document[key] for key in LABELS if key in document), None) if isinstance(document, dict) else None
    return str(found) if isinstance(found, str | int) and not isinstance(found, bool) else None


def _inside(path: Path) -> list[Path]:
    """List a folder and its subfolders that are named like splits."""
    own = list_entries(path)
    deeper = [
        p for folder in own if folder.name.lower() in SPLIT_FOLDERS and folder.is_dir() for p in list_entries(folder)
    ]
    return [p for p in [*own, *deeper] if not p.name.startswith(".")]


def _is_compressed(path: Path) -> bool:
    return path.name.lower().endswith(COMPRESSED)


def _broken_shard_error(shard: Path, what: str) -> DataError:
    return DataError(f"The shard {shard} cannot be read: {what}.", fix=FIX)


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
        raise NotEnoughDataError(
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
            raise DataError(f"{path / INDEX} is missing or damaged: the members cannot be located.", fix=AGAIN)
        return own, []
    now = {name: [shard.stat().st_size, shard.stat().st_mtime_ns] for name, shard in _named(path)}
    place = index_path(path, looking.kind.kind + "-drop" * drop)
    kept = Index.load(place)
    if kept is not None and kept.places == now:
        return kept, []
    made = make_index(path, looking, drop)
    try:
        made.save(place)
        where = f"is kept in {place} as long as the shards are unchanged"
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
    return Index(looking.kind.kind, classes, Names.pack(called), joined, places, tuple(problems))


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
        raise DataMismatchError(
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
    some = "; ".join(map(str, problems[:3])) + (f"; and {len(problems) - 3:,} more" if len(problems) > 3 else "")
    return index.part(kept) if len(without) else index, f"missing=drop left out {len(problems):,} keys: {some}."


def _reject_untaught(index: Index, path: Path) -> None:
    """Raise DataError if a class has no example in the training split."""
    splits = index.splits or {}
    taught = np.unique(index.labels[splits["train"]])
    for split, rows in splits.items():
        strange = np.setdiff1d(index.labels[rows], taught)
        if len(strange):
            raise NotEnoughDataError(
                f"The class {index.classes[int(strange[0])]} stands in the shards of {split} and in none of training "
                f"in {path}.",
                fix="Add shards with training examples of it, or leave the class out.",
            )


@dataclass(frozen=True)
class UsableFiles:
    """The usable files."""

    rows: Rows  # their numbers
    looks: Sequence[Any]  # the result of inspecting each
    notes: list[str]  # about the others


def inspect_files(
    files: Sequence[Any],
    looking: FileInspector,
    look_at: Callable[[Sequence[Any]], Sequence[Any]],
    settings: DataSettings,
) -> UsableFiles:
    """Inspect every file with `look_at`, which raises DataError that names the unusable ones.

    With missing=drop, each file is read completely instead, and unusable files are left out.
    """
    if settings.missing != "drop":
        return UsableFiles(np.arange(len(files)), look_at(files), [])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # problems are reported here instead of as library warnings
        looks = list(map_in_threads(looking.look_whole, files, settings.workers))
    problems = [look for look in looks if isinstance(look, Problem)]
    rows = np.array([i for i, look in enumerate(looks) if not isinstance(look, Problem)], np.int64)
    notes = leave_out(problems, len(files), f"{looking.kind.kind} files", settings.missing)
    return UsableFiles(rows, [looks[i] for i in rows], notes)


MANY = 10_000  # minimum number of files for an index
LOOKED_AT = 100  # files whose size and time are checked when it is opened
RECENT = 2_000_000_000  # nanoseconds: a folder may change again within the same tick of the file system's clock


def read_folder(
    path: Path,
    looking: FileInspector,
    variant: str,
    listed: Callable[[], FolderContents[Any]],
    looked: Callable[[Sequence[Any]], Sequence[Any]],
    settings: DataSettings,
) -> Read:
    """Return the files of a folder with their classes and the results of inspecting them.

    They come from the index if it is valid, and otherwise from `listed` and `looked`. `variant` names the way of
    listing. With missing=drop, unreadable files are left out.
    """
    reject_fill(settings)
    variant += "-drop" * (settings.missing == "drop")
    place = index_path(path, f"{looking.kind.kind}-{variant}")
    index = Index.load(place)
    if index is not None and _is_valid(index, path):
        notes = [*index.about["notes"], f"What was found in {path} is known from its index, {place}."]
        files = Files(path, place, index.names, index.arrays)
        found = FolderContents(index.classes, files, index.names, index.labels, index.splits, notes)
        return Read(found, index.arrays, index.about["fingerprint"])
    began = time.time_ns()
    found = listed()
    usable = inspect_files(found.files, looking, looked, settings)
    found = found.part(usable.rows, usable.notes) if usable.notes else found
    arrays = looking.pack(usable.looks)
    fingerprint = fingerprint_files(found.names, [digest.tobytes().hex() for digest in arrays["digest"]])
    if len(found.files) >= MANY:
        with contextlib.suppress(OSError):  # the next start looks at the files again
            _index(path, looking, found, arrays, fingerprint, began).save(place)
            said = f"What was found in {path} is kept in {place}: the next start opens no file, while the folders stay."
            found = replace(found, notes=[*found.notes, said])
    return Read(found, arrays, fingerprint)


def _index(
    path: Path, looking: FileInspector, found: FolderContents[Any], arrays: Arrays, fingerprint: str, began: int
) -> Index:
    """Build the index; its folders have the modification times from before they were listed."""
    stats = [os.stat(file) for file in found.files]
    split = {}
    if found.splits is not None:
        split["split"] = np.zeros(len(stats), np.uint8)
        for name, rows in found.splits.items():
            split["split"][rows] = SPLITS.index(name)
    own: Arrays = {
        "label": found.labels.astype(np.int64),
        "size": np.array([stat.st_size for stat in stats], np.int64),
        "time": np.array([stat.st_mtime_ns for stat in stats], np.int64),
        **split,
    }
    homes = {file.parent for file in found.files}
    folders = {path, *(p for home in homes for p in (home, *home.parents) if p.is_relative_to(path))}
    places = {str(p.relative_to(path)): [p.stat().st_mtime_ns] for p in folders}
    about = {"fingerprint": fingerprint, "began": began, "notes": list(found.notes)}
    names = Names.pack(str(file.relative_to(path)) for file in found.files)
    return Index(looking.kind.kind, found.classes, names, {**arrays, **own}, places, about=about)


def _is_valid(index: Index, path: Path) -> bool:
    """Return whether folders and a sample of the files are unchanged since the index was built."""
    try:
        for name, (then,) in index.places.items():
            if os.stat(path / name).st_mtime_ns != then or then > index.about["began"] - RECENT:
                return False
        rows = np.unique(np.linspace(0, len(index) - 1, LOOKED_AT).round().astype(int))
        for row in rows.tolist():
            now = os.stat(path / index.names[row])
            if [now.st_size, now.st_mtime_ns] != [index.arrays["size"][row], index.arrays["time"][row]]:
                return False
    except (OSError, ValueError):
        return False
    return True
