"""The process in which the model runs, and the scheduling of requests on it: batches of examples, and tokens of texts.

All input of clients is decoded in that process: a decoder that crashes ends the process and not the server. Its memory
is limited (`MemoryLimit`). Messages to the process are pickled Python objects; its replies are JSON. Predictions are
encoded in the process, and the server sends their bytes on.

Large requests are those with more than `max_batch` examples or more than an eighth of a bound. They are computed one
after another in a second process, which starts with the first of them, so that no other request waits for them. Each is
computed in one piece, so that its answer does not depend on other requests.

Small requests that arrive while the model is busy form the next batch. A batch waits for more requests, at most
`batch_wait`, only if the batch before it held several: a single client never waits. Texts are generated concurrently,
one token of each per step, and each comes out as if it were generated alone. If no client waits for the result of a
process any more, the process receives a stop signal; it is killed if it does not stop. If a process dies, the requests
of its batch are computed again one by one.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import math
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from ...core.errors import CutawayError, MemoryLimitError, memory_message, printable
from ...core.memory_budget import FRACTION, free_memory
from ...runs.run import Run
from ..networking import interrupts_blocked, process_context
from .inputs import PredictionRequest
from .limits import Bounds, Limits
from .middleware import Metrics, resident_memory
from .prediction import LargeRequest, Prediction, Predictor
from .text_generation import GenerationRequest, Text, Texts, Writer

PATIENCE = 5.0  # seconds to wait for the exit status of a dead process
STOP = getattr(signal, "SIGUSR1", None)  # the signal that no client waits for its result any more
Reply = dict[str, Any]
Step = tuple[int, GenerationRequest, int]  # a text's number, its request, and the number of steps taken


class Rejected(CutawayError):
    """An error that the process reported, with its message and its code."""

    code = "CUT-603"


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
        if self.process is not None and self.process.pid is not None:  # it has none while it starts
            self.process.kill()

    def close(self) -> None:
        """Kill the process, refuse further requests and delete temporary files."""
        self.closed = True
        self.kill()
        shutil.rmtree(self.files, ignore_errors=True)

    def _start(self) -> None:
        """Start the process, again if one has run, and wait until the model is loaded."""
        if self.process is not None:
            self.restarts += 1
            self.connection.close()
        context = process_context(__name__)
        self.connection, its = context.Pipe()
        self.process = context.Process(target=self.target, args=(its, self.run, self.bounds, self.files), daemon=True)
        try:
            with interrupts_blocked():
                self.process.start()
        except (EOFError, OSError) as error:  # the process that forks it has ended, as by a signal to the whole group
            self.process = None
            raise ProcessEnded("The model's process could not be started. Send the request again.") from error
        its.close()  # or the pipe would stay open after the process has died
        if self.closed:  # while it started
            self.kill()
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
        raise Rejected(reply["error"], code=reply["code"])
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
        return {"error": str(error), "code": error.code}
    if memory_message(error) is not None:
        words = "Memory ran out while this request was processed. Send fewer or smaller examples at once."
        return {"error": words, "code": MemoryLimitError.code}
    print(printable("".join(traceback.format_exception(error))), file=sys.stderr, flush=True)
    return {"fault": f"{type(error).__name__} in the process of the model"}


T = TypeVar("T")
Job = tuple[PredictionRequest, "asyncio.Future[Answer]"]
GRACE = 5.0  # seconds in which a process has to stop once no client waits for its result
REPEAT = 0.1  # seconds between two stop signals


@dataclass(frozen=True)
class Answer:
    """The answer to a prediction request, as the process of the model encoded it."""

    rows: int
    members: bytes  # of a JSON document: "predictions":[…],"notes":[…]


class ProcessWorker:
    """A process of the model, and the thread that talks to it."""

    def __init__(self, run: Run, limits: Limits) -> None:
        self.process = ModelProcess(run.folder, limits.bounds)
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="model")

    async def in_thread(self, do: Callable[[], T]) -> T:
        """Run `do` in the thread and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self.thread, do)

    async def run_while_needed(self, do: Callable[[], T], left: Coroutine[Any, Any, object]) -> T:
        """Run `do` in the thread and return its result. If `left` finishes first, the process receives stop signals,
        because no client waits any more. They are repeated, because a process ignores those that arrive before the
        request does."""
        work, gone = asyncio.ensure_future(self.in_thread(do)), asyncio.create_task(left)
        await asyncio.wait([work, gone], return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if work.done():
            return await work
        grace = GRACE
        while not work.done():
            if self.process.stop():
                grace -= REPEAT
            if grace <= 0:
                self.process.kill()
            await asyncio.wait([work], timeout=REPEAT)
        return await work

    def close(self) -> None:
        """End the process and the thread, and delete temporary files."""
        self.process.close()
        self.thread.shutdown(wait=False, cancel_futures=True)


class Engine:
    """The scheduler between requests and the model."""

    def __init__(self, run: Run, limits: Limits, metrics: Metrics) -> None:
        self.limits, self.metrics = limits, metrics
        self.small, self.large = ProcessWorker(run, limits), ProcessWorker(run, limits)
        self.numbers = itertools.count()  # of texts
        self.jobs: deque[Job] = deque()
        self.large_jobs: asyncio.Queue[Job] = asyncio.Queue()
        self.waiting: deque[Text] = deque()
        self.writing: list[Text] = []
        self.news = asyncio.Event()
        self.crowd = 1  # requests in the previous batch
        metrics.add_gauge("cutaway_queue_requests", "Requests that wait for the model.", self._num_waiting)
        metrics.add_gauge("cutaway_model_restarts", "Restarts of the model's processes.", self._num_restarts)
        metrics.add_gauge("cutaway_resident_memory_bytes", "Memory of the server and its model.", self._resident)
        metrics.add_gauge("cutaway_texts", "Texts in generation.", lambda: len(self.writing))

    def _num_waiting(self) -> int:
        return len(self.jobs) + self.large_jobs.qsize()

    def _num_restarts(self) -> int:
        return self.small.process.restarts + self.large.process.restarts

    def _resident(self) -> float:
        pids = [worker.process.pid for worker in (self.small, self.large)]
        return resident_memory("self") + sum(resident_memory(pid) for pid in pids if pid is not None)

    async def load(self, example: PredictionRequest | None = None) -> None:
        """Start the process of the model and predict an example. Raises what loading the model raises."""
        await self.small.in_thread(lambda: self.small.process.ask("load", example))

    async def predict(self, given: PredictionRequest) -> Answer:
        """Return the answer to one request. Raises what predicting raises."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if given.examples > self.limits.max_batch:
            self.large_jobs.put_nowait((given, future))
        else:
            self.jobs.append((given, future))
            self.news.set()
        return await future

    async def write(self, wanted: Sequence[GenerationRequest]) -> Texts:
        """Start texts and return them once the first token of any is there. Raises what generation raises."""
        texts = Texts(wanted, self.numbers)
        self.waiting.extend(texts.texts)
        self.news.set()
        try:
            await texts.begun
        except BaseException:
            texts.leave()
            raise
        return texts

    async def work(self) -> None:
        """Process requests until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._work_small())
            group.create_task(self._work_large())

    async def _work_large(self) -> None:
        while True:
            job = await self.large_jobs.get()
            if not job[1].done():  # otherwise the client has disconnected
                await self._predict([job], self.large)

    async def _work_small(self) -> None:
        while True:
            if not (self.jobs or self.waiting or self.writing):
                self.news.clear()
                await self.news.wait()
            if self.jobs:
                await self._predict(await self._next_batch(), self.small)
            while self.waiting and len(self.writing) < self.limits.streams:
                self.writing.append(self.waiting.popleft())
            if self.writing:
                await self._write()

    def close(self) -> None:
        """End the processes and the threads that talk to them, and delete temporary files."""
        self.small.close()
        self.large.close()

    async def _next_batch(self) -> list[Job]:
        """Return the next batch."""
        loop = asyncio.get_running_loop()
        if self.crowd > 1 and not self.writing and self.limits.batch_wait:
            end = loop.time() + self.limits.batch_wait
            timer = loop.call_at(end, self.news.set)
            while sum(given.examples for given, _ in self.jobs) < self.limits.max_batch and loop.time() < end:
                self.news.clear()
                await self.news.wait()
            timer.cancel()
        batch: list[Job] = []
        size = 0
        while self.jobs:
            given, future = self.jobs[0]
            if batch and (given.alone or size + given.examples > self.limits.max_batch):
                break
            self.jobs.popleft()
            if future.done():  # the client has disconnected
                continue
            batch.append((given, future))
            size += given.examples
            if given.alone:
                break
        self.crowd = len(batch)
        return batch

    async def _predict(self, batch: Sequence[Job], worker: ProcessWorker) -> None:
        """Compute a batch and give each request its answer, or move it to the large requests."""
        if not batch:
            return
        found: Sequence[Answer | Exception]
        futures = [future for _, future in batch]
        try:
            found = await worker.run_while_needed(lambda: self._answers(batch, worker.process), asyncio.wait(futures))
        except Exception as error:  # such as a full disk; later requests must still be served
            found = [error] * len(batch)
        computed = [given.examples for (given, _), answer in zip(batch, found) if not isinstance(answer, LargeRequest)]
        if computed:
            self.metrics.batches.observe(sum(computed))
        for (given, future), answer in zip(batch, found):
            if isinstance(answer, Answer):
                self.metrics.examples.inc(answer.rows)
            if future.done():
                continue
            if isinstance(answer, LargeRequest):
                self.large_jobs.put_nowait((given, future))
            elif isinstance(answer, Answer):
                future.set_result(answer)
            else:
                future.set_exception(answer)

    def _answers(self, batch: Sequence[Job], process: ModelProcess) -> list[Answer | Exception]:
        """Return the answer to each request, or its exception. Runs in the thread that talks to the process."""
        try:
            replies = process.ask("predict", [given for given, _ in batch], process is self.large.process)
        except ProcessEnded as error:
            if len(batch) == 1:
                return [error]
            return [TimeoutError() if job[1].done() else self._answers([job], process)[0] for job in batch]
        return [Answer(reply["rows"], reply["members"]) if "rows" in reply else _error(reply) for reply in replies]

    async def _write(self) -> None:
        """Generate one more token of each text."""
        texts = [text for text in self.writing if not text.left]
        before = sum(text.tokens for text in texts)
        steps = [(text.number, text.wanted, text.steps) for text in texts]
        replies: Sequence[Reply | Exception]
        try:
            replies = await self.small.run_while_needed(
                lambda: self.small.process.ask("write", steps), _all_left(texts)
            )
        except Exception as error:
            replies = [error] * len(texts)
        for text, reply in zip(texts, replies):
            if isinstance(reply, Exception):
                text.take(reply)
            elif "piece" in reply:
                text.take(reply["piece"], reply["state"])
            else:
                text.take(_error(reply))
        self.metrics.tokens.inc(sum(text.tokens for text in texts) - before)
        self.writing = [text for text in texts if not text.left]


async def _all_left(texts: Sequence[Text]) -> None:
    for text in texts:
        await text.gone.wait()


def _error(reply: Reply) -> Exception:
    if "large" in reply:
        return LargeRequest()
    return Rejected(reply["error"], code=reply["code"]) if "error" in reply else Fault(reply["fault"])
