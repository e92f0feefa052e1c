"""Launch of several processes on this machine with torchrun's elastic agent, and the environment it sets for each.

`processes=N` of a training is `torchrun --standalone --nproc-per-node=N`. The same command runs in each process, and
its result or its error is returned through files. Importing this module does not import PyTorch.
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


def is_launched() -> bool:
    """Return whether torchrun's agent started this process as one of several."""
    return "TORCHELASTIC_RUN_ID" in os.environ and "RANK" in os.environ


def launch_id() -> str | None:
    """Return the name that all processes of one launch share, also after restarts."""
    return os.environ["TORCHELASTIC_RUN_ID"] if is_launched() else None


def world_size() -> int:
    """Return the number of processes on all machines."""
    return int(os.environ["WORLD_SIZE"]) if is_launched() else 1


def rank() -> int:
    """Return the rank of this process, from 0."""
    return int(os.environ["RANK"]) if is_launched() else 0


def local_rank() -> int:
    """Return the rank of this process on its machine, which is also the index of its GPU."""
    return int(os.environ["LOCAL_RANK"]) if is_launched() else 0


def local_world_size() -> int:
    """Return the number of processes on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", world_size()))


def restart_count() -> int:
    """Return how many times all processes were restarted because one was lost."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) if is_launched() else 0


FOUND, STOPPED = "found.txt", "stopped.txt"  # files of rank 0 with the run's folder
AGENT = "agent.txt"  # the ID of the process that starts the others


class LaunchInterrupted(KeyboardInterrupt):
    """The user stopped the processes. Rank 0 has written a checkpoint to the folder in the message."""


def launch(module: str, asked: Mapping[str, Any], name: str, processes: int, max_restarts: int) -> Path:
    """Run `python -m MODULE FOLDER` in several processes.

    Args:
        module: Module that is run.
        asked: Settings, which are written to the folder as JSON.
        name: Name of the launch.
        processes: Number of processes.
        max_restarts: Number of restarts after a lost process.

    Returns:
        The path that rank 0 passed to `tell`.

    Raises:
        SettingError: If the settings are not JSON values.
        TrainingError: If a process failed. The message has its rank unless it is rank 0.
        LostProcess: If a process was lost.
        Stopped: If the user stopped the processes.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # errors are reported below
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_message(folder, AGENT, os.getpid())
        try:
            (folder / "asked.json").write_text(json.dumps(asked))
        except TypeError as error:
            raise SettingError(
                f"Invalid data with processes={processes}: must be a path or a name, which each process opens."
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
    """Set the environment of the processes: their share of the CPU threads, and no notices of PyTorch.

    Variables that are set already are kept.
    """
    threads = max(1, (os.cpu_count() or 1) // processes)
    own = {"OMP_NUM_THREADS": str(threads), "TORCH_CPP_LOG_LEVEL": "ERROR"}
    new = {key: value for key, value in own.items() if key not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for key in new:
            os.environ.pop(key, None)


def write_message(folder: Path, name: str, what: object) -> None:
    """Write a message for the process that started this one."""
    (folder / name).write_text(str(what))


def write_failure(folder: Path, error: CutawayError) -> None:
    """Write the error for the process that started this one, unless it is silent."""
    if not error.silent:
        write_message(
            folder,
            f"failed-{rank()}.json",
            json.dumps({"lost": isinstance(error, LostProcess), "said": str(error), "code": error.code}),
        )


def _raise(folder: Path, processes: int, error: BaseException) -> None:
    """Raise the error that the processes wrote."""
    if (folder / STOPPED).exists():
        raise LaunchInterrupted((folder / STOPPED).read_text()) from None
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("failed-*.json"))]
    for one in sorted(found, key=lambda one: bool(one["lost"])):
        raise (LostProcess if one["lost"] else TrainingError)(one["said"], code=one["code"]) from None
    if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "SignalException":
        raise KeyboardInterrupt from None
    raise LostProcess(
        f"One of {processes} processes was lost: it was killed, or failed with the error above."
    ) from None
