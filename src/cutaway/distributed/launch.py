"""Several processes on this machine, started and watched by torchrun's elastic agent.

`processes=N` of a training is `torchrun --standalone --nproc-per-node=N` without typing it: the same command is run in
each process, and what it finds, or what went wrong in it, comes back through files.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..core.errors import CutawayError, LostProcess, SettingError, TrainingError
from .environment import rank

FOUND, STOPPED = "found.txt", "stopped.txt"  # what the first process leaves: the run's folder
AGENT = "agent.txt"  # the number of the process that starts them


class Stopped(KeyboardInterrupt):
    """The person stopped the processes, and the first has written a checkpoint in the folder that is named."""


def launch(module: str, asked: Mapping[str, Any], name: str, processes: int, max_restarts: int) -> Path:
    """Run `python -m MODULE FOLDER` in so many processes, where the folder holds `asked` as JSON; the path that the
    first of them found (`tell`). `name` is that of the launch.

    Raises what went wrong in one of them, with its rank where it is not the first, and Stopped where it was stopped.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # it is told here what went wrong
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        tell(folder, AGENT, os.getpid())
        try:
            (folder / "asked.json").write_text(json.dumps(asked))
        except TypeError as error:
            raise SettingError(
                f"processes={processes} reads the data in each process: give it as a path or a name."
            ) from error
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=processes,
            run_id=name,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            max_restarts=max_restarts,
            monitor_interval=0.1,
            logs_specs=DefaultLogsSpecs(log_dir=str(folder / "logs")),
        )
        try:
            with _environment(processes):
                elastic_launch(config, sys.executable)("-m", module, str(folder))
        except (ChildFailedError, SignalException, KeyboardInterrupt) as error:
            _raise(folder, processes, error)
        return Path((folder / FOUND).read_text())


@contextlib.contextmanager
def _environment(processes: int) -> Iterator[None]:
    """What the processes are given beside this one's environment: their share of the processor, where nobody says how
    many threads each is to have, and no notices of PyTorch's own code."""
    threads = max(1, (os.cpu_count() or 1) // processes)
    own = {"OMP_NUM_THREADS": str(threads), "TORCH_CPP_LOG_LEVEL": "ERROR"}
    new = {key: value for key, value in own.items() if key not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for key in new:
            os.environ.pop(key, None)


def tell(folder: Path, name: str, what: object) -> None:
    """Leave a word for who started this process."""
    (folder / name).write_text(str(what))


def failed(folder: Path, error: CutawayError) -> None:
    """Leave what went wrong here, where this process speaks of it."""
    if not error.silent:
        tell(folder, f"failed-{rank()}.json", json.dumps({"lost": isinstance(error, LostProcess), "said": str(error)}))


def _raise(folder: Path, processes: int, error: BaseException) -> None:
    """Raise what the processes left."""
    if (folder / STOPPED).exists():
        raise Stopped((folder / STOPPED).read_text()) from None
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("failed-*.json"))]
    for one in sorted(found, key=lambda one: bool(one["lost"])):
        raise (LostProcess if one["lost"] else TrainingError)(one["said"]) from None
    if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "SignalException":
        raise KeyboardInterrupt from None
    raise LostProcess(f"Of {processes} processes one was lost: it was killed, or failed as is told above.") from None
