"""Worker processes and threads that read examples, and a check that reads every example.

Reading and decoding release the GIL, so threads are enough for files. Processes are limited in number, stopped with
their parent, and reported when they die.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from ..core.errors import DataError, Problem


def num_cpus() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ignore_interrupts(worker: int) -> None:
    """Ignore Ctrl-C in a worker process, so that only the parent handles it."""
    del worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def iterate_workers(made: Iterator[Any], what: str, way_out: str) -> Iterator[Any]:
    """Yield the results of a DataLoader's workers.

    Raises DataError if a worker died. `what` describes the process, and `way_out` follows the likely cause.
    """
    try:
        yield from made
    except (RuntimeError, ConnectionError, EOFError) as error:
        if isinstance(error, RuntimeError) and "DataLoader worker" not in str(error):
            raise
        raise DataError(
            f"A process that {what} died: {error or 'it closed its connection'}.",
            fix=f"It ran out of memory, most likely: use fewer of them {way_out}",
            code="CUT-502",
        ) from error
    finally:
        del made  # ends the workers now, not when the exception is garbage-collected


Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_threads(
    function: Callable[[Item], Result], items: Sequence[Item], workers: int | None = None, at_once: int = 256
) -> Iterator[Result]:
    """Apply `function` to each item in threads and yield the results in order.

    `workers` is the number of threads: None for one per processor, 0 for none. At most `at_once` results are held.
    """
    parts = (items[start : start + at_once] for start in range(0, len(items), at_once))
    if workers == 0:
        for part in parts:
            yield from [function(item) for item in part]  # as a whole part: faster than alternating with the consumer
        return
    with ThreadPoolExecutor(workers or num_cpus()) as threads:
        for part in parts:
            yield from threads.map(function, part)


def prefetch(function: Callable[[Item], Result], items: Iterable[Item], held: int = 2) -> Iterator[Result]:
    """Apply `function` to each item in a background thread and yield the results in order.

    At most `held` results are computed ahead; with 0, each is computed when requested.
    """
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


Progress = Callable[[int, int], None]  # number done, total


def find_unreadable(read: Callable[[int], Any], count: int, progress: Progress | None = None) -> list[Problem]:
    """Return the problems of all parts 0 … count − 1 that `read` cannot read."""
    problems: list[Problem] = []
    for k in range(count):
        try:
            read(k)
        except DataError as error:
            problems += error.problems
        if progress is not None:
            progress(k + 1, count)
    return problems
