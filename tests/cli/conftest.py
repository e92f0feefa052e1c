"""The command line as a person meets it: words in, exit status and text out, in a folder of its own."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from cutaway.apps.cli import COMMANDS, build_parser, main
from cutaway.training import cost_estimate


@dataclass(frozen=True)
class Answer:
    """What a command gave back."""

    status: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """Standard error with its line breaks taken out, to look for sentences in."""
        return " ".join(self.err.split())


@functools.cache
def options_of(command: str) -> frozenset[str]:
    """The options of a command."""
    return frozenset(build_parser(command)._option_string_actions)


def foreign_options(command: str, text: str) -> list[str]:
    """The options in a message of `command` that do not exist: an option is of the command that stands before it in the
    same sentence or quotation, `cutaway train --resume RUN`, else of the one that prints the message."""
    found = []
    for option in re.finditer(r"(?<![\w-])--[a-z][\w-]*", text):
        if re.search(r"\b(hf|torchrun|curl|pip) [^`]*$", text[: option.start()]):  # of other programs
            continue
        before = re.split(r"`|[.;:] ", text[: option.start()])[-1]
        if before.endswith(("has no option ", "cutaway ")):  # what was typed; cutaway --help
            continue
        named = re.findall(r"\bcutaway ([a-z]+)", before)
        owner = named[-1] if named else command
        if owner not in COMMANDS or option[0] not in options_of(owner):
            found.append(f"{owner or 'cutaway'} {option[0]}")
    return found


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """`cli("train", "mlp", "iris")` in an empty folder; `check` times one step of a model, not twenty. Options that a
    message names must exist."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cost_estimate, "MOST_SECONDS", 0.0)

    def run(*words: str) -> Answer:
        status = main([str(w) for w in words])
        captured = capsys.readouterr()
        answer = Answer(status, captured.out, captured.err)
        assert foreign_options(str(words[0]) if words else "", answer.said) == []
        return answer

    return run
