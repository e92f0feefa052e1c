"""Environment variables that torchrun sets for each process. This module does not need PyTorch."""

from __future__ import annotations

import os


def is_launched() -> bool:
    """Return whether torchrun's agent started this process as one of several."""
    return "TORCHELASTIC_RUN_ID" in os.environ and "RANK" in os.environ


def launch_id() -> str | None:
    """Return the name that all processes of one launch share, also after restarts."""
    return os.environ["TORCHELASTIC_RUN_ID"] if is_launched() else None


def world_size() -> int:
    """Return the number of processes on all machines."""
    return int(os.environ["WORLD_SIZE"]) if is_launched() else 1


def rank() -> int:
    """Return the rank of this process, from 0."""
    return int(os.environ["RANK"]) if is_launched() else 0


def local_rank() -> int:
    """Return the rank of this process on its machine, which is also the index of its GPU."""
    return int(os.environ["LOCAL_RANK"]) if is_launched() else 0


def local_world_size() -> int:
    """Return the number of processes on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", world_size()))


def restart_count() -> int:
    """Return how many times all processes were restarted because one was lost."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) if is_launched() else 0
