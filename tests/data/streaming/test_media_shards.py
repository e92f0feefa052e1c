"""Class folders made into tar shards: every file once, as it was, resumed after a kill, and the run is the same."""

from __future__ import annotations

import argparse
import hashlib
import os
import tarfile
from pathlib import Path

import pytest
import torch

import cutaway
from cutaway.apps.cli import plan
from cutaway.core.errors import CutawayError, DataError, FileError, SettingError
from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings
from cutaway.data.streaming.file_index import Index
from cutaway.data.streaming.media_shards import damaged_shards
from cutaway.data.streaming.shards import MANIFEST, PLAN
from cutaway.data.streaming.webdataset import INDEX

from .test_webdataset import STREAMED, digits, everything, folder  # noqa: F401  # fixtures


def contents(out: Path) -> dict[str, bytes]:
    """Every file of the folder, by its name."""
    return {path.name: path.read_bytes() for path in sorted(out.iterdir()) if path.name != MANIFEST}


def flip(path: Path) -> None:
    """Change a byte near the end of a file."""
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(data)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of 32 KiB, so that a few digits make several."""
    monkeypatch.setattr("cutaway.data.streaming.media_shards.MEBIBYTE", 1 << 15)


@pytest.fixture
def out(tmp_path: Path, folder: Path, small: None) -> Path:  # noqa: F811
    """The digits in shards."""
    del small
    cutaway.prepare(folder, tmp_path / "out", workers=0, shard_size=1)
    return tmp_path / "out"


def test_every_file_stands_in_the_shards_once_as_it_was(out: Path, folder: Path) -> None:  # noqa: F811
    shards = sorted(out.glob("*.tar"))
    assert len(shards) > 5
    read: list[tuple[str, str, str]] = []
    classes = sorted(p.name for p in folder.iterdir())
    for shard in shards:
        with tarfile.open(shard) as tar:
            files = {entry.name: tar.extractfile(entry).read() for entry in tar}  # type: ignore[union-attr]
        for name in (name for name in files if name.endswith(".png")):
            label = classes[int(files[name.replace(".png", ".cls")])]
            read.append((name, label, hashlib.sha256(files[name]).hexdigest()))
    there = [
        (str(p.relative_to(folder)), p.parent.name, hashlib.sha256(p.read_bytes()).hexdigest())
        for p in folder.rglob("*.png")
    ]
    assert sorted(read) == sorted(there)
    manifest = (out / MANIFEST).read_text()
    assert all(hashlib.sha256(shard.read_bytes()).hexdigest() in manifest for shard in shards)


def test_shards_learn_as_the_folder_does(out: Path, folder: Path) -> None:  # noqa: F811
    ours, theirs = (open_data(path, DataSettings(**STREAMED)) for path in (out, folder))
    assert ours.split_hash != theirs.split_hash  # rows are counted in another order
    for split in ours.splits:
        names = [
            [Path(one.splits[split].name(i)).stem for i in range(len(one.splits[split]))] for one in (ours, theirs)
        ]
        assert sorted(names[0]) == sorted(names[1])
    assert everything(ours) == everything(theirs)
    assert open_data(out, DataSettings()).fingerprint == ours.fingerprint
    assert everything(open_data(out, DataSettings())) == everything(ours)


def test_the_number_of_processes_and_a_kill_change_no_byte(
    out: Path,
    folder: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cutaway.prepare(folder, tmp_path / "two", workers=2, shard_size=1)
    assert contents(tmp_path / "two") == contents(out)

    written: list[str] = []
    write = cutaway.data.streaming.media_shards.TarShardJob.write  # type: ignore[attr-defined]

    def killed(self: object, path: Path) -> None:
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(path.name)
        write(self, path)

    monkeypatch.setattr("cutaway.data.streaming.media_shards.TarShardJob.write", killed)
    with pytest.raises(KeyboardInterrupt):
        cutaway.prepare(folder, tmp_path / "again", workers=0, shard_size=1)
    assert (tmp_path / "again" / PLAN).is_file()
    with pytest.raises(DataError, match="its preparation has begun and not ended"):
        open_data(tmp_path / "again", DataSettings())
    monkeypatch.undo()
    monkeypatch.setattr("cutaway.data.streaming.media_shards.MEBIBYTE", 1 << 15)
    times = {name: os.stat(tmp_path / "again" / name).st_mtime_ns for name in written}
    cutaway.prepare(folder, tmp_path / "again", workers=0, shard_size=1)
    assert contents(tmp_path / "again") == contents(out)
    assert {name: os.stat(tmp_path / "again" / name).st_mtime_ns for name in written} == times
    assert len(written) == 3


def test_files_that_changed_meanwhile_are_not_mixed(
    folder: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cutaway.data.streaming.media_shards.TarShardJob.write", killed)
    with pytest.raises(KeyboardInterrupt):
        cutaway.prepare(folder, tmp_path / "out", workers=0)
    next(folder.rglob("*.png")).unlink()
    with pytest.raises(DataError, match="are not those that were there when"):
        cutaway.prepare(folder, tmp_path / "out", workers=0)


def test_damaged_files_are_named_or_left_out(folder: Path, tmp_path: Path) -> None:  # noqa: F811
    bad = sorted(folder.rglob("*.png"))[3]
    bad.write_bytes(b"no image")
    with pytest.raises(DataError, match=rf"{bad.name}: it is not readable as an image"):
        cutaway.prepare(folder, tmp_path / "out", workers=0)
    made = cutaway.prepare(folder, tmp_path / "dropped", workers=0, missing="drop")
    assert sum(made.count(split) for split in made.splits) == 119
    assert any("left out 1 files" in note for note in made.notes)


def test_keys_have_no_dot_and_are_told_apart(folder: Path, tmp_path: Path) -> None:  # noqa: F811
    image = next(folder.rglob("*.png")).read_bytes()
    for name in ("x.v1.png", "x_v1.png", "x_v1.PNG"):
        (folder / "3" / name).write_bytes(image)
    cutaway.prepare(folder, tmp_path / "out", workers=0, val=0, test=0)
    index = Index.load(tmp_path / "out" / INDEX)
    assert index is not None
    alike = [name.split("/", 1)[1] for name in index.names if "x_v1" in name]
    assert sorted(alike) == ["3/x_v1.png", "3/x_v1_2.png", "3/x_v1_3.png"]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda out: (out / "train-00001.tar").unlink(), r"train-00001\.tar: it is missing"),
        (lambda out: (out / "train-00001.tar").write_bytes(b""), r"train-00001\.tar: it has 0 bytes"),
        (lambda out: (out / INDEX).write_bytes(b"no index"), r"index\.safetensors is missing or damaged"),
        (lambda out: flip(out / INDEX), r"index\.safetensors is missing or damaged"),
        (lambda out: (out / INDEX).unlink(), r"index\.safetensors is missing or damaged"),
    ],
)
def test_what_is_missing_or_damaged_is_named(out: Path, spoil: object, said: str) -> None:
    spoil(out)  # type: ignore[operator]
    with pytest.raises(DataError, match=said):
        open_data(out, DataSettings())


def test_settings_are_settled_here_or_later(out: Path, folder: Path, tmp_path: Path) -> None:  # noqa: F811
    with pytest.raises(SettingError, match=r"Invalid val=0\.3: .* was prepared with val=0\.15"):
        open_data(out, DataSettings(val=0.3))
    with pytest.raises(SettingError, match="image_size=32 is chosen in training"):
        cutaway.prepare(folder, tmp_path / "x", image_size=32)
    with pytest.raises(SettingError, match="sample=8 is for text"):
        cutaway.prepare(folder, tmp_path / "x", sample=8)
    with pytest.raises(FileError, match="with other settings"):
        cutaway.prepare(folder, out, val=0.3)
    data = open_data(out, DataSettings(max_samples=50))
    assert len(data.splits["train"]) == 50
    cutaway.prepare(folder, tmp_path / "whole", val=0, test=0, workers=0)
    assert list(open_data(tmp_path / "whole", DataSettings()).splits) == ["train"]


def test_what_is_no_class_folders_is_not_prepared(tmp_path: Path, out: Path) -> None:
    with pytest.raises(DataError, match="prepared already"):
        cutaway.prepare(out, tmp_path / "x")
    (out / MANIFEST).unlink()
    with pytest.raises(CutawayError, match="is not a folder of class folders"):
        cutaway.prepare(out, tmp_path / "x")


def test_a_run_on_shards_is_evaluated_on_them(out: Path, tmp_path: Path) -> None:
    run = cutaway.train("lenet5", out, out=tmp_path / "run", epochs=1, memory=0, workers=0)
    assert torch.isfinite(torch.tensor(run.evaluate()["accuracy"].value))
    assert run.evaluate(out)["accuracy"].value == run.evaluate()["accuracy"].value  # its test split


def test_check_compares_checksums(out: Path) -> None:
    assert not damaged_shards(out)
    shard = out / "train-00001.tar"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1  # of what fills the tar up, and no file's
    shard.write_bytes(content)
    with pytest.raises(DataError, match=r"train-00001\.tar: its sha256 is"):
        plan.run_check(argparse.Namespace(words=["lenet5", str(out)], json=False))
