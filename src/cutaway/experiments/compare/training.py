"""Training of the jobs of a comparison, several at a time if possible."""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

from ...data.parallel import num_cpus
from ...training.device import free_memory
from . import worker
from .worker import Job, Worker

PROCESS_OVERHEAD = 1 << 30  # bytes of a process without its model: PyTorch and the data
JOBS = 2  # maximum trainings at a time by default


def threads_each(asked: int | None) -> int:
    """Return the processor threads of a training.

    The number does not depend on parallel trainings, because sums, and so scores, depend on it.
    """
    return asked or max(1, num_cpus() // JOBS)


def num_parallel_trainings(asked: int | None, threads: int, largest: int) -> int:
    """Return the number of trainings at a time. `largest` is the memory in bytes to train the largest model."""
    if asked:
        return asked
    free = free_memory(torch.device("cpu"))
    room = JOBS if free is None else free // (largest + PROCESS_OVERHEAD)
    return max(1, min(JOBS, num_cpus() // threads, room)) if not torch.cuda.is_available() else 1


def train_all(jobs: Sequence[Job], together: int, trained: Callable[[Job, str], None]) -> dict[Job, str]:
    """Train every job, `together` at a time, and return the errors of failed jobs.

    `trained` is called after each job. With `together=1` jobs are trained in this process. Raises KeyboardInterrupt if
    the user stops it; active jobs write their checkpoints first.
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
