"""What stands between requests and the processes of the model: batches of examples, and tokens of texts, in turn.

Large requests, of more than `max_batch` examples or more than an eighth of a bound, are computed one after another in
a second process, which is started with the first of them: nobody else waits for them. Each is computed whole, so that
its answer does not depend on what else is asked.

Small requests that come while the model is busy are its next batch. A batch waits for more, `batch_wait` at most, only
where the one before it held several requests: a single client never waits. Texts are written side by side, a token of
each in turn, each as it would be written alone. Where nobody waits for what a process is doing any more, it is told to
stop, and replaced where it does not; where it ends by itself, whoever was asked about with others is asked about alone.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from ...runs.run import Run
from .batching import LargeRequest, Said
from .inputs import Given
from .limits import Limits
from .metrics import Metrics, resident
from .process import Fault, ModelProcess, ProcessEnded, Rejected, Reply
from .text_generation import Text, Texts, Wanted

T = TypeVar("T")
Job = tuple[Given, "asyncio.Future[Said]"]
GRACE = 5.0  # seconds in which a process stops, once nobody waits for its answer


class ProcessWorker:
    """A process of the model, and the thread that asks it."""

    def __init__(self, run: Run, limits: Limits) -> None:
        self.process = ModelProcess(run.folder, limits.bounds)
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="model")

    async def in_thread(self, do: Callable[[], T]) -> T:
        """Return what `do` returns in the thread."""
        return await asyncio.get_running_loop().run_in_executor(self.thread, do)

    async def while_wanted(self, do: Callable[[], T], left: Coroutine[Any, Any, object]) -> T:
        """Return what `do` returns in the thread. Once `left` is done nobody waits for it any more, and the process is
        told to stop."""
        work, gone = asyncio.ensure_future(self.in_thread(do)), asyncio.create_task(left)
        await asyncio.wait([work, gone], return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if work.done():
            return await work
        self.process.stop()
        timer = asyncio.get_running_loop().call_later(GRACE, self.process.kill)
        try:
            return await work
        finally:
            timer.cancel()

    def close(self) -> None:
        """End the process and the thread, and leave no file behind."""
        self.process.close()
        self.thread.shutdown(wait=False, cancel_futures=True)


class Engine:
    """What stands between requests and the model."""

    def __init__(self, run: Run, limits: Limits, metrics: Metrics) -> None:
        self.limits, self.metrics = limits, metrics
        self.small, self.large = ProcessWorker(run, limits), ProcessWorker(run, limits)
        self.numbers = itertools.count()  # of texts
        self.jobs: deque[Job] = deque()
        self.large_jobs: asyncio.Queue[Job] = asyncio.Queue()
        self.waiting: deque[Text] = deque()
        self.writing: list[Text] = []
        self.news = asyncio.Event()
        self.crowd = 1  # requests that the batch before held
        gauges = metrics.gauges
        gauges["cutaway_queue_requests"] = "Requests that wait for the model.", self._num_waiting
        gauges["cutaway_model_restarts"] = "Replaced processes of the model.", self._num_restarts
        gauges["cutaway_resident_memory_bytes"] = "Resident memory of the server and its model.", self._resident
        gauges["cutaway_texts"] = "Texts that are written.", lambda: len(self.writing)

    def _num_waiting(self) -> int:
        return len(self.jobs) + self.large_jobs.qsize()

    def _num_restarts(self) -> int:
        return self.small.process.restarts + self.large.process.restarts

    def _resident(self) -> float:
        pids = [worker.process.pid for worker in (self.small, self.large)]
        return resident("self") + sum(resident(pid) for pid in pids if pid is not None)

    async def load(self, example: Given | None = None) -> None:
        """Start the process of the model, and ask it about an example. Raises what reading the model raises."""
        await self.small.in_thread(lambda: self.small.process.ask("load", example))

    async def predict(self, given: Given) -> Said:
        """The answer to one request. Raises what predicting raises."""
        future: asyncio.Future[Said] = asyncio.get_running_loop().create_future()
        if given.examples > self.limits.max_batch:
            self.large_jobs.put_nowait((given, future))
        else:
            self.jobs.append((given, future))
            self.news.set()
        return await future

    async def write(self, wanted: Sequence[Wanted]) -> Texts:
        """Texts that are written from now on, once one has begun. Raises what writing raises."""
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
        """Serve what is asked, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._work_small())
            group.create_task(self._work_large())

    async def _work_large(self) -> None:
        while True:
            job = await self.large_jobs.get()
            if not job[1].done():  # else nobody waits for it any more
                await self._predict([job], self.large)

    async def _work_small(self) -> None:
        while True:
            if not (self.jobs or self.waiting or self.writing):
                self.news.clear()
                await self.news.wait()
            if self.jobs:
                await self._predict(await self._gathered(), self.small)
            while self.waiting and len(self.writing) < self.limits.streams:
                self.writing.append(self.waiting.popleft())
            if self.writing:
                await self._write()

    def close(self) -> None:
        """End the processes and the threads that ask them, and leave no file behind."""
        self.small.close()
        self.large.close()

    async def _gathered(self) -> list[Job]:
        """The next batch."""
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
            if future.done():  # nobody waits for it any more
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
        found: Sequence[Said | Exception]
        futures = [future for _, future in batch]
        try:
            found = await worker.while_wanted(lambda: self._answers(batch, worker.process), asyncio.wait(futures))
        except Exception as error:  # such as a disk that is full; whoever asks next is answered
            found = [error] * len(batch)
        computed = [given.examples for (given, _), said in zip(batch, found) if not isinstance(said, LargeRequest)]
        if computed:
            self.metrics.batches.add(sum(computed))
        for (given, future), said in zip(batch, found):
            if isinstance(said, Said):
                self.metrics.examples += len(said.rows)
            if future.done():
                continue
            if isinstance(said, LargeRequest):
                self.large_jobs.put_nowait((given, future))
            elif isinstance(said, Said):
                future.set_result(said)
            else:
                future.set_exception(said)

    def _answers(self, batch: Sequence[Job], process: ModelProcess) -> list[Said | Exception]:
        """The answer to each request, or what is wrong with it. Runs in the thread that asks the process."""
        try:
            replies = process.ask("predict", [given for given, _ in batch], process is self.large.process)
        except ProcessEnded as error:
            if len(batch) == 1:
                return [error]
            return [TimeoutError() if job[1].done() else self._answers([job], process)[0] for job in batch]
        return [Said(reply["rows"], reply["notes"]) if "rows" in reply else _error(reply) for reply in replies]

    async def _write(self) -> None:
        """A token more of each text."""
        texts = [text for text in self.writing if not text.left]
        before = sum(text.tokens for text in texts)
        steps = [(text.number, text.wanted, text.steps) for text in texts]
        replies: Sequence[Reply | Exception]
        try:
            replies = await self.small.while_wanted(lambda: self.small.process.ask("write", steps), _all_left(texts))
        except Exception as error:
            replies = [error] * len(texts)
        for text, reply in zip(texts, replies):
            if isinstance(reply, Exception):
                text.take(reply)
            elif "piece" in reply:
                text.take(reply["piece"], reply["state"])
            else:
                text.take(_error(reply))
        self.metrics.tokens += sum(text.tokens for text in texts) - before
        self.writing = [text for text in texts if not text.left]


async def _all_left(texts: Sequence[Text]) -> None:
    for text in texts:
        await text.gone.wait()


def _error(reply: Reply) -> Exception:
    if "large" in reply:
        return LargeRequest()
    return Rejected(reply["error"]) if "error" in reply else Fault(reply["fault"])
