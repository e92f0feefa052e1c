"""Training history in bounded memory: snapshots of weights, and curves.

Both record at a fixed interval of steps. When they are full, every second entry is dropped and the interval doubles.
Which entries are kept depends only on steps, never on time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

SNAPSHOTS = 200
SNAPSHOT_BYTES = 256 * 2**20
POINTS = 300


class Snapshots:
    """Snapshots of weights: at most 200 and 256 MiB; none for a model so large that not even four fit."""

    def __init__(self, size: int) -> None:
        """Set up the store; `size` is the size of one snapshot in bytes."""
        room = SNAPSHOT_BYTES // size
        self.most = min(SNAPSHOTS, room) if room >= 4 else 0
        self.every = 1
        self.rows: dict[int, Tensor] = {}

    def due(self, step: int) -> bool:
        """Return whether to keep the weights at this step."""
        return self.most > 0 and step % self.every == 0

    def keep(self, step: int, copy: Callable[[], Tensor]) -> None:
        """Keep the result of `copy`, and drop old snapshots if necessary."""
        if not self.most:
            return
        while step not in self.rows and len(self.rows) >= self.most:
            self.every *= 2
            first = min(self.rows)
            self.rows = {s: row for s, row in self.rows.items() if s % self.every == 0 or s == first}
            if step % self.every:
                return
        self.rows[step] = copy()

    def nearest(self, step: int) -> int | None:
        """Return the step of the nearest snapshot, or None."""
        return min(self.rows, key=lambda s: (abs(s - step), s), default=None)

    @property
    def steps(self) -> list[int]:
        """Steps of the snapshots, in order."""
        return sorted(self.rows)


class Curves:
    """Training and validation loss by step, at most 300 points each.

    A point of the training loss is the mean since the point before. Validation has its own points, at the steps where
    it was measured.
    """

    def __init__(self, step: int = 0) -> None:
        self.every, self.last = 1, step
        self.train: list[tuple[int, float | None]] = []
        self.val: list[tuple[int, float]] = []
        self._sum = self._counted = 0.0

    def add(self, loss: float, counted: float) -> None:
        """Add the loss of a step, as a sum over `counted` elements."""
        self._sum += loss
        self._counted += counted

    def due(self, step: int) -> bool:
        """Return whether a point of the training loss is due."""
        return step - self.last >= self.every

    def measured(self, step: int, val: float) -> None:
        """Add a point of the validation loss. When the curve is full, every second point is dropped, but never the
        newest."""
        self.val = [point for point in self.val if point[0] < step] + [(step, val)]
        if len(self.val) > POINTS:
            self.val = self.val[::-2][::-1]

    def close(self, step: int) -> None:
        """Add a point with the mean training loss since the last one."""
        self.train.append((step, self._sum / self._counted if self._counted else None))
        self.last, self._sum, self._counted = step, 0.0, 0.0
        if len(self.train) > POINTS:
            pairs = zip(self.train[::2], self.train[1::2])
            self.train = [_merged(a, b) for a, b in pairs] + self.train[len(self.train) // 2 * 2 :]
            self.every *= 2

    @property
    def latest(self) -> float | None:
        """Training loss of the last point, or None."""
        return self.train[-1][1] if self.train else None

    def to_json(self) -> dict[str, list[Any]]:
        """Return the columns step, train and val, with None where a step has only one of the two."""
        train, val = dict(self.train), dict(self.val)
        steps = sorted({*train, *val})
        return {
            "step": steps,
            "train": [round_digits(train.get(step)) for step in steps],
            "val": [round_digits(val.get(step)) for step in steps],
        }


def _merged(first: tuple[int, float | None], second: tuple[int, float | None]) -> tuple[int, float | None]:
    """Merge two neighbouring points into one at the second step."""
    known = [x for x in (first[1], second[1]) if x is not None]
    return second[0], sum(known) / len(known) if known else None


def round_digits(x: float | None) -> float | None:
    """Round a finite number to five digits; return None for other values."""
    return float(f"{x:.5g}") if x is not None and x - x == 0 else None
