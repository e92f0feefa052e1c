"""Progress of a comparison: a line for each training that ends."""

from __future__ import annotations

import sys
import threading

from ...core.errors import printable


class CompareProgress:
    """Progress of one comparison on standard error."""

    def __init__(self, shown: bool = True) -> None:
        self.shown = shown
        self._turn = threading.Lock()
        self._done = self._of = 0

    def begin(self, of: int, done: int) -> None:
        """Start with `of` trainings, of which `done` are finished already."""
        self._done, self._of = done, of
        if done:
            self.note(f"{done} of {of} trainings are there already.")

    def note(self, sentence: str) -> None:
        """Print a note."""
        self._line(f"note: {sentence}")

    def trained(self, said: str) -> None:
        """Report that a training has ended."""
        with self._turn:
            self._done += 1
            self._line(f"{self._done:>4}/{self._of}  {said}")

    def _line(self, said: str) -> None:
        if self.shown:
            print(printable(said), file=sys.stderr, flush=True)
