"""From running text to a stream of tokens: fitted on the training split, saved as JSON with the model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from ...core import spec as specs
from ...core.errors import DataError
from ...core.files import exists, reject_address
from ...core.spec import TextSpec
from ..dataset_base import Split
from ..splits import SPLITS
from ..streaming.manifest import is_prepared, read_manifest
from ..streaming.tokens import ShardTokens
from .corpus_files import Read, joined, parted, texts_of
from .stream import StreamSplit
from .tokenizer_files import TOKENIZERS, tokenizer_from_json
from .tokenizer_fitting import padding_of
from .tokenizers import UNKNOWN, Tokenizer

PIECE = 1 << 16  # characters that are given to a tokenizer at a time, at least


READING = {"spec": specs.SCHEMA, "tokenizer": TOKENIZERS, "line_end": str, "documents?": bool}


@dataclass(frozen=True)
class Reading(ABC):
    """How text becomes a stream of tokens, whatever is learned of it."""

    form: ClassVar[str]
    least: ClassVar[int]  # tokens that a stream needs to be scored

    spec: TextSpec
    tokenizer: Tokenizer
    line_end: str = ""  # the word that stands for the end of a line, where the text is cut at blanks
    documents: bool = False  # whether no step reaches from one document into another

    def encode(self, text: str) -> Tensor:
        """The tokens of a text, (n,) int64."""
        if self.line_end:
            text = text.replace("\n", f" {self.line_end}\n")
        whole = self.tokenizer.kind == "characters" or not getattr(self.tokenizer, "by_pieces", True)
        flat, _ = self.tokenizer.encode_flat([text] if whole else pieces_of(text))
        return torch.from_numpy(flat)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens, as far as the tokenizer gives it back; a word for the end of a line becomes that."""
        text = self.tokenizer.decode(ids)
        return text.replace(f" {self.line_end}", "\n").replace(self.line_end, "\n") if self.line_end else text

    def beginning(self) -> Tensor:
        """The tokens that text begins after where nobody says how: the tokenizer's own, else a line's end, else a full
        stop, else the first token of the vocabulary; (1,) or more."""
        own = self.tokenizer.begin if self.tokenizer.begin is not None else self.tokenizer.end
        if own is not None:
            return torch.tensor([own])
        for text in ("\n", "."):
            ids = self.encode(text)
            if len(ids) and self.tokenizer.unknown not in ids:
                return ids
        return torch.tensor([UNKNOWN + 1])

    def unknown(self, text: str) -> list[str]:
        """What in a text the tokenizer does not know, each once: characters, or what stands between blanks."""
        pieces = text if self.tokenizer.kind == "characters" else text.split()
        return [piece for piece in dict.fromkeys(pieces) if self.tokenizer.unknown in self.tokenizer.encode(piece)]

    def examples(self, sources: Sequence[Any]) -> Split:
        """Texts to be scored: paths of .txt files, folders of them, or the texts themselves; each its own stream.

        Raises DataError, naming the text, where one cannot be read or has too few tokens.
        """
        if len(sources) == 1 and is_prepared(sources[0]):
            return self._in_shards(Path(sources[0]).expanduser())
        texts = [text for source in sources for text in texts_of(source)]
        if not texts:
            raise DataError("No text was given.")
        return self._as_split(texts, texts)

    def labelled(self, source: str | Path) -> Split:
        """The text of a file or folder as one stream, or as its documents: its targets are its own tokens."""
        path = Path(source)
        if not exists(path):
            reject_address(source)
            raise DataError(f"There is no file or folder {str(source)!r}, seen from {Path.cwd()}.")
        if is_prepared(path):
            return self._in_shards(path)
        return self.of_texts(texts_of(path))

    def of_texts(self, texts: Sequence[Read]) -> Split:
        """Texts as one stream, or as documents: their targets are their own tokens."""
        if not self.documents:
            return self._as_split([Read("", joined([read.text for read in texts]))], texts)
        streams = parted(texts[0]) if len(texts) == 1 else texts
        return self._as_split([s for s in streams if len(self.encode(s.text)) >= self.least] or streams, texts)

    @abstractmethod
    def stream_split(
        self, streams: Sequence[Tensor | ShardTokens], names: Sequence[str] = ("",), notes: Sequence[str] = ()
    ) -> Split:
        """Streams of tokens, or one in shards, as a split, each with a name that a person calls it by."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` gives an equal object back."""
        return {
            "kind": "text",
            "form": self.form,
            "spec": specs.to_json(self.spec),
            "tokenizer": self.tokenizer.to_json(),
            "line_end": self.line_end,
            "documents": self.documents,
        }

    def _in_shards(self, folder: Path) -> Split:
        """The test split of prepared text, or what there is nearest to one. Raises DataError where its tokens are those
        of another tokenizer, or where a step is not to reach from one document into another."""
        manifest = read_manifest(folder)
        if manifest.about.get("tokenizer") != self.tokenizer.to_json():
            raise DataError(
                f"{folder} was prepared with another tokenizer than this model's, and holds its tokens alone.",
                fix="Give the text itself; or prepare it again, with tokenizer=RUN for the run of this model.",
            )
        if self.documents:
            raise DataError(
                f"{folder} holds one stream, and this model was trained on documents.", fix="Give the text."
            )
        split = next(split for split in reversed(SPLITS) if split in manifest.splits)
        return self.stream_split(
            [ShardTokens(folder, manifest, split)], notes=[f"The {split} split of {folder} is read."]
        )

    def _as_split(self, streams: Sequence[Read], texts: Sequence[Read]) -> Split:
        """The split of these streams, which come from those texts."""
        encoded = [self.encode(stream.text) for stream in streams]
        for stream, ids in zip(streams, encoded):
            if len(ids) < self.least:
                after = ": there is nothing to predict after the first" if self.least > 1 else ""
                raise DataError(
                    f"{stream.name or texts[0].name} has {len(ids)} of the tokens that this model reads "
                    f"({self.tokenizer.kind}){after}.",
                    fix=f"Give at least {'two' if self.least > 1 else 'one'}.",
                )
        notes = [note for text in texts for note in text.notes]
        total, strange = sum(map(len, encoded)), sum(int((ids == self._unknown).sum()) for ids in encoded)
        if strange:
            notes.append(f"{strange:,} of {total:,} tokens are unknown to this model, and count as one and the same.")
        return self.stream_split(encoded, [stream.name for stream in streams], notes)

    @property
    def _unknown(self) -> int:
        """The id of unknown tokens; −1, which no token has, where nothing is unknown."""
        return -1 if self.tokenizer.unknown is None else self.tokenizer.unknown


