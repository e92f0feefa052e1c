"""Networking shared by the studio and the prediction server: sockets, worker processes, and HTTP requests.

Sockets listen on this machine only by default, with a clear error if a port is in use.

Idle connections are limited: few at a time, each for a short time, and never at the expense of the owner. Without that,
a client that opens connections and sends nothing could use up all connections of a server. A connection is idle until a
request on it is accepted; after that, nothing here closes it. uvicorn's own limits do not replace this:
`timeout_keep_alive` begins after the first response, and at `limit_concurrency` the owner gets 503 while idle
connections stay open.

Bodies of requests are bounded, and Host and Origin are checked:

- Host: a foreign domain name that resolves to 127.0.0.1 is rejected with 421 (DNS rebinding).
- Origin: a page of another site in the same browser is rejected with 403.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import json
import multiprocessing
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..core.errors import AddressError, SettingError

BUFFER = 256 * 1024  # bytes of the send buffer: small, so that what a client sees never lags far behind
EVERYWHERE = ("0.0.0.0", "::")


def open_socket(host: str, ports: Sequence[int], way_out: str, backlog: int = 64) -> socket.socket:
    """Return a socket that listens on the first free port of `ports`; port 0 means any free port.

    Raises SettingError, which ends with `way_out`, if the last port is in use or not permitted. Raises FileError if
    `host` is not an address of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise AddressError(f"Invalid --host {host}: {getattr(error, 'strerror', None) or error}.") from error
    for number in ports:
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)  # what it accepts has the same
        try:
            listening.bind((address[0], number, *address[2:]))
            listening.listen(backlog)
        except OverflowError as error:
            listening.close()
            raise SettingError(f"Invalid --port {number}: must be from 0 to 65535.") from error
        except OSError as error:
            listening.close()
            if error.errno == errno.EADDRINUSE and number != ports[-1]:
                continue
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                taken = "already in use" if error.errno == errno.EADDRINUSE else "not permitted for this user"
                raise AddressError(f"Port {number} is {taken}: {way_out}") from error
            raise AddressError(f"Invalid --host {host}: not an address of this machine ({error.strerror}).") from error
        listening.set_inheritable(False)
        return listening
    raise AssertionError("no port was given")


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server that listens on `host`."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def format_host(host: str) -> str:
    """Format a host for a URL: IPv6 addresses get brackets."""
    return f"[{host}]" if ":" in host else host


def reachable_host(host: str) -> str:
    """Return the host, formatted for a URL, at which this machine reaches a server that listens on `host`."""
    return "127.0.0.1" if host in EVERYWHERE else format_host(host)


START_METHOD = "forkserver" if sys.platform.startswith("linux") else "spawn"


def process_context(preload: str) -> Any:
    """Return the multiprocessing context of the servers' worker processes.

    A worker is never forked from a server, because the libraries of the server have started threads by then. On Linux,
    workers are forked from one process that has imported the module `preload` and run nothing else, so that the next
    one starts at once. On other systems each worker is spawned.
    """
    context = multiprocessing.get_context(START_METHOD)
    if START_METHOD == "forkserver":
        context.set_forkserver_preload([preload])
    return context


@contextlib.contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C within this context and in the processes that are started in it, until they install their own
    handler."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


MOST = 64  # idle connections at a time; one more closes the oldest
PATIENCE = 5.0  # seconds within which a request has to arrive
BACKLOG = 16  # accepted at once: far fewer than MOST, so that a client that sends at once is served

Peer = tuple[str, int]


class IdleConnections:
    """The connections on which no request has been accepted yet."""

    def __init__(self, most: int = MOST, patience: float = PATIENCE) -> None:
        self.most, self.patience = most, patience
        self.waiting: dict[Peer, tuple[asyncio.Transport, asyncio.TimerHandle]] = {}  # the oldest first

    def opened(self, peer: Peer, transport: asyncio.Transport) -> None:
        """Record a new connection, and close the oldest idle ones while there are too many."""
        while len(self.waiting) >= self.most:
            self.close(next(iter(self.waiting)))
        timer = asyncio.get_running_loop().call_later(self.patience, self.close, peer)
        self.waiting[peer] = transport, timer

    def known(self, peer: Peer) -> None:
        """Forget a connection: a request on it was accepted, or it is closed."""
        found = self.waiting.pop(peer, None)
        if found is not None:
            found[1].cancel()

    def close(self, peer: Peer) -> None:
        """Abort an idle connection without a response."""
        transport, timer = self.waiting.pop(peer)
        timer.cancel()
        transport.abort()

    def uvicorn_settings(self) -> dict[str, Any]:
        """Return the settings of uvicorn that both servers share, with the protocol that reports connections."""
        quiet = {"log_level": "warning", "access_log": False, "server_header": False}
        return {**quiet, "ws": "none", "proxy_headers": False, "http": self.protocol()}

    def protocol(self) -> type[asyncio.Protocol]:
        """Return the HTTP protocol class for uvicorn, which reports connections that open and close."""
        idle = self

        class MonitoredProtocol(H11Protocol):
            def connection_made(self, transport: Any) -> None:
                super().connection_made(transport)
                if self.client is not None:
                    idle.opened(self.client, transport)

            def connection_lost(self, exc: Exception | None) -> None:
                if self.client is not None:
                    idle.known(self.client)
                super().connection_lost(exc)

        return MonitoredProtocol


