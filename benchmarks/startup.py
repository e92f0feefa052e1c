"""How soon `cutaway --help` answers, beside `import torch`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .pairs import Pair, race


def rows() -> list[tuple[Pair, float]]:
    """The one case with the most that its ratio may be."""
    command = str(Path(sys.executable).parent / "cutaway")

    def run(*words: str) -> None:
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)

    return [
        (race("start: cutaway --help, vs. import torch", lambda: run(command, "--help"),
              lambda: run(sys.executable, "-c", "import torch")), 0.4)
    ]  # fmt: skip
