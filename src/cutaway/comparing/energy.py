"""The energy that the processor has used, where the machine tells: Intel's and AMD's running average power limit."""

from __future__ import annotations

from pathlib import Path

RAPL = Path("/sys/class/powercap")
Joules = dict[Path, tuple[float, float]]  # of each package: what its counter says, and where the counter begins anew


def joules_used() -> Joules:
    """The counters of all packages; none where the system has none, or does not let them be read."""
    found: Joules = {}
    for package in RAPL.glob("intel-rapl:*"):
        if package.name.count(":") == 1:
            try:
                ends = float((package / "max_energy_range_uj").read_text()) / 1e6
                found[package] = float((package / "energy_uj").read_text()) / 1e6, ends
            except (OSError, ValueError):
                continue
    return found


def joules_since(before: Joules) -> float | None:
    """What all packages have used since; None where nothing tells it."""
    now = joules_used()
    if not before or before.keys() != now.keys():
        return None
    return sum((now[p][0] - then) % ends for p, (then, ends) in before.items())
