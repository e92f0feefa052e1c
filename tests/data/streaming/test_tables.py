"""Tables shuffled into shards: every row once, mixed whatever their order was, resumed after a kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import cutaway
from cutaway.core.errors import CutawayError, DataError
from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings
from cutaway.data.streaming import parquet_shards
from cutaway.data.streaming.media_shards import damaged_shards
from cutaway.data.streaming.parquet_shards import ShuffleJob

ROWS, CLASSES = 6000, 10


@pytest.fixture
def sorted_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two files that are sorted by the target, and shards of 8 KiB with row groups of 100 rows."""
    monkeypatch.setattr(parquet_shards, "MEBIBYTE", 1 << 13)
    monkeypatch.setattr(parquet_shards, "LEAST_ROWS", 100)
    rng, folder = np.random.default_rng(0), tmp_path / "sorted"
    folder.mkdir()
    frame = pl.DataFrame(
        {
            "row": pl.Series(np.arange(ROWS), dtype=pl.Int32),
            "x": pl.Series(rng.normal(size=ROWS).astype(np.float32)),
            "word": pl.Series([f"w{k}" for k in rng.integers(0, 5, ROWS)]),
            "kind": pl.Series([f"k{k}" for k in np.arange(ROWS) * CLASSES // ROWS]),
        }
    )
    frame[:3500].write_parquet(folder / "a.parquet", row_group_size=500)
    frame[3500:].write_parquet(folder / "b.parquet", row_group_size=500)
    return folder


def rows_of(out: Path) -> pl.DataFrame:
    return pl.concat([pl.read_parquet(path) for path in sorted(out.glob("*.parquet"))])


def opened(path: Path, **settings: Any) -> Any:
    return open_data(path, DataSettings(target="kind", ignore=("row",), **settings))


def test_every_row_stands_there_once_and_any_few_row_groups_have_all_classes(
    sorted_table: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    made = cutaway.prepare(sorted_table, out, shard_size=1)
    assert made.count("all") == ROWS
    assert len(made.splits["all"]) > 5
    assert sorted(path.name for path in out.iterdir()) == [
        "manifest.json",
        *(shard.name for shard in made.shards),
    ]
    assert rows_of(out).sort("row").equals(rows_of(sorted_table))
    (out / "stray.parquet").write_bytes(b"of no concern")
    spreads = {}
    for path in (sorted_table, out):
        data = opened(path, memory=0)  # one block at a time
        split = data.splits["train"]
        kinds = split.target[torch.cat([*split.plan(64, torch.Generator().manual_seed(0))])]
        shares = torch.stack([torch.bincount(k, minlength=CLASSES) / 64 for k in kinds.split(64)[:-1]])
        spreads[path] = float(shares.std(0).mean()) / (0.09 / 64) ** 0.5  # 1 of batches that are drawn at random
    assert spreads[sorted_table] > 4
    assert 0.8 < spreads[out] < 1.2
    assert any("all were shuffled when they were prepared" in note for note in data.notes)
    assert len(opened(out).splits["train"]) == len(split)  # in memory too


def test_a_kill_changes_no_byte_and_damage_is_named(
    sorted_table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cutaway.prepare(sorted_table, tmp_path / "whole", shard_size=1)
    written: list[str] = []
    write = ShuffleJob.write

    def killed(self: ShuffleJob, path: Path) -> None:
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(self.name)
        write(self, path)

    with monkeypatch.context() as once:
        once.setattr(ShuffleJob, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            cutaway.prepare(sorted_table, tmp_path / "out", shard_size=1)
    with pytest.raises(DataError, match="is not whole"):
        opened(tmp_path / "out")
    cutaway.prepare(sorted_table, tmp_path / "out", shard_size=1)
    for path in (tmp_path / "whole").glob("*.parquet"):
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()
    shard = tmp_path / "out" / "part-00001.parquet"
    data = bytearray(shard.read_bytes())
    data[100] ^= 1
    shard.write_bytes(data)
    assert [problem.where for problem in damaged_shards(tmp_path / "out")] == [str(shard)]
    shard.unlink()
    with pytest.raises(DataError, match=r"part-00001.parquet: it is missing"):
        opened(tmp_path / "out")


def test_what_means_nothing_is_rejected(sorted_table: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    cutaway.prepare(sorted_table, tmp_path / "out")
    wrong: list[tuple[Path, dict[str, Any], str]] = [
        (sorted_table, {"target": "kind"}, "target=kind is chosen in training"),
        (sorted_table, {"workers": 2}, "workers=2 is for other data"),
        (sorted_table, {"sample": 3}, "sample=3 is for text"),
        (sorted_table, {"split_seed": 1}, "was prepared of other data or with other settings .split_seed."),
        (sorted_table / "a.parquet", {"forecast": "x"}, "Series cannot be prepared"),
        (tmp_path / "a.csv", {}, "is read as a whole, and only Parquet is prepared"),
    ]
    for source, settings, said in wrong:
        with pytest.raises(CutawayError, match=said):
            cutaway.prepare(source, tmp_path / "out", **settings)
