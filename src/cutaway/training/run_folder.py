"""Folders of runs: creating them, locking them for one process, and removing leftovers of killed processes.

A process that trains holds a lock on `.lock` in the folder. The system releases it when the process ends for any
reason, so that a killed run can be resumed at once. The file names the holder of the lock; without a lock its content
has no meaning.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..core.errors import FileError
from ..core.files import BOARD, EXPORTED, OF_A_RUN, RUN, is_temp_file, read_json, reject_address, watch_folder

try:
    import fcntl
except ImportError:  # this system has no such locks
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"
UNFINISHED = ".unfinished"  # marks a run that is not complete yet
GROUP_NAMES = {
    "search": "search",
    "compare": "comparison",
}  # commands that train several runs, and the names of their results
HOLD_WEIGHTS = ("checkpoints", "model", "snapshots")
SAFETENSORS_TEMP = re.compile(r"\.tmp\w{6}")  # temporary files of safetensors, written by earlier versions
_locks: set[int] = set()  # descriptors of this process


class RunInUse(FileError):
    """Raised if another process, the `holder`, works on this run."""

    def __init__(self, folder: Path, holder: str) -> None:
        self.holder = holder
        super().__init__(
            f"{folder} is in use: {holder} works on it, and two at once would spoil each other's files. "
            "Wait until it has ended, or end it; or train another run, in another folder."
        )


class RunExists(FileError):
    """Raised if the folder for a new run holds another run."""


def reject_no_run(folder: Path) -> None:
    """Raise FileError if the folder is not a run, or a run that was never completed."""
    if (folder / UNFINISHED).is_file() and not any(_is_same_file(handle, folder / LOCK) for handle in _locks):
        raise FileError(
            f"{folder} is not a complete run: the command that wrote it was stopped, or is still running. Run that "
            "command again: it starts from the beginning."
        )
    if (folder / RUN).is_file():
        reject_not_utf8(folder)
        return
    reject_address(folder)
    if folder.suffix in EXPORTED and folder.is_file():
        raise FileError(
            f"{folder} is a file, and this takes a run's folder. Name the run that it was exported from; cutaway "
            "predict and cutaway evaluate take an .onnx that `cutaway export` wrote."
        )
    inside = [str(found.parent) for found in sorted(folder.glob(f"*/{RUN}"))]
    named = f" These in it are: {', '.join(inside[:5])}{', …' if inside[5:] else ''}." if inside else ""
    raise FileError(
        f"{folder} is not a run: it has no run.json.{named} `cutaway train` makes runs, by default in runs/."
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
            raise FileError(f"{path.parent} cannot be written to: {error.strerror}. Check its permissions.") from error
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
        for n in range(1, 1_000_000):
            with contextlib.suppress(FileExistsError):
                return _make_folder(Path("runs") / f"{name}-{n}", exist_ok=False)
        raise FileError("runs/ is full of runs of this name: move them away, or name another folder.")
    folder = Path(out)
    reject_not_utf8(folder)
    # A kill before run.json was written leaves only leftovers: the folder counts as empty.
    if not folder.exists() or (folder.is_dir() and all(_is_lock_or_leftover(entry) for entry in folder.iterdir())):
        return _make_folder(folder, exist_ok=True)
    if (folder / UNFINISHED).is_file():
        raise FileError(
            f"{folder} holds the incomplete result of another command, and nothing in it is overwritten. Give another "
            "folder, or remove this one."
        )
    if not (folder / RUN).is_file():
        raise FileError(f"{folder} exists already, is no run, and nothing in it is overwritten. Give another folder.")
    if not overwrite:
        way = "" if _cannot_resume(folder) else f", or go on with the run: `cutaway train --resume {folder}`"
        raise RunExists(f"{folder} exists already and nothing in it is overwritten. Give another folder{way}.")
    for given in inputs:
        if Path(given).resolve().is_relative_to(folder.resolve()):
            raise FileError(f"{given} is an input in {folder}, which is not overwritten. Give another folder.")
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


def create_group_folder(
    out: str | Path | None, command: str, name: str, about: str, beside: Iterable[str] = ()
) -> Path:
    """Return the folder of a search or a comparison: `out`, or the next free runs/COMMAND-NAME-N.

    It may hold the same one already, identified by its file `about`, or only the files in `beside`. Raises FileError if
    it holds anything else.
    """
    if out is None:
        for n in range(1, 1_000_000):
            with contextlib.suppress(FileExistsError):
                folder = Path("runs") / f"{command}-{name}-{n}"
                folder.mkdir(parents=True)
                return folder
    folder = Path(out or "")
    reject_not_utf8(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(
            f"{folder} could not be made: {error.strerror}. Give a folder that can be written to."
        ) from error
    there = {entry.name for entry in folder.iterdir() if not is_temp_file(entry)}
    # A kill before `about` was written leaves the lock.
    if not (folder / about).is_file() and there - {LOCK, *beside}:
        raise FileError(
            f"{folder} exists already, is no {GROUP_NAMES[command]}, and nothing in it is overwritten. Give another"
            " --out."
        )
    return folder


def read_group_document(folder: str | Path, command: str, about: str, keys: Iterable[str]) -> dict[str, Any]:
    """Return the content of the file `about` in such a folder, which has at least these keys.

    Raises FileError if the file does not exist or is damaged.
    """
    path, what = Path(folder) / about, GROUP_NAMES[command]
    if not path.is_file():
        reject_address(folder)
        raise FileError(
            f"{folder} is no {what}: it has no {about}. `cutaway {command}` makes them, and takes such a folder with "
            f"`cutaway {command} --resume`."
        )
    found = read_json(path)
    if not isinstance(found, dict) or not set(keys) <= set(found):
        raise FileError(f"{path} is not complete: it needs {', '.join(keys)}. Restore it from a copy.")
    return found


def _make_folder(folder: Path, exist_ok: bool) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=exist_ok)
    except OSError as error:
        if isinstance(error, FileExistsError) and not exist_ok:
            raise
        raise FileError(
            f"{folder} could not be made: {error.strerror}. Give a folder that can be written to."
        ) from error
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
        raise FileError(f"{entry} could not be removed: {error.strerror}. Check its permissions.") from error


def _is_lock_or_leftover(entry: Path) -> bool:
    return entry.name == LOCK or is_temp_file(entry)
