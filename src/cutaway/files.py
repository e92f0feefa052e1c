"""Writing files so that nothing is lost: to a temporary name in the same folder, flushed, then renamed.

A reader sees the old file or the new one, whole; a full disk, a read-only folder or a kill leaves the old one.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .errors import FileError


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path beside `path` to write to; on success it replaces `path`, on failure it is removed.

    Raises FileError, with the way out, where the disk is full or the folder cannot be written.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with temporary.open("rb+") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(
            f"{path} could not be written: {error.strerror or error}. What stood there before is untouched. "
            "Free some space or give another folder (--out DIR) that can be written to."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def is_leftover(path: Path) -> bool:
    """Whether `path` is what a kill leaves of `replacing`: a temporary file that nobody will finish."""
    return re.fullmatch(r"\..+\.\d+\.part", path.name) is not None


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` as UTF-8, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write `value` as indented JSON, whole or not at all. NaN and infinity are refused: JSON has none."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def write_csv(path: str | os.PathLike[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows under the keys of the one that has most, whole or not at all; no rows make an empty file."""
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, fieldnames=max(map(list, rows), key=len), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    write_text(path, text.getvalue())


def read_json(path: str | os.PathLike[str]) -> Any:
    """The JSON document at `path`. Raises FileError where it is missing, cut short or not JSON."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(f"{path} could not be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise FileError(
            f"{path} is not a whole JSON document ({error}). It may have been cut short or edited: "
            "take it from a copy, or train again."
        ) from error
