"""The OpenAPI 3.1 document of the server, specific to its run: with its columns and an example for each form of input.

<https://spec.openapis.org/oas/v3.1.0>

FastAPI derives such a document from classes that are known when the code is written. Here columns, categories and
examples are those of the run, so its document would be overridden almost everywhere, and it adds a quarter of a second
to the start.
"""

from __future__ import annotations

from typing import Any

from ...core.spec import Masked
from ...core.version import __version__
from ...data.tables.column_types import Category, Encoder, format_cell
from ...data.tables.transforms import TablePreprocessing
from ...data.text.corpus_transforms import GAP
from ...runs.run import Run
from .inputs import BINARY, Inputs
from .limits import SAMPLES, STOPS, Limits
from .openai import CHAT, COMPLETION, ROLES
from .text_generation import generates_text

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
