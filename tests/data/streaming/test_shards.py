"""Folders of shards: made by several processes, resumed after a kill, verified, and never mixed up with anything."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cutaway.core.errors import DataError, FileError
from cutaway.data.streaming.shards import (
    Job,
    Manifest,
    PreparationState,
    ShardWriteResult,
    begin_preparation,
    find_damaged,
    finish_preparation,
    is_prepared,
    read_manifest,
    require_disk_space,
    save_plan,
    write_shards,
)

ASKED = {"data": "abc", "settings": {"tokenizer": "characters"}}


@dataclass(frozen=True)
class Repeated:
    """A job that writes its letter some times, and a line to a log whenever it writes."""

    letter: str
    count: int
    log: Path
    fails: Exception | None = None

    @property
    def name(self) -> str:
        return f"{self.letter}.bin"

    def write(self, path: Path) -> None:
        with self.log.open("a") as log:
            log.write(f"{self.letter} {os.getpid()}\n")
        path.write_text(self.letter * self.count)
        if self.fails is not None:
            raise self.fails

    def look(self, path: Path) -> tuple[int, Any]:
        return path.stat().st_size, path.read_text()[0]


def jobs_in(folder: Path, letters: str = "abcde", **fails: Exception) -> list[Repeated]:
    return [Repeated(letter, 10 * (k + 1), folder / "log", fails.get(letter)) for k, letter in enumerate(letters)]


def whole(out: Path, jobs: Sequence[Job], workers: int = 0) -> Manifest:
    begin_preparation(out, ASKED)
    save_plan(out, ASKED, {"units": 5})
    made = [*write_shards(out, jobs, workers)]
    return finish_preparation(
        out, Manifest("text", "book", "book.txt", "f" * 64, {"train": [m.shard for m in made]}, {}, ASKED)
    )


def log_of(folder: Path) -> list[list[str]]:
    return [line.split() for line in (folder / "log").read_text().splitlines()]


@pytest.mark.parametrize("workers", [0, 2])
def test_what_is_made_is_made_in_order_and_once(tmp_path: Path, workers: int) -> None:
    out = tmp_path / "out"
    begin_preparation(out, ASKED)
    told: list[tuple[int, int]] = []
    made = [*write_shards(out, jobs_in(tmp_path), workers, lambda done, of: told.append((done, of)))]
    assert [(m.shard.name, m.shard.count, m.found) for m in made] == [
        (f"{x}.bin", 10 * k, x) for k, x in enumerate("abcde", 1)
    ]
    assert told == [(k, 5) for k in range(1, 6)]
    assert sorted(letter for letter, _ in log_of(tmp_path)) == [*"abcde"]
    others = {pid for _, pid in log_of(tmp_path)} - {str(os.getpid())}
    assert len(others) <= workers  # the first may have been so quick that the second had nothing left
    assert bool(others) == bool(workers)


def test_it_goes_on_where_it_was_killed(tmp_path: Path) -> None:
    out, jobs = tmp_path / "out", jobs_in(tmp_path)
    begin_preparation(out, ASKED)
    save_plan(out, ASKED, {"units": 5})
    some = write_shards(out, jobs, 0)
    assert [next(some).shard.name, next(some).shard.name] == ["a.bin", "b.bin"]
    half = out / f".c.bin.{os.getpid()}.part"  # what a kill leaves
    half.mkdir()
    (half / "c.bin").write_text("ccc")
    assert is_prepared(out)
    with pytest.raises(DataError, match=r"not whole.*command again to continue"):
        read_manifest(out)
    assert begin_preparation(out, ASKED) == PreparationState(plan={"units": 5})
    assert not half.exists()
    manifest = whole(out, jobs, workers=2)
    assert [letter for letter, _ in log_of(tmp_path)][:2] == ["a", "b"]
    assert sorted(letter for letter, _ in log_of(tmp_path)) == [*"abcde"]  # nothing twice
    assert read_manifest(out) == begin_preparation(out, ASKED).manifest
    assert manifest.count("train") == 150
    assert sorted(p.name for p in out.iterdir()) == ["a.bin", "b.bin", "c.bin", "d.bin", "e.bin", "manifest.json"]
    assert find_damaged(out, read_manifest(out)) == []


def test_shards_that_are_missing_cut_short_or_changed_are_named(tmp_path: Path) -> None:
    out = tmp_path / "out"
    whole(out, jobs_in(tmp_path))
    (out / "c.bin").write_text("c" * 29 + "x")
    manifest = read_manifest(out)  # sizes alone
    (found,) = find_damaged(out, manifest)
    assert found.where == str(out / "c.bin")
    assert "sha256" in found.what
    assert "damaged" in found.what
    (out / "b.bin").write_text("b")
    (out / "d.bin").unlink()
    with pytest.raises(
        DataError, match=r"2 of the shards in .*b\.bin: it has 1 bytes, and 20 were.*d\.bin: it is missing"
    ):
        read_manifest(out)


def test_a_manifest_of_others_or_of_the_future_is_rejected(tmp_path: Path) -> None:
    out = tmp_path / "out"
    whole(out, jobs_in(tmp_path))
    document = json.loads((out / "manifest.json").read_text())
    for change, said in (
        ({"format": "webdataset"}, "is not a manifest of shards"),
        ({"version": 2}, "version 2.*newer version"),
        ({"splits": {"train": [{**document["splits"]["train"][0], "name": "../a.bin"}]}}, "not a file in its folder"),
        ({"splits": {"train": [{"name": "a.bin"}]}}, r"splits.train\[0\].bytes is missing"),
    ):
        (out / "manifest.json").write_text(json.dumps(document | change))
        with pytest.raises(FileError, match=said):
            read_manifest(out)
    (out / "manifest.json").write_text("{")
    with pytest.raises(FileError, match="not a complete JSON"):
        read_manifest(out)


def test_a_folder_that_is_not_ours_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileError, match=r"is not empty.*notes\.txt is there"):
        begin_preparation(tmp_path, ASKED)
    with pytest.raises(FileError, match="is a file"):
        begin_preparation(tmp_path / "notes.txt", ASKED)
    out = tmp_path / "out"
    whole(out, jobs_in(tmp_path))
    with pytest.raises(FileError, match=r"other data or with other settings \(data\)"):
        begin_preparation(out, {**ASKED, "data": "abd"})
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("workers", [0, 2])
def test_what_a_person_can_fix_is_told_in_its_own_words(tmp_path: Path, workers: int) -> None:
    out = tmp_path / "out"
    begin_preparation(out, ASKED)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    made: list[ShardWriteResult] = []
    with pytest.raises(FileError, match=r"d\.bin could not be written: the disk is full.*are kept"):
        made.extend(write_shards(out, jobs_in(tmp_path, d=full), workers))
    assert {"a.bin", "b.bin", "c.bin"} <= {p.name for p in out.iterdir()}
    with pytest.raises(DataError, match=r"^book\.txt is bad$"):
        made.extend(write_shards(out, jobs_in(tmp_path, d=DataError("book.txt is bad")), workers))
    assert not (out / "d.bin").exists()


def test_room_on_the_disk_is_asked_for_before(tmp_path: Path) -> None:
    jobs = jobs_in(tmp_path)
    require_disk_space(tmp_path, jobs, 150)
    with pytest.raises(FileError, match=r"GiB of free space, and the shards take about 1048576\.06 GiB more"):
        require_disk_space(tmp_path, jobs, 2**50)
