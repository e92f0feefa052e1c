"""Routes and handlers of the server, and the OpenAPI 3.1 document that describes them.

GET   /                     the page
      /openapi.json         the document from which the page is drawn
      /health, /ready       whether the server is alive; whether it accepts requests
      /metrics              metrics for Prometheus
      /v1/models            the only model
POST  /predict              predictions for new examples
      /generate             texts, as `cutaway generate` writes them
      /v1/completions       texts, in OpenAI's format
      /v1/chat/completions  texts that continue messages, in OpenAI's format

The document is specific to the run, with its columns and an example for each form of input
<https://spec.openapis.org/oas/v3.1.0>. FastAPI derives one from classes that are known when the code is written. Here
columns, categories and examples are those of the run, so its document would be overridden almost everywhere, and it
adds a quarter of a second to the start.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from importlib import resources
from typing import Any, TypeVar

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ... import draw
from ...core.errors import CutawayError
from ...core.spec import Masked
from ...core.version import __version__
from ...data.tables.column_types import Category, Encoder, format_cell
from ...data.tables.transforms import TablePreprocessing
from ...data.text.corpus_transforms import GAP
from ...runs.run import Run
from ..networking import JSON, Receive, Scope, Send, media_type, parse_json_object, read_body
from . import text_generation
from .engine import Engine, ProcessEnded
from .inputs import BINARY, Inputs, PredictionRequest, reject_keys
from .limits import PACE, PATIENCE, SAMPLES, STOPS, Limits
from .middleware import Metrics, rejection
from .text_generation import (
    CHAT,
    COMPLETION,
    ROLES,
    SAMPLING,
    GenerationRequest,
    Texts,
    flag,
    generates_text,
    parse_bounded_int,
    parse_num_tokens,
    parse_prompt,
    parse_sampling,
    parse_seed,
    parse_stop_strings,
    require_text_generation,
)

T = TypeVar("T")
COUNT, TEMPERATURE = 500, 0.8  # tokens of a text and their temperature, as in `cutaway generate`
GENERATE = ("prompt", "count", "seed", "samples", "stop", "window", "stream", *SAMPLING)
LARGE = 2**16  # bytes: a larger request is parsed in another thread, so that others need not wait
FAULT = "Internal error. The server log has the details."
NOT_THAT = {  # messages in place of Starlette's
    404: "Not found. GET / lists the available endpoints.",
    405: "Method not allowed. GET / lists the available endpoints and their methods.",
}
LEFT = 499  # the status of a request whose client disconnected, as in nginx
Handler = Callable[[Request, bytes], Coroutine[Any, Any, Response]]


class Routes:
    """The routes of one server and their handlers."""

    def __init__(self, run: Run, limits: Limits, metrics: Metrics, token: bool = False) -> None:
        """Set up the handlers; `token` is whether the server requires a token."""
        self.run, self.limits, self.metrics, self.token = run, limits, metrics, token
        self.name = run.folder.resolve().name
        self.inputs, self.engine = Inputs(run), Engine(run, limits, metrics)
        self.ready = self.closing = False
        self.taken = self.bytes = 0  # requests in progress or waiting, and bytes of their bodies
        self.created = int(time.time())
        self.problem: Exception | None = None  # why the model could not be loaded
        self.on_read: Callable[[Exception | None], None] = lambda problem: None  # called after loading

    def app(self) -> Starlette:
        """Return the Starlette application."""
        asked = {
            "/predict": Endpoint(self, self.predict, self.reject_media),
            "/generate": Endpoint(self, self.generate, _reject_other_than_json),
            "/v1/completions": Endpoint(self, functools.partial(self.complete, chat=False), _reject_other_than_json),
            "/v1/chat/completions": Endpoint(
                self, functools.partial(self.complete, chat=True), _reject_other_than_json
            ),
        }
        return Starlette(
            routes=[
                Route("/", self.page),
                Route("/page/{name}", self.of_page),
                Route("/openapi.json", self.document),
                Route("/health", self.health),
                Route("/ready", self.readiness),
                Route("/metrics", self.measured),
                Route("/v1/models", self.models),
                *(Route(path, door, methods=["POST"]) for path, door in asked.items()),
            ],
            exception_handlers={
                **dict.fromkeys((HTTPException, CutawayError, TimeoutError, ClientDisconnect, ProcessEnded), _rejected),
                Exception: _rejected,  # and the traceback goes to the log
            },
            lifespan=self._lifespan,
        )

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        work = asyncio.create_task(self._work())
        try:
            yield
        finally:
            work.cancel()
            self.engine.close()

    async def _work(self) -> None:
        try:
            await self.engine.load(self._example())
        except Exception as error:
            self.problem = error
        self.ready = self.problem is None
        self.on_read(self.problem)
        if self.ready:
            await self.engine.work()

    def _example(self) -> PredictionRequest | None:
        """Return the example of the OpenAPI document as a request, or None. It warms the model up before the first
        request."""
        with contextlib.suppress(CutawayError):
            return self.inputs.of_document(example_request(self.run, self.inputs))
        return None

    # --- GET routes -----------------------------------------------------------------------------------------------

    async def page(self, request: Request) -> Response:
        """Serve the page, which holds nothing about the run."""
        return HTMLResponse(_file("index.html"))

    async def of_page(self, request: Request) -> Response:
        """Serve a script or style sheet of the page."""
        kinds = {"serve.js": "text/javascript", "serve.css": "text/css", "style.css": "text/css"}
        name = request.path_params["name"]
        if name not in kinds:
            raise HTTPException(404)
        return Response(_file(name), media_type=kinds[name])

    async def document(self, request: Request) -> Response:
        """Serve the OpenAPI document."""
        return JSONResponse(build_openapi(self.run, self.name, self.inputs, self.limits, self.token))

    async def health(self, request: Request) -> Response:
        """Report that the server is alive."""
        return JSONResponse({"status": "alive"})

    async def readiness(self, request: Request) -> Response:
        """Report whether requests are accepted: 503 while the model is loading and while the server is closing."""
        self.reject_unready()
        return JSONResponse({"status": "ready", "model": self.name})

    async def measured(self, request: Request) -> Response:
        """Serve the metrics."""
        return Response(self.metrics.to_text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    async def models(self, request: Request) -> Response:
        """Serve the list of models, which has one entry."""
        return JSONResponse(text_generation.models(self.name, self.created))

    # --- POST routes ----------------------------------------------------------------------------------------------

    async def predict(self, request: Request, body: bytes) -> Response:
        """Serve predictions for examples."""
        media, name = media_type(request), request.query_params.get("name")
        given = await _parse_off_loop(lambda: self.inputs.read(body, media, name), body)
        said = await asyncio.wait_for(self.engine.predict(given), self.limits.timeout)
        model = json.dumps(self.name, ensure_ascii=False).encode()
        return Response(b'{"model":%b,%b}' % (model, said.members), media_type=JSON)

    async def generate(self, request: Request, body: bytes) -> Response:
        """Serve texts, as `cutaway generate` writes them for the same seed."""
        asked = await _parse_off_loop(lambda: parse_json_object(body), body)
        require_text_generation(self.run)
        reject_keys(asked, GENERATE, "the generate request")
        prompt, count = parse_prompt(asked.get("prompt", "")), parse_num_tokens(asked, "count", COUNT, self.limits)
        seed, samples = parse_seed(asked, 0), parse_bounded_int(asked, "samples", 1, SAMPLES)
        stop, window, sampling = parse_stop_strings(asked), flag(asked, "window"), parse_sampling(asked, TEMPERATURE)
        stream = flag(asked, "stream")
        found = await self._generate(
            [GenerationRequest(prompt, count, seed + k, stop, window, sampling) for k in range(samples)]
        )
        texts = found.texts
        if not stream:
            written = await self._collect_texts(found)
            own = {"tokens": [text.tokens for text in texts], "finish": [text.finish for text in texts]}
            return JSONResponse({"prompt": prompt, "samples": written, "seed": seed, **own, "notes": texts[0].notes})

        async def events() -> AsyncIterator[dict[str, Any]]:
            async with contextlib.aclosing(found.pieces()) as pieces:
                async for index, piece in pieces:
                    if piece is not None:
                        yield {"sample": index, "text": piece}
                    else:
                        own = texts[index]
                        yield {"sample": index, "finish": own.finish, "tokens": own.tokens, "notes": own.notes}

        return _as_events(events(), request.url.path)

    async def complete(self, request: Request, body: bytes, chat: bool) -> Response:
        """Serve texts in OpenAI's format."""
        document = await _parse_off_loop(lambda: parse_json_object(body), body)
        require_text_generation(self.run)
        asked = text_generation.Request.read(document, chat, self.name, self.limits)
        found = await self._generate(asked.wanted)
        shape = text_generation.Shape(asked, self.name)
        if not asked.stream:
            return JSONResponse(shape.whole(await self._collect_texts(found), found.texts))

        async def events() -> AsyncIterator[dict[str, Any]]:
            for index in range(len(found.texts)):
                if (first := shape.first(index)) is not None:
                    yield first
            async with contextlib.aclosing(found.pieces()) as pieces:
                async for index, piece in pieces:
                    yield shape.last(index, found.texts[index]) if piece is None else shape.piece(index, piece)
            if asked.usage:
                yield shape.counted(found.texts)

        return _as_events(events(), request.url.path)

    async def _generate(self, wanted: Sequence[GenerationRequest]) -> Texts:
        return await asyncio.wait_for(self.engine.write(wanted), self.limits.timeout)

    async def _collect_texts(self, texts: Texts) -> list[str]:
        return await asyncio.wait_for(texts.whole(), self.limits.timeout)

    # --- admission control -----------------------------------------------------------------------------------------

    def reject_unready(self) -> None:
        """Raise HTTPException 503 while the model is loading or the server is closing."""
        if self.closing:
            raise HTTPException(503, "The server is shutting down. Retry in a moment, or use another server.")
        if not self.ready:
            raise HTTPException(503, "The model is still loading. Retry in a moment.")

    def reject_media(self, media: str) -> None:
        """Raise HTTPException 415 for a media type in which this run has no examples."""
        if not self.inputs.takes(media):
            form = self.inputs.forms[0]
            files = f", or one file as {BINARY}" if "files" in self.inputs.forms else ""
            raise HTTPException(415, f"Unsupported media type: must be JSON ({JSON}) with {form!r}{files}.")

    @contextlib.contextmanager
    def request_memory(self) -> Iterator[Callable[[int], None]]:
        """Account for the memory of a request's body until the request is finished.

        Yields a function to be called with the number of bytes that arrived. It raises HTTPException 503 if all bodies
        together are too large.
        """
        own = 0

        def on_bytes(size: int) -> None:
            nonlocal own
            own += size
            self.bytes += size
            if self.bytes > self.limits.bodies:
                raise HTTPException(503, "Too many large requests are in progress. Retry in a moment.")

        try:
            yield on_bytes
        finally:
            self.bytes -= own

    @contextlib.contextmanager
    def admitted(self) -> Iterator[None]:
        """Hold a place in the queue of requests. Raises HTTPException 429 if the queue is full."""
        if self.taken >= self.limits.queue:
            raise HTTPException(429, f"The queue is full ({self.limits.queue} requests). Retry in a moment.")
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1


