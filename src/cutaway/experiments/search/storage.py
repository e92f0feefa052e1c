"""Folder of a search, which several processes can share: search.json, study.db and the locks of trials.

    search.json   the search space and settings
    study.db      every trial, in Optuna's SQLite storage
    trials/N/     temporary files of trial N, locked by the process that trains it
    best/         the winner, which is a regular run
    report.html   the report

Only one process at a time draws a trial. A trial that is marked as running without a lock was killed. It is marked as
failed, and its settings are drawn again.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.pool import NullPool

from ...core.errors import FileError, shorten
from ...core.schema import NUMBER, Between, Choice, validate_document
from ...training.run_folder import RunInUse, create_group_folder, lock_run, read_group_document

try:
    import fcntl
except ImportError:  # no such locks on this system, so only one process can be used
    fcntl = None  # type: ignore[assignment]

ABOUT, STUDY, TRIALS, BEST, REPORT, TURN = "search.json", "study.db", "trials", "best", "report.html", ".turn"
NAME = "search"  # name of the study
WAIT = 120.0  # seconds that SQLite waits for another process's transaction
OUTCOME, DRAW, CELL = "outcome", "draw", "cell"  # user attributes of a trial


@contextlib.contextmanager
def draw_lock(folder: Path) -> Iterator[None]:
    """Wait for the lock of drawing and hold it. The lock of a process is released when it ends."""
    try:
        handle = os.open(folder / TURN, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise FileError(f"{folder} cannot be written to: {error.strerror}. Check its permissions.") from error
    try:
        if fcntl is not None:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def new_search_folder(out: str | Path | None, name: str) -> Path:
    """Return the folder of a search, as defined by `create_group_folder`."""
    return create_group_folder(out, "search", name, ABOUT, beside=(TURN, STUDY))


SEARCH = {
    "model": str,
    "data": str,
    "own?": {"path": str, "kinds": {...: str}},
    "space": {...: str},
    "fixed": dict,
    "search": dict,
    "typed": dict,
    "trials": Between(1, 2**31 - 1),
    "metric": str,
    "directions": [Choice(("maximize", "minimize")), ...],
    "task": str,
    "data_name": str,
    "splits": {"train": int, ...: int},
    "fingerprint": str,
    "split_hash": str,
    "cutaway": str,
    "optuna": str,
    "started": str,
    "tested": [int],
}
OUTCOMES = {
    "state": Choice(("finished", "pruned", "rejected", "diverged")),
    "epochs": int, "seconds": NUMBER, "macs": int | None, "parameters": int | None, "work": NUMBER, "why": str,
}  # fmt: skip


def read_about(folder: str | Path) -> dict[str, Any]:
    """Read search.json of a folder. Raises FileError if it is missing or invalid."""
    about = read_group_document(folder, "search", ABOUT, ("model", "data", "space", "fixed", "search"))
    validate_document(about, SEARCH, Path(folder) / ABOUT, "Restore it from a backup, or search again.")
    return about


def read_trials(study: optuna.Study, params: Iterable[str]) -> list[FrozenTrial]:
    """Return the trials of a study that ended and were not killed.

    Raises FileError if a trial has no outcome or no drawn value of one of the `params`.
    """
    fix = "Restore the folder from a backup, or search again."
    try:
        trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
    except Exception as error:  # of SQLite, SQLAlchemy, JSON and Optuna
        if isinstance(error, MemoryError):
            raise
        raise FileError(f"{STUDY} could not be read ({_first_line(error)}). {fix}") from error
    for trial in trials:
        validate_document(
            trial.user_attrs, {OUTCOME: OUTCOMES, f"{CELL}?": list}, Path(f"{STUDY}, trial {trial.number}"), fix
        )
        if lost := [name for name in params if name not in trial.params]:
            raise FileError(f"{STUDY}, trial {trial.number}: {shorten(lost[0])} has no value. {fix}")
    return trials


def _first_line(error: Exception) -> str:
    return shorten(str(error).splitlines()[0], 120) if str(error) else type(error).__name__


def open_study(folder: Path, directions: Sequence[Any], pruner: optuna.pruners.BasePruner) -> optuna.Study:
    """Open or create the study of a folder. Raises FileError if its storage cannot be read."""
    path = folder / STUDY
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # its messages would duplicate the progress

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(path, timeout=WAIT, check_same_thread=False)

    try:
        with draw_lock(folder):  # processes that create the tables at the same time would corrupt them
            # By a function and not a URL, because a path may contain characters that are special there.
            storage = optuna.storages.RDBStorage("sqlite://", engine_kwargs={"creator": connect, "poolclass": NullPool})
            return optuna.create_study(
                storage=storage, study_name=NAME, directions=directions, pruner=pruner, load_if_exists=True
            )
    except Exception as error:
        if isinstance(error, MemoryError):
            raise
        raise FileError(
            f"{path} could not be read ({_first_line(error)}). It may be damaged: restore it from a backup."
        ) from error


def trial_folder(folder: Path, number: int) -> Path:
    """Return the folder of a trial."""
    return folder / TRIALS / str(number)


def fail_killed_trials(study: optuna.Study, folder: Path) -> list[FrozenTrial]:
    """Mark running trials without a lock as failed and return the others. The caller must hold `turn`."""
    running = []
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        held = trial_folder(folder, trial.number)
        if held.is_dir() and _is_locked(held):
            running.append(trial)
        else:
            study.tell(trial.number, state=TrialState.FAIL)
    return running


def _is_locked(folder: Path) -> bool:
    try:
        with lock_run(folder):
            return False
    except RunInUse:
        return True
