"""Conversion of texts to token ids, with a tokenizer fitted on the training split and saved as JSON with the model."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...core import spec as specs
from ...core.errors import (
    DataMismatchError,
    NotEnoughDataError,
    PythonDataError,
    UnsupportedDataError,
)
from ...core.schema import COUNT
from ...core.spec import Classes, TextSpec, Value
from ..build import DatasetBuilder
from ..dataset_base import Preprocessing, SequenceSplit
from ..folders import TEXTS, find_labelled
from ..in_memory.container import as_frame
from ..tables import delimited
from ..tables.column_roles import read_targets
from ..tables.delimited import KEPT, Form
from ..tables.table_files import TABLE_SUFFIXES, Table, frame_table
from .text_files import TEXT, pair_table, parse_text_source, preview, read_files, read_pair, read_text_table
from .tokenizer_files import (
    TOKENIZERS,
    SpecialTokens,
    padding_id,
    placeholder_id,
    spec_special_tokens,
    special_tokens_note,
    tokenizer_from_json,
    tokenizer_note,
)
from .tokenizers import Tokenizer

Numbers = npt.NDArray[np.int64]
AUTO_LENGTH = {"characters": 2048}  # default maximum length
OTHER_LENGTH = 512
BEGIN, END = -2, -3  # position markers of the special tokens


@dataclass(frozen=True)
class TextPreprocessing:
    """Conversion of a text to token ids."""

    spec: TextSpec
    tokenizer: Tokenizer
    length: int  # maximum tokens of an example, with special tokens; longer ones are truncated
    column: str = TEXT  # the text column of tables
    written: Form = KEPT  # format of the training table, the default for a new one

    SCHEMA: ClassVar[Mapping[str, Any]] = {
        "spec": specs.SCHEMA, "tokenizer": TOKENIZERS, "length": COUNT, "column": str, "read?": delimited.SCHEMA,
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
        """Return a split of texts with one target each (n,), or None.

        Notes report truncated and empty texts, named `of`, and unknown tokens if the tokenizer was not `fitted` on this
        data.
        """
        values, lengths, whole = self.encode(texts)

        def row(i: int) -> dict[str, str]:
            return {TEXT: texts[i]}

        told = length_notes(whole, self.length, of, spec_special_tokens(self.spec) is not None)
        stands_in = 0 if spec_special_tokens(self.spec) else int((whole == 0).sum())
        strange = int((values == self.tokenizer.unknown).sum()) - stands_in if self.tokenizer.unknown is not None else 0
        if strange > 0 and not fitted:
            total = f"{len(values) - stands_in:,}"
            told.append(f"{strange:,} of {total} tokens are unknown to this model, and count as one and the same.")
        ids = torch.from_numpy(values)
        padding = padding_id(self.tokenizer)
        return SequenceSplit(ids, torch.from_numpy(lengths), target, names, row, told, padding=padding)

    def encode(self, texts: Sequence[str]) -> tuple[Numbers, Numbers, Numbers]:
        """Return the concatenated ids of texts with special tokens, (Σ lengths,), their lengths (n,), and lengths
        before truncation.

        A text without tokens becomes one unknown token, or only its special tokens. The lengths before truncation
        exclude special tokens.
        """
        flat, whole = self.tokenizer.encode_flat(texts)
        place, lengths = truncate_and_frame(whole, self.length, spec_special_tokens(self.spec))
        return gather_ids(flat, place, spec_special_tokens(self.spec), placeholder_id(self.tokenizer)), lengths, whole

    def examples(self, sources: Sequence[Any]) -> SequenceSplit:
        """Prepare new texts without targets.

        They are paths of .txt files, of folders of them or of tables with the text column; texts; or dictionaries with
        the text. Anything that is not an existing path is a text. Raises DataError that names every unreadable file.
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
            raise NotEnoughDataError("No text was given.", fix="Give texts, or paths of .txt files, folders or tables.")
        return self.as_split(texts, None, names, fitted=False)

    def labelled(self, source: str | Path | Table) -> SequenceSplit:
        """Prepare other texts with targets.

        They are a table with the columns of training, class folders of .txt files, or two line-aligned files,
        `texts.txt,labels.txt`. Raises DataError for missing targets or unknown classes.
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
            raise UnsupportedDataError(
                f"{source} holds no texts with targets.",
                fix=f"Give a table with the columns {self.column!r} and {self.spec.target.column!r}, a folder of "
                "class folders of .txt files, or two files line by line: texts.txt,labels.txt",
            )
        first = Path(texts).expanduser()
        lines, targets, _ = read_pair(first, Path(labels).expanduser())
        table = pair_table(first, lines, targets)
        return self._rows(table, *table.columns)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` restores an equal object."""
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
        """Restore the object that `to_json` wrote. Raises ValueError if the document is inconsistent."""
        spec = specs.read_spec(data["spec"], TextSpec)
        written = Form.from_json(data.get("read"))
        return cls(spec, tokenizer_from_json(data["tokenizer"]), int(data["length"]), data["column"], written)

    def _texts(self, source: Any, before: int) -> tuple[list[str], list[str]]:
        """Return the texts of a source and their names; `before` is the number of preceding texts."""
        if isinstance(source, Mapping):
            column = self.column if self.column in source else TEXT
            if column not in source:
                raise PythonDataError(
                    f"A dictionary without {self.column!r} holds no text: {', '.join(map(repr, source))}."
                )
            return [str(source[column] or "")], [f"text {before + 1}"]
        if isinstance(source, Table):
            return self._column(source)
        if not isinstance(source, str | Path):
            frame = as_frame(source)
            return _no_source(source) if frame is None else self._column(frame_table(frame, form=self.written))
        if not os.path.exists(os.path.expanduser(source)):  # Path.exists raises for a text that is too long for a name
            return [parse_text_source(source)], [preview(str(source))]
        path = Path(source).expanduser()
        if path.suffix.lower() in TABLE_SUFFIXES:
            return self._column(read_text_table(path, self.written))
        files = sorted(p for p in path.rglob("*") if TEXTS.fits(p)) if path.is_dir() else [path]
        if not files:
            raise UnsupportedDataError(f"{path} is a folder without text files ({', '.join(TEXTS.suffixes)}).")
        found, _ = read_files(files, [str(file) for file in files])
        return found.texts, found.names

    def _column(self, table: Table) -> tuple[list[str], list[str]]:
        if self.column not in table.columns:
            raise DataMismatchError(
                f"The model was trained on the text of column {self.column!r}, and {table.title} has no such column. "
                f"Its columns are: {', '.join(map(repr, table.columns[:40]))}.",
                fix="Rename the column of text.",
            )
        return table.frame[self.column].fill_null("").to_list(), [table.place(i) for i in range(len(table))]

    def _folder(self, path: Path) -> SequenceSplit:
        files, labels, names = find_labelled(path, TEXTS, self.spec.target.classes)
        found, _ = read_files(files, names)
        return self.as_split(found.texts, torch.tensor(labels), found.names)

    def _rows(self, table: Table, column: str, of: str) -> SequenceSplit:
        texts, names = TextPreprocessing(self.spec, self.tokenizer, self.length, column)._column(table)
        target = self.spec.target
        assert isinstance(target, Classes | Value), "what texts of one target each are trained for"
        if of not in table.columns:
            raise DataMismatchError(
                f"{table.title} has no column {of!r}, the target of the model.",
                fix="Add it, or use `cutaway predict`, which needs no targets.",
            )
        return self.as_split(texts, read_targets(table, of, target), names)


