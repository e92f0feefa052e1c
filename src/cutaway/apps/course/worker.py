"""The process that runs a reader's file and checks its functions.

    python -m cutaway.apps.course.worker CHAPTER FILE NAME...

It prints one line of JSON on the run of the file, and one on the result of each name. Output of the file itself goes to
standard error, where the reader sees it. The process ends with its parent, which holds the other end of its standard
input, or at the latest after the time limit for all answers.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from .answer_check import OPENING, SECONDS
from .exercises import READERS, NotYet, chapter, check_answer, innermost_line


def main(number: str, path: str, names: list[str]) -> None:
    """Run the file, then check each name."""
    _end_with_parent(OPENING + SECONDS * len(names))
    said = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(**words: Any) -> None:
        said.write(json.dumps(words) + "\n")
        said.flush()

    asked = {one.name: one for one in chapter(number).exercises}
    sys.path.append(str(Path(path).parent))  # at the end, so that the reader's files hide no module
    module: dict[str, Any] = {"__name__": READERS, "__file__": path}
    try:
        exec(compile(Path(path).read_bytes(), path, "exec"), module)
    except (Exception, SystemExit) as error:
        say(error=_named(error, path))
        return
    say(ran=True)
    for name in names:
        if not callable(module.get(name)):
            say(state="missing", words=f"define {asked[name].signature}")
            continue
        try:
            check_answer(asked[name], module[name])
        except NotYet as error:
            say(state="not yet", words=str(error))
        else:
            say(state="right", words="")


def _end_with_parent(seconds: float) -> None:
    """End this process when standard input is closed, which happens however the parent ends; or after `seconds`, even
    if the file holds the GIL and no Python thread can run."""
    parent = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)  # the file itself gets no input

    def wait() -> None:
        while os.read(parent, 1):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
    faulthandler.dump_traceback_later(seconds, exit=True, file=nothing)


def _named(error: BaseException, path: str) -> str:
    """Return the message of an exception, with the line of the file that raised it."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {error.msg}"
    line = innermost_line(error, lambda frame: frame.f_code.co_filename == path)
    where = f"line {line}: " if line else ""
    return f"{where}{type(error).__name__}: {error}"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
