"""From running text to a stream of tokens: fitted on the training part, saved as JSON with the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ... import spec as specs
from ...errors import DataError
from ...spec import TextSpec
from .running_files import Read, joined, texts_of
from .stream import StreamPart
from .tokenizers import UNKNOWN, Tokenizer, tokenizer_from_json

PIECE = 1 << 16  # characters that are given to a tokenizer at a time, at least


@dataclass(frozen=True)
class RunningPreprocessing:
    """How text becomes a stream of tokens."""

    spec: TextSpec
    tokenizer: Tokenizer
    carries: bool = True  # read on where the step before ended
    line_end: str = ""  # the word that stands for the end of a line, where the text is cut at blanks

    def encode(self, text: str) -> Tensor:
        """The tokens of a text, (n,) int64."""
        if self.line_end:
            text = text.replace("\n", f" {self.line_end}\n")
        characters = self.tokenizer.kind == "characters"
        flat, _ = self.tokenizer.encode_flat([text] if characters else pieces_of(text))
        return torch.from_numpy(flat)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens, as far as the tokenizer gives it back; a word for the end of a line becomes that."""
        text = self.tokenizer.decode(ids)
        return text.replace(f" {self.line_end}", "\n").replace(self.line_end, "\n") if self.line_end else text

    def beginning(self) -> Tensor:
        """The tokens that text begins behind where nobody says how: a line's end, else a full stop, else the first
        token of the vocabulary; (1,) or more."""
        for text in ("\n", "."):
            ids = self.encode(text)
            if len(ids) and UNKNOWN not in ids:
                return ids
        return torch.tensor([UNKNOWN + 1])

    def unknown(self, text: str) -> list[str]:
        """What in a text the tokenizer does not know, each once: characters, or what stands between blanks."""
        pieces = text if self.tokenizer.kind == "characters" else text.split()
        return [piece for piece in dict.fromkeys(pieces) if UNKNOWN in self.tokenizer.encode(piece)]

    def examples(self, sources: Sequence[Any]) -> StreamPart:
        """Texts to be scored: paths of .txt files, folders of them, or the texts themselves; each its own stream.

        Raises DataError, naming the text, where one cannot be read or has no token behind its first.
        """
        texts = [text for source in sources for text in texts_of(source)]
        if not texts:
            raise DataError("No text was given.")
        return self._part(texts, texts)

    def labelled(self, source: str | Path) -> StreamPart:
        """The text of a file or folder as one stream: its targets are its own tokens."""
        path = Path(source)
        if not path.exists():
            raise DataError(f"There is no file or folder {str(source)!r}, seen from {Path.cwd()}.")
        texts = texts_of(path)
        return self._part([Read("", joined([read.text for read in texts]))], texts)

    def stream_part(self, tokens: Tensor) -> StreamPart:
        """One stream of tokens as a part."""
        return StreamPart([tokens], self.spec.longest, self.carries, self.decode)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` gives an equal object back."""
        return {
            "kind": "text",
            "form": "running",
            "spec": specs.to_json(self.spec),
            "tokenizer": self.tokenizer.to_json(),
            "carries": self.carries,
            "line_end": self.line_end,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> RunningPreprocessing:
        """The object that `to_json` wrote. Raises KeyError or TypeError where the document is not one."""
        spec = specs.from_json(data["spec"])
        if not isinstance(spec, TextSpec):
            raise TypeError(f"a preprocessing of running text with a spec of kind {spec.kind}")
        return cls(spec, tokenizer_from_json(data["tokenizer"]), bool(data["carries"]), str(data["line_end"]))

    def _part(self, streams: Sequence[Read], texts: Sequence[Read]) -> StreamPart:
        """The part of these streams, which come from those texts."""
        encoded = [self.encode(stream.text) for stream in streams]
        for stream, ids in zip(streams, encoded):
            if len(ids) < 2:
                raise DataError(
                    f"{stream.name or texts[0].name} has {len(ids)} of the tokens that this model reads "
                    f"({self.tokenizer.kind}): there is nothing to foretell behind the first.",
                    mend="Give at least two.",
                )
        notes = [note for text in texts for note in text.notes]
        total, strange = sum(map(len, encoded)), sum(int((ids == UNKNOWN).sum()) for ids in encoded)
        if strange:
            notes.append(f"{strange:,} of {total:,} tokens are unknown to this model, and count as one and the same.")
        names = [stream.name for stream in streams]
        return StreamPart(encoded, self.spec.longest, self.carries, self.decode, names, notes)


def pieces_of(text: str, least: int = PIECE) -> list[str]:
    """A text in pieces that every tokenizer cuts as it would cut the whole: each ends before the end of a line."""
    pieces, begin = [], 0
    while begin < len(text):
        end = text.find("\n", begin + least)
        while 0 < end < len(text) and text[end - 1].isspace():  # the blanks between two words stay together
            end = text.find("\n", end + 1)
        end = len(text) if end < 0 else end
        pieces.append(text[begin:end])
        begin = end
    return pieces
