"""Training what a comparison asks for: several at a time where that is possible, each once."""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

from ...data.parallel import cores
from ...training.device import free_memory
from . import worker
from .worker import Job, Worker

BESIDE = 1 << 30  # bytes that a process takes beside its model: PyTorch, and data in memory
JOBS = 2  # at a time, unless more are asked for


def threads_each(asked: int | None) -> int:
    """Processor threads of a training, the same whether it has company or not: sums, and so scores, depend on them."""
    return asked or max(1, cores() // JOBS)


def at_once(asked: int | None, threads: int, largest: int) -> int:
    """How many trainings run at a time; the `largest` model takes so many bytes to learn."""
    if asked:
        return asked
    free = free_memory(torch.device("cpu"))
    room = JOBS if free is None else free // (largest + BESIDE)
    return max(1, min(JOBS, cores() // threads, room)) if not torch.cuda.is_available() else 1


def train_all(jobs: Sequence[Job], together: int, trained: Callable[[Job, str], None]) -> dict[Job, str]:
    """Train every job, `together` at a time; why some could not be. `trained` is told of each.

    One at a time is trained here. Raises KeyboardInterrupt where the person stops it: what was at work has written its
    checkpoint.
    """
    failed: dict[Job, str] = {}
    if together == 1:
        for job in jobs:
            if said := worker.train(job):
                failed[job] = said
            trained(job, said)
        return failed
    idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
    workers = [Worker() for _ in range(min(together, len(jobs)))]
    for one in workers:
        idle.put(one)
    stopped = False

    def train(job: Job) -> None:
        one = idle.get()
        if not one.works and not stopped:
            one = Worker()
            workers.append(one)
        said = "" if stopped else one.train(job)
        idle.put(one)
        if not stopped:
            if said:
                failed[job] = said
            trained(job, said)

    with ThreadPoolExecutor(max(1, len(workers))) as pool:
        futures = [pool.submit(train, job) for job in jobs]
        try:
            for future in futures:
                future.result()
        except KeyboardInterrupt:
            stopped = True
            for one in workers:
                one.stop()
            raise
        finally:
            stopped = True
    for one in workers:
        one.end()
    return failed
