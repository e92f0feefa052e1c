"""Files read side by side: reading and decoding leave Python's lock, so that threads are enough."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from .workers import cores

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
