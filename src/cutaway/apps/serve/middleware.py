"""ASGI middleware of the server: authentication, Host and Origin checks, and counts of requests.

- Token: if one is set, requests must carry `Authorization: Bearer TOKEN`, or they get 401. /health, /ready and the
  page, which holds nothing about the run, need no token.
- Host and Origin: on loopback they are checked as in `apps.networking`, so that no other page in a browser of this
  machine can use the server. A server for other machines has names that it does not know; it requires a token.

Metrics of the server for Prometheus, counted by `prometheus_client`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import math
import time
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.responses import JSONResponse

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
        metrics.add_gauge("cutaway_requests_in_flight", "Requests in progress.", lambda: self.answering)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve or reject a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500
        send = with_security_headers(send)

        async def counted(message: MutableMapping[str, Any]) -> None:
            """Send a message, record its status and disconnect a client that does not read it."""
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
            self.metrics.count_response(path, status, time.perf_counter() - began)

    def _rejected(self, scope: Scope) -> tuple[int, str] | None:
        """Return the status and message with which a request is rejected, or None if it may pass."""
        headers = collect_headers(scope)
        if self.hosts is not None:
            if self.hosts.is_foreign_host(headers):
                return 421, "The Host header does not match this server."
            if is_cross_site(headers):
                return 403, "Cross-site requests are not allowed."
        if self.token is None or scope["path"] in OPEN:
            return None
        shown = headers.get("authorization", [""])
        kind, _, token = shown[0].partition(" ")
        # Compare in constant time, so that timing reveals nothing about the token.
        same = hmac.compare_digest(token.strip().encode(), self.token.encode())
        if len(shown) == 1 and kind.lower() == "bearer" and same:
            return None
        return 401, "Missing or wrong token: send Authorization: Bearer TOKEN."


def rejection(path: str, status: int, words: str, code: str = "") -> JSONResponse:
    """Return an error response in the format that clients of the path expect, with the headers of the status.

    `code` names the kind of problem, such as CUT-603; errors of HTTP have none.
    """
    headers = {}
    if status in (429, 503):
        headers["retry-after"] = str(AGAIN)
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    if status in (408, 413):  # the rest of the body is not read
        headers["connection"] = "close"
    if not path.startswith(OF_OPENAI):
        return JSONResponse({"error": words} | ({"code": code} if code else {}), status, headers)
    kind = KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")
    error = {"message": words, "type": kind, "param": None, "code": code or None}
    return JSONResponse({"error": error}, status, headers)


SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """All metrics of one server, in a Prometheus registry of their own."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self.requests = Counter("cutaway_requests", "Answered requests.", ["path", "status"], registry=registry)
        self.seconds = Histogram(
            "cutaway_request_seconds", "Time from the head of a request to the end of its response.", ["path"],
            buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self.batches = Histogram(
            "cutaway_batch_examples", "Examples in a batch of the model.", buckets=SIZES, registry=registry
        )
        self.examples = Counter("cutaway_examples", "Predicted examples.", registry=registry)
        self.tokens = Counter("cutaway_tokens", "Generated tokens.", registry=registry)

    def add_gauge(self, name: str, words: str, value: Callable[[], float]) -> None:
        """Add a metric whose value is computed whenever the metrics are read."""
        Gauge(name, words, registry=self.registry).set_function(value)

    def count_response(self, path: str, status: int, seconds: float) -> None:
        """Count an answered request. `path` must be one of the server's paths, so that the number of labels stays
        small."""
        self.requests.labels(path, status).inc()
        self.seconds.labels(path).observe(seconds)

    def to_text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self.registry)


def resident_memory(process: int | str | None) -> float:
    """Return the resident memory of a process in bytes, by its pid or "self"; NaN if the system does not report it."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        import resource

        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize()
    return math.nan
