"""Settings of comparisons, searches and plans, and specifications of GPUs.

Settings of training, data and model are given in addition: a search varies some of them, and a comparison uses the same
for all models. Peaks of GPUs are those of dense bfloat16 matrix products, which torchtitan uses for utilization
<https://github.com/pytorch/torchtitan/blob/main/torchtitan/tools/utils.py>. Memory, memory bandwidth and the links
between the GPUs of a machine are from data sheets. This module does not import PyTorch, because `--help` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..core.config import setting
from ..core.errors import IncompatibleSettingError, SettingError, UnknownName
from ..core.extras import require
from ..training.config import TrainSettings

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


PARALLELISM_SETTINGS = (
    "processes",
    "parallel",
    "tensor_parallel",
    "recompute",
)  # settings of training that define the parallelism of a step
GPU_SETTINGS = ("gpus", "gpus_per_node", "utilization", "peak", "gpu_memory", "network", "price")


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


def reject_invalid_hardware(settings: PlanSettings, typed: Mapping[str, object], shared: TrainSettings) -> None:
    """Raise SettingError for GPU settings without a GPU, and for numbers that do not divide."""
    idle = [key for key in GPU_SETTINGS if key in typed]
    if settings.gpu is None and idle:
        raise IncompatibleSettingError(
            f"Invalid {idle[0]}={typed[idle[0]]}: needs a kind of GPU, e.g. gpu=h100. Without gpu= the "
            "plan is for this machine; processes=N plans several processes on it."
        )
    if settings.gpu is None and shared.tensor_parallel > 1:
        raise IncompatibleSettingError(
            f"Invalid tensor_parallel={shared.tensor_parallel}: needs a kind of GPU, e.g. gpu=h100."
        )
    if settings.gpu is not None and shared.processes > 1:
        raise IncompatibleSettingError(
            f"Invalid processes={shared.processes}: only for this machine. For GPUs set gpus=N."
        )
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


SAMPLERS = ("tpe", "random", "grid", "nsga2", "evolution", "reinforce", "darts")
UNPRUNED = ("nsga2", "reinforce")  # samplers that need the final value of each trial
PRUNERS = ("median", "hyperband", "none")
SAMPLER_SETTINGS = {
    "population": ("evolution", "nsga2"),
    "tournament": ("evolution",),
    "reinforce_lr": ("reinforce",),
    "reinforce_decay": ("reinforce",),
    "darts_epochs": ("darts",),
    "darts_lr": ("darts",),
    "darts_order": ("darts",),
}


@dataclass(frozen=True)
class SearchSettings:
    """Settings of a search: the sampler, the pruner and the limits."""

    trials: int = setting(
        20, "total number of trainings over all processes; trials rejected before training do not count", low=1
    )
    sampler: str = setting(
        "tpe",
        "sampler: tpe models previous trials, random samples independently, grid runs all combinations of listed "
        "values, nsga2 searches the Pareto front of metric and MACs, evolution mutates one setting of a good trial, "
        "reinforce trains an LSTM that draws listed values, darts learns the cells of cellnet by gradient",
        choices=SAMPLERS,
    )
    pruner: str = setting(
        "median",
        "early stopping of trials by the validation metric of each epoch: median stops those that are worse than the "
        "median at that epoch, hyperband uses its brackets",
        choices=PRUNERS,
    )
    max_macs: int | None = setting(
        None, "maximum multiply-adds per example; larger models are rejected before training", low=1
    )
    max_parameters: int | None = setting(
        None, "maximum number of parameters; larger models are rejected before training", low=1
    )
    population: int = setting(20, "evolution and nsga2: population size", low=2)
    tournament: int = setting(
        5, "evolution: tournament size, random trials of the population whose best is mutated", low=1
    )
    reinforce_lr: float = setting(0.01, "reinforce: learning rate of the controller", low=0.0)
    reinforce_decay: float = setting(
        0.9, "reinforce: decay of the baseline, the moving average of previous rewards", low=0.0, high=1.0
    )
    darts_epochs: int = setting(20, "darts: training epochs of the supernet", low=1)
    darts_lr: float = setting(3e-4, "darts: learning rate of the architecture weights", low=0.0)
    darts_order: int = setting(
        1, "darts: 1 for the first-order approximation, 2 for the gradient after one virtual step", low=1, high=2
    )


def reject_unused_search_settings(settings: SearchSettings, typed: dict[str, object]) -> None:
    """Raise SettingError for a setting that the sampler does not use or support."""
    for key, samplers in SAMPLER_SETTINGS.items():
        if key in typed and settings.sampler not in samplers:
            raise IncompatibleSettingError(
                f"Invalid {key}={typed[key]}: only for sampler={' or '.join(samplers)}, and sampler is "
                f"{settings.sampler}. Leave it out."
            )
    if settings.sampler in UNPRUNED and "pruner" in typed and settings.pruner != "none":
        two = settings.sampler == "nsga2"
        why = "the two metrics of sampler=nsga2" if two else "sampler=reinforce, which needs each trial's final metric"
        raise IncompatibleSettingError(f"Invalid pruner={settings.pruner}: not supported with {why}. Leave it out.")


def require_optuna() -> None:
    """Raise SettingError if Optuna is not installed."""
    require("optuna", "A search")


@dataclass(frozen=True)
class CompareSettings:
    """Settings of a comparison."""

    seeds: int = setting(
        3, "trainings of each model, with seeds 0, 1, 2, …; 1 does not measure the variance between trainings", low=1
    )
    trials: int = setting(
        0,
        "hyperparameter trials for each model before the comparison (lr, weight decay, dropout), on the validation "
        "split",
        low=0,
    )
    macs: float | None = setting(
        None, "budget: multiply-adds of all forward passes of a training, converted to a number of steps", low=1.0
    )
    jobs: int | None = setting(
        None, "parallel trainings; auto: 2 if memory and processors allow it. Scores do not depend on it", low=1
    )
    baselines: bool = setting(True, "include baseline models of scikit-learn")
