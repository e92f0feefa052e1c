"""A search's folder, which several processes share and none can spoil: search.json, study.db, and who works on what.

    search.json   what is searched, and how
    study.db      every trial, in Optuna's SQLite storage
    trials/N/     what trial N writes while it trains; held by the process that trains it, and gone in the end
    best/         the winner, a run like any other
    report.html   the page

A trial is drawn in turn, by one process at a time. A trial that is said to run and that nobody holds was killed: it is
put aside as failed, and what it was to try is drawn again.
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

from ...core.errors import FileError, short
from ...core.schema import NUMBER, Between, OneOf, reject_unlike
from ...training.run_folder import RunInUse, about_several, folder_of_several, locked

try:
    import fcntl
except ImportError:  # no such locks on this system: one process alone
    fcntl = None  # type: ignore[assignment]

ABOUT, STUDY, TRIALS, BEST, REPORT, TURN = "search.json", "study.db", "trials", "best", "report.html", ".turn"
NAME = "search"  # of the study
WAIT = 120.0  # seconds that SQLite waits for another process's transaction
OUTCOME, DRAW, CELL = "outcome", "draw", "cell"  # what is kept of a trial beside its values


@contextlib.contextmanager
def turn(folder: Path) -> Iterator[None]:
    """Wait until no other process draws, and keep others from it. What a process held is free when it ends."""
    try:
        handle = os.open(folder / TURN, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise FileError(f"{folder} cannot be written to: {error.strerror}. Check its permissions.") from error
    try:
        if fcntl is not None:
            with contextlib.suppress(OSError):  # a file system without locks: better no lock than no search
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def new_search_folder(out: str | Path | None, name: str) -> Path:
    """The folder of a search, as `folder_of_several` says."""
    return folder_of_several(out, "search", name, ABOUT, beside=(TURN, STUDY))


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
    "directions": [OneOf(("maximize", "minimize")), ...],
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
    "state": OneOf(("finished", "pruned", "rejected", "diverged")),
    "epochs": int, "seconds": NUMBER, "macs": int | None, "parameters": int | None, "work": NUMBER, "why": str,
}  # fmt: skip


def read_about(folder: str | Path) -> dict[str, Any]:
    """search.json of a folder. Raises FileError where it is no search, or not what one writes."""
    about = about_several(folder, "search", ABOUT, ("model", "data", "space", "fixed", "search"))
    reject_unlike(about, SEARCH, Path(folder) / ABOUT, "Take it from a copy, or search again.")
    return about


def read_trials(study: optuna.Study, params: Iterable[str]) -> list[FrozenTrial]:
    """The trials of a study that ended, and were not killed. Raises FileError where one does not say what it came to,
    or what was drawn of each of the `params`."""
    fix = "Take the folder from a copy, or search again."
    try:
        trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
    except Exception as error:  # of SQLite, SQLAlchemy, JSON and Optuna
        if isinstance(error, MemoryError):
            raise
        raise FileError(f"{STUDY} could not be read ({_first_line(error)}). {fix}") from error
    for trial in trials:
        reject_unlike(
            trial.user_attrs, {OUTCOME: OUTCOMES, f"{CELL}?": list}, Path(f"{STUDY}, trial {trial.number}"), fix
        )
        if lost := [name for name in params if name not in trial.params]:
            raise FileError(f"{STUDY}, trial {trial.number}: {short(lost[0])} has no value. {fix}")
    return trials


def _first_line(error: Exception) -> str:
    return short(str(error).splitlines()[0], 120) if str(error) else type(error).__name__


def open_study(folder: Path, directions: Sequence[Any], pruner: optuna.pruners.BasePruner) -> optuna.Study:
    """The study in a folder, new or as it stands. Raises FileError where its storage cannot be read."""
    path = folder / STUDY
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # it would tell of itself beside what is told here

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(path, timeout=WAIT, check_same_thread=False)

    try:
        with turn(folder):  # two that made the tables at once would spoil each other's
            # Through a function and no address, as a path may have signs in it that mean something there.
            storage = optuna.storages.RDBStorage("sqlite://", engine_kwargs={"creator": connect, "poolclass": NullPool})
            return optuna.create_study(
                storage=storage, study_name=NAME, directions=directions, pruner=pruner, load_if_exists=True
            )
    except Exception as error:
        if isinstance(error, MemoryError):
            raise
        raise FileError(
            f"{path} could not be read ({_first_line(error)}). It may be damaged: take it from a copy."
        ) from error


def trial_folder(folder: Path, number: int) -> Path:
    """Where a trial works."""
    return folder / TRIALS / str(number)


def put_aside_killed(study: optuna.Study, folder: Path) -> list[FrozenTrial]:
    """Mark trials as failed that are said to run and that nobody holds; those that somebody does. Call it in turn."""
    running = []
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        held = trial_folder(folder, trial.number)
        if held.is_dir() and _is_held(held):
            running.append(trial)
        else:
            study.tell(trial.number, state=TrialState.FAIL)
    return running


def _is_held(folder: Path) -> bool:
    try:
        with locked(folder):
            return False
    except RunInUse:
        return True
