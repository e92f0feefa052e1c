"""Folder of a run: creating it, locking it for one process, and reading and writing its documents.

A process that trains holds a lock on `.lock` in the folder. The system releases it when the process ends for any
reason, so that a killed run can be resumed at once. The file names the holder of the lock; without a lock its content
has no meaning. Leftovers of killed processes are removed.

The documents run.json, evaluation.json and layers.json are validated against schemas when they are read. Entries that
every run has are required. Entries that only some runs have, or that earlier versions did not write, are optional.
"""

from __future__ import annotations

import contextlib
import csv
import io
import math
import os
import re
import shutil
import socket
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..core.config import build, pick, upgrade_settings
from ..core.errors import (
    AlreadyExistsError,
    FileError,
    NotARunError,
    PythonDataError,
    WriteError,
    shorten,
    shorten_repr,
)
from ..core.files import (
    BOARD,
    EXPORTED,
    OF_A_RUN,
    RUN,
    exists,
    is_temp_file,
    missing_file_error,
    read_bytes,
    read_json,
    watch_folder,
)
from ..core.schema import NUMBER, name_document_in_errors, validate_document, write_document
from ..core.spec import TASKS_BEFORE, current_kind
from ..data.dataset_base import IN_MEMORY
from ..data.settings import DataSettings
from ..models.registry import find
from .config import TrainSettings

try:
    import fcntl
except ImportError:  # this system has no such locks
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"
UNFINISHED = ".unfinished"  # marks a run that is not complete yet
HOLD_WEIGHTS = ("checkpoints", "model", "snapshots")
SAFETENSORS_TEMP = re.compile(r"\.tmp\w{6}")  # temporary files of safetensors, written by earlier versions
Cell = float | str | None  # of metrics.csv
_locks: set[int] = set()  # descriptors of this process


class RunInUse(FileError):
    """Raised if another process, the `holder`, works on this run."""

    code = "CUT-305"

    def __init__(self, folder: Path, holder: str) -> None:
        self.holder = holder
        super().__init__(
            f"{folder} is in use: {holder} works on it, and two at once would overwrite each other's files. "
            "Wait until it ends, or stop it; or use another folder."
        )


class RunExists(FileError):
    """Raised if the folder for a new run holds another run."""

    code = "CUT-303"


def reject_no_run(folder: Path) -> None:
    """Raise FileError if the folder is not a run, or a run that was never completed."""
    if (folder / UNFINISHED).is_file() and not any(_is_same_file(handle, folder / LOCK) for handle in _locks):
        raise NotARunError(
            f"{folder} is not a complete run: the command that wrote it was stopped, or is still running. Run that "
            "command again: it starts from the beginning."
        )
    if (folder / RUN).is_file():
        reject_not_utf8(folder)
        return
    if not exists(folder):
        raise missing_file_error(folder, "run", "`cutaway train` writes runs, by default to runs/.")
    if folder.suffix in EXPORTED and folder.is_file():
        raise NotARunError(
            f"{folder} is an exported file, not the folder of a run. Give the run that it was exported from; only "
            "`cutaway predict` and `cutaway evaluate` accept an .onnx file of `cutaway export`."
        )
    inside = [str(found.parent) for found in sorted(folder.glob(f"*/{RUN}"))]
    named = f" These in it are: {', '.join(inside[:5])}{', …' if inside[5:] else ''}." if inside else ""
    raise NotARunError(
        f"{folder} is not a run: it has no run.json.{named} `cutaway train` writes runs, by default to runs/."
    )


def reject_not_utf8(folder: Path) -> None:
    """Raise FileError for a folder name that safetensors cannot open."""
    try:
        str(folder).encode()
    except UnicodeEncodeError as error:
        raise FileError(
            f"The name of the folder {folder} is not UTF-8, and weights can be read from no such folder. Give a run "
            "another name, or rename the folder."
        ) from error


@contextlib.contextmanager
def lock_run(folder: Path) -> Iterator[None]:
    """Lock the run's folder within this context.

    Raises RunInUse if another process holds it, and FileError if the folder is not writable.
    """
    path = folder / LOCK
    handle = _lock(path)
    _locks.add(handle)
    try:
        with watch_folder(folder):
            yield
    finally:
        _locks.discard(handle)
        with contextlib.suppress(OSError):
            if _is_same_file(handle, path):
                path.unlink()  # before unlocking: a waiting process notices this and creates a new file
        os.close(handle)


