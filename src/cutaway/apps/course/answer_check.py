"""Checks of answers: of functions in a notebook, or of the functions in a reader's file."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.errors import FileError, IncompatibleSettingError, SettingError, shorten
from ...core.files import exists, missing_file_error
from .exercises import Answer, Chapter, NotYet, chapter, check_answer

OPENING = 120.0  # time limit in seconds to run the file, with the import of PyTorch, before the first check
SECONDS = 20.0  # time limit of one exercise in seconds


@dataclass(frozen=True)
class Result:
    """The result of a check."""

    name: str
    state: str  # right, not yet or missing
    words: str  # the error, in one or two sentences; for a missing function, its signature

    @property
    def right(self) -> bool:
        """True if the answer is right."""
        return self.state == "right"


def check(number: str | int, *answers: Answer) -> None:
    """Check functions that answer exercises of chapter `number`, and print the result of each.

        check(1, fires, correct)

    Functions are matched to exercises by name. Raises SettingError for a name that is not an exercise of the chapter.
    """
    asked = {one.name: one for one in chapter(number).exercises}
    for answer in answers:
        name = getattr(answer, "__name__", type(answer).__name__)
        if name not in asked:
            raise IncompatibleSettingError(f"Chapter {int(number)} has no exercise {name}: it has {', '.join(asked)}.")
        try:
            check_answer(asked[name], answer)
        except NotYet as error:
            print(f"{name}: not yet. {_capital(str(error))}")
        else:
            print(f"{name}: correct.")


def check_file(number: str | int, path: Path, *, seconds: float = SECONDS, opening: float = OPENING) -> list[Result]:
    """Run a reader's file and check its functions, exercise by exercise.

    Raises FileError if the file does not exist or fails to run.
    """
    asked = chapter(number)
    if path.suffix != ".py" or not path.is_file():
        start = f"`cutaway course start {asked.number:02} NAME.py` writes one with the exercises."
        if not exists(path):
            raise missing_file_error(path, "file", start)
        raise SettingError(f"{shorten(path)} is not a Python file (.py). {start}")
    left = [one.name for one in asked.exercises]
    found: dict[str, Result] = {}
    while left:
        for result in _run_checks(asked, path, left, seconds, opening):
            found[result.name] = result
        left = [name for name in left if name not in found]
    return [found[one.name] for one in asked.exercises]


def _run_checks(asked: Chapter, path: Path, names: Sequence[str], seconds: float, opening: float) -> list[Result]:
    """Run the file once and check the given names. Stop after one that ends the process or takes too long."""
    command = [sys.executable, "-m", f"{__package__}.worker", str(asked.number), str(path.resolve()), *names]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "encoding": "utf-8"}
    with subprocess.Popen(command, env=_environment(), **pipes) as child:  # the child ends when its stdin is closed
        lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=_read, args=(child.stdout, lines), daemon=True).start()
        try:
            return _results(path, names, lines, seconds, opening)
        finally:
            child.kill()


def _results(
    path: Path, names: Sequence[str], lines: queue.Queue[str | None], seconds: float, opening: float
) -> list[Result]:
    """Return the result of each function, from the lines that the process writes."""
    opened = _next(lines, opening)
    if isinstance(opened, str):
        raise FileError(f"{shorten(path)} {opened} Keep only the code that the functions need.")
    if "error" in opened:
        raise FileError(f"{shorten(path)} cannot be run: {opened['error']}. Fix that first.")
    found: list[Result] = []
    for name in names:
        said = _next(lines, seconds)
        if isinstance(said, str):
            return [*found, Result(name, "not yet", f"it {said}")]
        found.append(Result(name, said["state"], said["words"]))
    return found


def _next(lines: queue.Queue[str | None], seconds: float) -> dict[str, Any] | str:
    """Return the next reply of the process, or the reason why no reply came."""
    try:
        line = lines.get(timeout=seconds)
    except queue.Empty:
        return f"ran for {seconds:g} seconds without a result: is there an endless loop?"
    if line is None:
        return "ended Python without a result: does it call exit?"
    said: dict[str, Any] = json.loads(line)
    return said


def _read(stream: Any, lines: queue.Queue[str | None]) -> None:
    with contextlib.suppress(ValueError):  # the pipe was closed during the read
        for line in stream:
            lines.put(line)
    lines.put(None)


def _environment() -> dict[str, str]:
    """Return the environment of this process, with the location of this package on the import path."""
    root = str(Path(__file__).parents[3])
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))),
        "PYTHONSAFEPATH": "1",
        "PYTHONUTF8": "1",
    }


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
