"""The calendar as what is known in advance: hour, weekday and month of each step, each as a point on a circle.

sin(2π u) and cos(2π u), u the part of the day, the week or the year that has passed: 23:00 stands beside midnight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from .times import DAY, Clock

Times = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]


def _month(times: Times) -> Values:
    return times.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64) % 12 / 12


PARTS: dict[str, Callable[[Times], Values]] = {  # of moments in microseconds since 1970: u, from 0 to below 1
    "hour": lambda times: times % DAY / DAY,
    "weekday": lambda times: (times // DAY + 3) % 7 / 7,  # 1970 began on a Thursday; Monday is 0
    "month": _month,
}


def names_of(parts: Sequence[str]) -> tuple[str, ...]:
    """The variables that parts of the calendar become: hour (sin), hour (cos), …"""
    return tuple(f"{part} ({wave})" for part in parts for wave in ("sin", "cos"))


def circles(clock: Clock, steps: npt.NDArray[np.int64], parts: Sequence[str]) -> Values:
    """The variables of `names_of(parts)` at these steps after the clock's first, (n, 2 · parts)."""
    times = np.array([clock.moment(step) for step in steps.tolist()], dtype=np.int64)
    waves = [wave(2 * np.pi * PARTS[part](times)) for part in parts for wave in (np.sin, np.cos)]
    return np.stack(waves, axis=1) if waves else np.empty((len(times), 0))
