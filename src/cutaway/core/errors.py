"""Errors that users can fix. Each message states the problem, where it is, and how to fix it.

All of them derive from `CutawayError` and from a built-in class such as ValueError. The command line prints
the message and exits with status 2. The attribute `code` identifies the kind of problem, such as CUT-203 for a wrong
column; `cutaway help CUT-203` explains it.
"""

from __future__ import annotations

import difflib
import errno
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


class CutawayError(Exception):
    """Base class of the errors that a user can fix.

    `str(error)` is the message: the problem, where it is, and how to fix it. In words of more than 300 characters, the
    middle is replaced by an ellipsis.

    Args:
        args: The message.
        code: Error code, such as "CUT-203". By default, the code of the class.
    """

    code = ""  # the kind of problem, as in CUT-203
    silent: bool | None = None  # whether another process reports it; None if all raise it and the first reports it
    shared = False  # whether all processes of a training raise it

    def __init__(self, *args: object, code: str = "") -> None:
        super().__init__(*args)
        if code:
            self.code = code

    def __str__(self) -> str:
        return re.sub(r"\S{301,}", lambda word: shorten(word[0]), super().__str__())

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickling between processes: the copy keeps the message, not the constructor's arguments."""
        return _again, (type(self), self.args, self.__dict__)


def code_line(code: str) -> str:
    """Return the last line of an error in the terminal."""
    return f"{code}: `cutaway help {code}` explains it."