class Endpoint:
    """An endpoint that reads a bounded request in bounded time, calls a handler and sends the response.

    The request keeps its place in the queue until the response is sent.
    """

    def __init__(self, routes: Routes, handle: Handler, reject_media: Callable[[str], None]) -> None:
        self.routes, self.handle, self.reject_media = routes, handle, reject_media

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        request, routes = Request(scope, receive), self.routes
        routes.reject_unready()
        self.reject_media(media_type(request))
        with routes.request_memory() as on_bytes:
            body = await _read_in_time(request, routes.limits.body, on_bytes)
            with routes.admitted():
                response = await _while_connected(request, self.handle(request, body))
                await response(scope, receive, send)


async def _while_connected(request: Request, answer: Coroutine[Any, Any, Response]) -> Response:
    """Return the response; cancel the work if the client disconnects first, and return a status that nobody reads."""
    work, left = asyncio.ensure_future(answer), asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait([work, left], return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return await work
        return rejection(request.url.path, LEFT, "The client disconnected.")
    finally:
        left.cancel()
        work.cancel()


def _reject_other_than_json(media: str) -> None:
    if media != JSON:
        raise HTTPException(415, f"Unsupported media type: must be {JSON}.")


async def _read_in_time(request: Request, most: int, on_bytes: Callable[[int], None]) -> bytes:
    """Read the body. Raises HTTPException 408 if it arrives too slowly, and what `on_bytes` raises."""
    loop = asyncio.get_running_loop()
    began, size = loop.time(), 0
    try:
        async with asyncio.timeout_at(began + PATIENCE) as patience:

            def count_bytes(piece: int) -> None:
                nonlocal size
                size += piece
                patience.reschedule(began + PATIENCE + size / PACE)
                on_bytes(piece)

            return await read_body(request, most, count_bytes)
    except TimeoutError:
        raise HTTPException(408, "The request body arrived too slowly.") from None


async def _parse_off_loop(read: Callable[[], T], body: bytes) -> T:
    """Return what `read` returns. A large body is read in another thread, so that no other request waits for it."""
    return await asyncio.to_thread(read) if len(body) > LARGE else read()


def _as_events(events: AsyncIterator[dict[str, Any]], path: str) -> Response:
    """Return server-sent events, one JSON document each. An error during generation is sent as an event too."""

    async def lines() -> AsyncIterator[str]:
        try:
            async for event in events:
                yield f"data: {json.dumps(event)}\n\n"
        except Exception as error:
            status, words, code = _status(error)
            if status == 500:
                logging.getLogger("uvicorn.error").exception("Text generation failed.")
            said = rejection(path, status, words, code)
            yield f"data: {bytes(said.body).decode()}\n\n"
        yield "data: [DONE]\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream")


