"""Request and response formats of OpenAI's completions and chat, as existing clients use them.

<https://platform.openai.com/docs/api-reference/completions>, <https://platform.openai.com/docs/api-reference/chat>

A parameter that a run does not support is rejected by name and never ignored: a client that requests log probabilities,
for example, must not mistake their absence for an answer. No run is trained on roles: a chat is the text of its
messages, one after another.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...core.errors import DataError, SettingError, join, shorten_repr
from .limits import SAMPLES, Limits
from .text_generation import (
    SAMPLING,
    GenerationRequest,
    Text,
    flag,
    parse_bounded_int,
    parse_num_tokens,
    parse_prompt,
    parse_sampling,
    parse_seed,
    parse_stop_strings,
)

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
            raise SettingError("Invalid best_of: must equal n, because texts are not ranked.")
        # A chat without a count may be as long as this server allows, as in OpenAI's API.
        key = "max_completion_tokens" if chat and "max_completion_tokens" in document else "max_tokens"
        count = parse_num_tokens(document, key, limits.max_tokens if chat else TOKENS, limits)
        if (total := count * samples * len(prompts)) > SAMPLES * limits.max_tokens:
            raise SettingError(
                f"{len(prompts)} prompts, n={samples} and {key}={count} are {total:,} tokens: at most "
                f"{SAMPLES * limits.max_tokens:,} are allowed in one request. Send several requests."
            )
        seed = parse_seed(document, secrets.randbelow(2**31))
        stop, sampling = parse_stop_strings(document), parse_sampling(document, 1.0)
        options = document.get("stream_options") or {}
        if not isinstance(options, dict):
            raise SettingError("Invalid stream_options: must be an object.")
        return cls(
            chat,
            [GenerationRequest(p, count, seed + k, stop, False, sampling) for p in prompts for k in range(samples)],
            flag(document, "stream"),
            flag(options, "include_usage"),
            flag(document, "echo"),
        )


class UnknownModel(DataError):
    """Raised for a model that this server does not have: 404, as in OpenAI's API."""


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
            raise SettingError(f"Unknown parameter {shorten_repr(key)}: must be one of {', '.join(known)}.")
        if value not in NEUTRAL[key]:
            raise SettingError(f"Unsupported {key}={shorten_repr(value)}: this server has no such feature. Omit it.")


def _prompts(value: Any) -> list[str]:
    """Return the prompts of a completion. Raises DataError for anything but text; token ids are rejected, because
    clients cannot know them."""
    found = value if isinstance(value, list) else [value]
    if not 1 <= len(found) <= PROMPTS or not all(isinstance(one, str) for one in found):
        raise DataError(
            f"Invalid prompt={shorten_repr(value)}: must be a string or a list of at most {PROMPTS} strings. Token ids "
            "are not supported."
        )
    return [parse_prompt(one) for one in found]


def _chat(messages: Any) -> str:
    """Join the texts of the messages, each followed by a line break. Raises DataError."""
    if not isinstance(messages, list) or not messages:
        raise DataError("Invalid messages: must be a list with at least one message.")
    content = []
    for i, message in enumerate(messages, 1):
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            raise DataError(f"Invalid role of message {i}: must be {join(ROLES, 'or')}.")
        content.append(_content(message.get("content"), i))
    return parse_prompt("".join(f"{text}\n" for text in content))


def _content(content: Any, i: int) -> str:
    """Return the text of a message, which may consist of several parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) and all(isinstance(part, dict) for part in content) else []
    if not parts or not all(part.get("type") == "text" and isinstance(part.get("text"), str) for part in parts):
        raise DataError(f"Invalid content of message {i}: must be a string, or a list of parts of type text.")
    return "".join(part["text"] for part in parts)


__all__ = ["SAMPLING", "Request", "Shape", "UnknownModel", "models"]