def _again(kind: type[CutawayError], args: tuple[Any, ...], more: dict[str, Any]) -> CutawayError:
    """Rebuild an error of this class with this message."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(more)
    return error


class CutawayWarning(UserWarning):
    """Class of all warnings of Cutaway, to filter them by: `warnings.simplefilter("ignore", CutawayWarning)`."""


class UnknownName(CutawayError, LookupError):
    """The name of a model, data set, setting or column that does not exist. The message lists similar names.

    Args:
        kind: The kind of thing that was named, for the message: "model".
        name: The unknown name.
        known: The existing names. The message lists those similar to `name`, or else all if there are at most 24.
        way_out: Another sentence of the message, such as the command that lists all names.
        code: Error code. By default, the code of the class.
    """

    code = "CUT-102"

    def __init__(self, kind: str, name: str, known: Iterable[str], way_out: str = "", code: str = "") -> None:
        known = sorted(known)
        words = [f"There is no {kind} {shorten(name)!r}."]
        close = closest_names(name, known)
        if close:
            words.append(f"Similar: {', '.join(close)}.")
        elif known and len(known) <= 24:
            words.append(f"Available: {', '.join(known)}.")
        if way_out:
            words.append(way_out)
        super().__init__(" ".join(words), code=code)


class SettingError(CutawayError, ValueError):
    """A setting with an invalid value. The message names the key, the value and the allowed values."""

    code = "CUT-101"


class MissingSettingError(SettingError):
    """A required argument or setting that is missing."""

    code = "CUT-103"


class IncompatibleSettingError(SettingError):
    """A setting that does not apply to this model or data, or conflicts with another one."""

    code = "CUT-104"


class ResumeError(SettingError):
    """A training, comparison or search that cannot be resumed with these arguments."""

    code = "CUT-106"


class DeviceError(SettingError):
    """A device, precision or compiler that this machine does not have."""

    code = "CUT-504"


class ModelError(CutawayError, ValueError):
    """A model that cannot be built as configured, or that does not accept this kind of data."""

    code = "CUT-401"


class ConfigError(ModelError):
    """A setting of a model or a function with an invalid value."""

    code = "CUT-101"


class InputShapeError(ModelError):
    """A tensor whose shape or type the model does not accept."""

    code = "CUT-402"


class CheckpointConfigError(ModelError):
    """A checkpoint whose settings have no equivalent here."""

    code = "CUT-403"


class MemoryLimitError(ModelError, SettingError):
    """A model or a training that needs more memory than is available."""

    code = "CUT-502"


@dataclass(frozen=True)
class Problem:
    """One invalid row or file of a `DataError`.

    Example:
        >>> print(Problem("houses.csv, line 17, column price", "'n/q' is not a number"))
        houses.csv, line 17, column price: 'n/q' is not a number
    """

    where: str  # the file, and the line and column if there are any
    what: str  # the problem

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class DataError(CutawayError, ValueError):
    """Data that cannot be read or learned from. The message names the file, the row and the cause.

    The attribute `problems` is a list of all invalid rows and files, and `lines` of the kinds of problems of a table.

    Args:
        message: The problem.
        problems: The invalid rows and files. The message lists the first five.
        fix: A sentence on how to fix it.
        code: Error code. By default, the code of the class.
        lines: One line for each kind of problem of a table. Empty for other data.
    """

    code = "CUT-202"

    def __init__(
        self,
        message: str,
        problems: Sequence[Problem] = (),
        fix: str = "",
        code: str = "",
        lines: Sequence[str] = (),
    ) -> None:
        self.problems, self.lines = list(problems), list(lines)
        named = "; ".join(str(p) for p in self.problems[:5])
        more = f"; and {len(self.problems) - 5} more (`cutaway check` lists all)" if len(self.problems) > 5 else ""
        super().__init__(
            " ".join(part for part in (message, named + more + "." if named else "", fix) if part), code=code
        )


class ColumnError(DataError):
    """A column that is missing, ambiguous or cannot be used as named."""

    code = "CUT-203"


class NotEnoughDataError(DataError):
    """Too few examples, classes, tokens or steps to train on or to compare with."""

    code = "CUT-204"


class UnsupportedDataError(DataError):
    """A file format or a kind of data that is not supported here."""

    code = "CUT-205"


class FolderLayoutError(DataError):
    """A folder with an unexpected layout, or files that do not belong together."""

    code = "CUT-206"


class PythonDataError(DataError):
    """An array, data frame, list or dataset from Python that cannot be used as data."""

    code = "CUT-207"


class DataMismatchError(DataError):
    """Data that does not match the data on which the model was trained."""

    code = "CUT-208"


class RequestError(DataError):
    """A request to a server that is invalid or too large."""

    code = "CUT-603"


class FileError(CutawayError, OSError):
    """A file or folder that cannot be read, trusted or written."""

    code = "CUT-301"


class MissingFileError(FileError, DataError):
    """A file or folder that does not exist."""

    code = "CUT-201"


class WriteError(FileError):
    """A file or folder that cannot be written."""

    code = "CUT-302"


class AlreadyExistsError(FileError):
    """A file or folder that exists and is not overwritten."""

    code = "CUT-303"


class NotARunError(FileError):
    """A folder that is not a run, or that holds only an incomplete one."""

    code = "CUT-304"


class UnsafeFileError(FileError):
    """A pickle file, which is not loaded because loading it can execute arbitrary code."""

    code = "CUT-306"


class WeightsMismatchError(FileError):
    """Weights that do not fit the model."""

    code = "CUT-404"


class DownloadError(FileError):
    """A file that could not be downloaded."""

    code = "CUT-601"


class AddressError(FileError, SettingError):
    """A host or port at which a server cannot listen."""

    code = "CUT-602"


class TrainingError(CutawayError, ArithmeticError):
    """Training that cannot continue, for example because a loss or gradient is not finite."""

    code = "CUT-501"


class LostProcess(CutawayError, RuntimeError):
    """A process of a multi-process training that did not start or has died."""

    code = "CUT-503"


NO_MEMORY = (  # messages of PyTorch, NumPy, Rust and the system, with any exception type
    "can't allocate memory", "cannot allocate memory", "unable to allocate", "out of memory", "memory allocation of",
    "bad_alloc", "can't start new thread", "failed to map segment",
)  # fmt: skip
NEEDED = re.compile(
    r"(?:tried to allocate|allocation of|unable to allocate) ([\d.,]+ ?(?:bytes|[KMGT]i?B))", re.IGNORECASE
)


def memory_message(error: BaseException) -> str | None:
    """Return a one-sentence message if the error means that memory ran out, from any library; None for every other
    error.
    """
    words = str(error).lower()
    lacks = isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM
    if not lacks and not any(sign in words for sign in NO_MEMORY):
        return None
    found = NEEDED.search(str(error))
    needed = f": {found[1]} more could not be allocated" if found else ""
    return (
        f"Out of memory{needed}. Use a smaller batch_size, smaller or fewer examples, or a smaller model; close "
        "other programs; or raise the memory limit of this process (ulimit -v, a container or a batch system)."
    )


def printable(text: str) -> str:
    r"""Return the text with terminal control characters and invisible characters escaped.

    An escape becomes \\x1b, and a mark that changes the writing direction becomes \\u202e. Tabs and line ends are kept.
    """
    if text.isprintable():
        return text
    return "".join(
        sign if sign in "\t\n" or (unicodedata.category(sign) not in ("Cc", "Cs") and sign not in TURNING)
        else sign.encode("unicode_escape").decode()
        for sign in text
    )  # fmt: skip


TURNING = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # change the writing direction


def shorten(value: object, most: int = 60) -> str:
    """Return a value as text of at most `most` characters; the middle of a longer text is replaced by an ellipsis."""
    try:
        text = str(value)
    except ValueError:  # Python does not convert integers of more than 4 300 digits
        text = "a number of thousands of digits"
    except Exception:  # the object's own __str__
        text = f"an object of type {type(value).__name__}"
    return text if len(text) <= most else f"{text[: most - 20]}…{text[-19:]}"


def shorten_repr(value: object) -> str:
    """Return the `repr` of a value in at most 60 characters, as messages quote it."""
    return shorten(repr(value))


def join(words: Sequence[str], joint: str) -> str:
    """Join words with commas, and the last one with `joint`.

    `listed(("text", "series", "audio"), "or")` is "text, series or audio".
    """
    *most, last = words
    return f"{', '.join(most)} {joint} {last}" if most else last


def closest_names(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Return the `count` known names most similar to `name`, ignoring case, best first; empty if none is similar."""
    by_lower = {k.lower(): k for k in known}
    found = difflib.get_close_matches(name.strip().lower()[:200], by_lower, n=count, cutoff=0.6)
    return [by_lower[f] for f in found]


def check_value(truth: bool, field: str, value: object, allowed: str, error: type[CutawayError] = ConfigError) -> None:
    """Raise `error` unless `truth`, as in `check_value(p < 1, "dropout", p, "at least 0 and below 1")`."""
    if not truth:
        said = repr(shorten(value)) if isinstance(value, str) else shorten(value)
        raise error(f"Invalid {field}={said}: must be {allowed}.")
