"""Plan of a training: memory, time and cost of each strategy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ...distributed.dry_run import DryRun
from ...training.memory.strategies import ProcessMemory


@dataclass(frozen=True)
class Strategy:
    """Memory, time and cost of one strategy. Times are None if the speed of the hardware is unknown."""

    name: str
    devices: int
    examples: int  # of a step on each device
    memory: ProcessMemory
    room: float | None  # usable bytes of each device; None if unknown
    seconds_per_step: float | None
    bound: str  # bottleneck of the step: computing, memory, kernels or communication
    seconds_per_epoch: float | None
    seconds: float | None  # of the whole training
    cost: float | None

    @property
    def fits(self) -> bool:
        """Return whether it fits into the memory of each device."""
        return self.room is None or self.memory.total <= self.room


@dataclass(frozen=True)
class Plan:
    """Plan of a training, with each possible strategy."""

    model: str
    data: str
    device: str  # the GPU or this machine
    parameters: int
    batch: int  # examples of a step over all devices
    tokens: int  # tokens of that step; examples, if there are no sequences
    steps_per_epoch: int
    steps: int
    epochs: int
    flops: float  # of a step over all devices
    strategies: tuple[Strategy, ...]
    assumed: tuple[str, ...]
    notes: tuple[str, ...]
    dry_runs: Mapping[str, DryRun] = field(default_factory=dict)  # by strategy, if requested

    @property
    def best(self) -> Strategy | None:
        """Return the fastest strategy that fits, then that with the fewest devices and the least memory.

        None if none fits.
        """
        fitting = [s for s in self.strategies if s.fits]
        return min(fitting, key=lambda s: (s.seconds or 0.0, s.devices, s.memory.total), default=None)

    def __getitem__(self, name: str) -> Strategy:
        """Return the strategy of that name."""
        return {s.name: s for s in self.strategies}[name]

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values in bytes, seconds and the currency of the price."""
        document = asdict(self)
        for strategy, found in zip(self.strategies, document["strategies"]):
            found["memory"]["total"] = strategy.memory.total
            found["fits"] = strategy.fits
        for name, run in self.dry_runs.items():
            for share, found in zip(run.shares, document["dry_runs"][name]["shares"]):
                found["total"] = share.bytes
        return {**document, "best": self.best and self.best.name}
