"""Worker process that trains models of a comparison: python -m cutaway.experiments.compare.worker.

It reads one job per line from standard input, as JSON, and writes one line per job: empty, or the error. It ends when
its input ends, and so with the process that started it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...checkpoints import factory
from ...core.config import exact_text
from ...core.errors import CutawayError
from ...core.files import read_json, write_json
from ...core.schema import NUMBER, validate_document
from ...models.registry import Preset, preset
from ...runs.train import train_model
from ...training.callbacks import Progress
from ...training.run_folder import RunInUse, lock_run
from .cost import measure_cost

COSTS = {"joules": NUMBER | None, "memory": int | None}
COST = "cost.json"  # file in a run's folder with the energy and memory of training
PATIENCE = 30.0  # seconds
DIED = "its training process died, most likely out of memory. Set jobs=1 to train one at a time"


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
        return str(json.loads(answer)) if answer else DIED

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


def train(job: Job) -> str:
    """Train or resume a job in this process. Returns an empty string or the error."""
    resumed = can_resume(job.folder)
    in_memory = None if isinstance(job.source, str) else job.source
    try:
        model, given = factory.new_model(job.preset, job.given)
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere), measure_cost() as cost:
            if resumed:
                _wait_for(job.folder)
                own = None if isinstance(model, str) else model
                train_model(own, in_memory, {}, resume=job.folder, progress=Progress(shown=False))
            else:
                train_model(model, job.source, given, out=job.folder, progress=Progress(shown=False))
    except CutawayError as error:
        return str(error)
    whole = job.alone and not resumed  # otherwise the energy includes other trainings or only a part of this one
    write_json(job.folder / COST, {"joules": cost.joules if whole else None, "memory": cost.memory})
    return ""


def read_cost(path: Path) -> dict[str, Any]:
    """Read the cost of a training. Raises FileError if the document is invalid."""
    cost: dict[str, Any] = read_json(path)
    validate_document(cost, COSTS, path, "Restore the folder from a backup, or compare again.")
    return cost


def _wait_for(folder: Path) -> None:
    """Wait for a process whose parent was killed. It stops at its next update."""
    end = time.monotonic() + PATIENCE
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
            said = train(Job(preset(line["model"]), line["source"], line["given"], Path(line["folder"]), line["alone"]))
            answers.write(json.dumps(said) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
