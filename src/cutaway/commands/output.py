"""Where words go: results to standard output, progress and notes to standard error."""

from __future__ import annotations

import functools
import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


@functools.cache
def console() -> Console:
    """The console on standard output, for tables and results."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def note(text: str) -> None:
    """One line on standard error."""
    print(text, file=sys.stderr, flush=True)


def emit_json(value: Any) -> None:
    """One JSON document on standard output; values that JSON has not (NaN, infinity) are an error of ours."""
    print(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False))
