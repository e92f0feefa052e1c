"""Tar shards in the WebDataset convention, whose content is found by reading only headers.

    train-000000.tar      000000.jpg  000000.cls  000001.jpg  000001.cls  …
    val-000000.tar        …

Files with the same key, the name up to its first dot, are one example: one image, recording or video; its class in
KEY.cls, as a number or a word, or in KEY.json under "class", "label" or "cls". Shards that are named like splits, or
are in folders with such names, are the splits.

A. Aizman, G. Maltby, T. Breuel, "High performance I/O for large scale deep learning", 2019,
https://arxiv.org/abs/2001.01858
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...core.errors import DataError, Problem
from ...core.files import error_reason, exists, open_regular
from ..folders import AUDIO, IMAGES, SPLIT_FOLDERS, VIDEOS, FileKind, dominant_kind, list_entries
from .members import FIX, Member

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
            raise DataError(
                f"The shard {shard} is compressed, and what stands in it cannot be read by one seek.",
                fix="Unpack it once, as by gunzip: images, audio and videos are compressed already.",
            )
        if shard.suffix.lower() == TAR:
            word = shard.parent.name if shard.parent != path else re.split(r"[-_.]", shard.name)[0]
            found.setdefault(SPLIT_FOLDERS.get(word.lower(), ""), []).append(shard)
    if "" in found and len(found) > 1:
        others = next(split for split in found if split)
        raise DataError(
            f"{path} holds shards that are named like a split, such as {found[others][0].name}, and others that are "
            f"not, such as {found[''][0].name}.",
            fix="Name all of them like splits (train-*.tar, val-*.tar, test-*.tar), or none.",
        )
    if "" not in found and "train" not in found:
        raise DataError(f"{path} has shards of {' and '.join(found)} and none for training.", fix="Add train-*.tar.")
    return found


def kind_of_shards(path: Path) -> FileKind:
    """Return the kind of the first example. Raises DataError if it is none that can be read."""
    first = next(shard for shards in list_shards(path).values() for shard in shards)
    for name, _, _ in members(first):
        for kind in KINDS:
            if Path(name.lower()).suffix in kind.suffixes:
                return kind
    suffixes = ", ".join(suffix for kind in KINDS for suffix in kind.suffixes)
    raise DataError(f"The shard {first} holds no image, recording or video ({suffixes}).")


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
                    raise _broken(shard, f"it ends within {last}: it was cut short")
                if member.isreg():
                    yield member.name, member.offset_data, member.size
    except (tarfile.TarError, OSError) as error:
        if isinstance(error, DataError):
            raise
        what = error_reason(error) if isinstance(error, OSError) else str(error)
        raise _broken(
            shard, f"it is cut short or damaged after {last} ({what})" if last else f"it is no tar ({what})"
        ) from error
    # Python's reader treats an unreadable header as the end: a complete tar ends with zeros.
    with open_regular(shard) as file:
        file.seek(-(-end // BLOCK) * BLOCK)
        after = file.read(BLOCK)
    if after.strip(b"\0") or len(after) < BLOCK:
        where = f"after {last}" if last else "at its begin"
        raise _broken(shard, f"{where} it is damaged" if after else f"it ends {where} without the mark of its end")


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
            raise DataError(
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


def _broken(shard: Path, what: str) -> DataError:
    return DataError(f"The shard {shard} cannot be read: {what}.", fix=FIX)
