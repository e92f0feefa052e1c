"""What several processes cost beside one with as many threads, and what being ready for them costs a single one.

Both sides are there all the time, in processes of their own, and one waits while the other works.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings
from cutaway.distributed.group import process_group, rank_and_size
from cutaway.training.callbacks import Progress
from cutaway.training.memory import resolve_parallel
from cutaway.training.setup import setup_training
from cutaway.training.trainer import Trainer

from . import loops
from .pairs import Pair, race

UPDATES = 10
LENET = next(case for case in loops.CASES if "lenet5" in case)
GPT2 = {
    "model.layers": 4, "model.dim": 256, "model.heads": 4, "model.dropout": 0.0, "length": 128, "batch_size": 16,
    "max_steps": UPDATES, "schedule": "constant", "save_minutes": 60, "tensorboard": False, "seed": 0,
}  # fmt: skip


def rows(runs: int = 11) -> list[tuple[Pair, float]]:
    """Every pair with the most that its ratio may be."""
    for name in ("tinyshakespeare", "mnist"):
        open_data(name, DataSettings())  # here, where an error for a data set that is missing is seen
    with (
        waiting(gpt2, processes=2, threads=1) as two,
        waiting(gpt2, processes=1, threads=2) as one,
        waiting(lenet, processes=1, threads=2) as of_one,
        waiting(lenet, threads=2) as plain,
        waiting(bare_lenet, threads=2) as bare,
    ):
        name = f"{UPDATES} updates of gpt2 4×256, 16 × 128 tokens"
        return [
            (race(f"processes: {name}, 2 of 1 thread, vs. 1 of 2", two, one, runs), 1.15),
            (
                race("processes: lenet5-modern on MNIST, one of one under torchrun, vs. a plain run", of_one, plain),
                1.02,
            ),
            (race("processes: lenet5-modern on MNIST, one of one, vs. a bare loop", of_one, bare), 1.05),
        ]


def gpt2() -> Callable[[], object]:
    """So many updates of a small GPT-2, with the checkpoint at their end, each time it is called."""
    ready = setup_training("gpt2", "tinyshakespeare", {**GPT2, "processes": rank_and_size()[1]})
    resolve_parallel(ready)
    folder = Path(tempfile.mkdtemp())
    ready.data.splits = {"train": ready.data.splits["train"]}
    trainer = Trainer(ready.model, ready.data, ready.task, ready.settings, ready.place, folder, Progress(shown=False))
    trainer.begin()

    def learn() -> None:
        trainer.state.epoch, trainer.state.batch, trainer.state.update, trainer.state.stopped = 0, 0, 0, ""
        trainer.fit()

    return learn


def lenet() -> Callable[[], object]:
    """An epoch of LeNet-5 in our loop."""
    return loops.sides(LENET)[0]


def bare_lenet() -> Callable[[], object]:
    """The same in a bare loop."""
    return loops.sides(LENET)[1]


@contextlib.contextmanager
def waiting(
    work: Callable[[], Callable[[], object]], threads: int, processes: int | None = None
) -> Iterator[Callable[[], None]]:
    """So many processes that know of one another, as torchrun starts them, or one that knows of none. Within this
    context each call has all of them do the work once, and waits for them."""
    context = multiprocessing.get_context("spawn")
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    pipes: list[Connection] = []
    for rank in range(processes or 1):
        ours, theirs = context.Pipe()
        environment = {"OMP_NUM_THREADS": str(threads)}
        if processes is not None:
            environment |= {
                "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes),
                "LOCAL_WORLD_SIZE": str(processes), "MASTER_ADDR": "localhost", "MASTER_PORT": str(port),
                "TORCHELASTIC_RUN_ID": "benchmark",
            }  # fmt: skip
        context.Process(target=_wait, args=(theirs, work, threads, environment), daemon=True).start()
        theirs.close()
        pipes.append(ours)

    def once() -> None:
        for pipe in pipes:
            pipe.send(True)
        for pipe in pipes:
            pipe.recv()

    once()  # they are there
    try:
        yield once
    finally:
        for pipe in pipes:
            pipe.send(False)


def _wait(
    pipe: Connection, work: Callable[[], Callable[[], object]], threads: int, environment: dict[str, str]
) -> None:
    """Do the work each time it is asked for, until it is not."""
    os.environ |= environment
    torch.set_num_threads(threads)
    with process_group():
        once = work()
        while pipe.recv():
            once()
            pipe.send(None)
