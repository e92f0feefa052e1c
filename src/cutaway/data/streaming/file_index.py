"""Files as examples, alone or inside tar shards; millions of them in little memory.

A member is read by one seek. The names of n files are one array of bytes and one of ends. A list of n strings would
take several times the memory, and reference counting would copy it in every worker process.

Their index: names, locations, classes, checksums, and the results of inspecting them.

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
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from ...core.errors import DataError, Problem
from ...core.files import atomic_write, error_reason, open_regular, read_bytes
from ..datasets.catalog import cache
from ..splits import SPLITS, Rows

Bytes = npt.NDArray[np.uint8]
Item = TypeVar("Item")
FIX = "Copy or download it again, or prepare it again."


class Stored:
    """Base class of files whose content is checked against known facts when they are read."""

    def read(self) -> bytes:
        """Return the bytes. Raises DataError, with a Problem, if they are missing or have changed."""
        raise NotImplementedError

    def _unusable(self, what: str) -> DataError:
        return DataError("A file cannot be used:", [Problem(str(self), what)], FIX)


@dataclass(frozen=True)
class UploadedFile(Stored):
    """A file received over a network, held only in memory."""

    name: str
    data: bytes

    def __str__(self) -> str:
        return self.name

    def read(self) -> bytes:
        """Return the bytes."""
        return self.data


@dataclass(frozen=True)
class IndexedFile(Stored):
    """A file of an indexed folder."""

    path: Path
    size: int
    time: int  # of its last change, in nanoseconds
    index: Path  # the index with these facts

    def __str__(self) -> str:
        return str(self.path)

    def read(self) -> bytes:
        """Return the bytes. Raises DataError if the file is gone or has changed since it was indexed, which deletes
        that index.
        """
        try:
            with open_regular(self.path) as file:
                now = os.fstat(file.fileno())
                data = file.read()
        except OSError as error:
            raise self._unusable(f"it cannot be read ({error_reason(error)})") from error
        if (now.st_size, now.st_mtime_ns) != (self.size, self.time):
            self.index.unlink(missing_ok=True)
            raise self._unusable("it was changed since its folder was indexed; that index is removed now: begin again")
        return data


@dataclass(frozen=True)
class Member(Stored):
    """A file inside an uncompressed tar shard."""

    shard: Path
    name: str
    offset: int  # of its first byte in the shard
    size: int
    digest: bytes = b""  # sha256 of its bytes, where it is known

    def __str__(self) -> str:
        return f"{self.name} in {self.shard}"

    @property
    def suffix(self) -> str:
        """The suffix as in a path: .jpg."""
        return Path(self.name).suffix

    def read(self) -> bytes:
        """Return the bytes. Raises DataError if the shard is missing or truncated, or the checksum differs."""
        try:
            with open_regular(self.shard) as file:
                file.seek(self.offset)
                data = file.read(self.size)
        except OSError as error:
            raise self._unusable(f"the shard cannot be read ({error_reason(error)})") from error
        if len(data) < self.size:
            raise self._unusable("the shard ends within it: it was cut short")
        if self.digest and hashlib.sha256(data).digest() != self.digest:
            raise self._unusable("it is damaged: its sha256 is not that which it had when the shard was indexed")
        return data


def read_content(source: Path | Stored) -> bytes:
    """Return the bytes of a file, on disk or stored. Raises FileError or DataError if it cannot be read."""
    return source.read() if isinstance(source, Stored) else read_bytes(source)


def open_source(source: Path | Stored) -> Path | io.BytesIO:
    """Return a path, or the bytes of a stored file, for libraries to open. Raises DataError as `Stored.read`."""
    return io.BytesIO(source.read()) if isinstance(source, Stored) else source


def select_items(items: Sequence[Item], rows: Rows) -> Sequence[Item]:
    """Return the items with these numbers, without creating them if the sequence is a `PackedSequence`."""
    return items.part(rows) if isinstance(items, PackedSequence) else [items[i] for i in rows]


class PackedSequence(Sequence[Item]):
    """A sequence that creates its items on demand, from arrays that its slices share."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows  # which items of the arrays these are

    def part(self, rows: Rows) -> PackedSequence[Item]:
        """Return the items with these numbers."""
        found = object.__new__(type(self))
        vars(found).update(vars(self), rows=self.rows[rows])
        return found

    def item(self, row: int) -> Item:
        """Return the item in this row of the arrays."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, i: int) -> Item: ...
    @overload
    def __getitem__(self, i: slice) -> PackedSequence[Item]: ...
    def __getitem__(self, i: int | slice) -> Item | PackedSequence[Item]:
        if isinstance(i, slice):
            return self.part(np.arange(len(self))[i])
        return self.item(int(self.rows[i]))

    def __iter__(self) -> Iterator[Item]:
        return map(self.item, self.rows.tolist())


class Names(PackedSequence[str]):
    """Strings stored as concatenated UTF-8; other bytes of file names are kept as surrogate escapes."""

    def __init__(self, data: Bytes, ends: Rows) -> None:
        super().__init__(np.arange(len(ends)))
        self.data, self.ends = data, ends

    @classmethod
    def pack(cls, names: Iterable[str]) -> Names:
        """Pack these strings."""
        encoded = [name.encode(errors="surrogateescape") for name in names]
        return cls(np.frombuffer(b"".join(encoded), np.uint8), np.cumsum([*map(len, encoded)], dtype=np.int64))

    def item(self, row: int) -> str:
        """Return the string in this row."""
        begin = self.ends[row - 1] if row else 0
        return self.data[begin : self.ends[row]].tobytes().decode(errors="surrogateescape")


class Files(PackedSequence[IndexedFile]):
    """Files in an indexed folder."""

    def __init__(self, folder: Path, index: Path, names: Names, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Initialize with `arrays` of `size` and `time`, (n,)."""
        super().__init__(np.arange(len(names)))
        self.folder, self.place, self.names, self.arrays = folder, index, names, arrays

    def item(self, row: int) -> IndexedFile:
        """Return the file in this row."""
        size, changed = (int(self.arrays[key][row]) for key in ("size", "time"))
        return IndexedFile(self.folder / self.names[row], size, changed, self.place)


class Members(PackedSequence[Member]):
    """Files in tar shards."""

    def __init__(self, shards: Sequence[Path], names: Names, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Initialize with `arrays` of `shard`, `offset` and `size`, (n,), and `digest`, (n, 32)."""
        super().__init__(np.arange(len(names)))
        self.shards, self.names, self.arrays = shards, names, arrays

    def item(self, row: int) -> Member:
        """Return the member in this row."""
        shard, offset, size = (int(self.arrays[key][row]) for key in ("shard", "offset", "size"))
        name = self.names[row].partition(".tar/")[2] or self.names[row]  # examples are named after their shards
        return Member(self.shards[shard], name, offset, size, self.arrays["digest"][row].tobytes())


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
        names = Names.pack(self.names[i] for i in rows)
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
