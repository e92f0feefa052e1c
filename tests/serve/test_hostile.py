"""Bodies that nobody sends by accident: the right status with one sentence, and the server answers the next."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.testclient import TestClient

from cutaway.apps.networking import reject_large_body
from cutaway.apps.serve.inputs import BINARY, Inputs
from cutaway.core.errors import DataError
from cutaway.runs.run import Run

Client = Callable[..., TestClient]
JSON = {"content-type": "application/json"}
HEAD = [(b"content-type", b"application/json")]
DEEP = b"[" * 200_000 + b"]" * 200_000
GOOD = ("alcohol", "malic_acid", "ash", "alcalinity_of_ash", "magnesium", "total_phenols", "flavanoids",
        "nonflavanoid_phenols", "proanthocyanins", "color_intensity", "hue", "od280/od315_of_diluted_wines",
        "proline")  # fmt: skip
ROW = dict.fromkeys(GOOD, 1.0)


def sentence(answer: Any) -> str:
    """The one sentence of a no."""
    said: str = answer.json()["error"]
    assert answer.headers["content-type"] == "application/json"
    assert "Traceback" not in said
    assert "/tmp" not in said
    assert len(said) < 600
    return said


@pytest.mark.parametrize(("body", "status"), [
    (b"", 400), (b"{", 400), (b"[]", 400), (b"null", 400), (DEEP, 400), (b'{"rows": ' + DEEP + b"}", 400),
    (b'{"rows": [{"alcohol": NaN}]}', 400), (b'{"rows": [{"alcohol": Infinity}]}', 400), (b"\xff\xfe{}", 400),
    (b"1" * 10_000, 400), (b'{"rows": [{"alcohol": 1e999}]}', 422), (b'{"rows": []}', 422), (b'{"rows": {}}', 422),
    (b"{}", 422), (b'{"rows": [[]]}', 422), (b'{"rows": [{}]}', 422), (b'{"rows": [{"alcohol": {}}]}', 422),
    (b'{"rows": [{"alcohol": "\\ud800"}]}', 422), (b'{"rows": [{"\\udfff": 1}]}', 422), (b'{"sql": "drop"}', 422),
    (b'{"rows": [{"alcohol": 1}], "files": []}', 422), (b'{"files": [{"name": 1, "data": ""}]}', 422),
    (b'{"files": [{"name": "a.csv", "data": "%%%"}]}', 422), (b'{"files": [{"data": "/w=="}]}', 422),
])  # fmt: skip
def test_a_body_that_cannot_be(body: bytes, status: int, served: Client) -> None:
    client = served("table")
    answer = client.post("/predict", content=body, headers=JSON)
    assert answer.status_code == status, answer.text
    sentence(answer)
    assert client.post("/predict", json={"rows": [ROW]}).status_code == 200


cells = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.lists(st.none(), max_size=2)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(row=st.dictionaries(st.sampled_from(GOOD) | st.text(max_size=5), cells, max_size=14), whole=st.booleans())
def test_no_row_is_a_fault(row: dict[str, Any], whole: bool, any_row: Callable[[bytes], Any]) -> None:
    answer = any_row(json.dumps({"rows": [{**ROW, **row} if whole else row]}).encode())
    assert answer.status_code in (200, 400, 422), answer.text


@pytest.fixture
def any_row(served: Client) -> Callable[[bytes], Any]:
    client = served("table")
    return lambda body: client.post("/predict", content=body, headers=JSON)


@pytest.mark.parametrize(
    "media", ["", "text/html", "multipart/form-data; boundary=x", "application/x-pickle", "a" * 500]
)
def test_other_media_types(media: str, served: Client) -> None:
    answer = served("table").post("/predict", content=b"x", headers={"content-type": media})
    assert answer.status_code == 415
    assert "application/json" in sentence(answer)


def bomb(side: int) -> bytes:
    """A PNG of side × side pixels in a few kilobytes."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    packer, rows = zlib.compressobj(9), b""
    for _ in range(64):  # a part is enough: what is too large is said by its head
        rows += packer.compress(bytes(min(side, 2**16)))
    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows + packer.flush()) + chunk(b"IEND", b"")


@pytest.mark.slow
@pytest.mark.parametrize("side", [9_000, 60_000, 2**31 - 1])
def test_an_image_that_would_unpack_to_gigabytes(side: int, served: Client) -> None:
    answer = served("images").post("/predict", content=bomb(side), headers={"content-type": "image/png"})
    assert answer.status_code == 422
    sentence(answer)


@pytest.mark.parametrize(
    "content", [b"no image", b"PK\x03\x04" * 9, b"\x80\x04\x95cos\nsystem\n", b"GIF89a", b"\xff\xd8\xff"]
)
@pytest.mark.slow
def test_what_is_no_image(content: bytes, served: Client) -> None:
    client = served("images")
    answer = client.post("/predict?name=a.png", content=content, headers={"content-type": "image/png"})
    assert answer.status_code == 422
    assert "a.png" in sentence(answer)
    good = io.BytesIO()
    Image.new("L", (28, 28)).save(good, "PNG")
    both = [{"name": "bad.png", "data": base64.b64encode(content).decode()},
            {"name": "good.png", "data": base64.b64encode(good.getvalue()).decode()}]  # fmt: skip
    assert "bad.png" in sentence(client.post("/predict", json={"files": both}))


