"""Cost of a model and of a computation: multiply-adds, parameters, seconds, joules and peak memory.

Energy is read from the running average power limit (RAPL) of Intel and AMD processors, if the machine has it.

Linux has its counters in /sys/class/powercap. intel-rapl:0 is a zone whose `name` is package-0, a processor.
intel-rapl:0:1 is a part of it and included in it, unless it is dram, the memory. psys, the whole machine, includes the
packages. Counters are in microjoules and wrap around at max_energy_range_uj.
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
from typing import NamedTuple

import torch
from torch import nn

from ..core.spec import Spec
from ..inspect.example_inputs import inputs_for
from ..inspect.layers import layer_table


class ModelCost(NamedTuple):
    """Multiply-adds of one example, None if unknown, and the number of parameters."""

    macs: int | None
    parameters: int


def count_cost(model: nn.Module, spec: Spec) -> ModelCost:
    """Return the cost of a model for data with this specification. The random state of torch is not changed."""
    with torch.random.fork_rng(devices=[]):
        layers = layer_table(model, *inputs_for(model, spec))
    return ModelCost(layers.multiply_adds if layers.complete else None, layers.parameters)


@dataclass
class Cost:
    """Measured cost. It is set when the measurement ends."""

    seconds: float = 0.0
    joules: float | None = None  # of all processors; None if the machine does not report it
    memory: int | None = None  # peak bytes above the memory of the process at the start


@contextlib.contextmanager
def measure_cost() -> Iterator[Cost]:
    """Measure the cost of this context."""
    cost, before, began = Cost(), reset_peak_memory(), time.perf_counter()
    meter = EnergyMeter()
    try:
        with meter:
            yield cost
    finally:
        cost.seconds, cost.joules = time.perf_counter() - began, meter.joules
        cost.memory = peak_memory_since(before)


RAPL = Path("/sys/class/powercap")
READ_INTERVAL = 30.0  # seconds between readings: the smallest counter, 65 kJ, lasts longer up to 2 kW

Counters = dict[str, tuple[int, int]]  # value and range of each zone, in microjoules


def read_counters(root: Path = RAPL) -> Counters:
    """Return the counters of all packages and their memory.

    Empty if the system has none or does not allow reading one of them, as most systems do except for root.
    """
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


class EnergyMeter:
    """Energy meter of packages and memory during the context. `joules` is None if the machine does not report it."""

    def __init__(self, root: Path = RAPL, every: float = READ_INTERVAL) -> None:
        self.joules: float | None = None
        self._root, self._every = root, every
        self._over = threading.Event()

    def __enter__(self) -> EnergyMeter:
        self._last, self._taken = read_counters(self._root), 0
        self._reader = threading.Thread(target=self._poll, daemon=True)
        if self._last:  # without counters no thread is needed
            self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        with contextlib.suppress(RuntimeError):  # the thread was never started
            self._reader.join()
        self._add()
        self.joules = self._taken / 1e6 if self._last else None

    def _poll(self) -> None:
        while not self._over.wait(self._every):
            self._add()

    def _add(self) -> None:
        now = read_counters(self._root)
        if now.keys() != self._last.keys():
            now = {}  # a zone disappeared, so the sum is unknown
        self._taken += sum((value - self._last[zone][0]) % ends for zone, (value, ends) in now.items())
        self._last = now


SELF = Path("/proc/self")


def reset_peak_memory() -> int | None:
    """Reset the peak memory and return the current bytes of the process. None if the system is not Linux.

    With a GPU, its memory is measured.
    """
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    release_memory()
    with contextlib.suppress(OSError):
        (SELF / "clear_refs").write_text("5")  # resets the peak
        return _status("VmRSS")
    return None


def peak_memory_since(before: int | None) -> int | None:
    """Return the peak memory since then, above `before`."""
    if before is None:
        return None
    most = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else _status("VmHWM")
    return None if most is None else max(0, most - before)


def release_memory() -> None:
    """Release unused memory, so that memory freed by an earlier training does not count."""
    gc.collect()
    with contextlib.suppress(AttributeError, OSError):  # glibc only
        ctypes.CDLL(None).malloc_trim(0)


def _status(key: str) -> int | None:
    """Return a size from the status of this process, in bytes."""
    try:
        found = re.search(rf"^{key}:\s*(\d+) kB$", (SELF / "status").read_text(), re.MULTILINE)
    except OSError:
        return None
    return 1024 * int(found[1]) if found else None
