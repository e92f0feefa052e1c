"""What the README says to type is typed here, as written and in its order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.slow
def test_the_commonest_uses_run_as_written(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
    }
    commands = [line for block in blocks("bash") for line in block.splitlines()]
    assert len(commands) >= 12
    for command in [*commands, f"python -c '{blocks('python')[0]}'"]:
        run = subprocess.run(command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert run.returncode == 0, (command, run.stdout, run.stderr)
    assert (tmp_path / "predictions.csv").read_text().count("\n") == 179


def test_every_file_that_is_linked_is_there() -> None:
    linked = [p for p in re.findall(r"\]\(([^)#]+)\)", README) if not p.startswith("http")]
    assert linked
    assert not [p for p in linked if not (ROOT / p).exists()]