def _lock(path: Path) -> int:
    """Open and lock the file, write the holder into it, and return its descriptor."""
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise WriteError(f"{path.parent} cannot be written to: {error.strerror}. Check its permissions.") from error
        try:
            if fcntl is not None:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(handle, 300, 0).decode("utf-8", "replace").strip()
            os.close(handle)
            raise RunInUse(path.parent, holder or "another process") from None
        except OSError:  # the file system has no locks: train without one
            pass
        if _is_same_file(handle, path):
            since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
            said = f"process {os.getpid()} on {socket.gethostname()}, since {since},"
            with contextlib.suppress(OSError):  # on a full disk the lock is held without a name
                os.ftruncate(handle, 0)
                os.pwrite(handle, said.encode(), 0)
            return handle
        os.close(handle)


def _is_same_file(handle: int, path: Path) -> bool:
    """Return whether the path still refers to the opened file."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except OSError:
        return False


def _close_inherited_locks() -> None:
    """Close the locks in a forked child, which would otherwise hold them after the parent has ended."""
    for handle in _locks:
        os.close(handle)
    _locks.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited_locks)


def create_run_folder(out: str | Path | None, name: str, overwrite: bool, inputs: Iterable[str | Path]) -> Path:
    """Return a folder for a new run: `out`, or the next free runs/NAME-N.

    With `overwrite` it may hold a run, whose files are removed once it is locked. Raises FileError if it holds anything
    else, or contains one of the paths in `inputs`.
    """
    if out is None:
        return create_numbered_folder(name)
    folder = Path(out)
    reject_not_utf8(folder)
    # A kill before run.json was written leaves only leftovers: the folder counts as empty.
    if not folder.exists() or (folder.is_dir() and all(_is_lock_or_leftover(entry) for entry in folder.iterdir())):
        return make_folder(folder)
    if (folder / UNFINISHED).is_file():
        raise AlreadyExistsError(
            f"{folder} holds the incomplete result of another command, and nothing in it is overwritten. Give another "
            "folder, or remove this one."
        )
    if not (folder / RUN).is_file():
        raise AlreadyExistsError(
            f"{folder} already exists, is not a run, and nothing in it is overwritten. Give another folder."
        )
    if not overwrite:
        way = "" if _cannot_resume(folder) else f", or go on with the run: `cutaway train --resume {folder}`"
        raise RunExists(f"{folder} exists already and nothing in it is overwritten. Give another folder{way}.")
    for given in inputs:
        if Path(given).resolve().is_relative_to(folder.resolve()):
            raise AlreadyExistsError(f"Cannot overwrite {folder}: this run reads {given}. Give another folder.")
    return folder


def _cannot_resume(folder: Path) -> bool:
    """Return whether the run in a folder cannot be resumed: it is quantized, or its run.json cannot be read."""
    try:
        return "quantized" in read_json(folder / RUN)
    except FileError:
        return True


@contextlib.contextmanager
def atomic_run(out: str | Path | None, name: str) -> Iterator[Path]:
    """Create a folder for a new run, as `create_run_folder` does, and lock it within this context.

    If the block fails, everything in the folder is removed: a run is either complete or absent. Leftovers of a killed
    process are removed when the same folder is requested again. Raises FileError before anything is computed.
    """
    fresh, done = out is None or not Path(out).exists(), False
    if out is not None and (Path(out) / UNFINISHED).is_file():
        with lock_run(Path(out)):
            _clear(Path(out))
    folder = create_run_folder(out, name, overwrite=False, inputs=())
    try:
        with lock_run(folder):
            try:
                (folder / UNFINISHED).touch()
                yield folder
                (folder / UNFINISHED).unlink()
                done = True
            finally:
                if not done:
                    with contextlib.suppress(FileError):  # report the original error
                        _clear(folder)
    finally:
        if fresh and not done:
            with contextlib.suppress(OSError):  # another process holds it
                folder.rmdir()


def create_numbered_folder(name: str) -> Path:
    """Create and return the next free folder runs/NAME-N. Raises FileError if it cannot be created."""
    for n in range(1, 1_000_000):
        with contextlib.suppress(FileExistsError):
            return make_folder(Path("runs") / f"{name}-{n}", exist_ok=False)
    raise AlreadyExistsError("runs/ is full of runs of this name: move them away, or name another folder.")


def make_folder(folder: Path, exist_ok: bool = True) -> Path:
    """Create a folder and those above it, and return it.

    Raises FileError if it cannot be created, but FileExistsError if it exists and `exist_ok` is false.
    """
    try:
        folder.mkdir(parents=True, exist_ok=exist_ok)
    except OSError as error:
        if isinstance(error, FileExistsError) and not exist_ok:
            raise
        raise WriteError(f"Cannot create {folder}: {error.strerror}. Give a folder that can be written to.") from error
    return folder


def clear_run(folder: Path) -> None:
    """Remove the files of a run, run.json first, and keep all other files."""
    for entry in (folder / RUN, *folder.iterdir()):
        if entry.name in OF_A_RUN or entry.name.startswith(BOARD):
            _remove(entry)


def _clear(folder: Path) -> None:
    """Remove everything except the lock."""
    for entry in folder.iterdir():
        if entry.name != LOCK:
            _remove(entry)


def clear_leftovers(folder: Path) -> None:
    """Remove partial files of killed processes, which can be as large as a checkpoint."""
    inside = [entry for name in HOLD_WEIGHTS for entry in (folder / name).glob(".tmp*")]
    for entry in [entry for entry in folder.rglob(".*.part") if is_temp_file(entry)]:
        _remove(entry)
    for entry in inside:
        if SAFETENSORS_TEMP.fullmatch(entry.name):
            _remove(entry)


def _remove(entry: Path) -> None:
    try:
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink(missing_ok=True)
    except OSError as error:
        raise WriteError(f"{entry} could not be removed: {error.strerror}. Check its permissions.") from error


def _is_lock_or_leftover(entry: Path) -> bool:
    return entry.name == LOCK or is_temp_file(entry)


# --- documents -------------------------------------------------------------------------------------------------------

TEXT, FIGURE = str | None, NUMBER | None  # FIGURE: null for infinity and NaN
METRIC = {"value": FIGURE, "low": FIGURE, "high": FIGURE, "note?": str}  # note: reason for a missing interval
SURE = {"value": NUMBER, "low": NUMBER, "high": NUMBER}

COLUMN = {"name": str, "role": str, "type": str, "missing": str, "example": str}
DISTRIBUTION = {
    "name": str, "type": str, "missing": int, "counts": [int], "ends?": [str], "labels?": [str], "different?": int,
}  # fmt: skip
RUN_SCHEMA = {
    "model": str,
    "own?": str,  # for your own module: the path of its class
    "data": {
        "source": str,
        "path?": str,
        "name": str,
        "kind": str,
        "fingerprint": str,
        "split_hash": str,
        "splits": {"train": int, ...: int},
        "image_sizes?": {"least": int, "usual": int, "step": int, "only?": int},
        "notes?": [str],
        "findings?": [str],
        "evidence?": [{"finding": str, "examples": [[str]]}],
        "columns?": [COLUMN],
        "distributions?": [DISTRIBUTION],
        "licence?": str,
        "example?": str,
    },
    "task": str,
    "loss": str,
    "settings": dict,
    "model_settings": dict,
    "weights?": {"path": str, "sha256": str, "notes": [str], "new?": [str], "tensors?": int},
    "quantized?": {"method": str, "bits": int, "group": int, "calibration": int, "from": str, "qat?": int},
    "seed": int,
    "command": str,
    "parameters": int,
    "versions": {...: str},
    "machine": {"device": str, "threads?": int, "cores?": int, ...: str | int | None},
    "notes?": [str],
    "tracker?": {"name": str, "id": str},  # id of the run in an experiment tracker
    "status": str,
    "started": str,
    "finished?": str,
    "resumed?": int,
    "cutaway?": str,
    # After the end of training:
    "epochs_done?": int,
    "seconds?": NUMBER,
    "stopped?": str,
    "best?": {"epoch": int, "metric": str, "value": FIGURE},
    "average?": {"first": int, "last": int, "score": FIGURE},
    "summary?": str,
}

EXAMPLE = {
    "name": str, "actual": str, "predicted": str, "loss": FIGURE, "confidence": FIGURE, "picture": TEXT,
    "row?": {...: TEXT}, "boxes?": [{"box": [NUMBER], "name": str, "score": FIGURE, "kind": str}],
}  # fmt: skip
SAMPLE = {"name": str, "prompt": str, "written": str, "actual": str}
OPERATING = {"threshold": NUMBER, "recall": NUMBER, "precision": FIGURE, "false_positives": NUMBER}
AREA = {"value": NUMBER, "low": FIGURE, "high": FIGURE, "note?": str}
CURVE = {
    "name": str, "examples": int, "fraction": FIGURE, "auc": AREA, "average_precision": AREA,
    "roc?": [NUMBER], "precision?": [NUMBER], "operating?": OPERATING,
}  # fmt: skip
BIN = {"bin": int, "count": int, "said": NUMBER, "was": NUMBER}
CLASS = {"name": str, "count": int, "precision": METRIC, "recall": METRIC, "f1": METRIC}
OF_MASKS = {"name": str, "pixels": int, "images": int, "iou": METRIC}
EVALUATION_SCHEMA = {
    "split": str,
    "count": int,
    "watch": str,
    "metrics": {...: METRIC},
    "baseline?": {"name": str, "value": FIGURE},
    "baseline_test?": {"better": bool, "only?": str},
    "simple?": {"metric": str, "models": [{"name": str, "explanation": str, **METRIC}, ...], "left_out": [str]},
    "worst": [EXAMPLE],
    "right?": [EXAMPLE],
    "translations?": [EXAMPLE],
    "samples?": [SAMPLE],
    "signatures?": {...: str},
    "classes?": {"names": [str], "per_class": [CLASS], "confusion?": [[int]], "cells?": [[str | int]]},
    "masks?": {"names": [str], "confusion": [[int]], "per_class": [OF_MASKS]},
    "discrimination?": {"of": int, "examples": int, "score": str, "classes": [CURVE, ...]},
    "calibration?": {
        "of?": str, "examples": int, "brier": NUMBER, "error": METRIC,
        "counts": [int], "edges": [NUMBER], "bins": [BIN, ...],
        "scaled?": {"temperature": NUMBER, "brier": NUMBER, "error": METRIC, "bins": [BIN, ...]},
    },
    "importance?": {
        "metric": str, "rows": int, "repeats": int, "columns": [{"name": str, **SURE}],
    },
    "tasks?": {"names": [str], "accuracy": [[FIGURE]]},
    "boxes?": {"per_class": [{"name": str, "count": int, "map": FIGURE, "map_50": FIGURE}]},
    "values?": {"column": str, "actual": [NUMBER], "predicted": [NUMBER]},
    "baselines?": [{"key": str, "name": str, "difference": METRIC, "mae": METRIC, "rmse": METRIC, "mase?": METRIC}],
    "forecast?": {
        "best": str, "columns": [str, ...], "horizon": int, "season": int, "unit": str,
        "steps": [{"key": str, "name": str, "rmse": [FIGURE]}, ...],
        "series?": [{"name": str, "count": int, "rmse": {...: FIGURE}}, ...],
        "examples": [{"name": str, "seen": [FIGURE, ...], "actual": [FIGURE], "model": [FIGURE], "best": [FIGURE]}],
    },
}  # fmt: skip

# Keys before 0.7 and their current names, for reading old runs. To be removed in 1.0.
MOVED = {
    "data.parts": "splits",
    "part": "split",
    "measures": "metrics",
    "verdict": "summary",
    "discrimination.classes.share": "fraction",
}


DATA_FROM_PYTHON_FIX = "Give it again, as in run.set_data(DATA).evaluate(); or other data, as in run.evaluate((X, y))."


DIVERGENCE = {"what?": str, "paper?": str, "here?": str, "common?": str}
CARD = {
    "title": str, "authors": str, "year": int, "link": str, "equation": str, "divergences?": [DIVERGENCE],
}  # fmt: skip
LAYER = {
    "name": str, "type": str, "shape": [int], "parameters": int, "multiply_adds": int | None,
    "receptive_field?": int, "frames?": int,
}  # fmt: skip
LAYERS_SCHEMA = {
    "input": [int],
    "rows": [LAYER, ...],
    "parameters": int,
    "multiply_adds": int,
    "complete?": bool,
    "tree?": dict,
    "card?": CARD,
    "config?": dict,
}


def read_layers(folder: Path) -> dict[str, Any] | None:
    """Read layers.json of a run's folder; None if it does not exist. Raises FileError as `read_run` does."""
    path = folder / "layers.json"
    return _read(path, LAYERS_SCHEMA, "`cutaway report RUN` writes it again.") if path.is_file() else None


