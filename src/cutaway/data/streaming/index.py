"""Index of many files: names, locations, classes, checksums, and the results of inspecting them.

It is one safetensors file, whose arrays are mapped into memory, not read:

    names, ends           the names as UTF-8, concatenated, and where each ends
    label (n,)            the class number; -1 if none exists
    split (n,)            the split number in train, val, test; absent without predefined splits
    digest (n, 32)        sha256 of the bytes of each
    shard, offset, size   of members of tar shards: their location
    size, time            of files in folders: as they were when the index was built
    and the results of inspection, by kind: height, width, grey, … of an image

Its metadata hold the rest as JSON: the kind, the classes, and the shards or folders with the sizes and times that
determine whether the index is still valid.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from ...core.errors import Problem
from ...core.files import atomic_write
from ..datasets.download import cache
from ..splits import SPLITS, Rows
from .members import Names

Arrays = dict[str, npt.NDArray[Any]]
FORMAT = "cutaway-index-1"


@dataclass(frozen=True)
class Index:
    """The index of n files."""

    kind: str  # image, audio, video
    classes: tuple[str, ...]
    names: Names
    arrays: Arrays
    places: dict[str, list[int]]  # shard or folder, by its name in the source → size and time, or time alone
    problems: tuple[Problem, ...] = ()  # files that are no examples, and why
    about: dict[str, Any] = field(default_factory=dict)  # other facts, as JSON values

    def __len__(self) -> int:
        return len(self.names)

    @property
    def labels(self) -> Rows:
        """The class of each file, (n,)."""
        return self.arrays["label"]

    @property
    def splits(self) -> dict[str, Rows] | None:
        """The row numbers of each split, if there are predefined splits."""
        if "split" not in self.arrays:
            return None
        found = {name: np.flatnonzero(self.arrays["split"] == k) for k, name in enumerate(SPLITS)}
        return {name: rows for name, rows in found.items() if len(rows)}

    @property
    def fingerprint(self) -> str:
        """The sha256 of all files' names and contents."""
        whole = hashlib.sha256()
        for part in (self.names.data, self.names.ends, self.arrays["digest"]):
            whole.update(np.ascontiguousarray(part).data)
        return whole.hexdigest()

    def part(self, rows: Rows) -> Index:
        """Return the index of the files with these numbers."""
        names = Names.of(self.names[i] for i in rows)
        return replace(self, names=names, arrays={key: array[rows] for key, array in self.arrays.items()})

    def save(self, path: Path) -> None:
        """Write the index, completely or not at all."""
        problems = [[problem.where, problem.what] for problem in self.problems]
        known = {
            "format": FORMAT,
            "kind": self.kind,
            "classes": self.classes,
            "places": self.places,
            "about": self.about,
        }
        arrays = self.arrays | {"names": self.names.data, "ends": self.names.ends}
        with atomic_write(path) as temporary:
            save_file(arrays, temporary, {"index": json.dumps({**known, "problems": problems})})

    @classmethod
    def load(cls, path: Path) -> Index | None:
        """Load an index; None if it cannot be read and must be rebuilt."""
        try:
            with safe_open(path, "numpy") as file:
                known = json.loads((file.metadata() or {})["index"])
                if known["format"] != FORMAT:
                    return None
                arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  # it is no mapping
            names = Names(arrays.pop("names"), arrays.pop("ends"))
            problems = tuple(Problem(where, what) for where, what in known["problems"])
            return cls(known["kind"], tuple(known["classes"]), names, arrays, known["places"], problems, known["about"])
        except (OSError, SafetensorError, KeyError, ValueError, TypeError):
            return None


def index_path(source: Path, kind: str) -> Path:
    """Return the path of the index of a user's folder: in the cache, not next to their files."""
    name = hashlib.sha256(str(source.resolve()).encode(errors="surrogateescape")).hexdigest()[:24]
    return cache() / "indexes" / f"{kind}-{name}.safetensors"
