"""Text from tokens as they come: whole characters alone, and nothing that a stop string could still take back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from torch import Tensor

from ..core.errors import SettingError
from .text import NONE

BROKEN = "\ufffd"  # what bytes give that are no whole character yet
CHARACTER = 4  # bytes, and so tokens, of a character at most
BEFORE = 8  # tokens of the prompt that what comes after it is written out with

Decode = Callable[[Sequence[int]], str]


class Pieces:
    """The text that goes on after some tokens, a piece for each new one."""

    def __init__(self, decode: Decode, before: Sequence[int] = (), stop: Sequence[str] = ()) -> None:
        """`decode` gives the text of token ids; `before` are those that the text goes on after.

        The text ends before the first of the strings `stop` in it: that which is complete first, and of those that end
        at the same place the longest. Raises SettingError for one without a character.
        """
        if not all(stop):
            raise SettingError("stop='' cannot be: the text would end before it begins. Give at least one character.")
        self.decode, self.stop = decode, list(stop)
        self.over = False  # whether a stop string came
        self._shown = self._ids = list(before[-BEFORE:])
        self._held = ""  # what could be the beginning of a stop string

    def add(self, token: int) -> str:
        """What the token adds to the text, as far as it is certain; nothing once the text is over.

        Few tokens are turned into text at a time: those since the last piece, and the piece before for what stands
        between them.
        """
        if self.over:
            return ""
        self._ids = [*self._ids, token]
        known, now = self.decode(self._shown), self.decode(self._ids)
        if now.endswith(BROKEN) and len(self._ids) - len(self._shown) < CHARACTER:
            return ""
        self._shown = self._ids = self._ids[len(self._shown) :]
        return self._certain(now[len(known) :])

    def rest(self) -> str:
        """What was held back, once no more tokens come."""
        if self.over:
            return ""
        piece = ""
        if len(self._ids) > len(self._shown):
            piece = self._certain(self.decode(self._ids)[len(self.decode(self._shown)) :])
            self._shown = self._ids
        piece, self._held = piece + self._held, ""
        return piece

    def _certain(self, piece: str) -> str:
        """What can be shown of the text with this piece at its end."""
        text = self._held + piece
        found = [(text.find(stop) + len(stop), text.find(stop)) for stop in self.stop if stop in text]
        if found:
            self.over, self._held = True, ""
            return text[: min(found)[1]]
        most = max((k for stop in self.stop for k in range(1, len(stop)) if text.endswith(stop[:k])), default=0)
        self._held = text[len(text) - most :]
        return text[: len(text) - most]


def as_text(drawn: Iterable[int], pieces: Pieces) -> Iterator[str]:
    """The text of tokens as they are drawn, up to a stop string or to a token that is NONE."""
    for token in drawn:
        if token == NONE or pieces.over:
            break
        yield pieces.add(token)
        if pieces.over:
            return
    yield pieces.rest()


def as_texts(drawn: Iterable[Tensor], rows: Sequence[Pieces]) -> list[str]:
    """The same of several rows at once, of tokens (N,): their texts. No token is asked for once all are over."""
    texts = [""] * len(rows)
    ended = [False] * len(rows)
    for tokens in drawn:
        for i, token in enumerate(tokens.tolist()):
            if ended[i]:
                continue
            if token != NONE:
                texts[i] += rows[i].add(token)
            ended[i] = token == NONE or rows[i].over
        if all(ended):
            break
    return [text + row.rest() for text, row in zip(texts, rows)]
