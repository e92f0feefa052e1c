"""Processes that train together, started as torchrun starts them, but from a server that has everything imported."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import socket
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        "cutaway.api", "sklearn.datasets", "torch._dynamo", "torch._refs", "torch._meta_registrations",
        "torch.distributed", "cutaway.training.parallel", "cutaway.training.memory",
    ]
)  # fmt: skip
PATIENCE = 550  # seconds, on a machine that does much else too


def start(work: Callable[..., None], *given: Any, count: int, launch: str = "a launch") -> list[BaseProcess]:
    """Start `work(*given)` in so many processes that know of one another; each ends with 0 where it returns."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    children = [
        PROCESSES.Process(target=_as_one, args=(rank, count, port, launch, work, given)) for rank in range(count)
    ]
    for child in children:
        child.start()
    return children


def ended(children: list[BaseProcess]) -> list[int | None]:
    """The exit status of each, −9 of those that had to be killed because they did not end."""
    for child in children:
        child.join(PATIENCE)
    for child in children:
        child.kill()
        child.join()
    return [child.exitcode for child in children]


def together(work: Callable[..., None], *given: Any, count: int, launch: str = "a launch") -> list[int | None]:
    """Run `work(*given)` in so many processes until all have ended: the exit status of each."""
    return ended(start(work, *given, count=count, launch=launch))


def _as_one(rank: int, count: int, port: int, launch: str, work: Callable[..., None], given: tuple[Any, ...]) -> None:
    faulthandler.dump_traceback_later(PATIENCE - 10, exit=True)  # of what waits for ever
    torch.set_num_threads(1)
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(2 if count == 4 else count),  # four are two machines
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": launch,
    }
    work(*given)


def tensors(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file."""
    from cutaway.checkpoints.saving import read_tensors

    return read_tensors(path)[0]
