"""A table that is sorted by its target, shuffled by `cutaway prepare`: how well few blocks at a time mix it.

By hand: python -m benchmarks.shuffling FOLDER [ROWS]

Of each, as it is sorted and as it was prepared, the standard deviation over batches of 64 of the share of each class,
over that of batches which are drawn at random, by how many blocks are mixed at a time; and what preparing takes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import torch

from cutaway.data.tables.row_groups import BlockOrder
from cutaway.data.tables.table_files import locate_row_groups

from .corpus import say

ROWS, COLUMNS, CLASSES, BATCH, SEEDS = 2_000_000, 10, 10, 64, 20
SHARD = 8  # MiB
AT_A_TIME = (1, 2, 4, 16)


def write_sorted(path: Path, rows: int) -> None:
    """Random numbers, and a class by which they are sorted."""
    rng = np.random.default_rng(0)
    columns = {f"x{k}": rng.normal(size=rows).astype(np.float32) for k in range(COLUMNS)}
    kind = np.arange(rows) * CLASSES // rows
    pl.DataFrame({**columns, "kind": kind.astype(np.int8)}).write_parquet(path, row_group_size=1 << 14)


def spread(path: Path, blocks: int) -> float:
    """The mean over classes and seeds, 1 of batches that are drawn at random."""
    groups = locate_row_groups(path)
    kinds = torch.cat([torch.from_numpy(frame["kind"].to_numpy()) for _, frame in groups.frames(["kind"])]).long()
    found = []
    for seed in range(SEEDS):
        order = BlockOrder(groups.first[:-1], groups.first[1:], blocks, torch.Generator().manual_seed(seed))
        whole = order.part(0, len(groups))[: len(groups) // BATCH * BATCH]
        counts = torch.zeros(len(whole) // BATCH, CLASSES)
        counts.scatter_add_(1, kinds[whole].view(-1, BATCH), torch.ones(len(counts), BATCH))
        found.append(float((counts / BATCH).std(0).mean()))
    expected = (1 / CLASSES * (1 - 1 / CLASSES) / BATCH) ** 0.5
    return float(np.mean(found)) / expected


def main(folder: Path, rows: int) -> None:
    """Measure, and print it."""
    table, out = folder / "sorted.parquet", folder / "shuffled"
    write_sorted(table, rows)
    began = time.perf_counter()
    command = [sys.executable, "-m", "cutaway", "prepare", str(table), str(out), f"shard_size={SHARD}"]
    _, status, used = os.wait4(subprocess.Popen(command).pid, 0)
    assert status == 0, command
    say("MiB of the table", table.stat().st_size / 2**20)
    say("prepare: seconds of the clock, of the processor", [time.perf_counter() - began, used.ru_utime + used.ru_stime])
    say("prepare: MiB of memory at most", used.ru_maxrss / 1024)
    for name, path in (("sorted", table), ("prepared", out)):
        say(name, {blocks: round(spread(path, blocks), 2) for blocks in AT_A_TIME})


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if sys.argv[2:] else ROWS)
