"""Statistics of a corpus from one pass: number of characters, their counts, and their positions.

They define the splits and the vocabulary of characters, with only one block in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from .corpus import Corpus, CorpusPartStats, Place
from .writer import map_in_processes

PART = 1 << 26  # bytes read by one job


@dataclass(frozen=True)
class CorpusIndex:
    """The statistics of a corpus, part by part."""

    corpus: Corpus
    parts: Sequence[tuple[Place, Place]]
    seen: Sequence[CorpusPartStats]
    lower: bool

    @classmethod
    def at(cls, corpus: Corpus, lower: bool, workers: int) -> CorpusIndex:
        """Read a whole corpus with `workers` processes. Raises DataError, with byte and line, unless it is text."""
        parts = corpus.parts(PART)
        seen = [*map_in_processes(partial(_look, corpus, lower), parts, workers)]
        return cls(corpus, parts, seen, lower)

    @property
    def characters(self) -> int:
        """The number of characters of the whole text."""
        return sum(part.characters for part in self.seen)

    @property
    def letters(self) -> Counter[str]:
        """The count of each character."""
        return self._sum(len(self.seen))

    def place(self, characters: int) -> Place:
        """Return the place after this number of characters."""
        for (start, stop), part in zip(self.parts, self.seen):
            if characters <= part.characters:
                return self.corpus.place_in(start, stop, characters)
            characters -= part.characters
        return self.corpus.end

    def letters_up_to(self, characters: int) -> Counter[str]:
        """Return the count of each character in the first `characters` characters."""
        whole = left = 0
        for part in self.seen:
            if characters < left + part.characters:
                break
            whole, left = whole + 1, left + part.characters
        found = self._sum(whole)
        if left < characters:
            for text in self.corpus.chunks(self.place(left), self.place(characters)):
                found.update(text.lower() if self.lower else text)
        return found

    def text(self, start: int, stop: int) -> str:
        """Return the characters from `start` to `stop`."""
        return "".join(self.corpus.chunks(self.place(start), self.place(stop)))

    def after_blank(self, start: int, place: int) -> int:
        """Return the position after the last blank between `start` and `place`, or `place` if none exists nearby."""
        back = 1 << 16
        while back <= 1 << 24:
            near = self.text(max(start, place - back), place)
            if blank := max(near.rfind(" "), near.rfind("\n")) + 1:
                return place - len(near) + blank
            back = back << 4 if place - back > start else 1 << 25
        return place

    def notes(self) -> list[str]:
        """Return notes on differences between the text and the files."""
        returns = sum(part.returns for part in self.seen)
        return [f"{returns:,} line ends are written with a carriage return, and are read without."] if returns else []

    def _sum(self, parts: int) -> Counter[str]:
        found: Counter[str] = Counter()
        for part in self.seen[:parts]:
            found.update(part.letters)
        return found


def _look(corpus: Corpus, lower: bool, part: tuple[Place, Place]) -> CorpusPartStats:
    return corpus.look(*part, lower)