def truncate(whole: Numbers, most: int) -> tuple[Numbers, Numbers]:
    """Truncate concatenated sequences of lengths `whole` (n,) to at most `most` and at least one step.

    Returns the source position of each remaining step, (Σ lengths,), −1 for the step of an empty sequence; and the
    lengths (n,).
    """
    lengths = whole.clip(1, most)
    ends = lengths.cumsum()
    shift = (whole.cumsum() - whole) - (ends - lengths)
    place = np.arange(ends[-1] if len(ends) else 0) + np.repeat(shift, lengths)
    return np.where(np.repeat(whole == 0, lengths), -1, place), lengths


def truncate_and_frame(whole: Numbers, most: int, frame: SpecialTokens | None) -> tuple[Numbers, Numbers]:
    """Truncate as `cut`, with special tokens if there is a frame, at positions −2 and −3.

    Special tokens count in `most` and in the lengths. An empty sequence becomes only its special tokens.
    """
    if frame is None:
        return truncate(whole, most)
    within = whole.clip(0, most - 2)
    lengths = within + 2
    ends = lengths.cumsum()
    place = np.arange(ends[-1] if len(ends) else 0)
    place += np.repeat((whole.cumsum() - whole) - (ends - lengths) - 1, lengths)
    place[ends - lengths], place[ends - 1] = BEGIN, END
    return place, lengths


