"""Manifest of a folder of shards: its files, their sizes, and their content.

    OUT/
      train-00000.bin …   shards, each written to a temporary name, flushed, then renamed
      manifest.json       written last: a folder that has one is complete
      preparing.json      until then: the request and the plan, from which a killed preparation is resumed

Opening checks only names and sizes. `damaged` compares every checksum, which reads every byte.

Settings of `cutaway prepare` other than those of the data.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ...core.config import build, setting
from ...core.errors import DataError, FileError, Problem, shorten
from ...core.files import exists, open_regular, read_json, write_json
from ...core.schema import NUMBER, Choice, name_document_in_errors, validate_document
from ..parallel import Progress, map_in_threads
from ..settings import DataSettings
from ..text.tokenizer_files import TOKENIZERS

MANIFEST, PLAN = "manifest.json", "preparing.json"
FORMAT, VERSION = "cutaway shards", 1
AGAIN = "Prepare the data again: cutaway prepare DATA OUT, into another folder; or take the folder from a copy."
SHARD = {"name": str, "bytes": int, "sha256": str, "count": int}
SCHEMA = {
    "format": str, "version": int, "kind": str, "name": str, "source": str, "fingerprint": str,
    "splits": {...: [SHARD, ...]}, "settings": dict, "notes": [str], "about": dict, "asked": dict, "cutaway": str,
}  # fmt: skip
FRACTIONS = {"val": NUMBER, "test": NUMBER}
DTYPES = Choice(("uint8", "uint16", "uint32"))  # of the tokens of text
OF_TEXT = {
    "settings": {**FRACTIONS, "tokenizer": str},
    "about": {"tokenizer": TOKENIZERS, "given": bool, "dtype": DTYPES, "counts": {...: [int]}},
}
OF_MEDIA = {"settings": FRACTIONS, "about": {"classes": [str], "index": str}}
PLANNED = {"format": str, "version": int, "asked": dict, "plan": dict}


@dataclass(frozen=True)
class Shard:
    """One file of a folder of shards."""

    name: str  # of the file, in the folder
    bytes: int
    sha256: str
    count: int  # number of tokens of text, or of examples


@dataclass(frozen=True)
class Manifest:
    """The content of a folder of shards."""

    kind: str  # of the data: a key of data.kinds.KINDS
    name: str  # short, for the run's folder
    source: str  # as the user gave it
    fingerprint: str  # sha256 of the content that was read
    splits: Mapping[str, Sequence[Shard]]  # train, val, test: shards in their order
    settings: Mapping[str, Any]  # of the data, as they were when it was prepared
    asked: Mapping[str, Any]  # identifies the same preparation
    notes: Sequence[str] = ()  # messages for the user
    about: Mapping[str, Any] = field(default_factory=dict)  # entries of the kind of data, as JSON values

    @property
    def shards(self) -> Iterator[Shard]:
        """All shards, split by split."""
        for of_split in self.splits.values():
            yield from of_split

    def count(self, split: str) -> int:
        """Return the number of tokens or examples of a split."""
        return sum(shard.count for shard in self.splits[split])

    def write(self, folder: Path) -> None:
        """Write manifest.json, completely or not at all; it is the last file written."""
        from ...core.version import __version__

        head = {"format": FORMAT, "version": VERSION, "cutaway": __version__}
        write_json(folder / MANIFEST, {**head, **asdict(self)})


def is_prepared(source: Any) -> bool:
    """Return whether a source is a folder of shards, including one whose preparation has not finished."""
    if not isinstance(source, str | os.PathLike) or not os.path.isdir(os.path.expanduser(source)):
        return False
    return any((Path(source).expanduser() / name).is_file() for name in (MANIFEST, PLAN))


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a folder of shards, and check that its files exist with the right sizes.

    Raises DataError if the preparation has not finished, or shards are missing or truncated, each by name; FileError if
    manifest.json is from another program, damaged, or of a newer version.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise DataError(
            f"{folder} is not whole: its preparation has begun and not ended.",
            fix="Run the `cutaway prepare` command again to continue.",
        )
    document = read_json(path)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise FileError(
            f"{path} is not a manifest of shards: its format is not {FORMAT!r}. Run `cutaway prepare` again."
        )
    if isinstance(version := document.get("version"), int) and version > VERSION:
        raise FileError(
            f"{path} is of version {version}, which a newer version of cutaway has written; this one reads {VERSION}. "
            "Install the newer one, or prepare the data with this one, into another folder."
        )
    validate_document(document, SCHEMA, path, AGAIN)
    with name_document_in_errors(path, AGAIN):
        build(DataSettings, document["settings"])
    splits = {split: [Shard(**shard) for shard in of_split] for split, of_split in document["splits"].items()}
    own = [one.name for one in fields(Manifest) if one.name != "splits"]
    manifest = Manifest(splits=splits, **{key: document[key] for key in own})
    if astray := next((shard.name for shard in manifest.shards if Path(shard.name).name != shard.name), None):
        raise FileError(f"{path} names a shard {astray!r}, which is no file of its folder. {AGAIN}")
    _reject_sizes(folder, manifest)
    return manifest


def reject_other_form(folder: Path, manifest: Manifest, schema: Mapping[str, Any]) -> None:
    """Raise FileError if the manifest's entries for its kind of data do not match `schema`."""
    added = {"settings": dict(manifest.settings), "about": dict(manifest.about)}
    validate_document(added, schema, folder / MANIFEST, AGAIN)


