"""A corpus as a first look at all of it finds it: how many characters it has, which, and where each of them stands.

That is what its splits are cut by, and what a vocabulary of characters is made of, with no more than a block of it in
memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from .corpus import Corpus, Place, Seen
from .writer import in_processes

PART = 1 << 26  # bytes that are looked at in one go


@dataclass(frozen=True)
class Looked:
    """The files of a split, part by part."""

    corpus: Corpus
    parts: Sequence[tuple[Place, Place]]
    seen: Sequence[Seen]
    lower: bool

    @classmethod
    def at(cls, corpus: Corpus, lower: bool, workers: int) -> Looked:
        """Look at all of a corpus, by so many processes. Raises DataError, with file, byte and line, where it is no
        text."""
        parts = corpus.parts(PART)
        seen = [*in_processes(partial(_look, corpus, lower), parts, workers)]
        return cls(corpus, parts, seen, lower)

    @property
    def characters(self) -> int:
        """Of the whole text."""
        return sum(part.characters for part in self.seen)

    @property
    def letters(self) -> Counter[str]:
        """How often each character occurs."""
        return self._sum(len(self.seen))

    def place(self, characters: int) -> Place:
        """The place after so many characters."""
        for (start, stop), part in zip(self.parts, self.seen):
            if characters <= part.characters:
                return self.corpus.place_in(start, stop, characters)
            characters -= part.characters
        return self.corpus.end

    def letters_up_to(self, characters: int) -> Counter[str]:
        """How often each character occurs among the first so many."""
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
        """The characters from one on up to another."""
        return "".join(self.corpus.chunks(self.place(start), self.place(stop)))

    def after_blank(self, start: int, place: int) -> int:
        """After the last blank before a place, from `start` on, or the place itself, where there is none for long."""
        back = 1 << 16
        while back <= 1 << 24:
            near = self.text(max(start, place - back), place)
            if blank := max(near.rfind(" "), near.rfind("\n")) + 1:
                return place - len(near) + blank
            back = back << 4 if place - back > start else 1 << 25
        return place

    def notes(self) -> list[str]:
        """Sentences on what was read otherwise than it is written."""
        returns = sum(part.returns for part in self.seen)
        return [f"{returns:,} line ends are written with a carriage return, and are read without."] if returns else []

    def _sum(self, parts: int) -> Counter[str]:
        found: Counter[str] = Counter()
        for part in self.seen[:parts]:
            found.update(part.letters)
        return found


def _look(corpus: Corpus, lower: bool, part: tuple[Place, Place]) -> Seen:
    return corpus.look(*part, lower)
