"""Reading and writing a person's files so that nothing is lost and nothing is waited for.

What is written goes to a temporary name in the same folder, is flushed, then renamed: a reader sees the old file or the
new one, whole; a full disk, a read-only folder or a kill leaves the old one. `reject_overwriting` is the one place that
says what may be replaced at all. Only regular files are read, and none that memory cannot hold.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import json
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from .errors import FileError, brief, short, visible

RUN = "run.json"  # by which a run's folder is known
OF_A_RUN = (RUN, "metrics.csv", "evaluation.json", "layers.json", "report.html", "model", "checkpoints", "snapshots")
EXPORTED = (".onnx", ".pt2")  # endings of the files that a run is exported to
BOARD = "events.out."  # how the name of TensorBoard's file begins, which a run holds too
MEBIBYTE = 1 << 20
DEEPEST = 100  # values within values of a JSON document: more would end the recursion of whatever goes through it
_watched: dict[Path, int] = {}  # folder → its descriptor, by which it is known (`watch_folder`)
READ_AT_MOST = 0.5  # of this machine's memory: a file is read whole


def reject_overwriting(
    path: str | os.PathLike[str], inputs: Iterable[str | os.PathLike[str]] = (), overwrite: bool = False
) -> None:
    """Raise FileError unless `path` may be written: it is none of `inputs`, nor in a folder that is one, and none of
    the files that make a run; and, unless `overwrite`, nothing stands there. Only a plain file is ever written over.
    A folder that cannot be written to is rejected too, before time is spent on what would be written."""
    path = Path(path)
    another = "Give another name."
    if path.is_dir():
        raise FileError(f"{path} is a folder, and what is written is a file: name one, as in {path / 'FILE'}.")
    place = path.parent.resolve() / path.name
    run = next((folder for folder in place.parents if (folder / RUN).is_file()), None)
    first = place.relative_to(run).parts[0] if run is not None else ""
    if first in OF_A_RUN or first.startswith(BOARD):
        raise FileError(f"{path} is one of the files that make {run} a run, and is not written over. {another}")
    home = next(filter(exists, path.absolute().parents), path.parent)  # what lies below will be made
    if not home.is_dir() or not os.access(home, os.W_OK | os.X_OK):
        wrong = "may not be written to" if home.is_dir() else "is no folder"
        raise FileError(f"{path} cannot be written: {home} {wrong}. Give another folder.")
    if not os.path.lexists(path):
        return
    if given := next((one for one in inputs if _holds(Path(one), place)), None):
        raise FileError(f"{path} is read here, as {given}, and no command writes over its own input. {another}")
    if not overwrite:
        raise FileError(f"{path} exists and is not written over. Give another name, or add --overwrite.")
    if exists(path) and not path.is_file():
        raise FileError(
            f"{path} is {_irregular(path.stat().st_mode)}, and only a plain file is written over. {another}"
        )


def _holds(given: Path, place: Path) -> bool:
    """Whether what was given is that file, or a folder that it stands in."""
    try:
        return os.path.samefile(given, place) or (given.is_dir() and place.is_relative_to(given.resolve()))
    except (OSError, ValueError):  # a text that was typed is no file, and may be no name of one
        return False


def read_bytes(path: str | os.PathLike[str], most: int | None = None) -> bytes:
    """What a plain file holds, at most `most` bytes or half of this machine's memory.

    Raises FileError where there is none, it cannot be read, is a pipe, a device or a folder, or is larger than that.
    """
    path = Path(path)
    bound = most if most is not None else int(READ_AT_MOST * memory())
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(size + 1) if size <= bound else b""  # what is asked for is set aside at once
            while size < len(data) <= bound and (more := file.read(MEBIBYTE)):  # it grows, or does not tell its size
                data += more
    except FileError:
        raise
    except OSError as error:
        raise unreadable(path, error) from error
    if size > bound or len(data) > bound:
        raise FileError(
            f"{path} has {size:,} bytes, and at most {bound:,} are read"
            + (" on this machine, half of its memory" if most is None else "")
            + ". Is it the file that you mean?"
        )
    return data


def reject_irregular(path: str | os.PathLike[str]) -> None:
    """Raise FileError where `path` is no plain file: to open a pipe or a device could wait, or go on, for ever."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    reject_mode(path, mode)


def reject_mode(path: str | os.PathLike[str], mode: int) -> None:
    """Raise FileError where a file's mode, as `os.stat` gives it, is none of a plain file."""
    if not stat.S_ISREG(mode):
        raise unreadable(path, OSError(0, f"it is {_irregular(mode)}, and only plain files are"))


