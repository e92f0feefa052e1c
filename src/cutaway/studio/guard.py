"""Who is answered: requests that name this server as their host, know its token, and come from its own page.

- Host: a name that somebody else points at 127.0.0.1 does not reach the server (DNS rebinding): 421.
- Token: a random path that stands in the URL which the server prints: everything else is 404.
- Origin: another site's page in the same browser does not reach it: 403.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.responses import HTMLResponse, JSONResponse

from ..errors import SettingError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=(), interest-cohort=()",
}

# For a person who opens an address of a studio that is closed: its token is gone with it. It has no script, and needs
# none: what was shared stands in the address bar.
GONE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Cutaway studio: this address is closed</title>
<h1>This address is closed</h1>
<p>It belonged to a studio that has ended, or was not copied whole. Each studio has an address of its own, which
<code>cutaway studio</code> prints.</p>
<p>What was shared is not lost: it stands behind the # in the address of this page. Copy the whole address, and open the
same again with</p>
<pre>cutaway studio 'ADDRESS'</pre>
</html>
"""


class Guard:
    """What stands before the application."""

    def __init__(
        self, app: App, token: str, host: str, port: int, known: Callable[[Any], None] = lambda peer: None
    ) -> None:
        """`known` is told who has shown the token: the address and port that a request came from."""
        self.app, self.token, self.port, self.known = app, token, port, known
        self.hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost", written(host))}
        self.anywhere = host in ("0.0.0.0", "::")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or say no."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def sealed(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}
                more = [(k.encode(), v.encode()) for k, v in HEADERS.items() if k.encode() not in given]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        rejected = self._rejected(scope)
        if rejected is not None:
            status, words = rejected
            if status == 404 and _wants_a_page(scope):
                await HTMLResponse(GONE, status)(scope, receive, sealed)
                return
            await JSONResponse({"error": words}, status)(scope, receive, sealed)
            return
        self.known(scope.get("client"))
        inside = {**scope, "path": scope["path"][len(self.token) + 1 :], "root_path": ""}
        await self.app(inside, receive, sealed)

    def _rejected(self, scope: Scope) -> tuple[int, str] | None:
        """The status and words by which a request is turned away; None where it may pass."""
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        host = headers.get("host", [])
        if len(host) != 1 or not self._is_ours(host[0]):
            return 421, "This server is not the one that was asked for."
        first = scope["path"].split("/")[1:2]
        if not first or not hmac.compare_digest(first[0].encode(), self.token.encode()):
            return 404, "There is nothing here. The address is the one that `cutaway studio` printed."
        if not scope["path"].startswith(f"/{self.token}/"):
            return 404, "There is nothing here. The address ends in a slash."
        for origin in headers.get("origin", []):
            if origin not in (f"http://{host[0]}",):
                return 403, "Another page may not use the studio."
        site = headers.get("sec-fetch-site", ["same-origin"])[0]
        mode = headers.get("sec-fetch-mode", [""])[0]
        if site not in ("same-origin", "none") and mode != "navigate":
            return 403, "Another page may not use the studio."
        return None

    def _is_ours(self, host: str) -> bool:
        """Whether that is a name of this server. One that listens everywhere is known by any number, never by a name,
        which somebody else could give it."""
        if host.lower() in self.hosts:
            return True
        name, _, port = host.rpartition(":")
        if not self.anywhere or port != str(self.port):
            return False
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True


def _wants_a_page(scope: Scope) -> bool:
    """Whether a person has opened this in a browser."""
    accepts = [value for name, value in scope["headers"] if name.lower() == b"accept"]
    return scope["method"] == "GET" and any(b"text/html" in value for value in accepts)


def written(host: str) -> str:
    """A host as it stands in a URL: IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


def reject_open_host(host: str, to_all: bool) -> None:
    """Raise SettingError for a host that other machines can reach, unless they may."""
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback and not to_all:
        raise SettingError(
            f"--host {host} lets other machines reach the studio, where whoever knows its address can train on this "
            "one and see its data, unencrypted. If that is what you want, add --open-to-the-network."
        )
