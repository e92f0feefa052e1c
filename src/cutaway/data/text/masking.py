"""Masked-language modelling: hidden tokens are predicted from those around them, as in BERT.

J. Devlin, M.-W. Chang, K. Lee, K. Toutanova, BERT, 2018, section 3.1 and appendix C.1,
<https://arxiv.org/abs/1810.04805>. Of each example max(1, round(mask_prob · n)) of its n tokens are chosen, as the
released code has it; of these 80 % become the mask, 10 % any token, 10 % stay as they are.

With whole words (the authors' later release) the subwords of a word are chosen together or not at all: words at random,
until as many tokens are chosen; the last word is taken where at least half of it still fits.
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
from ..bucketing import bucketed
from ..dataset_base import IGNORED, Batch, Split
from ..parallel import Progress
from ..samplers import HELD, Batches, Order
from ..streaming.tokens import ShardTokens, damaged_of, reading_ahead, targets_of, together
from .corpus_transforms import READING, Reading, read_back
from .positional_random import uniform
from .tokenizer_fitting import Frame, frame_of, padding_of, special_of
from .whole_words import continuing
from .windows import Windows

AS_READ = 0  # the seed of what is hidden when nothing is learned


class MaskedSplit(Split):
    """One or several streams of tokens, in windows of which some tokens are hidden.

    inputs are tokens (N, T) and a mask (N, T), True where a token is real; target (N, T) is the token where it was
    chosen to be predicted, IGNORED elsewhere. T counts the frame, where there is one. With a seed other tokens are
    chosen each time, and the windows lie on a grid that it shifts; without one the choice is always the same. What is
    hidden depends on the seed and the place in the text alone, not on the batch.
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
        frame: Frame | None = None,
        goes_on: Tensor | None = None,
        padding: int = 0,
    ) -> None:
        """`streams` are token ids, (n,) int64 with n ≥ 1 each, or one in shards; `length` is that of a window with its
        frame. `goes_on` (Σ n,) is True where a token goes on with the word of the one before it, where words are to be
        chosen whole."""
        self.tokens = together(streams)  # (Σ n,)
        self.target, self.target_counts = targets_of(streams, first=0)
        self.masking, self.frame, self.padding = masking, frame, padding
        self.notes = list(notes)
        self._decode, self._names, self._goes_on = decode, names, goes_on
        self._around = 2 if frame else 0
        self._windows = Windows([len(stream) for stream in streams], gap=0, length=length - self._around)

    def __len__(self) -> int:
        return len(self._windows)

    @property
    def lengths(self) -> Tensor:
        """The length of each window, with its frame, (n,)."""
        return self._windows.grid()(torch.arange(len(self)))[1] + self._around

    def plan(self, batch_size: int, generator: torch.Generator | None, tokens: int = 0) -> Batches:
        """Batches of windows of nearly equal length."""
        if len(self) > HELD and len(self._windows.of_stream) == 1:  # all but the last are of one length
            longest = self._windows.length + self._around
            return Order(len(self), generator).plan(max(1, tokens // longest) if tokens else batch_size)
        every = torch.arange(len(self))
        lengths = self.lengths if generator is None else self._windows.longest(every) + self._around
        return bucketed(lengths, batch_size, generator, tokens)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """The batches of these windows, with what the seed hides in them."""
        grid, lead = self._windows.grid(seed), self._around // 2
        for starts, counts in reading_ahead(self.tokens, order, grid):
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
        """Every shard whose content is not what was written, where the tokens are read from shards."""
        return damaged_of(self.tokens, progress)

    def name(self, i: int) -> str:
        """The stream, and which of its tokens the window holds, counted from 0."""
        return self._windows.name(i, self._names)

    def row(self, i: int) -> dict[str, str] | None:
        """The window's text, nothing hidden."""
        starts, lengths = self._windows.grid()(torch.tensor([i]))
        return {"text": self._decode(self.tokens[int(starts) : int(starts + lengths)].tolist())}


GAP = "[MASK]"  # what a person writes for a token that is to be predicted


@dataclass(frozen=True)
class MaskedPreprocessing(Reading):
    """How text becomes windows of which some tokens are hidden."""

    form: ClassVar[str] = "masked"
    least: ClassVar[int] = 1

    whole_words: bool = False  # choose the subwords of a word together

    SCHEMA: ClassVar[Mapping[str, Any]] = {**READING, "whole_words": bool}

    @property
    def masking(self) -> Masking:
        """How tokens are hidden."""
        target = self.spec.target
        assert isinstance(target, Masked)
        special = special_of(self.tokenizer)
        others = [i for i, token in enumerate(self.tokenizer.tokens) if token and i not in special]
        return Masking(target.mask, np.array(others, np.int64), target.mask_prob)

    def with_gaps(self, text: str) -> Tensor:
        """The tokens of a text, (T,), in its frame, with the token that stands for a hidden one where GAP is written.

        Raises DataError where there are more tokens than the model was given in training.
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
        """The tokens of a text, (T,), with the token that stands for a hidden one where GAP is written."""
        gap, nothing = torch.tensor([self.masking.mask]), torch.empty(0, dtype=torch.int64)
        first, *others = [self.encode(piece) if piece.strip() else nothing for piece in text.split(GAP)]
        return torch.cat([first, *(part for other in others for part in (gap, other))])

    def examples(self, sources: Sequence[Any]) -> Split:
        """As of running text; a text in which GAP is written is seen as it is written, with nothing else hidden."""
        if not any(GAP in str(source) for source in sources):
            return super().examples(sources)
        return self.stream_split([self._gapped(str(source)) for source in sources], [str(source) for source in sources])

    @property
    def frame(self) -> Frame | None:
        """The tokens around each window, where it has some."""
        return frame_of(self.spec)

    def stream_split(
        self, streams: Sequence[Tensor | ShardTokens], names: Sequence[str] = ("",), notes: Sequence[str] = ()
    ) -> MaskedSplit:
        """Streams of at least 1 token as a split."""
        goes_on = None
        if self.whole_words:
            tokens = together(streams)
            assert isinstance(tokens, Tensor), "whole words are not told of tokens in shards"
            goes_on = torch.from_numpy(continuing(self.tokenizer, tokens.numpy()))
        return MaskedSplit(
            streams,
            self.spec.longest,
            self.masking,
            self.decode,
            names,
            notes,
            frame=self.frame,
            goes_on=goes_on,
            padding=padding_of(self.tokenizer),
        )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` gives an equal object back."""
        return {**super().to_json(), "whole_words": self.whole_words}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> MaskedPreprocessing:
        """The object that `to_json` wrote. Raises ValueError where the document, which is as SCHEMA says, cannot be."""
        read = read_back(data)
        if not isinstance(read[0].target, Masked):
            raise ValueError(f"a preprocessing of masked text whose target is {read[0].target.column}")
        return cls(*read, whole_words=bool(data["whole_words"]))


MASK_PROB = 0.15
MASKED, RANDOM = 0.8, 0.1  # of the chosen tokens; the rest stays
CHOICE, FATE, OTHER = range(3)  # what is drawn for each place

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Masking:
    """How tokens are hidden."""

    mask: int  # the token that stands for a hidden one
    others: Numbers  # (K,) the tokens that may stand there instead: none that is no text
    mask_prob: float = MASK_PROB

    def hide(
        self, tokens: Tensor, places: Tensor, real: Tensor, seed: int, goes_on: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """What the model sees of `tokens` (N, T), and what it is to predict, IGNORED where nothing.

        `places` (N, T) are where the tokens stand in the whole text: what is drawn belongs to the place and the seed.
        Only `real` (N, T) tokens are chosen, at least one in each row that has one. With `goes_on` (N, T), True where
        a token goes on with the word of the one before it, words are chosen whole. A row that has hidden tokens
        already, as a person writes them, is left as it is.
        """
        written = (tokens == self.mask).any(1, keepdim=True)
        at, may = places.numpy(), (real & ~written).numpy()
        wanted = np.maximum(1, np.rint(self.mask_prob * may.sum(1)))  # (N,)
        chosen = self._chosen(at, may, wanted, seed, goes_on.numpy() if goes_on is not None else None)
        fate = uniform(seed, at, FATE)
        any_token = self.others[(uniform(seed, at, OTHER) * len(self.others)).astype(np.int64)]
        seen = tokens.numpy().copy()
        seen[chosen & (fate < MASKED)] = self.mask
        swapped = chosen & (fate >= MASKED) & (fate < MASKED + RANDOM)
        seen[swapped] = any_token[swapped]
        return torch.from_numpy(seen), tokens.masked_fill(~torch.from_numpy(chosen), IGNORED)

    def _chosen(
        self, at: Numbers, may: Flags, wanted: npt.NDArray[np.float64], seed: int, goes_on: Flags | None
    ) -> Flags:
        """Which tokens are chosen, (N, T)."""
        if goes_on is None:
            order = np.where(may, uniform(seed, at, CHOICE), np.inf)
            rank = order.argsort(1, kind="stable").argsort(1)
            found: Flags = may & (rank < wanted[:, None])
            return found
        step = np.arange(at.shape[1])
        begins = may & (~goes_on | ~np.pad(may, ((0, 0), (1, 0)))[:, :-1])  # the first token of each word here
        first = np.maximum.accumulate(np.where(begins, step, 0), 1)  # (N, T) where the word of each token begins
        drawn = np.take_along_axis(uniform(seed, at, CHOICE), first, 1)
        order = np.where(may, drawn, np.inf).argsort(1, kind="stable")  # words at random, the subwords of one together
        size = np.zeros_like(at)  # of the word that begins there
        np.add.at(size, (np.arange(len(at))[:, None], first), may.astype(np.int64))
        sizes = np.take_along_axis(np.take_along_axis(size, first, 1), order, 1)  # of the words, in that order
        heads = np.take_along_axis(begins, order, 1)
        # A word's tokens stand one after another in this order, its first in front: so many were chosen before it.
        before = np.maximum.accumulate(np.where(heads, step, 0), 1)
        taken = (before == 0) | (before + sizes / 2 <= wanted[:, None])
        back = np.empty_like(taken)
        np.put_along_axis(back, order, taken, 1)
        whole: Flags = back & may
        return whole
