"""The one thread in which the model runs: batches of examples, and tokens of texts, in turn.

Requests that come while the model is busy are its next batch. A batch waits for more, `batch_wait` at most, only where
the one before it held several requests: a single client never waits. Texts are written side by side, a token of each
in turn, each as it would be written alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ..training.run import Run
from .inputs import Given
from .limits import Limits
from .metrics import Metrics
from .predicting import Predictor, Said
from .writing import Piece, Text, Texts, Wanted

T = TypeVar("T")
Job = tuple[Given, "asyncio.Future[Said]"]


class Engine:
    """What stands between requests and the model."""

    def __init__(self, run: Run, limits: Limits, metrics: Metrics) -> None:
        self.run, self.limits, self.metrics = run, limits, metrics
        self.predictor = Predictor(run)
        self.jobs: deque[Job] = deque()
        self.waiting: deque[Text] = deque()
        self.writing: list[Text] = []
        self.news = asyncio.Event()
        self.crowd = 1  # requests that the batch before held
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="model")
        metrics.gauges["cutaway_queue_requests"] = "Requests that wait for the model.", lambda: len(self.jobs)
        metrics.gauges["cutaway_texts"] = "Texts that are written.", lambda: len(self.writing)

    async def load(self, example: Given | None = None) -> None:
        """Read the model, and ask it about an example. Raises what reading raises."""

        def ready() -> None:
            self.run.place.model(self.run.model, learns=False)
            if example is not None:
                self.predictor([example])

        await self._in_thread(ready)

    async def predict(self, given: Given) -> Said:
        """The answer to one request. Raises what predicting raises."""
        future: asyncio.Future[Said] = asyncio.get_running_loop().create_future()
        self.jobs.append((given, future))
        self.news.set()
        return await future

    async def write(self, wanted: Sequence[Wanted]) -> Texts:
        """Texts that are written from now on, once one has begun. Raises what writing raises."""
        texts = Texts(self.run, wanted)
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
        while True:
            if not (self.jobs or self.waiting or self.writing):
                self.news.clear()
                await self.news.wait()
            if self.jobs:
                await self._predict(await self._gathered())
            while self.waiting and len(self.writing) < self.limits.streams:
                self.writing.append(self.waiting.popleft())
            if self.writing:
                await self._write()

    def close(self) -> None:
        """End the thread, once it has done what it is at, and leave no file behind."""
        self.thread.shutdown(wait=False, cancel_futures=True)
        self.predictor.desk.close()

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

    async def _predict(self, batch: Sequence[Job]) -> None:
        if not batch:
            return
        asked = [given for given, _ in batch]
        found: list[Said | Exception]
        try:
            found = await self._in_thread(lambda: self.predictor(asked))
        except Exception as error:  # such as a disk that is full; whoever asks next is answered
            found = [error] * len(batch)
        self.metrics.batches.add(sum(given.examples for given in asked))
        for (_, future), said in zip(batch, found):
            if isinstance(said, Said):
                self.metrics.examples += len(said.rows)
            if future.done():
                continue
            if isinstance(said, Said):
                future.set_result(said)
            else:
                future.set_exception(said)

    async def _write(self) -> None:
        """A token more of each text."""
        texts = [text for text in self.writing if not text.left]
        before = sum(text.tokens for text in texts)
        pieces = await self._in_thread(lambda: [_next(text) for text in texts])
        for text, piece in zip(texts, pieces):
            text.tell(piece)
            text.left = text.left or piece is None or isinstance(piece, Exception)
        self.metrics.tokens += sum(text.tokens for text in texts) - before
        self.writing = [text for text in texts if not text.left]

    async def _in_thread(self, do: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.thread, do)


def _next(text: Text) -> Piece:
    try:
        return text.next()
    except Exception as error:
        return error
