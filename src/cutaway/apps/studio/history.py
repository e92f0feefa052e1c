"""What is remembered of training without end, in memory that does not grow: snapshots of weights, and curves.

Both keep something every so many steps; when there is no room left, every second one goes, and from then on they keep
half as often. What is kept follows from the steps alone, never from the clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

SNAPSHOTS = 200
SNAPSHOT_BYTES = 256 * 2**20
POINTS = 300


class Snapshots:
    """Weights as they were, at most 200 of them and 256 MiB; of a model so large that not even four fit, none."""

    def __init__(self, size: int) -> None:
        """`size` is that of one snapshot, in bytes."""
        room = SNAPSHOT_BYTES // size
        self.most = min(SNAPSHOTS, room) if room >= 4 else 0
        self.every = 1
        self.rows: dict[int, Tensor] = {}

    def due(self, step: int) -> bool:
        """Whether the weights at this step are to be kept."""
        return self.most > 0 and step % self.every == 0

    def keep(self, step: int, copy: Callable[[], Tensor]) -> None:
        """Keep what `copy` gives, and make room for it."""
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
        """The step of the snapshot that is nearest, or None where there is none."""
        return min(self.rows, key=lambda s: (abs(s - step), s), default=None)

    @property
    def steps(self) -> list[int]:
        """The steps of which there are snapshots."""
        return sorted(self.rows)


class Curves:
    """Training and validation loss by step, at most 300 points of each. The training loss of a point is the mean since
    the point before it; validation has points of its own, where it was measured."""

    def __init__(self, step: int = 0) -> None:
        self.every, self.last = 1, step
        self.train: list[tuple[int, float | None]] = []
        self.val: list[tuple[int, float]] = []
        self._sum = self._counted = 0.0

    def add(self, loss: float, counted: float) -> None:
        """Take in the loss of a step, summed over what was counted in it."""
        self._sum += loss
        self._counted += counted

    def due(self, step: int) -> bool:
        """Whether a point of the training loss is to be made."""
        return step - self.last >= self.every

    def measured(self, step: int, val: float) -> None:
        """Make a point of a validation loss. Where there is no room left every second one goes, and the newest stays:
        the curve never ends before training does."""
        self.val = [point for point in self.val if point[0] < step] + [(step, val)]
        if len(self.val) > POINTS:
            self.val = self.val[::-2][::-1]

    def close(self, step: int) -> None:
        """Make a point of what was taken in."""
        self.train.append((step, self._sum / self._counted if self._counted else None))
        self.last, self._sum, self._counted = step, 0.0, 0.0
        if len(self.train) > POINTS:
            pairs = zip(self.train[::2], self.train[1::2])
            self.train = [_merged(a, b) for a, b in pairs] + self.train[len(self.train) // 2 * 2 :]
            self.every *= 2

    @property
    def latest(self) -> float | None:
        """The training loss of the last point."""
        return self.train[-1][1] if self.train else None

    def to_json(self) -> dict[str, list[Any]]:
        """The columns step, train and val; None where a step has but one of the two."""
        train, val = dict(self.train), dict(self.val)
        steps = sorted({*train, *val})
        return {
            "step": steps,
            "train": [digits(train.get(step)) for step in steps],
            "val": [digits(val.get(step)) for step in steps],
        }


def _merged(first: tuple[int, float | None], second: tuple[int, float | None]) -> tuple[int, float | None]:
    """Two neighbours as one point, where the second stands."""
    known = [x for x in (first[1], second[1]) if x is not None]
    return second[0], sum(known) / len(known) if known else None


def digits(x: float | None) -> float | None:
    """Five digits of a finite number; None for what is none."""
    return float(f"{x:.5g}") if x is not None and x - x == 0 else None
