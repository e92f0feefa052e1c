"""The chapters' pages, read by the script that runs them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

COURSE = Path(__file__).parents[2] / "docs" / "course"


def load() -> ModuleType:
    """docs/course/run.py, which is no part of the package."""
    spec = importlib.util.spec_from_file_location("course_run", COURSE / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["course_run"] = module  # where its dataclasses look for their types
    spec.loader.exec_module(module)
    return module


run = load()
