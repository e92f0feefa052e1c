"""Tagged text as a data set: each token has a target of its own. A token is what the file says, whole."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ... import spec as specs
from ...errors import DataError, Problem, SettingError
from ...spec import Tags, TextSpec
from ..applicable import refuse_settings_for_others
from ..sets import IGNORED, Batch, DataSet, SequencePart
from ..settings import DataSettings
from ..splits import Rows, complete_split, split_hash, straddle_note
from ..tables.columns import natural_order
from ..tables.reading import TABLE_SUFFIXES, counted
from .classes import tokenizer_note, unknown_notes
from .preprocessing import OTHER_LENGTH, cut, length_notes, shown, text_itself
from .reading import TEXT, read_lines, read_pair
from .tagged import TAGGED, Tagged, read_tagged, tagged_lines
from .tokenizers import UNKNOWN, Words, tokenizer_from_json, words_tokenizer

__all__ = ["TAGGED", "TagPreprocessing", "open_tagged", "tagged_dataset"]

Numbers = npt.NDArray[np.int64]


class TagPart(SequencePart):
    """Sentences. Batches of those without tags have targets too, which say no more than where there is a token: the
    answer is one for each, and none for padding."""

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Each batch padded to its longest sentence."""
        for inputs, target in super().batches(order, seed):
            if self.target is None:
                _, mask = inputs
                target = torch.where(mask, 0, IGNORED)  # (N, T)
            yield Batch(inputs, target)


