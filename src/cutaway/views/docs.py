"""Documentation of the views, read from their source files without importing the views or torch.

A view defines it at the top of its file, before its first function or class, in plain literals.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..core.errors import UnknownName
from . import VIEWS

HERE = Path(__file__).parent
NAMES = ("SAYS", "READ", "MISLEADS", "OPTIONS")


@functools.cache
def view_docs(name: str) -> dict[str, Any]:
    """Return SAYS, READ, MISLEADS and OPTIONS of a view, by these names.

    Raises:
        UnknownName: If there is no such view.
    """
    if name not in VIEWS:
        raise UnknownName("view", name, VIEWS, "`cutaway inspect --help` lists them.")
    said: dict[str, Any] = {}
    head, *_ = re.split(r"^(?:def|class|@)", (HERE / f"{name}.py").read_text(encoding="utf-8"), flags=re.MULTILINE)
    for node in ast.parse(head).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and target.id in NAMES and isinstance(node, ast.Assign | ast.AnnAssign):
            said[target.id] = ast.literal_eval(node.value) if node.value else None
    return said


def view_options(names: Iterable[str]) -> dict[str, list[str]]:
    """Return every option of these views, with the names of the views that have it."""
    found: dict[str, list[str]] = {}
    for name in names:
        for option in view_docs(name)["OPTIONS"]:
            found.setdefault(option, []).append(name)
    return found
