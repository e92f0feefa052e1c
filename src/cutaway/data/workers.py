"""Worker processes: how many there can be, how they are stopped, and what becomes of one that dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

from ..errors import DataError


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def leave_interrupts_to_the_parent(worker: int) -> None:
    """Ctrl-C reaches every process; the parent alone decides what becomes of it."""
    del worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def results(made: Iterator[Any], what: str, way_out: str) -> Iterator[Any]:
    """What the workers of a DataLoader make, as it comes. Raises DataError where one of them died, a process that does
    `what`; the `way_out` follows what is likely."""
    try:
        yield from made
    except (RuntimeError, ConnectionError, EOFError) as error:
        if isinstance(error, RuntimeError) and "DataLoader worker" not in str(error):
            raise
        raise DataError(
            f"A process that {what} died: {error or 'it closed its connection'}.",
            fix=f"It ran out of memory, most likely: use fewer of them {way_out}",
        ) from error
    finally:
        del made  # which ends them, not whenever an error is forgotten
