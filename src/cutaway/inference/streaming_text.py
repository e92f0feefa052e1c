"""Streaming text: whole characters only, and no text that may belong to a stop string."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from torch import Tensor

from ..core.errors import SettingError
from .text import NONE

BROKEN = "\ufffd"  # result of decoding an incomplete character
CHARACTER = 4  # largest number of bytes, and thus tokens, of a character
BEFORE = 8  # tokens of the prompt that are decoded together with the tokens after it

Decode = Callable[[Sequence[int]], str]


class TextStreamer:
    """The text after some tokens, one piece for each new token."""

    def __init__(self, decode: Decode, before: Sequence[int] = (), stop: Sequence[str] = ()) -> None:
        """Create an empty text.

        Args:
            decode: Returns the text of token ids.
            before: Token ids before the text.
            stop: Stop strings. The text ends before the one that is complete first; of several that end at the same
                position, before the longest.

        Raises:
            SettingError: If a stop string is empty.
        """
        if not all(stop):
            raise SettingError("stop='' cannot be: the text would end before it begins. Give at least one character.")
        self.decode, self.stop = decode, list(stop)
        self.over = False  # whether a stop string was found
        self._shown = self._ids = list(before[-BEFORE:])
        self._held = ""  # text that could begin a stop string

    def add(self, token: int) -> str:
        """Return the text that the token adds, if it is certain; "" once the text is over.

        Only few tokens are decoded at a time: those since the last piece, and the piece before for the characters
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
        """Return the withheld text, after the last token."""
        if self.over:
            return ""
        piece = ""
        if len(self._ids) > len(self._shown):
            piece = self._certain(self.decode(self._ids)[len(self.decode(self._shown)) :])
            self._shown = self._ids
        piece, self._held = piece + self._held, ""
        return piece

    def _certain(self, piece: str) -> str:
        """Append a piece and return the text that can be shown."""
        text = self._held + piece
        found = [(text.find(stop) + len(stop), text.find(stop)) for stop in self.stop if stop in text]
        if found:
            self.over, self._held = True, ""
            return text[: min(found)[1]]
        most = max((k for stop in self.stop for k in range(1, len(stop)) if text.endswith(stop[:k])), default=0)
        self._held = text[len(text) - most :]
        return text[: len(text) - most]


def as_text(drawn: Iterable[int], pieces: TextStreamer) -> Iterator[str]:
    """Yield the text of tokens during generation, up to a stop string or to NONE."""
    for token in drawn:
        if token == NONE or pieces.over:
            break
        yield pieces.add(token)
        if pieces.over:
            return
    yield pieces.rest()


def as_texts(drawn: Iterable[Tensor], rows: Sequence[TextStreamer]) -> list[str]:
    """Return the texts of several rows from tokens (N,), and stop once all rows are over."""
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
