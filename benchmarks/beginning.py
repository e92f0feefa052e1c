"""What each of several processes takes when training begins, with weights whole and in parts: resident memory.

    python -m benchmarks.beginning

Every figure is of processes of their own, which have opened data, imported everything and built a small model before:
what is counted from there on is the model, of which gpt2 has 475 MiB of weights.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from cutaway.distributed.group import all_gather_object, process_group, rank_and_size
from cutaway.training.parallel import select_strategy
from cutaway.training.setup import setup_training

WAYS = ("ddp", "fsdp")
PROCESSES = (2, 4)
TEXT = "Return the sum of all that is given, or zero where nothing is.\n" * 2000
SMALL = {"model.layers": 2, "model.dim": 16, "model.heads": 2}
MIB = 2**20


def begin(parallel: str, book: str) -> None:
    """Begin a training in this process, one of several; the first prints what each takes, and has taken at most."""
    torch.set_num_threads(1)
    given = {"processes": rank_and_size()[1], "parallel": parallel, "length": 32, "batch_size": 8, "memory_fraction": 0}
    small = _begun(given | SMALL, book)
    before = _status("VmRSS")
    del small
    Path("/proc/self/clear_refs").write_text("5")  # the peak is of what follows
    model = _begun(given | {"model.vocab_size": 50257, "model.context_length": 1024}, book)
    own = (_status("VmRSS") - before, _status("VmHWM") - before)
    weights = [sum(p.numel() for p in model.parameters()) * 4, max(p.numel() for p in model.parameters()) * 4]
    of_all = all_gather_object(own)
    if rank_and_size()[0] == 0:
        print(json.dumps({"weights": weights, "each": of_all}))


def _begun(given: dict[str, object], book: str) -> torch.nn.Module:
    ready = setup_training("gpt2", book, given)
    model = select_strategy(ready.model, ready.place, ready.settings, ready.deferred).model
    del ready
    gc.collect()
    return model


def _status(key: str) -> int:
    (line,) = (s for s in Path("/proc/self/status").read_text().splitlines() if s.startswith(key))
    return int(line.split()[1]) * 1024


def rows() -> list[str]:
    """The table, a line for each number of processes and way."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        book = Path(folder) / "book.txt"
        book.write_text(TEXT)
        for count in PROCESSES:
            for way in WAYS:
                launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
                words = [sys.executable, *launch, "-m", "benchmarks.beginning", way, str(book)]
                out = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
                (whole, largest), each = out["weights"], out["each"]
                now, most = (max(one) / MIB for one in zip(*each))
                part = whole / MIB / (count if way == "fsdp" else 1)
                found.append(f"| {count} | `{way}` | {part:.0f} | {largest / MIB:.0f} | {now:.0f} | {most:.0f} |")
                print(found[-1], flush=True)
    return found


if __name__ == "__main__":
    if len(sys.argv) == 3:
        with process_group():
            begin(*sys.argv[1:])
    else:
        rows()
