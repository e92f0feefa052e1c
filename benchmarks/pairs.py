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


def race(name: str, ours: Callable[[], object], peer: Callable[[], object], runs: int = 11, warm_up: int = 2) -> Pair:
    """Run ours, peer, ours, peer, …; the order within a pair changes from pair to pair."""
    for _ in range(warm_up):
        ours()
        peer()
    times: list[tuple[float, float]] = []
    for i in range(runs):
        if i % 2:
            b, a = seconds(peer), seconds(ours)
        else:
            a, b = seconds(ours), seconds(peer)
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


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes, with the garbage collector out of the way."""
    gc.collect()
    gc.disable()
    began = time.perf_counter()
    try:
        work()
        return time.perf_counter() - began
    finally:
        gc.enable()
