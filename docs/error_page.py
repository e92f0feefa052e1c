"""Write docs/errors.md from the codes of errors, with the messages of their examples: python docs/error_page.py."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import textwrap
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch

import cutaway
import cutaway.core.extras
from cutaway.apps.cli import main
from cutaway.core.error_codes import CODES
from cutaway.core.errors import CutawayError, code_line

PAGE = Path(__file__).parent / "errors.md"
HOME = "/home/me"  # in place of the folder of an example
MACHINE = {  # what messages say of the machine, and what the page shows for it
    r"process \d+ on \S+, since [^,]+,": "process 4711 on node1, since 2026-01-05 09:30 UTC,",
    r"[\d.]+ [GM]iB are free": "16 GiB are free",
}
HEAD = """# Error codes

Every error that a user can fix has a code, on the last line. `cutaway help CODE` explains it, without a network:

```
cutaway help CUT-203
```

In Python, `error.code` is the code of a `cutaway.CutawayError`. In the JSON of a server it is `"code"`.

| code | kind of problem |
| --- | --- |
{rows}
"""


def text() -> str:
    """Return the page, with the messages that the examples print now."""
    rows = "\n".join(f"| [{code}](#{code.lower()}) | {about.title} |" for code, about in CODES.items())
    return HEAD.format(rows=rows) + "".join("\n" + section(code, message(code)) for code in CODES)


def section(code: str, printed: str) -> str:
    """Return the section of one code."""
    about = CODES[code]
    causes = "\n".join(f"- {cause}" for cause in about.causes)
    shown = "\n".join(
        textwrap.fill(line, 100, break_long_words=False, break_on_hyphens=False) for line in printed.splitlines()
    )
    lines = "\n".join(line if line.startswith(">>>") else f"$ {line}" for line in about.example.splitlines())
    return (
        f"## {code}\n\n**{about.title}.** {about.meaning}\n\nUsual causes:\n\n{causes}\n\n"
        f"To fix it: {about.fix}\n\n```\n{lines}\n{shown}\n```\n"
    )


def message(code: str) -> str:
    """Run the example of a code in an empty folder and return what its last line prints."""
    before, environment, modules = Path.cwd(), dict(os.environ), dict(sys.modules)
    servers: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder).resolve() / "me"
        home.mkdir()
        os.chdir(home)
        os.environ["COLUMNS"] = "1000"
        try:
            printed, names = "", {"cutaway": cutaway, "torch": torch, "os": os, "Path": Path}
            for line in _statements(CODES[code].example.replace("8000", str(_free_port()))):
                printed = _run(line, names, servers)
            printed = printed.strip().replace(str(home), HOME)
            for found, shown in MACHINE.items():
                printed = re.sub(found, shown, printed)
            return printed
        finally:
            for server in servers:
                server.terminate()
                server.wait(30)
            os.chdir(before)
            os.environ.clear()
            os.environ.update(environment)
            for name in [name for name, module in sys.modules.items() if module is None and name not in modules]:
                del sys.modules[name]
            sys.modules.update(modules)


def _statements(example: str) -> Iterator[str]:
    """Yield the lines, and Python with an indented block as one."""
    for part in re.split(r"\n(?!>>>  )", example):
        yield part.replace("\n>>> ", "\n")


def _run(line: str, names: dict[str, Any], servers: list[subprocess.Popen[bytes]]) -> str:
    """Run one line and return what it prints."""
    out = io.StringIO()
    if line.startswith(">>> "):
        try:
            exec(line.removeprefix(">>> "), names)
        except CutawayError as error:
            return "".join(traceback.format_exception_only(error)) + code_line(error.code)
        return ""
    if line.endswith("&"):
        words = [sys.executable, "-m", "cutaway", *shlex.split(line.removesuffix("&"))[1:]]
        servers.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
        pipe = servers[-1].stdout
        assert pipe is not None
        pipe.readline()  # it is ready
        return ""
    if line.startswith("cutaway "):
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(out),
            mock.patch("sys.stdin", io.StringIO()),
        ):
            main(shlex.split(line)[1:])
        return out.getvalue()
    return subprocess.run(["bash", "-c", line], check=True, capture_output=True, text=True).stdout


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


if __name__ == "__main__":
    if len(sys.argv) > 1:
        for each in sys.argv[1:]:
            print(message(each))
    else:
        PAGE.write_text(text(), encoding="utf-8")
