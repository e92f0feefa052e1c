"""What something costs while it lasts: seconds, joules, memory."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

from .energy import Meter
from .peak import held, most_since


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
