"""Reading tagged text: a token and its tag on each line, a blank line between sentences, as CoNLL's shared tasks had
it; or a file of sentences and a file of their tags, line by line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import DataError, Problem
from ..tables.reading import counted
from .reading import read_lines

TAGGED = (".conll", ".iob")
DOCUMENT = "-DOCSTART-"  # the first token of a line that begins a document and is no sentence
WAY_OUT = "A line holds a token first and its tag last, with tabs or blanks between; a blank line ends a sentence."

Line = tuple[int, list[str]]  # its number and its columns


@dataclass(frozen=True)
class Tagged:
    """Sentences as tokens, with a tag for each token, or none where there are no tags."""

    sentences: list[list[str]]
    tags: list[list[str]] | None
    names: list[str]  # what a person calls each sentence
    notes: tuple[str, ...] = ()


def read_tagged(path: Path, needs_tags: bool = True) -> tuple[Tagged, str]:
    """The sentences of a file and its sha256. Tags are its last column.

    Lines that begin with # before a sentence are comments, unless their last column is a tag of other lines. Without
    `needs_tags` a file of tokens alone will do. Raises FileError, or DataError that names every line without a tag or
    with more or fewer columns than the others.
    """
    text, digest = read_lines(path)
    columns = [line.rstrip().split("\t") if "\t" in line.rstrip() else line.split() for line in text]
    lines: list[Line] = [(n, [c.strip() for c in found]) for n, found in enumerate(columns, 1)]
    known = {found[-1] for _, found in lines if len(found) > 1 and not found[0].startswith("#")}
    sentences: list[list[Line]] = [[]]
    comments = documents = 0
    for number, found in lines:
        if not any(found):
            sentences.append([])
        elif found[0] == DOCUMENT:
            documents += 1
            sentences.append([])
        elif found[0].startswith("#") and not sentences[-1] and (len(found) == 1 or found[-1] not in known):
            comments += 1
        else:
            sentences[-1].append((number, found))
    sentences = [sentence for sentence in sentences if sentence]
    if not sentences:
        raise DataError(f"{path} holds no sentences.", fix=WAY_OUT)
    width = _checked_width(path, sentences, needs_tags)
    notes = []
    if comments:
        notes.append(f"{counted(comments, 'line')} of {path.name} that begin with # are comments and are passed over.")
    if documents:
        notes.append(f"{counted(documents, 'line')} of {path.name} with {DOCUMENT} are passed over.")
    tagged = Tagged(
        [[found[0] for _, found in sentence] for sentence in sentences],
        [[found[-1] for _, found in sentence] for sentence in sentences] if width > 1 else None,
        [f"line {sentence[0][0]} of {path.name}" for sentence in sentences],
        tuple(notes),
    )
    return tagged, digest


def tagged_lines(path: Path, labels: Path, lines: Sequence[str], beside: Sequence[str]) -> Tagged | None:
    """Sentences and their tags from two files line by line; None where the labels are one for each line.

    They are tags where most lines of several words have as many of them. Raises DataError that names each line where
    the counts differ.
    """
    words, tags = [line.split() for line in lines], [line.split() for line in beside]
    several = [len(tags[i]) == len(found) for i, found in enumerate(words) if len(found) > 1]
    if 2 * sum(several) <= len(several):
        return None
    problems = [
        Problem(f"{path.name}, line {i}", f"{counted(len(found), 'word')} and {counted(len(of_it), 'tag')}")
        for i, (found, of_it) in enumerate(zip(words, tags), 1)
        if len(found) != len(of_it)
    ]
    if problems:
        raise DataError(
            f"{counted(len(problems), 'line')} of {path} and {labels} do not go together:",
            problems,
            "Each word between blanks needs a tag on the same line of the other file.",
        )
    kept = [i for i, found in enumerate(words) if found]
    blank = len(words) - len(kept)
    notes = (f"{counted(blank, 'blank line')} of {path.name} hold no sentence.",) if blank else ()
    return Tagged(
        [words[i] for i in kept], [tags[i] for i in kept], [f"line {i + 1} of {path.name}" for i in kept], notes
    )


def _checked_width(path: Path, sentences: Sequence[Sequence[Line]], needs_tags: bool) -> int:
    """How many columns every line has. Raises DataError that names the lines which have more or fewer."""
    widths = Counter(len(found) for sentence in sentences for _, found in sentence)
    width = max(widths, key=lambda w: (widths[w], w))
    if width == 1 and (needs_tags or len(widths) > 1):
        width = min((w for w in widths if w > 1), default=2)
    problems = []
    for number, found in (line for sentence in sentences for line in sentence):
        where = f"{path.name}, line {number}"
        if len(found) == 1 < width:
            problems.append(Problem(where, f"{found[0]!r} has no tag"))
        elif len(found) != width:
            problems.append(Problem(where, f"{len(found)} columns, {width} in most lines"))
        elif not found[0] or not found[-1]:
            problems.append(Problem(where, "its token or its tag is empty"))
    if problems:
        raise DataError(f"{counted(len(problems), 'line')} of {path} cannot be read:", problems, WAY_OUT)
    if width > 2 and all(f[0] == str(i) for s in sentences for i, (_, f) in enumerate(s, 1)):
        raise DataError(
            f"The first column of {path} numbers the tokens, as CoNLL-U has it, and does not hold them.",
            fix="Write the tokens first and the tags last: `cut -f 2,4 old.conllu > new.conll` takes words and UPOS.",
        )
    return width
