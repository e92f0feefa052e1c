"""The server process, from the socket to graceful shutdown: accepted requests are answered before it exits."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import uvicorn
from prometheus_client import disable_created_metrics

from ...core.errors import AddressError, SettingError
from ...runs.run import Run
from ..networking import IdleConnections, is_loopback, open_socket, reachable_host
from .app import Routes
from .limits import Limits
from .middleware import Guard, Metrics

PORT = 8000
FREE = "choose another with --port, or any free port with --port 0."
TOKEN = 16  # characters of a token, at least
CONNECTIONS = 1000  # idle connections at a time
PATIENCE = 10.0  # seconds within which the head of a request has to arrive
BACKLOG = 512
LAST = 0.3  # seconds during shutdown in which new requests still get a 503


class Server(uvicorn.Server):
    """A uvicorn server that shuts down once all accepted requests are answered."""

    def __init__(self, config: uvicorn.Config, routes: Routes, guard: Guard) -> None:
        super().__init__(config)
        self.routes, self.guard = routes, guard

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Shut down gracefully on the first signal, and at once on the second."""
        if self.routes.closing:
            self.force_exit = self.should_exit = True
        self.routes.closing = self.guard.closing = True
        asyncio.get_running_loop().call_soon_threadsafe(lambda: asyncio.ensure_future(self._close()))

    async def _close(self) -> None:
        """Keep listening and reject new requests until all accepted ones are answered.

        Without this, a request would be lost if the operating system had already accepted its connection.
        """
        loop = asyncio.get_running_loop()
        last = loop.time() + self.routes.limits.timeout
        while self.guard.answering and loop.time() < last and not self.force_exit:
            await asyncio.sleep(0.01)
        await asyncio.sleep(LAST)
        self.should_exit = True


def serve(
    run: str | Path,
    host: str = "127.0.0.1",
    port: int | None = None,
    token: str | None = None,
    limits: Limits = Limits(),  # noqa: B008  # it is frozen
    on_start: Callable[[str], None] = print,
) -> None:
    """Serve a run until SIGTERM or Ctrl-C.

    Args:
        run: The folder of the run.
        host: The address to listen on.
        port: The port, 8000 by default; 0 means any free port.
        token: The token that requests must carry; required for a host that other machines can reach.
        limits: Limits and timeouts.
        on_start: Called with the URL once requests are accepted.

    Raises:
        FileError: If `run` is not a run.
        SettingError: If the port is in use, or other machines can reach the host and there is no token.
    """
    opened = Run(run)
    reject_open(host, token)
    opened.about, opened.preprocessing, opened.task  # noqa: B018  # errors in these should appear before the socket opens
    listening = open_socket(host, [PORT if port is None else port], FREE, BACKLOG)
    try:
        asyncio.run(_serve(opened, host, listening, token, limits, on_start))
    finally:
        listening.close()


async def _serve(
    run: Run, host: str, listening: socket.socket, token: str | None, limits: Limits, on_start: Callable[[str], None]
) -> None:
    """Serve on a listening socket until shutdown. Raises the error with which the model could not be loaded."""
    disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series per counter
    metrics, port = Metrics(), listening.getsockname()[1]
    routes = Routes(run, limits, metrics, token is not None)
    idle = IdleConnections(CONNECTIONS, PATIENCE)
    guard = Guard(routes.app(), token, host, port, metrics, limits.timeout, idle.known)
    config = uvicorn.Config(guard, **idle.uvicorn_settings(), backlog=BACKLOG, timeout_graceful_shutdown=1)
    server = Server(config, routes, guard)

    def read(problem: Exception | None) -> None:
        if problem is None:
            on_start(f"http://{reachable_host(host)}:{port}/")
        else:
            server.should_exit = True

    routes.on_read = read
    await server.serve(sockets=[listening])
    if routes.problem is not None and not routes.closing:  # while closing, the process was stopped on purpose
        raise routes.problem


def reject_open(host: str, token: str | None) -> None:
    """Raise SettingError for a host that other machines can reach without a token, and for an invalid token."""
    if token is not None and (len(token) < TOKEN or not token.isascii() or not token.isprintable() or " " in token):
        raise SettingError(f"Invalid token: must be at least {TOKEN} ASCII characters without spaces.")
    if token is None and not is_loopback(host):
        raise AddressError(
            f"--host {host} makes the server reachable from other machines, and requires a token: set CUTAWAY_TOKEN in "
            "the environment (at least 16 characters, such as the output of `openssl rand -hex 16`). Requests must "
            "send it as Authorization: Bearer TOKEN. It is not encrypted unless a TLS proxy is in front of the server."
        )
