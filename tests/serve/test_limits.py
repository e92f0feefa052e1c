"""Whom a server answers, and what it takes at a time."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from cutaway.apps.serve.app import Routes
from cutaway.apps.serve.inputs import PredictionRequest
from cutaway.apps.serve.limits import Limits, parse_duration
from cutaway.apps.serve.middleware import SIZES, Guard, Metrics
from cutaway.apps.serve.prediction import Prediction
from cutaway.apps.serve.server import reject_open
from cutaway.core.errors import SettingError
from cutaway.runs.run import Run

Client = Callable[..., TestClient]
TOKEN = "0123456789abcdef"
TEXT = {"texts": ["the cat"]}


# --- whom ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def logged() -> Iterator[io.StringIO]:
    """What is logged meanwhile, down to what helps to debug."""
    text, root = io.StringIO(), logging.getLogger()
    handler, level = logging.StreamHandler(text), root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield text
    finally:
        root.setLevel(level)
        root.removeHandler(handler)


@pytest.mark.parametrize(
    "shown", ["", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}0", "Bearer ", f"Bearer {TOKEN.upper()}"]
)
def test_without_the_token_nothing_of_the_run_is_told(shown: str, served: Client) -> None:
    client = served("texts", token=TOKEN)
    headers = {"authorization": shown} if shown else {}
    with logged() as log:
        for path in ("/predict", "/v1/models", "/metrics", "/openapi.json", "/nothing"):
            answer = client.request("POST" if path == "/predict" else "GET", path, headers=headers)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
    assert "401" in log.getvalue()  # of the client's own log, at the least
    assert TOKEN not in log.getvalue()
    for path in ("/health", "/ready", "/", "/page/serve.js"):
        assert client.get(path).status_code == 200


def test_with_the_token(served: Client) -> None:
    client = served("texts", token=TOKEN)
    assert client.post("/predict", json=TEXT, headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    document = client.get("/openapi.json", headers={"authorization": f"bearer {TOKEN}"}).json()
    assert document["security"] == [{"token": []}]


@pytest.mark.parametrize(("headers", "status"), [
    ({"host": "evil.example"}, 421), ({"host": "127.0.0.1:9"}, 421), ({"origin": "http://evil.example"}, 403),
    ({"origin": "null"}, 403), ({"sec-fetch-site": "cross-site"}, 403), ({"origin": "http://127.0.0.1:8000"}, 200),
    ({"host": "localhost:8000"}, 200),
])  # fmt: skip
def test_on_loopback_no_page_of_another_site_is_answered(headers: dict[str, str], status: int, served: Client) -> None:
    assert served("texts").post("/predict", json=TEXT, headers=headers).status_code == status


def test_for_others_any_name_will_do(served: Client) -> None:
    headers = {"host": "models.example", "authorization": f"Bearer {TOKEN}"}
    assert served("texts", token=TOKEN, host="0.0.0.0").post("/predict", json=TEXT, headers=headers).status_code == 200


def test_other_machines_are_answered_with_a_token_alone() -> None:
    with pytest.raises(SettingError, match="CUTAWAY_TOKEN"):
        reject_open("0.0.0.0", None)
    for token in ("short", "x" * 15, "a token with blanks in it", "ünïcödeünïcödeünïcöde"):
        with pytest.raises(SettingError, match="at least 16") as said:
            reject_open("127.0.0.1", token)
        assert token not in str(said.value)
    reject_open("0.0.0.0", TOKEN)
    reject_open("127.0.0.1", None)


# --- how much ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"), [("2ms", 0.002), ("30s", 30), ("0.5s", 0.5), ("250us", 0.00025), ("2min", 120)]
)
def test_durations(text: str, found: float) -> None:
    assert parse_duration("--batch-wait", text) == pytest.approx(found)


@pytest.mark.parametrize("text", ["2", "ms", "-2ms", "2 hours", "1e3s", ""])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(SettingError, match="--timeout"):
        parse_duration("--timeout", text)


@pytest.mark.parametrize("key", ["max_batch", "max_body", "queue", "timeout", "max_tokens", "streams"])
def test_a_limit_is_above_nothing(key: str) -> None:
    with pytest.raises(SettingError, match=f"--{key.replace('_', '-')}=0"):
        Limits(**{key: 0})  # type: ignore[arg-type]


class Slow:
    """A server in this process whose model takes as long as it is told to, and a client."""

    def __init__(self, run: Run, **limits: Any) -> None:
        self.metrics = Metrics()
        self.routes = Routes(run, Limits(**limits), self.metrics)
        self.guard = Guard(self.routes.app(), None, "127.0.0.1", 8000, self.metrics, 60)
        self.free = asyncio.Event()
        self.batches: list[int] = []

    async def __aenter__(self) -> Slow:
        transport = httpx.ASGITransport(self.guard, raise_app_exceptions=False)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000")
        engine = self.routes.engine

        async def in_thread(do: Callable[[], list[Prediction]]) -> list[Prediction]:
            await self.free.wait()
            await asyncio.sleep(0.01)
            found = do()
            self.batches.append(len(found))
            return found

        engine.small.in_thread = in_thread  # type: ignore[method-assign, assignment]
        self.routes.ready = True
        self.work = asyncio.create_task(engine.work())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.work.cancel()
        self.routes.engine.close()
        await self.client.aclose()

    def ask(self, count: int = 1) -> list[asyncio.Task[httpx.Response]]:
        return [asyncio.create_task(self.client.post("/predict", json=TEXT)) for _ in range(count)]

    async def taking(self, count: int) -> None:
        """Until that many requests are taken."""
        while self.routes.taken < count:
            await asyncio.sleep(0.001)


def test_where_too_many_wait_more_are_told_429(run_of: Callable[[str], Run]) -> None:
    async def during() -> None:
        async with Slow(run_of("texts"), queue=4) as server:
            first = server.ask(4)
            await server.taking(4)
            (late,) = server.ask()
            answer = await late
            assert answer.status_code == 429
            assert answer.headers["retry-after"] == "1"
            assert answer.json()["error"].startswith("The queue is full (4 requests).")
            server.free.set()
            assert [(await one).status_code for one in first] == [200] * 4
            assert server.routes.taken == server.routes.bytes == server.guard.answering == 0

    asyncio.run(during())


def test_an_answer_that_takes_too_long_is_504(run_of: Callable[[str], Run]) -> None:
    async def during() -> None:
        async with Slow(run_of("texts"), timeout=0.05) as server:
            answer = await server.ask()[0]
            assert answer.status_code == 504
            assert answer.json() == {"error": "The request timed out."}
            server.routes.limits = Limits()  # a busy machine may take longer than that to predict
            server.free.set()
            assert (await server.ask()[0]).status_code == 200

    asyncio.run(during())


@pytest.mark.parametrize("path", ["/generate", "/v1/completions"])
@pytest.mark.parametrize("steps", [0, 3])
def test_a_text_that_takes_too_long_is_504(steps: int, path: str, run_of: Callable[[str], Run]) -> None:
    """It has not begun, or is not whole."""

    async def during() -> None:
        async with Slow(run_of("words"), timeout=0.3) as server:
            engine = server.routes.engine
            await asyncio.to_thread(engine.small.process.ask, "load", None)
            taken = 0

            async def in_thread(do: Callable[[], Any]) -> Any:
                nonlocal taken
                taken += 1
                if taken > steps:
                    await server.free.wait()
                return do()

            engine.small.in_thread = in_thread  # type: ignore[method-assign]
            asked = {"model": "words", "prompt": "the", "max_tokens": 9}
            asked = {"prompt": "the", "count": 9} if path == "/generate" else asked
            answer = await asyncio.wait_for(server.client.post(path, json=asked), 20)
            assert answer.status_code == 504
            assert "The request timed out." in answer.text
            assert taken <= steps + 1

    asyncio.run(during())


def test_a_batch_waits_where_several_ask_and_one_client_never_does(run_of: Callable[[str], Run]) -> None:
    wait = 1.0  # long beside what a busy machine takes for a batch

    async def alone(server: Slow) -> float:
        began = time.perf_counter()
        assert (await server.ask()[0]).status_code == 200
        return time.perf_counter() - began

    async def during() -> None:
        async with Slow(run_of("texts"), batch_wait=wait, max_batch=8) as server:
            server.free.set()
            assert min([await alone(server) for _ in range(3)]) < wait
            answers = await asyncio.gather(*server.ask(16))
            assert {answer.status_code for answer in answers} == {200}
            assert server.batches == [1, 1, 1, 8, 8]  # full, and so without a wait
            assert await alone(server) >= wait * 0.9  # for the others of a moment ago
            assert min([await alone(server) for _ in range(3)]) < wait

    asyncio.run(during())


def test_while_it_closes_what_is_new_is_503_and_what_was_taken_is_answered(run_of: Callable[[str], Run]) -> None:
    async def during() -> None:
        async with Slow(run_of("texts")) as server:
            taken = server.ask(3)
            await server.taking(3)
            server.routes.closing = server.guard.closing = True
            for path in ("/ready", "/predict"):
                answer = await server.client.request("GET" if path == "/ready" else "POST", path, json=TEXT)
                assert answer.status_code == 503
                assert answer.headers["connection"] == "close"
            assert (await server.client.get("/health")).status_code == 200
            server.free.set()
            assert [(await one).status_code for one in taken] == [200] * 3

    asyncio.run(during())


# --- what is counted -----------------------------------------------------------------------------------------------


def samples_of(text: str) -> dict[str, float]:
    """The samples of a text in the format of Prometheus, read without its library."""
    samples: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            assert re.fullmatch(r"# (HELP \w+ .+|TYPE \w+ (counter|gauge|histogram))", line)
            continue
        found = re.fullmatch(r'(\w+(?:\{(?:\w+="[^"\\]*",?)+\})?) (\S+)', line)
        assert found, line
        assert found[1] not in samples
        samples[found[1]] = float(found[2])
    return samples


def test_metrics_are_as_prometheus_reads_them(served: Client) -> None:
    client = served("texts")
    for _ in range(3):
        client.post("/predict", json=TEXT)
    client.post("/predict", json={})
    client.get("/secret/" + "x" * 50)
    answer = client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    samples = samples_of(answer.text)
    assert samples['cutaway_requests_total{path="/predict",status="200"}'] == 3
    assert samples['cutaway_requests_total{path="/predict",status="422"}'] == 1
    assert samples['cutaway_requests_total{path="other",status="404"}'] == 1
    assert samples['cutaway_request_seconds_bucket{le="+Inf",path="/predict"}'] == 4
    assert samples["cutaway_examples_total"] == 3
    assert samples["cutaway_requests_in_flight"] == 1  # this one
    assert "xxx" not in answer.text


def test_metrics_count_examples_batches_and_tokens(served: Client) -> None:
    client = served("words", max_tokens=9)
    client.post("/predict", json={"texts": ["the cat", "the dog"]})
    rows = len(client.post("/predict", json={"texts": ["the cat", "the dog", "the bird"]}).json()["predictions"])
    prompts = ["the", "the cat sat"]
    asked = {"model": "words", "prompt": prompts, "n": 2, "max_tokens": 9, "seed": 1}
    usage = client.post("/v1/completions", json=asked).json()["usage"]
    parts = [client.post("/v1/completions", json={**asked, "prompt": p, "n": 1}).json()["usage"] for p in prompts]
    assert usage["prompt_tokens"] == 2 * sum(part["prompt_tokens"] for part in parts)
    run = client.routes.run  # type: ignore[attr-defined]
    assert [part["prompt_tokens"] for part in parts] == [len(run.preprocessing.encode(p)) for p in prompts]
    assert usage["completion_tokens"] == 4 * 9
    assert usage["total_tokens"] == usage["prompt_tokens"] + 4 * 9
    found = samples_of(client.get("/metrics").text)
    assert rows >= 3
    for name, value in (
        ("cutaway_examples_total", 2 * (rows // 3) + rows),
        ("cutaway_batch_examples_count", 2),
        ("cutaway_batch_examples_sum", 5),
        ("cutaway_tokens_total", 4 * 9 + 2 * 9),
        ('cutaway_requests_total{path="/v1/completions",status="200"}', 3),
    ):
        assert found[name] == value, name


def test_seconds_of_requests_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics, now = Metrics(), iter([10.0, 10.25, 20.0, 23.0])

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 202, "headers": []})

    async def send(message: Any) -> None:
        pass

    monkeypatch.setattr("cutaway.apps.serve.middleware.time.perf_counter", lambda: next(now))
    guard = Guard(app, None, "0.0.0.0", 8000, metrics, 60)

    async def receive() -> Any:
        raise AssertionError("nothing is read")

    for _ in range(2):
        asyncio.run(guard({"type": "http", "path": "/predict", "headers": []}, receive, send))
    samples = samples_of(metrics.to_text().decode())
    answers = {name: value for name, value in samples.items() if name.startswith("cutaway_requests_total")}
    assert answers == {'cutaway_requests_total{path="/predict",status="202"}': 2}
    assert (samples['cutaway_request_seconds_sum{path="/predict"}'], guard.answering) == (3.25, 0)


def test_a_histogram_counts_up_to_each_bound() -> None:
    metrics = Metrics()
    for size in (1, 2, 2, 3, 256, 257):
        metrics.batches.observe(size)
    samples = samples_of(metrics.to_text().decode())
    counts = [samples[f'cutaway_batch_examples_bucket{{le="{bound}"}}'] for bound in (*map(float, SIZES), "+Inf")]
    assert counts == [1, 3, 4, 4, 4, 4, 4, 4, 5, 6]
    assert (samples["cutaway_batch_examples_sum"], samples["cutaway_batch_examples_count"]) == (521, 6)


def test_a_request_counts_as_its_examples() -> None:
    assert [
        PredictionRequest([1, 2, 3]).examples,
        PredictionRequest(files=[("a", b"")]).examples,
        PredictionRequest().examples,
    ] == [3, 1, 1]
