"""Timing of several calls in turns, so that a machine that slows down affects all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

SECONDS, TURNS = 2.0, 50  # limits for all calls together


def time_calls(calls: Sequence[Callable[[], object]]) -> list[float]:
    """Return the median milliseconds of each call."""
    for call in calls:
        call()  # warm-up
    spent: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + SECONDS
    while calls and (len(spent[0]) < 3 or (len(spent[0]) < TURNS and time.perf_counter() < end)):
        for call, times in zip(calls, spent):
            began = time.perf_counter()
            call()
            times.append(1000 * (time.perf_counter() - began))
    return [statistics.median(times) for times in spent]
