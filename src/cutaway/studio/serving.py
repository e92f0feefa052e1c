"""The server: a socket on this machine alone, a token that nobody can guess, and an end that leaves nothing behind."""

from __future__ import annotations

import asyncio
import errno
import secrets
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import uvicorn

from ..errors import FileError, SettingError
from ..training.run import Run
from .app import Doors
from .choices import choices
from .guard import Guard, reject_open_host, written
from .sides import Studio
from .strangers import BACKLOG, Strangers

PORT = 8765
NEIGHBOURS = 50  # ports that are tried after the usual one
BUFFER = 256 * 1024  # bytes on their way to a page, so that it never lags many frames behind


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
    listening = socket_on(host, port)
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
    shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host
    choices()  # what takes a second is done before anybody waits for the page
    on_start(f"http://{written(shown)}:{port}/{token}/{'#' * bool(state)}{state}")
    try:
        await Server(config, studio).serve(sockets=[listening])
    finally:
        await studio.close()


def socket_on(host: str, port: int | None) -> socket.socket:
    """A socket that listens. Without a port it is the usual one, or the next that is free.

    Raises SettingError for a port that is taken or not allowed, FileError for a host that this machine has not.
    """
    tried = [port] if port is not None else [*range(PORT, PORT + NEIGHBOURS), 0]
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise FileError(f"--host {host} is no address: {error.strerror or error}.") from error
    for number in tried:
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)  # what it accepts has the same
        try:
            listening.bind((address[0], number, *address[2:]))
            listening.listen(64)
        except OSError as error:
            listening.close()
            if error.errno == errno.EADDRINUSE and number != tried[-1]:
                continue
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                taken = "taken" if error.errno == errno.EADDRINUSE else "not for everybody to use"
                raise SettingError(f"Port {number} is {taken}: leave --port out, and a free one is found.") from error
            raise FileError(f"--host {host} is not an address of this machine: {error.strerror}.") from error
        listening.set_inheritable(False)
        return listening
    raise AssertionError("the last port is tried without mercy")
