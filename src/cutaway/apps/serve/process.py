"""The process in which the model runs: what it does, and how the server starts, asks, interrupts and replaces it.

All that clients send is decoded there: a decoder that crashes, or a file that takes all memory, ends that process and
not the server. What it is sent are Python objects, what it answers is JSON.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ...core.errors import CutawayError, memory_message, visible
from ...runs.run import Run
from ..web.processes import interrupts_blocked, process_context
from .batching import LargeRequest, Predictor, Said
from .inputs import Given
from .limits import Bounds
from .text_generation import Wanted, Writer

PATIENCE = 5.0  # seconds in which a process that has ended says how
STOP = getattr(signal, "SIGUSR1", None)  # tells it that nobody waits for its answer any more
Reply = dict[str, Any]
Step = tuple[int, Wanted, int]  # a text's number, what is asked, and how many steps it has taken


class Rejected(CutawayError):
    """An error of the process, in its words."""


class Fault(Exception):
    """An internal error of the process, whose traceback it has written."""


class ProcessEnded(Exception):
    """The process ended while it worked. Its words are for whoever asked."""


class Stopped(BaseException):
    """Raised in the process where nobody waits for its answer any more."""


class ModelProcess:
    """The process, as the server sees it. It is started when it is first asked, and anew when it has ended."""

    def __init__(self, run: Path, bounds: Bounds, target: Callable[..., None] | None = None) -> None:
        """`target` is what the process does, `work` unless a test says otherwise."""
        self.run, self.bounds, self.target = run, bounds, target or work
        self.files = Path(tempfile.mkdtemp(prefix="cutaway-serve-"))  # which the server removes, however it ends
        self.process: Any = None
        self.connection: Any = None
        self.restarts = 0
        self.working = self.closed = False

    @property
    def pid(self) -> int | None:
        """The number of the process, while there is one."""
        return self.process.pid if self.process is not None else None

    def ask(self, what: str, *words: Any) -> Any:
        """Have the process do something, and return its answer. Blocks: call it from one thread.

        Raises Rejected or Fault as the process did, TimeoutError where it was stopped, and ProcessEnded where it ended.
        """
        if self.closed:
            raise ProcessEnded("The server is closing.")
        if self.process is None or not self.process.is_alive():
            self._start()
        self.working = True
        try:
            return _answer(self._exchange((what, words)))
        finally:
            self.working = False

    def stop(self) -> None:
        """Tell the process that nobody waits for its answer any more: it stops between two examples or tokens."""
        if self.working and STOP is not None:
            with contextlib.suppress(OSError):
                os.kill(self.process.pid, STOP)

    def kill(self) -> None:
        """End the process, which native code may keep from hearing that it should stop."""
        if self.process is not None:
            self.process.kill()

    def close(self) -> None:
        """End the process for good, and leave no file behind."""
        self.closed = True
        self.kill()
        shutil.rmtree(self.files, ignore_errors=True)

    def _start(self) -> None:
        if self.process is not None:
            self.restarts += 1
            self.connection.close()
        context = process_context(__name__)
        self.connection, its = context.Pipe()
        self.process = context.Process(target=self.target, args=(its, self.run, self.bounds, self.files), daemon=True)
        with interrupts_blocked():
            self.process.start()
        its.close()  # the line ends where its last holder does
        try:
            _answer(self._exchange(None))
        except (CutawayError, Fault):  # it has no model, and is of no use
            self.kill()
            self.process = None
            raise

    def _exchange(self, message: Any) -> Reply:
        """Send a message, unless it is None, and return what comes back."""
        try:
            if message is not None:
                self.connection.send(message)
            reply: Reply = json.loads(self.connection.recv_bytes())
        except (EOFError, OSError) as error:
            raise self._ended() from error
        return reply

    def _ended(self) -> ProcessEnded:
        self.process.join(PATIENCE)
        for left in self.files.glob("*"):
            shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
        code = self.process.exitcode or 0
        how = f" ({signal.Signals(-code).name})" if code < 0 else ""
        return ProcessEnded(
            f"The process that reads requests ended{how} while it worked on this one, as a damaged file or a lack of "
            "memory can make it. It is started again. Check what was sent, or send less of it at once."
        )


def _answer(reply: Reply) -> Any:
    if "error" in reply:
        raise Rejected(reply["error"])
    if "fault" in reply:
        raise Fault(reply["fault"])
    if "stopped" in reply:
        raise TimeoutError
    return reply["answer"]


def work(connection: Connection, folder: Path, bounds: Bounds, files: Path) -> None:
    """Answer what comes over the connection, until its other end is gone."""
    for number in (signal.SIGINT, signal.SIGTERM):  # they are for the server, which ends this
        signal.signal(number, signal.SIG_IGN)
    worker = Worker(folder, bounds, files)
    if STOP is not None:
        signal.signal(STOP, worker.stop)
    with contextlib.suppress(EOFError, OSError):
        loaded = worker.do("load", ())
        connection.send_bytes(loaded)
        while "answer" in json.loads(loaded):
            connection.send_bytes(worker.do(*connection.recv()))


class Worker:
    """What the process can do."""

    def __init__(self, folder: Path, bounds: Bounds, files: Path) -> None:
        self.folder, self.bounds, self.files = folder, bounds, files
        self.writers: dict[int, Writer] = {}
        self.working = False

    @functools.cached_property
    def run(self) -> Run:
        """The run."""
        return Run(self.folder)

    @functools.cached_property
    def predictor(self) -> Predictor:
        """What predicts."""
        return Predictor(self.run, self.files)

    def do(self, what: str, words: Sequence[Any]) -> bytes:
        """The answer to what was asked, or the error that it raises, as JSON."""
        methods: dict[str, Callable[..., Any]] = {"load": self.load, "predict": self.predict, "write": self.write}
        try:
            self.working = True
            try:
                reply: Reply = {"answer": methods[what](*words)}
            finally:
                self.working = False
        except Stopped:
            self.working = False
            reply = {"stopped": True}
        except BaseException as error:  # a panic of a library in Rust is no Exception
            reply = described(error)
        return json.dumps(reply).encode()

    def stop(self, *_: Any) -> None:
        """Raise Stopped where something is being done. It is the handler of a signal."""
        if self.working:
            self.working = False
            raise Stopped

    def load(self, example: Given | None = None) -> None:
        """Read the model, and ask it about an example: the first answer would else be a slow one."""
        self.run.place.model(self.run.model, learns=False)
        if example is not None:
            self.predictor([example])

    def predict(self, asked: Sequence[Given], large: bool) -> list[Reply]:
        """What the run says of each request, or what is wrong with it. Unless `large` ones are taken, the reply to a
        large one is that it is large."""
        found = self.predictor(asked, self.bounds, large)
        return [{"rows": one.rows, "notes": one.notes} if isinstance(one, Said) else described(one) for one in found]

    def write(self, steps: Sequence[Step]) -> list[Reply]:
        """One step of each of these texts, which are all that are being written. A text that this process does not know
        was begun in one that has ended: it is written again up to where it was, which its seed repeats."""
        known = self.writers
        self.writers = {number: known.get(number) or Writer(self.run, wanted) for number, wanted, _ in steps}
        replies = []
        for number, _, taken in steps:
            writer = self.writers[number]
            try:
                while writer.steps < taken:
                    writer.next()
                replies.append({"piece": writer.next(), "state": writer.state()})
            except Exception as error:
                replies.append(described(error))
        return replies


def described(error: BaseException) -> Reply:
    """An error as it is answered: its words, where they are for whoever asked; else its traceback goes to the log."""
    if isinstance(error, LargeRequest):
        return {"large": True}
    if isinstance(error, CutawayError):
        return {"error": str(error)}
    if memory_message(error) is not None:
        return {"error": "Memory ran out while this request was worked on. Send fewer or smaller examples at once."}
    print(visible("".join(traceback.format_exception(error))), file=sys.stderr, flush=True)
    return {"fault": f"{type(error).__name__} in the process of the model"}
