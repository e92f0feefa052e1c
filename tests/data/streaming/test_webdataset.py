"""Tar shards in the WebDataset convention: the examples of the files they were made of, and what is wrong by name."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

from cutaway.core.errors import DataError
from cutaway.data.dataset_base import DataSet
from cutaway.data.images.dataset import find_damaged, open_folder
from cutaway.data.images.transforms import FileSplit
from cutaway.data.open_data import infer_kind, open_data
from cutaway.data.settings import DataSettings
from cutaway.data.streaming.webdataset import members

Files = Iterable[tuple[str, bytes]]
STREAMED = {"memory": 0, "workers": 0}


def png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture(scope="session")
def digits() -> list[tuple[bytes, int]]:
    """Real digits as PNG files, with what they are: some of each."""
    found = load_digits()
    pixels = (found.images * 15.9375).astype(np.uint8)
    return [(png(pixels[i]), int(found.target[i])) for i in range(120)]


def write(path: Path, files: Files, form: int = tarfile.PAX_FORMAT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=form) as tar:
        for name, data in files:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return path


def as_files(digits: list[tuple[bytes, int]], start: int, stop: int) -> Files:
    for i in range(start, stop):
        yield f"{i:06}.png", digits[i][0]
        yield f"{i:06}.cls", str(digits[i][1]).encode()


@pytest.fixture
def shards(tmp_path: Path, digits: list[tuple[bytes, int]], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three shards of forty digits each."""
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path / "cache"))
    for k in range(3):
        write(tmp_path / "shards" / f"{k:03}.tar", as_files(digits, 40 * k, 40 * k + 40))
    return tmp_path / "shards"


@pytest.fixture
def folder(tmp_path: Path, digits: list[tuple[bytes, int]]) -> Path:
    """The same digits in class folders."""
    for i, (data, target) in enumerate(digits):
        path = tmp_path / "folder" / str(target) / f"{i:06}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "folder"


def opened(path: Path, **settings: object) -> DataSet:
    return open_folder(path, DataSettings(**settings))  # type: ignore[arg-type]


def everything(data: DataSet) -> dict[str, tuple[bytes, int]]:
    """Each example's tensor and class, by its file's stem, once."""
    found: dict[str, tuple[bytes, int]] = {}
    for split in data.splits.values():
        order = torch.arange(len(split)).split(7)
        for index, batch in zip(order, split.batches(order)):
            for i, x, y in zip(index.tolist(), batch.inputs[0], batch.target):
                name = Path(split.name(i)).stem
                assert name not in found
                found[name] = (x.contiguous().numpy().tobytes(), int(y))
    return found


@pytest.mark.parametrize("how", [STREAMED, {}, {"memory": 0, "workers": 2}])
def test_shards_hold_the_examples_of_the_folder(shards: Path, folder: Path, how: dict[str, int]) -> None:
    assert infer_kind(shards, DataSettings()) == "image"
    both = [opened(path, val=0, test=0, **how) for path in (shards, folder)]
    assert both[0].spec == both[1].spec
    ours, theirs = map(everything, both)
    assert ours.keys() == theirs.keys()
    # Standardised by a sample that either draws in its own order: of 120 images it is all of them.
    assert ours == theirs


def test_the_index_is_made_once_and_kept(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = opened(shards, **STREAMED)
    assert any("had no index" in note for note in first.notes)
    looked: list[object] = []
    monkeypatch.setattr("cutaway.data.images.image_files.read_header", lambda *_: looked.append(0))
    second = opened(shards, **STREAMED)
    assert not looked
    assert (second.fingerprint, second.split_hash) == (first.fingerprint, first.split_hash)
    assert not any("had no index" in note for note in second.notes)
    assert everything(first) == everything(second)
    assert sorted(shards.iterdir()) == [shards / f"{k:03}.tar" for k in range(3)]  # nothing is written beside them


def test_a_shard_that_changed_is_read_again(shards: Path, digits: list[tuple[bytes, int]]) -> None:
    first = opened(shards)
    write(shards / "002.tar", as_files(digits, 80, 100))
    os.utime(shards / "002.tar", (1, 1))
    second = opened(shards)
    assert sum(map(len, first.splits.values())) == 120
    assert sum(map(len, second.splits.values())) == 100


def test_names_of_shards_are_the_splits(tmp_path: Path, shards: Path) -> None:
    for k, split in enumerate(("train", "val", "test")):
        (shards / f"{k:03}.tar").rename(shards / f"{split}-000000.tar")
    data = opened(shards)
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 40, "val": 40, "test": 40}
    assert {data.splits["test"].name(i)[:16] for i in range(40)} == {"test-000000.tar/"}
    (shards / "val-000000.tar").rename(shards / "more.tar")
    with pytest.raises(DataError, match="named like a split"):
        opened(shards)


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_members_stand_where_they_are_said_to(tmp_path: Path, form: int) -> None:
    files = [("a/" * 40 + "käse.txt", b"one"), ("b.bin", bytes(1000)), ("c.txt", b"")]
    shard = write(tmp_path / "x.tar", files, form)
    whole = shard.read_bytes()
    assert [(name, whole[at : at + size]) for name, at, size in members(shard)] == files


