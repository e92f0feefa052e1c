"""Worker processes and threads that read examples, and the check that reads all of a split.

Reading and decoding release Python's lock, so threads are enough for files. Processes are bounded in number, stopped
with their parent, and reported when they die.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from ..core.errors import DataError, Problem


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


Item = TypeVar("Item")
Result = TypeVar("Result")


def in_threads(
    function: Callable[[Item], Result], items: Sequence[Item], workers: int | None = None, at_once: int = 256
) -> Iterator[Result]:
    """`function` of each item, in order, in so many threads (None: one for each processor; 0: in this one), which hold
    the results of `at_once` items at most."""
    parts = (items[start : start + at_once] for start in range(0, len(items), at_once))
    if workers == 0:
        for part in parts:
            yield from [function(item) for item in part]  # all at once: faster than in turn with what becomes of them
        return
    with ThreadPoolExecutor(workers or cores()) as threads:
        for part in parts:
            yield from threads.map(function, part)


def ahead(function: Callable[[Item], Result], items: Iterable[Item], held: int = 2) -> Iterator[Result]:
    """`function` of each item, in order, made in another thread while those before are used; at most `held` of them are
    made and not yet taken. With 0 each is made when it is asked for."""
    if held == 0:
        yield from map(function, items)
        return
    thread = ThreadPoolExecutor(1)
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(thread.submit(function, item))
            if len(waiting) > held:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        thread.shutdown(cancel_futures=True)


Progress = Callable[[int, int], None]  # how many are done, of how many


def unreadable(read: Callable[[int], Any], count: int, progress: Progress | None = None) -> list[Problem]:
    """Everything that `read` cannot read of parts 0 … count − 1, by name."""
    problems: list[Problem] = []
    for k in range(count):
        try:
            read(k)
        except DataError as error:
            problems += error.problems
        if progress is not None:
            progress(k + 1, count)
    return problems
