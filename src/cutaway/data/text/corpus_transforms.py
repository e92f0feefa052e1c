"""Running text as a stream of tokens for next-token and masked language modelling; saved as JSON with the model.

The stream is divided into windows of `length` tokens on a grid; the last may be shorter. The position of a window is
computed from its number, so that the number of windows is not limited by memory.

In next-token prediction each token but the first is predicted once, from those before it. With `is_stateful`, the
stream is laid out in as many rows as a batch has, and each batch continues where the previous one ended:

    stream   0 1 2 3 4 5 6 7 8 9 …          windows of 2, in 2 rows:
    row 0    0 1 | 2 3 | 4 5                 batch 0 holds windows 0 and 3, batch 1 windows 1 and 4, …
    row 1    6 7 | 8 9 | …

so that a model can keep its state (truncated back-propagation through time: R. J. Williams, J. Peng, 1990,
https://doi.org/10.1162/neco.1990.2.4.490). Without `is_stateful`, windows are independent and shuffled, and in training
the grid of windows is shifted in each epoch. Otherwise a token would always be predicted from the same context, the
first of a window from none, and a model would see only one of `length` ways to divide the text. In evaluation the
grid always starts at the first token.

In masked language modelling, masked tokens are predicted from those around them, as in J. Devlin, M.-W. Chang, K. Lee,
K. Toutanova, BERT, 2018, section 3.1 and appendix C.1, <https://arxiv.org/abs/1810.04805>. Of each example
max(1, round(mask_prob · n)) of its n tokens are chosen, as in the released code; of these 80 % become the mask, 10 % a
random token, and 10 % are unchanged. With whole-word masking (the authors' later release) the subwords of a word are
chosen together or not at all: random words, until enough tokens are chosen; the last word is chosen if at least half of
it still fits.

The draws of masking depend only on a seed and a position, not on other draws, so that an example has the same in every
batch, alone, and after a run is resumed. The mixing function is that of SplitMix64: G. L. Steele, D. Lea, C. H. Flood,
Fast splittable pseudorandom number generators, 2014, <https://doi.org/10.1145/2660193.2660195>.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...core import spec as specs
from ...core.errors import DataMismatchError, NotEnoughDataError, Problem
from ...core.files import exists, missing_file_error
from ...core.spec import Masked, TextSpec
from ..dataset_base import IGNORED, Batch, Split, WholeBatch
from ..parallel import Progress
from ..samplers import HELD, Batches, BatchPlan, SampleOrder, bucket_batches
from ..splits import SPLITS
from ..streaming.shards import (
    ShardTokens,
    concatenate_streams,
    damaged_token_shards,
    is_prepared,
    prefetch_windows,
    read_manifest,
    stream_targets,
)
from .text_files import TextFile, join_texts, load_texts, split_at_blank_lines
from .tokenizer_files import (
    TOKENIZERS,
    SpecialTokens,
    padding_id,
    spec_special_tokens,
    special_ids,
    tokenizer_from_json,
)
from .tokenizers import UNKNOWN, Tokenizer, continues_word

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
            raise NotEnoughDataError("No text was given.")
        return self._as_split(texts, texts)

    def labelled(self, source: str | Path) -> Split:
        """Prepare the text of a file or folder as one stream, or as its documents; its tokens are the targets."""
        path = Path(source)
        if not exists(path):
            raise missing_file_error(source)
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
            raise DataMismatchError(
                f"{folder} was prepared with another tokenizer than this model's, and holds its tokens alone.",
                fix="Give the text itself; or prepare it again, with tokenizer=RUN for the run of this model.",
            )
        if self.documents:
            raise DataMismatchError(
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
                raise DataMismatchError(
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

    is_stateful: bool = True  # whether each step continues where the previous one ended

    SCHEMA: ClassVar[Mapping[str, Any]] = {**READING, "carries": bool}

    def stream_split(
        self, streams: Sequence[Tensor | ShardTokens], names: Sequence[str] = ("",), notes: Sequence[str] = ()
    ) -> StreamSplit:
        """Return streams of at least 2 tokens as a split."""
        padding = padding_id(self.tokenizer)
        return StreamSplit(streams, self.spec.longest, self.is_stateful, self.decode, names, notes, padding)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` restores an equal object."""
        return {**super().to_json(), "carries": self.is_stateful}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> RunningPreprocessing:
        """Restore the object that `to_json` wrote. Raises ValueError if the document is inconsistent."""
        return cls(*parse_stream_document(data), is_stateful=bool(data["carries"]))


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


