"""The shapes of OpenAI's completions and chat, as existing clients send and read them.

<https://platform.openai.com/docs/api-reference/completions>, <https://platform.openai.com/docs/api-reference/chat>

What a run cannot do is rejected by name, never ignored: a client that asked for log probabilities would take their
absence for an answer. No run has learned to tell roles apart: a chat is its messages' text, one after another.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...core.errors import DataError, SettingError, brief, listed
from .limits import SAMPLES, Limits
from .text_generation import SAMPLING, Text, Wanted, bounded, flag, prompted, sampled, seeded, stops, tokens_of

PROMPTS = 16  # of one request
OURS = ("top_k", "min_p", "repetition_penalty")  # that OpenAI has not, and other servers of its shapes have
COMMON = (
    "model", "max_tokens", "temperature", "top_p", "n", "stream", "stream_options", "stop", "seed", "user", *OURS,
)  # fmt: skip
COMPLETION = ("prompt", "echo", "best_of", *COMMON)
CHAT = ("messages", "max_completion_tokens", *COMMON)
NEUTRAL: dict[str, tuple[Any, ...]] = {  # what may stand in a request as long as it asks for nothing
    "presence_penalty": (None, 0), "frequency_penalty": (None, 0), "logit_bias": (None, {}), "suffix": (None, ""),
    "logprobs": (None, False), "top_logprobs": (None, 0), "tools": (None, []), "tool_choice": (None, "none", "auto"),
    "response_format": (None, {"type": "text"}), "functions": (None, []), "store": (None, False),
    "metadata": (None, {}), "service_tier": (None, "auto", "default"), "parallel_tool_calls": (None, True, False),
    "modalities": (None, ["text"]), "reasoning_effort": (None, "none"), "prediction": (None,), "audio": (None,),
    "verbosity": (None, "medium"),
}  # fmt: skip
TOKENS = 16  # of a completion, unless it says how many
ROLES = ("system", "developer", "user", "assistant")


@dataclass(frozen=True)
class Request:
    """What a request asks for: texts, and how they are handed over."""

    chat: bool
    wanted: list[Wanted]
    stream: bool
    usage: bool  # whether the last event of a stream counts tokens
    echo: bool

    @classmethod
    def read(cls, document: Mapping[str, Any], chat: bool, name: str, limits: Limits) -> Request:
        """Raises UnknownModel, DataError or SettingError."""
        _reject_unknown(document, CHAT if chat else COMPLETION)
        if document.get("model") != name:
            raise UnknownModel(f"There is no model {brief(document.get('model'))} here: its name is {name!r}.")
        prompts = [_chat(document.get("messages"))] if chat else _prompts(document.get("prompt"))
        samples = bounded(document, "n", 1, SAMPLES)
        if document.get("best_of") not in (None, samples):
            raise SettingError("best_of cannot be other than n: texts are not ranked here.")
        # A chat without a count is as long as OpenAI's may be: as this server allows.
        key = "max_completion_tokens" if chat and "max_completion_tokens" in document else "max_tokens"
        count = tokens_of(document, key, limits.max_tokens if chat else TOKENS, limits)
        if (total := count * samples * len(prompts)) > SAMPLES * limits.max_tokens:
            raise SettingError(
                f"{len(prompts)} prompts, n={samples} and {key}={count} ask for {total:,} tokens: at most "
                f"{SAMPLES * limits.max_tokens:,} are written for one request. Send it in several requests."
            )
        seed = seeded(document, secrets.randbelow(2**31))
        stop, sampling = stops(document), sampled(document, 1.0)
        options = document.get("stream_options") or {}
        if not isinstance(options, dict):
            raise SettingError("stream_options cannot be: it must be an object.")
        return cls(
            chat,
            [Wanted(p, count, seed + k, stop, False, sampling) for p in prompts for k in range(samples)],
            flag(document, "stream"),
            flag(options, "include_usage"),
            flag(document, "echo"),
        )


class UnknownModel(DataError):
    """A model that this server has not: 404, as OpenAI has it."""


class Shape:
    """What is answered to one request."""

    def __init__(self, request: Request, name: str) -> None:
        self.request, self.name = request, name
        self.id = f"{'chatcmpl' if request.chat else 'cmpl'}-{secrets.token_hex(12)}"
        self.created = int(time.time())

    def whole(self, texts: Sequence[str], written: Sequence[Text]) -> dict[str, Any]:
        """The answer that is not streamed."""
        choices = []
        for i, (said, text) in enumerate(zip(texts, written)):
            own = {"text": self.begin(i) + said}
            if self.request.chat:
                own = {"message": {"role": "assistant", "content": said, "refusal": None}}  # type: ignore[dict-item]
            choices.append({"index": i, **own, "logprobs": None, "finish_reason": text.finish})
        kind = "chat.completion" if self.request.chat else "text_completion"
        return {**self._head(kind), "choices": choices, "usage": usage(written)}

    def begin(self, index: int) -> str:
        """What stands before a text: its prompt, where it is to be echoed."""
        return self.request.wanted[index].prompt if self.request.echo else ""

    def first(self, index: int) -> dict[str, Any] | None:
        """The event before a text's first, if there is one."""
        if self.request.chat:
            return self._event(index, {"role": "assistant", "content": ""}, None)
        return self._event(index, self.begin(index), None) if self.request.echo else None

    def piece(self, index: int, piece: str) -> dict[str, Any]:
        """The event of a piece of a text."""
        return self._event(index, {"content": piece} if self.request.chat else piece, None)

    def last(self, index: int, text: Text) -> dict[str, Any]:
        """The event of a text's end."""
        return self._event(index, {} if self.request.chat else "", text.finish)

    def counted(self, written: Sequence[Text]) -> dict[str, Any]:
        """The event that counts tokens."""
        return {**self._head(self._chunk), "choices": [], "usage": usage(written)}

    @property
    def _chunk(self) -> str:
        return "chat.completion.chunk" if self.request.chat else "text_completion"

    def _event(self, index: int, said: Any, finish: str | None) -> dict[str, Any]:
        own = {"delta": said} if self.request.chat else {"text": said}
        return {
            **self._head(self._chunk),
            "choices": [{"index": index, **own, "logprobs": None, "finish_reason": finish}],
        }

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.name}


