"""Folder of a search, which several processes can share, and the specification that is stored in it.

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.pool import NullPool

from ...checkpoints.factory import ModuleBuilder, builder_from_document, to_builder
from ...core.config import as_text, build, exact_text
from ...core.errors import (
    FileError,
    IncompatibleSettingError,
    MissingSettingError,
    ResumeError,
    WriteError,
    shorten,
)
from ...core.schema import NUMBER, Between, Choice, name_document_in_errors, validate_document
from ...data.dataset_base import IN_MEMORY
from ...data.in_memory.source import InMemorySource
from ...models.registry import Preset, preset
from ...training.run_folder import RunInUse, lock_run
from ..experiment import absolute_location, create_experiment_folder, read_experiment, reject_other_out
from ..settings import SearchSettings, reject_unused_search_settings
from .space import Space, parse_space, reject_other_than_cells, sort_settings

try:
    import fcntl
except ImportError:  # no such locks on this system, so only one process can be used
    fcntl = None  # type: ignore[assignment]

DOCUMENT, STUDY, TRIALS, BEST, DRAW_LOCK = "search.json", "study.db", "trials", "best", ".turn"
STUDY_NAME = "search"  # name of the study
SQLITE_TIMEOUT = 120.0  # seconds that SQLite waits for another process's transaction
OUTCOME, DRAW, CELL = "outcome", "draw", "cell"  # user attributes of a trial
FINISHED, PRUNED, REJECTED, DIVERGED = "finished", "pruned", "rejected", "diverged"  # states of an ended trial
CUSTOM_MODEL = "own"  # key of search.json for the maker of custom modules


@dataclass
class SearchSpec:
    """Specification of a search."""

    model: Preset
    source: str | InMemorySource
    space: Space
    fixed: dict[str, Any]
    settings: SearchSettings
    search_settings: dict[str, Any]  # settings of the search that were given

    @property
    def seed(self) -> int:
        """Return the seed of the draws, which is that of the trainings if it is fixed."""
        return int(self.fixed.get("seed", 0))

    def document(self) -> dict[str, Any]:
        """Return everything that searches with the same folder must have in common, without the number of trials."""
        return {
            "model": self.model.name,
            "data": IN_MEMORY if isinstance(self.source, InMemorySource) else self.source,
            "space": self.space.texts(),
            "fixed": {key: exact_text(value) for key, value in self.fixed.items()},
            "search": {key: value for key, value in asdict(self.settings).items() if key != "trials"},
            **(
                {CUSTOM_MODEL: {"path": self.model.path, "kinds": self.model.kinds}}
                if isinstance(self.model, ModuleBuilder)
                else {}
            ),
        }


def new_spec(model: Any, source: Any, given: Mapping[str, Any], space: Mapping[str, Any] | None) -> SearchSpec:
    """Return the specification of a new search. Raises SettingError or UnknownName for invalid input."""
    if model is None or source is None:
        raise MissingSettingError(
            "Missing model, data or range: cutaway search MODEL DATA lr=1e-4..1e-1:log. `cutaway list` shows "
            "the models."
        )
    found = preset(model) if isinstance(model, str) else to_builder(model)
    how, searched, fixed = sort_settings(found, given)
    for key in space or {}:
        if key in how or key in SearchSettings.__dataclass_fields__:
            raise IncompatibleSettingError(f"Invalid {key}: a setting of the search itself cannot be searched.")
        if key in searched:
            raise IncompatibleSettingError(f"{key} is given twice: in space and as a setting.")
    settings = build(SearchSettings, how)
    reject_unused_search_settings(settings, how)
    searched |= space or {}
    whole = parse_space(found, searched, fixed)
    if settings.sampler == "darts":
        reject_other_than_cells(whole)
    if settings.sampler in ("grid", "reinforce"):
        whole.values(settings.sampler)  # rejects unlimited ranges
    return SearchSpec(
        found,
        source if isinstance(source, InMemorySource) else absolute_location(str(source)),
        whole,
        dict(fixed),
        settings,
        dict(how),
    )


def resume_spec(
    folder: Path,
    model: Any,
    source: Any,
    given: Mapping[str, Any],
    space: Mapping[str, Any] | None,
    out: str | Path | None,
) -> SearchSpec:
    """Return the specification of a search that is continued, with more trials if they are given."""
    about = read_search(folder)
    reject_other_out(folder, out)
    with name_document_in_errors(folder / DOCUMENT):
        build(SearchSettings, about["search"])
        parse_space(model_from_document(about), about["space"], about["fixed"])
    in_memory = about["data"] == IN_MEMORY
    if in_memory and not isinstance(source, InMemorySource):
        raise ResumeError(
            "The data of this search was passed in Python: pass it again, search(data=DATA, resume=FOLDER)."
        )
    if isinstance(source, InMemorySource) and not in_memory:
        raise IncompatibleSettingError(
            f"The data of this search is {about['data']}, which is opened automatically: leave data out."
        )
    handed = model is not None and not isinstance(model, str)
    found = to_builder(model) if handed else model_from_document(about)
    if CUSTOM_MODEL in about and not handed:
        raise ResumeError(
            f"The model of this search is built by {about[CUSTOM_MODEL]['path']}: pass it again, e.g. "
            f"search({found.name}, resume={str(folder)!r})."
        )
    model = found.name if handed else model
    located_now = None if source is None or in_memory else absolute_location(str(source))
    for what, now, then in (("model", model, about["model"]), ("data", located_now, about["data"])):
        if now is not None and now != then:
            raise ResumeError(
                f"The {what} of this search is {then}, not {now}. Leave MODEL and DATA out with --resume."
            )
    for key, value in {**given, **(space or {})}.items():
        if key != "trials":
            raise ResumeError(
                f"Invalid {key}={shorten(value if isinstance(value, str) else as_text(value))}: cannot change when a "
                "search is resumed (only trials can). Start another search."
            )
    how = {**about["typed"], **given}
    settings = build(SearchSettings, {**about["search"], "trials": given.get("trials", about["trials"])})
    whole = parse_space(found, about["space"], about["fixed"])
    return SearchSpec(found, source if in_memory else about["data"], whole, dict(about["fixed"]), settings, how)


def model_from_document(about: Mapping[str, Any]) -> Preset:
    """Return the model of a search from its document. For custom modules only their settings are known."""
    own = about.get(CUSTOM_MODEL)
    return preset(about["model"]) if own is None else builder_from_document(about["model"], own["path"], own["kinds"])


@contextlib.contextmanager
def draw_lock(folder: Path) -> Iterator[None]:
    """Wait for the lock of drawing and hold it. The lock of a process is released when it ends."""
    try:
        handle = os.open(folder / DRAW_LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise WriteError(f"{folder} cannot be written to: {error.strerror}. Check its permissions.") from error
    try:
        if fcntl is not None:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def new_search_folder(out: str | Path | None, name: str) -> Path:
    """Return the folder of a search, as defined by `create_experiment_folder`."""
    return create_experiment_folder(out, "search", name, DOCUMENT, others=(DRAW_LOCK, STUDY))


DOCUMENT_SCHEMA = {
    "model": str,
    "data": str,
    "own?": {"path": str, "kinds": {...: str}},
    "space": {...: str},
    "fixed": dict,
    "search": {"sampler": str},
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
OUTCOME_SCHEMA = {
    "state": Choice((FINISHED, PRUNED, REJECTED, DIVERGED)),
    "epochs": int, "seconds": NUMBER, "macs": int | None, "parameters": int | None, "work": NUMBER, "why": str,
}  # fmt: skip


def read_search(folder: str | Path) -> dict[str, Any]:
    """Read search.json of a folder. Raises FileError if it is missing or invalid."""
    about = read_experiment(folder, "search", DOCUMENT, ("model", "data", "space", "fixed", "search"))
    validate_document(about, DOCUMENT_SCHEMA, Path(folder) / DOCUMENT, "Restore it from a backup, or search again.")
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
            trial.user_attrs, {OUTCOME: OUTCOME_SCHEMA, f"{CELL}?": list}, Path(f"{STUDY}, trial {trial.number}"), fix
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
        return sqlite3.connect(path, timeout=SQLITE_TIMEOUT, check_same_thread=False)

    try:
        with draw_lock(folder):  # processes that create the tables at the same time would corrupt them
            # By a function and not a URL, because a path may contain characters that are special there.
            storage = optuna.storages.RDBStorage("sqlite://", engine_kwargs={"creator": connect, "poolclass": NullPool})
            return optuna.create_study(
                storage=storage, study_name=STUDY_NAME, directions=directions, pruner=pruner, load_if_exists=True
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
    """Mark running trials without a lock as failed and return the others. The caller must hold `draw_lock`."""
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
