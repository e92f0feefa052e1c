"""Files of a person: none is written over that should not be, and none is waited for."""

from __future__ import annotations

import json
import os
import shutil
import tracemalloc
from pathlib import Path

import pytest

from cutaway.core import files
from cutaway.core.errors import FileError, MissingFileError


def run_folder(at: Path) -> Path:
    """What stands for a run: its document and its model."""
    (at / "model").mkdir(parents=True)
    (at / "run.json").write_text("{}")
    (at / "model" / "config.json").write_text("{}")
    return at


@pytest.mark.parametrize("way", ["itself", "a symbolic link", "a hard link", "another spelling", "in its folder"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_no_input_is_written_over(tmp_path: Path, way: str, overwrite: bool) -> None:
    given = tmp_path / "in" / "t.csv"
    given.parent.mkdir()
    given.write_text("a,b\n1,2\n")
    link = tmp_path / "link.csv"
    out, read = {
        "itself": (given, given),
        "a symbolic link": (link, given),
        "a hard link": (link, given),
        "another spelling": (given.parent / ".." / "in" / "t.csv", given),
        "in its folder": (given, given.parent),
    }[way]
    if way == "a symbolic link":
        link.symlink_to(given)
    if way == "a hard link":
        os.link(given, link)
    with pytest.raises(FileError, match=r"is the input .* and is not overwritten"):
        files.reject_overwriting(out, ["a text that was typed", "x" * 5000, read], overwrite)


@pytest.mark.parametrize("name", ["run.json", "metrics.csv", "report.html", "model/config.json", "model/new.csv"])
@pytest.mark.parametrize("linked", [False, True])
def test_no_file_of_a_run_is_written_over(tmp_path: Path, name: str, linked: bool) -> None:
    run = run_folder(tmp_path / "runs" / "a")
    if linked:
        (tmp_path / "here").symlink_to(run)
        run = tmp_path / "here"
    with pytest.raises(FileError, match="is a file of the run"):
        files.reject_overwriting(run / name, overwrite=True)
    files.reject_overwriting(run / "predictions.csv")
    files.reject_overwriting(run / "models.csv")


def test_what_exists_is_written_over_when_that_was_asked_for(tmp_path: Path) -> None:
    there = tmp_path / "t.csv"
    there.write_text("precious")
    with pytest.raises(FileError, match="--overwrite"):
        files.reject_overwriting(there)
    files.reject_overwriting(there, [tmp_path / "other.csv"], overwrite=True)
    dangling = tmp_path / "dangling"
    dangling.symlink_to("nowhere")
    with pytest.raises(FileError, match="--overwrite"):
        files.reject_overwriting(dangling)
    with pytest.raises(FileError, match="is a folder"):
        files.reject_overwriting(tmp_path, overwrite=True)
    os.mkfifo(tmp_path / "pipe")
    for irregular in (tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(FileError, match="only regular files"):
            files.reject_overwriting(irregular, overwrite=True)


def test_a_folder_that_cannot_be_written_to_is_told_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    files.reject_overwriting(tmp_path / "new" / "newer" / "t.csv")
    assert not (tmp_path / "new").exists()
    for path in (tmp_path / "file" / "t.csv", tmp_path / "file" / "new" / "t.csv"):
        with pytest.raises(FileError, match=r"t\.csv cannot be written: .*/file is not a folder\."):
            files.reject_overwriting(path)
    monkeypatch.setattr(files.os, "access", lambda path, mode: path != tmp_path)  # whom no mode stops runs this too
    with pytest.raises(FileError, match=r"is not writable\. Choose another folder\."):
        files.reject_overwriting(tmp_path / "new" / "t.csv")


def test_pipes_devices_and_what_memory_cannot_hold_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    for path, said in ((tmp_path / "pipe.json", "a named pipe"), ("/dev/zero", "a device"), (tmp_path, "a folder")):
        for read in (files.read_bytes, files.read_json, files.open_regular):
            with pytest.raises(FileError, match=said):
                read(path)
    with pytest.raises(MissingFileError, match=r"Similar there: pipe\.json") as caught:
        files.read_bytes(tmp_path / "pip.json")
    assert [problem.what for problem in caught.value.problems] == ["it does not exist"]
    for name, said in (
        ("nowhere", "There is no file"),
        ("x" * 300, "could not be read"),
        ("a\0b", "could not be read"),
    ):
        with pytest.raises(FileError, match=said):
            files.read_bytes(tmp_path / name)
        assert not files.exists(tmp_path / name)
    with (tmp_path / "sparse.csv").open("wb") as file:
        file.truncate(1 << 43)
    with pytest.raises(FileError, match="half of its memory"):
        files.read_bytes(tmp_path / "sparse.csv")
    (tmp_path / "small").write_bytes(b"12345")
    assert files.read_bytes(tmp_path / "small", most=5) == b"12345"
    with files.open_regular(tmp_path / "small") as opened:
        assert opened.read() == b"12345"
    with pytest.raises(FileError, match="more than the limit of 4"):
        files.read_bytes(tmp_path / "small", most=4)


def test_reading_sets_aside_no_more_than_the_file_has(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"12345")
    tracemalloc.start()
    files.read_bytes(tmp_path / "small")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < files.MEBIBYTE
    assert files.read_bytes("/proc/self/status").startswith(b"Name:")  # whose size is said to be 0


def test_json_too_deep_to_read_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 200_000)
    with pytest.raises(FileError, match="is nested more than 100 levels deep"):
        files.read_json(tmp_path / "deep.json")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[" * 101 + b"]" * 101, "is nested more than 100 levels deep"),
        (b'{"a": ' * 500 + b"1" + b"}" * 500, "is nested more than 100 levels deep"),
        (b"", "is not a complete JSON document"),
        (b'{"a": 1', "is not a complete JSON document"),
        (b'{"a": "\xff"}', "is not a complete JSON document"),
        (b'{"a": ' + b"1" * 5000 + b"}", "is not a complete JSON document"),
    ],
)
def test_json_that_cannot_be_read_is_rejected_by_its_file(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(FileError, match=said) as rejection:
        files.read_json(tmp_path / "a.json")
    assert str(rejection.value).startswith(str(tmp_path / "a.json"))
    assert len(str(rejection.value)) < len(str(tmp_path)) + 320


def test_json_with_a_byte_order_mark_and_nested_a_hundred_deep_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'\xef\xbb\xbf{"a": [1]}')
    assert files.read_json(tmp_path / "a.json") == {"a": [1]}
    (tmp_path / "a.json").write_bytes(b"[" * 100 + b"]" * 100)
    files.read_json(tmp_path / "a.json")


