"""The command line as a person meets it: words in, exit status and text out, in a folder of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from cutaway.commands import main
from cutaway.training import estimate


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


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """`cli("train", "mlp", "iris")` in an empty folder; `check` times one step of a model, not twenty."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(estimate, "MOST_SECONDS", 0.0)

    def run(*words: str) -> Answer:
        status = main([str(w) for w in words])
        captured = capsys.readouterr()
        return Answer(status, captured.out, captured.err)

    return run
