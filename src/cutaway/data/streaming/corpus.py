"""Text that is read in parts: the files of a split one after another, never held completely in memory.

The result equals that of `running_files.read_text` and `joined` for the same files: UTF-8 without a byte order mark,
line ends as \\n, and one after the last line of each file but the last. A place in it is a byte of a file.

Statistics of a corpus from one pass: number of characters, their counts, and their positions.

They define the splits and the vocabulary of characters, with only one block in memory.
"""

from __future__ import annotations

import bisect
import codecs
import hashlib
import itertools
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...core.errors import DataError, Problem
from ...core.files import open_regular, require_regular_file, unreadable_error
from ..text.corpus_transforms import PIECE
from ..text.text_files import UTF8, decode_utf8
from .prepare import map_in_processes

BLOCK = 1 << 20  # bytes per read
FAR = 1 << 24  # maximum characters searched for a place to cut the text
CODE_POINTS = 0x110000
BLANK = re.compile(r"(?<=\S)\s")


class Place(NamedTuple):
    """A position before a byte of a file; after the last byte it is before the line end that follows the file."""

    file: int
    offset: int


@dataclass(frozen=True)
class CorpusPartStats:
    """Statistics of a part of a corpus."""

    characters: int  # including the line end that follows the file, if the part ends there
    letters: dict[str, int]  # count of each character, in lower case if requested
    returns: int  # line ends with a carriage return


