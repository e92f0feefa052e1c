"""Tokenization of pairs of texts, with a tokenizer for each side or a joint one, saved as JSON with the model.

With Cutaway's tokenizers, which are fitted on the training split, target ids are 0 padding, 1 unknown, 2 begin, 3 end,
and from 4 on the tokens of its tokenizer from its id 2 on. Source ids are those of its tokenizer. With a joint
tokenizer an id means the same on both sides: that of the target. A pretrained tokenizer keeps its ids; its sources get
its special tokens, and targets end with its end token.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ...core import spec as specs
from ...core.errors import DataError, DataMismatchError, FileError, Problem, shorten
from ...core.files import missing_file_error, read_json
from ...core.spec import PairSpec, Tokens
from ..dataset_base import IGNORED, Batch, SequenceSplit, Split
from ..samplers import bucket_batches
from ..text.text_files import Pairs, read_lines, read_pairs
from ..text.tokenizer_files import TOKENIZERS, tokenizer_from_json
from ..text.tokenizers import PRETRAINED, UNKNOWN, Tokenizer

Ids = list[int]


class PairsSplit(Split):
    """A split of sources (n) and, if available, their targets."""

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
        """Initialize from `source` and `target`, ids (Σ lengths,) and lengths (n,), each at least 1; targets end with
        `end`.

        `references` are all correct answers, without `end`, of examples that have several. `texts` returns the correct
        answers to an example as written, if they are sentences. `empty` are the examples without a source, whose answer
        is empty.
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
        """The ids of all sources, (Σ lengths,), and their lengths, (n,)."""
        return self._sources.values, self._sources.lengths

    @property
    def answers(self) -> tuple[Tensor, Tensor]:
        """The ids of all targets with `end`, (Σ lengths,), and their lengths, (n,); both empty without targets."""
        if self._targets is None:
            return torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.long)
        return self._targets.values, self._targets.lengths

    @property
    def lengths(self) -> Tensor:
        """The length of the longer side of each example, (n,)."""
        source = self._sources.lengths
        return source if self._targets is None else torch.maximum(source, self._targets.lengths)

    def plan(self, batch_size: int, generator: torch.Generator | None, tokens: int = 0) -> list[Tensor]:
        """Return batches of examples of similar length of the longer side, then of the source.

        With `tokens`, each batch holds as many examples as fit: their number times the longest sequence of either side
        is at most `tokens`, or the batch has one example.
        """
        longer, source = self.lengths, self._sources.lengths
        order = longer * (int(source.max()) + 1) + source if len(self) else longer
        return bucket_batches(longer, batch_size, generator, tokens, by=order)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield batches: source (N, T), its mask (N, T), and the target so far (N, S), which starts with `begin`.

        The target (N, S) is the next token, IGNORED after `end`. Without targets S is 1 and the target is empty.
        """
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
        """Return all correct answers to example i, as ids without `end`; empty if it has no target."""
        if i in self._references:
            return self._references[i]
        if self._targets is None:
            return []
        start, length = int(self._targets.starts[i]), int(self._targets.lengths[i])
        return [self._targets.values[start : start + length - 1].tolist()]

    def reject_longer(self, most: int) -> None:
        """Raise DataError that names each source of more than `most` tokens."""
        lengths = self._sources.lengths
        problems = [
            Problem(self.name(i), f"it has {int(lengths[i]):,} tokens")
            for i in (lengths > most).nonzero()[:, 0].tolist()
        ]
        if problems:
            raise DataMismatchError(
                f"The model reads at most {most:,} tokens, and these sources are longer:",
                problems,
                "Give them in several pieces, such as one sentence on a line.",
            )

    def name(self, i: int) -> str:
        """Return the name of the example."""
        return self._names(i) if callable(self._names) else self._names[i]

    def row(self, i: int) -> dict[str, str] | None:
        """Return the source, and the target if there is one, as written."""
        return self._row(i) if self._row else None


BEGIN, END = 2, 3
SHIFT = 2  # from ids of a tokenizer to those of the target, and of both sides where they share one
TEXT_SUFFIXES = (".txt", ".tsv", ".gz")
# Spacing that a word tokenizer removes: punctuation attaches to the word before it, an opening bracket to the word
# after it, a hyphen to both.
AGAINST = (
    (re.compile(r" (?=[,.;:!?%)\]}])"), ""),
    (re.compile(r"(?<=[(\[{]) "), ""),
    (re.compile(r"(?<=\w) - (?=\w)"), "-"),
)

MOST_TOKENS = 2048  # of a text, unless length=N says more: attention over 20,000 takes gigabytes for one example
Encoded = tuple[Tensor, Tensor]  # ids one after another (Σ lengths,), lengths (n,)


@dataclass(frozen=True)
class TargetSide:
    """Conversion of target texts to ids and back, for any kind of source."""

    target: Tokens
    tokenizer: Tokenizer

    @property
    def pretrained(self) -> bool:
        """True if the tokenizer is pretrained and keeps its own ids."""
        return self.tokenizer.kind == PRETRAINED

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Return the ids of texts, each followed by `end`."""
        if self.pretrained:
            return _flat([[*ids, self.target.end] for ids in self.tokenizer.encode_many(list(texts))])
        ids, lengths = _encoded(self.tokenizer, texts)
        return append_end(_shift_ids(ids), lengths)

    def words(self, ids: Iterable[int]) -> str:
        """Return the text of these ids; padding, begin and end are skipped."""
        target = self.target
        if self.pretrained:
            frame = {target.padding, target.begin, target.end}
            return self.tokenizer.decode(i for i in ids if i not in frame).strip()
        shown = (i if i == UNKNOWN else i - SHIFT for i in ids if i == UNKNOWN or i > END)
        text = self.tokenizer.decode(shown)
        return detokenize(text) if target.sentences and self.tokenizer.kind in ("words", "wordpiece") else text

    def size(self) -> int:
        """Return the number of ids, by the tokenizer."""
        return len(self.tokenizer) + (0 if self.pretrained else SHIFT)