def test_a_name_that_is_not_utf8_survives_a_document(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.csv")
    files.write_json(tmp_path / "run.json", {"path": name, "é": "é"})
    assert json.loads((tmp_path / "run.json").read_text(encoding="utf-8")) == {"path": name, "é": "é"}


def test_a_cell_runs_nothing_in_a_spreadsheet_or_on_a_terminal(tmp_path: Path) -> None:
    row = {
        "=id": "=cmd|' /C calc'!A0",
        "b": "\x1b[31mred",
        "c": "-3.5",
        "d": "@SUM(1)",
        "e": -1.5,
        "f": "a\nb",
    }
    assert files.write_csv(tmp_path / "t.csv", [row]) == 4
    text = (tmp_path / "t.csv").read_text()
    assert text == "'=id,b,c,d,e,f\n'=cmd|' /C calc'!A0,\\x1b[31mred,-3.5,'@SUM(1),-1.5,\"a\nb\"\n"


def test_a_folder_that_is_removed_while_it_is_written_to_is_said_to_be_gone(tmp_path: Path) -> None:
    path = tmp_path / "run" / "metrics.csv"

    def removed_meanwhile() -> None:
        with files.atomic_write(path) as temporary:
            temporary.write_text("epoch\n")
            shutil.rmtree(path.parent)

    with pytest.raises(FileError, match=r"metrics\.csv could not be written: its folder .*run was removed or renamed"):
        removed_meanwhile()
    assert not path.exists()
