"""Scheduling of requests on the processes of the model: batches of examples, and tokens of texts.

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
import itertools
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from ...runs.run import Run
from .batching import LargeRequest
from .inputs import PredictionRequest
from .limits import Limits
from .middleware import Metrics, resident_memory
from .process import Fault, ModelProcess, ProcessEnded, Rejected, Reply
from .text_generation import GenerationRequest, Text, Texts

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
    return Rejected(reply["error"]) if "error" in reply else Fault(reply["fault"])
