"""The processes that train together: how they meet, and what they tell one another.

Every process calls the same functions in the same order; what one does not call, the others wait for.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from ..core.errors import CutawayError, LostProcess
from .environment import launched, rank, restarts, world_size

ARRIVAL = timedelta(minutes=5)  # for all to come
PATIENCE = timedelta(minutes=60)  # for one another, as when one alone writes a checkpoint
HEARD = 2.0  # seconds in which an error that all have is known of the first process
T = TypeVar("T")


@contextlib.contextmanager
def joined(arrival: timedelta = ARRIVAL) -> Iterator[None]:
    """Within this context the processes that were started together are a group: gloo on CPUs, NCCL on GPUs. A process
    that was started alone is none.

    Raises LostProcess where one does not come, or is lost on the way. Of an error that a person can fix one process
    speaks, with its rank where it is not the first; in the others it is `silent`.
    """
    if not launched() or dist.is_initialized():
        yield
        return
    store = None
    try:
        store = _meet(arrival)
        yield
        dist.barrier()  # who leaves early takes what the others have yet to hear along
    except CutawayError as error:
        error.silent = not _speaks(error, store)
        raise
    except RuntimeError as error:
        if not _is_of_a_connection(error):
            raise
        lost = LostProcess(f"Of {world_size()} processes one was lost: it was killed, or its machine is gone.")
        lost.silent = not _speaks(lost, store)
        raise lost from error
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _meet(arrival: timedelta) -> Store:
    """Make the group, and give what its processes can leave each other words in."""
    try:
        store, own, count = next(iter(rendezvous("env://", timeout=arrival)))
        store.set_timeout(arrival)
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(
            backend, store=PrefixStore(f"group{restarts()}", store), rank=own, world_size=count, timeout=PATIENCE
        )
    except (RuntimeError, ValueError) as error:
        raise LostProcess(
            f"Of {world_size()} processes not all came within {arrival.total_seconds():g} seconds. Start each machine "
            "with the same --nnodes, --rdzv-id and --rdzv-endpoint, and see that they reach one another there."
        ) from error
    return PrefixStore(f"said{restarts()}", store)


def _is_of_a_connection(error: RuntimeError) -> bool:
    """Whether a collective failed because another process is gone."""
    said = str(error).lower()
    return isinstance(error, dist.DistError) or any(word in said for word in ("connection", "gloo", "nccl", "socket"))


def _speaks(error: CutawayError, store: Store | None) -> bool:
    """Whether this process tells of an error: the first, where it has it too, or else the first to come here, with its
    rank. Who only lost another that told why says nothing."""
    if store is None or error.shared:
        return rank() == 0
    own, said = rank(), str(error)
    with contextlib.suppress(RuntimeError):  # where the store is gone, nobody hears
        if own == 0 and not isinstance(error, LostProcess):
            store.set("first", said)
            return store.add("told", 1) == 1  # else another had waited long enough, on a slow machine
        until = time.monotonic() + HEARD
        while time.monotonic() < until and not store.check(["first"]):
            time.sleep(0.05)
        if store.check(["first"]) or store.add("told", 1) > 1:
            return False
    if not isinstance(error, LostProcess):
        error.args = (f"Process {own} of {world_size()}: {said}",)
    return True


def place() -> tuple[int, int]:
    """Which process of the group this is, from 0, and how many there are."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def total(x: Tensor) -> Tensor:
    """The sum over all processes: the same bits in each."""
    summed = x.clone()
    dist.all_reduce(summed)
    return summed


def from_first(value: T) -> T:
    """What the first process has."""
    held = [value]
    dist.broadcast_object_list(held)
    return held[0]


def from_all(value: T) -> list[T]:
    """What each process has, in the order of their ranks."""
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def send_from_first(tensors: list[Tensor]) -> None:
    """Write what the first process has into the tensors of all."""
    for tensor in tensors:
        dist.broadcast(tensor, 0)


def by_first(do: Callable[[], T]) -> T:
    """What the first process finds, doing it alone; what it raises for a person to fix, all raise. In a process without
    others simply that."""
    if not dist.is_initialized():
        return do()
    value: T | None = None
    failed: CutawayError | None = None
    if dist.get_rank() == 0:
        try:
            value = do()
        except CutawayError as error:
            failed = error
    value, failed = from_first((value, failed))
    if failed is not None:
        failed.shared = True
        raise failed
    return value  # type: ignore[return-value]
