"""python -m tests.fuzz: see the package."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

import torch
import torch._dynamo  # which is imported once, and not in each process

from . import ALL
from .kinds import KINDS, Kind
from .runner import in_process, run_kind


def main() -> int:
    """Run what was asked for; 0 where every input was read or rejected."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--kinds", default="*", help="names or patterns with commas between them (default: all)")
    parser.add_argument("--count", type=int, default=100, help="inputs of each kind (default: 100)")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs (default: 0)")
    parser.add_argument("--quick", action="store_true", help="only the kinds that the test suite runs")
    parser.add_argument("--folder", help="where models and files are kept for the next time (default: nowhere)")
    parser.add_argument("--list", action="store_true", help="list the kinds")
    args = parser.parse_args()
    torch.set_num_threads(1)
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    wanted = [k for k in KINDS.values() if any(fnmatch(k.name, one) for one in args.kinds.split(","))]
    wanted = [kind for kind in wanted if kind.quick or not args.quick]
    if args.list or not wanted:
        print("\n".join(kind.name for kind in wanted) or "There are no such kinds.")
        return 0 if args.list else 2
    if args.folder:
        return fuzz(wanted, Path(args.folder).resolve(), args.count, args.seed)
    with tempfile.TemporaryDirectory() as folder:
        return fuzz(wanted, Path(folder), args.count, args.seed)


def fuzz(wanted: list[Kind], home: Path, count: int, seed: int) -> int:
    """Run these kinds and print what came of each."""
    total, failed = Counter[str](), 0
    home.mkdir(parents=True, exist_ok=True)
    for kind in wanted:
        if said := in_process(lambda kind=kind: kind.prepare(home), 600):  # type: ignore[misc]
            print(f"{kind.name}: its inputs could not be prepared:\n{said}", flush=True)
            failed += 1
            continue
        result = run_kind(kind, home, count, seed)
        total += result.counts
        failed += len(result.failures)
        print(f"{kind.name}: {result.inputs} inputs, {_counted(result.counts)}", flush=True)
        for name, what in result.failures:
            print(f"  FAILED  {name}\n{_indented(what)}", flush=True)
    print(f"in all: {sum(total.values())} inputs of {len(wanted)} kinds, {_counted(total)}")
    return 1 if failed else 0


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{counts[key]} {key}" for key in counts)


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.rstrip().splitlines()[-40:])


assert ALL
sys.exit(main())
