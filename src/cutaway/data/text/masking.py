"""Masked language modelling: masked tokens are predicted from those around them, as in BERT.

J. Devlin, M.-W. Chang, K. Lee, K. Toutanova, BERT, 2018, section 3.1 and appendix C.1,
<https://arxiv.org/abs/1810.04805>. Of each example max(1, round(mask_prob · n)) of its n tokens are chosen, as in the
released code; of these 80 % become the mask, 10 % a random token, and 10 % are unchanged.

With whole-word masking (the authors' later release) the subwords of a word are chosen together or not at all: random
words, until enough tokens are chosen; the last word is chosen if at least half of it still fits.

Random numbers that depend only on a seed and a position, not on other draws.

An example has the same draws in every batch, alone, and after a run is resumed. The mixing function is that of
SplitMix64: G. L. Steele, D. Lea, C. H. Flood, Fast splittable pseudorandom number generators, 2014,
<https://doi.org/10.1145/2660193.2660195>.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...core.errors import DataError, Problem
from ...core.spec import Masked
from ..dataset_base import IGNORED, Batch, Split
from ..parallel import Progress
from ..samplers import HELD, Batches, SampleOrder, bucket_batches
from ..streaming.tokens import ShardTokens, concatenate_streams, damaged_token_shards, prefetch_windows, stream_targets
from .corpus_transforms import READING, StreamPreprocessing, Windows, parse_stream_document
from .tokenizer_files import SpecialTokens, padding_id, spec_special_tokens, special_ids
from .tokenizers import continues_word

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
            raise DataError(
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
