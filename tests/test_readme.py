"""Run the commands of the README, of the home page and of the pages in docs/start as they stand, in order.

The blocks of a page run in one folder, which is like a fresh clone after its installation. The README's claims, `RUN`
METRIC above or below NUMBER, are compared with the evaluation of the run.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from cutaway.apps.cli import main

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
START = sorted((ROOT / "docs" / "start").glob("*.md"))
BLOCK = re.compile(r"^```(bash|python|\{console\})\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHELL = re.compile(r"[|&;<>$*`]")  # a line with one of these is for a shell
PORT = re.compile(r"(?<=127\.0\.0\.1:)8\d{3}|(?<=--port )8\d{3}")
CLAIM = re.compile(r"`(runs/\w+)`\s+(\w+)\s+(above|below)\s+([\d.]+)(\s%)?")

NOT_CLAIMED = {"runs/days", "runs/words"}  # what they print is compared instead
ANSWERS = {
    ("photographs", "Predict"): (r"scans/seven/0007\.png  seven",),
    ("text", "Text classification"): (r"two nodes  networkx", r"input tensor  torch"),
    ("text", "Language modelling"): (r"\bReturn the \w+",),
    ("text", "Word vectors"): (r"cat  (dog|horse|rabbit|hamster|goat|pony|kitten) ",),
    ("huggingface", "Start from a Hugging Face folder"): (
        r"sleeps in the barn \.  (cat|dog|horse|rabbit|hamster|goat|pony|kitten) ",
        r"train to \[MASK\] \.  (Rome|Paris|Lisbon|Vienna|Dublin|Oslo|Athens|Madrid) ",
    ),
    ("pairs", "Generate"): (r"^2026-03-08$|\n2026-03-08\n",),
}


class Section(NamedTuple):
    """A heading of a page, the blocks below it and the remaining text."""

    title: str
    blocks: list[tuple[str, str]]
    text: str


def sections(page: str) -> list[Section]:
    """Return the sections of a page that hold something to run."""
    found = []
    for part in re.split(r"^##+ ", page, flags=re.MULTILINE):
        title, _, text = part.partition("\n")
        found.append(
            Section(title.removeprefix("# "), BLOCK.findall(text), re.sub(r"```.*?```", "", text, flags=re.DOTALL))
        )
    return [section for section in found if section.blocks]


class Clone:
    """A folder like a clone after `make demo` has installed the package, whose Python is python3 alone."""

    def __init__(self, folder: Path) -> None:
        """Link what the Makefile reads, and build the virtual environment as pip would."""
        tools = folder / "bin"
        tools.mkdir()
        python = tools / "python3"
        python.symlink_to(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}")
        self.folder = folder / "clone"
        self.folder.mkdir()
        for name in ("Makefile", "pyproject.toml", "constraints.txt", "src"):
            (self.folder / name).symlink_to(ROOT / name)
        self.environment = {
            "PATH": os.pathsep.join([str(tools), os.defpath]),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *(path for path in sys.path if "-packages" in path)]),
            "HOME": str(folder),
            "COLUMNS": "80",
            "OMP_NUM_THREADS": os.environ["OMP_NUM_THREADS"],
        }
        without = [python, "-m", "venv", "--without-pip", ".venv"]
        subprocess.run(without, cwd=self.folder, env={"PATH": str(tools)}, check=True)
        script = self.folder / ".venv" / "bin" / "cutaway"  # as pip writes it
        script.write_text(
            f"#!{script.parent}/python\nimport sys\nfrom cutaway.apps.cli import main\n"
            "if __name__ == '__main__':\n    sys.exit(main())\n"
        )
        script.chmod(0o755)
        for stamp in (".made", ".installed"):
            (self.folder / ".venv" / stamp).touch()

    def run(self, language: str, block: str, capsys: pytest.CaptureFixture[str]) -> str:
        """Run a block as it stands and return what it prints.

        A plain `cutaway` command runs in this process, which saves the imports; anything else runs in bash.
        """
        if language == "python":
            exec(compile(block, "README.md", "exec"), {})
            return capsys.readouterr().out
        lines = [line for line in block.replace("\\\n", " ").splitlines() if line and not line.startswith(":")]
        if any(not line.startswith("cutaway ") or SHELL.search(line) for line in lines):
            return self._run_in_bash("\n".join(lines))
        printed = ""
        for line in lines:
            status = main(shlex.split(line, comments=True)[1:])
            out, err = capsys.readouterr()
            assert status == 0, (line, err)
            printed += out
        return printed

    def _run_in_bash(self, script: str) -> str:
        if ".venv/bin/activate" not in script:
            script = f". .venv/bin/activate\n{script}"
        if "curl " in script and shutil.which("curl") is None:
            pytest.skip("needs curl to ask the server")
        script = PORT.sub(lambda port: port[0] if _is_free(int(port[0])) else str(_free_port()), script)
        out = self.folder.parent / "out.txt"
        with out.open("wb") as file:  # not a pipe, which a server in the background would keep open
            process = subprocess.Popen(
                ["bash", "-e", "-c", script],
                cwd=self.folder, env=self.environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                status = process.wait(timeout=600)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)  # a server that the page leaves running
        printed = out.read_text(encoding="utf-8")
        assert status == 0, (script, printed)
        return printed


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    made = Clone(tmp_path)
    os.chdir(made.folder)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "index.md", *START], ids=lambda page: page.stem)
def test_a_page_runs_in_order_and_reaches_its_claims(
    page: Path, clone: Clone, capsys: pytest.CaptureFixture[str]
) -> None:
    missed = []
    text = page.read_text(encoding="utf-8")
    trained = {run for _, block in BLOCK.findall(text) for run in re.findall(r"--out (runs/\w+)", block)}
    assert trained - NOT_CLAIMED <= {claim[0] for claim in CLAIM.findall(text)}
    for section in sections(text):
        printed = "".join(clone.run(language, block, capsys) for language, block in section.blocks)
        claims = CLAIM.findall(section.text)
        for run, metric, side, bound, percent in claims:
            value = json.loads(Path(run, "evaluation.json").read_text())["metrics"][metric]["value"]
            limit = float(bound) / (100 if percent else 1)
            if not ((value > limit) if side == "above" else (value < limit)):
                missed.append((run, metric, value, bound))
        answers = ANSWERS.get((page.stem, section.title), ())
        missed += [(answer, printed) for answer in answers if not re.search(answer, printed)]
    assert missed == []


def test_every_answer_that_is_compared_stands_on_its_page() -> None:
    titles = {(page.stem, section.title) for page in START for section in sections(page.read_text(encoding="utf-8"))}
    assert set(ANSWERS) <= titles


ROW = re.compile(r"^\| ([^|]+) \| `(cutaway [^`]+)` \| \[[^]]+\]\(([^)#]+)", re.MULTILINE)


def readme_rows(title: str) -> list[tuple[str, str, str]]:
    """Return purpose, command and linked page of each row of a table of the README."""
    part = README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = ROW.findall(part)
    assert len(rows) == part.count("\n|") - 2
    return rows


@pytest.mark.slow
def test_a_command_for_each_kind_of_data_is_accepted(clone: Clone, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["examples"]) == 0
    rows = readme_rows("Your data")
    assert {page for _, _, page in rows} == {page.relative_to(ROOT).as_posix() for page in START}
    for _, command, _ in rows:
        words = shlex.split(command)[1:]
        assert words[0] == "train"
        if "weights=folder/" in words:  # a folder of the reader's, which the page makes
            words.remove("weights=folder/")
        assert main(["check", *words[1:]]) == 0, (command, capsys.readouterr().err)


def test_a_command_for_each_wish_stands_on_the_page_that_is_linked() -> None:
    for purpose, command, page in readme_rows("Commands"):
        lines = re.findall(r"cutaway [^`\n]+", (ROOT / page).read_text(encoding="utf-8"))
        typed = {word for word in command.split() if not word.isupper()}  # without RUN, OUT, TEXT
        assert any(typed <= set(line.split()) for line in lines), (purpose, command, page)


def test_all_that_the_pages_to_start_from_tell_to_type_is_run() -> None:
    """A block of commands without a language would be left out."""
    for page in (ROOT / "README.md", ROOT / "docs" / "index.md", *START):
        text = page.read_text(encoding="utf-8")
        fenced = re.findall(r"^```([^\n]*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        assert [
            block for language, block in fenced if not language and re.search(r"^(cutaway|make|curl) ", block, re.M)
        ] == []
    assert len(START) >= 10


def test_every_file_that_is_linked_is_there() -> None:
    linked = [p for p in re.findall(r"\]\(([^)#]+)\)", README) if not p.startswith("http")]
    assert linked
    assert not [p for p in linked if not (ROOT / p).exists()]
