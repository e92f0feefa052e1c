"""Text generation requests in our format and in OpenAI's, and texts token by token, as `cutaway generate` writes them.

OpenAI's formats are those of completions and chat, as existing clients use them
<https://platform.openai.com/docs/api-reference/completions>, <https://platform.openai.com/docs/api-reference/chat>. A
parameter that a run does not support is rejected by name and never ignored: a client that requests log probabilities,
for example, must not mistake their absence for an answer. No run is trained on roles: a chat is the text of its
messages, one after another.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ...core.errors import DataError, RequestError, join, shorten_repr
from ...core.spec import NextToken, Solution
from ...data.text.corpus_transforms import RunningPreprocessing
from ...inference.sampling import Sampling
from ...inference.text import TextStreamer, as_text, encode_prompt, stream, token_bounds
from ...runs.run import Run
from .limits import PROMPT, SAMPLES, STOP, STOPS, Limits

SAMPLING: dict[str, type] = {
    "temperature": float, "top_k": int, "top_p": float, "min_p": float, "repetition_penalty": float,
}  # fmt: skip
MOST_SEED = 2**63 - SAMPLES


@dataclass(frozen=True)
class GenerationRequest:
    """A request for one text. Raises SettingError, with the name of the setting, for an invalid value."""

    prompt: str
    count: int
    seed: int
    stop: tuple[str, ...] = ()
    window: bool = False
    sampling: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        Sampling(**self.sampling)


Piece = str | Exception | None  # new text; the error that ended it; None at its end


@dataclass
class Text:
    """The server's view of a text during generation."""

    wanted: GenerationRequest
    tell: Callable[[Piece], None]  # called with each new piece
    number: int  # its key in the process of the model
    gone: asyncio.Event = field(default_factory=asyncio.Event)  # set once no client reads it any more
    steps: int = 0  # steps requested so far
    prompt_tokens: int = 0
    tokens: int = 0
    notes: list[str] = field(default_factory=list)
    over: bool = False  # whether a stop string occurred

    @property
    def left(self) -> bool:
        """True once no client reads the text any more."""
        return self.gone.is_set()

    @property
    def finish(self) -> str:
        """Reason for its end: "stop" for a stop string or an end-of-text token, "length" for the token limit."""
        return "stop" if self.over or self.tokens < self.wanted.count else "length"

    def take(self, piece: Piece, state: Mapping[str, Any] | None = None) -> None:
        """Record one step: the new piece, and the state of the writer."""
        self.steps += 1
        for key, value in (state or {}).items():
            setattr(self, key, value)
        self.tell(piece)
        if piece is None or isinstance(piece, Exception):
            self.gone.set()


class Writer:
    """A text in the process of the model, which generates it token by token."""

    def __init__(self, run: Run, wanted: GenerationRequest) -> None:
        self.run, self.wanted = run, wanted
        self.steps = self.prompt_tokens = self.tokens = 0
        self.notes: list[str] = []
        self._parts: Iterator[str] | None = None
        self._over: TextStreamer | None = None

    def state(self) -> dict[str, Any]:
        """Return the state of the text, as fields of `Text`."""
        over = self._over is not None and self._over.over
        return {"prompt_tokens": self.prompt_tokens, "tokens": self.tokens, "notes": self.notes, "over": over}

    def next(self) -> str | None:
        """Generate one token and return the text that it adds: "" while a character is incomplete, None at the end.

        Raises DataError, SettingError or ModelError if generation cannot start.
        """
        if self._parts is None:
            self._parts = self._start()
        self.steps += 1
        return next(self._parts, None)

    def _start(self) -> Iterator[str]:
        """Encode the prompt and return an iterator over the parts of the text."""
        run, wanted, text = self.run, self.wanted, self.run.preprocessing
        assert isinstance(text, RunningPreprocessing)
        model = run.place.model(run.model, learns=False)
        ids, note = encode_prompt(text, wanted.prompt)
        self.notes += [note] if note else []
        self.prompt_tokens = len(ids)
        never, ends = token_bounds(run.model, text)
        generator = torch.Generator().manual_seed(wanted.seed)
        drawn = stream(
            model, ids.to(run.place.device)[None], wanted.count, generator=generator, never=never, ends=ends,
            window=wanted.window, **wanted.sampling,
        )  # fmt: skip
        self._over = TextStreamer(text.decode, ids.tolist() if wanted.prompt else [], wanted.stop)
        return as_text(self._count_tokens(map(int, drawn)), self._over)

    def _count_tokens(self, drawn: Iterator[int]) -> Iterator[int]:
        for token in drawn:
            self.tokens += 1
            yield token


