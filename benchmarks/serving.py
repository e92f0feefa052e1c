"""The server beside a bare FastAPI function around the same run, asked by clients of another process.

    python -m benchmarks serving               the rows
    python -m benchmarks.serving load 3        3 minutes of load with malformed requests among it: memory, statuses
    python -m benchmarks.serving stop 20       SIGTERM under load, 20 times: what was lost

The peer is what its documentation shows: a function, which FastAPI runs in a pool of threads, that gives what
`Run.predict` says. Both servers run at once, and are asked in turn.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .clients import Tally, ask, request, window
from .pairs import Pair

CUTAWAY = (sys.executable, "-m", "cutaway")
EXAMPLES = ("wine.csv", "scans", "docs.tsv")
RUNS = {  # what is served, and how it was trained on the example files
    "mlp on a table": "train mlp wine.csv target=cultivar",
    "textcnn on texts": "train textcnn docs.tsv text=text target=library lower=true epochs=2",
    "resnet18 on images of 32×32": "train resnet18 scans image_size=32 epochs=1",
}
CLIENTS, WINDOW, REPEATS = 32, 3.0, 9


class Served:
    """A server in a process of its own: ours, or the peer."""

    def __init__(self, run: Path, peer: bool = False, *words: str) -> None:
        ours = (*CUTAWAY, "serve", str(run), "--port", "0", *words)
        command = (sys.executable, "-m", "benchmarks.serving", "peer", str(run)) if peer else ours
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        found = re.search(r":(\d+)/", self.process.stdout.readline())
        assert found, self.process.communicate()[1]
        self.port = int(found[1])

    def stop(self) -> tuple[int, str]:
        """The exit status and what was written to standard error."""
        self.process.send_signal(signal.SIGTERM)
        said = self.process.communicate()[1]
        return self.process.returncode, said

    def memory(self) -> int:
        """KiB of the process that are resident and its own."""
        found = re.search(r"RssAnon:\s+(\d+)", Path(f"/proc/{self.process.pid}/status").read_text())
        assert found
        return int(found[1])


@contextlib.contextmanager
def served(run: Path, peer: bool = False, *words: str) -> Iterator[Served]:
    """A server that answers, for as long as the context lasts."""
    server = Served(run, peer, *words)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()


@contextlib.contextmanager
def trained(name: str) -> Iterator[tuple[Path, Callable[[int], Callable[[int], bytes]]]]:
    """A run, and what gives the requests for a port: examples of the data that it learned from, in turn."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with tempfile.TemporaryDirectory() as folder:
        words = RUNS[name].split()
        for command in (["examples", *EXAMPLES], [*words, "--out", "run"]):
            subprocess.run([*CUTAWAY, *command], cwd=folder, env=environment, check=True, capture_output=True)
        bodies = [json.dumps(body).encode() for body in documents(Path(folder))[words[1]]]
        yield Path(folder, "run"), lambda port: lambda n: request("/predict", port, bodies[n % len(bodies)])


def documents(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Requests of one example each, by the model that learned from such."""
    import polars as pl

    rows = pl.read_csv(folder / "wine.csv").drop("cultivar").to_dicts()
    texts = pl.read_csv(folder / "docs.tsv", separator="\t", quote_char=None)["text"].to_list()[:200]
    files = [(p.name, p.read_bytes()) for p in sorted((folder / "scans").rglob("*.png"))[:200]]
    return {
        "mlp": [{"rows": [row]} for row in rows],
        "textcnn": [{"texts": [text]} for text in texts],
        "resnet18": [{"files": [{"name": n, "data": base64.b64encode(data).decode()}]} for n, data in files],
    }


def rows() -> list[tuple[Pair, float]]:
    """Seconds of an answer when 32 clients ask, and the 99th percentile of one client, beside the peer's."""
    found = []
    for name in RUNS:
        with trained(name) as (run, sent), served(run) as ours, served(run, peer=True) as peer:
            for server in (ours, peer):
                window(server.port, sent(server.port), CLIENTS, WINDOW)  # warm
            many, alone = [], []
            for i in range(REPEATS):
                for server in (ours, peer) if i % 2 else (peer, ours):
                    rate, _ = window(server.port, sent(server.port), CLIENTS, WINDOW)
                    _, one = window(server.port, sent(server.port), 1, WINDOW)
                    many.append((i, server is peer, 1 / rate))
                    alone.append((i, server is peer, one.percentile(99)))
        found.append((_pair(f"serving: an answer of {name}, {CLIENTS} clients, vs. FastAPI", many), 1 / 1.5))
        found.append((_pair(f"serving: 99th percentile of {name}, 1 client, vs. FastAPI", alone), 1.2))
    return found


def _pair(name: str, measured: list[tuple[int, bool, float]]) -> Pair:
    by = {(i, peer): seconds for i, peer, seconds in measured}
    ours, peers = ([by[i, peer] for i in range(REPEATS)] for peer in (False, True))
    ratios = [a / b for a, b in zip(ours, peers)]
    low, _, high = statistics.quantiles(ratios, n=4)
    return Pair(name, statistics.median(ours), statistics.median(peers), statistics.median(ratios), low, high, REPEATS)


# --- the peer ------------------------------------------------------------------------------------------------------


def peer(run: str) -> None:
    """A FastAPI application around a run, at any port that is free."""
    import socket

    import uvicorn
    from fastapi import FastAPI
    from PIL import Image

    import cutaway

    opened = cutaway.load(run)
    app = FastAPI()

    @app.post("/predict")
    def predict(asked: dict[str, Any]) -> dict[str, Any]:
        if "files" in asked:
            sources: list[Any] = [Image.open(io.BytesIO(base64.b64decode(file["data"]))) for file in asked["files"]]
        else:
            sources = asked.get("rows") or asked["texts"]
        return {"predictions": opened.predict(sources)}

    opened.place.model(opened.model, learns=False)
    with socket.socket(proto=socket.IPPROTO_TCP) as listening:  # with TCP_NODELAY, as uvicorn itself opens it
        listening.bind(("127.0.0.1", 0))
        print(f"http://127.0.0.1:{listening.getsockname()[1]}/", flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="warning", http="h11")).run(sockets=[listening])


