"""Peak memory of our loop beside the bare one, each in a process of its own."""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path

from .loops import CASES, sides
from .pairs import Pair


def rows(runs: int = 3) -> list[tuple[Pair, float]]:
    """Every case of the loops, in bytes instead of seconds."""
    found = []
    for case in CASES:
        peaks = [(_peak(case, "ours"), _peak(case, "bare")) for _ in range(runs)]
        ratios = sorted(a / b for a, b in peaks)
        found.append(
            (
                Pair(
                    case.replace("loop", "memory"),
                    statistics.median(a for a, _ in peaks),
                    statistics.median(b for _, b in peaks),
                    statistics.median(ratios),
                    ratios[0],
                    ratios[-1],
                    runs,
                ),
                1.1,
            )
        )
    return found


def _peak(case: str, side: str) -> float:
    words = [sys.executable, "-m", "benchmarks.memory", case, side]
    return float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    case, side = sys.argv[1:]
    work = sides(case)[0 if side == "ours" else 1]
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here: reading the data is behind us
    work()
    work()
    # Not getrusage: its peak begins with that of the process that this one was forked from.
    (peak,) = (s for s in Path("/proc/self/status").read_text().splitlines() if s.startswith("VmHWM"))
    print(int(peak.split()[1]) * 1024)
