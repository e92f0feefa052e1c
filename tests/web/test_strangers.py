"""Who connects and says nothing is sent away, and never stands in the owner's way."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from cutaway.apps.networking import BACKLOG, MOST, IdleConnections, open_socket
from cutaway.apps.studio.guard import Guard

TOKEN = "a-token-that-nobody-knows"
Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def during(what: Callable[[int], Awaitable[None]], strangers: IdleConnections) -> None:
    """Do that with the port of a server, for as long as it runs."""

    async def hello(request: Request) -> Response:
        return PlainTextResponse("hello")

    async def serve() -> None:
        with open_socket("127.0.0.1", [0], "") as listening:
            port = listening.getsockname()[1]
            guard = Guard(Starlette(routes=[Route("/", hello)]), TOKEN, "127.0.0.1", port, strangers.known)
            config = uvicorn.Config(
                guard, http=strangers.protocol(), backlog=BACKLOG, log_level="error", ws="none", lifespan="off"
            )
            server = uvicorn.Server(config)
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            while not server.started:
                await asyncio.sleep(0.001)
            try:
                async with asyncio.timeout(20):
                    await what(port)
            finally:
                server.should_exit = server.force_exit = True
                await serving

    asyncio.run(serve())


async def come(port: int, said: bytes = b"") -> Peer:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    await writer.drain()
    return reader, writer


def asking(port: int, token: str) -> bytes:
    return f"GET /{token}/ HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()


async def answered(port: int, token: str = TOKEN) -> bytes:
    reader, writer = await come(port, asking(port, token))
    line = await reader.readline()
    writer.close()
    return line


def test_hundreds_who_say_nothing_keep_nobody_out() -> None:
    strangers = IdleConnections(patience=60)

    async def crowd(port: int) -> None:
        silent = [await come(port, half) for half in [b"", b"GET / HTTP/1.1\r\nHos"] * 150]
        for _ in range(5):
            assert await answered(port) == b"HTTP/1.1 200 OK\r\n"
        assert len(strangers.waiting) <= MOST
        first, last = silent[0][0], silent[-1][0]
        assert await first.read() == b"", "who has waited longest is sent away"
        assert not last.at_eof()
        for _, writer in silent:
            writer.close()

    during(crowd, strangers)


def test_who_says_nothing_for_a_while_or_has_no_token_is_sent_away_and_the_owner_stays() -> None:
    strangers = IdleConnections(patience=0.15)

    async def visits(port: int) -> None:
        silent, _ = await come(port, b"GET /")
        wrong, asks = await come(port, asking(port, "wrong"))
        assert b"404" in await wrong.readline()
        owner, page = await come(port, asking(port, TOKEN))
        assert b"200" in await owner.readline()
        assert await silent.read() == b""
        await wrong.read()  # to the end, which comes
        assert strangers.waiting == {}
        page.write(asking(port, TOKEN))
        await owner.readuntil(b"hello")
        assert b"200" in await owner.readuntil(b"hello"), "by the same connection, later"
        for writer in (asks, page):
            writer.close()

    during(visits, strangers)


def test_what_is_accepted_at_once_is_less_than_is_let_in() -> None:
    assert 3 * BACKLOG < MOST
    assert socket.SOMAXCONN >= BACKLOG
