"""Shell completion, in a real bash."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cutaway.apps.cli import main

ASK = """
source ./completion
complete -p cutaway >&2
COMP_WORDS=({words}) COMP_CWORD={at} COMPREPLY=()
_shtab_cutaway cutaway "${{COMP_WORDS[-1]}}"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def complete(words: str) -> set[str]:
    """Return the completions of bash after these words, of which the last is begun."""
    script = ASK.format(words=words, at=len(words.split()) - 1)
    done = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "cutaway" in done.stderr
    return set(done.stdout.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_commands_options_and_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--print-completion", "bash"]) == 0
    Path("completion").write_text(capsys.readouterr().out, encoding="utf-8")
    Path("wine.csv").touch()
    assert complete("cutaway ev") == {"evaluate"}
    assert {"--out", "--resume"} <= complete("cutaway train --")
    assert complete("cutaway serve --max-bat") == {"--max-batch"}
    assert complete("cutaway predict wi") == {"wine.csv"}


def test_a_shell_without_completion_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--print-completion", "fish"]) == 2
    assert "Available: bash, tcsh, zsh" in " ".join(capsys.readouterr().err.split())


def test_completion_does_not_import_torch() -> None:
    code = "import sys; from cutaway.apps.cli import main; main(['--print-completion', 'zsh'])"
    code += "; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.endswith("False\n"), done.stderr