def open_regular(path: str | os.PathLike[str]) -> io.BufferedReader:
    """Open a plain file for reading. Raises FileError, without waiting, where it is a pipe, a device or a folder, or
    cannot be opened."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    try:
        reject_mode(path, os.fstat(descriptor).st_mode)
    except FileError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/{1,2}(?=[^/])")  # a path has lost one stroke; C:/ is none


def reject_address(source: str | os.PathLike[str]) -> None:
    """Raise FileError for an address on the web, as a person typed it or as a path has it: call it where nothing of
    that name is found."""
    if (found := ADDRESS.match(os.fspath(source))) is None:
        return
    address = f"{found[1]}://{os.fspath(source)[found.end() :]}"
    said = f"{short(address, 200)} is an address, and nothing is downloaded from one."
    if hub := re.match(r"https?://(?:huggingface\.co|hf\.co)/([\w.-]+/[\w.-]+)", address):
        raise FileError(
            f"{said} Fetch it first, as by `hf download {hub[1]} --local-dir DIR`, and give that folder; "
            f"weights=hub:{hub[1]} fetches the weights of a model."
        )
    raise FileError(f"{said} Fetch it first, as by `curl -LO {quote(short(address, 200))}`, and give what it leaves.")


def unreadable(path: str | os.PathLike[str], error: Exception) -> FileError:
    """What to raise of a file that the system does not let be read, or of an address that was taken for one."""
    try:
        reject_address(path)
    except FileError as address:
        address.strerror = cause(error)
        return address
    found = FileError(f"{path} could not be read: {cause(error)}. Check the path and its permissions.")
    found.strerror = cause(error)  # for who names the file in words of their own
    return found


def cause(error: Exception) -> str:
    """Why the system rejected, in its words."""
    return getattr(error, "strerror", None) or str(error)


def as_path(given: object, says: str) -> Path:
    """Return what was given as a path.

    Raises:
        FileError: If it is no text and no path, or cannot be the name of a file. The message begins with `says`.
    """
    if not isinstance(given, str | os.PathLike) or isinstance(os.fspath(given), bytes):
        raise FileError(f"{says}, and this is a {type(given).__name__}.")
    try:
        os.lstat(given)
    except ValueError as error:  # a null byte, or half of a surrogate pair
        raise FileError(f"{says}, and {brief(os.fspath(given))} cannot be one: {error}.") from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise FileError(f"{says}, and {brief(os.fspath(given))} cannot be one: it is too long.") from None
    return Path(given)


def exists(path: str | os.PathLike[str]) -> bool:
    """Whether something of that name can be seen; False too for what can be no name: a long text, for one."""
    try:
        os.stat(path)
    except (OSError, ValueError):
        return False
    return True


def memory() -> int:
    """The bytes of memory that this machine has, or that this process may have (ulimit -v) where that is less."""
    try:
        most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not every system tells
        most = 1 << 34
    return min(most, address_limit() or most)


def address_limit() -> int | None:
    """The bytes of addresses that this process may have (ulimit -v); None where it has no such limit."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _irregular(mode: int) -> str:
    """What a file is that is none to read."""
    kinds = {
        stat.S_ISDIR: "a folder",
        stat.S_ISFIFO: "a named pipe",
        stat.S_ISCHR: "a device",
        stat.S_ISBLK: "a device",
        stat.S_ISSOCK: "a socket",
    }
    return next((words for is_one, words in kinds.items() if is_one(mode)), "no plain file")


@contextlib.contextmanager
def watch_folder(folder: Path) -> Iterator[None]:
    """For the block, make no folder of that name again once this one was removed or renamed: what is written after that
    would stand alone in it. Where it is gone, `replacing` raises FileError."""
    try:
        handle = os.open(folder, os.O_RDONLY)  # while it is open, no other folder is taken for it
    except OSError:  # as always on Windows
        yield
        return
    key = Path(os.path.abspath(folder))
    before = _watched.get(key)
    _watched[key] = handle
    try:
        yield
    finally:
        if before is None:
            del _watched[key]
        else:
            _watched[key] = before
        os.close(handle)


def is_unmoved(folder: Path) -> bool:
    """Return whether a folder is the one that `watch_folder` was given; True for one that it was not given."""
    handle = _watched.get(Path(os.path.abspath(folder)))
    try:
        return handle is None or os.path.samestat(os.fstat(handle), os.stat(folder))
    except OSError:
        return False


