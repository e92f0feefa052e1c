"""The tiers of the tests, `make test` and the remainder that `make test-all` adds, and the order in which CI runs them.

The tiers are `--part quick` and `--part rest` of tests/conftest.py. Together they are all tests; no test is in both.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
CI = ["bash", ".ci/run"]
LATER = {"slow", "waits", "browser"}  # marks and fixtures of tests that are in the second tier

# A plugin that applies the hook of tests/conftest.py to the collected tests, once for each part, and runs none.
COLLECTOR = """
import json, os
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session, config, items):
    hook = next(p for p in config.pluginmanager.get_plugins() if hasattr(p, "QUICK")).pytest_collection_modifyitems
    parts = {}
    for part in ("quick", "rest", "all"):
        parts[part], config.option.part = list(items), part
        hook(config, parts[part])
    marks = {i.nodeid: [*{*i.keywords, *getattr(i, "fixturenames", ())} & {"slow", "waits", "browser"}] for i in items}
    ids = {part: [item.nodeid for item in found] for part, found in parts.items()}
    with open(os.environ["COLLECTED"], "w") as file:
        json.dump({**ids, "marks": marks}, file)
"""

# A stand-in for a tool in .venv/bin, which notes its name and arguments and fails where FAILS is among them.
TOOL = """#!/bin/sh
echo "$(basename "$0") $*" >> "$LOG"
case "$(basename "$0") $*" in *"${FAILS:-nothing fails}"*) exit 1;; esac
"""


def collected(tests: Path, folder: Path) -> dict[str, Any]:
    """Return the names of the tests of each part, and the marks of each test."""
    (folder / "collector.py").write_text(COLLECTOR, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(folder), "COLLECTED": str(folder / "collected.json")}
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "collector", "--collect-only", "-qq", str(tests)]
    ran = subprocess.run(command, cwd=tests.parent, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    found: dict[str, Any] = json.loads((folder / "collected.json").read_text(encoding="utf-8"))
    return found


@pytest.mark.slow
def test_each_test_is_in_one_tier_and_each_function_in_the_first(tmp_path: Path) -> None:
    found = collected(ROOT / "tests", tmp_path)
    quick, rest, marks = found["quick"], found["rest"], found["marks"]
    assert len(found["all"]) > 5_000
    assert [name for name, times in Counter(quick + rest).items() if times > 1] == []
    assert {*quick, *rest} == {*found["all"]} == {*marks}
    assert [name for name in quick if LATER & {*marks[name]}] == []
    functions = {name.partition("[")[0] for name, those in marks.items() if not LATER & {*those}}
    cases = Counter(name.partition("[")[0] for name in quick)
    assert sorted(functions - {*cases}) == []
    assert max(cases.values()) == 2
    assert len(quick) < len(rest)
    chapters = {name for name in found["all"] if "test_a_chapter_runs_with_what_the_wheel_installs" in name}
    assert len(chapters) == len([*(ROOT / "docs" / "course").glob("[0-9]*.md")])


@pytest.mark.slow
def test_tiers_of_a_few_tests(tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    tests.mkdir()
    shutil.copy(ROOT / "tests" / "conftest.py", tests)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow: x\n    waits: x\n    browser: x\n")
    (tests / "test_few.py").write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('x', range(9))\ndef test_many(x): pass\n"
        "def test_one(): pass\n"
        "@pytest.mark.slow\ndef test_slow(): pass\n"
        "@pytest.mark.waits\n@pytest.mark.parametrize('x', range(3))\ndef test_waits(x): pass\n"
        "def test_page(browser): pass\n"
        "@pytest.mark.parametrize('x', [0, pytest.param(1, marks=pytest.mark.slow)])\ndef test_half(x): pass\n"
    )
    found = collected(tests, tmp_path)
    quick = sorted(name.partition("::")[2] for name in found["quick"])
    assert [name.partition("[")[0] for name in quick] == ["test_half", "test_many", "test_many", "test_one"]
    assert quick[0] == "test_half[0]"
    assert sorted(found["quick"] + found["rest"]) == sorted(found["all"])
    assert len(found["all"]) == 9 + 1 + 1 + 3 + 1 + 2
    # What takes longest is started first, so that no worker is left with it.
    assert [name.partition("::")[2].partition("[")[0] for name in found["rest"][:4]] == ["test_waits"] * 3 + [
        "test_slow"
    ]


def run_with_stand_ins(folder: Path, command: list[str], fails: str = "") -> tuple[int, list[str]]:
    """Run a command in a folder whose tools do nothing: its exit status, and the tools in their order."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt", ".ci/run"):
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        shutil.copy(ROOT / name, folder / name)
    tools, log = folder / "tools", folder / "log"
    for place in (folder / ".venv" / "bin", tools):
        place.mkdir(parents=True)
    for place, names in (
        (folder / ".venv" / "bin", ("python", "ruff", "mypy", "cutaway")),
        (tools, ("chromium", "node")),
    ):
        for name in names:
            (place / name).write_text(TOOL)
            (place / name).chmod(0o755)
    (folder / ".venv" / ".made").touch()
    environment = {
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "LOG": str(log),
        "FAILS": fails or "nothing fails",
    }
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return ran.returncode, log.read_text().splitlines()


def short(line: str) -> str:
    """Return what a noted command is: install, train, collect, check or the part of the tests."""
    for word, name in (("pip install", "install"), ("cutaway train", "demo"), ("--collect-only", "collect")):
        if word in line:
            return name
    part = re.search(r"-m pytest --part (\w+)", line)
    return part[1] if part else line


def test_ci_runs_the_commands_in_the_order_of_the_readme(tmp_path: Path) -> None:
    status, log = run_with_stand_ins(tmp_path, CI)
    done = [name for name in map(short, log) if name != "collect"]  # which runs beside the checks
    assert status == 0
    order = [name for name in done if name != "install"]
    assert order == ["demo", "ruff check .", "ruff format --check .", "mypy ", "quick", "rest"]
    # The demo needs nothing that only tests need: it comes before their installation.
    assert ".[test]" not in "".join(log[: log.index(next(line for line in log if short(line) == "demo"))])
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    places = [readme.index(f"make {name}") for name in ("demo", "test` ", "test-all")]
    assert places == sorted(places)
    assert re.search(r"^make demo test test-all$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)


@pytest.mark.parametrize(
    ("fails", "last"), [("cutaway train", "demo"), ("ruff format", "ruff format --check ."), ("--part quick", "quick")]
)
def test_ci_ends_with_the_first_command_that_fails(tmp_path: Path, fails: str, last: str) -> None:
    status, log = run_with_stand_ins(tmp_path, CI, fails)
    assert status != 0
    assert [name for name in map(short, log) if name not in ("collect", "install")][-1] == last


@pytest.mark.parametrize(("target", "parts"), [("test", ["quick"]), ("test-all", ["quick", "rest"])])
def test_each_target_runs_its_tiers_once_after_the_checks(tmp_path: Path, target: str, parts: list[str]) -> None:
    status, log = run_with_stand_ins(tmp_path, ["make", target])
    assert status == 0
    done = [name for name in map(short, log) if name not in ("collect", "install")]
    assert done == ["ruff check .", "ruff format --check .", "mypy ", *parts]
