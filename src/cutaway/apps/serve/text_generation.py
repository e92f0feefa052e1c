"""Text generation requests: their validation, and the text token by token, as `cutaway generate` writes it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ...core.errors import DataError, SettingError, shorten_repr
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
        raise DataError(
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
        raise SettingError(
            f"Invalid {key}={shorten_repr(value)}: must be {'an integer' if kind is int else 'a number'}."
        )
    return kind(value)


def flag(document: Mapping[str, Any], key: str) -> bool:
    """Return a boolean of a request, false by default. Raises SettingError for another type."""
    value = document.get(key)
    if value is not None and not isinstance(value, bool):
        raise SettingError(f"Invalid {key}={shorten_repr(value)}: must be true or false.")
    return bool(value)


def parse_stop_strings(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the stop strings of a request. Raises SettingError."""
    value = document.get("stop")
    found = [value] if isinstance(value, str) else value or []
    right = isinstance(found, list) and all(isinstance(one, str) and 0 < len(one) <= STOP for one in found)
    if not right or len(found) > STOPS:
        raise SettingError(
            f"Invalid stop={shorten_repr(value)}: must be a string of 1 to {STOP:,} characters, or a list of at most "
            f"{STOPS} strings."
        )
    return tuple(found)


def parse_bounded_int(document: Mapping[str, Any], key: str, usual: int, most: int, option: str = "") -> int:
    """Return an integer of a request from 1 to `most`. Raises SettingError."""
    value: int = number(document, key, int, usual)
    if not 1 <= value <= most:
        more = f", the limit of this server ({option})" if option else ""
        raise SettingError(f"Invalid {key}={value}: must be from 1 to {most:,}{more}.")
    return value


def parse_sampling(document: Mapping[str, Any], temperature: float) -> dict[str, Any]:
    """Return the sampling parameters of a request. Raises SettingError."""
    found = {key: number(document, key, kind, None) for key, kind in SAMPLING.items()}
    return {"temperature": temperature, **{key: value for key, value in found.items() if value is not None}}


def parse_seed(document: Mapping[str, Any], usual: int) -> int:
    """Return the seed of the first text. Raises SettingError."""
    seed: int = number(document, "seed", int, usual)
    if not 0 <= seed < MOST_SEED:
        raise SettingError(f"Invalid seed={seed}: must be at least 0 and below 2**63.")
    return seed


def parse_prompt(value: Any) -> str:
    """Return a valid prompt. Raises DataError for anything else."""
    if not isinstance(value, str):
        raise DataError(f"Invalid prompt={shorten_repr(value)}: must be a string.")
    if len(value) > PROMPT:
        raise DataError(f"The prompt has {len(value):,} characters: at most {PROMPT:,} are allowed.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise DataError("Invalid prompt: it contains a lone surrogate.") from None
    return value


def parse_num_tokens(document: Mapping[str, Any], key: str, usual: int, limits: Limits) -> int:
    """Return the number of tokens to generate. Raises SettingError."""
    return parse_bounded_int(document, key, min(usual, limits.max_tokens), limits.max_tokens, "--max-tokens")