@dataclass(frozen=True)
class PairPreprocessing:
    """Conversion of sources and targets to ids, and of ids to text."""

    spec: PairSpec
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer

    SCHEMA: ClassVar[Mapping[str, Any]] = {"spec": specs.SCHEMA, "source": TOKENIZERS, "target?": TOKENIZERS}

    @property
    def written(self) -> TargetSide:
        """The conversion of the targets."""
        return TargetSide(self.spec.target, self.target_tokenizer)

    @property
    def pretrained(self) -> bool:
        """True if the tokenizer is pretrained and keeps its own ids."""
        return self.written.pretrained

    def sources(self, texts: Sequence[str]) -> Encoded:
        """Return the ids of sources, at least one each: unknown if a text has no token."""
        if self.pretrained:
            return _flat(_add_special_tokens(self.source_tokenizer, texts, self.spec))
        ids, lengths = _encoded(self.source_tokenizer, texts)
        return (_shift_ids(ids) if self.spec.joint_vocab else ids), lengths

    def targets(self, texts: Sequence[str]) -> Encoded:
        """Return the ids of targets, each followed by `end`."""
        return self.written.encode(texts)

    def words(self, ids: Iterable[int]) -> str:
        """Return the target text of these ids; padding, begin and end are skipped."""
        return self.written.words(ids)

    def examples(self, sources: Sequence[Any]) -> PairsSplit:
        """Prepare sources without targets.

        Each is a string, or the path of a text file with one source per line, or {"text": …}, which is always a source.
        An empty line of a file is kept, with an empty answer. Raises DataError for an empty string, and for a missing
        file.
        """
        texts: list[str] = []
        names: list[str] = []
        empty: list[int] = []
        problems: list[Problem] = []
        for given in sources:
            path = _file(given)
            itself = given["text"] if isinstance(given, Mapping) else given
            lines = [str(itself)] if path is None else read_lines(path, nonempty=True)[0]
            for number, line in enumerate(lines, 1):
                name = (line if len(line) <= 60 else line[:57] + "…") if path is None else f"line {number} of {path}"
                if not line.strip() and path is None:
                    problems.append(Problem(name or "a source", "it is empty"))
                elif not line.strip():
                    empty.append(len(texts))
                elif "\t" in line and path is not None:
                    problems.append(Problem(name, "it holds a tab: a file to predict has one source a line, no target"))
                texts.append(line)
                names.append(name)
        if problems or not texts:
            raise DataError("Sources that cannot be read:" if problems else "No source was given.", problems)
        encoded = self.sources([text if text.strip() else "" for text in texts])
        reject_longer(encoded[1], max(MOST_TOKENS, self.spec.longest), names.__getitem__)
        count, notes = count_unknown_texts(encoded, self.unknown), []
        count -= len(empty) if not self.pretrained else 0  # empty lines are encoded as unknown, but get no answer
        if count:
            notes = [f"{count:,} of {len(texts):,} sources hold tokens that training did not know: read as unknown."]
        longer = int((encoded[1] > self.spec.longest).sum())
        if longer:
            notes += [
                f"{longer:,} of {len(texts):,} sources have more tokens than any in training, {self.spec.longest:,}: "
                "their predictions may be worse, or cut off."
            ]
        if empty:
            notes += [f"{len(empty):,} of {len(texts):,} lines are empty: so are the answers to them."]
        target = self.spec.target
        return PairsSplit(
            encoded,
            None,
            target.begin,
            names,
            lambda i: {"source": texts[i]},
            notes=notes,
            padding=target.padding,
            empty=empty,
        )

    def labelled(self, source: str | Path) -> PairsSplit:
        """Prepare other pairs, in a file with a tab on each line or in two files a,b; each source once (see
        `as_split`).
        """
        pairs = read_pairs(str(source))
        split, repeated = self.as_split(pairs, range(len(pairs)), once=True)
        split.notes += [text for text in (repeated_note(repeated, pairs.name),) if text]
        return split

    def as_split(self, pairs: Pairs, rows: Sequence[int], once: bool, most: int = 0) -> tuple[PairsSplit, int]:
        """Return the split of these pairs, and the number of pairs merged by `once`.

        With `once`, a repeated source is used once, with its first target, and all its targets are correct answers.
        Raises DataError for a side of more than MOST_TOKENS tokens, unless training had as many or `most` allows more.
        """
        chosen = list(rows)
        answers: dict[str, list[int]] = {}
        for i in chosen:
            answers.setdefault(self.normalize_source(pairs.sources[i]), []).append(i)
        if once:
            chosen = [same[0] for same in answers.values()]
        source = self.sources([pairs.sources[i] for i in chosen])
        target = self.targets([pairs.targets[i] for i in chosen])
        for lengths, longest in ((source[1], self.spec.longest), (target[1] - 1, self.spec.target.longest - 1)):
            reject_longer(lengths, max(MOST_TOKENS, longest, most), lambda k: pairs.place(chosen[k]))
        several = [(place, answers[self.normalize_source(pairs.sources[i])]) for place, i in enumerate(chosen)]
        several = [(place, same) for place, same in several if len(same) > 1]
        others = iter(split_ids(self.targets([pairs.targets[i] for _, same in several for i in same])))
        references = {place: unique_answers([next(others)[:-1] for _ in same]) for place, same in several}

        def texts(k: int) -> list[str]:
            same = answers[self.normalize_source(pairs.sources[chosen[k]])] if once else [chosen[k]]
            return list(dict.fromkeys(pairs.targets[i] for i in same))

        found = PairsSplit(
            source,
            target,
            self.spec.target.begin,
            lambda k: pairs.place(chosen[k]),
            lambda k: {"source": pairs.sources[chosen[k]], "target": pairs.targets[chosen[k]]},
            references,
            padding=self.spec.target.padding,
            texts=texts if self.spec.target.sentences else None,
        )
        return found, len(rows) - len(chosen)

    def normalize_source(self, source: str) -> str:
        """Return a source as its tokenizer reads it: in lower case if the tokenizer lower-cases."""
        return source.lower() if getattr(self.source_tokenizer, "lower", False) else source

    @property
    def unknown(self) -> int | None:
        """The id of tokens outside the vocabulary, on both sides; None if none exists."""
        return self.spec.target.unknown

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values for `from_json`. A joint tokenizer is written once."""
        return {
            "kind": "seq2seq",
            "spec": specs.to_json(self.spec),
            "source": self.source_tokenizer.to_json(),
            "target": None if self.spec.joint_vocab else self.target_tokenizer.to_json(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> PairPreprocessing:
        """Restore the object that `to_json` wrote. Raises ValueError if the document is inconsistent."""
        spec = specs.read_spec(data["spec"], PairSpec)
        source = tokenizer_from_json(data["source"])
        if not spec.joint_vocab and not data.get("target"):
            raise ValueError("it has no tokenizer of the target")
        found = cls(spec, source, source if spec.joint_vocab else tokenizer_from_json(data["target"]))
        sizes, said = found.sizes(), (spec.vocab_size, spec.target.vocab_size)
        # The embedding of a model may have more rows than its tokenizer has tokens.
        if sizes != said and not (found.pretrained and said >= sizes):
            raise ValueError(f"tokenizers of {sizes} ids and a spec of {said[0]}, {said[1]}")
        return found

    def sizes(self) -> tuple[int, int]:
        """Return the number of source and target ids, by the tokenizers."""
        source = len(self.source_tokenizer)
        return source + (0 if self.pretrained else SHIFT * self.spec.joint_vocab), self.written.size()


def reject_longer(lengths: Tensor, most: int, name: Callable[[int], str]) -> None:
    """Raise DataError that names every text of more than `most` tokens: attention memory is quadratic in the length."""
    longer = (lengths > most).nonzero().flatten().tolist()
    if longer:
        raise DataMismatchError(
            "Texts are too long:",
            [
                Problem(shorten(name(i)), f"it has {int(lengths[i]):,} tokens, at most {most:,} are read")
                for i in longer
            ],
            f"Shorten them, or leave them out with length={most}; a larger length=N keeps texts of at most N tokens.",
        )


def append_end(ids: Tensor, lengths: Tensor) -> Encoded:
    """Append `end` to the ids of each text."""
    return torch.from_numpy(np.insert(ids.numpy(), lengths.numpy().cumsum(), END)), lengths + 1


def detokenize(text: str) -> str:
    """Return a sentence of blank-separated words and punctuation in the usual spelling.

    "a dog , running" has no blank before the comma. Other punctuation, such as dashes, cannot be restored.
    """
    for where, what in AGAINST:
        text = where.sub(what, text)
    return text


def split_ids(encoded: Encoded) -> list[Ids]:
    """Return the ids of each text."""
    ids, lengths = encoded
    return [of_text.tolist() for of_text in torch.split(ids, lengths.tolist())]


def unique_answers(answers: Iterable[Ids]) -> list[Ids]:
    """Return each answer once, in order."""
    return [list(ids) for ids in dict.fromkeys(tuple(ids) for ids in answers)]


def count_unknown_texts(encoded: Encoded, id: int | None = UNKNOWN) -> int:
    """Return the number of texts with a token outside the vocabulary, which has this id."""
    ids, lengths = encoded
    of = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    return len(torch.unique(of[ids == id])) if id is not None else 0


def repeated_note(repeated: int, where: str) -> str | None:
    """Return a sentence on pairs that repeat a source; None if there are none."""
    if not repeated:
        return None
    return (
        f"In {where}, {repeated:,} pairs repeat the source of another one: each source is asked once, and an answer is "
        "held to the nearest of its targets."
    )


def _encoded(tokenizer: Tokenizer, texts: Sequence[str]) -> Encoded:
    ids, lengths = tokenizer.encode_flat(texts)
    if (lengths == 0).any():
        ids = np.insert(ids, lengths.cumsum()[lengths == 0], UNKNOWN)
        lengths = np.maximum(lengths, 1)
    return torch.from_numpy(ids), torch.from_numpy(lengths)


def _shift_ids(ids: Tensor) -> Tensor:
    """Shift ids of a tokenizer to those of the target: after begin and end."""
    return torch.where(ids > UNKNOWN, ids + SHIFT, ids)


def _add_special_tokens(tokenizer: Tokenizer, texts: Sequence[str], spec: PairSpec) -> list[Ids]:
    """Return the ids of sources with the special tokens of a pretrained tokenizer: its begin, if any, and `end`."""
    before = [tokenizer.begin] if tokenizer.begin is not None else []
    return [[*before, *ids, spec.target.end] for ids in tokenizer.encode_many(list(texts))]


def _flat(ids: Sequence[Ids]) -> Encoded:
    lengths = torch.tensor([len(of_text) for of_text in ids])
    return torch.tensor([i for of_text in ids for i in of_text], dtype=torch.long), lengths


def _file(given: Any) -> Path | None:
    """Return the file that a source names; None if it is the source itself. Raises DataError if the file is missing."""
    if isinstance(given, Mapping):
        return None
    path = Path(given).expanduser() if isinstance(given, Path) or len(str(given)) < 1000 else None
    try:
        if path is not None and path.is_file():
            return path
    except (OSError, ValueError):  # no name that a file could have
        return None
    named = isinstance(given, Path) or (Path(given).suffix.lower() in TEXT_SUFFIXES and " " not in given.strip())
    if path is not None and named:
        raise missing_file_error(given, "file")
    return None


PREPROCESSING = ("preprocessing.json", "model/preprocessing.json")


def pretrained_target(tokenizer: Tokenizer, path: Path) -> Tokens:
    """Return the target of a model with this pretrained tokenizer, which is at `path`: a file, or its folder.

    The begin and end tokens come from a run trained on pairs, or from the config.json next to tokenizer.json. Otherwise
    targets end with the tokenizer's end token, and begin as its texts do, or with padding, as in T5. Raises DataError
    if there is no end token.
    """
    assert tokenizer.kind == PRETRAINED, "those that are fitted here have ids of ours"
    before = _target_of_run(path)
    if before is not None:
        return before
    said = _config(path)
    end = said.get("eos_token_id", tokenizer.end)
    padding = said.get("pad_token_id", tokenizer.padding)
    padding = 0 if padding is None else padding
    usual = tokenizer.begin if tokenizer.begin is not None else padding
    begin = said.get("decoder_start_token_id", usual)
    if end is None:
        raise DataError(
            f"The tokenizer of {path} has no token that ends a text, such as </s>, and a target needs one.",
            fix="Take another tokenizer, or one that is fitted on these pairs (tokenizer=bpe).",
        )
    # Embeddings may be padded to a round number of rows.
    vocabulary = max(len(tokenizer), said.get("vocab_size", 0))
    if not 0 <= max(begin, end, padding) < vocabulary:
        raise DataError(
            f"config.json beside {path} names the token {max(begin, end, padding):,}, and there are {vocabulary:,}.",
            fix="Is it that of another model?",
        )
    return Tokens(vocabulary, begin, end, 1, padding=padding, unknown=tokenizer.unknown)


def _target_of_run(path: Path) -> Tokens | None:
    """Return the target of a run trained on pairs, from its folder or preprocessing.json; None if it is none."""
    files = [path] if path.is_file() else [path / name for name in PREPROCESSING]
    file = next((file for file in files if file.is_file()), None)
    document = read_json(file) if file is not None else None
    if not isinstance(document, dict) or specs.current_kind(document.get("kind")) != "seq2seq":
        return None
    try:
        spec = specs.from_json(document["spec"])
    except (KeyError, TypeError) as error:
        raise FileError(f"{file} is not complete: {type(error).__name__} {error}. Restore it from a copy.") from error
    return spec.target if isinstance(spec, PairSpec) else None


def _config(path: Path) -> dict[str, int]:
    """Return the integers in the config.json next to a tokenizer; empty without such a file."""
    file = (path if path.is_dir() else path.parent) / "config.json"
    document: Any = read_json(file) if file.is_file() else {}
    return {k: v for k, v in document.items() if type(v) is int} if isinstance(document, dict) else {}
