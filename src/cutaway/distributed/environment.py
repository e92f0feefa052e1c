"""What torchrun tells each process that it starts, in environment variables. Nothing here needs PyTorch."""

from __future__ import annotations

import os


def launched() -> bool:
    """Whether this process was started by torchrun's agent, as one of several."""
    return "TORCHELASTIC_RUN_ID" in os.environ and "RANK" in os.environ


def launch_id() -> str | None:
    """The name that all processes of one launch share, over restarts too."""
    return os.environ["TORCHELASTIC_RUN_ID"] if launched() else None


def world_size() -> int:
    """How many processes were started, on all machines."""
    return int(os.environ["WORLD_SIZE"]) if launched() else 1


def rank() -> int:
    """Which of them this is, from 0."""
    return int(os.environ["RANK"]) if launched() else 0


def local_rank() -> int:
    """Which of the processes of its machine this is, and so which of its GPUs is its own."""
    return int(os.environ["LOCAL_RANK"]) if launched() else 0


def local_world_size() -> int:
    """How many processes were started on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", world_size()))


def restarts() -> int:
    """How often all of them were started again because one was lost."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) if launched() else 0
