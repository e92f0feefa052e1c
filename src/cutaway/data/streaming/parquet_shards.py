"""Parquet tables whose rows are shuffled once, so that a few row groups of a sorted table are a random sample.

An external shuffle in two passes, each with at most one shard of rows in memory. First, the shuffled rows of each
stretch of the table are divided into as many pieces as there will be shards. Then each shard collects one piece of
every stretch, shuffled again. So every row group is a sample of the whole table.

    OUT/
      part-00000.parquet …         shards, in row groups that are one block each
      scattered-00000.parquet …    a stretch each, until all shards are written
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from ...core.config import as_text, shorten
from ...core.errors import IncompatibleSettingError, UnsupportedDataError
from ...core.files import MEBIBYTE
from ...core.spec import ImageSizes, Target
from ..dataset_base import DataSet
from ..parallel import Progress
from ..settings import DataSettings, ShardSettings
from ..tables.dataset import open_groups
from ..tables.table_files import LEAST_ROWS, RowGroups, locate_row_groups, parquet_files, read_rows
from .shards import Manifest, Shard, begin_preparation, finish_preparation, require_disk_space, save_plan, write_shards

MOST_SHARDS = 2048  # with more, the pieces of a stretch would be too small to read one by one


class Rows:
    """Base class of the jobs of both passes."""

    def look(self, path: Path) -> tuple[int, None]:
        """Return the number of rows."""
        return len(locate_row_groups(path)), None


@dataclass(frozen=True)
class ScatterJob(Rows):
    """A job of the first pass: some rows of a file, shuffled."""

    name: str
    file: Path
    offset: int
    count: int
    seed: tuple[int, ...]
    pieces: int

    def write(self, path: Path) -> None:
        """Write the rows. Raises DataError if they cannot be read."""
        frame = read_rows(self.file, self.offset, self.count)
        _write(_shuffle(frame, self.seed), path, max(1, self.count // self.pieces))

    def piece(self, k: int, folder: Path) -> pl.DataFrame:
        """Return the rows for shard k."""
        start, stop = (self.count * i // self.pieces for i in (k, k + 1))
        return read_rows(folder / self.name, start, stop - start)


@dataclass(frozen=True)
class ShuffleJob(Rows):
    """A job of the second pass: a shard made of one piece of every stretch."""

    name: str
    number: int
    folder: Path
    stretches: Sequence[ScatterJob]
    seed: tuple[int, ...]

    def write(self, path: Path) -> None:
        """Write the rows of all pieces."""
        pieces = [stretch.piece(self.number, self.folder) for stretch in self.stretches]
        _write(_shuffle(pl.concat(pieces, rechunk=True), self.seed), path, LEAST_ROWS)


def prepare_table(
    source: Path, out: Path, settings: DataSettings, how: ShardSettings, progress: Progress = lambda done, of: None
) -> Manifest:
    """Shuffle the rows of a Parquet file, or of a folder of them, into shards by `split_seed`, or resume.

    Raises DataError for other or damaged files, SettingError for a setting that does not apply, and FileError.
    """
    _reject_settings(settings, how)
    if not parquet_files(source):
        raise UnsupportedDataError(
            f"{source} is read as a whole, and only Parquet is prepared, which is read by its row groups.",
            fix=f"Train on it directly: cutaway train MODEL {source}; or write it as Parquet, by polars or pandas.",
        )
    groups = locate_row_groups(source)
    seed = settings.split_seed
    begun = begin_preparation(
        out, asked := {"data": _table_id(groups), "split_seed": seed, "shard_size": how.shard_size}
    )
    if begun.manifest:
        return begun.manifest
    size = sum(file.stat().st_size for file in groups.files)
    count = max(1, min(-(-size // (how.shard_size * MEBIBYTE)), len(groups) // 2))
    if count > MOST_SHARDS:
        raise IncompatibleSettingError(
            f"shard_size={how.shard_size} would make {count:,} shards, and a table is shuffled into {MOST_SHARDS:,} at "
            f"most: give shard_size={-(-how.shard_size * count // MOST_SHARDS)}, of which each process holds some in "
            "memory."
        )
    stretches = _stretches(groups, count, seed)
    shards = [ShuffleJob(f"part-{k:05}.parquet", k, out, stretches, (seed, 1, k)) for k in range(count)]
    save_plan(out, asked, {})
    require_disk_space(out, [*stretches, *shards], 2 * size)
    passes = len(stretches) + count
    if not all((out / shard.name).is_file() for shard in shards):
        # polars has its own threads, which a forked process would lack.
        for _ in write_shards(out, stretches, 0, lambda done, of: progress(done, passes)):
            pass
    made = [one.shard for one in write_shards(out, shards, 0, lambda done, of: progress(passes - of + done, passes))]
    for stretch in stretches:
        (out / stretch.name).unlink(missing_ok=True)
    return finish_preparation(
        out,
        Manifest(
            kind="table",
            name=source.resolve().stem,
            source=str(source),
            fingerprint=_shard_groups(out, made).fingerprint,
            splits={"all": made},  # split at training time
            settings={},
            asked=asked,
            notes=[],
        ),
    )


def open_table_shards(
    folder: Path, manifest: Manifest, settings: DataSettings, *, sizes: ImageSizes, targets: tuple[type[Target], ...]
) -> DataSet:
    """Build the data set of such shards, split like any table. Raises as `open_table`."""
    del sizes, targets
    groups = _shard_groups(folder, [shard for of_split in manifest.splits.values() for shard in of_split])
    data = open_groups(groups, settings, shuffled=True)
    return dataclasses.replace(data, name=manifest.name)


def _shard_groups(folder: Path, shards: Sequence[Shard]) -> RowGroups:
    """Return the row groups of these shards only, ignoring other files in the folder."""
    return locate_row_groups(folder, [folder / shard.name for shard in shards])


def _stretches(groups: RowGroups, shards: int, seed: int) -> list[ScatterJob]:
    """Return the jobs of the first pass: stretches of each file with about as many rows as a shard."""
    found: list[ScatterJob] = []
    rows = -(-len(groups) // shards)
    for number, file in enumerate(groups.files):
        own = np.flatnonzero(groups.file == number)
        of_file = int(groups.first[own[-1] + 1] - groups.first[own[0]]) if len(own) else 0
        parts = -(-of_file // rows)
        for k in range(parts):
            start, stop = (of_file * i // parts for i in (k, k + 1))
            name = f"scattered-{len(found):05}.parquet"
            found.append(ScatterJob(name, file, start, stop - start, (seed, 0, len(found)), shards))
    return found


def _shuffle(frame: pl.DataFrame, seed: tuple[int, ...]) -> pl.DataFrame:
    """Shuffle the rows by the seed, identically on every machine."""
    return frame[np.random.default_rng(seed).permutation(frame.height)]


def _write(frame: pl.DataFrame, path: Path, rows: int) -> None:
    """Write a table in row groups of `rows` rows."""
    frame.write_parquet(path, row_group_size=rows)


def _table_id(groups: RowGroups) -> str:
    """Return a hash that identifies the table: its footers and the modification time of each file."""
    times = [file.stat().st_mtime_ns for file in groups.files]
    return hashlib.sha256(f"{groups.fingerprint} {times}".encode()).hexdigest()


def _reject_settings(settings: DataSettings, how: ShardSettings) -> None:
    """Raise SettingError for the first setting that is chosen at training time or is for other data."""
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if field.name != "split_seed" and value != field.default:
            raise IncompatibleSettingError(
                f"{field.name}={shorten(as_text(value))} is chosen in training: rows are copied unchanged. "
                "Leave it out."
            )
    usual = ShardSettings()
    for key, why in (
        ("sample", "is for text, of which a tokenizer is fitted"),
        ("held_out", "is for text: a table is split when a model learns"),
        ("workers", "is for other data: of a table all processors work on each shard"),
    ):
        if getattr(how, key) != getattr(usual, key):
            raise IncompatibleSettingError(f"{key}={getattr(how, key)} {why}. Leave it out.")
