"""Access control of the studio: requests must name this server as host, know its token, and come from its own page.

- Token: a random path in the URL that the server prints. Any other path gets 404.
- Host and Origin: as in `apps.networking`.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Any

from starlette.responses import HTMLResponse, JSONResponse

from ...core.errors import AddressError
from ..networking import (
    App,
    Hosts,
    Receive,
    Scope,
    Send,
    collect_headers,
    is_cross_site,
    is_loopback,
    with_security_headers,
)

# Shown at the URL of a studio that has ended, whose token is no longer valid. It needs no script: the shared state is
# in the address bar.
GONE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Cutaway studio: page not found</title>
<h1>Page not found</h1>
<p>This address belongs to a studio that has stopped, or it is incomplete. Each studio has its own address, which
<code>cutaway studio</code> prints.</p>
<p>The shared state is in the part of the address after the #. Copy the whole address and restore the state
with</p>
<pre>cutaway studio 'ADDRESS'</pre>
</html>
"""


class Guard:
    """Middleware that rejects requests without access."""

    def __init__(
        self, app: App, token: str, host: str, port: int, known: Callable[[Any], None] = lambda peer: None
    ) -> None:
        """Set up the middleware; `known` is called with the client (host, port) of each request with the token."""
        self.app, self.token, self.known = app, token, known
        self.hosts = Hosts(host, port)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve or reject a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        send = with_security_headers(send)
        rejected = self._rejected(scope)
        if rejected is not None:
            status, words = rejected
            if status == 404 and _wants_a_page(scope):
                await HTMLResponse(GONE, status)(scope, receive, send)
                return
            await JSONResponse({"error": words}, status)(scope, receive, send)
            return
        self.known(scope.get("client"))
        inside = {**scope, "path": scope["path"][len(self.token) + 1 :], "root_path": ""}
        await self.app(inside, receive, send)

    def _rejected(self, scope: Scope) -> tuple[int, str] | None:
        """Return the status and message with which a request is rejected, or None if it may pass."""
        headers = collect_headers(scope)
        if self.hosts.is_foreign_host(headers):
            return 421, "Wrong host: this server has another name."
        first = scope["path"].split("/")[1:2]
        if not first or not hmac.compare_digest(first[0].encode(), self.token.encode()):
            return 404, "Not found. Use the address that `cutaway studio` printed."
        if not scope["path"].startswith(f"/{self.token}/"):
            return 404, "Not found. The address must end in a slash."
        if is_cross_site(headers):
            return 403, "Requests from other origins are not allowed."
        return None


def _wants_a_page(scope: Scope) -> bool:
    """Return whether a browser requests a page."""
    accepts = [value for name, value in scope["headers"] if name.lower() == b"accept"]
    return scope["method"] == "GET" and any(b"text/html" in value for value in accepts)


def reject_open_host(host: str, to_all: bool) -> None:
    """Raise SettingError for a host that other machines can reach, unless `to_all` is true."""
    if not is_loopback(host) and not to_all:
        raise AddressError(
            f"--host {host} makes the studio reachable from other machines, unencrypted: everyone who has its address "
            "can train on this machine and see its data. To allow this, add --open-to-the-network."
        )
