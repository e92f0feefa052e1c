"""How a person or the system asks a run to stop."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(KeyboardInterrupt):
    """The person or the system asked the run to stop; a checkpoint was written. The message says how to go on."""


class Stop:
    """Ctrl-C and SIGTERM ask a run to end after the running step; a second Ctrl-C ends it at once."""

    def __init__(self) -> None:
        self.asked = False

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Within this context both signals are heard."""
        try:
            before = {s: signal.signal(s, self._ask) for s in (signal.SIGINT, signal.SIGTERM)}
        except ValueError:  # signals belong to the main thread: elsewhere nobody can press Ctrl-C
            before = {}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked and number == signal.SIGINT:  # torchrun sends SIGTERM after what a person sends
            raise KeyboardInterrupt
        self.asked = True
