"""A text in stretches, for word vectors: which words are kept, how far windows reach, and noise, all from one seed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..sets import Batch, Split

STRETCH = 16  # words that share their noise; an example
NOISE = 16  # noise words that they share
POWER = 0.75  # of a word's count, in its probability as noise
USUAL_SHARE = 0.025  # of the commonest word in the noise, at most, in long texts
WINDOW, SUBSAMPLE = 5, 1e-3  # as in word2vec.c


@dataclass(frozen=True)
class Draws:
    """What is drawn of a text: which words are kept, how far their windows reach, and the noise."""

    counts: Tensor  # (V,) int64, of each word in the training split; 0 for padding and unknown
    window: int = WINDOW
    subsample: float = SUBSAMPLE  # t; 0 keeps all words

    @property
    def keep(self) -> Tensor:
        """The probability that an occurrence of each word is kept, (V,) float64: (√(f/t) + 1) · t/f, at most 1."""
        if not self.subsample:
            return torch.ones(len(self.counts), dtype=torch.float64)
        over = self.counts.double() / (self.counts.sum().item() * self.subsample)  # f/t
        return ((over.sqrt() + 1) / over).clamp(max=1)  # words that never occur: 1

    @property
    def noise(self) -> Tensor:
        """The probability of each word as noise, (V,) float64."""
        powers = self.counts.double() ** POWER
        return powers / powers.sum()


class Laid(NamedTuple):
    """A text as it is learned from in one epoch, in n stretches of L words; the last may be partly or wholly empty."""

    words: Tensor  # (b + n L + b,) int64, padding at the ends
    reach: Tensor  # (n, L, 2) int64: words before and after each that are its context
    noise: Tensor  # (n, K) int64


class ContextSplit(Split):
    """A text in stretches of 16 kept words, which are its examples: as many as there is text for in every epoch.

    inputs are words (N, L + 2b) with b words of margin on either side, a mask of what is real there, the reach of each
    window in the middle (N, L, 2), and noise words (N, K); target (N, L) counts the words in each window.
    """

    def __init__(
        self, ids: Tensor, lengths: Tensor, draws: Draws, tokens: Sequence[str], notes: Iterable[str] = ()
    ) -> None:
        """`ids` (Σ lengths,) are the words of paragraphs of these `lengths`, none of them unknown."""
        self.target: Tensor | None = ids
        self.draws, self.notes = draws, list(notes)
        self.ids, self._tokens = ids, tokens
        self._keep = draws.keep[ids]  # (Σ lengths,)
        self.paragraph = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
        self._alias = alias(draws.noise)
        # How many words an epoch keeps is drawn too: six standard deviations more than usual are passed once in 10⁹
        # epochs.
        most = float(self._keep.sum() + 6 * (self._keep * (1 - self._keep)).sum().sqrt())
        self._size = -(-min(int(most) + 1, len(ids)) // STRETCH)
        self._as_read: Laid | None = None

    def __len__(self) -> int:
        return self._size

    def plan(self, batch_size: int, generator: torch.Generator | None) -> list[Tensor]:
        """Stretches at random; in training fewer in a batch than were asked for, where `shrink` is below 1."""
        if generator is None:
            return list(torch.split(torch.arange(len(self)), batch_size))
        order = torch.randperm(len(self), generator=generator)
        return list(torch.split(order, max(1, int(batch_size * self.shrink))))

    @property
    def shrink(self) -> float:
        """The factor on the size of a batch. The gradients of a word are added up over it, and where one word is a
        large fraction of the noise, so many of them would overshoot."""
        return min(1.0, USUAL_SHARE / float(self.draws.noise.max()))

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """The batches of these stretches, as they are drawn from the seed; None stands for draws of its own."""
        laid = self._lay(seed)
        stretches = laid.words.unfold(0, STRETCH + 2 * self.draws.window, STRETCH)  # (n, L + 2b), nothing copied
        for index in order:
            words, reach = stretches.index_select(0, index), laid.reach.index_select(0, index)
            yield Batch((words, words > 0, reach, laid.noise.index_select(0, index)), reach.sum(2))

    def name(self, i: int) -> str:
        """Which of the words that are kept it holds, counted from 0."""
        return f"words {i * STRETCH} to {(i + 1) * STRETCH - 1}"

    def row(self, i: int) -> dict[str, str] | None:
        """Its words."""
        start = i * STRETCH + self.draws.window
        words = self._lay(None).words[start : start + STRETCH].tolist()
        return {"text": " ".join(self._tokens[w] for w in words if w)}

    def _lay(self, seed: int | None) -> Laid:
        """The text as it is drawn from the seed."""
        if seed is None:
            if self._as_read is None:
                self._as_read = self._drawn(torch.Generator().manual_seed(0))
            return self._as_read
        return self._drawn(torch.Generator().manual_seed(seed))

    def _drawn(self, generator: torch.Generator) -> Laid:
        margin, room = self.draws.window, len(self) * STRETCH
        kept = torch.rand(len(self.ids), generator=generator, dtype=torch.float64) < self._keep
        words, paragraph = self.ids[kept][:room], self.paragraph[kept][:room]
        count = len(words)
        widths = torch.randint(1, margin + 1, (count,), generator=generator)
        reach = torch.zeros(room, 2, dtype=torch.int64)
        for side, far in enumerate(within(paragraph)):
            reach[:count, side] = torch.minimum(widths, far)
        padded = torch.zeros(room + 2 * margin, dtype=torch.int64)
        padded[margin : margin + count] = words
        noise = draw_alias(*self._alias, (len(self), NOISE), generator)
        return Laid(padded, reach.view(len(self), STRETCH, 2), noise)


def alias(probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """A table to draw from a distribution (V,) in constant time: for each of V equal shares where it is cut, (V,), and
    whose the rest is, (V,). After A. J. Walker, 1977, <https://doi.org/10.1145/355744.355749>."""
    size = len(probabilities)
    cut = (probabilities * size).tolist()
    rest = list(range(size))
    small, large = [i for i in rest if cut[i] < 1], [i for i in rest if cut[i] >= 1]
    while small and large:
        least, most = small.pop(), large[-1]
        rest[least] = most
        cut[most] -= 1 - cut[least]
        if cut[most] < 1:
            small.append(large.pop())
    for i in large:
        cut[i] = 1.0
    for i in small:  # what rounding has left over
        cut[i] = 1.0 if probabilities[i] else 0.0
        rest[i] = rest[i] if probabilities[i] else int(probabilities.argmax())
    return torch.tensor(cut, dtype=torch.float64), torch.tensor(rest)


def draw_alias(cut: Tensor, rest: Tensor, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Numbers drawn from the table."""
    drawn = torch.rand(shape, generator=generator, dtype=torch.float64) * len(cut)
    share = drawn.long()
    return torch.where(drawn - share < cut[share], share, rest[share])


def within(paragraph: Tensor) -> tuple[Tensor, Tensor]:
    """How many words stand before and after each in its paragraph, (n,) each; `paragraph` is its number, rising."""
    _, lengths = torch.unique_consecutive(paragraph, return_counts=True)
    starts = torch.repeat_interleave(lengths.cumsum(0) - lengths, lengths)
    before = torch.arange(len(paragraph)) - starts
    return before, torch.repeat_interleave(lengths, lengths) - 1 - before
