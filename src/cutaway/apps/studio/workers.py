"""The two processes of a side, as the server sees them: what is asked of them, and what becomes of those that end.

They are never forked from the server, whose libraries have threads by then, and begin with Ctrl-C blocked, which is the
server's to hear; they end as soon as their pipe to the server does.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import threading
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from ...core.errors import CutawayError
from ..web.processes import START_METHOD, interrupts_blocked, process_context
from .ipc import END, Message, parted

PATIENCE = 2.0  # seconds in which a process ends by itself
PRELOADED = f"{__package__}.preload"


def learn(*words: Any) -> None:
    """What the process does that learns."""
    from .learner import learn

    learn(*words)


def view(*words: Any) -> None:
    """What the process does that looks on."""
    from .viewer import view

    view(*words)


def warm_up() -> None:
    """Begin to import, beside this process, what those of the studio need."""
    process_context(PRELOADED)
    if START_METHOD == "forkserver":
        with interrupts_blocked():
            forkserver.ensure_running()


class Rejected(CutawayError):
    """What a process said no to, in its own words."""


class Fault(Exception):
    """What went wrong in a process, and is nobody's to fix."""


class Ended(CutawayError):
    """A process is gone."""


class Worker:
    """One process, and the line to it."""

    def __init__(self, process: BaseProcess, connection: Connection, on_event: Callable[[Message], None]) -> None:
        self.process, self.connection, self.on_event = process, connection, on_event
        self.loop = asyncio.get_running_loop()
        self.waiting: dict[int, asyncio.Future[tuple[Message, bytes]]] = {}
        self.numbers = itertools.count(1)
        self.ended = False
        self.thread = threading.Thread(target=self._read, name=f"worker-{process.pid}", daemon=True)
        self.thread.start()

    async def ask(self, message: Message) -> tuple[Message, bytes]:
        """Send a message and wait for its answer. Raises Rejected, Fault, or Ended where nobody answers any more."""
        if self.ended:
            raise Ended("This side's process has ended: open it anew.")
        number = next(self.numbers)
        answer = self.waiting[number] = self.loop.create_future()
        try:
            self.tell({**message, "id": number})
            reply, body = await answer
        finally:
            self.waiting.pop(number, None)
        if "error" in reply:
            raise Rejected(reply["error"])
        if "fault" in reply:
            raise Fault(reply["fault"])
        return reply, body

    def tell(self, message: Message) -> None:
        """Send a message that has no answer."""
        with contextlib.suppress(OSError):
            self.connection.send_bytes(json.dumps(message).encode() + b"\n")

    def _read(self) -> None:
        with contextlib.suppress(EOFError, OSError, RuntimeError):  # RuntimeError: the loop is closed
            with contextlib.suppress(EOFError, OSError):
                while True:
                    message, body = parted(self.connection.recv_bytes())
                    self.loop.call_soon_threadsafe(self._deliver, message, body)
            self.loop.call_soon_threadsafe(self._gone)

    def _deliver(self, message: Message, body: bytes) -> None:
        answer = self.waiting.get(message.get("id", 0))
        if answer is None:
            self.on_event(message)
        elif not answer.done():
            answer.set_result((message, body))

    def _gone(self) -> None:
        """Tell everybody who waits."""
        self.ended = True
        for answer in self.waiting.values():
            if not answer.done():
                answer.set_exception(Ended(self.epitaph()))
        self.on_event({"event": "ended"})

    def epitaph(self) -> str:
        """How it ended, in words."""
        self.process.join(PATIENCE)
        code = self.process.exitcode
        how = f" (by signal {-code})" if code is not None and code < 0 else ""
        return f"This side's process has ended{how}, perhaps for want of memory: open it anew."


class Pair:
    """The process that learns and the one that looks on, which have a line to each other too."""

    def __init__(self, folder: str, side: str, on_event: Callable[[Message], None]) -> None:
        context = process_context(PRELOADED)
        to_learner, learner_end = context.Pipe()
        to_viewer, viewer_end = context.Pipe()
        between_learner, between_viewer = context.Pipe()
        threads = max(1, (os.cpu_count() or 1) - 1)  # one is left for looking on and for the page
        self.learner = self._started(
            context.Process(
                target=learn, args=(learner_end, between_learner, folder, side, threads), name=f"learner-{side}"
            ),
            to_learner,
            on_event,
        )
        self.viewer = self._started(
            context.Process(target=view, args=(viewer_end, between_viewer, folder), name=f"viewer-{side}"),
            to_viewer,
            on_event,
        )
        for end in (learner_end, viewer_end, between_learner, between_viewer):
            end.close()  # the processes have them; a line ends where its last holder does

    @staticmethod
    def _started(process: Any, connection: Connection, on_event: Callable[[Message], None]) -> Worker:
        process.daemon = True
        with interrupts_blocked():
            process.start()
        return Worker(process, connection, on_event)

    @property
    def ended(self) -> bool:
        """Whether one of them is gone."""
        return self.learner.ended or self.viewer.ended

    def close(self) -> None:
        """End both, gently, then not."""
        workers = (self.learner, self.viewer)
        for worker in workers:
            worker.tell(END)
        for worker in workers:
            worker.process.join(PATIENCE)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join(PATIENCE)
            worker.thread.join(PATIENCE)  # it has read to the end: the other end is gone
            worker.connection.close()