def _status(error: Exception) -> tuple[int, str, str]:
    """Return the HTTP status of an error, its message and its code, which is empty for errors of HTTP."""
    if isinstance(error, HTTPException):
        return error.status_code, NOT_THAT.get(error.status_code, error.detail), ""
    if isinstance(error, text_generation.UnknownModel):
        return 404, str(error), error.code
    if isinstance(error, CutawayError):
        return 422, str(error), error.code
    if isinstance(error, TimeoutError):
        return 504, "The request timed out.", ""
    if isinstance(error, ClientDisconnect):
        return 400, "The request body is incomplete.", ""
    if isinstance(error, ProcessEnded):
        return 500, str(error), ""
    return 500, FAULT, ""


async def _rejected(request: Request, error: Exception) -> Response:
    return rejection(request.url.path, *_status(error))


def _file(name: str) -> str:
    """Return the text of a file of the page."""
    folder = resources.files(draw) if name == "style.css" else resources.files(__package__).joinpath("page")
    return folder.joinpath(name).read_text(encoding="utf-8")


Schema = dict[str, Any]
ONE = (  # a PNG image of the digit 1, 32×32
    "iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAAAAABWESUoAAAAH0lEQVR42mNgGHjAiMz5j0WQiZAJowpGFQw/BYMBAAD1wQEwnqyuXQAAAABJRU5ErkJg"
    "gg=="
)
STATUSES = {
    400: "The request is not JSON, or is incomplete.",
    401: "The token is missing or wrong.",
    408: "The request body arrived too slowly.",
    413: "The request is too large.",
    415: "Unsupported media type.",
    422: "Invalid request. The message says what to change.",
    429: "The queue is full.",
    500: "The model's process crashed on this request, or an internal error.",
    503: "The model is still loading, or the server is shutting down.",
    504: "The request timed out.",
}
NUMBERS: dict[str, Schema] = {
    "temperature": {"type": "number", "minimum": 0, "description": "Values below 1 favor likely tokens; 0 always "
                    "selects the most likely one."},
    "top_k": {"type": "integer", "minimum": 0, "description": "Sample from the k most likely tokens; 0 from all."},
    "top_p": {"type": "number", "exclusiveMinimum": 0, "maximum": 1, "description": "Sample from the most likely "
              "tokens whose total probability reaches this value."},
    "min_p": {"type": "number", "minimum": 0, "maximum": 1, "description": "Sample from tokens with at least this "
              "fraction of the largest probability."},
    "repetition_penalty": {"type": "number", "exclusiveMinimum": 0, "description": "Values above 1 make tokens that "
                           "occurred before less likely."},
}  # fmt: skip


