"""One split of a data set of pairs, in memory: sources and targets one after another, padded batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from ...errors import DataError, Problem
from ..lengths import bucketed
from ..sets import IGNORED, Batch, SequenceSplit, Split

Ids = list[int]


class PairsSplit(Split):
    """Examples are sources (n), and their targets where they have some."""

    def __init__(
        self,
        source: tuple[Tensor, Tensor],
        target: tuple[Tensor, Tensor] | None,
        begin: int,
        names: Sequence[str] | Callable[[int], str],
        row: Callable[[int], dict[str, str] | None] | None = None,
        references: Mapping[int, list[Ids]] | None = None,
        notes: Sequence[str] = (),
        *,
        padding: int = 0,
        texts: Callable[[int], list[str]] | None = None,
        empty: Sequence[int] = (),
    ) -> None:
        """`source` and `target` are ids (Σ lengths,) and lengths (n,), each at least 1; targets end with `end`.

        `references` are all the right answers, without `end`, of those examples that have several; `texts` gives the
        right answers to an example as they were written, where they are sentences. `empty` are the examples without a
        source, to which the answer is nothing.
        """
        self._sources = SequenceSplit(*source, None)
        self._targets = SequenceSplit(*target, None) if target is not None else None
        self.target = target[0] if target is not None else None  # token after token, (Σ lengths,)
        self.notes, self.empty, self.texts = list(notes), list(empty), texts
        self._begin, self._names, self._row, self._references = begin, names, row, references or {}
        self._padding = padding

    def __len__(self) -> int:
        return len(self._sources)

    @property
    def source(self) -> tuple[Tensor, Tensor]:
        """The ids of the sources one after another, (Σ lengths,), and how many of each, (n,)."""
        return self._sources.values, self._sources.lengths

    @property
    def answers(self) -> tuple[Tensor, Tensor]:
        """The ids of the targets with `end`, (Σ lengths,), and how many of each, (n,); both empty without targets."""
        if self._targets is None:
            return torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.long)
        return self._targets.values, self._targets.lengths

    @property
    def lengths(self) -> Tensor:
        """The tokens of the longer side of each example, (n,)."""
        source = self._sources.lengths
        return source if self._targets is None else torch.maximum(source, self._targets.lengths)

    def plan(self, batch_size: int, generator: torch.Generator | None, tokens: int = 0) -> list[Tensor]:
        """Batches of examples whose longer sides are of nearly equal length, and, among those, their sources.

        With `tokens`, each holds as many examples as fit: their number times the longest sequence of either side is at
        most that, or there is but one.
        """
        longer, source = self.lengths, self._sources.lengths
        order = longer * (int(source.max()) + 1) + source if len(self) else longer
        return bucketed(longer, batch_size, generator, tokens, by=order)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Inputs: source (N, T), its mask (N, T), the target so far (N, S), which begins with `begin`. Target (N, S):
        what comes next, IGNORED after `end`. Without targets S is 1 and the target is empty."""
        del seed
        for index in order:
            source, mask = next(self._sources.batches([index])).inputs  # (N, T)
            if self._padding:
                source = source.masked_fill(~mask, self._padding)
            begin = torch.full((len(index), 1), self._begin)
            if self._targets is None:
                yield Batch((source, mask, begin), torch.empty(len(index), 0))
                continue
            target, real = next(self._targets.batches([index])).inputs  # (N, S)
            so_far = torch.cat([begin, target[:, :-1]], 1).masked_fill(~real, self._padding)
            yield Batch((source, mask, so_far), target.masked_fill(~real, IGNORED))

    def references(self, i: int) -> list[Ids]:
        """All the right answers to example i, as ids without `end`; none where it has no target."""
        if i in self._references:
            return self._references[i]
        if self._targets is None:
            return []
        start, length = int(self._targets.starts[i]), int(self._targets.lengths[i])
        return [self._targets.values[start : start + length - 1].tolist()]

    def reject_longer(self, most: int) -> None:
        """Raise DataError, naming each, where sources have more than `most` tokens."""
        lengths = self._sources.lengths
        problems = [
            Problem(self.name(i), f"it has {int(lengths[i]):,} tokens")
            for i in (lengths > most).nonzero()[:, 0].tolist()
        ]
        if problems:
            raise DataError(
                f"The model reads at most {most:,} tokens, and these sources are longer:",
                problems,
                "Give them in several pieces, such as one sentence on a line.",
            )

    def name(self, i: int) -> str:
        """What a person calls the example."""
        return self._names(i) if callable(self._names) else self._names[i]

    def row(self, i: int) -> dict[str, str] | None:
        """The example as the person gave it: source, and target where there is one."""
        return self._row(i) if self._row else None
