"""Tagged text as a data set: each word has a target. The words are exactly those of the file.

A subword tokenizer (wordpiece, bpe, or a pretrained one) splits the words further. Then the tag of a word is at its
first subword, and the others and the special tokens are IGNORED, so that there is one prediction per word; as in J.
Devlin et al., BERT, 2018, section 5.3, <https://arxiv.org/abs/1810.04805>.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...core import spec as specs
from ...core.errors import (
    DataMismatchError,
    IncompatibleSettingError,
    NotEnoughDataError,
    Problem,
    SettingError,
    UnsupportedDataError,
)
from ...core.schema import COUNT
from ...core.spec import Tags, TextSpec
from ..build import DataSource, DuplicateKeys, ExampleClasses
from ..dataset_base import IGNORED, Batch, DataSet, SequenceSplit
from ..modalities import reject_changed
from ..settings import DataSettings
from ..splits import Rows
from ..tables.column_types import natural_order
from ..tables.table_files import TABLE_SUFFIXES, format_count
from .text_files import (
    TAGGED,
    TEXT,
    Tagged,
    parse_text_source,
    preview,
    read_lines,
    read_pair,
    read_tagged,
    tagged_lines,
)
from .tokenizer_files import (
    AUTO,
    TOKENIZERS,
    fit_tokenizer,
    padding_id,
    placeholder_id,
    spec_for,
    spec_special_tokens,
    tokenizer_from_json,
)
from .tokenizers import Tokenizer, Words, marks_blanks, words_tokenizer
from .transforms import FOR_RUNNING_TEXT, OTHER_LENGTH, TokenizedBuilder, gather_ids, length_notes, truncate_and_frame

__all__ = ["TAGGED", "TagPreprocessing", "open_tagged", "tagged_dataset"]

Numbers = npt.NDArray[np.int64]


class TagSplit(SequenceSplit):
    """A split of sentences.

    Batches without tags have targets too, which only mark where words begin: 0 there, IGNORED elsewhere.
    """

    words: Tensor  # (Σ lengths,) True at the first token of a word

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield batches, each padded to its longest sentence."""
        if self.target is not None:
            yield from super().batches(order, seed)
            return
        places = SequenceSplit(self.words, self.lengths, None)
        for index in order:
            (inputs, _), (marks, _) = next(super().batches([index])), next(places.batches([index])).inputs
            yield Batch(inputs, torch.where(marks, 0, IGNORED))  # (N, T)


class Encoded(NamedTuple):
    """Concatenated tokens of sentences, including special tokens."""

    ids: Numbers  # (Σ lengths,)
    lengths: Numbers  # (n,)
    whole: Numbers  # (n,) tokens before truncation, without special tokens
    words: Numbers  # (Σ lengths,) index of the word that starts here, over all sentences; −1 for other tokens


