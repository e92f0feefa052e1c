"""Where words go: results to standard output, progress and notes to standard error."""

from __future__ import annotations

import functools
import json
import sys
from typing import TYPE_CHECKING, Any

from ..errors import visible

if TYPE_CHECKING:
    from rich.console import Console


@functools.cache
def console() -> Console:
    """The console on standard output, for tables and results."""
    from rich.console import Console
    from rich.text import Text

    class Plain(Console):
        """A console on which a person's own words (labels, names of files) steer nothing."""

        def render_str(self, text: str, **how: Any) -> Text:
            return super().render_str(visible(text), **how)

    return Plain(highlight=False, soft_wrap=not sys.stdout.isatty())


def note(text: str) -> None:
    """One line on standard error."""
    print(visible(text), file=sys.stderr, flush=True)


def emit_json(value: Any) -> None:
    """One JSON document on standard output; values that JSON has not (NaN, infinity) are an error of ours."""
    print(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False))
