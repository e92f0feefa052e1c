"""Training processes of a comparison, several at a time: python -m cutaway.experiments.compare.workers.

A worker reads one job per line from standard input, as JSON, and writes one line per job: empty, or the error. It ends
when its input ends, and so with the process that started it.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ...checkpoints import factory
from ...core.config import exact_text
from ...core.errors import CutawayError
from ...core.files import read_json, write_json
from ...core.schema import NUMBER, validate_document
from ...data.parallel import num_cpus
from ...models.registry import Preset, preset
from ...runs.train import train_model
from ...training.callbacks import Progress
from ...training.device import free_memory
from ...training.run_folder import RunInUse, lock_run
from ..cost import measure_cost

COST_SCHEMA = {"joules": NUMBER | None, "memory": int | None}
COST_FILE = "cost.json"  # file in a run's folder with the energy and memory of training
LOCK_TIMEOUT = 30.0  # seconds
PROCESS_DIED = "its training process died, most likely out of memory. Set jobs=1 to train one at a time"


@dataclass(frozen=True, eq=False)
class Job:
    """One training. Jobs are compared by identity."""

    preset: Preset
    source: Any
    given: Mapping[str, Any]
    folder: Path
    alone: bool  # whether no other training runs at the same time, so that the measured energy is its own

    @property
    def model(self) -> str:
        """Return the name of the model."""
        return self.preset.name

    def to_json(self) -> dict[str, Any]:
        """Return the job as plain JSON values for a worker. Values are written as on the command line."""
        given = {key: value if isinstance(value, str) else exact_text(value) for key, value in self.given.items()}
        return {
            "model": self.model,
            "source": self.source,
            "given": given,
            "folder": str(self.folder),
            "alone": self.alone,
        }


class Worker:
    """Worker process for training."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", __name__]
        # In a separate session, so that Ctrl-C reaches only the parent, which stops the worker itself.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    def train(self, job: Job) -> str:
        """Train a job in the worker. Returns an empty string or the error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(job.to_json()) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except OSError:
            answer = ""
        return str(json.loads(answer)) if answer else PROCESS_DIED

    @property
    def works(self) -> bool:
        """Return whether the process is alive."""
        return self._process.poll() is None

    def stop(self) -> None:
        """Terminate the process. A training writes its checkpoint first."""
        with contextlib.suppress(OSError):
            self._process.terminate()

    def end(self) -> None:
        """Close the input of the process and wait for its end."""
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        self._process.wait()


def run_job(job: Job) -> str:
    """Train or resume a job in this process. Returns an empty string or the error."""
    resumed = can_resume(job.folder)
    in_memory = None if isinstance(job.source, str) else job.source
    try:
        model, given = factory.new_model(job.preset, job.given)
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere), measure_cost() as cost:
            if resumed:
                _wait_for_lock(job.folder)
                own = None if isinstance(model, str) else model
                train_model(own, in_memory, {}, resume=job.folder, progress=Progress(shown=False))
            else:
                train_model(model, job.source, given, out=job.folder, progress=Progress(shown=False))
    except CutawayError as error:
        return str(error)
    whole = job.alone and not resumed  # otherwise the energy includes other trainings or only a part of this one
    write_json(job.folder / COST_FILE, {"joules": cost.joules if whole else None, "memory": cost.memory})
    return ""


def read_cost(path: Path) -> dict[str, Any]:
    """Read the cost of a training. Raises FileError if the document is invalid."""
    cost: dict[str, Any] = read_json(path)
    validate_document(cost, COST_SCHEMA, path, "Restore the folder from a backup, or compare again.")
    return cost


def _wait_for_lock(folder: Path) -> None:
    """Wait for a process whose parent was killed. It stops at its next update."""
    end = time.monotonic() + LOCK_TIMEOUT
    while time.monotonic() < end:
        try:
            with lock_run(folder):
                return
        except RunInUse:
            time.sleep(0.1)


def can_resume(folder: Path) -> bool:
    """Return whether the folder has a run that can be resumed."""
    return (folder / "run.json").is_file()


def is_finished(folder: Path) -> bool:
    """Return whether the folder has a run that was trained completely and tested."""
    path = folder / "run.json"
    if not path.is_file() or not (folder / "evaluation.json").is_file():
        return False
    document = read_json(path)
    return isinstance(document, dict) and document.get("status") == "finished"


PROCESS_OVERHEAD = 1 << 30  # bytes of a process without its model: PyTorch and the data
MAX_JOBS = 2  # maximum trainings at a time by default


def threads_per_training(asked: int | None) -> int:
    """Return the processor threads of a training.

    The number does not depend on parallel trainings, because sums, and so scores, depend on it.
    """
    return asked or max(1, num_cpus() // MAX_JOBS)


def num_parallel_trainings(asked: int | None, threads: int, largest: int) -> int:
    """Return the number of trainings at a time. `largest` is the memory in bytes to train the largest model."""
    if asked:
        return asked
    free = free_memory(torch.device("cpu"))
    room = MAX_JOBS if free is None else free // (largest + PROCESS_OVERHEAD)
    return max(1, min(MAX_JOBS, num_cpus() // threads, room)) if not torch.cuda.is_available() else 1


def train_all(jobs: Sequence[Job], together: int, trained: Callable[[Job, str], None]) -> dict[Job, str]:
    """Train every job, `together` at a time, and return the errors of failed jobs.

    `trained` is called after each job. With `together=1` jobs are trained in this process. Raises KeyboardInterrupt if
    the user stops it; active jobs write their checkpoints first.
    """
    failed: dict[Job, str] = {}
    if together == 1:
        for job in jobs:
            if said := run_job(job):
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


def main() -> None:
    """Train jobs from standard input."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries goes to standard error
    jobs: list[str] = []
    ready = threading.Semaphore(0)

    def read() -> None:
        for line in sys.stdin:
            jobs.append(line)
            ready.release()
        os.kill(os.getpid(), signal.SIGTERM)  # the parent is gone: the training stops at its next update
        ready.release()

    threading.Thread(target=read, daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        while ready.acquire() and jobs:
            line = json.loads(jobs.pop(0))
            said = run_job(
                Job(preset(line["model"]), line["source"], line["given"], Path(line["folder"]), line["alone"])
            )
            answers.write(json.dumps(said) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
