"""Reproducibility of resumed runs: they end bit-identical to uninterrupted ones, or a note says why not.

Sums are split over CPU threads, and floating-point sums depend on how they are split. The result therefore depends on
the number of threads, which is recorded when a run starts and restored when it is resumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .device import DeviceContext


def restore_threads(about: Mapping[str, Any]) -> list[str]:
    """Set the number of CPU threads that run.json records, and return a note if this process had another."""
    then, here = about["machine"].get("threads"), torch.get_num_threads()
    if then is None or then == here:
        return []
    torch.set_num_threads(then)
    return [
        f"The run goes on with {then} CPU threads, as it began, where this process would take {here}: so it ends bit "
        f"for bit as if it had not stopped. threads={here} takes those, and ends in slightly other weights."
    ]


def environment_changes(about: Mapping[str, Any], place: DeviceContext) -> list[str]:
    """Return a note on changes since the start of the run that affect the last digits of the results."""
    machine, versions = about["machine"], about["versions"]
    both = {
        "CPU threads": (machine.get("threads"), torch.get_num_threads()),
        "CPU instructions": (machine.get("instructions"), cpu_capability()),
        "the device": (machine.get("device"), str(place.device)),
        "PyTorch": (versions.get("torch"), torch.__version__),
    }
    other = [f"{what} {then} (now {now})" for what, (then, now) in both.items() if then is not None and then != now]
    if not other:
        return []
    return [f"The run began with {', '.join(other)}: it will not end bit for bit as if it had not stopped."]


def cpu_capability() -> str:
    """Return the CPU instruction set that PyTorch's kernels use, such as AVX2."""
    return str(torch.backends.cpu.get_cpu_capability())