class Texts:
    """The texts of one request, as its client reads them."""

    def __init__(self, wanted: Sequence[GenerationRequest], numbers: Iterator[int]) -> None:
        self.told: asyncio.Queue[tuple[int, Piece]] = asyncio.Queue()
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # by a first token
        tell = [functools.partial(self._tell, index) for index in range(len(wanted))]
        self.texts = [Text(one, told, next(numbers)) for one, told in zip(wanted, tell)]

    def _tell(self, index: int, piece: Piece) -> None:
        if not self.begun.done():
            if isinstance(piece, Exception):
                self.begun.set_exception(piece)
                return
            self.begun.set_result(None)
        if piece != "":
            self.told.put_nowait((index, piece))

    async def pieces(self) -> AsyncGenerator[tuple[int, str | None], None]:
        """Yield the number of a text and each new piece of it; None at the end of a text.

        Generation stops when the iterator is closed. Raises what generation raises.
        """
        try:
            for _ in range(len(self.texts)):
                while True:
                    index, piece = await self.told.get()
                    if isinstance(piece, Exception):
                        raise piece
                    yield index, piece
                    if piece is None:
                        break
        finally:
            self.leave()

    async def whole(self) -> list[str]:
        """Return each text in full."""
        found: list[list[str]] = [[] for _ in self.texts]
        async with contextlib.aclosing(self.pieces()) as pieces:
            async for index, piece in pieces:
                found[index].append(piece or "")
        return ["".join(parts) for parts in found]

    def leave(self) -> None:
        """Stop generation, because no client reads the texts any more."""
        for text in self.texts:
            text.gone.set()


def generates_text(run: Run) -> bool:
    """Return whether a run generates texts."""
    target = run.spec.target
    return isinstance(target, NextToken) and not isinstance(target, Solution)


def require_text_generation(run: Run) -> None:
    """Raise DataError if a run does not generate texts."""
    if not generates_text(run):
        raise RequestError(
            f"The model {run.about['model']} does not generate text: it predicts {run.spec.target.column} from "
            f"{run.spec.kind} data. Use POST /predict."
        )


def number(document: Mapping[str, Any], key: str, kind: type, usual: Any) -> Any:
    """Return a number of a request, or its default. Raises SettingError for another type."""
    value = document.get(key)
    if value is None:
        return usual
    right = type(value) is int or (kind is float and type(value) is float and math.isfinite(value))
    if not right or abs(value) > 2**63:
        raise RequestError(
            f"Invalid {key}={shorten_repr(value)}: must be {'an integer' if kind is int else 'a number'}."
        )
    return kind(value)


def flag(document: Mapping[str, Any], key: str) -> bool:
    """Return a boolean of a request, false by default. Raises SettingError for another type."""
    value = document.get(key)
    if value is not None and not isinstance(value, bool):
        raise RequestError(f"Invalid {key}={shorten_repr(value)}: must be true or false.")
    return bool(value)


