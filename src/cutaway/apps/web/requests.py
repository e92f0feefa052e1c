"""HTTP requests: bounded bodies, JSON, and checks of Host and Origin.

- Host: a foreign domain name that resolves to 127.0.0.1 is rejected with 421 (DNS rebinding).
- Origin: a page of another site in the same browser is rejected with 403.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request

from .sockets import EVERYWHERE, format_host

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
