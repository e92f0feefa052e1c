"""What a resumed run needs to end, bit for bit, where the uninterrupted one ends; and saying so where it will not.

Sums are made in parts, one for each CPU thread, and floating-point sums depend on their parts: the number of threads
is part of what is computed. So it is recorded when a run begins, and taken again when it goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .device import Placement


def take_threads(about: Mapping[str, Any]) -> list[str]:
    """Take the number of CPU threads that run.json records; a sentence on it where this process has another."""
    then, here = about["machine"].get("threads"), torch.get_num_threads()
    if then is None or then == here:
        return []
    torch.set_num_threads(then)
    return [
        f"The run goes on with {then} CPU threads, as it began, where this process would take {here}: so it ends bit "
        f"for bit as if it had not stopped. threads={here} takes those, and ends in slightly other weights."
    ]


def differences(about: Mapping[str, Any], place: Placement) -> list[str]:
    """A sentence on what is not as it was when the run began, and changes the last digits of what is computed."""
    machine, versions = about["machine"], about["versions"]
    both = {
        "CPU threads": (machine.get("threads"), torch.get_num_threads()),
        "CPU instructions": (machine.get("instructions"), instructions()),
        "the device": (machine.get("device"), str(place.device)),
        "PyTorch": (versions.get("torch"), torch.__version__),
    }
    other = [f"{what} {then} (now {now})" for what, (then, now) in both.items() if then is not None and then != now]
    if not other:
        return []
    return [f"The run began with {', '.join(other)}: it will not end bit for bit as if it had not stopped."]


def instructions() -> str:
    """The set of instructions that PyTorch's kernels use on this CPU, such as AVX2."""
    return str(torch.backends.cpu.get_cpu_capability())