def build_openapi(run: Run, name: str, inputs: Inputs, limits: Limits, token: bool = False) -> dict[str, Any]:
    """Return the OpenAPI document of one server; `token` is whether it requires a token."""
    about, target = run.about, run.spec.target
    description = f"{about['model']}, trained on {about['data']['name']}: {run.task.name} of {run.spec.kind} data"
    if target.classes:
        description += f", {target.column}: {', '.join(target.classes[:12])}{', …' if len(target.classes) > 12 else ''}"
    paths: dict[str, Any] = {"/predict": {"post": _predict(run, inputs)}}
    if generates_text(run):
        paths |= {
            "/generate": {"post": _generate(limits)},
            "/v1/completions": {"post": _completions(name, limits)},
            "/v1/chat/completions": {"post": _chat(name, limits)},
        }
    for path, what, kind in (
        ("/v1/models", "List of models, in OpenAI's format.", "application/json"),
        ("/health", "Liveness check.", "application/json"),
        ("/ready", "Readiness check.", "application/json"),
        ("/metrics", "Metrics for Prometheus.", "text/plain"),
    ):
        paths[path] = {"get": {"summary": what, "responses": {"200": {"description": what, "content": {kind: {}}}}}}
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": name, "version": __version__, "description": f"{description}."},
        "servers": [{"url": "/"}],
        "paths": paths,
    }
    if token:
        document["components"] = {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}
        document["security"] = [{"token": []}]
    return document


