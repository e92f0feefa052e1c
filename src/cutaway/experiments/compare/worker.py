"""A process that trains one model of a comparison after another: python -m cutaway.experiments.compare.worker.

It reads a job a line on standard input, as JSON, and answers with a line: empty, or why the training could not be. It
ends when its input does, and so with the process that started it.
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
from ...core.config import exact
from ...core.errors import CutawayError
from ...core.files import read_json, write_json
from ...core.schema import NUMBER, reject_unlike
from ...models.registry import Preset, preset
from ...training.progress import Progress
from ...training.run_folder import RunInUse, locked
from ...training.train import fit
from .cost import metered

COSTS = {"joules": NUMBER | None, "memory": int | None}
COST = "cost.json"  # in a run's folder: what training it took beside its seconds
PATIENCE = 30.0  # seconds
DIED = "the process that trained it died: it ran out of memory, most likely. jobs=1 trains one at a time"


@dataclass(frozen=True, eq=False)
class Job:
    """One training, equal to itself alone."""

    preset: Preset
    source: Any
    given: Mapping[str, Any]
    folder: Path
    alone: bool  # whether no other training runs beside it, so that the energy that is used is its own

    @property
    def model(self) -> str:
        """What its model is called."""
        return self.preset.name

    def to_json(self) -> dict[str, Any]:
        """As a line to a worker has it; every value as a person would type it."""
        given = {key: value if isinstance(value, str) else exact(value) for key, value in self.given.items()}
        return {
            "model": self.model,
            "source": self.source,
            "given": given,
            "folder": str(self.folder),
            "alone": self.alone,
        }


class Worker:
    """Another process that trains."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", __name__]
        # In a session of its own: Ctrl-C reaches the parent alone, which decides what becomes of it.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    def train(self, job: Job) -> str:
        """Train there; empty, or why it could not be."""
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
        """Whether it is still there."""
        return self._process.poll() is None

    def stop(self) -> None:
        """Have it write its checkpoint, where it trains, and end."""
        with contextlib.suppress(OSError):
            self._process.terminate()

    def end(self) -> None:
        """Let it end, and wait for that."""
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        self._process.wait()


def train(job: Job) -> str:
    """Train in this process, or go on with what was begun; empty, or why it could not be."""
    resumed = begun(job.folder)
    in_memory = None if isinstance(job.source, str) else job.source
    try:
        model, given = factory.begun(job.preset, job.given)
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere), metered() as cost:
            if resumed:
                _wait_for(job.folder)
                own = None if isinstance(model, str) else model
                fit(own, in_memory, {}, resume=job.folder, progress=Progress(shown=False))
            else:
                fit(model, job.source, given, out=job.folder, progress=Progress(shown=False))
    except CutawayError as error:
        return str(error)
    whole = job.alone and not resumed  # else joules are of others too, or of a part of the training alone
    write_json(job.folder / COST, {"joules": cost.joules if whole else None, "memory": cost.memory})
    return ""


def read_cost(path: Path) -> dict[str, Any]:
    """What a training took. Raises FileError where the document is none."""
    cost: dict[str, Any] = read_json(path)
    reject_unlike(cost, COSTS, path, "Take the folder from a copy, or compare again.")
    return cost


def _wait_for(folder: Path) -> None:
    """Wait while a process is at work there whose parent was killed: it stops at its next update."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            with locked(folder):
                return
        except RunInUse:
            time.sleep(0.1)


def begun(folder: Path) -> bool:
    """Whether a run stands there that can go on."""
    return (folder / "run.json").is_file()


def finished(folder: Path) -> bool:
    """Whether a run stands there that was trained to its end and tested."""
    path = folder / "run.json"
    if not path.is_file() or not (folder / "evaluation.json").is_file():
        return False
    document = read_json(path)
    return isinstance(document, dict) and document.get("status") == "finished"


def main() -> None:
    """Train what is asked for, job after job."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    jobs: list[str] = []
    ready = threading.Semaphore(0)

    def read() -> None:
        for line in sys.stdin:
            jobs.append(line)
            ready.release()
        os.kill(os.getpid(), signal.SIGTERM)  # the parent is gone: what is trained stops at its next update
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
