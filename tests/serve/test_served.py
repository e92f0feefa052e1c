"""The server as a person starts it: a process, its address, its end."""

from __future__ import annotations

import base64
import contextlib
import io
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from cutaway.apps.cli import main
from cutaway.runs.run import Run

PATIENCE = 120.0
COMMAND = [sys.executable, "-c", "import sys; from cutaway.apps.cli import main; sys.exit(main())", "serve"]
TOKEN = "a-token-of-the-environment"
SHOWN = {"Authorization": f"Bearer {TOKEN}"}
TEXT = json.dumps({"texts": ["the cat"]}).encode()


class Server:
    """A server of its own."""

    def __init__(self, run: Run, *words: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, str(run.folder), "--port", "0", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        )  # fmt: skip
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/", self.url)
        assert found, self.url or self.process.communicate()[1]
        self.port = int(found[1])

    def ask(self, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        """The status and the body of an answer."""
        kind = {"Content-Type": "application/json"} if body is not None else {}
        asked = urllib.request.Request(self.url + path, body, {**kind, **headers})
        try:
            with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """The exit status, and what was said on standard error."""
        self.process.send_signal(number)
        said = self.process.communicate(timeout=PATIENCE)[1]
        return self.process.returncode, said


@contextlib.contextmanager
def running(run: Run, *words: str, **environment: str) -> Iterator[Server]:
    """A server for as long as the context lasts."""
    server = Server(run, *words, **environment)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.communicate()


@pytest.mark.waits
def test_under_load_a_signal_loses_no_answer(run_of: Callable[[str], Run]) -> None:
    """Each client asks again and again, until it is told that the server is closing; a text is written to its end."""
    found: Counter[Any] = Counter()
    ready = threading.Semaphore(0)
    with running(run_of("words")) as server:

        def client() -> None:
            for asked in itertools.count():
                try:
                    status, body = server.ask("predict", TEXT)
                except (OSError, ValueError) as error:
                    refused = isinstance(getattr(error, "reason", None), ConnectionRefusedError)
                    found["refused" if refused else repr(error)] += 1
                    return
                found[status] += 1
                if status != 200:
                    return
                assert json.loads(body)["predictions"]
                if asked == 3:
                    ready.release()

        body = json.dumps({"prompt": "the", "count": 300, "stream": True, "seed": 1}).encode()
        whole = server.ask("generate", body)[1]
        threads = [threading.Thread(target=client) for _ in range(8)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert ready.acquire(timeout=PATIENCE)
        request = urllib.request.Request(server.url + "generate", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            first = answer.readline()
            server.process.send_signal(signal.SIGTERM)
            assert first + answer.read() == whole
        said = server.process.communicate(timeout=PATIENCE)[1]
        for thread in threads:
            thread.join()
    assert server.process.returncode == 0
    assert "All accepted requests were answered" in said
    assert found[200] >= 32
    assert set(found) <= {200, 503, "refused"}, found
    assert found[503] + found["refused"] == 8


@pytest.mark.waits
def test_a_signal_to_the_group_while_the_model_is_loaded_ends_without_an_error(run_of: Callable[[str], Run]) -> None:
    """As by Ctrl-C in a terminal: the process that starts the model's is stopped with the server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [*COMMAND, str(run_of("words").folder), "--port", str(port)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                break
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGTERM)
        said = process.communicate(timeout=PATIENCE)[1]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert process.returncode == 0, said
    assert "Traceback" not in said


def pictures(count: int, side: int) -> bytes:
    """A request with so many images."""
    files = []
    for k in range(count):
        buffer = io.BytesIO()
        Image.new("L", (side, side), k % 256).save(buffer, "PNG")
        files.append({"name": f"{k}.png", "data": base64.b64encode(buffer.getvalue()).decode()})
    return json.dumps({"files": files}).encode()


@pytest.mark.parametrize(("count", "side"), [(1000, 360), (6, 4600)])
@pytest.mark.slow
def test_another_client_is_answered_while_a_large_request_is_computed(
    count: int, side: int, run_of: Callable[[str], Run]
) -> None:
    """Many images, or few that are large: small requests come back first, and all answers are those given alone."""
    large, small = pictures(count, side), pictures(3, 28)
    order: list[str] = []
    with running(run_of("images")) as server:
        alone = {"large": server.ask("predict", large), "small": server.ask("predict", small)}
        assert {status for status, _ in alone.values()} == {200}
        found = {}

        def client() -> None:
            found["large"] = server.ask("predict", large)
            order.append("large")

        thread = threading.Thread(target=client)
        thread.start()
        while b"cutaway_requests_in_flight 2.0\n" not in server.ask("metrics")[1]:
            assert thread.is_alive()
        for _ in range(4):
            assert server.ask("predict", small) == alone["small"]
            order.append("small")
        thread.join()
    assert order == ["small"] * 4 + ["large"]
    assert found["large"] == alone["large"]
    assert len(json.loads(found["large"][1])["predictions"]) == count


@pytest.fixture(scope="module")
def shared(run_of: Callable[[str], Run]) -> Iterator[Server]:
    """A server that asks for a token, which it is given by the environment; at its end it has not said it."""
    with running(run_of("texts"), CUTAWAY_TOKEN=TOKEN) as server:
        yield server
        status, said = server.end(signal.SIGINT)
    assert status == 0
    assert TOKEN not in said + server.url


def test_a_token_from_the_environment_is_asked_for(shared: Server) -> None:
    assert shared.ask("predict", TEXT)[0] == 401
    assert shared.ask("predict", TEXT, **SHOWN)[0] == 200


@pytest.mark.waits
def test_bodies_that_come_slowly_or_never(shared: Server) -> None:
    head = f"POST /predict HTTP/1.1\r\nHost: 127.0.0.1:{shared.port}\r\nAuthorization: Bearer {TOKEN}\r\n"
    slow = []
    for _ in range(40):
        connection = socket.create_connection(("127.0.0.1", shared.port))
        connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 99\r\n\r\n{{".encode())
        slow.append(connection)
    half = socket.create_connection(("127.0.0.1", shared.port))
    half.sendall(b"POST /predict HTT")
    assert shared.ask("predict", TEXT, **SHOWN)[0] == 200  # nobody stands in another's way
    for connection in slow:
        connection.settimeout(PATIENCE)
        assert connection.recv(4096).startswith(b"HTTP/1.1 408 ")
        connection.close()
    half.settimeout(PATIENCE)
    assert half.recv(10) == b""
    half.close()


def test_a_gigabyte_is_not_read(shared: Server) -> None:
    """Of a body without a length no more is taken than is allowed, and nothing of it is kept."""
    head = f"POST /predict HTTP/1.1\r\nHost: 127.0.0.1:{shared.port}\r\nAuthorization: Bearer {TOKEN}\r\n"
    shared.ask("predict", TEXT, **SHOWN)
    before, sent = _resident(shared.process.pid), 0
    with socket.create_connection(("127.0.0.1", shared.port)) as connection:
        connection.sendall(f"{head}Content-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        with contextlib.suppress(OSError):
            while sent < 2**30:
                connection.sendall(b"100000\r\n" + b"a" * 2**20 + b"\r\n")
                sent += 2**20
    assert sent < 2**28
    assert shared.ask("predict", TEXT, **SHOWN)[0] == 200
    assert _resident(shared.process.pid) - before < 64 * 1024


def _resident(pid: int) -> int:
    found = re.search(r"RssAnon:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1])


@pytest.mark.parametrize(("words", "said"), [
    (["--host", "0.0.0.0"], "CUTAWAY_TOKEN"), (["--token", "short"], "at least 16"), (["--queue", "0"], "--queue=0"),
    (["--batch-wait", "2"], "--batch-wait 2"), (["--port", "70000"], "--port 70000"),
    (["--timeout", "0s"], "--timeout"),
])  # fmt: skip
def test_what_cannot_be_is_said_before_it_listens(
    words: list[str], said: str, run_of: Callable[[str], Run], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(run_of("texts").folder), *words]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_what_is_no_run_and_a_port_that_is_taken(
    tmp_path: Path, run_of: Callable[[str], Run], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(tmp_path)]) == 2
    assert "is not a run" in " ".join(capsys.readouterr().err.split())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["serve", str(run_of("texts").folder), "--port", str(taken.getsockname()[1])]) == 2
    assert "or any free port with --port 0" in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
def test_what_other_tools_call_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["deploy", "runs/a"]) == 2
    assert "`cutaway serve`" in capsys.readouterr().err
