"""Folders of many files: known from an index at the next start, and never believed where something changed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from cutaway.core.errors import DataError
from cutaway.data.dataset_base import DataSet
from cutaway.data.images import image_files
from cutaway.data.streaming import webdataset

from .test_webdataset import STREAMED, digits, everything, folder, opened  # noqa: F401  # fixtures

SETTINGS = {**STREAMED, "val": 0, "test": 0}


@pytest.fixture
def kept(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:  # noqa: F811
    """A folder that has an index, made when its files had been there for a while."""
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(webdataset, "MANY", 50)
    old(folder)
    opened(folder, **SETTINGS)
    assert len(list((tmp_path / "cache" / "indexes").iterdir())) == 1
    return folder


def old(path: Path) -> None:
    """Give every folder a time that is past."""
    for home in [path, *path.iterdir()]:
        os.utime(home, (time.time() - 100, time.time() - 100))


def read_anew(path: Path, monkeypatch: pytest.MonkeyPatch, **settings: object) -> tuple[DataSet, int]:
    """The data, and how many files were looked at to open it."""
    looked: list[object] = []
    whole = image_files.inspect_image
    with monkeypatch.context() as patch:
        patch.setattr(image_files, "inspect_image", lambda source: looked.append(source) or whole(source))
        return opened(path, **{**SETTINGS, **settings}), len(looked)


def test_the_next_start_opens_no_file_and_is_the_same(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTAWAY_CACHE", str(kept.parent / "another"))
    first, looked = read_anew(kept, monkeypatch)
    assert looked == 120
    monkeypatch.setenv("CUTAWAY_CACHE", str(kept.parent / "cache"))
    second, looked = read_anew(kept, monkeypatch)
    assert looked == 0
    assert (second.fingerprint, second.split_hash) == (first.fingerprint, first.split_hash)
    assert [second.splits["train"].name(i) for i in range(120)] == [first.splits["train"].name(i) for i in range(120)]
    assert everything(second) == everything(first)
    assert everything(opened(kept, **{**SETTINGS, "memory": 512})) == everything(first)


@pytest.mark.parametrize("change", ["added", "removed", "renamed", "folder", "index"])
def test_what_changed_is_looked_at_again(kept: Path, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    some = sorted((kept / "3").iterdir())
    if change == "added":
        (kept / "3" / "new.png").write_bytes(some[0].read_bytes())
    elif change == "removed":
        some[0].unlink()
    elif change == "renamed":
        some[0].rename(kept / "4" / "moved.png")
    elif change == "folder":
        (kept / "eleven").mkdir()
        (kept / "eleven" / "new.png").write_bytes(some[0].read_bytes())
    else:
        (index,) = (kept.parent / "cache" / "indexes").iterdir()
        index.write_bytes(index.read_bytes()[:-50])
    data, looked = read_anew(kept, monkeypatch)
    assert looked == {"added": 121, "folder": 121, "removed": 119}.get(change, 120)
    assert len(data.splits["train"]) == looked
    old(kept)
    assert read_anew(kept, monkeypatch)[1] in (0, looked)  # times went back: they are not those of the index


def test_folders_that_changed_just_now_are_not_believed(
    folder: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(webdataset, "MANY", 50)
    os.utime(folder / "3")
    assert read_anew(folder, monkeypatch)[1] == 120
    assert read_anew(folder, monkeypatch)[1] == 120  # the index was made within the tick of a change


def test_a_file_that_was_written_over_is_named(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webdataset, "LOOKED_AT", 2)  # the first and the last
    changed = sorted((kept / "3").iterdir())[5]
    changed.write_bytes(changed.read_bytes())
    with pytest.raises(DataError, match=rf"{changed.name}: it was changed since its folder was indexed"):
        read_anew(kept, monkeypatch)
    data, looked = read_anew(kept, monkeypatch)
    assert looked == len(everything(data)) == 120


def test_few_files_have_no_index(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path / "cache"))
    opened(folder)
    assert not (tmp_path / "cache").exists()
