"""Progress of a training in a notebook, as HTML that IPython updates in place. It needs no widgets and no scripts."""

from __future__ import annotations

import html
import sys
import time
from typing import Any

ROWS = 20  # messages and epochs below the bar, at most
MONOSPACE = "font-family: monospace; font-size: 0.85em; white-space: pre"


def in_notebook() -> bool:
    """Return whether the program runs in a kernel of Jupyter, Colab or VS Code, without importing IPython."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class NotebookBar:
    """Progress bar of one training in the output of a cell, with the lines of the last epochs below it."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._lines: list[str] = []
        self._left_out = 0  # lines that are no longer shown
        self._label, self._rate, self._done, self._total = "", "", 0, 1
        self._handle: Any = None

    def start(self) -> None:
        """Show the bar."""
        from IPython.display import HTML, display

        self._display = HTML
        self._handle = display(HTML(self.html()), display_id=True)  # type: ignore[no-untyped-call]

    def update(self, label: str, rate: str, done: int, total: int) -> None:
        """Set the label, the rate, and how many of how many steps are done."""
        self._label, self._rate, self._done, self._total = label, rate, done, total
        self._refresh()

    def line(self, text: str) -> None:
        """Add a line."""
        self._lines.append(text)
        if len(self._lines) > ROWS:
            self._left_out += 1
            del self._lines[0]
        self._refresh()

    def stop(self) -> None:
        """Show the last state, without a rate."""
        self._rate = ""
        self._refresh()

    def html(self) -> str:
        """Return the bar as HTML."""
        left = self._remaining() if self._rate else ""
        words = "&ensp;".join(html.escape(word) for word in (self._label, self._rate, left) if word)
        bar = (
            f'<progress aria-label="progress of training" max="{self._total}" value="{self._done}" '
            'style="width: 14em; vertical-align: middle"></progress>'
        )
        more = [f"({self._left_out} earlier lines)"] if self._left_out else []
        lines = "\n".join(map(html.escape, [*more, *self._lines]))
        return f'<div>{bar}&ensp;{words}</div><div style="{MONOSPACE}">{lines}</div>'

    def _remaining(self) -> str:
        """Return the remaining time at the mean speed so far, as minutes and seconds."""
        if not self._done:
            return ""
        seconds = (time.perf_counter() - self._began) * (self._total - self._done) / self._done
        return f"{int(seconds) // 60}:{int(seconds) % 60:02d} left"

    def _refresh(self) -> None:
        if self._handle is not None:
            self._handle.update(self._display(self.html()))  # type: ignore[no-untyped-call]