def gather_ids(flat: Numbers, place: Numbers, frame: SpecialTokens | None, unknown: int) -> Numbers:
    """Return the ids at these positions, (Σ lengths,): of `flat`, special tokens, or `unknown` if there is no step."""
    ids = np.where(place < 0, unknown, flat[place.clip(0)] if len(flat) else unknown)
    if frame is not None:
        ids[place == BEGIN], ids[place == END] = frame
    return ids


def length_notes(whole: Numbers, most: int, of: str, framed: bool = False) -> list[str]:
    """Return notes on texts that were truncated or had no token; `of` is the name of all texts."""
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
        there = "each has only its special tokens" if framed else "each is read as one unknown token"
        notes.append(f"{none:,} of {of} {'holds' if none == 1 else 'hold'} no token: {there}.")
    return notes


def _no_source(source: Any) -> Any:
    raise UnsupportedDataError(
        f"A text cannot be read from a {type(source).__name__}.", fix="Give a text, or the path of one."
    )


def unknown_fraction(ids: Iterable[int] | Numbers, unknown: int) -> float:
    """Return the fraction of tokens that are unknown."""
    return float((np.asarray(ids) == unknown).mean())


FOR_RUNNING_TEXT = ("documents", "mask_prob", "whole_words")


def unknown_notes(ids: Mapping[str, Numbers], tokenizer: Tokenizer, given: bool = False) -> list[str]:
    """Return a note with the fraction of unknown tokens in each split, and whether training has any.

    With `given` the tokenizer is pretrained, so settings do not affect which tokens are unknown.
    """
    if tokenizer.unknown is None:
        return []
    fractions = {split: unknown_fraction(of_split, tokenizer.unknown) for split, of_split in ids.items()}
    if not any(fractions.values()):
        return []
    said = ", ".join(
        f"{'less than 0.1 %' if 0 < fraction < 0.0005 else f'{100 * fraction:.1f} %'} in {split}"
        for split, fraction in fractions.items()
    )
    untaught = " Training has none, so nothing is learned of them; min_count=2 makes the rarest ones unknown there."
    return [f"Unknown tokens: {said}.{'' if fractions['train'] or given else untaught}"]


class Tokenized(Preprocessing, Protocol):
    """A preprocessing whose examples are tokens."""

    @property
    def spec(self) -> TextSpec:
        """The spec of the examples that the model receives."""
        ...


T = TypeVar("T", bound=Tokenized)


class TokenizedBuilder(DatasetBuilder[T, SequenceSplit]):
    """The steps that data sets of tokenized examples share."""

    tokenizer: Tokenizer
    pretrained: bool  # the tokenizer was not fitted here

    def encode_splits(self) -> dict[str, SequenceSplit]:
        """Return the tokens of all splits, and set the greatest length of the spec."""
        splits = super().encode_splits()
        longest = max(int(split.lengths.max()) for split in splits.values())
        spec = dataclasses.replace(self.preprocessing.spec, longest=longest)
        self.preprocessing = dataclasses.replace(self.preprocessing, spec=spec)  # type: ignore[type-var]
        return splits

    def token_notes(self, about: str | None = None) -> list[str | None]:
        """Return notes on the tokenizer, on cut examples and on unknown tokens; `about` is a note among them."""
        ids = {split: found.values.numpy() for split, found in self.splits.items()}
        return [
            tokenizer_note(self.tokenizer, self.pretrained),
            special_tokens_note(self.tokenizer, spec_special_tokens(self.preprocessing.spec)),
            about,
            *(note for split in self.splits.values() for note in split.notes),
            *unknown_notes(ids, self.tokenizer, self.pretrained),
        ]
