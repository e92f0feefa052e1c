"""HTTP requests: bounded bodies, JSON, and checks of Host and Origin.

- Host: a name that somebody else points at 127.0.0.1 does not reach the server (DNS rebinding): 421.
- Origin: another site's page in the same browser does not reach it: 403.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request

from .sockets import EVERYWHERE, written

JSON = "application/json"


def media_type(request: Request) -> str:
    """The content type that a request names, in small letters and without its parameters."""
    return request.headers.get("content-type", "").split(";")[0].strip().lower()


def reject_longer(request: Request, most: int) -> None:
    """Raise HTTPException 413 where a request says that its body is larger than that, before any of it is read."""
    told = request.headers.get("content-length", "0")
    if not told.isascii() or not told.isdigit() or len(told) > 18 or int(told) > most:
        raise too_large(most)


async def read_body(request: Request, most: int, came: Callable[[int], None] = lambda size: None) -> bytes:
    """The body, of at most so many bytes; `came` is told how many each piece has. Raises HTTPException 413 as soon as
    it is larger; the rest is not read."""
    reject_longer(request, most)
    body = bytearray()
    async for piece in request.stream():
        if len(body) + len(piece) > most:
            raise too_large(most)
        came(len(piece))
        body += piece
    return bytes(body)


def object_of(body: bytes) -> dict[str, Any]:
    """The JSON object that a body is. Raises HTTPException 400 for what is none; NaN and Infinity are no JSON."""
    try:
        value = json.loads(body, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        raise HTTPException(400, "The request is not JSON.") from None
    if not isinstance(value, dict):
        raise HTTPException(400, "The request is not a JSON object.")
    return value


def too_large(most: int) -> HTTPException:
    """What is said of a body that is larger than that."""
    size = f"{most / 2**20:g} MiB" if most >= 2**20 else f"{most:,} bytes"
    return HTTPException(413, f"The request is too large: it has at most {size} here.")


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
HEADERS = {  # of every answer
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
    """The names that a server has."""

    def __init__(self, host: str, port: int) -> None:
        self.port = port
        self.names = {f"{name}:{port}" for name in ("127.0.0.1", "localhost", written(host))}
        self.anywhere = host in EVERYWHERE

    def strange(self, headers: dict[str, list[str]]) -> bool:
        """Whether a request names another host, none, or several."""
        host = headers.get("host", [])
        return len(host) != 1 or not self._is_ours(host[0])

    def _is_ours(self, host: str) -> bool:
        """Whether that is a name of this server. One that listens everywhere is known by any number, never by a name,
        which somebody else could give it."""
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


def from_elsewhere(headers: dict[str, list[str]]) -> bool:
    """Whether another site's page asks. The host is one of ours, once."""
    own = f"http://{headers['host'][0]}"
    if any(origin != own for origin in headers.get("origin", [])):
        return True
    site = headers.get("sec-fetch-site", ["same-origin"])[0]
    mode = headers.get("sec-fetch-mode", [""])[0]
    return site not in ("same-origin", "none") and mode != "navigate"


def headers_of(scope: Scope) -> dict[str, list[str]]:
    """The headers of a request, each name in small letters with its values."""
    headers: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return headers


def sealed(send: Send) -> Send:
    """`send`, with HEADERS on the answer where it has none of its own."""

    async def send_sealed(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            given = {name for name, _ in message["headers"]}
            message["headers"] = [*message["headers"], *(pair for pair in _SEALS if pair[0] not in given)]
        await send(message)

    return send_sealed
