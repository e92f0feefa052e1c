"""Algorithms of convolution by image size, kernel, batch and channels: python -m benchmarks convolution.

The methods of `cutaway.nn.textbook.convolution` and PyTorch's own convolution, forward, with as many output as input
channels and zero padding that keeps the size. One thread, in processor time, so that other processes count less. Each
round runs every method once, so that a machine whose speed drifts slows all alike; times are medians. Of the matrix
product the matrix is built beforehand. What would take more than `MOST_DIRECT` or `MOST_FUSED` multiply-adds or a
matrix of more than `MOST_BYTES` is left out.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from cutaway.nn.textbook.convolution import correlate, correlation_matrix

from .pages import replace_section
from .pairs import seconds

PAGE = Path("docs/convolution.md")
BEGIN, END = "<!-- measured by python -m benchmarks convolution -->\n", "<!-- end -->\n"
SIZES = ((16, 3), (16, 9), (64, 3), (64, 9), (64, 21))  # pixels a side, kernel a side
BATCHES, CHANNELS = (1, 16), (1, 8, 64)
MOST_DIRECT, MOST_FUSED, MOST_BYTES = 3e10, 2e11, 128 * 2**20
ROUNDS, BUDGET = 9, 3.0  # at most so many rounds, and so many seconds of them
NAMES = {"direct": "direct sum", "toeplitz": "matrix", "fft": "FFT", "fused": "PyTorch"}


@dataclass(frozen=True)
class Case:
    """One row: n×n pixels, a k×k kernel, N images, C channels in and out."""

    side: int
    kernel: int
    batch: int
    channels: int

    @property
    def work(self) -> float:
        """Multiply-adds of the direct sum."""
        return float(self.batch * self.channels**2 * self.side**2 * self.kernel**2)

    @property
    def matrix_bytes(self) -> float:
        """Size of the matrix in float32."""
        return 4.0 * (self.channels * self.side**2) ** 2

    def methods(self) -> dict[str, Callable[[], Tensor]]:
        """The methods that are feasible, each a function without arguments."""
        g = torch.Generator().manual_seed(0)
        x = torch.randn(self.batch, self.channels, self.side, self.side, generator=g)
        w = torch.randn(self.channels, self.channels, self.kernel, self.kernel, generator=g)
        found: dict[str, Callable[[], Tensor]] = {"fft": lambda: correlate(x, w, padding="same", method="fft")}
        if self.work <= MOST_DIRECT:
            found["direct"] = lambda: correlate(x, w, padding="same")
        if self.work <= MOST_FUSED:
            found["fused"] = lambda: correlate(x, w, padding="same", method="fused")
        if self.matrix_bytes <= MOST_BYTES:
            matrix = correlation_matrix(w, (self.side, self.side), padding="same").T.contiguous()
            found["toeplitz"] = lambda: (x.flatten(1) @ matrix).view_as(x)
        return found


def cases() -> Iterator[Case]:
    """All rows in order."""
    for side, kernel in SIZES:
        for batch in BATCHES:
            yield from (Case(side, kernel, batch, channels) for channels in CHANNELS)


@torch.inference_mode()
def measure(case: Case, rounds: int = ROUNDS, budget: float = BUDGET) -> dict[str, float]:
    """Median seconds of each method. Raises AssertionError if two methods disagree."""
    methods = case.methods()
    results = {name: run() for name, run in methods.items()}  # the first calls are not timed
    scale = results["fft"].abs().max()
    for name, y in results.items():
        assert (y - results["fft"]).abs().max() <= 1e-4 * scale, f"{name} differs for {case}"
    times: dict[str, list[float]] = {name: [] for name in methods}
    began = time.perf_counter()
    for k in range(rounds):
        names = [*methods][:: 1 if k % 2 == 0 else -1]
        for name in names:
            times[name].append(seconds(methods[name], time.process_time))
        if time.perf_counter() - began > budget:
            break
    return {name: statistics.median(all_) for name, all_ in times.items()}


def table(found: Sequence[tuple[Case, dict[str, float]]]) -> list[str]:
    """The lines of the table."""
    heads = ["image", "kernel", "images", "channels", *(f"{NAMES[name]}, ms" for name in NAMES), "FFT / PyTorch"]
    lines = [f"| {' | '.join(heads)} |", "| --- | --- |" + " ---: |" * (len(heads) - 2)]
    for case, times in found:
        best = min((name for name in times if name != "fused"), key=lambda name: times[name])
        cells = [
            "–" if name not in times else f"{'**' * (name == best)}{1000 * times[name]:.3g}{'**' * (name == best)}"
            for name in NAMES
        ]
        ratio = f"{times['fft'] / times['fused']:.2f}" if "fused" in times else "–"
        size, kernel = f"{case.side}×{case.side}", f"{case.kernel}×{case.kernel}"
        lines.append(f"| {size} | {kernel} | {case.batch} | {case.channels} | {' | '.join(cells)} | {ratio} |")
    return lines


def findings(found: Sequence[tuple[Case, dict[str, float]]]) -> str:
    """Sentences on whether the FFT gains from channels: its time over the peer's, at the most and the fewest channels.

    A series has one size, kernel and batch. The last factor counts as a gain below 1 / 1.1 and as a loss above 1.1.
    """
    words = []
    for peer in ("direct", "fused"):
        gains, losses, level = [], [], []
        for side, kernel in SIZES:
            for batch in BATCHES:
                ratios = [
                    times["fft"] / times[peer]
                    for case, times in found
                    if (case.side, case.kernel, case.batch) == (side, kernel, batch) and peer in times
                ]
                if len(ratios) < 2:
                    continue
                change = ratios[-1] / ratios[0]
                place = gains if change < 1 / 1.1 else losses if change > 1.1 else level
                place.append(f"{side}×{side} with {kernel}×{kernel}, {batch} image{'s' * (batch > 1)}")
        total = len(gains) + len(losses) + len(level)
        rest = f", unchanged within 10 % in {len(level)}" if level else ""
        words.append(
            f"Against {'the direct sum' if peer == 'direct' else 'PyTorch’s convolution'}, more channels made the FFT "
            f"relatively faster in {len(gains)} of {total} series and relatively slower in {len(losses)}{rest}."
        )
        wins = [case for case, times in found if peer in times and times["fft"] < times[peer]]
        many = [case for case in wins if case.channels == max(CHANNELS)]
        counted = sum(peer in times for _, times in found)
        words.append(
            f"It was faster in {len(wins)} of {counted} rows, {len(many)} of them with {max(CHANNELS)} channels."
        )
    return " ".join(words)


def main() -> int:
    """Measure all cases, print the table and write it to the page."""
    from .__main__ import machine  # which imports this module

    torch.set_num_threads(1)
    found = []
    for case in cases():
        found.append((case, measure(case)))
        print(table(found)[-1], flush=True)
    lines = [machine(), "", *table(found), "", findings(found)]
    print(lines[-1])
    replace_section(PAGE, BEGIN, END, lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