def read_run(folder: Path) -> dict[str, Any]:
    """Read run.json of a run's folder. Raises FileError with file and key if it does not match the schema."""
    about = _read(folder / "run.json", RUN_SCHEMA, "Restore it from a copy, or train again.")
    about["data"]["kind"] = current_kind(about["data"]["kind"])
    about["task"] = TASKS_BEFORE.get(about["task"], about["task"])
    own, found = about["model_settings"], find(about["model"])
    with name_document_in_errors(folder / "run.json"):
        for group in (TrainSettings, DataSettings):
            build(group, pick(upgrade_settings(about["settings"]), group))
    return about | {
        "settings": upgrade_settings(about["settings"]),
        "model_settings": found.as_now(own) if found else own,
    }


def data_source(data: Mapping[str, Any]) -> str:
    """Return the source from which the data of a run is opened again: its absolute path if there is one, else its name.

    `data` is that part of run.json. Raises DataError if the data was passed in Python.
    """
    if data["source"] == IN_MEMORY:
        raise PythonDataError("This run's data was given in Python, and is not available.", fix=DATA_FROM_PYTHON_FIX)
    return str(data.get("path") or data["source"])


def read_evaluation(folder: Path) -> dict[str, Any] | None:
    """Read evaluation.json of a run's folder; None if the run has none. Raises FileError as `read_run` does."""
    path = folder / "evaluation.json"
    fix = "Restore it from a copy, or train again; `cutaway evaluate RUN` computes the metrics and prints them."
    if not path.is_file():
        return None
    found = _read(path, EVALUATION_SCHEMA, fix)
    for name, *places in EQUAL_LENGTHS:
        part = found.get(name) or {}
        lengths = {place: len(part[place]) for place in places if part.get(place) is not None}
        if len({*lengths.values()}) > 1 or (lengths and not any(lengths.values())):
            said = " and ".join(f"{name}.{place} has {count:,}" for place, count in lengths.items())
            raise FileError(f"{path}: {said} entries: all must have the same number. {fix}")
    for name in ("classes", "masks"):
        part = found.get(name) or {}
        if any(len(row) != len(part["names"]) for row in part.get("confusion") or ()):
            raise FileError(f"{path}: {name}.confusion is not square. {fix}")
    return found


