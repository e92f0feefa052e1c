"""The server of the studio: a socket on this machine only, a random token, and cleanup at the end."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import uvicorn

from ...runs.run import Run
from ..networking import BACKLOG, IdleConnections, open_socket, reachable_host
from .app import Routes
from .choices import choices
from .guard import Guard, reject_open_host
from .sessions import Studio

PORT = 8765
NEIGHBOURS = 50  # ports to try after the default
FREE = "leave --port out to use a free port."


class Server(uvicorn.Server):
    """A uvicorn server that closes open streams before it waits for them, and exits normally on Ctrl-C."""

    def __init__(self, config: uvicorn.Config, studio: Studio) -> None:
        super().__init__(config)
        self.studio = studio

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Shut down gracefully on the first Ctrl-C, and at once on the second."""
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = self.studio.closing = True
        asyncio.get_running_loop().call_soon_threadsafe(lambda: asyncio.ensure_future(self.studio.tell()))


def serve(
    run: str | Path | None = None,
    host: str = "127.0.0.1",
    port: int | None = None,
    to_all: bool = False,
    on_start: Callable[[str], None] = print,
    state: str = "",
) -> None:
    """Serve one studio until it is stopped.

    `on_start` is called with its URL; `state` is the part of the URL after #, which is opened first. Raises FileError
    if `run` is not a run. Raises SettingError if the port is in use, or if other machines can reach the host without
    `to_all`.
    """
    reject_open_host(host, to_all)
    opened = Run(run).folder.resolve() if run is not None else None
    ports = [port] if port is not None else [*range(PORT, PORT + NEIGHBOURS), 0]
    listening = open_socket(host, ports, FREE)
    folder = Path(tempfile.mkdtemp(prefix="cutaway-studio-"))
    try:
        asyncio.run(_serve(opened, folder, host, listening, on_start, state))
    finally:
        listening.close()
        shutil.rmtree(folder, ignore_errors=True)


async def _serve(
    run: Path | None,
    folder: Path,
    host: str,
    listening: socket.socket,
    on_start: Callable[[str], None],
    state: str,
) -> None:
    """Serve one studio on a listening socket until shutdown."""
    studio, token, port = Studio(folder, run), secrets.token_urlsafe(24), listening.getsockname()[1]
    idle = IdleConnections()
    # The page itself opens the state in its URL.
    guard = Guard(Routes(studio, open_first=not state).app(), token, host, port, idle.known)
    config = uvicorn.Config(guard, **idle.uvicorn_settings(), backlog=BACKLOG, timeout_graceful_shutdown=3)
    choices()  # takes a second: compute it before the first request
    on_start(f"http://{reachable_host(host)}:{port}/{token}/{'#' * bool(state)}{state}")
    try:
        await Server(config, studio).serve(sockets=[listening])
    finally:
        await studio.close()