def find_damaged(
    folder: Path, manifest: Manifest, splits: Sequence[str] = (), progress: Progress | None = None
) -> list[Problem]:
    """Return every shard of these splits, or of all, whose checksum differs. Reads all of them, in parallel."""
    shards, found = [shard for split in splits or manifest.splits for shard in manifest.splits[split]], []
    for done, (shard, sum_) in enumerate(
        zip(shards, map_in_threads(lambda s: file_sha256(folder / s.name), shards)), 1
    ):
        if sum_ != shard.sha256:
            said = f"its sha256 is {sum_[:16]}…, and {shard.sha256[:16]}… was written: it is damaged"
            found.append(Problem(str(folder / shard.name), said))
        if progress is not None:
            progress(done, len(shards))
    return found


def unusable_shards_error(folder: str | Path, problems: list[Problem]) -> DataError:
    """Return the error for shards with these problems."""
    return DataError(f"{len(problems):,} of the shards in {folder} cannot be read:", problems, AGAIN)


def describe_shard(path: Path, count: int) -> Shard:
    """Return the entry of a written shard: its size and its checksum."""
    return Shard(path.name, path.stat().st_size, file_sha256(path), count)


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file, or the reason why it cannot be read."""
    try:
        with open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return f"not to be had ({error.strerror})"


def _reject_sizes(folder: Path, manifest: Manifest) -> None:
    """Raise DataError that names every shard that is missing or has another size."""
    found = []
    for shard in manifest.shards:
        path = folder / shard.name
        size = path.stat().st_size if exists(path) and path.is_file() else None
        if size is None:
            found.append(Problem(shorten(path, 200), "it is missing"))
        elif size != shard.bytes:
            found.append(Problem(str(path), f"it has {size:,} bytes, and {shard.bytes:,} were written"))
    if found:
        raise unusable_shards_error(folder, found)


@dataclass(frozen=True)
class ShardSettings:
    """Settings for writing shards."""

    workers: int | None = setting(
        None, "processes that make shards side by side; 0 makes them in this one; auto has one for each processor",
        low=0, high=256,
    )  # fmt: skip
    shard_size: int = setting(64, "MiB of the data, as it was given, that go into a shard", low=1, high=65_536)
    held_out: int = setting(
        4, "MiB that val and test of a corpus have at most each, unless val and test are given; 0 sets no bound",
        low=0, high=65_536,
    )  # fmt: skip
    sample: int = setting(
        64,
        "MiB of the training text that a tokenizer is fitted on, evenly spread where there is more",
        low=1,
        high=65_536,
    )
