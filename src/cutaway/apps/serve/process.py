"""The process in which the model runs, and its handle in the server, which starts, queries, interrupts and restarts it.

All input of clients is decoded in that process: a decoder that crashes ends the process and not the server. Its memory
is limited (`MemoryLimit`). Messages to the process are pickled Python objects; its replies are JSON. Predictions are
encoded in the process, and the server sends their bytes on.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ...core.errors import CutawayError, memory_message, printable
from ...core.memory_budget import FRACTION, free_memory
from ...runs.run import Run
from ..web.sockets import interrupts_blocked, process_context
from .batching import LargeRequest, Prediction, Predictor
from .inputs import PredictionRequest
from .limits import Bounds
from .text_generation import GenerationRequest, Writer

PATIENCE = 5.0  # seconds to wait for the exit status of a dead process
STOP = getattr(signal, "SIGUSR1", None)  # the signal that no client waits for its result any more
Reply = dict[str, Any]
Step = tuple[int, GenerationRequest, int]  # a text's number, its request, and the number of steps taken


class Rejected(CutawayError):
    """An error that the process reported, with its message."""


class Fault(Exception):
    """An internal error of the process, which has logged its traceback."""


class ProcessEnded(Exception):
    """The process died during a request. The message is for the client."""


class Stopped(BaseException):
    """Raised in the process if no client waits for its result any more."""


class ModelProcess:
    """The server's handle of the process. The process starts with the first request, and again after it has died."""

    def __init__(self, run: Path, bounds: Bounds, target: Callable[..., None] | None = None) -> None:
        """Set up the handle; `target` is the main function of the process, `work` except in tests."""
        self.run, self.bounds, self.target = run, bounds, target or work
        self.files = Path(tempfile.mkdtemp(prefix="cutaway-serve-"))  # the server deletes it on exit
        self.process: Any = None
        self.connection: Any = None
        self.restarts = 0
        self.working = self.closed = False

    @property
    def pid(self) -> int | None:
        """Pid of the process, or None if it has not started."""
        return self.process.pid if self.process is not None else None

    def ask(self, what: str, *args: Any) -> Any:
        """Have the process execute a method of `Worker`, and return the result. Blocks; call it from one thread only.

        Raises Rejected or Fault as the process did, TimeoutError if it was stopped, and ProcessEnded if it died.
        """
        if self.closed:
            raise ProcessEnded("The server is shutting down.")
        if self.process is None or not self.process.is_alive():
            self._start()
        self.working = True
        try:
            return _answer(self._exchange((what, args)))
        finally:
            self.working = False

    def stop(self) -> bool:
        """Tell the process that no client waits for its result any more. It stops between two examples or tokens.

        Returns:
            Whether a request had been sent to the process; while it starts, it receives no signal.
        """
        if not self.working:
            return False
        if STOP is not None:
            with contextlib.suppress(OSError):
                os.kill(self.process.pid, STOP)
        return True

    def kill(self) -> None:
        """Kill the process, for the case that native code keeps it from handling the signal."""
        if self.process is not None:
            self.process.kill()

    def close(self) -> None:
        """Kill the process, refuse further requests and delete temporary files."""
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
        its.close()  # or the pipe would stay open after the process has died
        try:
            _answer(self._exchange(None))
        except (CutawayError, Fault):  # the model could not be loaded
            self.kill()
            self.process = None
            raise

    def _exchange(self, message: Any) -> Reply:
        """Send a message, unless it is None, and return the reply."""
        try:
            if message is not None:
                self.connection.send(message)
            return decode_reply(self.connection.recv_bytes())
        except (EOFError, OSError) as error:
            raise self._ended() from error

    def _ended(self) -> ProcessEnded:
        self.process.join(PATIENCE)
        for left in self.files.glob("*"):
            shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
        code = self.process.exitcode or 0
        how = f" ({signal.Signals(-code).name})" if code < 0 else ""
        return ProcessEnded(
            f"The model's process ended{how} while it processed this request. Possible causes are a damaged file or a "
            "lack of memory. It is restarted. Check the request, or send fewer examples at once."
        )


def encode_reply(reply: Reply) -> bytes:
    """Encode a reply as a line of JSON, followed by a line for each value that is JSON already."""
    encoded: list[bytes] = []

    def refer(value: Any) -> dict[str, int]:
        if not isinstance(value, bytes):
            raise TypeError(f"{type(value).__name__} is not JSON serializable")
        encoded.append(value)
        return {"line": len(encoded) - 1}

    head = json.dumps(reply, default=refer).encode()
    return b"\n".join([head, *encoded])  # JSON escapes line ends


def decode_reply(message: bytes) -> Reply:
    """Decode the first line of a reply; the others stay bytes."""
    head, *encoded = message.split(b"\n")
    reply: Reply = json.loads(head, object_hook=lambda one: encoded[one["line"]] if one.keys() == {"line"} else one)
    return reply


def _answer(reply: Reply) -> Any:
    if "error" in reply:
        raise Rejected(reply["error"])
    if "fault" in reply:
        raise Fault(reply["fault"])
    if "stopped" in reply:
        raise TimeoutError
    return reply["answer"]