def test_json_names_the_class_and_models_without_labels_need_none(tmp_path: Path, digits: list, shards: Path) -> None:  # type: ignore[type-arg]
    def files() -> Files:
        for i, (data, target) in enumerate(digits[:40]):
            yield f"x/{i}.png", data
            yield f"x/{i}.json", json.dumps({"label": f"digit {target}", "width": 8}).encode()

    path = write(tmp_path / "json.tar", files())
    data = opened(path, val=0, test=0)
    assert data.spec.target.classes == tuple(f"digit {k}" for k in range(10))
    assert len(data.splits["train"]) == 40


def test_new_shards_are_evaluated_and_predicted(shards: Path) -> None:
    data = opened(shards, val=0, test=0)
    preprocessing = data.preprocessing
    (all_of_them,) = data.splits["train"].batches([torch.arange(120)])
    for split in (preprocessing.labelled(shards), preprocessing.examples([shards])):
        (batch,) = split.batches([torch.arange(120)])
        assert torch.equal(batch.inputs[0], all_of_them.inputs[0])
    assert torch.equal(preprocessing.labelled(shards).target, all_of_them.target)  # type: ignore[arg-type]


def truncated(path: Path, by: int) -> None:
    path.write_bytes(path.read_bytes()[:-by])


def broken_header(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[data.index(b"000045.png")] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda path: truncated(path, 40_000), r"001\.tar cannot be read: it is cut short .* after 000065\.png"),
        (lambda path: truncated(path, path.stat().st_size % 10240 or 10240), "cannot be read: it (ends|is cut short)"),
        (broken_header, r"001\.tar cannot be read: after 000044\.cls it is damaged"),
        (lambda path: path.write_bytes(b"no tar at all" * 100), "it is not a tar"),
        (lambda path: path.write_bytes(b""), "it is not a tar"),
    ],
)
def test_a_damaged_shard_is_named(shards: Path, spoil: Callable[[Path], object], said: str) -> None:
    spoil(shards / "001.tar")
    with pytest.raises(DataError, match=said):
        opened(shards)


def test_a_byte_that_changed_is_named_when_it_is_read(shards: Path) -> None:
    data = opened(shards, **STREAMED)
    shard, when = shards / "001.tar", os.stat(shards / "001.tar").st_mtime_ns
    content = bytearray(shard.read_bytes())
    content[content.index(b"IDAT") + 8] ^= 1
    shard.write_bytes(content)
    os.utime(shard, ns=(when, when))
    again = opened(shards, **STREAMED)  # sizes and times are as they were
    assert again.fingerprint == data.fingerprint
    found = [problem for split in again.splits.values() for problem in find_damaged(split)]
    assert [str(problem).split(": ")[0] for problem in found] == [f"000040.png in {shard}"]
    assert "sha256" in found[0].what
    with pytest.raises(DataError, match=r"000040\.png"):
        everything(again)


def test_a_shard_that_is_gone_is_named_when_it_is_read(shards: Path) -> None:
    data = opened(shards, **STREAMED)
    (shards / "000.tar").unlink()
    with pytest.raises(DataError, match=r"0000\d\d\.png in .*000\.tar: the shard cannot be read \(No such file"):
        everything(data)


