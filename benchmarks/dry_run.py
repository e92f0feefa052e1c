"""What each of many processes would hold and send: python -m benchmarks.dry_run prints the table of docs/benchmarks.md.

GPT-2 XL on 256 and 1 024 processes, in this one. Beside what a process holds stands what ZeRO's formula gives, 16 bytes
a parameter over the processes that share it: rows go to processes whole, so that the first hold somewhat more.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from cutaway.core.memory_budget import build_on_meta, format_bytes
from cutaway.distributed.dry_run import DryRun, dry_run
from cutaway.models.registry import preset
from cutaway.training.optim import find_blocks

CASES = ((256, "fsdp", 1), (1024, "fsdp", 1), (1024, "hsdp", 1), (256, "ddp", 8), (1024, "fsdp", 8))
MODEL, HEADS = "gpt2-xl", {"heads": 16}  # 25 heads are divided by no power of two: 16 of 100 numbers each
TOKENS, MACHINE = 1024, 8

COLUMNS = ("gpt2-xl on", "each holds, first to last", "by formula", "most of one weight", "sent in a step", "seconds")


def step(model: nn.Module) -> Tensor:
    """The loss of a text."""
    outputs: Tensor = model(torch.zeros(1, TOKENS, dtype=torch.long))
    return outputs.logsumexp(-1).sum()


def rows() -> Iterator[tuple[str, ...]]:
    """The rows of the table."""
    known = preset(MODEL)
    for processes, parallel, tensor in CASES:
        config = known.configure(settings=HEADS if tensor > 1 else {})
        began = time.perf_counter()
        run = dry_run(
            partial(build_on_meta, known, config), step, find_blocks,
            processes=processes, parallel=parallel, tensor_parallel=tensor, machine=MACHINE,
        )  # fmt: skip
        took = time.perf_counter() - began
        sharing = {"fsdp": processes // tensor, "hsdp": MACHINE // tensor, "ddp": 1}[parallel]
        split = f" and, of blocks, {tensor}" if tensor > 1 else ""
        held = sorted({run.shares[0].bytes, run.shares[-1].bytes}, reverse=True)
        name, size = run.largest
        yield (
            f"{processes:,} {parallel}" + (f", tensor_parallel={tensor}" if tensor > 1 else ""),
            " to ".join(map(format_bytes, held)),
            f"{format_bytes(16 * run.parameters)} / {sharing:,}{split}: {format_bytes(formula(run, sharing, tensor))}",
            f"`{name}`, {format_bytes(size)}",
            "; ".join(f"{c.count} {c.kind} of {c.processes:,}: {format_bytes(c.bytes)}" for c in run.collectives),
            f"{took:.0f}",
        )


def formula(run: DryRun, sharing: int, tensor: int) -> float:
    """16 bytes a parameter over those that share it: blocks by rows and by heads, what stands outside by rows."""
    config: Any = preset(MODEL).config
    cut = config.layers * (12 * config.dim**2 + 7 * config.dim)
    return 16 * (run.parameters - cut + cut / tensor) / sharing


def table() -> Iterator[str]:
    """The lines of the table."""
    for cells in (COLUMNS, ("---", "---:", "---:", "---", "---", "---:")):
        yield f"| {' | '.join(cells)} |"
    for cells in rows():
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    for line in table():
        print(line, flush=True)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"\nMost resident memory of this process: {format_bytes(most)}.", file=sys.stderr)
