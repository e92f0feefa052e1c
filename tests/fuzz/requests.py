"""Requests to `cutaway serve`: bodies, headers, paths and query strings that no client sends by accident."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from starlette.testclient import TestClient

import cutaway
from cutaway.apps.serve.app import Routes
from cutaway.apps.serve.limits import Limits
from cutaway.apps.serve.middleware import Guard, Metrics

from . import documents
from .kinds import Case, Fault, Kind
from .mutations import HOSTILE, VALUES, changed, corrupt, dumped, places

HOME = "http://127.0.0.1:8000"
PATHS = (
    "/", "/predict", "/generate", "/v1/completions", "/v1/chat/completions", "/v1/models", "/health", "/ready",
    "/metrics", "/openapi.json", "/page/serve.js", "/page/..%2f..%2fetc", "/predict?name=../x.csv", "/nothing", "//",
    "/%00",
    "/predict?name=" + "x" * 3000,
)  # fmt: skip
MEDIA = (
    "application/json", "text/csv", "image/png", "audio/wav", "text/plain", "application/octet-stream",
    "multipart/form-data", "application/json; charset=utf-16", "", "x" * 1000, "image/gif",
)  # fmt: skip
METHODS = ("POST", "POST", "POST", "GET", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH")
BODIES: dict[str, dict[str, Any]] = {
    "/predict": {},
    "/generate": {
        "prompt": "one day", "count": 3, "seed": 1, "samples": 2, "stop": ["."], "window": False, "stream": False,
        "temperature": 0.8, "top_k": 5, "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1.1,
    },
    "/v1/completions": {
        "model": "words", "prompt": ["one day"], "max_tokens": 3, "n": 2, "seed": 1, "stop": ["."], "temperature": 0.8,
        "top_p": 0.9, "stream": False, "logprobs": None, "echo": False, "stream_options": {"include_usage": True},
    },
    "/v1/chat/completions": {
        "model": "words", "messages": [{"role": "user", "content": "one day"}], "max_tokens": 3, "n": 1, "stop": ".",
    },
}  # fmt: skip


def prepare(name: str, home: Path) -> None:
    """Train the run that is served."""
    documents.trained(home, name)


def cases(name: str, home: Path, own: Path, random: Random) -> Iterator[Case]:
    """Requests to a server around one run, which must answer each with a status below 500."""
    run = cutaway.Run(documents.trained(home, name))
    metrics, bounds = Metrics(), Limits()
    guard = Guard(Routes(run, bounds, metrics, False).app(), None, "127.0.0.1", 8000, metrics, bounds.timeout)
    bodies = {**BODIES, "/predict": _predictable(name, home)}
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(TestClient(guard, base_url=HOME, raise_server_exceptions=False))
        while client.get("/ready").status_code == 503:
            time.sleep(0.02)
        while True:
            path = random.choice(PATHS[:5] if random.random() < 0.8 else PATHS)
            document = bodies.get(path, {"rows": [{}]})
            at = random.choice([*places(document)])
            content = dumped(changed(document, at, random.choice(VALUES))).encode(errors="replace")
            said = f"{'.'.join(map(str, at)) or 'the body'} changed"
            if random.random() < 0.3:
                said, content = corrupt(content, content, random)
            media = random.choice(MEDIA) if random.random() < 0.3 else MEDIA[0]
            method = random.choice(METHODS)
            headers = {"content-type": media.encode()}
            if random.random() < 0.1:
                headers[random.choice(("host", "origin", "authorization", "content-length", "x"))] = (
                    random.choice(HOSTILE).replace("\n", "").replace("\r", "").encode()[:2000]
                )
            yield Case(
                f"{method} {path[:60]}, {said}, {media[:40]}", partial(ask, client, method, path, content, headers)
            )


def ask(client: TestClient, method: str, path: str, content: bytes, headers: dict[str, bytes]) -> None:
    """Ask, and raise Fault for a status of 500 or more, or a traceback in the answer."""
    with contextlib.suppress(UnicodeError):  # the client itself sends no such address or header
        answer = client.request(method, path, content=content, headers=headers)  # type: ignore[arg-type]
        if answer.status_code >= 500 or "Traceback" in answer.text:
            raise Fault(f"status {answer.status_code}: {answer.text[:600]}")


def _predictable(name: str, home: Path) -> dict[str, Any]:
    if name == "table":
        lines = (home / "examples" / "wine.csv").read_text().splitlines()
        cells = dict(zip(lines[0].split(","), lines[1].split(",")))
        return {"rows": [{key: float(value) for key, value in cells.items() if key != "cultivar"}]}
    return {"texts": ["one day"], "files": [{"name": "a.txt", "data": "b25lIGRheQ=="}]}


KINDS = [
    Kind(f"requests:{name}", partial(prepare, name), partial(cases, name), seconds=30, quick=name == "table")
    for name in ("table", "words", "texts", "images")
]
