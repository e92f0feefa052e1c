"""Communication between the studio's processes: messages over pipes, and weights in shared memory.

A message is one JSON document.

No process of the studio outlives its parent: its reader thread ends the process as soon as the other end of its pipe is
closed, even if the main thread is busy.

Weights are transferred through a memory-mapped file: one copy in, one copy out.
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
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

Message = dict[str, Any]
END: Message = {"do": "end"}  # ends the receiving process at once
NICE = 10  # niceness of processes with lower priority than training


class MessagePipe:
    """One end of a pipe, with a thread that reads messages into a queue."""

    def __init__(
        self,
        connection: Connection,
        name: str,
        inbox: queue.SimpleQueue[tuple[str, Message]] | None = None,
        at_end: Callable[[], None] = lambda: None,
    ) -> None:
        """Set up the line. The inbox holds (name, message) pairs and can be shared. `at_end` is called in the reader
        thread when the other end closes."""
        self.connection, self.name, self.at_end = connection, name, at_end
        self.inbox: queue.SimpleQueue[tuple[str, Message]] = inbox or queue.SimpleQueue()
        threading.Thread(target=self._read, name=f"line-{name}", daemon=True).start()

    def send(self, message: Message, body: bytes = b"") -> None:
        """Send a message, followed by `body` as raw bytes."""
        with contextlib.suppress(OSError):  # the other end is closed: the reader thread handles it
            self.connection.send_bytes(json.dumps(message, allow_nan=False).encode() + b"\n" + body)

    def take(self, wait: float | None = 0.0) -> tuple[str, Message] | None:
        """Return the name of the line and the next message; None after `wait` seconds. If `wait` is None, wait for
        ever."""
        try:
            return self.inbox.get(block=wait is None or wait > 0, timeout=wait or None)
        except queue.Empty:
            return None

    def _read(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                message, _ = split_message(self.connection.recv_bytes())
                if message == END:
                    os._exit(0)
                self.inbox.put((self.name, message))
        self.at_end()


def split_message(data: bytes) -> tuple[Message, bytes]:
    """Split data into the message and the body."""
    head, _, body = data.partition(b"\n")
    message: Message = json.loads(head)
    return message, body


def end_with_parent(folder: str) -> Callable[[], None]:
    """Return a function that ends the process when the studio is gone, and deletes the studio's folder first."""

    def end() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)

    return end


def lower_priority() -> None:
    """Lower the priority of this process below all others."""
    with contextlib.suppress(OSError, AttributeError):
        os.nice(NICE)


ALIGNED = 64  # alignment of tensors in bytes


class Layout:
    """The positions of a model's tensors in one row of bytes."""

    def __init__(self, model: nn.Module) -> None:
        self.tensors = list(model.state_dict().values())  # the model's own memory, not a copy
        self.starts: list[int] = []
        end = 0
        for tensor in self.tensors:
            self.starts.append(end)
            size = tensor.numel() * tensor.element_size()
            end += -(-size // ALIGNED) * ALIGNED
        self.size = max(end, ALIGNED)

    def within(self, row: Tensor) -> list[Tensor]:
        """Return the tensors as views of a row of bytes (size,), each in its own shape."""
        return [
            row[start : start + t.numel() * t.element_size()].view(t.dtype).view(t.shape)
            for start, t in zip(self.starts, self.tensors)
        ]

    @torch.no_grad()
    def write(self, row: Tensor) -> None:
        """Copy the model into the row."""
        for place, tensor in zip(self.within(row), self.tensors):
            place.copy_(tensor)

    @torch.no_grad()
    def read(self, row: Tensor) -> None:
        """Copy the row into the model."""
        for place, tensor in zip(self.within(row), self.tensors):
            tensor.copy_(place)

    def copy(self) -> Tensor:
        """Return a copy of the model as a new row."""
        row = torch.zeros(self.size, dtype=torch.uint8)
        self.write(row)
        return row


def shared_row(path: Path, size: int) -> Tensor:
    """Return a row of bytes (size,) that is shared by all processes that open this path."""
    return torch.from_file(str(path), shared=True, size=size, dtype=torch.uint8)