JSON = "application/json"


def media_type(request: Request) -> str:
    """Return the content type of a request, in lower case and without its parameters."""
    return request.headers.get("content-type", "").split(";")[0].strip().lower()


def reject_large_body(request: Request, most: int) -> None:
    """Raise HTTPException 413 if a request declares a body of more than `most` bytes, before the body is read."""
    declared = request.headers.get("content-length", "0")
    if not declared.isascii() or not declared.isdigit() or len(declared) > 18 or int(declared) > most:
        raise too_large(most)


async def read_body(request: Request, most: int, on_bytes: Callable[[int], None] = lambda size: None) -> bytes:
    """Read the body of a request, of at most `most` bytes, and call `on_bytes` with the size of each piece.

    Raises HTTPException 413 as soon as the body is larger; the rest is not read.
    """
    reject_large_body(request, most)
    body = bytearray()
    async for piece in request.stream():
        if len(body) + len(piece) > most:
            raise too_large(most)
        on_bytes(len(piece))
        body += piece
    return bytes(body)


def parse_json_object(body: bytes) -> dict[str, Any]:
    """Parse a body as a JSON object. Raises HTTPException 400 for anything else; NaN and Infinity are not JSON."""
    try:
        value = json.loads(body, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        raise HTTPException(400, "The request is not JSON.") from None
    if not isinstance(value, dict):
        raise HTTPException(400, "The request is not a JSON object.")
    return value


def too_large(most: int) -> HTTPException:
    """Return the exception for a body of more than `most` bytes."""
    size = f"{most / 2**20:g} MiB" if most >= 2**20 else f"{most:,} bytes"
    return HTTPException(413, f"The request is too large: at most {size} are allowed.")


def _reject_constant(name: str) -> None:
    raise ValueError(name)


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {  # of every response
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=(), interest-cohort=()",
}
_SEALS = [(name.encode(), value.encode()) for name, value in HEADERS.items()]


class Hosts:
    """The host names of a server."""

    def __init__(self, host: str, port: int) -> None:
        self.port = port
        self.names = {f"{name}:{port}" for name in ("127.0.0.1", "localhost", format_host(host))}
        self.anywhere = host in EVERYWHERE

    def is_foreign_host(self, headers: dict[str, list[str]]) -> bool:
        """Return whether the Host header is missing, repeated or not a name of this server."""
        host = headers.get("host", [])
        return len(host) != 1 or not self._is_ours(host[0])

    def _is_ours(self, host: str) -> bool:
        """Return whether `host` is a name of this server. A server that listens on all addresses accepts any IP
        address, but no domain name, because anybody can point a domain name at it."""
        if host.lower() in self.names:
            return True
        name, _, port = host.rpartition(":")
        if not self.anywhere or port != str(self.port):
            return False
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True


def is_cross_site(headers: dict[str, list[str]]) -> bool:
    """Return whether a page of another site sent the request. The Host header must have been checked before."""
    own = f"http://{headers['host'][0]}"
    if any(origin != own for origin in headers.get("origin", [])):
        return True
    site = headers.get("sec-fetch-site", ["same-origin"])[0]
    mode = headers.get("sec-fetch-mode", [""])[0]
    return site not in ("same-origin", "none") and mode != "navigate"


def collect_headers(scope: Scope) -> dict[str, list[str]]:
    """Return the headers of a request: each name in lower case, with its values."""
    headers: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return headers


def with_security_headers(send: Send) -> Send:
    """Wrap `send` so that each response has HEADERS, unless it sets them itself."""

    async def send_sealed(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            present = {name for name, _ in message["headers"]}
            message["headers"] = [*message["headers"], *(pair for pair in _SEALS if pair[0] not in present)]
        await send(message)

    return send_sealed
