"""Texts are what `cutaway generate` writes, token for token; existing clients read them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from cutaway.apps.cli import main
from cutaway.apps.serve import text_generation
from cutaway.apps.serve.text_generation import GenerationRequest, Text, Writer
from cutaway.inference.text import stream
from cutaway.runs.run import Run

Client = Callable[..., TestClient]
ASKED = {"prompt": "the cat", "count": 40, "temperature": 0.9, "top_k": 40, "seed": 3}


def events(client: TestClient, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a streamed answer, which ends as it should."""
    with client.stream("POST", path, json={**body, "stream": True}) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def typed(run: Run, capsys: pytest.CaptureFixture[str], **asked: Any) -> str:
    """What the command writes."""
    words = [word for key, value in asked.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    assert main(["generate", str(run.folder), *words]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("seed", [0, 3])
def test_byte_for_byte_as_the_command(
    seed: int, served: Client, run_of: Callable[[str], Run], capsys: pytest.CaptureFixture[str]
) -> None:
    client, asked = served("words"), {**ASKED, "seed": seed}
    written = typed(run_of("words"), capsys, **asked)
    found = events(client, "/generate", asked)
    assert f"{asked['prompt']}{''.join(event.get('text', '') for event in found)}\n" == written
    assert found[-1]["finish"] in ("length", "stop")
    whole = client.post("/generate", json=asked).json()
    assert f"{asked['prompt']}{whole['samples'][0]}\n" == written
    openai = {
        "model": "words",
        "prompt": asked["prompt"],
        "max_tokens": 40,
        "temperature": 0.9,
        "top_k": 40,
        "seed": seed,
    }
    answer = client.post("/v1/completions", json=openai).json()
    assert f"{asked['prompt']}{answer['choices'][0]['text']}\n" == written
    streamed = events(client, "/v1/completions", openai)
    assert "".join(event["choices"][0]["text"] for event in streamed) == answer["choices"][0]["text"]


def test_texts_that_are_written_side_by_side_are_those_of_each_alone(served: Client) -> None:
    client = served("words", streams=3)
    alone = [client.post("/generate", json={**ASKED, "seed": k}).json()["samples"][0] for k in range(6)]
    found: dict[int, str] = {}

    def ask(k: int) -> None:
        found[k] = client.post("/generate", json={**ASKED, "seed": k}).json()["samples"][0]

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[k] for k in range(6)] == alone
    assert client.post("/generate", json={**ASKED, "seed": 0, "samples": 6}).json()["samples"] == alone
    of_each = ["" for _ in range(6)]
    for event in events(client, "/generate", {**ASKED, "seed": 0, "samples": 6}):
        of_each[event["sample"]] += event.get("text", "")
    assert of_each == alone


def test_a_stop_string_ends_a_text(served: Client) -> None:
    client = served("words")
    whole = client.post("/generate", json=ASKED).json()["samples"][0]
    stop = whole[10:13]
    cut = client.post("/generate", json={**ASKED, "stop": stop}).json()
    assert cut["samples"][0] == whole[: whole.index(stop)]
    assert cut["finish"] == ["stop"]
    assert cut["tokens"][0] < 40


def test_finish_says_why_a_text_ended() -> None:
    text = Text(GenerationRequest("the", 3, 0), lambda piece: None, 0)
    found = []
    for text.tokens, text.over in ((3, False), (2, False), (2, True), (3, True)):
        found.append(text.finish)
    assert found == ["length", "stop", "stop", "stop"]  # the last by a stop string that its last token completes


def test_a_token_that_ends_texts_is_not_counted(run_of: Callable[[str], Run], monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []

    def noted(*given: Any, **settings: Any) -> Iterator[Any]:
        for token in stream(*given, **settings):
            drawn.append(int(token))
            yield token

    def write() -> Writer:
        drawn.clear()
        writer = Writer(run_of("words"), GenerationRequest("the cat", 12, 3, sampling={"temperature": 0.9}))
        while writer.next() is not None:
            pass
        return writer

    monkeypatch.setattr(text_generation, "stream", noted)
    assert write().tokens == len(drawn) == 12
    end, before = drawn[5], drawn.index(drawn[5])
    monkeypatch.setattr(text_generation, "token_bounds", lambda model, text: ((), (end,)))
    assert (write().tokens, len(drawn)) == (before, before)


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_streams_say_why_texts_ended_and_count_as_whole_answers_do(path: str, served: Client) -> None:
    client, prompt = served("words"), "the cat sat"
    asked: dict[str, Any] = {"model": "words", "seed": 3, "max_tokens": 20, "temperature": 0.9}
    asked |= {"prompt": prompt} if path == "/v1/completions" else {"messages": [{"role": "user", "content": prompt}]}
    choice = client.post(path, json=asked).json()["choices"][0]
    text = choice["text"] if path == "/v1/completions" else choice["message"]["content"]
    for stop, finish in ((None, "length"), (text[5:8], "stop")):
        own = {**asked, "stop": stop}
        whole = client.post(path, json=own).json()
        *_, last, counted = events(client, path, {**own, "stream_options": {"include_usage": True}})
        assert whole["choices"][0]["finish_reason"] == last["choices"][0]["finish_reason"] == finish
        assert counted["usage"] == whole["usage"]
        assert 0 < whole["usage"]["prompt_tokens"] < whole["usage"]["completion_tokens"] + (20 if stop else 0)


@pytest.mark.parametrize(("path", "key"), [
    ("/generate", "count"), ("/v1/completions", "max_tokens"), ("/v1/chat/completions", "max_tokens"),
    ("/v1/chat/completions", "max_completion_tokens"),
])  # fmt: skip
def test_tokens_of_a_text_have_a_bound(path: str, key: str, served: Client) -> None:
    client = served("words", max_tokens=3)
    asked: dict[str, Any] = {"seed": 1, "temperature": 0.9}
    asked |= {"prompt": "the"} if path == "/generate" else {"model": "words", "prompt": "the"}
    if "chat" in path:
        asked = {"model": "words", "seed": 1, "messages": [{"role": "user", "content": "the"}]}

    def tokens(**own: Any) -> int:
        answer = client.post(path, json={**asked, **own})
        assert answer.status_code == 200, answer.text
        found: int = answer.json()["tokens"][0] if path == "/generate" else answer.json()["usage"]["completion_tokens"]
        return found

    assert tokens(**{key: 3}) == tokens() == 3
    answer = client.post(path, json={**asked, key: 4})
    assert answer.status_code == 422
    assert f"Invalid {key}=4: must be from 1 to 3, the limit of this server (--max-tokens)." in answer.text


def test_a_prompt_that_is_too_long_is_said_before_anything_is_streamed(served: Client) -> None:
    answer = served("words").post("/generate", json={"prompt": "the cat " * 400, "stream": True})
    assert answer.status_code == 422
    assert "context of this model is 32" in answer.json()["error"]
    assert (
        served("words").post("/generate", json={"prompt": "the cat " * 400, "window": True, "count": 3}).status_code
        == 200
    )


@pytest.mark.parametrize(("asked", "status", "words"), [
    ({"model": "gpt-4"}, 404, "this server has 'words'"), ({}, 404, "this server has 'words'"),
    ({"model": "words", "prompt": [1, 2]}, 422, "Token ids are not supported"),
    ({"model": "words", "prompt": "a", "logprobs": 2}, 422, "logprobs=2"),
    ({"model": "words", "prompt": "a", "presence_penalty": 1}, 422, "presence_penalty=1"),
    ({"model": "words", "prompt": "a", "max_token": 1}, 422, "Unknown parameter 'max_token'"),
    ({"model": "words", "prompt": "a", "n": 2, "best_of": 4}, 422, "best_of"),
])  # fmt: skip
def test_what_cannot_be_had_is_never_ignored(asked: dict[str, Any], status: int, words: str, served: Client) -> None:
    answer = served("words").post("/v1/completions", json=asked)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert words in error["message"]


def test_texts_of_one_request_have_a_bound_together(served: Client) -> None:
    client = served("words", max_tokens=3)
    asked = {"model": "words", "prompt": ["the"] * 4, "n": 5, "max_tokens": 3, "seed": 1}
    answer = client.post("/v1/completions", json=asked)
    assert answer.status_code == 422
    assert "4 prompts, n=5 and max_tokens=3 are 60 tokens: at most 48" in answer.json()["error"]["message"]
    texts = client.post("/v1/completions", json={**asked, "n": 4, "temperature": 2}).json()
    assert texts["usage"]["completion_tokens"] == 48
    own = [choice["text"] for choice in texts["choices"]]
    assert own[:4] == own[4:8]  # of the same prompt with the same seeds
    assert len(set(own[:4])) > 1  # each with a seed of its own


def test_what_asks_for_nothing_is_taken(served: Client) -> None:
    asked = {
        "model": "words",
        "prompt": "the",
        "max_tokens": 2,
        "presence_penalty": 0,
        "logit_bias": {},
        "logprobs": None,
    }
    assert served("words").post("/v1/completions", json=asked).status_code == 200


def test_openais_own_client(served: Client) -> None:
    openai = pytest.importorskip("openai", reason="needs OpenAI's client")
    httpx = pytest.importorskip("httpx")
    server = served("words")

    class Through(httpx.BaseTransport):  # type: ignore[misc, name-defined]
        """Its requests, handed to the server in this process."""

        def handle_request(self, request: Any) -> Any:
            headers = [(k, v) for k, v in request.headers.raw if k.lower() not in (b"host", b"accept-encoding")]
            answer = server.request(
                request.method, request.url.raw_path.decode(), content=request.read(), headers=headers
            )
            return httpx.Response(answer.status_code, headers=dict(answer.headers), content=answer.content)

    client = openai.OpenAI(
        base_url="http://127.0.0.1:8000/v1",
        api_key="none",
        max_retries=0,
        http_client=httpx.Client(transport=Through()),
    )
    (model,) = client.models.list().data
    assert model.id == "words"
    asked: dict[str, Any] = {"model": model.id, "max_tokens": 12, "seed": 1, "temperature": 0.7}
    completion = client.completions.create(prompt=["the cat", "the dog"], n=2, **asked)
    assert [choice.index for choice in completion.choices] == [0, 1, 2, 3]
    assert completion.usage.total_tokens == completion.usage.prompt_tokens + completion.usage.completion_tokens
    messages = [{"role": "user", "content": [{"type": "text", "text": "the cat"}]}]
    chat = client.chat.completions.create(messages=messages, **asked)
    streamed = client.chat.completions.create(
        messages=messages, stream=True, stream_options={"include_usage": True}, **asked
    )
    chunks = list(streamed)
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert said == chat.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == chat.usage.completion_tokens
    assert chat.choices[0].finish_reason == "length"
    with pytest.raises(openai.UnprocessableEntityError, match="top_logprobs=5"):
        client.chat.completions.create(messages=messages, top_logprobs=5, **asked)
    with pytest.raises(openai.NotFoundError, match="this server has 'words'"):
        client.completions.create(model="other", prompt="a")
