"""Safe reading and writing of files.

Output is written to a temporary name in the same folder, flushed, then renamed. A reader sees either the old or the new
file, complete; a full disk, a read-only folder or a kill leaves the old one. `reject_overwriting` alone decides what
may be replaced. Only regular files that fit into memory are read.
"""

from __future__ import annotations

import codecs
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

from .errors import (
    AlreadyExistsError,
    DataError,
    DownloadError,
    FileError,
    MissingFileError,
    Problem,
    SettingError,
    WriteError,
    closest_names,
    printable,
    shorten,
    shorten_repr,
)

RUN = "run.json"  # identifies the folder of a run
OF_A_RUN = (RUN, "metrics.csv", "evaluation.json", "layers.json", "report.html", "model", "checkpoints", "snapshots")
EXPORTED = (".onnx", ".pt2")  # suffixes of exported models
BOARD = "events.out."  # prefix of TensorBoard's file in a run's folder
MEBIBYTE = 1 << 20
DEEPEST = 100  # maximum nesting of a JSON document: deeper ones would exceed the recursion limit of code that walks it
_watched: dict[Path, int] = {}  # folder → its open descriptor, which identifies it (`watch_folder`)
READ_AT_MOST = 0.5  # fraction of this machine's memory: files are read completely


def reject_overwriting(
    path: str | os.PathLike[str], inputs: Iterable[str | os.PathLike[str]] = (), overwrite: bool = False
) -> None:
    """Raise FileError unless `path` may be written.

    It must not be one of `inputs`, lie in a folder that is one, or be one of the files of a run. Unless `overwrite`,
    nothing may exist at `path`; only a regular file is ever overwritten. A folder that is not writable is rejected too,
    before time is spent on the output.
    """
    path = Path(path)
    another = "Choose another name."
    if path.is_dir():
        raise WriteError(f"{path} is a folder: give the path of a file, e.g. {path / 'FILE'}.")
    place = path.parent.resolve() / path.name
    run = next((folder for folder in place.parents if (folder / RUN).is_file()), None)
    first = place.relative_to(run).parts[0] if run is not None else ""
    if first in OF_A_RUN or first.startswith(BOARD):
        raise AlreadyExistsError(f"{path} is a file of the run {run} and is not overwritten. {another}")
    home = next(filter(exists, path.absolute().parents), path.parent)  # missing parents are created later
    if not home.is_dir() or not os.access(home, os.W_OK | os.X_OK):
        wrong = "is not writable" if home.is_dir() else "is not a folder"
        raise WriteError(f"{path} cannot be written: {home} {wrong}. Choose another folder.")
    if not os.path.lexists(path):
        return
    if given := next((one for one in inputs if _contains(Path(one), place)), None):
        raise AlreadyExistsError(f"{path} is the input {given} and is not overwritten. {another}")
    if not overwrite:
        raise AlreadyExistsError(f"{path} already exists. Choose another name, or add --overwrite.")
    if exists(path) and not path.is_file():
        raise WriteError(
            f"{path} is {_describe_file_type(path.stat().st_mode)}, and only regular files are overwritten. {another}"
        )


def _contains(given: Path, place: Path) -> bool:
    """Return whether `given` is that file, or a folder that contains it."""
    try:
        return os.path.samefile(given, place) or (given.is_dir() and place.is_relative_to(given.resolve()))
    except (OSError, ValueError):  # typed text may not be a valid file name
        return False


def read_bytes(path: str | os.PathLike[str], most: int | None = None) -> bytes:
    """Return the content of a regular file of at most `most` bytes, by default half of this machine's memory.

    Raises FileError if the file is missing, unreadable, a pipe, a device or a folder, or larger than that.
    """
    path = Path(path)
    bound = most if most is not None else int(READ_AT_MOST * total_memory())
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(size + 1) if size <= bound else b""  # read() allocates the full size at once
            while size < len(data) <= bound and (more := file.read(MEBIBYTE)):  # the file grows, or reports no size
                data += more
    except FileError:
        raise
    except OSError as error:
        raise unreadable_error(path, error) from error
    if size > bound or len(data) > bound:
        raise FileError(
            f"{path} has {size:,} bytes, more than the limit of {bound:,}"
            + (" on this machine, half of its memory" if most is None else "")
            + ". Check that it is the right file."
        )
    return data