def test_keys_that_make_no_example(tmp_path: Path, shards: Path, digits: list[tuple[bytes, int]]) -> None:
    image = digits[0][0]
    write(shards / "003.tar", [("a.png", image), ("b.png", image), ("b.cls", b"0"), ("c.cls", b"0"), ("readme", b"")])
    with pytest.raises(DataError, match=r"2 keys .*the key c in .*003\.tar: no image; 003\.tar/a\.png: it has no clas"):
        opened(shards)
    data = opened(shards, missing="drop")
    assert sum(map(len, data.splits.values())) == 121
    assert any("left out 2 keys" in note for note in data.notes)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([("a.png", b"1"), ("a.png", b"2")], "The key a occurs twice"),
        ([("a.png", b"1"), ("b.png", b"2"), ("a.cls", b"0")], "The key a occurs twice"),
        ([("a.png", b"1"), ("a.jpg", b"2"), ("a.cls", b"0")], "2 images, and an example has one"),
        (
            [("a.png", png(np.zeros((8, 8), np.uint8))), ("b.wav", b"2"), ("b.cls", b"0")],
            r"the key b in .*: it is audio, and the others are images",
        ),
        ([("a.txt", b"1")], "holds no image, recording or video"),
        ([("a.png", b"1"), ("a.cls", b"0")], "not readable as an image"),
    ],
)
def test_what_cannot_be_an_example_is_named(
    tmp_path: Path, files: Files, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path / "cache"))
    with pytest.raises(DataError, match=said):
        open_data(write(tmp_path / "x.tar", files), DataSettings())


def test_compressed_shards_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "x.tar.gz").write_bytes(b"")
    with pytest.raises(DataError, match=r"x\.tar\.gz is compressed"):
        open_data(tmp_path, DataSettings())


def test_workers_hold_no_list_of_all_names(shards: Path) -> None:
    split = opened(shards, **STREAMED).splits["train"]
    assert isinstance(split, FileSplit)
    assert not isinstance(split._names, list)
    assert not isinstance(split._reader.sources, list)


def test_recordings_in_shards_are_those_of_the_folder(
    tmp_path: Path, shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUTAWAY_CACHE", str(tmp_path / "cache"))
    recordings = sorted((shared_data / "fsdd" / "recordings").glob("[0-2]_*_1.wav"))
    assert len(recordings) > 10
    for path in recordings:
        (tmp_path / "folder" / path.name[0]).mkdir(parents=True, exist_ok=True)
        (tmp_path / "folder" / path.name[0] / path.name).write_bytes(path.read_bytes())
    files = [
        (name, data)
        for path in recordings
        for name, data in ((path.name, path.read_bytes()), (f"{path.stem}.cls", path.name[0].encode()))
    ]
    shard = write(tmp_path / "recordings.tar", files)
    assert infer_kind(shard, DataSettings()) == "audio"

    def frames(path: Path, **settings: int) -> dict[str, tuple[bytes, int]]:
        split = open_data(path, DataSettings(val=0, test=0, **settings)).splits["train"]  # type: ignore[arg-type]
        plan = split.plan(8, torch.Generator().manual_seed(0))  # type: ignore[attr-defined]
        return {
            Path(split.name(i)).name: (x[own].numpy().tobytes(), int(y))
            for index, batch in zip(plan, split.batches(plan))
            for i, x, own, y in zip(index.tolist(), *batch.inputs, batch.target)
        }

    held = frames(tmp_path / "folder")
    assert len(held) == len(recordings)
    assert held == frames(shard) == frames(shard, memory=0) == frames(tmp_path / "folder", memory=0, workers=0)


def test_damaged_members_are_left_out_with_missing_drop(shards: Path, digits: list[tuple[bytes, int]]) -> None:
    cut = [
        (data[: len(data) // 2] if i == 43 else b"" if i == 7 else data, target)
        for i, (data, target) in enumerate(digits)
    ]
    for k in range(2):
        write(shards / f"{k:03}.tar", as_files(cut, 40 * k, 40 * k + 40))
    with pytest.raises(
        DataError, match=r"1 of 120 image files cannot be used: .*000007\.png.*missing=drop leaves them out"
    ):
        opened(shards)
    data = opened(shards, missing="drop", **STREAMED)
    assert len(everything(data)) == 118
    note = next(note for note in data.notes if "missing=drop left out 2 keys" in note)
    assert "000007.png" in note
    assert "000043.png" in note
