"""What a person's own files look like: those that examples/make.py writes."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType

EXAMPLES = Path(__file__).parents[2] / "examples" / "sequences.py"


@cache
def examples() -> ModuleType:
    """examples/sequences.py, which is a script beside the package and no part of it."""
    spec = importlib.util.spec_from_file_location("examples_of_sequences", EXAMPLES)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
