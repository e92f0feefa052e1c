"""Specifications of GPUs for plans of other hardware.

Peaks are those of dense bfloat16 matrix products, which torchtitan uses for utilization
<https://github.com/pytorch/torchtitan/blob/main/torchtitan/tools/utils.py>. Memory, memory bandwidth and the links
between the GPUs of a machine are from data sheets.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...core.errors import UnknownName

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
            "GPU", name, GPUS, "For another, take the nearest and give its own peak=TFLOP/s and gpu_memory=GIB."
        )
    return GPUS[key]
