"""How the studio's processes talk: one JSON document a message, over pipes.

A process of the studio never outlives the one that started it: its reading thread ends the whole process as soon as the
other end of its pipe is gone, whatever the main thread does at that moment.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

Message = dict[str, Any]
END: Message = {"do": "end"}  # ends the process that gets it, whatever it is doing
NICE = 10  # for what gives way to training


class Line:
    """One end of a pipe. What comes is read by a thread of its own and put into a queue."""

    def __init__(
        self,
        connection: Connection,
        name: str,
        inbox: queue.SimpleQueue[tuple[str, Message]] | None = None,
        at_end: Callable[[], None] = lambda: None,
    ) -> None:
        """Messages stand in the inbox as (name, message); several lines can share one. `at_end` is called, in the
        reading thread, when the other end is gone."""
        self.connection, self.name, self.at_end = connection, name, at_end
        self.inbox: queue.SimpleQueue[tuple[str, Message]] = inbox or queue.SimpleQueue()
        threading.Thread(target=self._read, name=f"line-{name}", daemon=True).start()

    def send(self, message: Message, body: bytes = b"") -> None:
        """Send a message; `body` follows it as it is, without being read on the way."""
        with contextlib.suppress(OSError):  # the other end is gone: the reading thread knows what to do
            self.connection.send_bytes(json.dumps(message, allow_nan=False).encode() + b"\n" + body)

    def take(self, wait: float | None = 0.0) -> tuple[str, Message] | None:
        """The next message, and which line it came by; after `wait` seconds None, or never where `wait` is None."""
        try:
            return self.inbox.get(block=wait is None or wait > 0, timeout=wait or None)
        except queue.Empty:
            return None

    def _read(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                message, _ = parted(self.connection.recv_bytes())
                if message == END:
                    os._exit(0)
                self.inbox.put((self.name, message))
        self.at_end()


def parted(data: bytes) -> tuple[Message, bytes]:
    """The message, and what follows it."""
    head, _, body = data.partition(b"\n")
    message: Message = json.loads(head)
    return message, body


def end_with_parent(folder: str) -> Callable[[], None]:
    """What a process does when the studio is gone: remove the studio's folder, if the studio could not, and end."""

    def end() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)

    return end


def step_back() -> None:
    """Let training and all other processes go before."""
    with contextlib.suppress(OSError, AttributeError):
        os.nice(NICE)