def parse_stop_strings(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the stop strings of a request. Raises SettingError."""
    value = document.get("stop")
    found = [value] if isinstance(value, str) else value or []
    right = isinstance(found, list) and all(isinstance(one, str) and 0 < len(one) <= STOP for one in found)
    if not right or len(found) > STOPS:
        raise RequestError(
            f"Invalid stop={shorten_repr(value)}: must be a string of 1 to {STOP:,} characters, or a list of at most "
            f"{STOPS} strings."
        )
    return tuple(found)


def parse_bounded_int(document: Mapping[str, Any], key: str, usual: int, most: int, option: str = "") -> int:
    """Return an integer of a request from 1 to `most`. Raises SettingError."""
    value: int = number(document, key, int, usual)
    if not 1 <= value <= most:
        more = f", the limit of this server ({option})" if option else ""
        raise RequestError(f"Invalid {key}={value}: must be from 1 to {most:,}{more}.")
    return value


def parse_sampling(document: Mapping[str, Any], temperature: float) -> dict[str, Any]:
    """Return the sampling parameters of a request. Raises SettingError."""
    found = {key: number(document, key, kind, None) for key, kind in SAMPLING.items()}
    return {"temperature": temperature, **{key: value for key, value in found.items() if value is not None}}


def parse_seed(document: Mapping[str, Any], usual: int) -> int:
    """Return the seed of the first text. Raises SettingError."""
    seed: int = number(document, "seed", int, usual)
    if not 0 <= seed < MOST_SEED:
        raise RequestError(f"Invalid seed={seed}: must be at least 0 and below 2**63.")
    return seed


def parse_prompt(value: Any) -> str:
    """Return a valid prompt. Raises DataError for anything else."""
    if not isinstance(value, str):
        raise RequestError(f"Invalid prompt={shorten_repr(value)}: must be a string.")
    if len(value) > PROMPT:
        raise RequestError(f"The prompt has {len(value):,} characters: at most {PROMPT:,} are allowed.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise RequestError("Invalid prompt: it contains a lone surrogate.") from None
    return value


def parse_num_tokens(document: Mapping[str, Any], key: str, usual: int, limits: Limits) -> int:
    """Return the number of tokens to generate. Raises SettingError."""
    return parse_bounded_int(document, key, min(usual, limits.max_tokens), limits.max_tokens, "--max-tokens")


PROMPTS = 16  # prompts of one request, at most
OURS = ("top_k", "min_p", "repetition_penalty")  # not in OpenAI's API, but in other servers with its format
COMMON = (
    "model", "max_tokens", "temperature", "top_p", "n", "stream", "stream_options", "stop", "seed", "user", *OURS,
)  # fmt: skip
COMPLETION = ("prompt", "echo", "best_of", *COMMON)
CHAT = ("messages", "max_completion_tokens", *COMMON)
NEUTRAL: dict[str, tuple[Any, ...]] = {  # unsupported keys, with the values that change nothing
    "presence_penalty": (None, 0), "frequency_penalty": (None, 0), "logit_bias": (None, {}), "suffix": (None, ""),
    "logprobs": (None, False), "top_logprobs": (None, 0), "tools": (None, []), "tool_choice": (None, "none", "auto"),
    "response_format": (None, {"type": "text"}), "functions": (None, []), "store": (None, False),
    "metadata": (None, {}), "service_tier": (None, "auto", "default"), "parallel_tool_calls": (None, True, False),
    "modalities": (None, ["text"]), "reasoning_effort": (None, "none"), "prediction": (None,), "audio": (None,),
    "verbosity": (None, "medium"),
}  # fmt: skip
TOKENS = 16  # default length of a completion
ROLES = ("system", "developer", "user", "assistant")


@dataclass(frozen=True)
class Request:
    """A parsed completion or chat request: the texts to generate and the form of the response."""

    chat: bool
    wanted: list[GenerationRequest]
    stream: bool
    usage: bool  # whether the last event of a stream has token counts
    echo: bool

    @classmethod
    def read(cls, document: Mapping[str, Any], chat: bool, name: str, limits: Limits) -> Request:
        """Parse a JSON document. Raises UnknownModel, DataError or SettingError."""
        _reject_unknown(document, CHAT if chat else COMPLETION)
        if document.get("model") != name:
            raise UnknownModel(f"Unknown model {shorten_repr(document.get('model'))}: this server has {name!r}.")
        prompts = [_chat(document.get("messages"))] if chat else _prompts(document.get("prompt"))
        samples = parse_bounded_int(document, "n", 1, SAMPLES)
        if document.get("best_of") not in (None, samples):
            raise RequestError("Invalid best_of: must equal n, because texts are not ranked.")
        # A chat without a count may be as long as this server allows, as in OpenAI's API.
        key = "max_completion_tokens" if chat and "max_completion_tokens" in document else "max_tokens"
        count = parse_num_tokens(document, key, limits.max_tokens if chat else TOKENS, limits)
        if (total := count * samples * len(prompts)) > SAMPLES * limits.max_tokens:
            raise RequestError(
                f"{len(prompts)} prompts, n={samples} and {key}={count} are {total:,} tokens: at most "
                f"{SAMPLES * limits.max_tokens:,} are allowed in one request. Send several requests."
            )
        seed = parse_seed(document, secrets.randbelow(2**31))
        stop, sampling = parse_stop_strings(document), parse_sampling(document, 1.0)
        options = document.get("stream_options") or {}
        if not isinstance(options, dict):
            raise RequestError("Invalid stream_options: must be an object.")
        return cls(
            chat,
            [GenerationRequest(p, count, seed + k, stop, False, sampling) for p in prompts for k in range(samples)],
            flag(document, "stream"),
            flag(options, "include_usage"),
            flag(document, "echo"),
        )


class UnknownModel(DataError):
    """Raised for a model that this server does not have: 404, as in OpenAI's API."""

    code = "CUT-603"


class Shape:
    """A builder of the responses to one request."""

    def __init__(self, request: Request, name: str) -> None:
        self.request, self.name = request, name
        self.id = f"{'chatcmpl' if request.chat else 'cmpl'}-{secrets.token_hex(12)}"
        self.created = int(time.time())

    def whole(self, texts: Sequence[str], written: Sequence[Text]) -> dict[str, Any]:
        """Return the response of a request that is not streamed."""
        choices = []
        for i, (content, text) in enumerate(zip(texts, written)):
            own = {"text": self.begin(i) + content}
            if self.request.chat:
                own = {"message": {"role": "assistant", "content": content, "refusal": None}}  # type: ignore[dict-item]
            choices.append({"index": i, **own, "logprobs": None, "finish_reason": text.finish})
        kind = "chat.completion" if self.request.chat else "text_completion"
        return {**self._head(kind), "choices": choices, "usage": usage(written)}

    def begin(self, index: int) -> str:
        """Return the start of a text: its prompt if `echo` is set, otherwise nothing."""
        return self.request.wanted[index].prompt if self.request.echo else ""

    def first(self, index: int) -> dict[str, Any] | None:
        """Return the event that opens a text, or None."""
        if self.request.chat:
            return self._event(index, {"role": "assistant", "content": ""}, None)
        return self._event(index, self.begin(index), None) if self.request.echo else None

    def piece(self, index: int, piece: str) -> dict[str, Any]:
        """Return the event of a piece of text."""
        return self._event(index, {"content": piece} if self.request.chat else piece, None)

    def last(self, index: int, text: Text) -> dict[str, Any]:
        """Return the event that closes a text."""
        return self._event(index, {} if self.request.chat else "", text.finish)

    def counted(self, written: Sequence[Text]) -> dict[str, Any]:
        """Return the event with the token counts."""
        return {**self._head(self._chunk), "choices": [], "usage": usage(written)}

    @property
    def _chunk(self) -> str:
        return "chat.completion.chunk" if self.request.chat else "text_completion"

    def _event(self, index: int, content: Any, finish: str | None) -> dict[str, Any]:
        own = {"delta": content} if self.request.chat else {"text": content}
        return {
            **self._head(self._chunk),
            "choices": [{"index": index, **own, "logprobs": None, "finish_reason": finish}],
        }

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.name}


