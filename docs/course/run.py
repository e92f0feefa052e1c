"""Run the chapters of the course, cell by cell: python docs/course/run.py [NN ...].

Each runs in a process of its own, as its notebook would, and its time is printed. The first cell that fails ends it,
with its place on the page, and the command ends with 1. Only packages can be imported that the wheel installs, and the
extra that the first cell of the page names, as for a student who has nothing else. `make site` runs the chapters too,
and keeps their outputs.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cutaway.core.extras import LIBRARIES

HERE = Path(__file__).resolve().parent
PAGES = {path.name[:2]: path for path in sorted(HERE.glob("[0-9][0-9]-*.md"))}
CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OPTIONS = re.compile(r"\A(?:---\n(.*?)^---\n|((?::[^\n]*\n)+))", re.MULTILINE | re.DOTALL)
EXTRAS = re.compile(r"pip install 'cutaway\[([a-z,]+)\]'")
SECONDS = 180  # that a chapter may take on two cores
WORDS, LINES = 80, 4  # of text and of code that are not folded, a minute
MINUTES = {"Easy": 10, "Medium": 20}  # for an exercise


@dataclass(frozen=True)
class Cell:
    """One code cell: the line of the page that its code begins in, how it is marked, and its code."""

    line: int
    options: str
    code: str

    @property
    def solution(self) -> bool:
        """Whether it answers an exercise."""
        return "solution" in self.options


def cells(page: Path) -> list[Cell]:
    """The code cells of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in CELL.finditer(text):
        head = OPTIONS.match(match[1])
        options, code = (head[0], match[1][head.end() :]) if head else ("", match[1])
        found.append(Cell(text[: match.start(1)].count("\n") + 1 + options.count("\n"), options, code))
    return found


def needed_minutes(page: Path) -> tuple[int, int]:
    """Estimate the minutes for reading a page, and for its exercises with a check, each in half hours."""
    text = page.read_text(encoding="utf-8")
    words = len(re.sub(r"```.*?^```$|^\*\*Time needed.*?$", "", text, flags=re.MULTILINE | re.DOTALL).split())
    lines = sum(len(cell.code.split("\n")) for cell in cells(page) if "hide-" not in cell.options)
    exercises = sum(MINUTES[level] for level in re.findall(r"^\*(Easy|Medium)\.\*", text, re.MULTILINE))
    return round((words / WORDS + lines / LINES) / 30) * 30 or 30, round(exercises / 30) * 30 or 30


def time_words(page: Path) -> str:
    """Return the sentence on the time that a chapter needs."""

    def hours(minutes: int) -> str:
        whole, half = divmod(minutes, 60)
        number = f"{whole or ''}{'½' * bool(half)}"
        return f"{number} hour{'s' * (minutes > 60)}"

    reading, exercises = needed_minutes(page)
    return f"about {hours(reading)} to read, and {hours(exercises)} for the exercises with a check."


def run(page: Path, only: Any = lambda cell: True) -> dict[str, Any]:
    """Run the cells of a page, or those that `only` lets through, in one namespace, and give it. What a cell ends with
    is made, as a notebook would, where it makes itself as HTML or Markdown. A solution that `check` finds wrong is an
    error."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in cells(page):
        if only(cell):
            # As many lines before it as there are on the page: an error names the page's own line.
            tree = ast.parse("\n" * (cell.line - 1) + cell.code, str(page))
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, str(page), "exec"), names)
            if isinstance(last, ast.Expr):
                said = io.StringIO()
                with contextlib.redirect_stdout(said) if cell.solution else contextlib.nullcontext():
                    shown = eval(compile(ast.Expression(last.value), str(page), "eval"), names)
                print(said.getvalue(), end="")
                if ": not yet." in said.getvalue():
                    raise ValueError(f"{page.name}, line {cell.line}: {said.getvalue().strip()}")
                for way in ("_repr_html_", "_repr_markdown_"):
                    if hasattr(shown, way):
                        getattr(shown, way)()
    return names


def named_extras(page: Path) -> frozenset[str]:
    """Return the extras of Cutaway that the first cell of a page names."""
    return frozenset(name for text in EXTRAS.findall(cells(page)[0].code) for name in text.split(","))


def required_distributions(name: str = "cutaway", extras: frozenset[str] = frozenset()) -> set[str]:
    """Return the distributions that installing `name` with these extras brings, itself included."""
    found: set[str] = set()
    wanted = [(canonicalize_name(name), extras)]
    seen = set(wanted)
    while wanted:
        distribution, asked = wanted.pop()
        found.add(distribution)
        for text in requires(distribution) or ():
            one = Requirement(text)
            if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in {"", *asked}):
                needed = canonicalize_name(one.name), frozenset(one.extras)
                if needed not in seen:
                    seen.add(needed)
                    wanted.append(needed)
    return found


def hide_other_packages(extras: frozenset[str] = frozenset()) -> None:
    """Let only packages be imported that installing the wheel with these extras brings."""
    brought = required_distributions(extras=extras)
    hidden = {
        package
        for package, distributions in packages_distributions().items()
        if not brought & {canonicalize_name(one) for one in distributions}
    }
    hidden |= {module for module, library in LIBRARIES.items() if library.extra not in extras}
    find = PathFinder.find_spec

    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        return None if name.partition(".")[0] in hidden else find(name, path, target)

    PathFinder.find_spec = find_spec  # type: ignore[method-assign, assignment]


def main(numbers: list[str]) -> int:
    """Run these chapters, or all."""
    wrong = 0
    for number in numbers or PAGES:
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:  # where a chapter writes runs
            done = subprocess.run([sys.executable, __file__, "--page", number], cwd=folder, check=False)
        took = time.perf_counter() - began
        failed, late = done.returncode != 0, took > SECONDS
        print(f"{PAGES[number].name}: {took:.0f} s{', too long' * late}{', failed' * failed}", flush=True)
        wrong += failed
    return int(wrong > 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--page"]:
        hide_other_packages(named_extras(PAGES[sys.argv[2]]))
        try:
            run(PAGES[sys.argv[2]])
        except Exception:
            traceback.print_exc()
            sys.exit(1)
    else:
        sys.exit(main(sys.argv[1:]))
