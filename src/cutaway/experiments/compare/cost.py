"""The cost of a computation: seconds, joules and peak memory.

Energy is read from the running average power limit (RAPL) of Intel's and AMD's processors, where the machine has it.

Linux has its counters in /sys/class/powercap. intel-rapl:0 is a zone whose `name` says package-0, a processor;
intel-rapl:0:1 is a part of it, and counted with it unless it is dram, the memory beside it. psys, the whole machine,
holds the packages once more. Counters are microjoules, and begin anew after max_energy_range_uj.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass
class Cost:
    """What was measured, once it is over."""

    seconds: float = 0.0
    joules: float | None = None  # of all processors; None where the machine does not tell it
    memory: int | None = None  # bytes at most, above what the process held before


@contextlib.contextmanager
def metered() -> Iterator[Cost]:
    """Measure what happens within."""
    cost, before, began = Cost(), held(), time.perf_counter()
    meter = Meter()
    try:
        with meter:
            yield cost
    finally:
        cost.seconds, cost.joules = time.perf_counter() - began, meter.joules
        cost.memory = most_since(before)


RAPL = Path("/sys/class/powercap")
EVERY = 30.0  # seconds: a counter of 65 kJ, the smallest, lasts longer than that up to 2 kW

Counters = dict[str, tuple[int, int]]  # of each zone what it says, and after what it begins anew, in microjoules


def counters(root: Path = RAPL) -> Counters:
    """The counters of all packages and their memory; none where the system has none, or keeps one of them to itself, as
    most do from all but root."""
    found: Counters = {}
    try:
        for zone in sorted(root.glob("intel-rapl:*")):
            name = (zone / "name").read_text().strip()
            if name.startswith("package") or name == "dram":
                found[zone.name] = (
                    int((zone / "energy_uj").read_text()),
                    int((zone / "max_energy_range_uj").read_text()),
                )
    except (OSError, ValueError):
        return {}
    return found


class Meter:
    """What packages and memory take while the context lasts: `joules`, None where the machine does not tell it."""

    def __init__(self, root: Path = RAPL, every: float = EVERY) -> None:
        self.joules: float | None = None
        self._root, self._every = root, every
        self._over = threading.Event()

    def __enter__(self) -> Meter:
        self._last, self._taken = counters(self._root), 0
        self._reader = threading.Thread(target=self._read_on, daemon=True)
        if self._last:  # else nobody needs to wait for it
            self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        with contextlib.suppress(RuntimeError):  # it was never started
            self._reader.join()
        self._add()
        self.joules = self._taken / 1e6 if self._last else None

    def _read_on(self) -> None:
        while not self._over.wait(self._every):
            self._add()

    def _add(self) -> None:
        now = counters(self._root)
        if now.keys() != self._last.keys():
            now = {}  # a zone that went away: the sum is not known any more
        self._taken += sum((value - self._last[zone][0]) % ends for zone, (value, ends) in now.items())
        self._last = now


SELF = Path("/proc/self")


def held() -> int | None:
    """Begin to watch: the bytes that the process holds now; None where the system does not tell (it is not Linux).

    Where there is a GPU its memory is what counts.
    """
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    let_go()
    with contextlib.suppress(OSError):
        (SELF / "clear_refs").write_text("5")  # the peak begins anew
        return _status("VmRSS")
    return None


def most_since(before: int | None) -> int | None:
    """The most that was held since, above `before`."""
    if before is None:
        return None
    most = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else _status("VmHWM")
    return None if most is None else max(0, most - before)


def let_go() -> None:
    """Give back what is held and not used: memory that a training before freed would else be this one's for nothing."""
    gc.collect()
    with contextlib.suppress(AttributeError, OSError):  # of GNU's C library
        ctypes.CDLL(None).malloc_trim(0)


def _status(key: str) -> int | None:
    """A size that the system tells of this process, in bytes."""
    try:
        found = re.search(rf"^{key}:\s*(\d+) kB$", (SELF / "status").read_text(), re.MULTILINE)
    except OSError:
        return None
    return 1024 * int(found[1]) if found else None