@dataclass(frozen=True)
class TagPreprocessing:
    """How tokens become ids, and tags class numbers."""

    spec: TextSpec
    tokenizer: Words
    length: int  # tokens of the longest sentence; longer ones are cut there

    @property
    def tags(self) -> Tags:
        """The target."""
        assert isinstance(self.spec.target, Tags)
        return self.spec.target

    def part(self, tagged: Tagged, of: str = "these sentences") -> SequencePart:
        """Sentences, with their tags where they have some; `of` is what notes call them.

        Raises DataError for tags that training did not know.
        """
        ids, lengths, whole, place = self.encode(tagged.sentences)
        target = None
        if tagged.tags is not None:
            number = {name: k for k, name in enumerate(self.tags.names)}
            if strange := [
                Problem(name, f"{tag!r} is no tag")
                for name, tags in zip(tagged.names, tagged.tags)
                for tag in tags
                if tag not in number
            ]:
                raise DataError(
                    f"{counted(len(strange), 'token')} have a tag that training did not know:",
                    strange,
                    f"The tags are: {', '.join(self.tags.names[:20])}.",
                )
            flat = np.array([number[tag] for tags in tagged.tags for tag in tags], np.int64)
            target = torch.from_numpy(flat[place])

        def row(i: int) -> dict[str, str]:
            return {TEXT: " ".join(tagged.sentences[i])}

        notes = [*tagged.notes, *length_notes(whole, self.length, of)]
        by_step = target is not None
        return TagPart(torch.from_numpy(ids), torch.from_numpy(lengths), target, tagged.names, row, notes, by_step)

    def encode(self, sentences: Sequence[Sequence[str]]) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """The ids of tokens one behind another, (Σ lengths,), how many of each sentence, (n,), how many before cutting,
        and where each stood."""
        whole = np.array([len(sentence) for sentence in sentences], np.int64)
        flat = np.array(self.tokenizer.look_up(itertools.chain.from_iterable(sentences)), np.int64)
        place, lengths = cut(whole, self.length)
        ids = np.where(place < 0, UNKNOWN, flat[place] if len(flat) else UNKNOWN)
        return ids, lengths, whole, place

    def examples(self, sources: Sequence[Any]) -> SequencePart:
        """New sentences without targets: paths of .conll or .iob files, whose tags do not count, or of .txt files with
        a sentence on each line; sentences themselves; or dictionaries with a text. In these last three the tokens
        stand between blanks, as they stood by themselves in training."""
        if isinstance(sources, str) or not isinstance(sources, Sequence):
            sources = [sources]
        sentences: list[list[str]] = []
        names: list[str] = []
        for source in sources:
            for words, name in self._sentences(source):
                sentences.append(words)
                names.append(name or f"text {len(names) + 1}")
        if not sentences:
            raise DataError("No sentence was given.", mend="Give sentences, or paths of .conll, .iob or .txt files.")
        return self.part(Tagged(sentences, None, names))

    def labelled(self, source: str | Path) -> SequencePart:
        """Other tagged text: a .conll or .iob file, or two files line by line, `sentences.txt,tags.txt`.

        Raises DataError where tags are missing, or are such that training did not know.
        """
        path = Path(source).expanduser()
        if path.suffix.lower() in TAGGED:
            return self.part(read_tagged(path)[0])
        first, comma, second = str(source).partition(",")
        if comma:
            texts, labels = Path(first).expanduser(), Path(second).expanduser()
            lines, beside, _ = read_pair(texts, labels)
            if (tagged := tagged_lines(texts, labels, lines, beside)) is not None:
                return self.part(tagged)
        raise DataError(
            f"{source} holds no tagged text.",
            mend=f"Give a file that ends in {' or '.join(TAGGED)}, or two files: sentences.txt,tags.txt",
        )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` gives an equal object back."""
        return {
            "kind": "text",
            "form": "tags",
            "spec": specs.to_json(self.spec),
            "tokenizer": self.tokenizer.to_json(),
            "length": self.length,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TagPreprocessing:
        """The object that `to_json` wrote. Raises KeyError, TypeError or ValueError where the document is not one."""
        spec, tokenizer = specs.from_json(data["spec"]), tokenizer_from_json(data["tokenizer"])
        if not isinstance(spec, TextSpec) or not isinstance(spec.target, Tags) or not isinstance(tokenizer, Words):
            raise TypeError("a preprocessing of tagged text without tags or words")
        return cls(spec, tokenizer, int(data["length"]))

    def _sentences(self, source: Any) -> list[tuple[list[str], str]]:
        """The sentences that a source holds, and what each is called; no name where it has none."""
        if isinstance(source, Mapping) and TEXT in source:
            return [(str(source[TEXT]).split(), "")]
        if not isinstance(source, str | Path):
            raise DataError(f"Sentences cannot be read from a {type(source).__name__}.", mend="Give texts or paths.")
        if not os.path.exists(os.path.expanduser(source)):  # Path.exists raises where a text is longer than a name
            return [(text_itself(source).split(), shown(str(source)))]
        path = Path(source).expanduser()
        if path.suffix.lower() in TAGGED:
            read, _ = read_tagged(path, needs_tags=False)
            return list(zip(read.sentences, read.names))
        if path.suffix.lower() in TABLE_SUFFIXES:
            raise DataError(
                f"{path} is a table, and the model tags the words of sentences.",
                mend=f"Give sentences, a .txt with one on each line, or a file that ends in {' or '.join(TAGGED)}.",
            )
        lines, _ = read_lines(path)
        return [(line.split(), f"line {i} of {path.name}") for i, line in enumerate(lines, 1) if line.strip()]


def open_tagged(
    path: Path, settings: DataSettings, tagged: Tagged | None = None, fingerprint: str | None = None
) -> DataSet:
    """A .conll or .iob file; or what was read of two files line by line, and its sha256.

    Raises FileError, DataError or SettingError.
    """
    if tagged is None or fingerprint is None:
        for key in ("text", "target", "group"):
            if getattr(settings, key) is not None:
                raise SettingError(f"{key}= names a column of a table, and {path} is tagged text: leave it out.")
        tagged, fingerprint = read_tagged(path)
    return tagged_dataset(tagged, settings, name=path.stem, source=str(path), fingerprint=fingerprint)


def tagged_dataset(
    tagged: Tagged,
    settings: DataSettings,
    *,
    name: str,
    source: str,
    fingerprint: str,
    parts: Mapping[str, Rows] | None = None,
    notes: Sequence[str] = (),
    column: str = "tag",
) -> DataSet:
    """A set of tagged sentences. `parts` is the split that it comes with; what it has not is drawn from its training
    sentences, whole sentences at a time."""
    refuse_settings_for_others(settings, "text")
    if settings.tokenizer not in ("auto", "words"):
        raise SettingError(
            f"tokenizer={settings.tokenizer} cannot be: a token of tagged text is what its file says. Leave it out."
        )
    assert tagged.tags is not None, "read with its tags"
    names = natural_order(set(itertools.chain.from_iterable(tagged.tags)))
    if len(names) == 1:
        raise DataError(f"Every token of {source} has the tag {names[0]!r}: there is nothing to tell apart.")
    whole = np.zeros(len(tagged.sentences), np.int64)
    split = complete_split(whole, ["sentence"], parts, settings)
    lower = bool(settings.lower)
    words = itertools.chain.from_iterable(tagged.sentences[i] for i in split["train"])
    tokenizer = words_tokenizer(words, settings.vocabulary, settings.min_count, lower)
    length = settings.length or OTHER_LENGTH
    target = Tags(tuple(names), column)
    of_parts = {
        part: Tagged(
            [tagged.sentences[i] for i in rows], [tagged.tags[i] for i in rows], [tagged.names[i] for i in rows]
        )
        for part, rows in split.items()
    }
    spec = TextSpec(len(tokenizer), min(length, max(len(s) for p in of_parts.values() for s in p.sentences)), target)
    preprocessing = TagPreprocessing(spec, tokenizer, length)
    prepared = {
        part: preprocessing.part(sentences, f"the {part} part's sentences") for part, sentences in of_parts.items()
    }
    learned = {tag for tags in of_parts["train"].tags or () for tag in tags}
    absent = [tag for tag in names if tag not in learned]
    keys = ["\t".join(sentence) for sentence in tagged.sentences]
    straddle = straddle_note(keys, split, tagged.names.__getitem__, "sentences")
    return DataSet(
        name=name,
        source=source,
        spec=spec,
        parts=dict(prepared),
        preprocessing=preprocessing,
        fingerprint=fingerprint,
        split_hash=split_hash(split),
        notes=[
            *notes,
            *tagged.notes,
            tokenizer_note("words", len(tokenizer), lower, blanks=True),
            *(note for part in prepared.values() for note in part.notes),
            *unknown_notes({part: found.values.numpy() for part, found in prepared.items()}),
            *([f"No training sentence has the tag {', '.join(absent)}: it cannot be learned."] if absent else []),
            *([straddle] if straddle else []),
        ],
    )
