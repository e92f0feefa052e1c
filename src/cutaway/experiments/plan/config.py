"""Settings of a plan. Settings of training, data and model describe the planned training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...core.config import setting
from ...core.errors import SettingError
from ...training.config import TrainSettings

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
        None, "kind of GPU: h100, a100, h200, b200, mi300x, …; without it the plan is for this machine, and measured"
    )
    gpus: int = setting(1, "GPUs in all, over all machines", low=1, high=100_000)
    gpus_per_node: int = setting(8, "GPUs of one machine (node), whose links are faster than the network", low=1)
    utilization: float = setting(
        0.4, "model FLOPs utilization (MFU): fraction of the GPU's peak that products reach", low=0.001, high=1.0
    )
    peak: float | None = setting(None, "TFLOP/s of products in bfloat16; auto is the GPU's", low=0.001)
    gpu_memory: float | None = setting(None, "GiB of memory of each GPU; auto is the GPU's", low=0.001)
    network: float = setting(50.0, "GB/s between machines for each GPU, each way", low=0.001)
    price: float | None = setting(None, "price of one GPU for an hour, in any money", low=0.0)
    dry_run: bool = setting(False, "list what each device holds of each weight and what a step sends, by a dry run")


def reject_plan(settings: PlanSettings, typed: Mapping[str, object], shared: TrainSettings) -> None:
    """Raise SettingError for GPU settings without a GPU, and for numbers that do not divide."""
    idle = [key for key in ELSEWHERE if key in typed]
    if settings.gpu is None and idle:
        raise SettingError(
            f"{idle[0]}={typed[idle[0]]} is said of GPUs: say which they are too, as in gpu=h100. Without gpu= the "
            "plan is for this machine; processes=N plans for several processes here."
        )
    if settings.gpu is None and shared.tensor_parallel > 1:
        raise SettingError(f"tensor_parallel={shared.tensor_parallel} is planned for GPUs: say which, as gpu=h100.")
    if settings.gpu is not None and shared.processes > 1:
        raise SettingError(f"processes={shared.processes} are of this machine: of GPUs say how many, as gpus=N.")
    gpus, node = settings.gpus, min(settings.gpus, settings.gpus_per_node)
    if gpus % node:
        raise SettingError(
            f"gpus={gpus} are no whole machines of {node}: give a multiple, or gpus_per_node=N, which divides {gpus}."
        )
    if node % shared.tensor_parallel:
        raise SettingError(
            f"tensor_parallel={shared.tensor_parallel} does not divide the {node} GPUs of a machine, within which "
            "matrices are shared: give a divisor."
        )