@dataclass(frozen=True)
class Corpus:
    """The concatenated text of files."""

    files: Sequence[Path]
    sizes: Sequence[int]  # bytes of each

    @classmethod
    def of(cls, files: Sequence[Path]) -> Corpus:
        """Build the corpus of these files. Raises FileError for an irregular file, and DataError for an empty one."""
        sizes = []
        for path in files:
            require_regular_file(path)
            sizes.append(path.stat().st_size)
            if sizes[-1] <= (len(codecs.BOM_UTF8) if _marked(path) else 0):
                raise DataError(f"{path} is empty: it has {sizes[-1]} bytes.", fix="Was it saved or copied to the end?")
        return cls(files, sizes)

    @property
    def begin(self) -> Place:
        """The position of the first character."""
        return Place(0, 0)

    @property
    def end(self) -> Place:
        """The position after the last character."""
        return Place(len(self.files) - 1, self.sizes[-1])

    # --- reading --------------------------------------------------------------------------------------------------

    def chunks(self, begin: Place, end: Place) -> Iterator[str]:
        """Yield the text between two places in small chunks. Raises DataError, with byte and line, if it is no text."""
        for _, raw in self._raw(begin, end):
            yield raw.replace("\r\n", "\n").replace("\r", "\n") if "\r" in raw else raw

    def pieces(self, begin: Place, end: Place, blanks: bool, anywhere: bool) -> Iterator[str]:
        """Yield the text between two places in pieces that do not change its tokenization.

        Cuts are before line ends; in very long lines also before a blank, with `blanks`, or `anywhere`. Raises
        DataError if there is no such place.
        """
        held = ""
        for chunk in self.chunks(begin, end):
            held += chunk
            while at := find_cut(held, PIECE, blanks, anywhere):
                yield held[:at]
                held = held[at:]
            if len(held) > FAR:
                raise self.too_long(begin)
        if held:
            yield held

    def too_long(self, place: Place) -> DataError:
        """Return the error for a text without a place to cut."""
        return DataError(
            f"{self.files[place.file]} has no line end for {FAR:,} characters and more, somewhere from byte "
            f"{place.offset:,} on, and its tokenizer cannot cut a text elsewhere.",
            fix="Break its lines at blanks; or take tokenizer=characters.",
        )

    # --- looking at it first --------------------------------------------------------------------------------------

    def parts(self, size: int) -> list[tuple[Place, Place]]:
        """Split the text into parts of about `size` bytes without splitting characters or line ends."""
        before = [0, *itertools.accumulate(self.sizes)]  # bytes of the files before each
        found = [self.begin]
        for at in range(size, before[-1], size):
            k = bisect.bisect(before, at) - 1
            found.append(Place(k, self._whole(k, at - before[k])))
        return [*pairwise([*found, self.end])]

    def look(self, begin: Place, end: Place, lower: bool = False) -> CorpusPartStats:
        """Compute statistics of a part. Raises DataError, with byte and line, if it is not UTF-8 text."""
        characters = returns = 0
        letters = np.zeros(CODE_POINTS, np.int64)
        for _, text in self._raw(begin, end):
            if found := text.count("\r"):
                returns += found
                text = text.replace("\r\n", "\n").replace("\r", "\n")
            characters += len(text)
            points = np.frombuffer((text.lower() if lower else text).encode("utf-32-le"), np.uint32)
            counts = np.bincount(points)
            letters[: len(counts)] += counts
        return CorpusPartStats(characters, {chr(i): int(letters[i]) for i in np.flatnonzero(letters).tolist()}, returns)

    def sha256(self, k: int) -> str:
        """Return the sha256 of a file's bytes."""
        try:
            with open_regular(self.files[k]) as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise unreadable_error(self.files[k], error) from error

    def place_in(self, begin: Place, end: Place, characters: int) -> Place:
        """Return the place after this number of characters of a part that `look` has read."""
        left = characters
        for place, text in self._raw(begin, end):
            count = len(text) - text.count("\r\n")
            if left > count:
                left -= count
                continue
            for found in re.finditer("\r\n", text):  # counts as one character
                if found.start() >= left:
                    break
                left += 1
            if place.offset == self.sizes[place.file]:  # the line end that follows the file
                return Place(place.file + left, 0 if left else place.offset)
            return Place(place.file, place.offset + len(text[:left].encode()))
        return end

    def cut_after(self, place: Place, end: Place, blanks: bool, anywhere: bool) -> Place:
        """Return the first place from `place` on at which the text may be cut, or `end`. Raises as `pieces`."""
        k, offset = place
        while k <= end.file:
            last = end.offset if k == end.file else self.sizes[k]
            window = BLOCK // 16
            while offset < last:
                offset = self._whole(k, offset)
                with open_regular(self.files[k]) as file:
                    file.seek(offset)
                    raw = file.read(min(window, last - offset))
                text = raw.decode("utf-8", "surrogateescape")
                if at := find_cut(text, 1, blanks, anywhere):
                    return Place(k, offset + len(text[:at].encode("utf-8", "surrogateescape")))
                if window > 4 * FAR:
                    raise self.too_long(place)
                if offset + window >= last:
                    break
                window *= 4
            k, offset = k + 1, 0
        return end

    # --- bytes ----------------------------------------------------------------------------------------------------

    def _raw(self, begin: Place, end: Place) -> Iterator[tuple[Place, str]]:
        """Yield the text between two places with its original line ends, in small chunks, and their places."""
        for k in range(begin.file, end.file + 1):
            last = end.offset if k == end.file else self.sizes[k]
            for offset, block in self._blocks(k, begin.offset if k == begin.file else 0, last):
                mark = len(codecs.BOM_UTF8) if not offset and block.startswith(codecs.BOM_UTF8) else 0
                yield Place(k, offset + mark), self._decoded(k, offset, block)
            if k < end.file and not self._ends_its_line(k):
                yield Place(k, self.sizes[k]), "\n"

    def _blocks(self, k: int, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield the bytes of a file between two offsets, and their offsets, in blocks of whole characters and line
        ends.
        """
        try:
            with open_regular(self.files[k]) as file:
                file.seek(begin)
                rest = b""
                while begin + len(rest) < end:
                    read = file.read(min(BLOCK, end - begin - len(rest)))
                    if not read:
                        raise DataError(f"{self.files[k]} has become shorter while it was read.", fix="Begin again.")
                    raw = rest + read
                    cut = len(raw) if begin + len(raw) == end else _whole_bytes(raw)
                    raw, rest = raw[:cut], raw[cut:]
                    yield begin, raw
                    begin += cut
        except OSError as error:
            raise unreadable_error(self.files[k], error) from error

    def _decoded(self, k: int, offset: int, raw: bytes) -> str:
        """Decode a block. Raises DataError, with byte and line, if it is not UTF-8."""
        try:
            return decode_utf8(raw, offset)
        except ValueError:
            pass
        lines = sum(before.count(b"\n") for _, before in self._blocks(k, 0, offset))
        try:
            return decode_utf8(raw, offset, lines)
        except ValueError as error:
            raise DataError("A file that cannot be read:", [Problem(str(self.files[k]), str(error))], UTF8) from error

    def _whole(self, k: int, offset: int) -> int:
        """Return the next offset of a file, from `offset` on, that splits no character and no line end."""
        with open_regular(self.files[k]) as file:
            file.seek(max(0, offset - 1))
            near = file.read(5 if offset else 4)
        before, near = (near[:1], near[1:]) if offset else (b"", near)
        step = next((i for i, byte in enumerate(near[:3]) if byte & 0xC0 != 0x80), min(3, len(near)))
        return offset + (1 if not step and before == b"\r" and near[:1] == b"\n" else step)

    def _ends_its_line(self, k: int) -> bool:
        with open_regular(self.files[k]) as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) in (b"\n", b"\r")


def find_cut(text: str, least: int, blanks: bool, anywhere: bool) -> int:
    """Return a position at which a text may be cut, at least `least`; 0 if none exists.

    Positions other than before a line end are used only if there is no line end within a piece after `least`.
    """
    if len(text) <= least:
        return 0
    for sign in ("\n", "\r") if "\r" in text else ("\n",):  # "\r" may be a line end too
        at = text.find(sign, least)
        while at > 0 and text[at - 1].isspace():
            at = text.find(sign, at + 1)
        if at > 0:
            return at
    if len(text) < 2 * least + PIECE:
        return 0
    if blanks and (found := BLANK.search(text, least)):
        return found.start()
    if anywhere and not (text[least - 1] == "\r" and text[least] == "\n"):
        return least
    return 0


def _whole_bytes(raw: bytes) -> int:
    """Return the length of the longest prefix of whole characters and line ends."""
    end = len(raw)
    for back in range(1, min(4, end) + 1):
        byte = raw[end - back]
        if byte & 0xC0 != 0x80:  # the first byte of a character
            long = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            end -= back if long > back else 0
            break
    return end - 1 if raw[end - 1 : end] == b"\r" else end


def _marked(path: Path) -> bool:
    with open_regular(path) as file:
        return file.read(3) == codecs.BOM_UTF8


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
