"""The server's handles of the two processes of a side: requests to them, and their end.

The processes are never forked from the server, whose libraries have started threads by then. They start with Ctrl-C
blocked, because the server handles it, and end as soon as their pipe to the server closes.
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
from ..networking import START_METHOD, interrupts_blocked, process_context
from .ipc import END, Message, split_message

PATIENCE = 2.0  # seconds in which a process has to end before it is killed
PRELOADED = f"{__package__}.preload"


def learn(*words: Any) -> None:
    """Run the learner. This is the main function of its process."""
    from .learner import learn

    learn(*words)


def view(*words: Any) -> None:
    """Run the viewer. This is the main function of its process."""
    from .viewer import view

    view(*words)


def warm_up() -> None:
    """Start the import of the studio's modules in the fork server, in parallel with this process."""
    process_context(PRELOADED)
    if START_METHOD == "forkserver":
        with interrupts_blocked():
            forkserver.ensure_running()


class Rejected(CutawayError):
    """An error that a process reported, with its message and its code."""

    code = "CUT-603"


class Fault(Exception):
    """An internal error of a process, which the user cannot fix."""


class WorkerEnded(CutawayError):
    """A process has ended."""

    code = "CUT-503"


class Worker:
    """One process, and the pipe to it."""

    def __init__(self, process: BaseProcess, connection: Connection, on_event: Callable[[Message], None]) -> None:
        self.process, self.connection, self.on_event = process, connection, on_event
        self.loop = asyncio.get_running_loop()
        self.waiting: dict[int, asyncio.Future[tuple[Message, bytes]]] = {}
        self.numbers = itertools.count(1)
        self.ended = False
        self.thread = threading.Thread(target=self._read, name=f"worker-{process.pid}", daemon=True)
        self.thread.start()

    async def ask(self, message: Message) -> tuple[Message, bytes]:
        """Send a message and wait for its reply. Raises Rejected, Fault, or Ended if the process has ended."""
        if self.ended:
            raise WorkerEnded("The process of this side has ended: open the model again.")
        number = next(self.numbers)
        answer = self.waiting[number] = self.loop.create_future()
        try:
            self.send({**message, "id": number})
            reply, body = await answer
        finally:
            self.waiting.pop(number, None)
        if "error" in reply:
            raise Rejected(reply["error"], code=reply["code"])
        if "fault" in reply:
            raise Fault(reply["fault"])
        return reply, body

    def send(self, message: Message) -> None:
        """Send a message to the process, and do not wait for a reply."""
        with contextlib.suppress(OSError):
            self.connection.send_bytes(json.dumps(message).encode() + b"\n")

    def _read(self) -> None:
        with contextlib.suppress(EOFError, OSError, RuntimeError):  # RuntimeError: the loop is closed
            with contextlib.suppress(EOFError, OSError):
                while True:
                    message, body = split_message(self.connection.recv_bytes())
                    self.loop.call_soon_threadsafe(self._deliver, message, body)
            self.loop.call_soon_threadsafe(self._gone)

    def _deliver(self, message: Message, body: bytes) -> None:
        answer = self.waiting.get(message.get("id", 0))
        if answer is None:
            self.on_event(message)
        elif not answer.done():
            answer.set_result((message, body))

    def _gone(self) -> None:
        """Fail all pending requests after the process has ended."""
        self.ended = True
        for answer in self.waiting.values():
            if not answer.done():
                answer.set_exception(WorkerEnded(self.exit_message()))
        self.on_event({"event": "ended"})

    def exit_message(self) -> str:
        """Return a message on how the process ended."""
        self.process.join(PATIENCE)
        code = self.process.exitcode
        how = f" (by signal {-code})" if code is not None and code < 0 else ""
        return f"The process of this side has ended{how}, possibly out of memory: open the model again."


class Pair:
    """The learner and the viewer of a side, which also have a pipe to each other."""

    def __init__(self, folder: str, side: str, on_event: Callable[[Message], None]) -> None:
        context = process_context(PRELOADED)
        to_learner, learner_end = context.Pipe()
        to_viewer, viewer_end = context.Pipe()
        between_learner, between_viewer = context.Pipe()
        threads = max(1, (os.cpu_count() or 1) - 1)  # leave one core for the viewer and the page
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
            end.close()  # the processes hold them; or the pipes would not close when they end

    @staticmethod
    def _started(process: Any, connection: Connection, on_event: Callable[[Message], None]) -> Worker:
        process.daemon = True
        with interrupts_blocked():
            process.start()
        return Worker(process, connection, on_event)

    @property
    def ended(self) -> bool:
        """True if one of the processes has ended."""
        return self.learner.ended or self.viewer.ended

    def close(self) -> None:
        """Ask both processes to end, then kill them."""
        workers = (self.learner, self.viewer)
        for worker in workers:
            worker.send(END)
        for worker in workers:
            worker.process.join(PATIENCE)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join(PATIENCE)
            worker.thread.join(PATIENCE)  # it ends when the pipe is closed
            worker.connection.close()