def usage(written: Sequence[Text]) -> dict[str, int]:
    """Tokens of the prompts and of the texts."""
    prompts, texts = (sum(counts) for counts in zip(*((t.prompt_tokens, t.tokens) for t in written)))
    return {"prompt_tokens": prompts, "completion_tokens": texts, "total_tokens": prompts + texts}


def models(name: str, created: int) -> dict[str, Any]:
    """The list of models, which has one."""
    return {"object": "list", "data": [{"id": name, "object": "model", "created": created, "owned_by": "cutaway"}]}


def _reject_unknown(document: Mapping[str, Any], known: Sequence[str]) -> None:
    for key, value in document.items():
        if key in known:
            continue
        if key not in NEUTRAL:
            raise SettingError(f"There is no {brief(key)} here. There are: {', '.join(known)}.")
        if value not in NEUTRAL[key]:
            raise SettingError(f"{key}={brief(value)} cannot be had of this model: leave it out.")


def _prompts(value: Any) -> list[str]:
    """Raises DataError for what is no text, among it tokens, which clients cannot know here."""
    found = value if isinstance(value, list) else [value]
    if not 1 <= len(found) <= PROMPTS or not all(isinstance(one, str) for one in found):
        raise DataError(
            f"prompt={brief(value)} cannot be: it must be a string or a list of at most {PROMPTS}, and no tokens."
        )
    return [prompted(one) for one in found]


def _chat(messages: Any) -> str:
    """The messages' text, one after another, and what comes next on a new line. Raises DataError."""
    if not isinstance(messages, list) or not messages:
        raise DataError("messages is a list with at least one message in it.")
    said = []
    for i, message in enumerate(messages, 1):
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            raise DataError(f"Message {i} has no role: {listed(ROLES, 'or')}.")
        said.append(_content(message.get("content"), i))
    return prompted("".join(f"{text}\n" for text in said))


def _content(content: Any, i: int) -> str:
    """The text of a message, which may come in parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) and all(isinstance(part, dict) for part in content) else []
    if not parts or not all(part.get("type") == "text" and isinstance(part.get("text"), str) for part in parts):
        raise DataError(f"Message {i} holds no text: its content is a string, or parts of the type text.")
    return "".join(part["text"] for part in parts)


__all__ = ["SAMPLING", "Request", "Shape", "UnknownModel", "models"]
