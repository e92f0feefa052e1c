"""Cached index of folders with many files, so that the next start neither lists nor opens them.

The index is valid as long as the folders' modification times are unchanged; adding, removing or renaming a file changes
them. Overwriting a file does not, so a hundred files are checked when the index is opened, and each file again whenever
it is read.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..folders import FolderContents, fingerprint_files
from ..settings import DataSettings
from ..splits import SPLITS
from ..unusable_examples import inspect_files, reject_fill
from .index import Arrays, Index, index_path
from .members import Files, Names
from .tars import FileInspector, Read

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
    names = Names.of(str(file.relative_to(path)) for file in found.files)
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