def usage(written: Sequence[Text]) -> dict[str, int]:
    """Return the token counts of prompts and texts."""
    prompts, texts = (sum(counts) for counts in zip(*((t.prompt_tokens, t.tokens) for t in written)))
    return {"prompt_tokens": prompts, "completion_tokens": texts, "total_tokens": prompts + texts}


def models(name: str, created: int) -> dict[str, Any]:
    """Return the list of models, which has one entry."""
    return {"object": "list", "data": [{"id": name, "object": "model", "created": created, "owned_by": "cutaway"}]}


def _reject_unknown(document: Mapping[str, Any], known: Sequence[str]) -> None:
    for key, value in document.items():
        if key in known:
            continue
        if key not in NEUTRAL:
            raise RequestError(f"Unknown parameter {shorten_repr(key)}: must be one of {', '.join(known)}.")
        if value not in NEUTRAL[key]:
            raise RequestError(f"Unsupported {key}={shorten_repr(value)}: this server has no such feature. Omit it.")


def _prompts(value: Any) -> list[str]:
    """Return the prompts of a completion. Raises DataError for anything but text; token ids are rejected, because
    clients cannot know them."""
    found = value if isinstance(value, list) else [value]
    if not 1 <= len(found) <= PROMPTS or not all(isinstance(one, str) for one in found):
        raise RequestError(
            f"Invalid prompt={shorten_repr(value)}: must be a string or a list of at most {PROMPTS} strings. Token ids "
            "are not supported."
        )
    return [parse_prompt(one) for one in found]


def _chat(messages: Any) -> str:
    """Join the texts of the messages, each followed by a line break. Raises DataError."""
    if not isinstance(messages, list) or not messages:
        raise RequestError("Invalid messages: must be a list with at least one message.")
    content = []
    for i, message in enumerate(messages, 1):
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            raise RequestError(f"Invalid role of message {i}: must be {join(ROLES, 'or')}.")
        content.append(_content(message.get("content"), i))
    return parse_prompt("".join(f"{text}\n" for text in content))


def _content(content: Any, i: int) -> str:
    """Return the text of a message, which may consist of several parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) and all(isinstance(part, dict) for part in content) else []
    if not parts or not all(part.get("type") == "text" and isinstance(part.get("text"), str) for part in parts):
        raise RequestError(f"Invalid content of message {i}: must be a string, or a list of parts of type text.")
    return "".join(part["text"] for part in parts)


__all__ = ["SAMPLING", "Request", "Shape", "UnknownModel", "models"]