@dataclass(frozen=True)
class TagPreprocessing:
    """Conversion of words to ids, and of tags to class numbers."""

    spec: TextSpec
    tokenizer: Tokenizer
    length: int  # maximum tokens of a sentence, with special tokens; longer ones are truncated

    SCHEMA: ClassVar[Mapping[str, Any]] = {"spec": specs.SCHEMA, "tokenizer": TOKENIZERS, "length": COUNT}

    @property
    def tags(self) -> Tags:
        """The target."""
        assert isinstance(self.spec.target, Tags)
        return self.spec.target

    def as_split(self, tagged: Tagged, of: str = "these sentences") -> SequenceSplit:
        """Return a split of sentences, with their tags if available; `of` is their name in notes.

        Raises DataError for unknown tags.
        """
        found = self.encode(tagged.sentences)
        begins = found.words >= 0
        target = None
        if tagged.tags is not None:
            number = {name: k for k, name in enumerate(self.tags.names)}
            if strange := [
                Problem(name, f"{tag!r} is not a tag")
                for name, tags in zip(tagged.names, tagged.tags)
                for tag in tags
                if tag not in number
            ]:
                raise DataMismatchError(
                    f"{format_count(len(strange), 'token')} have a tag that training did not know:",
                    strange,
                    f"The tags are: {', '.join(self.tags.names[:20])}.",
                )
            flat = np.array([number[tag] for tags in tagged.tags for tag in tags], np.int64)
            target = torch.from_numpy(np.where(begins, flat[found.words], IGNORED))

        def row(i: int) -> dict[str, str]:
            return {TEXT: " ".join(tagged.sentences[i])}

        framed = spec_special_tokens(self.spec) is not None
        split = TagSplit(
            torch.from_numpy(found.ids),
            torch.from_numpy(found.lengths),
            target,
            tagged.names,
            row,
            [*tagged.notes, *length_notes(found.whole, self.length, of, framed)],
            by_step=target is not None,
            padding=padding_id(self.tokenizer),
        )
        split.words = torch.from_numpy(begins)
        return split

    def encode(self, sentences: Sequence[Sequence[str]]) -> Encoded:
        """Return the ids of sentences of words."""
        frame = spec_special_tokens(self.spec)
        flat, subwords = self._subwords(sentences)  # (P,), (W,) of each word
        counts = np.array([len(sentence) for sentence in sentences], np.int64)  # (n,) of words
        ends = np.concatenate([[0], subwords.cumsum()])
        whole = np.diff(ends[np.concatenate([[0], counts.cumsum()])])  # (n,) of subwords
        word_at = np.full(len(flat), -1, np.int64)
        word_at[ends[:-1]] = np.arange(len(subwords))
        place, lengths = truncate_and_frame(whole, self.length, frame)
        words = np.where(place < 0, -1, word_at[place.clip(0)] if len(flat) else -1)
        return Encoded(gather_ids(flat, place, frame, placeholder_id(self.tokenizer)), lengths, whole, words)

    def _subwords(self, sentences: Sequence[Sequence[str]]) -> tuple[Numbers, Numbers]:
        """Return the concatenated ids of all words, and the number of each word's ids: at least one."""
        words: Iterable[str] = itertools.chain.from_iterable(sentences)
        if isinstance(self.tokenizer, Words):
            ids = np.array(self.tokenizer.look_up(words), np.int64)
            return ids, np.ones(len(ids), np.int64)
        if marks_blanks(self.tokenizer):  # the first subword of a word includes the blank before it
            words = ((" " if i else "") + word for sentence in sentences for i, word in enumerate(sentence))
        each = list(words)
        known = {word: i for i, word in enumerate(dict.fromkeys(each))}
        subwords = [ids or [placeholder_id(self.tokenizer)] for ids in self.tokenizer.encode_many(list(known))]
        of_word = [subwords[known[word]] for word in each]
        flat = np.fromiter(itertools.chain.from_iterable(of_word), np.int64)
        return flat, np.fromiter(map(len, of_word), np.int64, count=len(of_word))

    def examples(self, sources: Sequence[Any]) -> SequenceSplit:
        """Prepare new sentences without targets.

        They are paths of .conll or .iob files, whose tags are ignored, or of .txt files with a sentence on each line;
        sentences; or dictionaries with a text. In the last three, tokens are separated by blanks.
        """
        if isinstance(sources, str) or not isinstance(sources, Sequence):
            sources = [sources]
        sentences: list[list[str]] = []
        names: list[str] = []
        for source in sources:
            for words, name in self._sentences(source):
                sentences.append(words)
                names.append(name or f"text {len(names) + 1}")
        if not sentences:
            raise NotEnoughDataError(
                "No sentence was given.", fix="Give sentences, or paths of .conll, .iob or .txt files."
            )
        return self.as_split(Tagged(sentences, None, names))

    def labelled(self, source: str | Path) -> SequenceSplit:
        """Prepare other tagged text: a .conll or .iob file, or two line-aligned files, `sentences.txt,tags.txt`.

        Raises DataError for missing or unknown tags.
        """
        path = Path(source).expanduser()
        if path.suffix.lower() in TAGGED:
            return self.as_split(read_tagged(path)[0])
        first, comma, second = str(source).partition(",")
        if comma:
            texts, labels = Path(first).expanduser(), Path(second).expanduser()
            lines, beside, _ = read_pair(texts, labels)
            if (tagged := tagged_lines(texts, labels, lines, beside)) is not None:
                return self.as_split(tagged)
        raise UnsupportedDataError(
            f"{source} holds no tagged text.",
            fix=f"Give a file that ends in {' or '.join(TAGGED)}, or two files: sentences.txt,tags.txt",
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` restores an equal object."""
        return {
            "kind": "text",
            "form": "tags",
            "spec": specs.to_json(self.spec),
            "tokenizer": self.tokenizer.to_json(),
            "length": self.length,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TagPreprocessing:
        """Restore the object that `to_json` wrote. Raises ValueError if the document is inconsistent."""
        spec = specs.read_spec(data["spec"], TextSpec, Tags)
        return cls(spec, tokenizer_from_json(data["tokenizer"]), int(data["length"]))

    def _sentences(self, source: Any) -> list[tuple[list[str], str]]:
        """Return the sentences of a source and their names; an empty name if none exists."""
        if isinstance(source, Mapping) and TEXT in source:
            return [(str(source[TEXT]).split(), "")]
        if not isinstance(source, str | Path):
            raise UnsupportedDataError(
                f"Sentences cannot be read from a {type(source).__name__}.", fix="Give texts or paths."
            )
        if not os.path.exists(os.path.expanduser(source)):  # Path.exists raises for a text that is too long for a name
            return [(parse_text_source(source).split(), preview(str(source)))]
        path = Path(source).expanduser()
        if path.suffix.lower() in TAGGED:
            read, _ = read_tagged(path, needs_tags=False)
            return list(zip(read.sentences, read.names))
        if path.suffix.lower() in TABLE_SUFFIXES:
            raise UnsupportedDataError(
                f"{path} is a table, and the model tags the words of sentences.",
                fix=f"Give sentences, a .txt with one on each line, or a file that ends in {' or '.join(TAGGED)}.",
            )
        lines, _ = read_lines(path)
        return [(line.split(), f"line {i} of {path.name}") for i, line in enumerate(lines, 1) if line.strip()]


def open_tagged(
    path: Path, settings: DataSettings, tagged: Tagged | None = None, fingerprint: str | None = None
) -> DataSet:
    """Build the data set of a .conll or .iob file, or of sentences from two line-aligned files and their sha256.

    Raises FileError, DataError or SettingError.
    """
    if tagged is None or fingerprint is None:
        for key in ("text", "target", "group"):
            if getattr(settings, key) is not None:
                raise IncompatibleSettingError(
                    f"{key}= names a column of a table, and {path} is tagged text: leave it out."
                )
        tagged, fingerprint = read_tagged(path)
    return tagged_dataset(tagged, DataSource(path.stem, str(path), fingerprint), settings)


def tagged_dataset(
    tagged: Tagged,
    origin: DataSource,
    settings: DataSettings,
    splits: Mapping[str, Rows] | None = None,
    column: str = "tag",
) -> DataSet:
    """Build a data set of tagged sentences. Missing `splits` are drawn from the training sentences, whole sentences at
    a time.
    """
    return TagBuilder(tagged, origin, settings, splits, column).build()


class TagBuilder(TokenizedBuilder[TagPreprocessing]):
    """The steps from tagged sentences to their data set."""

    noun = "sentences"

    def __init__(
        self,
        tagged: Tagged,
        origin: DataSource,
        settings: DataSettings,
        splits: Mapping[str, Rows] | None,
        column: str,
    ) -> None:
        super().__init__(origin, settings)
        reject_changed(settings, FOR_RUNNING_TEXT, "is for running text, and this text is tagged")
        assert tagged.tags is not None, "read with its tags"
        self.tagged, self.tags, self.column = tagged, tagged.tags, column
        self.tag_names = natural_order(set(itertools.chain.from_iterable(tagged.tags)))
        if len(self.tag_names) == 1:
            raise NotEnoughDataError(
                f"Every token of {origin.source} has the tag {self.tag_names[0]!r}: at least two tags are needed."
            )
        self.classes = ExampleClasses.without(len(tagged.sentences), "sentence", splits)

    def fit(self) -> TagPreprocessing:
        """Fit the tokenizer."""
        settings, sentences = self.settings, self.tagged.sentences
        self.tokenizer, self.pretrained = _fit_tokenizer([sentences[i] for i in self.indices["train"]], settings)
        length = settings.length or OTHER_LENGTH
        spec = spec_for(self.tokenizer, settings, length, Tags(tuple(self.tag_names), self.column))
        return TagPreprocessing(spec, self.tokenizer, length)

    def encode(self, split: str, rows: Rows) -> SequenceSplit:
        """Return the tokens and tags of sentences."""
        sentences, tags = [self.tagged.sentences[i] for i in rows], [self.tags[i] for i in rows]
        own = Tagged(sentences, tags, [self.tagged.names[i] for i in rows])
        return self.preprocessing.as_split(own, f"the {split} split's sentences")

    def notes(self) -> list[str | None]:
        """Return notes on tokens and tags."""
        learned = {tag for i in self.indices["train"] for tag in self.tags[i]}
        absent = [tag for tag in self.tag_names if tag not in learned]
        first = None if isinstance(self.tokenizer, Words) else "The tag of a word is assigned to its first subword."
        return [
            *self.tagged.notes,
            *self.token_notes(first),
            f"No training sentence has the tag {', '.join(absent)}: it cannot be learned." if absent else None,
        ]

    def duplicate_keys(self) -> DuplicateKeys:
        """Return the sentences."""
        return DuplicateKeys(["\t".join(sentence) for sentence in self.tagged.sentences], self.tagged.names.__getitem__)


def _fit_tokenizer(sentences: Sequence[Sequence[str]], settings: DataSettings) -> tuple[Tokenizer, bool]:
    """Return the tokenizer of words or subwords, and whether it is pretrained. Raises SettingError."""
    if settings.tokenizer == "characters":
        raise IncompatibleSettingError(
            "Invalid tokenizer=characters: each word of tagged text has one tag. Leave it out, or take subwords of "
            "words (wordpiece, bpe, or a tokenizer's path)."
        )
    if settings.tokenizer in (AUTO, "words"):
        words = itertools.chain.from_iterable(sentences)
        return words_tokenizer(words, settings.vocab_size, settings.min_count, bool(settings.lower)), False
    tokenizer, given = fit_tokenizer(settings, "words", (" ".join(sentence) for sentence in sentences))
    if tokenizer.kind == "characters":
        raise SettingError(f"tokenizer={settings.tokenizer} is one of characters, and each word here has one tag.")
    return tokenizer, given
