"""Process group for training: initialization, collectives and shared errors.

Every process must call the same functions in the same order. A call that one process skips blocks the others.
"""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from ..core.errors import CutawayError, LostProcess
from .launch import is_launched, rank, restart_count, world_size

START_TIMEOUT = timedelta(minutes=5)  # for all processes to start
COLLECTIVE_TIMEOUT = timedelta(minutes=60)  # for other processes, as when one alone writes a checkpoint
ERROR_TIMEOUT = 2.0  # seconds to wait for rank 0 to report an error that all processes have
T = TypeVar("T")


@contextlib.contextmanager
def process_group(arrival: timedelta = START_TIMEOUT) -> Iterator[None]:
    """Initialize the process group within this context: gloo on CPUs, NCCL on GPUs.

    A process that was started alone has no group. Only one process reports an error that the user can fix, with its
    rank unless it is rank 0. In the others the error is `silent`.

    Raises:
        LostProcess: If a process does not start, or is lost later.
    """
    if not is_launched() or dist.is_initialized():
        yield
        return
    store = None
    try:
        store = _init_group(arrival)
        yield
        dist.barrier()  # a process that leaves early breaks the collectives of the others
    except CutawayError as error:
        error.silent = not _reports(error, store)
        raise
    except RuntimeError as error:
        if not _is_connection_error(error):
            raise
        lost = LostProcess(f"One of {world_size()} processes was lost: it was killed, or its machine is gone.")
        lost.silent = not _reports(lost, store)
        raise lost from error
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _init_group(arrival: timedelta) -> Store:
    """Initialize the group and return a store for messages between its processes."""
    try:
        store, own, count = next(iter(rendezvous("env://", timeout=arrival)))
        store.set_timeout(arrival)
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(
            backend,
            store=PrefixStore(f"group{restart_count()}", store),
            rank=own,
            world_size=count,
            timeout=COLLECTIVE_TIMEOUT,
        )
    except (RuntimeError, ValueError) as error:
        raise LostProcess(
            f"Not all of {world_size()} processes joined within {arrival.total_seconds():g} seconds. Start each "
            "machine with the same --nnodes, --rdzv-id and --rdzv-endpoint, and check the network between them."
        ) from error
    return PrefixStore(f"said{restart_count()}", store)


def _is_connection_error(error: RuntimeError) -> bool:
    """Return whether a collective failed because another process is gone."""
    said = str(error).lower()
    return isinstance(error, dist.DistError) or any(word in said for word in ("connection", "gloo", "nccl", "socket"))


def _reports(error: CutawayError, store: Store | None) -> bool:
    """Return whether this process reports an error.

    Rank 0 does if it has the error. Otherwise the first process that gets here does, with its rank. A process that only
    lost the process which reported the cause is silent.
    """
    if store is None or error.shared:
        return rank() == 0
    own, said = rank(), str(error)
    with contextlib.suppress(RuntimeError):  # the store may be gone
        until = time.monotonic() + ERROR_TIMEOUT
        if own == 0 and not isinstance(error, LostProcess):
            store.set("first", said)
            first = store.add("told", 1) == 1  # otherwise another process reported it first, on a slow machine
            # The store may end with this process, so it waits until the others have read it. They wait in collectives
            # for this process, which end with the last reference to the process group.
            traceback.clear_frames(error.__traceback__)
            if dist.is_initialized():
                dist.destroy_process_group()
            while time.monotonic() < until and store.add("read", 0) < world_size() - 1:
                time.sleep(0.05)
            return first
        while time.monotonic() < until and not store.check(["first"]):
            time.sleep(0.05)
        silent = store.check(["first"]) or store.add("told", 1) > 1
        store.add("read", 1)
        if silent:
            return False
    if not isinstance(error, LostProcess):
        error.args = (f"Process {own} of {world_size()}: {said}",)
    return True


def rank_and_size() -> tuple[int, int]:
    """Return the rank of this process in the group, from 0, and the number of processes."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def all_reduce_sum(x: Tensor) -> Tensor:
    """Return the sum over all processes, bit-identical in each."""
    summed = x.clone()
    dist.all_reduce(summed)
    return summed


def broadcast(value: T) -> T:
    """Return the value of rank 0."""
    held = [value]
    dist.broadcast_object_list(held)
    return held[0]


def all_gather_object(value: T) -> list[T]:
    """Return the values of all processes, in the order of their ranks."""
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def broadcast_tensors(tensors: list[Tensor]) -> None:
    """Copy the tensors of rank 0 into those of all processes."""
    for tensor in tensors:
        dist.broadcast(tensor, 0)


def rank_zero_only(do: Callable[[], T]) -> T:
    """Run a function on rank 0 only and return its result in every process.

    A CutawayError is raised in all processes. Without a process group the function is simply called.
    """
    if not dist.is_initialized():
        return do()
    value: T | None = None
    failed: CutawayError | None = None
    if dist.get_rank() == 0:
        try:
            value = do()
        except CutawayError as error:
            failed = error
    value, failed = broadcast((value, failed))
    if failed is not None:
        failed.shared = True
        raise failed
    return value  # type: ignore[return-value]
