"""The process of the model: it ends, hangs or is asked for too much, and whoever asks next is answered."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import os
import resource
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, MutableMapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import av
import httpx
import numpy as np
import pytest
import soundfile
import torch
from PIL import Image
from starlette.responses import JSONResponse
from starlette.testclient import TestClient

from cutaway.apps.serve import engine as engines
from cutaway.apps.serve import engine as processes
from cutaway.apps.serve.app import Routes
from cutaway.apps.serve.engine import (
    MemoryLimit,
    ModelProcess,
    ProcessEnded,
    Worker,
    _prediction_reply,
    decode_reply,
    encode_reply,
    error_reply,
    work,
)
from cutaway.apps.serve.inputs import Inputs, PredictionRequest
from cutaway.apps.serve.limits import Bounds, Limits
from cutaway.apps.serve.middleware import Guard, Metrics
from cutaway.apps.serve.prediction import Prediction, Predictor, request_size
from cutaway.apps.serve.text_generation import GenerationRequest
from cutaway.core.errors import CutawayError
from cutaway.data.graphs.transforms import GraphPreprocessing
from cutaway.runs.run import Run

Runs = Callable[[str], Run]


def fragile(*words: Any) -> None:
    """Do what the process of the model does, and be ended or held up by some texts, as native code can be."""
    predicted = Predictor._predicted

    def decoded(self: Predictor, sources: Any) -> Any:
        for source in sources:
            text = source["text"]
            if text.startswith("SIG"):
                os.kill(os.getpid(), getattr(signal, text))
            if text == "deaf":
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
            if text == "huge":  # twice the memory of this machine, which is asked for and not written to
                pages = 2 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
                kept = [torch.empty(2**28, dtype=torch.uint8) for _ in range(pages // 2**28)]
                assert kept
            while text in ("slow", "deaf"):
                time.sleep(0.01)
        return predicted(self, sources)

    Predictor._predicted = decoded  # type: ignore[method-assign]
    work(*words)


def given(text: str) -> PredictionRequest:
    return PredictionRequest([{"text": text}])


@contextlib.asynccontextmanager
async def server(run: Run, **limits: Any) -> AsyncIterator[SimpleNamespace]:
    """A server in this process, with a fragile process that has read its model; its engine does not work yet."""
    metrics, bounds = Metrics(), Limits(**limits)
    routes = Routes(run, bounds, metrics)
    engine = routes.engine
    engine.small.process.target = engine.large.process.target = fragile
    guard = Guard(routes.app(), None, "127.0.0.1", 8000, metrics, bounds.timeout)
    transport = httpx.ASGITransport(guard, raise_app_exceptions=False)
    tasks: list[asyncio.Task[None]] = []
    try:
        await engine.load()
        routes.ready = True
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", timeout=None) as client:

            def begin() -> None:
                tasks.append(asyncio.create_task(engine.work()))

            yield SimpleNamespace(
                routes=routes, engine=engine, guard=guard, client=client, metrics=metrics, begin=begin
            )
    finally:
        for task in tasks:
            task.cancel()
        engine.close()


@pytest.mark.parametrize("number", ["SIGKILL", "SIGSEGV"])
def test_a_crash_is_told_to_whoever_caused_it_alone(number: str, run_of: Runs) -> None:
    async def during() -> None:
        async with server(run_of("texts")) as own:
            texts = ["the cat", "a goal", number, "the bread rises", "lunch"]
            asked = [asyncio.create_task(own.client.post("/predict", json={"texts": [text]})) for text in texts]
            while len(own.engine.jobs) < len(texts):
                await asyncio.sleep(0.001)
            own.begin()  # all of them are one batch
            answers = [await one for one in asked]
            assert [answer.status_code for answer in answers] == [200, 200, 500, 200, 200]
            said = answers[2].json()["error"]
            assert f"ended ({number})" in said
            assert "Check the request" in said
            (cat,) = answers[0].json()["predictions"]
            alone = (await own.client.post("/predict", json={"texts": ["the cat"]})).json()["predictions"][0]
            assert cat["topic"] == alone["topic"]
            assert cat["probability"] == pytest.approx(alone["probability"], rel=1e-4)
            assert (
                own.engine.small.process.restarts == 2
            )  # after the batch, and after the one that was asked about alone
            assert "cutaway_model_restarts 2.0\n" in (await own.client.get("/metrics")).text
            assert list(own.engine.small.process.files.iterdir()) == []

    asyncio.run(during())


def test_a_process_that_ended_while_nothing_was_asked_is_replaced(run_of: Runs) -> None:
    process = ModelProcess(run_of("texts").folder, Bounds())
    try:
        process.ask("load", None)
        first = process.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        process.process.join()
        (reply,) = process.ask("predict", [given("the cat")], False)
        assert reply["rows"]
        assert (process.pid != first, process.restarts) == (True, 1)
    finally:
        process.close()
    with pytest.raises(ProcessEnded, match="shutting down"):
        process.ask("load", None)
    assert not process.files.exists()


def test_an_answer_says_that_memory_ran_out_and_hides_other_faults(capfd: pytest.CaptureFixture[str]) -> None:
    assert "Memory ran out" in error_reply(MemoryError())["error"]
    assert capfd.readouterr().err == ""
    assert error_reply(ValueError("secret")) == {"fault": "ValueError in the process of the model"}
    assert "secret" in capfd.readouterr().err


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux limits writable memory")
def test_a_request_that_takes_all_memory_is_rejected_and_ends_no_process(run_of: Runs) -> None:
    async def during() -> None:
        async with server(run_of("texts")) as own:
            asked = [asyncio.create_task(own.client.post("/predict", json={"texts": [t]})) for t in ("huge", "a goal")]
            while len(own.engine.jobs) < len(asked):
                await asyncio.sleep(0.001)
            own.begin()  # both are one batch
            huge, goal = [await one for one in asked]
            assert huge.status_code == 422
            assert huge.json()["error"].startswith("Memory ran out")
            assert goal.status_code == 200
            for _ in range(2):  # the limit does not become narrower from one request to the next
                assert (await own.client.post("/predict", json={"texts": ["huge"]})).status_code == 422
                await asyncio.sleep(1.1)
                assert (await own.client.post("/predict", json={"texts": ["a goal"]})).content == goal.content
            assert own.engine.small.process.restarts == 0

    asyncio.run(during())


def test_a_memory_limit_follows_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    limits, free, now = [(resource.RLIM_INFINITY, resource.RLIM_INFINITY)], [2**30], [0.0]
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda which, limit: limits.append(limit))
    monkeypatch.setattr(processes, "free_memory", lambda: free[0])
    monkeypatch.setattr(processes.time, "monotonic", lambda: now[0])
    limit = MemoryLimit()
    for size, seconds in ((2**30, 0.0), (2**34, 0.5), (2**34, 1.0), (2**30, 2.0)):
        free[0], now[0] = size, seconds
        limit.renew()
    unlimited, first, again, second, *_, third = (soft for soft, _ in limits[1:])
    assert unlimited == again == resource.RLIM_INFINITY  # while the free memory is read
    assert second - first == pytest.approx(0.9 * (2**34 - 2**30), rel=0.01)
    assert third == pytest.approx(first, rel=0.01)
    limits.append((2**20, 2**20))  # a limit by the user stays
    MemoryLimit().renew()
    assert limits[-1] == (2**20, 2**20)


def test_an_answer_has_the_bytes_that_starlette_makes_of_it(run_of: Runs, tmp_path: Path) -> None:
    row = {"input": "a\nb \u2028 é", "line": 3, "probability": 0.1 + 0.2, "classes": {"line": 1}, "none": None}
    reply = _prediction_reply(Prediction([row] * 3, ["a note\n"]))
    other = {"rows": 1, "members": b'"predictions":[],"notes":[]'}
    sent = encode_reply({"answer": [other, reply, {"error": "line\n"}]})
    assert decode_reply(sent) == {"answer": [other, reply, {"error": "line\n"}]}
    whole = JSONResponse({"model": "m", "predictions": [row] * 3, "notes": ["a note\n"]}).body
    assert b'{"model":"m",%b}' % reply["members"] == whole
    assert reply["rows"] == 3
    for unfit in (Prediction([{"value": [float("nan")]}], []), Prediction([], ["\ud800"])):
        assert "fault" in _prediction_reply(unfit)  # JSON has no NaN, and UTF-8 no half characters


def test_a_run_that_cannot_be_read_is_said_in_its_own_words(tmp_path: Path) -> None:
    process = ModelProcess(tmp_path, Bounds())
    try:
        for _ in range(2):
            with pytest.raises(CutawayError, match="is not a run"):
                process.ask("load", None)
    finally:
        process.close()


def test_work_that_nobody_waits_for_is_stopped(run_of: Runs) -> None:
    """One request times out, of another the client leaves: the same process answers the next, and others meanwhile."""

    async def during() -> None:
        async with server(run_of("texts"), timeout=0.3) as own:
            own.begin()
            late = asyncio.create_task(own.client.post("/predict", json={"texts": ["slow"]}))
            while not own.engine.small.process.working:
                await asyncio.sleep(0.001)
            assert (await own.client.get("/health")).status_code == 200
            assert (await late).status_code == 504
            own.routes.limits = Limits()
            assert (await own.client.post("/predict", json={"texts": ["a goal"]})).status_code == 200
            await left_alone(own)
            assert (await own.client.post("/predict", json={"texts": ["a goal"]})).status_code == 200
            assert own.engine.small.process.restarts == 0
            for status in ("499", "504"):
                answers = {"path": "/predict", "status": status}
                assert own.metrics.registry.get_sample_value("cutaway_requests_total", answers) == 1
            assert own.routes.taken == own.routes.bytes == own.guard.answering == 0

    asyncio.run(during())


def large(text: str) -> dict[str, Any]:
    """A request of more examples than a batch has, with that text among them."""
    return {"texts": [text, *["a goal"] * Limits().max_batch]}


def test_small_requests_and_texts_are_answered_while_a_large_request_is_computed(run_of: Runs) -> None:
    """A large request that never ends takes nothing from others; once it is given up the next large one is answered by
    the same process."""

    async def during() -> None:
        async with server(run_of("words"), timeout=60, max_tokens=5) as own:
            own.begin()
            slow = asyncio.create_task(own.client.post("/predict", json=large("slow")))
            while not own.engine.large.process.working:
                await asyncio.sleep(0.001)
            next_large = asyncio.create_task(own.client.post("/predict", json=large("the cat")))
            for _ in range(3):
                assert (await own.client.post("/predict", json={"texts": ["the cat"]})).status_code == 200
                assert (await own.client.post("/generate", json={"prompt": "the", "count": 5})).status_code == 200
            assert [slow.done(), next_large.done()] == [False, False]
            slow.cancel()
            assert (await next_large).status_code == 200
            assert (own.engine.small.process.restarts, own.engine.large.process.restarts) == (0, 0)

    asyncio.run(during())


@pytest.mark.parametrize("max_batch", [1, 32])
def test_answers_that_share_no_batch_are_bit_identical_to_those_given_alone(max_batch: int, run_of: Runs) -> None:
    """With --max-batch 1 no answer depends on what else is asked; a large one never does."""

    async def during() -> None:
        async with server(run_of("texts"), max_batch=max_batch) as own:
            own.begin()
            bodies = [large("the cat"), large("a goal in the last minute")]
            if max_batch == 1:
                bodies += [{"texts": [text]} for text in ("the cat", "a goal in the last minute", "lunch", "it rains")]
            alone = [(await own.client.post("/predict", json=body)).content for body in bodies]
            others = [{"texts": [text]} for text in ("qqq", "the bread rises")]
            asked = [own.client.post("/predict", json=body) for body in (*bodies, *others, *bodies)]
            found = [answer.content for answer in await asyncio.gather(*asked)]
            assert found[: len(bodies)] == found[-len(bodies) :] == alone

    asyncio.run(during())


def test_a_crash_of_a_large_request_is_no_small_ones_matter(run_of: Runs) -> None:
    async def during() -> None:
        async with server(run_of("texts")) as own:
            own.begin()
            small = own.engine.small.process.pid
            assert (await own.client.post("/predict", json=large("SIGKILL"))).status_code == 500
            assert (await own.client.post("/predict", json={"texts": ["a goal"]})).status_code == 200
            assert own.engine.small.process.pid == small
            assert (await own.client.post("/predict", json=large("the cat"))).status_code == 200
            assert "cutaway_model_restarts 1.0\n" in (await own.client.get("/metrics")).text

    asyncio.run(during())


async def left_alone(own: SimpleNamespace) -> None:
    """A request that is never answered by itself, whose client leaves once it is worked on."""
    messages = [{"type": "http.request", "body": b'{"texts": ["slow"]}', "more_body": False}]

    async def receive() -> MutableMapping[str, Any]:
        if messages:
            return messages.pop()
        while not own.engine.small.process.working:
            await asyncio.sleep(0.001)
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        pass

    headers = [(b"host", b"127.0.0.1:8000"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/predict", "query_string": b"", "headers": headers,
             "http_version": "1.1", "scheme": "http", "raw_path": b"/predict", "client": None}  # fmt: skip
    await own.guard(scope, receive, send)


def test_a_process_that_does_not_hear_is_replaced(run_of: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "GRACE", 0.05)

    async def during() -> None:
        async with server(run_of("texts")) as own:
            own.begin()
            asked = asyncio.create_task(own.engine.predict(given("deaf")))
            while not own.engine.small.process.working:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.1)
            asked.cancel()
            said = await own.engine.predict(given("the cat"))
            assert said.rows
            assert own.engine.small.process.restarts == 1

    asyncio.run(during())


def test_a_stop_signal_before_the_request_arrives_is_repeated(run_of: Runs) -> None:
    """The process is suspended while the request is sent and given up, so that it handles the first signal first."""

    async def during() -> None:
        async with server(run_of("texts")) as own:
            own.begin()
            pid = own.engine.small.process.pid
            os.kill(pid, signal.SIGSTOP)
            asked = asyncio.create_task(own.engine.predict(given("slow")))
            while not own.engine.small.process.working:
                await asyncio.sleep(0.001)
            asked.cancel()
            await asyncio.sleep(0.05)
            os.kill(pid, signal.SIGCONT)
            assert (await own.engine.predict(given("the cat"))).rows
            assert (own.engine.small.process.pid, own.engine.small.process.restarts) == (pid, 0)

    asyncio.run(during())


def test_a_text_goes_on_where_it_was_in_another_process(run_of: Runs, tmp_path: Path) -> None:
    wanted = [GenerationRequest("the cat", 12, seed, sampling={"temperature": 0.9}) for seed in (3, 4)]
    whole = Worker(run_of("words").folder, Bounds(), tmp_path)
    pieces = [whole.write([(k, one, step) for k, one in enumerate(wanted)]) for step in range(12)]
    begun = Worker(run_of("words").folder, Bounds(), tmp_path)
    assert [begun.write([(0, wanted[0], step)])[0] for step in range(5)] == [both[0] for both in pieces[:5]]
    after = Worker(run_of("words").folder, Bounds(), tmp_path)
    for step in range(5, 12):
        assert after.write([(0, wanted[0], step), (1, wanted[1], step)]) == pieces[step]
    assert [*after.writers] == [0, 1]
    after.write([(1, wanted[1], 12)])
    assert [*after.writers] == [1]  # what is not asked for any more is forgotten


# --- how much one request holds ------------------------------------------------------------------------------------


def png(height: int, width: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("L", (width, height)).save(buffer, "PNG")
    return buffer.getvalue()


def sound(samples: int, channels: int, form: str = "WAV") -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, np.zeros((samples, channels), np.float32), 8000, format=form)
    return buffer.getvalue()


def video(frames: int, height: int, width: int) -> bytes:
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream = container.add_stream("mpeg4", rate=5)
        stream.height, stream.width, stream.pix_fmt = height, width, "yuv420p"
        for _ in range(frames):
            frame = av.VideoFrame.from_ndarray(np.zeros((height, width, 3), np.uint8))
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return buffer.getvalue()


def of(kind: str, preprocessing: Any = None) -> Any:
    return SimpleNamespace(spec=SimpleNamespace(kind=kind), preprocessing=preprocessing)


MOLECULES = object.__new__(GraphPreprocessing)
object.__setattr__(MOLECULES, "smiles", "smiles")


@pytest.mark.parametrize(
    ("kind", "asked", "amount"),
    [
        (
            "image",
            PredictionRequest(files=[("a.png", png(3, 5)), ("b.png", png(20, 7)), ("c.png", b"none")]),
            ("pixels", 155),
        ),
        (
            "audio",
            PredictionRequest(files=[("a.wav", sound(30, 2)), ("b.wav", sound(7, 1)), ("c.wav", b"none")]),
            ("samples", 67),
        ),
        (
            "audio",
            PredictionRequest(files=[("a.flac", sound(2**20, 1, "FLAC"))]),
            ("samples", 2**20),
        ),  # silence, in 3 KB
        (
            "video",
            PredictionRequest(files=[("a.mp4", video(3, 16, 32)), ("b.mp4", b"none")]),
            ("video_pixels", 3 * 16 * 32),
        ),
        (
            "text",
            PredictionRequest([{"text": "four"}, "a gap _"], [("a.txt", b"twelve bytes")]),
            ("characters", 4 + 7 + 12),
        ),
        ("seq2seq", PredictionRequest([{"text": "four"}]), ("characters", 4)),
        ("table", PredictionRequest([{"a": 1}, {"a": 2}], [("a.csv", b"a\n1\r\n2\n")]), ("rows", 2 + 4)),
        ("series", PredictionRequest([[1, 2, 3], [[4], [5]]]), ("rows", 5)),
        (
            "graph",
            PredictionRequest(files=[("nodes.csv", b"id\n1\n2\n"), ("edges.csv", b"s,t\n1,2\n")]),
            ("graph_rows", 5),
        ),
        (
            "graph",
            PredictionRequest(files=[("a.graphml", b'<node id="1"/><node id="2"/><edge/><nodes>')]),
            ("graph_rows", 3),
        ),
        (
            "molecule",
            PredictionRequest(files=[("rows.csv", b"s\nCC(=O)[Na]\n"), ("more.csv", b"s\nN#N\n")]),
            ("atoms", 1 + 5 + 1 + 2),
        ),
    ],
)
def test_amounts_are_counted_before_anything_is_decoded(
    kind: str, asked: PredictionRequest, amount: tuple[str, int]
) -> None:
    run = of("graph", MOLECULES) if kind == "molecule" else of(kind)
    assert request_size(asked, run) == amount


@pytest.mark.parametrize(("asked", "apart"), [
    (PredictionRequest([{"text": "a" * 100}]), False), (PredictionRequest([{"text": "a" * 101}]), True),
    (PredictionRequest([{"text": "a"}] * 4), False), (PredictionRequest([{"text": "a"}] * 5), True),
])  # fmt: skip
def test_a_large_request_is_computed_in_a_process_of_its_own(
    asked: PredictionRequest, apart: bool, run_of: Runs
) -> None:
    async def during() -> None:
        async with server(run_of("texts"), max_batch=4, bounds=Bounds(characters=800)) as own:
            own.begin()
            assert (await own.engine.predict(asked)).rows == len(asked.sources)
            assert (own.engine.large.process.pid is not None) == apart
            count = own.metrics.registry.get_sample_value
            assert count("cutaway_examples_total") == count("cutaway_batch_examples_sum") == len(asked.sources)
            assert count("cutaway_batch_examples_count") == 1
        assert not any(worker.process.files.exists() for worker in (own.engine.small, own.engine.large))

    asyncio.run(during())


def test_lines_of_a_file_of_pairs_are_its_examples(run_of: Runs) -> None:
    assert Inputs(run_of("dates")).read(b"a\nb\nc\n", "application/octet-stream", "a.txt").examples == 3
    assert Inputs(run_of("texts")).read(b"a\nb\nc\n", "application/octet-stream", "a.txt").examples == 1


def test_a_request_has_its_bounds_and_others_are_answered(served: Callable[..., TestClient], run_of: Runs) -> None:
    def files(*sides: int) -> dict[str, Any]:
        return {"files": [{"name": f"{s}.png", "data": base64.b64encode(png(s, s)).decode()} for s in sides]}

    client = served("images", bounds=Bounds(pixels=3 * 100))
    answer = client.post("/predict", json=files(10, 10, 10, 1))
    assert answer.status_code == 422
    assert answer.json()["error"].startswith(
        "The request has 301 pixels: at most 300 are allowed in one request. Send several requests"
    )
    assert client.post("/predict", json=files(10, 10, 10)).status_code == 200


def test_what_is_too_much_is_not_asked_with_the_others(run_of: Runs, tmp_path: Path) -> None:
    predictor = Predictor(run_of("texts"), tmp_path)
    texts = ["the cat", "a goal in the last minute", "lunch"]
    few, many, last = predictor([given(text) for text in texts], Bounds(characters=10))
    assert str(many).startswith("The request has 25 characters: at most 10")
    for text, said in ((texts[0], few), (texts[2], last)):
        (alone,) = predictor([given(text)])
        assert isinstance(alone, Prediction)
        assert isinstance(said, Prediction)
        assert said.rows[0]["probability"] == pytest.approx(alone.rows[0]["probability"], rel=1e-4)
