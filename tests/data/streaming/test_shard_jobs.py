"""What is counted, promised and remembered while shards are made: room on the disk, progress, order, plans."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from PIL import Image

import cutaway
from cutaway.core.errors import FileError
from cutaway.data.streaming import parquet_shards, shards
from cutaway.data.streaming import text_shards as texts
from cutaway.data.streaming.shards import MANIFEST, PLAN, Manifest

from .test_shards import ASKED, jobs_in

LITTLE = 1 << 12  # bytes that a MiB has here
KINDS = ("text", "image", "table")


class KilledError(Exception):
    """Stands for a kill at that moment."""


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Data of each kind, which makes several shards."""
    for module in ("text_shards", "media_shards", "parquet_shards"):
        monkeypatch.setattr(f"cutaway.data.streaming.{module}.MEBIBYTE", LITTLE)
    monkeypatch.setattr(parquet_shards, "LEAST_ROWS", 50)
    rng = np.random.default_rng(0)

    def source(kind: str) -> Path:
        path = tmp_path / f"{kind}-data"
        path.mkdir()
        if kind == "text":
            path = path / "text.txt"
            letters = [chr(0x4E00 + k) for k in range(300)]  # which take two bytes each in shards
            path.write_text("".join(rng.choice([*letters, "\n"], 12_000)), encoding="utf-8")
        elif kind == "image":
            for k in range(60):
                (path / "ab"[k % 2]).mkdir(exist_ok=True)
                pixels = rng.integers(0, 256, (12, 12), dtype=np.uint8)
                Image.fromarray(pixels).save(path / "ab"[k % 2] / f"{k}.png")
        else:
            path = path / "table.parquet"
            frame = pl.DataFrame({"x": rng.normal(size=3000), "kind": rng.integers(0, 3, 3000)})
            frame.write_parquet(path, row_group_size=300)
        return path

    return source


def prepared(source: Path, out: Path, **given: Any) -> Manifest:
    own = {"tokenizer": "characters", "vocab_size": 400, "held_out": 0} if source.suffix == ".txt" else {}
    workers = {} if source.suffix == ".parquet" else {"workers": 0}
    return cutaway.prepare(source, out, shard_size=1, **own, **workers, **given)