@dataclass(frozen=True)
class RunningPreprocessing(Reading):
    """How text becomes a stream whose next token is predicted."""

    form: ClassVar[str] = "running"
    least: ClassVar[int] = 2

    carries: bool = True  # read on where the step before ended

    SCHEMA: ClassVar[Mapping[str, Any]] = {**READING, "carries": bool}

    def stream_split(
        self, streams: Sequence[Tensor | ShardTokens], names: Sequence[str] = ("",), notes: Sequence[str] = ()
    ) -> StreamSplit:
        """Streams of at least 2 tokens as a split."""
        padding = padding_of(self.tokenizer)
        return StreamSplit(streams, self.spec.longest, self.carries, self.decode, names, notes, padding)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` gives an equal object back."""
        return {**super().to_json(), "carries": self.carries}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> RunningPreprocessing:
        """The object that `to_json` wrote. Raises ValueError where the document, which is as SCHEMA says, cannot be."""
        return cls(*read_back(data), carries=bool(data["carries"]))


def read_back(data: dict[str, Any]) -> tuple[TextSpec, Tokenizer, str, bool]:
    """What every such document has: spec, tokenizer, the word for the end of a line, whether documents are told apart.

    Raises ValueError.
    """
    spec = specs.read_as(data["spec"], TextSpec)
    documents = bool(data.get("documents", False))  # which the first version had not
    return spec, tokenizer_from_json(data["tokenizer"]), str(data["line_end"]), documents


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
