"""From texts to token ids: the tokenizer was fitted on the training split, and is saved as JSON with the model."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...core import spec as specs
from ...core.errors import DataError, Problem
from ...core.schema import COUNT
from ...core.spec import Classes, TextSpec, Value
from ..dataset_base import SequenceSplit
from ..folders import TEXTS, labelled
from ..in_memory.from_dataframe import as_frame
from ..tables import dialect
from ..tables.dialect import KEPT, Form
from ..tables.table_files import TABLE_SUFFIXES, Table, frame_table
from ..tables.targets import read_targets
from .text_files import TAGGED, TEXT, pair_table, read_files, read_pair, read_text_table
from .tokenizer_files import TOKENIZERS, tokenizer_from_json
from .tokenizer_fitting import Frame, frame_of, padding_of, stand_in
from .tokenizers import Tokenizer

Numbers = npt.NDArray[np.int64]
AUTO_LENGTH = {"characters": 2048}  # tokens at which texts are cut where nothing is asked for
OTHER_LENGTH = 512
BEGIN, END = -2, -3  # the places of a frame
SHOWN = 60  # characters of a text that stand for its name


@dataclass(frozen=True)
class TextPreprocessing:
    """How a text becomes token ids."""

    spec: TextSpec
    tokenizer: Tokenizer
    length: int  # tokens of the longest example, with its frame; longer ones are cut there
    column: str = TEXT  # of tables: the one that holds the text
    written: Form = KEPT  # how the table of training was, which decides what a new one leaves open

    SCHEMA: ClassVar[Mapping[str, Any]] = {
        "spec": specs.SCHEMA, "tokenizer": TOKENIZERS, "length": COUNT, "column": str, "read?": dialect.SCHEMA,
    }  # fmt: skip

    def as_split(
        self,
        texts: Sequence[str],
        target: Tensor | None,
        names: Sequence[str],
        of: str = "these texts",
        *,
        fitted: bool = True,
    ) -> SequenceSplit:
        """Texts with a target for each (n,), or none. What was cut or empty is said in the notes, where they are called
        `of`; and what is unknown, where the tokenizer was not `fitted` on them or beside them."""
        values, lengths, whole = self.encode(texts)

        def row(i: int) -> dict[str, str]:
            return {TEXT: texts[i]}

        told = length_notes(whole, self.length, of, frame_of(self.spec) is not None)
        stands_in = 0 if frame_of(self.spec) else int((whole == 0).sum())
        strange = int((values == self.tokenizer.unknown).sum()) - stands_in if self.tokenizer.unknown is not None else 0
        if strange > 0 and not fitted:
            total = f"{len(values) - stands_in:,}"
            told.append(f"{strange:,} of {total} tokens are unknown to this model, and count as one and the same.")
        ids = torch.from_numpy(values)
        padding = padding_of(self.tokenizer)
        return SequenceSplit(ids, torch.from_numpy(lengths), target, names, row, told, padding=padding)

    def encode(self, texts: Sequence[str]) -> tuple[Numbers, Numbers, Numbers]:
        """The ids of texts one after another, with their frames, (Σ lengths,), how many of each, (n,), and how many
        before cutting, without frames.

        A text without a token is one unknown token, or its frame alone.
        """
        flat, whole = self.tokenizer.encode_flat(texts)
        place, lengths = placed(whole, self.length, frame_of(self.spec))
        return gathered(flat, place, frame_of(self.spec), stand_in(self.tokenizer)), lengths, whole

    def examples(self, sources: Sequence[Any]) -> SequenceSplit:
        """New texts without targets: paths of .txt files, of folders of them or of tables with the text's column;
        texts themselves; or dictionaries with the text.

        What is no path of anything here is a text. Raises DataError that names every file that cannot be read.
        """
        if isinstance(sources, str) or not isinstance(sources, Sequence):
            sources = [sources]
        texts: list[str] = []
        names: list[str] = []
        for source in sources:
            found, called = self._texts(source, len(texts))
            texts += found
            names += called
        if not texts:
            raise DataError("No text was given.", fix="Give texts, or paths of .txt files, folders or tables.")
        return self.as_split(texts, None, names, fitted=False)

    def labelled(self, source: str | Path | Table) -> SequenceSplit:
        """Other texts with targets: a table with the columns of training, a folder of class folders of .txt files, or
        two files line by line, `texts.txt,labels.txt`.

        Raises DataError where targets are missing or are classes that training did not know.
        """
        if isinstance(source, Table):
            return self._rows(source, self.column, self.spec.target.column)
        path = Path(source).expanduser()
        if path.is_dir():
            return self._folder(path)
        if path.suffix.lower() in TABLE_SUFFIXES:
            return self._rows(read_text_table(path, self.written), self.column, self.spec.target.column)
        texts, comma, labels = str(source).partition(",")
        if not comma:
            raise DataError(
                f"{source} holds no texts with targets.",
                fix=f"Give a table with the columns {self.column!r} and {self.spec.target.column!r}, a folder of "
                "class folders of .txt files, or two files line by line: texts.txt,labels.txt",
            )
        first = Path(texts).expanduser()
        lines, targets, _ = read_pair(first, Path(labels).expanduser())
        table = pair_table(first, lines, targets)
        return self._rows(table, *table.columns)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` gives an equal object back."""
        return {
            "kind": "text",
            "form": "classes",
            "spec": specs.to_json(self.spec),
            "tokenizer": self.tokenizer.to_json(),
            "length": self.length,
            "column": self.column,
            "read": self.written.to_json(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TextPreprocessing:
        """The object that `to_json` wrote. Raises ValueError where the document, which is as SCHEMA says, cannot be."""
        spec = specs.read_as(data["spec"], TextSpec)
        written = Form.from_json(data.get("read"))
        return cls(spec, tokenizer_from_json(data["tokenizer"]), int(data["length"]), data["column"], written)

    def _texts(self, source: Any, before: int) -> tuple[list[str], list[str]]:
        """The texts that a source holds and what they are called; `before` it stand so many."""
        if isinstance(source, Mapping):
            column = self.column if self.column in source else TEXT
            if column not in source:
                raise DataError(f"A dictionary without {self.column!r} holds no text: {', '.join(map(repr, source))}.")
            return [str(source[column] or "")], [f"text {before + 1}"]
        if isinstance(source, Table):
            return self._column(source)
        if not isinstance(source, str | Path):
            frame = as_frame(source)
            return _no_source(source) if frame is None else self._column(frame_table(frame, form=self.written))
        if not os.path.exists(os.path.expanduser(source)):  # Path.exists raises where a text is longer than a name
            return [text_itself(source)], [shown(str(source))]
        path = Path(source).expanduser()
        if path.suffix.lower() in TABLE_SUFFIXES:
            return self._column(read_text_table(path, self.written))
        files = sorted(p for p in path.rglob("*") if TEXTS.fits(p)) if path.is_dir() else [path]
        if not files:
            raise DataError(f"The folder {path} holds no text files ({', '.join(TEXTS.suffixes)}).")
        found, _ = read_files(files, [str(file) for file in files])
        return found.texts, found.names

    def _column(self, table: Table) -> tuple[list[str], list[str]]:
        if self.column not in table.columns:
            raise DataError(
                f"The text of training stood in the column {self.column!r}, which {table.title} lacks. It has: "
                f"{', '.join(map(repr, table.columns[:40]))}.",
                fix="Name its column of text like that one.",
            )
        return table.frame[self.column].fill_null("").to_list(), [table.place(i) for i in range(len(table))]

    def _folder(self, path: Path) -> SequenceSplit:
        files, labels, names = labelled(path, TEXTS, self.spec.target.classes)
        found, _ = read_files(files, names)
        return self.as_split(found.texts, torch.tensor(labels), found.names)

    def _rows(self, table: Table, column: str, of: str) -> SequenceSplit:
        texts, names = TextPreprocessing(self.spec, self.tokenizer, self.length, column)._column(table)
        target = self.spec.target
        assert isinstance(target, Classes | Value), "what texts of one target each are trained for"
        if of not in table.columns:
            raise DataError(f"The target stands in the column {of!r}, which {table.title} lacks.")
        return self.as_split(texts, read_targets(table, of, target), names)


def cut(whole: Numbers, most: int) -> tuple[Numbers, Numbers]:
    """Sequences of lengths `whole` (n,), one after another, cut to at most `most` and to no less than one step.

    Returns where each step that is left stands, (Σ lengths,), −1 for the step of a sequence that has none; and the
    lengths (n,).
    """
    lengths = whole.clip(1, most)
    ends = lengths.cumsum()
    shift = (whole.cumsum() - whole) - (ends - lengths)
    place = np.arange(ends[-1] if len(ends) else 0) + np.repeat(shift, lengths)
    return np.where(np.repeat(whole == 0, lengths), -1, place), lengths


def placed(whole: Numbers, most: int, frame: Frame | None) -> tuple[Numbers, Numbers]:
    """Likewise, and in a frame, where there is one: it counts in `most` and in the lengths, and stands at places −2 and
    −3. A sequence that has no step is its frame alone."""
    if frame is None:
        return cut(whole, most)
    within = whole.clip(0, most - 2)
    lengths = within + 2
    ends = lengths.cumsum()
    place = np.arange(ends[-1] if len(ends) else 0)
    place += np.repeat((whole.cumsum() - whole) - (ends - lengths) - 1, lengths)
    place[ends - lengths], place[ends - 1] = BEGIN, END
    return place, lengths


def gathered(flat: Numbers, place: Numbers, frame: Frame | None, unknown: int) -> Numbers:
    """What stands at these places, (Σ lengths,): of `flat`, of the frame, or `unknown` where a sequence has no step."""
    ids = np.where(place < 0, unknown, flat[place.clip(0)] if len(flat) else unknown)
    if frame is not None:
        ids[place == BEGIN], ids[place == END] = frame
    return ids


def length_notes(whole: Numbers, most: int, of: str, framed: bool = False) -> list[str]:
    """What a person should know of texts that were cut, or had no token; `of` is what all of them are called."""
    notes = []
    most -= 2 if framed else 0
    if longer := int((whole > most).sum()):
        has, is_cut = ("has", "is") if longer == 1 else ("have", "are")
        sets = f"length={most + 2} holds these and the frame" if framed else "length= sets where"
        notes.append(
            f"{longer:,} of {of} {has} more than {most:,} tokens and {is_cut} cut there ({sets}); the longest has "
            f"{whole.max():,}."
        )
    if none := int((whole == 0).sum()):
        there = "its frame stands alone" if framed else "one unknown token stands there"
        notes.append(f"{none:,} of {of} {'holds' if none == 1 else 'hold'} no token: {there}.")
    return notes


def text_itself(source: str | Path) -> str:
    """What is no path as the text that it is. Raises DataError where it was meant as one."""
    text = str(source)
    meant = isinstance(source, Path) or (
        not any(letter.isspace() for letter in text)
        and text.lower().endswith((*TEXTS.suffixes, *TABLE_SUFFIXES, *TAGGED))
    )
    if meant:
        raise DataError("A file that is not there:", [Problem(text, f"there is none in {Path.cwd()}")])
    return text


def shown(text: str) -> str:
    """A text as its own name: its beginning, on one line."""
    line = " ".join(text.split()) or "(no text)"
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"


def _no_source(source: Any) -> Any:
    raise DataError(f"A text cannot be read from a {type(source).__name__}.", fix="Give a text, or the path of one.")


def unknown_fraction(ids: Iterable[int] | Numbers, unknown: int) -> float:
    """The fraction of tokens that are the unknown one."""
    return float((np.asarray(ids) == unknown).mean())