@pytest.mark.parametrize("kind", KINDS)
def test_a_disk_without_room_for_all_shards_is_told_before_the_first(
    tmp_path: Path, sources: Callable[[str], Path], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = sources(kind), tmp_path / "out"
    made = prepared(source, tmp_path / "whole")
    assert len({shard.name for shard in made.shards}) > 3
    size = sum(shard.bytes for shard in made.shards)
    if kind == "table":
        size = 2 * source.stat().st_size  # each row stands there twice, until all shards are made
    if kind == "image":
        size = sum(path.stat().st_size for path in source.rglob("*.png"))  # small shards are mostly zeros
    disk = SimpleNamespace(free=0)
    monkeypatch.setattr(shards.shutil, "disk_usage", lambda path: disk)
    for disk.free in (0, shards.SPARE, shards.SPARE + size - 1):
        with pytest.raises(FileError, match="of free space, and the shards take about"):
            prepared(source, out)
        assert {path.name for path in out.iterdir()} <= {PLAN}
    disk.free = shards.SPARE + (1 << 20)
    assert prepared(source, out) == made


def test_shards_that_are_there_take_no_more_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = jobs_in(tmp_path)  # of 10, 20, 30, 40 and 50 bytes
    made = shards.write_shards(tmp_path, jobs, 0)
    next(made), next(made)
    monkeypatch.setattr(shards.shutil, "disk_usage", lambda path: SimpleNamespace(free=shards.SPARE + 120))
    shards.require_disk_space(tmp_path, jobs, 150)
    with pytest.raises(FileError, match=r"run the same command again to continue"):
        shards.require_disk_space(tmp_path, jobs, 151)


@pytest.mark.parametrize("kind", KINDS)
def test_progress_goes_up_to_all_of_it(tmp_path: Path, sources: Callable[[str], Path], kind: str) -> None:
    told: list[tuple[int, int]] = []
    made = prepared(sources(kind), tmp_path / "out", progress=lambda done, of: told.append((done, of)))
    steps = len([*made.shards]) * (2 if kind == "table" else 1)  # a table is written twice
    assert told == [(k, steps) for k in range(1, steps + 1)]


@pytest.mark.parametrize("kind", KINDS)
def test_shards_stand_in_the_manifest_in_their_order(tmp_path: Path, sources: Callable[[str], Path], kind: str) -> None:
    made = prepared(sources(kind), tmp_path / "out")
    splits = ["all"] if kind == "table" else ["train", "val", "test"]
    assert [*made.splits] == splits
    for split, of_split in made.splits.items():
        start = "part" if kind == "table" else split
        assert [shard.name.partition(".")[0] for shard in of_split] == [f"{start}-{k:05}" for k in range(len(of_split))]
    assert all((tmp_path / "out" / shard.name).stat().st_size == shard.bytes for shard in made.shards)
    document = json.loads((tmp_path / "out" / MANIFEST).read_text(encoding="utf-8"))
    assert [shard["name"] for of_split in document["splits"].values() for shard in of_split] == [
        shard.name for shard in made.shards
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_before_the_manifest_leaves_the_plan_and_nothing_to_make_again(
    tmp_path: Path, sources: Callable[[str], Path], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = sources(kind), tmp_path / "out"
    made = prepared(source, tmp_path / "whole")

    def killed(*given: Any) -> None:
        raise KilledError

    with monkeypatch.context() as once:
        once.setattr(Manifest, "write", killed)
        with pytest.raises(KilledError):
            prepared(source, out)
    assert (out / PLAN).is_file()
    there = {shard.name: (out / shard.name).stat().st_mtime_ns for shard in made.shards}
    with monkeypatch.context() as once:  # that no shard and no part of one is written
        once.setattr(shards, "atomic_write", killed)
        assert prepared(source, out) == made
    assert {shard.name: (out / shard.name).stat().st_mtime_ns for shard in made.shards} == there
    assert sorted(path.name for path in out.iterdir()) == sorted(path.name for path in (tmp_path / "whole").iterdir())


def test_a_kill_after_the_manifest_leaves_no_plan_behind(tmp_path: Path, sources: Callable[[str], Path]) -> None:
    source, out = sources("text"), tmp_path / "out"
    made = prepared(source, out)
    (out / PLAN).write_text("{}")
    assert prepared(source, out) == made
    assert not (out / PLAN).exists()


def test_the_plan_of_another_preparation_is_not_gone_on_with(tmp_path: Path) -> None:
    shards.begin_preparation(tmp_path / "out", ASKED)
    shards.save_plan(tmp_path / "out", ASKED, {"units": 5})
    assert shards.begin_preparation(tmp_path / "out", ASKED).plan == {"units": 5}
    with pytest.raises(FileError, match=r"of other data or with other settings \(settings\)"):
        shards.begin_preparation(tmp_path / "out", {**ASKED, "settings": {"tokenizer": "bpe"}})


@pytest.mark.parametrize(("tokens", "dtype", "fits"), [
    (256, "uint8", True), (257, "uint8", False), (65_536, "uint16", True), (65_537, "uint16", False),
    (65_537, "uint32", True),
])  # fmt: skip
def test_a_plan_whose_type_cannot_hold_its_tokens_is_rejected(
    tmp_path: Path, tokens: int, dtype: str, fits: bool
) -> None:
    (tmp_path / "a.txt").write_text("ab")
    corpora = {"train": texts.Corpus.from_files([tmp_path / "a.txt"])}
    letters = [chr(0x4E00 + k) if k < 0x8000 else chr(0x20000 + k) for k in range(tokens - 2)]
    tokenizer = texts.characters_tokenizer(dict.fromkeys(letters, 1), 2**20, 1, False)
    assert len(tokenizer) == tokens
    plan = {
        "fingerprint": "f" * 64, "places": {"train": [[0, 0], [0, 2]]}, "tokenizer": tokenizer.to_json(),
        "dtype": dtype, "bytes": 2, "settings": {"val": 0.0, "test": 0.0, "tokenizer": "characters"}, "notes": [],
    }  # fmt: skip
    if fits:
        texts._reject_plan(plan, corpora, tmp_path / PLAN)
        return
    with pytest.raises(FileError, match=f"dtype is '{dtype}', which cannot hold {tokens:,} tokens"):
        texts._reject_plan(plan, corpora, tmp_path / PLAN)


@pytest.mark.parametrize(("letters", "dtype"), [(254, "uint8"), (255, "uint8"), (256, "uint16"), (257, "uint16")])
def test_tokens_are_written_in_bytes_that_hold_them(tmp_path: Path, letters: int, dtype: str) -> None:
    """At the boundary the last token stands in the shard as itself, and not as 0."""
    text = "".join(chr(0x4E00 + k) for k in range(letters)) * 3
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    made = cutaway.prepare(tmp_path / "a.txt", tmp_path / "out", tokenizer="characters", val=0, test=0, vocab_size=999)
    stored = np.fromfile(tmp_path / "out" / "train-00000.bin", made.about["dtype"])
    tokens = len(made.about["counts"]["train"])
    assert made.about["dtype"] == ("uint8" if tokens <= 256 else "uint16")
    assert len(np.unique(stored)) == letters
    assert made.about["counts"]["train"] == np.bincount(stored, minlength=tokens).tolist()
    assert made.count("train") == len(text)
    assert made.splits["train"][0].bytes == len(text) * stored.itemsize