def make_folder(folder: Path) -> None:
    """Make a folder and those above it. Raises FileNotFoundError where one of those is watched, and is gone."""
    if gone := next((one for one in Path(os.path.abspath(folder)).parents if not is_unmoved(one)), None):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(gone))
    missing = [one for one in (folder, *folder.parents) if not one.is_dir()]
    for one in reversed(missing):  # one by one: what is removed meanwhile is not made again
        one.mkdir(exist_ok=True)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path to write to; on success it replaces `path`, on failure it is removed.

    It stands in a folder of its own beside `path`, as libraries that write safely too make files beside theirs: what a
    kill leaves is known by the folder's name (`is_leftover`). Raises FileError, with the way out, where the disk is
    full or the folder cannot be written.
    """
    path = Path(path)
    own = path.with_name(f".{path.name}.{os.getpid()}.part")
    temporary = own / path.name
    try:
        make_folder(own)
        yield temporary
        with temporary.open("rb+") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
    except OSError as error:
        if isinstance(error, FileError):
            raise
        if isinstance(error, FileNotFoundError) or not own.is_dir():
            raise FileError(
                f"{path} could not be written: its folder {path.parent} was removed or renamed meanwhile. Leave the "
                "folder where it is while it is written to, and begin again."
            ) from error
        raise FileError(
            f"{path} could not be written: {error.strerror or error}. What stood there before is untouched. "
            "Free some space, or give another folder that can be written to."
        ) from error
    finally:
        shutil.rmtree(own, ignore_errors=True)


@contextlib.contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A temporary folder beside `path` to write to; on success it becomes `path`, on failure it is removed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        if path.exists():
            raise FileError(f"{path} exists and is not written over. Give another name, or move it away.")
        make_folder(temporary)
        yield temporary
        temporary.rename(path)
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(
            f"{path} could not be written: {error.strerror or error}. Free some space, or give another folder."
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def is_leftover(path: Path) -> bool:
    """Whether `path` is what a kill leaves of `replacing`: what nobody will finish. Earlier versions left files."""
    return re.fullmatch(r"\..+\.\d+\.part", path.name) is not None


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` as UTF-8, whole or not at all. Half of a surrogate pair, by which Python holds a byte of a file's
    name that is not UTF-8, is written as \\udcXX, which is that half again where JSON is read."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write `value` as indented JSON, whole or not at all. NaN and infinity are rejected: JSON has none."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def write_csv(path: str | os.PathLike[str], rows: Sequence[Mapping[str, Any]]) -> int:
    """Write rows under the keys of the one that has most, whole or not at all; no rows make an empty file.

    A spreadsheet would run `=cmd|…` and a terminal obey an escape sequence: such cells are written so that they are
    text everywhere. Gives how many these were.
    """
    text = io.StringIO()
    changed = 0
    if rows:
        keys = max(map(list, rows), key=len)
        writer = csv.writer(text, lineterminator="\n")
        for row in ({key: key for key in keys}, *rows):
            cells = [row.get(key, "") for key in keys]
            written = [_harmless(cell) if isinstance(cell, str) else cell for cell in cells]
            changed += sum(a is not b and a != b for a, b in zip(cells, written))
            writer.writerow(written)
    write_text(path, text.getvalue())
    return changed


def _harmless(cell: str) -> str:
    """The cell as text that nothing runs: its escape sequences written out, and an apostrophe before what a spreadsheet
    would take for a formula. Numbers are none."""
    seen = visible(cell)
    if not seen.startswith(("=", "+", "-", "@", "\t", "\r")):
        return seen
    try:
        float(seen)
    except ValueError:
        return f"'{seen}"
    return seen


def read_json(path: str | os.PathLike[str]) -> Any:
    """The JSON document at `path`. Raises FileError where it is missing, cut short, not JSON or nested too deep."""
    return parse_json(read_bytes(path), path)


def parse_json(text: str | bytes, path: str | os.PathLike[str]) -> Any:
    """Return the JSON document in a text, which stands in the file at `path`. Raises FileError as `read_json` does."""
    too_deep = FileError(f"{path} nests its values more than {DEEPEST} deep. Take it from a copy.")
    try:
        document = json.loads(text.decode("utf-8-sig") if isinstance(text, bytes) else text)
    except RecursionError as error:
        raise too_deep from error
    except ValueError as error:
        raise FileError(
            f"{path} is not a complete JSON document ({short(error, 120)}). Restore it from a copy, or train again."
        ) from error
    level, depth = [document], 0
    while level := [one for value in level for one in _inside(value) if isinstance(one, dict | list)]:
        if (depth := depth + 1) >= DEEPEST:
            raise too_deep
    return document


def _inside(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