def example_request(run: Run, inputs: Inputs) -> dict[str, Any]:
    """Return an example of a prediction request for the run."""
    form = inputs.forms[0]
    return {form: _forms(run, inputs)[form]["example"]}


def _predict(run: Run, inputs: Inputs) -> Schema:
    """Return the operation of /predict, with an example for each form of input."""
    forms = _forms(run, inputs)
    content: Schema = {
        "application/json": {
            "schema": {"oneOf": [
                {"type": "object", "required": [form], "additionalProperties": False, "properties": {form: schema}}
                for form, schema in forms.items()
            ]},
            "example": example_request(run, inputs),
        }
    }  # fmt: skip
    for schema in forms.values():
        schema.pop("example", None)
    parameters = []
    if "files" in inputs.forms:
        content[BINARY] = {"schema": {"type": "string", "format": "binary"}}
        parameters = [
            {"name": "name", "in": "query", "schema": {"type": "string"},
             "description": "File name, if the body is a file."}
        ]  # fmt: skip
    return {
        "summary": "Predictions for new examples, in the order of the request.",
        "parameters": parameters,
        "requestBody": {"required": True, "content": content},
        "responses": _responses(
            _object(
                model={"type": "string"},
                predictions={"type": "array", "items": {"type": "object"}, "description": _about_rows(run)},
                notes={"type": "array", "items": {"type": "string"}},
            )
        ),
    }


def _about_rows(run: Run) -> str:
    target = run.spec.target
    if target.classes:
        return f"{target.column}, its probability, and the probability (or score) of every class."
    return "The rows of `cutaway predict --json`: values in the units of the training data."


def _forms(run: Run, inputs: Inputs) -> dict[str, Schema]:
    """Return the schema of each form of input, with an example."""
    preprocessing = run.preprocessing
    found: dict[str, Schema] = {}
    for form in inputs.forms:
        if form == "rows":
            row: Schema = {"type": "object"}
            example: Any = dict.fromkeys(inputs.columns, "")
            if isinstance(preprocessing, TablePreprocessing):
                row |= _object(**{encoder.name: _cell(encoder) for encoder in preprocessing.encoders})
                example = {encoder.name: _usual(encoder) for encoder in preprocessing.encoders}
            found[form] = {"type": "array", "minItems": 1, "items": row, "example": [example]}
        elif form == "texts":
            text = f"a {GAP} b" if isinstance(run.spec.target, Masked) else "a text"
            found[form] = {"type": "array", "minItems": 1, "items": {"type": "string"}, "example": [text]}
        elif form == "series":
            found[form] = {"type": "array", "minItems": 1, "items": {"type": "array"}, "example": [[0.0, 1.0, 0.0]]}
        else:
            file = _object(name={"type": "string"}, data={"type": "string", "contentEncoding": "base64"})
            image = run.spec.kind == "image"
            example = {"name": "one.png", "data": ONE} if image else {"name": "", "data": ""}
            found[form] = {"type": "array", "minItems": 1, "items": file, "example": [example]}
    return found


def _cell(encoder: Encoder) -> Schema:
    if isinstance(encoder, Category):
        return {"type": ["string", "null"], "examples": [*encoder.categories[:12]]}
    if encoder.kind == "number":
        return {"type": ["number", "null"]}
    return {"type": ["string", "null"], "description": f"{encoder.kind}: {encoder.written}"}


