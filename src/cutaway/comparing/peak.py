"""The memory that a training holds, above what its process held before."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import re
from pathlib import Path

import torch

SELF = Path("/proc/self")


def held() -> int | None:
    """Begin to watch: the bytes that the process holds now; None where the system does not tell (it is not Linux).

    Where there is a GPU its memory is what counts.
    """
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    let_go()
    with contextlib.suppress(OSError):
        (SELF / "clear_refs").write_text("5")  # the peak begins anew
        return _status("VmRSS")
    return None


def most_since(before: int | None) -> int | None:
    """The most that was held since, above `before`."""
    if before is None:
        return None
    most = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else _status("VmHWM")
    return None if most is None else max(0, most - before)


def let_go() -> None:
    """Give back what is held and not used: memory that a training before freed would else be this one's for nothing."""
    gc.collect()
    with contextlib.suppress(AttributeError, OSError):  # of GNU's C library
        ctypes.CDLL(None).malloc_trim(0)


def _status(key: str) -> int | None:
    """A size that the system tells of this process, in bytes."""
    try:
        found = re.search(rf"^{key}:\s*(\d+) kB$", (SELF / "status").read_text(), re.MULTILINE)
    except OSError:
        return None
    return 1024 * int(found[1]) if found else None
