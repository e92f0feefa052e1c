"""The blocks of docs/how_do_i.md run in order, in one folder, and give the values that stand beside them."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from cutaway.apps.cli import build_parser, main
from cutaway.apps.cli.arguments import parse_words
from cutaway.core.config import field_names
from cutaway.data.settings import DataSettings
from cutaway.training.config import TrainSettings

from .test_readme import BLOCK, SHELL, Clone

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "how_do_i.md").read_text(encoding="utf-8")
ANSWERS = {part.partition("\n")[0]: part for part in re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]}
VARIABLES = re.compile(r"^((?:[A-Z_]+=\S+ )+)cutaway ")  # before a command
SETTINGS = {*field_names(TrainSettings), *field_names(DataSettings)}


def commands(text: str) -> list[str]:
    """Return the commands of the blocks of a text, without variables before them."""
    lines = [line for language, block in BLOCK.findall(text) if language == "bash" for line in block.splitlines()]
    lines = [VARIABLES.sub("cutaway ", line).removesuffix(" &") for line in lines]
    return [line for line in lines if line.startswith("cutaway ")]


def run_python(block: str, names: dict[str, Any]) -> None:
    """Run a block, and compare the value of each line that ends in `# → VALUE`."""
    lines = block.splitlines()
    for statement in ast.parse(block).body:
        said = lines[(statement.end_lineno or 1) - 1].partition("  # → ")[2]
        if said:
            assert isinstance(statement, ast.Expr)
            found = eval(compile(ast.Expression(statement.value), "docs/how_do_i.md", "eval"), names)
            assert repr(found).replace("np.True_", "True") == said, ast.unparse(statement)
        else:
            exec(compile(ast.Module([statement], []), "docs/how_do_i.md", "exec"), names)


def run_bash(block: str, clone: Clone, capsys: pytest.CaptureFixture[str]) -> None:
    """Run the lines of a block: commands in this process, with the variables before them, and others in bash."""
    if re.search(r"&$", block, re.MULTILINE):
        clone.run("bash", block, capsys)
        return
    for line in block.splitlines():
        with pytest.MonkeyPatch.context() as patch:
            if (before := VARIABLES.match(line)) and not SHELL.search(line):
                for variable in before[1].split():
                    patch.setenv(*variable.split("=", 1))
                line = line.removeprefix(before[1])
            clone.run("bash", line + "\n", capsys)


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clone:
    made = Clone(tmp_path)
    monkeypatch.chdir(made.folder)
    return made


@pytest.mark.slow
def test_all_blocks_run_in_order(clone: Clone, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("pandas", "onnxruntime", "optuna", "transformers"):
        pytest.importorskip(name)
    names: dict[str, Any] = {}
    for language, block in BLOCK.findall(PAGE):
        if language == "python":
            run_python(block, names)
        else:
            run_bash(block, clone, capsys)


def test_blocks_of_python_data_run() -> None:
    pytest.importorskip("pandas")
    assert main(["examples", "wine.csv"]) == 0
    names: dict[str, Any] = {}
    for question in ("arrays, pandas", "wandb"):
        answer = next(text for heading, text in ANSWERS.items() if question in heading)
        for language, block in BLOCK.findall(answer):
            assert language == "python" or "wine.csv" in block
            if language == "python":
                run_python(block, names)


def test_there_are_answers_in_the_words_of_the_field() -> None:
    assert len(ANSWERS) >= 80
    assert [heading for heading in ANSWERS if not heading.endswith("?")] == []
    assert [heading for heading, text in ANSWERS.items() if not BLOCK.search(text) and "| `" not in text] == [
        "How do I train on a cluster, with Slurm or torchrun?",  # which needs several machines
        "How do I use Docker?",
    ]


@pytest.mark.parametrize("question", ANSWERS)
def test_commands_have_known_options_and_settings(question: str) -> None:
    for command in commands(ANSWERS[question]):
        _, name, *words = shlex.split(command)
        if "--help" in words:
            continue
        args = build_parser(name).parse_intermixed_args(words)
        typed = [word for word in getattr(args, "words", []) if not word.startswith("@")]
        for key in parse_words(typed, 9)[1]:
            assert key in SETTINGS or key.startswith("model.") or name in ("search", "compare", "prepare", "plan"), key


def test_every_environment_variable_is_listed() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (*(ROOT / "src").rglob("*.py"), ROOT / "docs" / "conf.py")]
    texts.append((ROOT / "tests" / "conftest.py").read_text(encoding="utf-8"))
    read = {name for text in texts for name in re.findall(r"\"(CUTAWAY_[A-Z_]+)\"", text)}
    assert len(read) >= 7
    assert read <= set(re.findall(r"`(CUTAWAY_[A-Z_]+)`", PAGE))
