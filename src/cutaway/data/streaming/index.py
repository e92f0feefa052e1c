"""What is known of many files without one of them being opened: names, places, classes, sums, and what a look told.

It is one safetensors file, whose arrays are mapped into memory, not read:

    names, ends           the names as UTF-8, one after another, and where each ends
    label (n,)            the number of the class; -1 where there is none
    split (n,)            the number of the split in train, val, test; absent where the files come without
    digest (n, 32)        sha256 of the bytes of each
    shard, offset, size   of members of tar shards: where each begins
    size, time            of files in folders: as they were when the index was made
    and what a look told, by kind: height, width, grey, … of an image

Its metadata hold the rest as JSON: the kind, the classes, and the shards or folders with the sizes and times by which
it is known whether the index still holds.
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
from ...core.files import replacing
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
    problems: tuple[Problem, ...] = ()  # what is no example, and why
    about: dict[str, Any] = field(default_factory=dict)  # what else is known, as JSON values

    def __len__(self) -> int:
        return len(self.names)

    @property
    def labels(self) -> Rows:
        """The class of each, (n,)."""
        return self.arrays["label"]

    @property
    def splits(self) -> dict[str, Rows] | None:
        """The numbers of those of each split, where they come with splits."""
        if "split" not in self.arrays:
            return None
        found = {name: np.flatnonzero(self.arrays["split"] == k) for k, name in enumerate(SPLITS)}
        return {name: rows for name, rows in found.items() if len(rows)}

    @property
    def fingerprint(self) -> str:
        """sha256 of every file's name and content."""
        whole = hashlib.sha256()
        for part in (self.names.data, self.names.ends, self.arrays["digest"]):
            whole.update(np.ascontiguousarray(part).data)
        return whole.hexdigest()

    def part(self, rows: Rows) -> Index:
        """Those of these numbers."""
        names = Names.of(self.names[i] for i in rows)
        return replace(self, names=names, arrays={key: array[rows] for key, array in self.arrays.items()})

    def save(self, path: Path) -> None:
        """Write it, whole or not at all."""
        problems = [[problem.where, problem.what] for problem in self.problems]
        known = {
            "format": FORMAT,
            "kind": self.kind,
            "classes": self.classes,
            "places": self.places,
            "about": self.about,
        }
        arrays = self.arrays | {"names": self.names.data, "ends": self.names.ends}
        with replacing(path) as temporary:
            save_file(arrays, temporary, {"index": json.dumps({**known, "problems": problems})})

    @classmethod
    def load(cls, path: Path) -> Index | None:
        """The index in that file; None where there is none that can be read, and it is to be made anew."""
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


def kept_at(source: Path, kind: str) -> Path:
    """Where the index of a folder that is a person's own is kept: in the cache, and not beside their files."""
    name = hashlib.sha256(str(source.resolve()).encode(errors="surrogateescape")).hexdigest()[:24]
    return cache() / "indexes" / f"{kind}-{name}.safetensors"
