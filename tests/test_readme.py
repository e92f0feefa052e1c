"""What the README says to type is typed here, as written, and must reach what the README says that it reaches.

Each section is a test of its own: its commands run in a folder with the examples, and its claims, `RUN` METRIC above or
below NUMBER, are held to what the run's evaluation says. A run of an earlier section is trained first.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from cutaway.commands import main
from cutaway.data.examples import EXAMPLES, write_example

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CLAIM = re.compile(r"`(runs/\w+)`\s+(\w+)\s+(above|below)\s+([\d.]+)(\s%)?")

NOT_CLAIMED = {"runs/days"}  # its answers are looked at instead
ANSWERS = {
    "Images": (r"scans/seven/0007\.png  seven",),
    "Text": (r"two nodes  networkx", r"input tensor  torch"),
    "A language model": (r"\bReturn the \w+",),
    "Pre-train, then fine-tune": (
        r"sleeps in the barn \.  (cat|dog|horse|rabbit|hamster|goat|pony|kitten) ",
        r"train to \[MASK\] \.  (Rome|Paris|Lisbon|Vienna|Dublin|Oslo|Athens|Madrid) ",
    ),
    "Pairs of sequences": (r"^2026-03-08$|\n2026-03-08\n",),
}


class Section(NamedTuple):
    """A heading of the README, what is typed under it, and the words."""

    title: str
    commands: list[str]
    python: str
    words: str


def sections() -> list[Section]:
    """Those under which something is typed."""
    found = []
    for part in re.split(r"^##+ ", README, flags=re.MULTILINE)[1:]:
        title, words = part.split("\n", 1)
        commands = "".join(re.findall(r"```bash\n(.*?)```", words, re.DOTALL)).splitlines()
        python = "".join(re.findall(r"```python\n(.*?)```", words, re.DOTALL))
        found.append(Section(title, commands, python, re.sub(r"```.*?```", "", words, flags=re.DOTALL)))
    return [section for section in found if section.commands or section.python]


def trained(run: str) -> str:
    """The command that trains it."""
    return next(c for section in sections() for c in section.commands if c.endswith(f"--out {run}"))


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    """Types a command in a folder of its own, with the example data that it names, and gives what it prints."""
    monkeypatch.chdir(tmp_path)

    def run(command: str) -> str:
        for name in EXAMPLES:
            if name in command:
                write_example(name, tmp_path)
        first, *words = shlex.split(command)
        assert first == "cutaway"
        status = main(words)
        said = capsys.readouterr()
        assert status == 0, (command, said.err)
        return said.out

    return run


@pytest.mark.parametrize("section", sections(), ids=lambda section: section.title.lower().replace(" ", "-"))
def test_a_section_reaches_what_it_says(section: Section, typed: Callable[[str], str]) -> None:
    before = {run for command in section.commands for run in re.findall(r"runs/\w+", command)}
    for run in before - {run for command in section.commands for run in re.findall(r"--out (runs/\w+)", command)}:
        typed(trained(run))
    printed = "".join(typed(command) for command in section.commands)
    if section.python:
        write_example("scans/", Path())
        exec(compile(section.python, "README.md", "exec"), {})
    claims = CLAIM.findall(section.words)
    for run, metric, side, bound, percent in claims:
        value = json.loads(Path(run, "evaluation.json").read_text())["metrics"][metric]["value"]
        limit = float(bound) / (100 if percent else 1)
        assert (value > limit) if side == "above" else (value < limit), (run, metric, value)
    assert set(re.findall(r"--out (runs/\w+)", "\n".join(section.commands))) - NOT_CLAIMED <= {c[0] for c in claims}
    for answer in ANSWERS.get(section.title, ()):
        assert re.search(answer, printed), (answer, printed)


def test_the_command_is_there_once_activated(tmp_path: Path) -> None:
    """As `make demo` leaves it, where the path has Python under the name python3 alone."""
    only = tmp_path / "bin"
    only.mkdir()
    for name in ("sh", "basename", "dirname", "uname"):
        found = shutil.which(name)
        assert found
        (only / name).symlink_to(found)
    python = only / "python3"
    python.symlink_to(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}")
    activate, write = re.findall(r"^(\. \S+|cutaway examples)", README, re.MULTILINE)
    path = {"PATH": str(only)}
    subprocess.run([python, "-m", "venv", "--without-pip", ".venv"], cwd=tmp_path, env=path, check=True)
    script = tmp_path / ".venv" / "bin" / "cutaway"  # as pip writes it
    script.write_text(f"#!{script.parent}/python\nimport sys\nfrom cutaway.commands import main\nsys.exit(main())\n")
    script.chmod(0o755)
    installed = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), sysconfig.get_path("purelib")])}
    words = f"{activate} && {write} graph"
    done = subprocess.run(
        [only / "sh", "-c", words], cwd=tmp_path, env=path | installed, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "graph" / "nodes.csv").is_file()


def test_every_file_that_is_linked_is_there() -> None:
    linked = [p for p in re.findall(r"\]\(([^)#]+)\)", README) if not p.startswith("http")]
    assert linked
    assert not [p for p in linked if not (ROOT / p).exists()]
