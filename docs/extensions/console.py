"""Commands that a page shows are run while the site is made, and stand there with what they print.

    ```{console}
    cutaway train mlp wine.csv target=cultivar --out runs/wine
    cutaway evaluate runs/wine
    ```

All commands of a page run one after another in one folder, empty at first. What they printed is kept in build/commands
until the page's commands change. One that fails is a warning, and so ends the making of the site. A line that ends in
`&` goes on until the page does: a server. `:lines: 12` shows so many lines of what each prints.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective
from sphinx.util.logging import getLogger
from sphinx.util.parallel import make_chunks

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "commands"
BLOCK = re.compile(r"^```\{console\}\n(.*?)^```", re.DOTALL | re.MULTILINE)
PASSING = re.compile(r"steps/s$|^Still at work")  # what is said in passing, where something takes long
LIMIT = 1200  # seconds that a command may take
WIDTH = "84"  # columns
log = getLogger(__name__)


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("console", Console)
    app.connect("source-read", lambda app, docname, source: run_page(docname, source[0]))
    app.connect("env-before-read-docs", _deal)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _deal(app: Any, env: Any, docnames: list[str]) -> None:
    """Deal the pages out to the processes that read them. In the order of their names those that run much, a chapter's
    notebook or a journey's commands, stand side by side, and one process would have them all."""
    parts = len(make_chunks(docnames, app.parallel)) if docnames else 0
    docnames[:] = [name for first in range(parts) for name in docnames[first::parts]]


class Console(SphinxDirective):
    """A block of commands with what they printed."""

    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {"lines": directives.positive_int}

    def run(self) -> list[nodes.Node]:
        """The block as it stands on the page."""
        printed, shown = kept(self.env.docname), []
        for command in self.content:
            said = printed.get(command, "").splitlines()
            most = self.options.get("lines", 24)
            shown += [f"$ {command}", *said[:most], *(["…"] if len(said) > most else [])]
        block = nodes.literal_block("\n".join(shown), "\n".join(shown), language="console")
        self.set_source_info(block)
        return [block]


def commands_of(text: str) -> list[str]:
    """The commands of a page, in order."""
    blocks = [block.splitlines() for block in BLOCK.findall(text)]
    return [line for block in blocks for line in block if line.strip() and not line.startswith(":")]


def kept(docname: str) -> dict[str, str]:
    """What the commands of a page printed, by command."""
    path = KEPT / f"{docname.replace('/', '-')}.json"
    printed: dict[str, str] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return printed


def keep(docname: str, printed: dict[str, str]) -> None:
    """Write down what the commands of a page printed."""
    KEPT.mkdir(parents=True, exist_ok=True)
    path = KEPT / f"{docname.replace('/', '-')}.json"
    path.write_text(json.dumps(printed, indent=1, ensure_ascii=False), encoding="utf-8")


def run_page(docname: str, text: str) -> None:
    """Run the commands of a page, unless what they printed is known."""
    commands = commands_of(text)
    if not commands or os.environ.get("CUTAWAY_DRAFT"):
        return
    if [*kept(docname)] == [*dict.fromkeys(commands)]:
        return
    printed, failed = run(commands)
    if failed:
        log.warning("a command failed: %s\n%s", failed, printed[failed], location=docname)
        return
    keep(docname, printed)


def run(commands: list[str]) -> tuple[dict[str, str], str]:
    """What each command prints, and the first that fails."""
    printed: dict[str, str] = {}
    KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=KEPT) as folder:
        where, bin_ = Path(folder, "here"), Path(folder, "bin")
        where.mkdir()
        bin_.mkdir()
        for name, module in (("cutaway", "-m cutaway"), ("python", "")):
            script = bin_ / name
            script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
            script.chmod(0o755)
        more = {"COLUMNS": WIDTH, "NO_COLOR": "1", "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}"}
        servers: list[subprocess.Popen[bytes]] = []
        try:
            for command in commands:
                typed = ["bash", "-c", command.rstrip("& ")]
                if command.endswith("&"):
                    servers.append(
                        subprocess.Popen(
                            typed, cwd=where, env=os.environ | more, start_new_session=True,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                        )
                    )  # fmt: skip
                    printed[command] = ""
                    continue
                done = subprocess.run(
                    typed, cwd=where, env=os.environ | more, timeout=LIMIT,
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                )  # fmt: skip
                said = done.stdout.decode().replace(str(where) + os.sep, "").strip("\n")
                printed[command] = "\n".join(line for line in said.splitlines() if not PASSING.search(line))
                if done.returncode:
                    return printed, command
        finally:
            for server in servers:
                os.killpg(server.pid, signal.SIGTERM)
                server.wait(30)
    return printed, ""


if __name__ == "__main__":  # python docs/extensions/console.py docs/start/table.md: what the page will show
    for page in sys.argv[1:]:
        found, broken = run(commands_of(Path(page).read_text(encoding="utf-8")))
        for line, said in found.items():
            print(f"$ {line}\n{said}")
        print(f"FAILED: {broken}" if broken else "")
        if not broken:
            keep(Path(page).resolve().relative_to(ROOT / "docs").with_suffix("").as_posix(), found)