def _usual(encoder: Encoder) -> Any:
    """Return a typical cell of a column: the median, or the first category."""
    if isinstance(encoder, Category):
        return encoder.categories[0] if encoder.categories else None
    return float(f"{encoder.fill:.6g}") if encoder.kind == "number" else format_cell(encoder.fill, encoder.type)


def _generate(limits: Limits) -> Schema:
    """Return the operation of /generate."""
    request = _object(
        prompt={"type": "string"},
        count={
            "type": "integer",
            "minimum": 1,
            "maximum": limits.max_tokens,
            "description": "Number of tokens to generate.",
        },
        seed={"type": "integer", "minimum": 0, "description": "Random seed. The same seed gives the same text."},
        samples={"type": "integer", "minimum": 1, "maximum": SAMPLES},
        stop=_stop(),
        window={
            "type": "boolean",
            "description": "Truncate a prompt that is longer than the context to its last tokens.",
        },
        stream={"type": "boolean", "description": "Stream the text as server-sent events."},
        **NUMBERS,
    )
    return {
        "summary": "Text generation, with the results of `cutaway generate`.",
        "requestBody": _json(request, {"prompt": "", "count": 60, "seed": 0, "temperature": 0.8, "stream": True}),
        "responses": _responses(
            _object(
                prompt={"type": "string"},
                samples={"type": "array", "items": {"type": "string"}},
                seed={"type": "integer"},
                tokens={"type": "array", "items": {"type": "integer"}},
                finish={"type": "array", "items": {"enum": ["stop", "length"]}},
                notes={"type": "array", "items": {"type": "string"}},
            )
        ),
    }


def _completions(name: str, limits: Limits) -> Schema:
    text: Schema = {"type": "string"}
    prompt = {"oneOf": [text, {"type": "array", "items": text}]}
    return {
        "summary": "Text completion, in OpenAI's format.",
        "requestBody": _json(
            _openai(COMPLETION, limits, prompt=prompt),
            {"model": name, "prompt": "The", "max_tokens": 40, "stream": True},
        ),
        "responses": _responses({"type": "object"}),
    }


def _chat(name: str, limits: Limits) -> Schema:
    """Return the operation of /v1/chat/completions."""
    message = _object(role={"enum": list(ROLES)}, content={"type": "string"})
    messages = {
        "type": "array",
        "minItems": 1,
        "items": message,
        "description": "Their texts are joined, one line each. The model ignores roles.",
    }
    return {
        "summary": "Chat completion, in OpenAI's format.",
        "requestBody": _json(
            _openai(CHAT, limits, messages=messages),
            {"model": name, "messages": [{"role": "user", "content": "The"}], "max_tokens": 40, "stream": True},
        ),
        "responses": _responses({"type": "object"}),
    }


def _openai(keys: tuple[str, ...], limits: Limits, **own: Schema) -> Schema:
    count = {"type": "integer", "minimum": 1, "maximum": limits.max_tokens}
    known: dict[str, Schema] = {
        "model": {"type": "string"}, "max_tokens": count, "max_completion_tokens": count, "stop": _stop(),
        "n": {"type": "integer", "minimum": 1, "maximum": SAMPLES}, "best_of": {"type": "integer"},
        "seed": {"type": "integer", "minimum": 0, "description": "Random seed, by default a random number."},
        "stream": {"type": "boolean"}, "echo": {"type": "boolean"}, "user": {"type": "string"},
        "stream_options": _object(include_usage={"type": "boolean"}), **NUMBERS, **own,
    }  # fmt: skip
    return {**_object(**{key: known[key] for key in keys}), "required": ["model", *own]}


def _stop() -> Schema:
    text = {"type": "string", "minLength": 1}
    return {
        "oneOf": [text, {"type": "array", "items": text, "maxItems": STOPS}],
        "description": "Stop strings. The text ends before the first of them.",
    }


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties}


def _json(schema: Schema, example: Schema) -> Schema:
    return {"required": True, "content": {"application/json": {"schema": schema, "example": example}}}


def _responses(schema: Schema) -> Schema:
    """Return the responses of an operation: the successful one and the errors."""
    error = {
        "application/json": {"schema": _object(error={"description": "Error message, or an object that contains it."})}
    }
    return {
        "200": {"description": "Successful response.", "content": {"application/json": {"schema": schema}}},
        **{str(status): {"description": words, "content": error} for status, words in STATUSES.items()},
    }
