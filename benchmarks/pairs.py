"""Timing two things side by side: in turn, in one run, so that a machine whose speed drifts slows both alike."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Pair:
    """One row: ours beside a peer. `ratio` is the median of the ratios of neighbouring runs."""

    name: str
    ours: float  # median seconds
    peer: float
    ratio: float  # ours / peer
    low: float  # quartiles of the ratios
    high: float
    runs: int


def race(
    name: str,
    ours: Callable[[], object],
    peer: Callable[[], object],
    runs: int = 11,
    warm_up: int = 2,
    clock: Callable[[], float] = time.perf_counter,
) -> Pair:
    """Run ours, peer, ours, peer, …; the order within a pair changes from pair to pair. The clock may count the time of
    this process alone, where others compute beside it."""
    for _ in range(warm_up):
        ours()
        peer()
    times: list[tuple[float, float]] = []
    for i in range(runs):
        if i % 2:
            b, a = seconds(peer, clock), seconds(ours, clock)
        else:
            a, b = seconds(ours, clock), seconds(peer, clock)
        times.append((a, b))
    ratios = sorted(a / b for a, b in times)
    low, _, high = statistics.quantiles(ratios, n=4)
    return Pair(
        name,
        statistics.median(a for a, _ in times),
        statistics.median(b for _, b in times),
        statistics.median(ratios),
        low,
        high,
        runs,
    )


def seconds(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """How long one call takes, with the garbage collector out of the way."""
    gc.collect()
    gc.disable()
    began = clock()
    try:
        work()
        return clock() - began
    finally:
        gc.enable()
