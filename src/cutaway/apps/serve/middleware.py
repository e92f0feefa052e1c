"""ASGI middleware of the server: authentication, Host and Origin checks, and counts of requests.

- Token: if one is set, requests must carry `Authorization: Bearer TOKEN`, or they get 401. /health, /ready and the
  page, which holds nothing about the run, need no token.
- Host and Origin: on loopback they are checked as in `apps.web.requests`, so that no other page in a browser of this
  machine can use the server. A server for other machines has names that it does not know; it requires a token.

Server metrics in the text format of Prometheus (version 0.0.4).

<https://prometheus.io/docs/instrumenting/exposition_formats/>
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import math
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, MutableMapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from starlette.responses import JSONResponse

from ..web.requests import App, Hosts, Receive, Scope, Send, collect_headers, is_cross_site, with_security_headers
from ..web.sockets import is_loopback
from .limits import AGAIN

OPEN = ("/health", "/ready", "/", "/page/serve.js", "/page/serve.css", "/page/style.css", "/favicon.ico")
OF_OPENAI = "/v1/"
COUNTED = (*OPEN[:3], "/predict", "/generate", "/metrics", "/openapi.json", "/v1/completions", "/v1/chat/completions",
           "/v1/models")  # fmt: skip
KINDS = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


class ClientStalled(Exception):
    """Raised if a client stops reading a streamed response."""


class Guard:
    """Middleware that passes permitted requests on to the application and counts all."""

    def __init__(
        self,
        app: App,
        token: str | None,
        host: str,
        port: int,
        metrics: Metrics,
        timeout: float,
        known: Callable[[Any], None] = lambda peer: None,
    ) -> None:
        """Set up the middleware.

        `known` is called with the client of each accepted request. A client that does not read its response for
        `timeout` seconds is disconnected.
        """
        self.app, self.token, self.metrics, self.timeout, self.known = app, token, metrics, timeout, known
        self.hosts = Hosts(host, port) if is_loopback(host) else None
        self.answering = 0
        self.closing = False
        metrics.gauges["cutaway_requests_in_flight"] = "Requests that are being answered.", lambda: self.answering

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve or reject a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500
        send = with_security_headers(send)

        async def counted(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if self.closing:  # so that the client connects to another server next time
                    message["headers"] = [*message["headers"], (b"connection", b"close")]
                await send(message)
            elif message.get("more_body"):
                try:
                    await asyncio.wait_for(send(message), self.timeout)
                except TimeoutError:
                    raise ClientStalled from None
            else:
                await send(message)

        self.answering += 1
        try:
            rejected = self._rejected(scope)
            if rejected is not None:
                await rejection(scope["path"], *rejected)(scope, receive, counted)
                return
            self.known(scope.get("client"))
            with contextlib.suppress(ClientStalled):
                await self.app(scope, receive, counted)
        finally:
            self.answering -= 1
            path = scope["path"] if scope["path"] in COUNTED else "other"
            self.metrics.answered(path, status, time.perf_counter() - began)

    def _rejected(self, scope: Scope) -> tuple[int, str] | None:
        """Return the status and message with which a request is rejected, or None if it may pass."""
        headers = collect_headers(scope)
        if self.hosts is not None:
            if self.hosts.is_foreign_host(headers):
                return 421, "This server is not the one that was asked for."
            if is_cross_site(headers):
                return 403, "A page of another site may not use this server."
        if self.token is None or scope["path"] in OPEN:
            return None
        shown = headers.get("authorization", [""])
        kind, _, token = shown[0].partition(" ")
        # Compare in constant time, so that timing reveals nothing about the token.
        same = hmac.compare_digest(token.strip().encode(), self.token.encode())
        if len(shown) == 1 and kind.lower() == "bearer" and same:
            return None
        return 401, "This server asks for its token: Authorization: Bearer TOKEN."


def rejection(path: str, status: int, words: str) -> JSONResponse:
    """Return an error response in the format that clients of the path expect, with the headers of the status."""
    headers = {}
    if status in (429, 503):
        headers["retry-after"] = str(AGAIN)
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    if status in (408, 413):  # the rest of the body is not read
        headers["connection"] = "close"
    if not path.startswith(OF_OPENAI):
        return JSONResponse({"error": words}, status, headers)
    kind = KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")
    error = {"message": words, "type": kind, "param": None, "code": None}
    return JSONResponse({"error": error}, status, headers)


MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Histogram:
    """A histogram: the number of values up to each bound, and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        """Add one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str, labels: str = "") -> list[str]:
        """Return the lines of the histogram; `labels` is like path="/predict", with a trailing comma."""
        total, found = 0, []
        for bound, count in zip((*self.bounds, math.inf), self.counts):
            total += count
            found.append(f'{name}_bucket{{{labels}le="{"+Inf" if math.isinf(bound) else f"{bound:g}"}"}} {total}')
        own = f"{{{labels.rstrip(',')}}}" if labels else ""
        return [*found, f"{name}_sum{own} {self.sum:.9g}", f"{name}_count{own} {total}"]


class Metrics:
    """All metrics of one server."""

    def __init__(self) -> None:
        self.answers: defaultdict[tuple[str, int], int] = defaultdict(int)
        self.seconds: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(SECONDS))
        self.batches = Histogram(SIZES)  # of examples
        self.examples = self.tokens = 0
        self.gauges: dict[str, tuple[str, Callable[[], float]]] = {}

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Count an answered request. `path` must be one of the server's paths, so that the number of labels stays
        small."""
        self.answers[path, status] += 1
        self.seconds[path].add(seconds)

    def text(self) -> str:
        """Return all metrics as text for Prometheus."""
        lines = []

        def family(name: str, kind: str, words: str, samples: Sequence[str]) -> None:
            lines.extend([f"# HELP {name} {words}", f"# TYPE {name} {kind}", *samples])

        name = "cutaway_requests_total"
        family(name, "counter", "Requests that were answered.", [
            f'{name}{{path="{path}",status="{status}"}} {count}'
            for (path, status), count in sorted(self.answers.items())
        ])  # fmt: skip
        name = "cutaway_request_seconds"
        family(name, "histogram", "Time from a request's head to the end of its answer.", [
            line for path, own in sorted(self.seconds.items()) for line in own.lines(name, f'path="{path}",')
        ])  # fmt: skip
        name = "cutaway_batch_examples"
        family(name, "histogram", "Examples that the model was given at once.", self.batches.lines(name))
        for name, words, count in (
            ("cutaway_examples_total", "Examples that were predicted.", self.examples),
            ("cutaway_tokens_total", "Tokens that were written.", self.tokens),
        ):
            family(name, "counter", words, [f"{name} {count}"])
        for name, (words, value) in self.gauges.items():
            family(name, "gauge", words, [f"{name} {value():.15g}"])
        return "\n".join([*lines, ""])


def resident_memory(process: int | str | None) -> float:
    """Return the resident memory of a process in bytes, by its pid or "self"; NaN if the system does not report it."""
    with suppress(OSError, ValueError, IndexError):
        import resource

        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize()
    return math.nan