# Lists in a part of evaluation.json that must have equal lengths.
EQUAL_LENGTHS = (
    ("values", "actual", "predicted"),
    ("classes", "names", "per_class", "confusion"),
    ("masks", "names", "per_class", "confusion"),
)


def read_metrics(path: Path) -> list[dict[str, Cell]]:
    """Read the rows of metrics.csv, with finite numbers as floats; return an empty list if there is no file yet.

    Raises:
        FileError: If a cell is not a number; the message has its line and column.
    """
    if not path.is_file():
        return []
    try:
        rows = list(csv.DictReader(io.StringIO(read_bytes(path).decode("utf-8-sig"), newline="")))
    except (ValueError, csv.Error) as error:
        raise FileError(f"{path} is not a valid CSV file ({shorten(error, 120)}). Restore it from a backup.") from error
    return [
        {name: _cell(text, f"{path}, line {line}, column {shorten(name)}") for name, text in row.items() if name}
        for line, row in enumerate(rows, 2)
    ]


def _cell(text: str | None, where: str) -> Cell:
    """Return a finite number as a float, other text unchanged (JSON has no infinity or NaN), and empty text as None."""
    if not text:
        return None
    try:
        number = float(text)
    except ValueError as error:
        raise FileError(f"{where}: {shorten_repr(text)} is not a number. Restore the file from a backup.") from error
    return number if math.isfinite(number) else text


def write_evaluation(folder: Path, document: dict[str, Any]) -> None:
    """Write evaluation.json of a run's folder. Undefined values (NaN, infinity) become null."""
    write_document(folder / "evaluation.json", document, EVALUATION_SCHEMA)


def _read(path: Path, schema: dict[Any, Any], fix: str) -> dict[str, Any]:
    """Read a document, rename keys of earlier versions, and validate it against the schema."""
    document: dict[str, Any] = read_json(path)
    for place, now in MOVED.items():
        *within, before = place.split(".")
        found: list[Any] = [document]
        for key in within:
            inner = [one[key] for one in found if isinstance(one, dict) and key in one]
            found = [each for one in inner for each in (one if isinstance(one, list) else [one])]
        for one in found:
            if isinstance(one, dict) and before in one:
                one.setdefault(now, one.pop(before))
    validate_document(document, schema, path, fix)
    return document
