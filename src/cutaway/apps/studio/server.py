"""The server: a socket on this machine alone, a token that nobody can guess, and an end that leaves nothing behind."""

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
from ..web.connection_limit import BACKLOG, Strangers
from ..web.sockets import reachable, socket_on
from .app import Doors
from .choices import choices
from .guard import Guard, reject_open_host
from .sessions import Studio

PORT = 8765
NEIGHBOURS = 50  # ports that are tried after the usual one
FREE = "leave --port out, and a free one is found."


class Server(uvicorn.Server):
    """uvicorn's, which closes what is open before it waits for it, and takes Ctrl-C as the ordinary end."""

    def __init__(self, config: uvicorn.Config, studio: Studio) -> None:
        super().__init__(config)
        self.studio = studio

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first Ctrl-C ends the server in good order, the second at once."""
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
    """Serve one studio until it is told to end. `on_start` is given its URL; `state` is what stands behind its #, which
    is opened first.

    Raises FileError for what is no run, SettingError for a port that is taken, or a host that others can reach unless
    `to_all` says that they may.
    """
    reject_open_host(host, to_all)
    opened = Run(run).folder.resolve() if run is not None else None
    ports = [port] if port is not None else [*range(PORT, PORT + NEIGHBOURS), 0]
    listening = socket_on(host, ports, FREE)
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
    studio, token, port = Studio(folder, run), secrets.token_urlsafe(24), listening.getsockname()[1]
    strangers = Strangers()
    # The page opens what its URL says: nothing is opened before it.
    guard = Guard(Doors(studio, open_first=not state).app(), token, host, port, strangers.known)
    config = uvicorn.Config(
        guard, log_level="warning", access_log=False, server_header=False, ws="none", timeout_graceful_shutdown=3,
        http=strangers.protocol(), backlog=BACKLOG, proxy_headers=False,
    )  # fmt: skip
    choices()  # what takes a second is done before anybody waits for the page
    on_start(f"http://{reachable(host)}:{port}/{token}/{'#' * bool(state)}{state}")
    try:
        await Server(config, studio).serve(sockets=[listening])
    finally:
        await studio.close()