# --- load, and the end under it ------------------------------------------------------------------------------------


def malformed(port: int, body: bytes) -> list[bytes]:
    """Requests that cannot be answered, each in another way."""
    deep = b"[" * 100_000 + b"]" * 100_000
    bad = [
        (b"", "application/json"), (b"{", "application/json"), (deep, "application/json"),
        (b'{"rows": ' + deep + b"}", "application/json"), (b'{"rows": [{"alcohol": NaN}]}', "application/json"),
        (b'{"rows": [{"alcohol": 1e999}]}', "application/json"), (b'{"rows": []}', "application/json"),
        (b'{"rows": [{"no such column": 1}]}', "application/json"), (b'{"texts": ["a"]}', "application/json"),
        (b'{"rows": [{"alcohol": "\\ud800"}]}', "application/json"), (b"\xff\xfe", "application/json"),
        (b'{"rows": [{"alcohol": [1]}]}', "application/json"), (b"1" * 5000, "application/json"),
        (body, "text/html"), (body, "multipart/form-data"), (b"PK\x03\x04", "application/octet-stream"),
        (b"a;b\n1;2\n", "text/csv"), (b"{}" * 2**17, "application/json"),
    ]  # fmt: skip
    return [request("/predict", port, content, media) for content, media in bad]


def load(minutes: float) -> None:
    """Load by 16 clients, every fourth request malformed: what was answered, and memory, minute by minute."""
    with trained("mlp on a table") as (run, sent), served(run) as server:
        good = sent(server.port)
        bad = malformed(server.port, b'{"rows": [{}]}')
        tally, began = Tally(), time.perf_counter()

        def mixed(n: int) -> bytes:
            return bad[n // 4 % len(bad)] if n % 4 == 3 else good(n)

        for minute in range(max(1, round(minutes)) + 1):
            print(f"{minute} min: {dict(sorted(tally.statuses.items()))}, lost {tally.lost}, {server.memory()} KiB")
            sys.stdout.flush()
            end = began + 60 * (minute + 1)
            if minute < minutes:
                asyncio.run(ask(server.port, mixed, 16, lambda end=end: time.perf_counter() > end, tally))
        status, said = server.stop()
        print(f"exit status {status}; on standard error: {said.strip()}")


def stop(times: int) -> None:
    """SIGTERM while 32 clients ask, so many times: requests that were sent and not answered."""
    total = Tally()
    with trained("mlp on a table") as (run, sent):
        for _ in range(times):
            with served(run) as server:
                tally = Tally()

                async def during(server: Served = server, tally: Tally = tally) -> None:
                    asked = asyncio.create_task(ask(server.port, sent(server.port), 32, lambda: False, tally))
                    await asyncio.sleep(1.0)
                    server.process.send_signal(signal.SIGTERM)
                    await asked

                asyncio.run(during())
                status = server.process.wait()
                print(f"{dict(tally.statuses)}, lost {tally.lost}, refused {tally.refused}, exit {status}", flush=True)
                total.lost += tally.lost
    print(f"lost of all: {total.lost}")


if __name__ == "__main__":
    what, value = sys.argv[1:]
    {"peer": peer, "load": lambda v: load(float(v)), "stop": lambda v: stop(int(v))}[what](value)