@pytest.mark.parametrize(("kind", "content", "said"), [
    ("table", b"PAR1" * 9, "is a Parquet file"),
    ("video", b"#EXTM3U\n/etc/passwd", "not a supported video file"),
    ("video", b"<?xml version='1.0'?>", "not a supported video file"),
    ("video", b"ffconcat version 1.0\nfile /etc/passwd", "not a supported video file"),
])  # fmt: skip
def test_files_that_unpack_or_name_others(kind: str, content: bytes, said: str, run_of: Callable[[str], Run]) -> None:
    inputs = Inputs(run_of("table"))
    inputs.kind, inputs.forms = kind, ("files",)
    with pytest.raises(DataError, match=said):
        inputs.read(content, BINARY, "sent")


def test_lists_and_prompts_have_an_end(served: Client) -> None:
    client = served("words")
    answer = client.post("/predict", json={"texts": ["a"] * 4097})
    assert (answer.status_code, "4,096" in sentence(answer)) == (422, True)
    answer = client.post("/generate", json={"prompt": "a" * (2**17 + 1)})
    assert (answer.status_code, "131,072" in sentence(answer)) == (422, True)


def test_a_gigabyte_is_never_held(served: Client) -> None:
    client = served("words", max_body=1)
    answer = client.post("/predict", content=b"a", headers={"content-type": "text/plain", "content-length": str(2**30)})
    assert answer.status_code == 413
    taken = 0

    def endless() -> Iterator[bytes]:
        nonlocal taken
        for _ in range(1024):
            taken += 2**16
            yield b"a" * 2**16

    # The test client reads all that is to be sent; what the server took is what it says.
    answer = client.post("/predict", content=endless(), headers={"content-type": "text/plain"})
    assert answer.status_code == 413
    assert sentence(answer) == "The request is too large: at most 1 MiB are allowed."


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_may_be_as_large_as_the_bound_and_no_byte_larger(chunked: bool, served: Client) -> None:
    client = served("table", max_body=1)
    for more, status in ((0, 400), (1, 413)):  # 400, as it is not JSON

        def pieces(more: int = more) -> Iterator[bytes]:
            yield b"a" * 2**19
            yield b"a" * (2**19 + more)

        content = pieces() if chunked else b"".join(pieces())
        assert client.post("/predict", content=content, headers=JSON).status_code == status


@pytest.mark.parametrize(("length", "taken"), [(b"0", True), (b"99", True), (b"100", True), (b"101", False)])
def test_a_length_above_the_bound_is_rejected_before_anything_is_read(length: bytes, taken: bool) -> None:
    request = Request({"type": "http", "headers": [(b"content-length", length)]})
    with contextlib.nullcontext() if taken else pytest.raises(HTTPException, match="413"):
        reject_large_body(request, 100)


def test_bodies_that_are_read_together_have_a_bound(served: Client) -> None:
    routes = served("table", max_body=1).routes  # type: ignore[attr-defined]
    with routes.request_memory() as came, routes.request_memory() as other:
        came(8 * 2**20 - 1)
        other(1)
        with pytest.raises(HTTPException, match="Too many large requests") as error:
            other(1)
        assert error.value.status_code == 503
    assert routes.bytes == 0
    with routes.request_memory() as came:
        came(8 * 2**20)


@pytest.mark.parametrize("length", [b"-1", b"1e9", b"9" * 40, b"\xb2"])
def test_a_length_that_is_none(length: bytes, served: Client) -> None:
    answer = served("table").post("/predict", content=b"{}", headers=[*HEAD, (b"content-length", length)])
    assert answer.status_code == 413


@pytest.mark.parametrize("asked", [
    {"prompt": 1}, {"prompt": "\ud800"}, {"count": 0}, {"count": 10**9}, {"count": 1.5}, {"count": True},
    {"temperature": -1}, {"temperature": "hot"}, {"temperature": 10**400}, {"top_p": 0}, {"top_k": -1}, {"seed": -1},
    {"seed": 2**63}, {"samples": 0}, {"samples": 17}, {"stop": ""}, {"stop": [1]}, {"stop": ["a"] * 17},
    {"stop": "a" * 2000},
    {"stream": "yes"}, {"window": 1}, {"nothing": 1}, {"prompt": "the sun " * 4000},
])  # fmt: skip
def test_a_text_that_cannot_be_asked_for(asked: dict[str, Any], served: Client) -> None:
    answer = served("words").post("/generate", content=json.dumps(asked).encode(), headers=JSON)
    assert answer.status_code in (400, 422), answer.text
    sentence(answer)


def test_a_run_that_writes_nothing_says_so(served: Client) -> None:
    for path in ("/generate", "/v1/completions", "/v1/chat/completions"):
        answer = served("table").post(path, json={})
        assert answer.status_code == 422
        assert "does not generate text" in answer.text
