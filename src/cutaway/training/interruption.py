"""Graceful stop of a run on signals."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(KeyboardInterrupt):
    """Training was stopped by the user or the system, after writing a checkpoint. The message tells how to resume."""


class Stop:
    """Signal handler: Ctrl-C and SIGTERM stop a run after the current step, a second Ctrl-C at once."""

    def __init__(self) -> None:
        self.asked = False

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Handle both signals within this context."""
        try:
            before = {s: signal.signal(s, self._ask) for s in (signal.SIGINT, signal.SIGTERM)}
        except ValueError:  # signals can only be handled in the main thread
            before = {}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked and number == signal.SIGINT:  # torchrun sends SIGTERM after the user's signal
            raise KeyboardInterrupt
        self.asked = True
