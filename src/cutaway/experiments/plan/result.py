"""Plan of a training: its settings, specifications of GPUs, and the memory, time and cost of each strategy.

Peaks are those of dense bfloat16 matrix products, which torchtitan uses for utilization
<https://github.com/pytorch/torchtitan/blob/main/torchtitan/tools/utils.py>. Memory, memory bandwidth and the links
between the GPUs of a machine are from data sheets. This module does not import PyTorch, because `--help` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ...core.config import setting
from ...core.errors import SettingError, UnknownName
from ...training.config import TrainSettings

if TYPE_CHECKING:
    from ...distributed.dry_run import DryRun
    from ...training.memory import ProcessMemory


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


GIB = 2**30


@dataclass(frozen=True)
class Gpu:
    """Specification of one GPU."""

    name: str
    peak: float  # FLOP/s of matrix products in bfloat16
    memory: float  # bytes
    bandwidth: float  # bytes/s of its memory
    link: float  # bytes/s to the other GPUs of its machine, each way


GPUS = {
    "a100": Gpu("A100 80 GB", 312e12, 80 * GIB, 2.04e12, 300e9),
    "a100-40gb": Gpu("A100 40 GB", 312e12, 40 * GIB, 1.56e12, 300e9),
    "a6000": Gpu("RTX A6000", 154.85e12, 48 * GIB, 0.77e12, 32e9),
    "h100": Gpu("H100 SXM", 989e12, 80 * GIB, 3.35e12, 450e9),
    "h100-nvl": Gpu("H100 NVL", 835e12, 94 * GIB, 3.9e12, 300e9),
    "h100-pcie": Gpu("H100 PCIe", 756e12, 80 * GIB, 2.0e12, 64e9),
    "h200": Gpu("H200", 989e12, 141 * GIB, 4.8e12, 450e9),
    "h20": Gpu("H20", 148e12, 96 * GIB, 4.0e12, 450e9),
    "b200": Gpu("B200", 2.25e15, 180 * GIB, 7.7e12, 900e9),
    "gb200": Gpu("GB200", 2.5e15, 186 * GIB, 8.0e12, 900e9),
    "mi250x": Gpu("MI250X, one of its two dies", 191.5e12, 64 * GIB, 1.6e12, 50e9),
    "mi300x": Gpu("MI300X", 1.3e15, 192 * GIB, 5.3e12, 448e9),
    "mi355x": Gpu("MI355X", 2.5e15, 288 * GIB, 8.0e12, 538e9),
}


def find_gpu(name: str) -> Gpu:
    """Return the GPU of that name, in any spelling. Raises UnknownName with similar names."""
    key = name.lower().replace("_", "-").replace(" ", "-")
    if key not in GPUS:
        raise UnknownName(
            "GPU", name, GPUS, "For another GPU, choose the nearest and set peak=TFLOP/s and gpu_memory=GIB."
        )
    return GPUS[key]


SHARED = (
    "processes",
    "parallel",
    "tensor_parallel",
    "recompute",
)  # settings of training that define the parallelism of a step
ELSEWHERE = ("gpus", "gpus_per_node", "utilization", "peak", "gpu_memory", "network", "price")


@dataclass(frozen=True)
class PlanSettings:
    """Hardware of a plan and assumptions about it."""

    gpu: str | None = setting(
        None, "kind of GPU: h100, a100, h200, b200, mi300x, …; default: this machine, with a measured step"
    )
    gpus: int = setting(1, "total number of GPUs, over all machines", low=1, high=100_000)
    gpus_per_node: int = setting(8, "GPUs per machine (node)", low=1)
    utilization: float = setting(
        0.4, "model FLOPs utilization (MFU): fraction of the GPU's peak that is reached", low=0.001, high=1.0
    )
    peak: float | None = setting(None, "peak TFLOP/s in bfloat16; auto: that of the GPU", low=0.001)
    gpu_memory: float | None = setting(None, "GiB of memory of each GPU; auto: that of the GPU", low=0.001)
    network: float = setting(50.0, "GB/s between machines per GPU, each way", low=0.001)
    price: float | None = setting(None, "price of one GPU per hour, in any currency", low=0.0)
    dry_run: bool = setting(
        False, "list the shard of each weight on each device and the communication of a step, by a dry run"
    )


def reject_plan(settings: PlanSettings, typed: Mapping[str, object], shared: TrainSettings) -> None:
    """Raise SettingError for GPU settings without a GPU, and for numbers that do not divide."""
    idle = [key for key in ELSEWHERE if key in typed]
    if settings.gpu is None and idle:
        raise SettingError(
            f"Invalid {idle[0]}={typed[idle[0]]}: needs a kind of GPU, e.g. gpu=h100. Without gpu= the "
            "plan is for this machine; processes=N plans several processes on it."
        )
    if settings.gpu is None and shared.tensor_parallel > 1:
        raise SettingError(f"Invalid tensor_parallel={shared.tensor_parallel}: needs a kind of GPU, e.g. gpu=h100.")
    if settings.gpu is not None and shared.processes > 1:
        raise SettingError(f"Invalid processes={shared.processes}: only for this machine. For GPUs set gpus=N.")
    gpus, node = settings.gpus, min(settings.gpus, settings.gpus_per_node)
    if gpus % node:
        raise SettingError(
            f"Invalid gpus={gpus}: must be a multiple of gpus_per_node={node}. Set gpus_per_node to a divisor of "
            f"{gpus}."
        )
    if node % shared.tensor_parallel:
        raise SettingError(
            f"Invalid tensor_parallel={shared.tensor_parallel}: must be a divisor of the {node} GPUs of a machine."
        )
