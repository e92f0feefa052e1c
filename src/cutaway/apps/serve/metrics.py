"""Server metrics in the text format of Prometheus (version 0.0.4).

<https://prometheus.io/docs/instrumenting/exposition_formats/>
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Histogram:
    """A histogram: the number of values up to each bound, and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        """Add one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str, labels: str = "") -> list[str]:
        """Return the lines of the histogram; `labels` is like path="/predict", with a trailing comma."""
        total, found = 0, []
        for bound, count in zip((*self.bounds, math.inf), self.counts):
            total += count
            found.append(f'{name}_bucket{{{labels}le="{"+Inf" if math.isinf(bound) else f"{bound:g}"}"}} {total}')
        own = f"{{{labels.rstrip(',')}}}" if labels else ""
        return [*found, f"{name}_sum{own} {self.sum:.9g}", f"{name}_count{own} {total}"]


class Metrics:
    """All metrics of one server."""

    def __init__(self) -> None:
        self.answers: defaultdict[tuple[str, int], int] = defaultdict(int)
        self.seconds: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(SECONDS))
        self.batches = Histogram(SIZES)  # of examples
        self.examples = self.tokens = 0
        self.gauges: dict[str, tuple[str, Callable[[], float]]] = {}

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Count an answered request. `path` must be one of the server's paths, so that the number of labels stays
        small."""
        self.answers[path, status] += 1
        self.seconds[path].add(seconds)

    def text(self) -> str:
        """Return all metrics as text for Prometheus."""
        lines = []

        def family(name: str, kind: str, words: str, samples: Sequence[str]) -> None:
            lines.extend([f"# HELP {name} {words}", f"# TYPE {name} {kind}", *samples])

        name = "cutaway_requests_total"
        family(name, "counter", "Requests that were answered.", [
            f'{name}{{path="{path}",status="{status}"}} {count}'
            for (path, status), count in sorted(self.answers.items())
        ])  # fmt: skip
        name = "cutaway_request_seconds"
        family(name, "histogram", "Time from a request's head to the end of its answer.", [
            line for path, own in sorted(self.seconds.items()) for line in own.lines(name, f'path="{path}",')
        ])  # fmt: skip
        name = "cutaway_batch_examples"
        family(name, "histogram", "Examples that the model was given at once.", self.batches.lines(name))
        for name, words, count in (
            ("cutaway_examples_total", "Examples that were predicted.", self.examples),
            ("cutaway_tokens_total", "Tokens that were written.", self.tokens),
        ):
            family(name, "counter", words, [f"{name} {count}"])
        for name, (words, value) in self.gauges.items():
            family(name, "gauge", words, [f"{name} {value():.15g}"])
        return "\n".join([*lines, ""])


def resident_memory(process: int | str | None) -> float:
    """Return the resident memory of a process in bytes, by its pid or "self"; NaN if the system does not report it."""
    with suppress(OSError, ValueError, IndexError):
        import resource

        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize()
    return math.nan
