"""Conversion of running text to a stream of tokens, fitted on the training split and saved as JSON with the model."""

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
from .corpus_files import TextFile, join_texts, load_texts, split_at_blank_lines
from .stream import StreamSplit
from .tokenizer_files import TOKENIZERS, tokenizer_from_json
from .tokenizer_fitting import padding_id
from .tokenizers import UNKNOWN, Tokenizer

PIECE = 1 << 16  # minimum characters passed to a tokenizer at a time


READING = {"spec": specs.SCHEMA, "tokenizer": TOKENIZERS, "line_end": str, "documents?": bool}


@dataclass(frozen=True)
class StreamPreprocessing(ABC):
    """Base class of the conversion of running text to a stream of tokens."""

    form: ClassVar[str]
    least: ClassVar[int]  # minimum tokens of a stream for scoring

    spec: TextSpec
    tokenizer: Tokenizer
    line_end: str = ""  # the token for a line end, if the text is split at blanks
    documents: bool = False  # whether steps are confined to one document

    def encode(self, text: str) -> Tensor:
        """Return the tokens of a text, (n,) int64."""
        if self.line_end:
            text = text.replace("\n", f" {self.line_end}\n")
        whole = self.tokenizer.kind == "characters" or not getattr(self.tokenizer, "by_pieces", True)
        flat, _ = self.tokenizer.encode_flat([text] if whole else split_pieces(text))
        return torch.from_numpy(flat)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of tokens, as far as the tokenizer preserves it; the line-end token becomes a line end."""
        text = self.tokenizer.decode(ids)
        return text.replace(f" {self.line_end}", "\n").replace(self.line_end, "\n") if self.line_end else text

    def beginning(self) -> Tensor:
        """Return the default prompt, (1,) or more: the tokenizer's begin or end, a line end, a full stop, or the first
        token.
        """
        own = self.tokenizer.begin if self.tokenizer.begin is not None else self.tokenizer.end
        if own is not None:
            return torch.tensor([own])
        for text in ("\n", "."):
            ids = self.encode(text)
            if len(ids) and self.tokenizer.unknown not in ids:
                return ids
        return torch.tensor([UNKNOWN + 1])

    def unknown(self, text: str) -> list[str]:
        """Return the distinct parts of a text that the tokenizer does not know: characters, or words between blanks."""
        pieces = text if self.tokenizer.kind == "characters" else text.split()
        return [piece for piece in dict.fromkeys(pieces) if self.tokenizer.unknown in self.tokenizer.encode(piece)]

    def examples(self, sources: Sequence[Any]) -> Split:
        """Prepare texts to be scored: paths of .txt files, folders of them, or texts, each as its own stream.

        Raises DataError, naming the text, if one cannot be read or has too few tokens.
        """
        if len(sources) == 1 and is_prepared(sources[0]):
            return self._in_shards(Path(sources[0]).expanduser())
        texts = [text for source in sources for text in load_texts(source)]
        if not texts:
            raise DataError("No text was given.")
        return self._as_split(texts, texts)

    def labelled(self, source: str | Path) -> Split:
        """Prepare the text of a file or folder as one stream, or as its documents; its tokens are the targets."""
        path = Path(source)
        if not exists(path):
            reject_address(source)
            raise DataError(f"There is no file or folder {str(source)!r}, seen from {Path.cwd()}.")
        if is_prepared(path):
            return self._in_shards(path)
        return self.of_texts(load_texts(path))

    def of_texts(self, texts: Sequence[TextFile]) -> Split:
        """Prepare texts as one stream, or as documents; their tokens are the targets."""
        if not self.documents:
            return self._as_split([TextFile("", join_texts([read.text for read in texts]))], texts)
        streams = split_at_blank_lines(texts[0]) if len(texts) == 1 else texts
        return self._as_split([s for s in streams if len(self.encode(s.text)) >= self.least] or streams, texts)

    @abstractmethod
    def stream_split(
        self, streams: Sequence[Tensor | ShardTokens], names: Sequence[str] = ("",), notes: Sequence[str] = ()
    ) -> Split:
        """Return streams of tokens, or one in shards, as a split; `names` are the display names of the streams."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` restores an equal object."""
        return {
            "kind": "text",
            "form": self.form,
            "spec": specs.to_json(self.spec),
            "tokenizer": self.tokenizer.to_json(),
            "line_end": self.line_end,
            "documents": self.documents,
        }

    def _in_shards(self, folder: Path) -> Split:
        """Return the test split of prepared text, or else the val or train split.

        Raises DataError if it was prepared with another tokenizer, or if the model was trained on documents.
        """
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

    def _as_split(self, streams: Sequence[TextFile], texts: Sequence[TextFile]) -> Split:
        """Return the split of these streams, which come from those texts."""
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
        """The id of unknown tokens; −1, which no token has, if none exists."""
        return -1 if self.tokenizer.unknown is None else self.tokenizer.unknown


@dataclass(frozen=True)
class RunningPreprocessing(StreamPreprocessing):
    """Conversion of text to a stream for next-token prediction."""

    form: ClassVar[str] = "running"
    least: ClassVar[int] = 2

    carries: bool = True  # whether each step continues where the previous one ended

    SCHEMA: ClassVar[Mapping[str, Any]] = {**READING, "carries": bool}

    def stream_split(
        self, streams: Sequence[Tensor | ShardTokens], names: Sequence[str] = ("",), notes: Sequence[str] = ()
    ) -> StreamSplit:
        """Return streams of at least 2 tokens as a split."""
        padding = padding_id(self.tokenizer)
        return StreamSplit(streams, self.spec.longest, self.carries, self.decode, names, notes, padding)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` restores an equal object."""
        return {**super().to_json(), "carries": self.carries}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> RunningPreprocessing:
        """Restore the object that `to_json` wrote. Raises ValueError if the document is inconsistent."""
        return cls(*parse_stream_document(data), carries=bool(data["carries"]))


def parse_stream_document(data: dict[str, Any]) -> tuple[TextSpec, Tokenizer, str, bool]:
    """Return the fields of every such document: spec, tokenizer, the line-end token, whether documents are separate.

    Raises ValueError.
    """
    spec = specs.read_spec(data["spec"], TextSpec)
    documents = bool(data.get("documents", False))  # missing in the first version
    return spec, tokenizer_from_json(data["tokenizer"]), str(data["line_end"]), documents


def split_pieces(text: str, least: int = PIECE) -> list[str]:
    """Split a text before line ends into pieces that do not change its tokenization."""
    pieces, begin = [], 0
    while begin < len(text):
        end = text.find("\n", begin + least)
        while 0 < end < len(text) and text[end - 1].isspace():  # keeps the blanks between two words together
            end = text.find("\n", end + 1)
        end = len(text) if end < 0 else end
        pieces.append(text[begin:end])
        begin = end
    return pieces
