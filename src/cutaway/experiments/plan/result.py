"""A plan of a training: what each strategy takes of memory, time and money, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ...distributed.dry_run import DryRun
from ...training.memory.strategies import Memory


@dataclass(frozen=True)
class Strategy:
    """What training takes by one strategy. Times are None where nothing says how fast the hardware is."""

    name: str
    devices: int
    examples: int  # of a step, of each device
    memory: Memory
    room: float | None  # bytes that may be taken of each device; None where it does not say
    seconds_per_step: float | None
    bound: str  # what the step waits for: computing, memory, kernels, communication
    seconds_per_epoch: float | None
    seconds: float | None  # to the end of the training that is asked for
    cost: float | None

    @property
    def fits(self) -> bool:
        """Whether it fits into the memory of each device."""
        return self.room is None or self.memory.total <= self.room


@dataclass(frozen=True)
class Plan:
    """What a training would take, by each strategy that its devices can have."""

    model: str
    data: str
    device: str  # the GPU, or this machine
    parameters: int
    batch: int  # examples of a step, of all devices
    tokens: int  # places of that step; examples, where there are no sequences
    steps_per_epoch: int
    steps: int
    epochs: int
    flops: float  # of a step, of all devices
    strategies: tuple[Strategy, ...]
    assumed: tuple[str, ...]
    notes: tuple[str, ...]
    dry_runs: Mapping[str, DryRun] = field(default_factory=dict)  # by strategy, where they are asked for

    @property
    def best(self) -> Strategy | None:
        """The fastest that fits; of equals the one with fewest devices, and least memory. None where none fits."""
        fitting = [s for s in self.strategies if s.fits]
        return min(fitting, key=lambda s: (s.seconds or 0.0, s.devices, s.memory.total), default=None)

    def __getitem__(self, name: str) -> Strategy:
        """The strategy of that name."""
        return {s.name: s for s in self.strategies}[name]

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON values: bytes, seconds, and money in the price's own."""
        document = asdict(self)
        for strategy, found in zip(self.strategies, document["strategies"]):
            found["memory"]["total"] = strategy.memory.total
            found["fits"] = strategy.fits
        for name, run in self.dry_runs.items():
            for share, found in zip(run.shares, document["dry_runs"][name]["shares"]):
                found["total"] = share.bytes
        return {**document, "best": self.best and self.best.name}