def is_blank(data: bytes) -> bool:
    """Return whether a file holds no characters but white space, with or without a byte order mark."""
    marks = (codecs.BOM_UTF8, codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    mark = next((mark for mark in marks if data.startswith(mark)), b"")
    return not data.removeprefix(mark).strip(b"\0 \t\r\n" if mark not in (b"", codecs.BOM_UTF8) else b" \t\r\n")


def require_regular_file(path: str | os.PathLike[str]) -> None:
    """Raise FileError if `path` is not a regular file: opening a pipe or reading a device could block or never end."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        raise unreadable_error(path, error) from error
    require_regular_mode(path, mode)


def require_regular_mode(path: str | os.PathLike[str], mode: int) -> None:
    """Raise FileError if a file's mode, as returned by `os.stat`, is not that of a regular file."""
    if not stat.S_ISREG(mode):
        raise unreadable_error(path, OSError(0, f"it is {_describe_file_type(mode)}, not a regular file"))


def open_regular(path: str | os.PathLike[str]) -> io.BufferedReader:
    """Open a regular file for reading, without blocking.

    Raises FileError if it is a pipe, a device or a folder, or cannot be opened.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (OSError, ValueError) as error:
        raise unreadable_error(path, error) from error
    try:
        require_regular_mode(path, os.fstat(descriptor).st_mode)
    except FileError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/{1,2}(?=[^/])")  # Path removes one slash of "//"; C:/ is no address


def reject_address(source: str | os.PathLike[str]) -> None:
    """Raise FileError if `source` is a web address, as typed or after conversion to a path.

    Call it when no file of that name exists.
    """
    if (found := ADDRESS.match(os.fspath(source))) is None:
        return
    address = f"{found[1]}://{os.fspath(source)[found.end() :]}"
    said = f"{shorten(address, 200)} is a URL, and Cutaway does not download URLs."
    if hub := re.match(r"https?://(?:huggingface\.co|hf\.co)/([\w.-]+/[\w.-]+)", address):
        raise DownloadError(
            f"{said} Download it first, e.g. with `hf download {hub[1]} --local-dir DIR`, and give that folder; "
            f"weights=hub:{hub[1]} downloads the weights of a model."
        )
    raise DownloadError(
        f"{said} Download it first, e.g. with `curl -LO {quote(shorten(address, 200))}`, and give the file."
    )


def unreadable_error(path: str | os.PathLike[str], error: Exception) -> FileError:
    """Return the error for a file that cannot be opened: it is missing, is no regular file, or lacks the permission.

    A web address that was given as a path has its own error.
    """
    if isinstance(error, FileError):
        return error
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        found = missing_file_error(path)
    else:
        found = FileError(
            f"{path} could not be read: {error_reason(error)}. Check the path and its permissions.",
            code=WriteError.code,
        )
    found.strerror = error_reason(error)  # for callers that write their own message
    return found


def missing_file_error(path: str | os.PathLike[str], what: str = "file or folder", fix: str = "") -> FileError:
    """Return the error for a path at which nothing exists, with similar names in its folder.

    `what` names the expected thing, such as "folder". A web address that was given as a path has its own error.
    """
    try:
        reject_address(path)
    except FileError as address:
        return address
    place = Path(path).expanduser()
    seen_from = "" if place.is_absolute() else f" in {Path.cwd()}"
    try:
        close = closest_names(place.name, os.listdir(place.parent))
    except (OSError, ValueError):  # no such folder
        close = []
    similar = f" Similar there: {', '.join(close)}." if close else ""
    error = MissingFileError(f"There is no {what} {shorten(str(path), 200)!r}{seen_from}.{similar}", fix=fix)
    error.problems = [Problem(str(path), "it does not exist")]  # for readers of folders, which collect them
    return error


def empty_file_error(path: str | os.PathLike[str], size: int = 0) -> DataError:
    """Return the error for a file of data that holds nothing, or `size` bytes of a byte order mark and blanks."""
    noun = "byte" if size == 1 else "bytes"
    return DataError("", [Problem(str(path), f"it is empty ({size} {noun})")], "Copy or download it again.")


def is_path(name: str | os.PathLike[str]) -> bool:
    """Return whether a name is meant as a path: it contains a slash, or ends in a suffix such as .csv."""
    return not isinstance(name, str) or "/" in name or os.sep in name or bool(re.search(r"\.[A-Za-z]\w*$", name))


def error_reason(error: Exception) -> str:
    """Return the system's reason for an error."""
    return getattr(error, "strerror", None) or str(error)


def as_path(given: object, says: str) -> Path:
    """Convert `given` to a path.

    Raises:
        FileError: If it is neither text nor a path, or is not a valid file name. The message begins with `says`.
    """
    if not isinstance(given, str | os.PathLike) or isinstance(os.fspath(given), bytes):
        raise FileError(f"{says}, not of type {type(given).__name__}.", code=SettingError.code)
    try:
        os.lstat(given)
    except ValueError as error:  # a null byte, or half of a surrogate pair
        raise FileError(f"{says}, not {shorten_repr(os.fspath(given))}: {error}.", code=SettingError.code) from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            name = shorten_repr(os.fspath(given))
            raise FileError(f"{says}, not {name}: it is too long.", code=SettingError.code) from None
    return Path(given)


def exists(path: str | os.PathLike[str]) -> bool:
    """Return whether `path` exists and is visible; False also for an invalid name, such as a long text."""
    try:
        os.stat(path)
    except (OSError, ValueError):
        return False
    return True


def total_memory() -> int:
    """Return the bytes of memory of this machine, or this process's limit (ulimit -v) if that is lower."""
    try:
        most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not available on every system
        most = 1 << 34
    return min(most, address_limit() or most)


def address_limit() -> int | None:
    """Return the limit of this process's address space in bytes (ulimit -v); None if there is no limit."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _describe_file_type(mode: int) -> str:
    """Return a description of a file that is not a regular file."""
    kinds = {
        stat.S_ISDIR: "a folder",
        stat.S_ISFIFO: "a named pipe",
        stat.S_ISCHR: "a device",
        stat.S_ISBLK: "a device",
        stat.S_ISSOCK: "a socket",
    }
    return next((words for is_one, words in kinds.items() if is_one(mode)), "not a regular file")


@contextlib.contextmanager
def watch_folder(folder: Path) -> Iterator[None]:
    """Prevent the folder from being created again if it is removed or renamed during the block.

    Files written after that would end up in a new, incomplete folder. `atomic_write` raises FileError if the folder is
    gone.
    """
    try:
        handle = os.open(folder, os.O_RDONLY)  # while it is open, its inode is not reused
    except OSError:  # always the case on Windows
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
    """Return whether a folder is still the one given to `watch_folder`; True for a folder that is not watched."""
    handle = _watched.get(Path(os.path.abspath(folder)))
    try:
        return handle is None or os.path.samestat(os.fstat(handle), os.stat(folder))
    except OSError:
        return False


def make_folder(folder: Path) -> None:
    """Create a folder and its parents. Raises FileNotFoundError if a watched parent is gone."""
    if gone := next((one for one in Path(os.path.abspath(folder)).parents if not is_unmoved(one)), None):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(gone))
    missing = [one for one in (folder, *folder.parents) if not one.is_dir()]
    for one in reversed(missing):  # one at a time: a folder removed meanwhile is not created again
        one.mkdir(exist_ok=True)


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path to write to; it replaces `path` on success and is removed on failure.

    The file is in a temporary folder next to `path`, because libraries that write safely create files next to their own
    output. `is_temp_file` recognizes the folder's name after a kill. Raises FileError, with advice, if the disk is full
    or the folder is not writable.
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
            raise WriteError(
                f"{path} could not be written: its folder {path.parent} was removed or renamed in the meantime. Do not "
                "move the folder while it is written to, and start again."
            ) from error
        raise WriteError(
            f"{path} could not be written: {error.strerror or error}. The previous file is unchanged. "
            "Free some space, or choose another writable folder."
        ) from error
    finally:
        shutil.rmtree(own, ignore_errors=True)


@contextlib.contextmanager
def atomic_dir(path: Path) -> Iterator[Path]:
    """Yield a temporary folder next to `path`; it becomes `path` on success and is removed on failure."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        if path.exists():
            raise AlreadyExistsError(f"{path} already exists. Choose another name, or move it away.")
        make_folder(temporary)
        yield temporary
        temporary.rename(path)
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise WriteError(
            f"{path} could not be written: {error.strerror or error}. Free some space, or choose another folder."
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def is_temp_file(path: Path) -> bool:
    """Return whether `path` was left by a killed `atomic_write` or `atomic_dir`.

    Earlier versions left files instead of folders.
    """
    return re.fullmatch(r"\..+\.\d+\.part", path.name) is not None


def write_text(path: str | os.PathLike[str], text: str) -> None:
    r"""Write `text` as UTF-8, completely or not at all.

    Python represents a byte of a file name that is not UTF-8 as a lone surrogate. It is written as \\udcXX, which JSON
    reads back as the same surrogate.
    """
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write `value` as indented JSON, completely or not at all. NaN and infinity are rejected: JSON has neither."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def write_csv(path: str | os.PathLike[str], rows: Sequence[Mapping[str, Any]]) -> int:
    """Write rows as CSV, completely or not at all; no rows give an empty file.

    The columns are the keys of the row that has most. Cells that a spreadsheet would run as a formula (`=cmd|…`) or a
    terminal as an escape sequence are written as plain text. Returns the number of such cells.
    """
    text = io.StringIO()
    changed = 0
    if rows:
        keys = max(map(list, rows), key=len)
        writer = csv.writer(text, lineterminator="\n")
        for row in ({key: key for key in keys}, *rows):
            cells = [row.get(key, "") for key in keys]
            written = [_escape_cell(cell) if isinstance(cell, str) else cell for cell in cells]
            changed += sum(a is not b and a != b for a, b in zip(cells, written))
            writer.writerow(written)
    write_text(path, text.getvalue())
    return changed


def _escape_cell(cell: str) -> str:
    """Return the cell with escape sequences written out, and an apostrophe before anything a spreadsheet would run.

    Numbers are not formulas and are kept.
    """
    seen = printable(cell)
    if not seen.startswith(("=", "+", "-", "@", "\t", "\r")):
        return seen
    try:
        float(seen)
    except ValueError:
        return f"'{seen}"
    return seen


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read the JSON document at `path`. Raises FileError if it is missing, truncated, not JSON or nested too deeply."""
    return parse_json(read_bytes(path), path)


def parse_json(text: str | bytes, path: str | os.PathLike[str]) -> Any:
    """Parse a JSON document; `path` names its file in messages. Raises FileError as `read_json` does."""
    too_deep = FileError(f"{path} is nested more than {DEEPEST} levels deep. Restore it from a backup.")
    try:
        document = json.loads(text.decode("utf-8-sig") if isinstance(text, bytes) else text)
    except RecursionError as error:
        raise too_deep from error
    except ValueError as error:
        raise FileError(
            f"{path} is not a complete JSON document ({shorten(error, 120)}). Restore it from a backup, or train again."
        ) from error
    level, depth = [document], 0
    while level := [one for value in level for one in _inside(value) if isinstance(one, dict | list)]:
        if (depth := depth + 1) >= DEEPEST:
            raise too_deep
    return document


def _inside(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
