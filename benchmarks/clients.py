"""Clients that ask a server over HTTP/1.1 as fast as they are answered, each over a connection that is kept."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


@dataclass
class Tally:
    """What some clients were answered."""

    seconds: list[float] = field(default_factory=list)  # of answers with 200
    statuses: Counter[int] = field(default_factory=Counter)
    lost: int = 0  # requests that were sent whole and not answered
    refused: int = 0  # connections that were not made

    def percentile(self, p: float) -> float:
        """Seconds within which so many percent are answered."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(len(ordered) * p / 100))]


def request(path: str, port: int, body: bytes, media: str = "application/json") -> bytes:
    """A POST as it is sent."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: {media}\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes, bool]:
    """Status, body and whether the connection is kept. Raises EOFError where none comes whole."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    status, body = int(head.split(" ", 2)[1]), b""
    if "transfer-encoding: chunked" in head:
        while size := int(await reader.readuntil(b"\r\n"), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
    else:
        body = await reader.readexactly(int(head.split("content-length: ")[1].split("\r\n")[0]))
    return status, body, "connection: close" not in head


async def ask(port: int, sent: Callable[[int], bytes], clients: int, over: Callable[[], bool], tally: Tally) -> None:
    """So many clients ask, until that is over or the server closes. `sent` is the request of a number, which counts up
    over all clients."""
    numbers = itertools.count()
    await asyncio.gather(*(_client(port, sent, numbers, over, tally) for _ in range(clients)))


async def _client(
    port: int, sent: Callable[[int], bytes], numbers: Iterator[int], over: Callable[[], bool], tally: Tally
) -> None:
    while not over():
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            tally.refused += 1
            return
        with contextlib.closing(writer):
            kept = True
            while kept and not over():
                began = time.perf_counter()
                try:
                    writer.write(sent(next(numbers)))
                    status, _, kept = await answer(reader)
                except (OSError, EOFError):
                    tally.lost += 1
                    return
                tally.statuses[status] += 1
                if status == 200:
                    tally.seconds.append(time.perf_counter() - began)
                if status == 503:
                    return


def window(port: int, sent: Callable[[int], bytes], clients: int, seconds: float) -> tuple[float, Tally]:
    """Answers a second over so many seconds, and all of them."""
    tally, began = Tally(), time.perf_counter()
    asyncio.run(ask(port, sent, clients, lambda: time.perf_counter() - began > seconds, tally))
    assert set(tally.statuses) == {200}, tally.statuses
    assert not tally.lost
    return len(tally.seconds) / (time.perf_counter() - began), tally