Grid = Callable[[Tensor], tuple[Tensor, Tensor]]  # window numbers (n,) to starts and lengths


class Windows:
    """The windows of concatenated streams.

    The windows of each stream are consecutive from its first position, and the last may be shorter.
    """

    def __init__(self, places: Sequence[int], gap: int, length: int) -> None:
        """Initialize with the number of positions of each stream, at least 1.

        After each stream come `gap` positions at which no window begins. `length` is that of a window.
        """
        self.length = length
        counts = torch.tensor(list(places))  # (S,)
        self.begins = (counts + gap).cumsum(0) - counts - gap  # (S,)
        self.counts = counts
        self.of_stream = (counts + length - 1) // length  # (S,) number of windows of each
        self._first = self.of_stream.cumsum(0) - self.of_stream  # (S,) the number of its first window
        self._all = int(self.of_stream.sum())
        self._only = torch.tensor(0)

    def __len__(self) -> int:
        return self._all

    def stream(self, index: Tensor) -> Tensor:
        """Return the stream of each of these windows: (n,), or () for one stream."""
        if len(self.counts) == 1:
            return self._only
        return torch.searchsorted(self._first, index, right=True) - 1

    def grid(self, seed: int | None = None) -> Grid:
        """Return the function from window numbers to positions; with a seed, each stream's grid is shifted by less than
        a window.

        A window that would extend beyond its stream is moved back to end with it. A stream of one window is not
        shifted.
        """
        if seed is None:
            return self._unshifted
        generator = torch.Generator().manual_seed(seed)
        shift = torch.randint(0, self.length, (len(self.counts),), generator=generator)  # (S,)
        last = self.begins + (self.counts - self.length).clamp(min=0)  # (S,) where the last window can begin

        if len(self.counts) == 1:  # fast path for a corpus
            first, furthest = int(shift), int(last)
            return lambda index: ((index * self.length + first).clamp(max=furthest), self.longest(index))

        def shifted(index: Tensor) -> tuple[Tensor, Tensor]:
            stream = self.stream(index)
            starts = self.begins[stream] + (index - self._first[stream]) * self.length + shift[stream]
            return torch.minimum(starts, last[stream]), self.longest(index)

        return shifted

    def longest(self, index: Tensor) -> Tensor:
        """Return the length of each of these windows on a shifted grid, for any shift, (n,)."""
        return self.counts[self.stream(index)].clamp(max=self.length).expand(len(index))

    def name(self, i: int, names: Sequence[str]) -> str:
        """Return the name of window i: its stream and the range of tokens it reads, counted from 0."""
        (start,), (length,) = (found.tolist() for found in self._unshifted(torch.tensor([i])))
        stream = int(self.stream(torch.tensor([i])))
        name, first = names[stream], start - int(self.begins[stream])
        if name and self.of_stream[stream] == 1:
            return name
        return ", ".join(part for part in (name, f"tokens {first} to {first + length - 1}") if part)

    def _unshifted(self, index: Tensor) -> tuple[Tensor, Tensor]:
        stream = self.stream(index)
        within = (index - self._first[stream]) * self.length
        return self.begins[stream] + within, (self.counts[stream] - within).clamp(max=self.length)


EVALUATED = 32  # maximum rows in evaluation, so that a score does not depend on larger batch sizes
MIN_WINDOWS_PER_ROW = 8  # minimum windows in such a row: only its first has no previous context