def work(connection: Connection, folder: Path, bounds: Bounds, files: Path) -> None:
    """Serve requests on the connection until its other end closes. This is the main function of the process."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the server handles these signals, and ends this process
        signal.signal(number, signal.SIG_IGN)
    worker = Worker(folder, bounds, files)
    if STOP is not None:
        signal.signal(STOP, worker.stop)
    with contextlib.suppress(EOFError, OSError):
        loaded = worker.do("load", ())
        connection.send_bytes(loaded)
        limit = MemoryLimit()
        while "answer" in json.loads(loaded):
            asked = connection.recv()
            limit.renew()
            connection.send_bytes(worker.do(*asked))


class MemoryLimit:
    """A limit on the memory of this process: its current memory plus FRACTION of the free memory.

    Beyond it an allocation fails and the request is rejected. Otherwise the system would end a process, perhaps that of
    another program. Writable memory is limited (RLIMIT_DATA), and not addresses, because a GPU reserves many that it
    never uses.
    """

    def __init__(self) -> None:
        try:
            import resource
        except ImportError:  # Windows
            resource = None  # type: ignore[assignment]
        self.resource = resource
        self.original = resource.getrlimit(resource.RLIMIT_DATA) if resource else (0, 0)
        self.renewed = -math.inf

    def renew(self) -> None:
        """Set the limit by the memory that is free now, unless that was done within the last second."""
        now = time.monotonic()
        if self.resource is None or now < self.renewed + 1:
            return
        self.renewed = now
        resource, (soft, hard) = self.resource, self.original
        with contextlib.suppress(OSError, ValueError, IndexError):  # the system reports or limits no memory
            pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[5])  # writable
            resource.setrlimit(resource.RLIMIT_DATA, self.original)  # which counts in `free_memory`
            if (free := free_memory()) is not None:
                most = pages * resource.getpagesize() + int(FRACTION * free)
                resource.setrlimit(
                    resource.RLIMIT_DATA, (most if soft == resource.RLIM_INFINITY else min(most, soft), hard)
                )


class Worker:
    """The methods that the process executes for the server."""

    def __init__(self, folder: Path, bounds: Bounds, files: Path) -> None:
        self.folder, self.bounds, self.files = folder, bounds, files
        self.writers: dict[int, Writer] = {}
        self.working = False

    @functools.cached_property
    def run(self) -> Run:
        """The run, opened on first use."""
        return Run(self.folder)

    @functools.cached_property
    def predictor(self) -> Predictor:
        """The predictor, built on first use."""
        return Predictor(self.run, self.files)

    def do(self, what: str, args: Sequence[Any]) -> bytes:
        """Execute the method `what`, and return its result or its error as JSON."""
        methods: dict[str, Callable[..., Any]] = {"load": self.load, "predict": self.predict, "write": self.write}
        try:
            self.working = True
            try:
                reply: Reply = {"answer": methods[what](*args)}
            finally:
                self.working = False
        except Stopped:
            self.working = False
            reply = {"stopped": True}
        except BaseException as error:  # a panic of a Rust library is not an Exception
            reply = error_reply(error)
        return encode_reply(reply)

    def stop(self, *_: Any) -> None:
        """Raise Stopped if a method is running. This is a signal handler."""
        if self.working:
            self.working = False
            raise Stopped

    def load(self, example: PredictionRequest | None = None) -> None:
        """Load the model, and predict an example as a warm-up, because the first prediction is slow."""
        self.run.place.model(self.run.model, learns=False)
        if example is not None:
            self.predictor([example])

    def predict(self, asked: Sequence[PredictionRequest], large: bool) -> list[Reply]:
        """Return the predictions or the error for each request. Unless `large` is true, the reply to a large request
        says that it is large."""
        found = self.predictor(asked, self.bounds, large)
        return [_prediction_reply(one) if isinstance(one, Prediction) else error_reply(one) for one in found]

    def write(self, steps: Sequence[Step]) -> list[Reply]:
        """Generate one more token of each text; `steps` lists all texts in progress.

        A text that is not known here was started in a process that has died. It is generated again from its seed up to
        the same point.
        """
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
                replies.append(error_reply(error))
        return replies


def _prediction_reply(found: Prediction) -> Reply:
    """Return a prediction as a reply: the members of its JSON document, and its number of rows."""
    try:
        members = {"predictions": found.rows, "notes": found.notes}
        document = json.dumps(members, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        return {"rows": len(found.rows), "members": document[1:-1]}
    except Exception as error:  # as a lone surrogate, which UTF-8 cannot encode
        return error_reply(error)


def error_reply(error: BaseException) -> Reply:
    """Return an error as a reply: its message if it is meant for the client; otherwise its traceback is logged."""
    if isinstance(error, LargeRequest):
        return {"large": True}
    if isinstance(error, CutawayError):
        return {"error": str(error)}
    if memory_message(error) is not None:
        return {"error": "Memory ran out while this request was processed. Send fewer or smaller examples at once."}
    print(printable("".join(traceback.format_exception(error))), file=sys.stderr, flush=True)
    return {"fault": f"{type(error).__name__} in the process of the model"}
