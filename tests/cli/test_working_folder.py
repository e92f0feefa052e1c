"""What lies in the folder that a person works in is data: no command imports it, nor does a process that it starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cutaway.apps.cli import main


def test_neither_the_command_nor_its_children_look_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "colorsys.py").write_text("raise SystemExit('the file of the working folder was run')")
    (tmp_path / "more").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path, str(tmp_path), "more"])
    monkeypatch.setattr(sys, "argv", ["cutaway", "--version"])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", str(tmp_path / "more"), "."]))
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    asked = [sys.executable, "-c", "import colorsys, sys; print(sys.path)"]
    assert subprocess.run(asked, capture_output=True).returncode == 1, "it would be run"
    assert main() == 0
    assert "cutaway" in capsys.readouterr().out
    assert not {"", ".", str(tmp_path)} & {*sys.path}
    assert "more" in sys.path, "what somebody put on the path stays there"
    answer = subprocess.run(asked, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    assert str(tmp_path / "more") in answer.stdout


def test_called_from_python_it_leaves_the_path_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    assert main(["--version"]) == 0
    assert sys.path[0] == ""
    assert os.environ["PYTHONSAFEPATH"] == ""