class StreamSplit(Split):
    """One or several streams of tokens, as windows.

    inputs are tokens (N, T) and a mask (N, T), True where a token is real; target (N, T) is the next token of each,
    IGNORED at padding. T is `length`, or less if all windows of a batch are shorter. With `is_stateful`, row r of a
    batch continues row r of the previous batch; the last batches may have only the first rows. Several streams have a
    row each. No window crosses from one stream into another.
    """

    def __init__(
        self,
        streams: Sequence[Tensor | ShardTokens],
        length: int,
        is_stateful: bool,
        decode: Callable[[list[int]], str],
        names: Sequence[str] = ("",),
        notes: Sequence[str] = (),
        padding: int = 0,
    ) -> None:
        """Initialize with `streams` of token ids, (n,) int64 with n ≥ 2 each, or one in shards.

        `decode` returns their text, and `names` are their display names. `notes` are messages for the user, and
        `padding` is the id at positions without a token.
        """
        self.tokens = concatenate_streams(streams)  # (Σ n,)
        self.target, self.target_counts = stream_targets(streams, first=1)
        self.length, self.is_stateful, self.padding = length, is_stateful, padding
        self.notes = list(notes)
        self._decode, self._names = decode, names
        self._windows = Windows([len(stream) - 1 for stream in streams], gap=1, length=length)

    def __len__(self) -> int:
        return len(self._windows)

    @property
    def lengths(self) -> Tensor:
        """The number of tokens that each window reads, (n,)."""
        return self._windows.grid()(torch.arange(len(self)))[1]

    def plan(self, batch_size: int, generator: torch.Generator | None, tokens: int = 0) -> Batches:
        """Return the windows of each batch.

        With `is_stateful` they are in the order of the text, without randomness. With `tokens`, a batch has as many
        rows as fit, at least one.
        """
        size = max(1, tokens // self.length) if tokens else batch_size  # all but the last have the same length
        if self.is_stateful:
            return self._plan_stateful_batches(size, generator is not None)
        if len(self._windows.of_stream) == 1:
            return SampleOrder(len(self), generator).plan(size)
        lengths = self.lengths if generator is None else self._windows.longest(torch.arange(len(self)))
        return bucket_batches(lengths, batch_size, generator, tokens)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield the batches of these windows. With a seed, and without `is_stateful`, the grid is shifted."""
        grid = self._windows.grid(None if self.is_stateful else seed)
        for starts, lengths in prefetch_windows(self.tokens, order, grid):
            step = torch.arange(int(lengths.max()) + 1)
            mask = step[:-1] < lengths[:, None]  # (N, T)
            place = starts[:, None] + step  # (N, T + 1)
            if mask.all():
                seen = self.tokens[place]
                kind = Batch if self.is_stateful else WholeBatch  # a stateful network needs the mask
                yield kind((seen[:, :-1].contiguous(), mask), seen[:, 1:].contiguous())
            else:
                seen = self.tokens[place.clamp(max=len(self.tokens) - 1)]
                inputs = seen[:, :-1].masked_fill(~mask, self.padding)
                yield Batch((inputs, mask), seen[:, 1:].masked_fill(~mask, IGNORED))

    def damaged(self, progress: Progress | None = None) -> list[Problem]:
        """Return every shard whose checksum differs, if the tokens are read from shards."""
        return damaged_token_shards(self.tokens, progress)

    def name(self, i: int) -> str:
        """Return the stream and the range of tokens that the window reads, counted from 0."""
        return self._windows.name(i, self._names)

    def row(self, i: int) -> dict[str, str] | None:
        """Return the window's text, including the last token that it predicts."""
        starts, lengths = self._windows.grid()(torch.tensor([i]))
        start, end = int(starts), int(starts + lengths)
        return {"text": self._decode(self.tokens[start : end + 1].tolist())}

    def _plan_stateful_batches(self, batch_size: int, is_training: bool) -> BatchPlan:
        """Return the windows of each batch, where each row continues the previous batch.

        In evaluation the batch size is limited.
        """
        if not is_training:
            batch_size = min(batch_size, EVALUATED, max(1, len(self) // MIN_WINDOWS_PER_ROW))
        counts = torch.tensor(self._rows(batch_size))
        firsts, order = counts.cumsum(0) - counts, counts.argsort(descending=True, stable=True)
        firsts, counts = firsts[order], counts[order]
        return BatchPlan(range(int(counts[0])), lambda k: firsts[counts > k] + k)

    def _rows(self, batch_size: int) -> list[int]:
        """Return the number of windows in each row.

        One stream is divided nearly equally, longer rows first; several streams have one row each.
        """
        if len(self._windows.of_stream) > 1:
            own: list[int] = self._windows.of_stream.tolist()
            return own
        rows = min(batch_size, len(self))
        return [len(self) // rows + (r < len(self) % rows) for r in range(rows)]


AS_READ = 0  # the seed for evaluation


class MaskedSplit(Split):
    """One or several streams of tokens, in windows in which some tokens are masked.

    inputs are tokens (N, T) and a mask (N, T), True where a token is real; target (N, T) is the token where it is to be
    predicted, IGNORED elsewhere. T includes special tokens, if there are any. With a seed, other tokens are masked each
    time, and the grid of windows is shifted; without one the choice is fixed. The choice depends only on the seed
    and the position in the text, not on the batch.
    """

    def __init__(
        self,
        streams: Sequence[Tensor | ShardTokens],
        length: int,
        masking: Masking,
        decode: Callable[[list[int]], str],
        names: Sequence[str] = ("",),
        notes: Sequence[str] = (),
        *,
        frame: SpecialTokens | None = None,
        goes_on: Tensor | None = None,
        padding: int = 0,
    ) -> None:
        """Initialize with `streams` of token ids, (n,) int64 with n ≥ 1 each, or one in shards.

        `length` is that of a window with its special tokens. For whole-word masking, `goes_on` (Σ n,) is True where a
        token continues the word of the previous token.
        """
        self.tokens = concatenate_streams(streams)  # (Σ n,)
        self.target, self.target_counts = stream_targets(streams, first=0)
        self.masking, self.frame, self.padding = masking, frame, padding
        self.notes = list(notes)
        self._decode, self._names, self._goes_on = decode, names, goes_on
        self._around = 2 if frame else 0
        self._windows = Windows([len(stream) for stream in streams], gap=0, length=length - self._around)

    def __len__(self) -> int:
        return len(self._windows)

    @property
    def lengths(self) -> Tensor:
        """The length of each window with its special tokens, (n,)."""
        return self._windows.grid()(torch.arange(len(self)))[1] + self._around

    def plan(self, batch_size: int, generator: torch.Generator | None, tokens: int = 0) -> Batches:
        """Return batches of windows of similar length."""
        if len(self) > HELD and len(self._windows.of_stream) == 1:  # all but the last have the same length
            longest = self._windows.length + self._around
            return SampleOrder(len(self), generator).plan(max(1, tokens // longest) if tokens else batch_size)
        every = torch.arange(len(self))
        lengths = self.lengths if generator is None else self._windows.longest(every) + self._around
        return bucket_batches(lengths, batch_size, generator, tokens)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield the batches of these windows, masked by the seed."""
        grid, lead = self._windows.grid(seed), self._around // 2
        for starts, counts in prefetch_windows(self.tokens, order, grid):
            count = counts[:, None]  # (N, 1)
            step = torch.arange(int(count.max()) + 2 * lead) - lead  # (T,)
            inside = (step >= 0) & (step < count)  # (N, T)
            place = (starts[:, None] + step).clamp(0, len(self.tokens) - 1)
            goes_on = self._goes_on[place] if self._goes_on is not None else None
            draw = AS_READ if seed is None else seed
            seen, target = self.masking.hide(self.tokens[place], place, inside, draw, goes_on)
            mask = (step >= -lead) & (step < count + lead)
            seen[~mask] = self.padding
            if self.frame is not None:
                seen[:, 0] = self.frame.begin
                seen.scatter_(1, count + lead, self.frame.end)
            yield Batch((seen, mask), target.masked_fill(~inside, IGNORED))

    def damaged(self, progress: Progress | None = None) -> list[Problem]:
        """Return every shard whose checksum differs, if the tokens are read from shards."""
        return damaged_token_shards(self.tokens, progress)

    def name(self, i: int) -> str:
        """Return the stream and the range of tokens in the window, counted from 0."""
        return self._windows.name(i, self._names)

    def row(self, i: int) -> dict[str, str] | None:
        """Return the window's text without masking."""
        starts, lengths = self._windows.grid()(torch.tensor([i]))
        return {"text": self._decode(self.tokens[int(starts) : int(starts + lengths)].tolist())}


GAP = "[MASK]"  # typed by a user for a token to predict


@dataclass(frozen=True)
class MaskedPreprocessing(StreamPreprocessing):
    """Conversion of text to windows in which some tokens are masked."""

    form: ClassVar[str] = "masked"
    least: ClassVar[int] = 1

    whole_words: bool = False  # choose the subwords of a word together

    SCHEMA: ClassVar[Mapping[str, Any]] = {**READING, "whole_words": bool}

    @property
    def masking(self) -> Masking:
        """The masking of tokens."""
        target = self.spec.target
        assert isinstance(target, Masked)
        special = special_ids(self.tokenizer)
        others = [i for i, token in enumerate(self.tokenizer.tokens) if token and i not in special]
        return Masking(target.mask, np.array(others, np.int64), target.mask_prob)

    def with_gaps(self, text: str) -> Tensor:
        """Return the tokens of a text, (T,), with special tokens, and the mask token in place of GAP.

        Raises DataError if there are more tokens than in training.
        """
        ids = self._gapped(text)
        if self.frame is not None:
            ids = torch.cat([torch.tensor([self.frame.begin]), ids, torch.tensor([self.frame.end])])
        if len(ids) > self.spec.longest:
            raise DataMismatchError(
                f"{text[:60]!r}… has {len(ids):,} tokens, and training had at most {self.spec.longest:,} at once.",
                fix="Give less of it around the gap.",
            )
        return ids

    def _gapped(self, text: str) -> Tensor:
        """Return the tokens of a text, (T,), with the mask token in place of GAP."""
        gap, nothing = torch.tensor([self.masking.mask]), torch.empty(0, dtype=torch.int64)
        first, *others = [self.encode(piece) if piece.strip() else nothing for piece in text.split(GAP)]
        return torch.cat([first, *(part for other in others for part in (gap, other))])

    def examples(self, sources: Sequence[Any]) -> Split:
        """Prepare running text; in a text with GAP, only the gaps are masked."""
        if not any(GAP in str(source) for source in sources):
            return super().examples(sources)
        return self.stream_split([self._gapped(str(source)) for source in sources], [str(source) for source in sources])

    @property
    def frame(self) -> SpecialTokens | None:
        """The special tokens around each window, if there are any."""
        return spec_special_tokens(self.spec)

    def stream_split(
        self, streams: Sequence[Tensor | ShardTokens], names: Sequence[str] = ("",), notes: Sequence[str] = ()
    ) -> MaskedSplit:
        """Return streams of at least 1 token as a split."""
        goes_on = None
        if self.whole_words:
            tokens = concatenate_streams(streams)
            assert isinstance(tokens, Tensor), "whole-word masking does not support tokens in shards"
            goes_on = torch.from_numpy(continues_word(self.tokenizer, tokens.numpy()))
        return MaskedSplit(
            streams,
            self.spec.longest,
            self.masking,
            self.decode,
            names,
            notes,
            frame=self.frame,
            goes_on=goes_on,
            padding=padding_id(self.tokenizer),
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` restores an equal object."""
        return {**super().to_json(), "whole_words": self.whole_words}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> MaskedPreprocessing:
        """Restore the object that `to_json` wrote. Raises ValueError if the document is inconsistent."""
        read = parse_stream_document(data)
        if not isinstance(read[0].target, Masked):
            raise ValueError(f"a preprocessing of masked text whose target is {read[0].target.column}")
        return cls(*read, whole_words=bool(data["whole_words"]))


MASK_PROB = 0.15
MASKED, RANDOM = 0.8, 0.1  # fractions of the chosen tokens; the rest is unchanged
CHOICE, FATE, OTHER = range(3)  # draws for each position

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Masking:
    """Random masking of tokens."""

    mask: int  # the mask token
    others: Numbers  # (K,) candidates for random replacement, without special tokens
    mask_prob: float = MASK_PROB

    def hide(
        self, tokens: Tensor, places: Tensor, real: Tensor, seed: int, goes_on: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the masked `tokens` (N, T), and the targets, IGNORED where nothing is to be predicted.

        `places` (N, T) are the positions in the whole text, which determine the draws together with the seed. Only
        `real` (N, T) tokens are chosen, at least one in each row that has one. With `goes_on` (N, T), True where a
        token continues the word of the previous token, whole words are chosen. A row that already has mask tokens, as
        typed by a user, is unchanged.
        """
        written = (tokens == self.mask).any(1, keepdim=True)
        at, may = places.numpy(), (real & ~written).numpy()
        wanted = np.maximum(1, np.rint(self.mask_prob * may.sum(1)))  # (N,)
        chosen = self._choose(at, may, wanted, seed, goes_on.numpy() if goes_on is not None else None)
        fate = uniform(seed, at, FATE)
        any_token = self.others[(uniform(seed, at, OTHER) * len(self.others)).astype(np.int64)]
        seen = tokens.numpy().copy()
        seen[chosen & (fate < MASKED)] = self.mask
        swapped = chosen & (fate >= MASKED) & (fate < MASKED + RANDOM)
        seen[swapped] = any_token[swapped]
        return torch.from_numpy(seen), tokens.masked_fill(~torch.from_numpy(chosen), IGNORED)

    def _choose(
        self, at: Numbers, may: Flags, wanted: npt.NDArray[np.float64], seed: int, goes_on: Flags | None
    ) -> Flags:
        """Choose the tokens to predict, (N, T)."""
        if goes_on is None:
            order = np.where(may, uniform(seed, at, CHOICE), np.inf)
            rank = order.argsort(1, kind="stable").argsort(1)
            found: Flags = may & (rank < wanted[:, None])
            return found
        step = np.arange(at.shape[1])
        begins = may & (~goes_on | ~np.pad(may, ((0, 0), (1, 0)))[:, :-1])  # the first token of each word
        first = np.maximum.accumulate(np.where(begins, step, 0), 1)  # (N, T) start of the word of each token
        drawn = np.take_along_axis(uniform(seed, at, CHOICE), first, 1)
        order = np.where(may, drawn, np.inf).argsort(1, kind="stable")  # words in random order, subwords together
        size = np.zeros_like(at)  # size of the word that starts here
        np.add.at(size, (np.arange(len(at))[:, None], first), may.astype(np.int64))
        sizes = np.take_along_axis(np.take_along_axis(size, first, 1), order, 1)  # of the words, in that order
        heads = np.take_along_axis(begins, order, 1)
        # The tokens of a word are consecutive in this order, so its first position is the number chosen before it.
        before = np.maximum.accumulate(np.where(heads, step, 0), 1)
        taken = (before == 0) | (before + sizes / 2 <= wanted[:, None])
        back = np.empty_like(taken)
        np.put_along_axis(back, order, taken, 1)
        whole: Flags = back & may
        return whole


Keys = npt.NDArray[np.uint64]
GAMMA = np.uint64(0x9E3779B97F4A7C15)  # the odd number next to 2⁶⁴ / golden ratio


def mix_bits(keys: Keys) -> Keys:
    """Mix all bits of each number by a bijection."""
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))


def uniform(seed: int, places: npt.NDArray[np.int64], draw: int) -> npt.NDArray[np.float64]:
    """Return a number in [0, 1) for each position, of any shape. `draw` distinguishes several draws at a position."""
    first = mix_bits(np.array([seed % 2**64, draw], np.uint64) * GAMMA + GAMMA)
    stream = mix_bits(first[:1] + GAMMA * (first[1:] | np.uint64(1)))
    keys = mix_bits(stream + GAMMA * (places.astype(np.uint64) + np.uint64(1)))
    return (keys >> np.uint64(11)).astype(np.float64) * 2.0**-53
