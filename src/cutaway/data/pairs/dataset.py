"""Data sets of pairs of sequences: split, tokenizers fitted on the training split, and preprocessing.

Each side has its own tokenizer, or both share one. A pretrained tokenizer can be used instead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...core.errors import DataError, IncompatibleSettingError, NotEnoughDataError
from ...core.files import exists
from ...core.spec import PairSpec, Tokens
from ..build import DatasetBuilder, DataSource, DuplicateKeys
from ..dataset_base import DataSet
from ..settings import DataSettings
from ..splits import Rows, complete_split, sample_rows
from ..text.text_files import Pairs, read_pairs
from ..text.tokenizer_files import load_named_tokenizer
from ..text.tokenizers import PRETRAINED, Tokenizer, train_tokenizer
from .transforms import (
    BEGIN,
    END,
    SHIFT,
    PairPreprocessing,
    PairsSplit,
    count_unknown_texts,
    pretrained_target,
    repeated_note,
)


@dataclass(frozen=True)
class Tokenization:
    """The tokenization of one side."""

    kind: str  # characters, words, bpe, wordpiece
    blanks: bool = False  # split only at blanks

    def __str__(self) -> str:
        return "words between blanks" if self.blanks else {"bpe": "byte pairs"}.get(self.kind, self.kind)


def open_pairs(source: str | Path, settings: DataSettings) -> DataSet:
    """Build the data set of a file with a tab on each line, or, for `a,b`, of two line-aligned files.

    Raises FileError, SettingError, or DataError with every invalid line in `problems`.
    """
    source = str(source)
    pairs = read_pairs(source)
    first = Path(source if exists(source) else source.split(",")[0])
    return pairs_dataset(pairs, DataSource(first.name.split(".")[0], source, pairs.fingerprint), settings)


def pairs_dataset(
    pairs: Pairs,
    origin: DataSource,
    settings: DataSettings,
    *,
    column: str = "target",
    lower: bool = False,
    cuts: tuple[Tokenization, Tokenization] | None = None,
    sentences: bool | None = None,
    splits: Mapping[str, Rows] | None = None,
) -> DataSet:
    """Build the data set of these pairs.

    `column` is the name of the predictions. `lower`, `cuts` (of source and target) and `sentences` (whether targets are
    sentences) apply if the settings do not decide. `splits` are predefined splits instead of a random split by
    `split_seed`.

    All pairs with the same source are in one split. Validation and test use each source once and compare the answer
    with the nearest of its targets. If both sides should share a tokenizer but need different tokenizations, they get
    separate ones, and a note says so. Raises DataError if a split would be empty, and SettingError for conflicting
    settings.
    """
    return PairsBuilder(pairs, origin, settings, column, lower, cuts, sentences, splits).build()


class PairsBuilder(DatasetBuilder[PairPreprocessing, PairsSplit]):
    """The steps from pairs of sequences to their data set."""

    noun = "sources"

    def __init__(
        self,
        pairs: Pairs,
        origin: DataSource,
        settings: DataSettings,
        column: str,
        lower: bool,
        cuts: tuple[Tokenization, Tokenization] | None,
        sentences: bool | None,
        splits: Mapping[str, Rows] | None,
    ) -> None:
        super().__init__(origin, settings)
        self.pairs, self.column, self.cuts, self.sentences, self.given = pairs, column, cuts, sentences, splits
        self.pretrained = load_named_tokenizer(settings)
        if self.pretrained is not None:
            lower = self.pretrained.lower
        elif settings.lower is not None:
            lower = settings.lower
        self.lower = lower

    def split(self) -> dict[str, Rows]:
        """Split by source, fit the tokenizers, and leave out pairs that are too long in tokens."""
        pairs, settings = self.pairs, self.settings
        indices = _split(pairs, settings, self.lower, self.given)
        texts = [[side[i] for i in indices["train"]] for side in (pairs.sources, pairs.targets)]
        suggested = self.cuts or _suggest_cuts(texts)
        sentences = self.sentences
        if sentences is None:
            sentences = _spaced(texts[1]) and not suggested[1].blanks
        if self.pretrained is not None:
            fitted, notes = _pretrained_preprocessing(self.pretrained, settings, self.column, sentences)
        else:
            cuts = _cuts(settings, suggested)
            fitted, notes = _fit_preprocessing(texts, cuts, settings, self.lower, self.column, sentences)
        indices, too_long = _drop_long_pairs(pairs, indices, fitted, settings.length)
        self.tokenized, self.said = fitted, [*notes, *too_long]
        return indices

    def fit(self) -> PairPreprocessing:
        """Set the greatest lengths of the training pairs."""
        fitted, most = self.tokenized, self.settings.length or 0
        self.train, _ = fitted.as_split(self.pairs, self.indices["train"].tolist(), once=False, most=most)
        longest = dataclasses.replace(fitted.spec.target, longest=int(self.train.answers[1].max()))
        spec = dataclasses.replace(fitted.spec, longest=int(self.train.source[1].max()), target=longest)
        return dataclasses.replace(fitted, spec=spec)

    def encode(self, split: str, rows: Rows) -> PairsSplit:
        """Return the tokens of pairs; validation and test have each source once."""
        if split == "train":
            return self.train
        once, most = self.given is None, self.settings.length or 0
        found, repeated = self.preprocessing.as_split(self.pairs, rows.tolist(), once=once, most=most)
        if note := repeated_note(repeated, split):
            self.said.append(note)
        return found

    def notes(self) -> list[str]:
        """Return notes on tokens and on pairs that were left out."""
        return [*self.said, *_unknown_notes(self.splits, self.preprocessing.unknown)]

    def duplicate_keys(self) -> DuplicateKeys | None:
        """Return the sources; in a split by source, none is in two splits."""
        if self.given is None:
            return None
        sources = [self.preprocessing.normalize_source(text) for text in self.pairs.sources]
        return DuplicateKeys(sources, self.pairs.place)


def _split(pairs: Pairs, settings: DataSettings, lower: bool, splits: Mapping[str, Rows] | None) -> dict[str, Rows]:
    """Return the pairs of each split: the given ones, or sources drawn at random, each with all its targets."""
    if splits is None:
        sources = (text.lower() if lower else text for text in pairs.sources)
        number: dict[str, int] = {}
        group = np.array([number.setdefault(text, len(number)) for text in sources])
        whole = dataclasses.replace(settings, max_samples=None)
        drawn = complete_split(np.zeros(len(number), np.int64), ["source"], None, whole)
        indices = {split: np.flatnonzero(np.isin(group, of_split)) for split, of_split in drawn.items()}
    else:
        indices = dict(splits)
    if settings.max_samples is not None:
        indices["train"] = sample_rows(indices["train"], settings.max_samples, seed=settings.split_seed)
    return indices


def _spaced(texts: Sequence[str]) -> bool:
    """Return whether most of the texts contain blanks."""
    return 2 * sum(len(text.split()) > 1 for text in texts) > len(texts)


def _suggest_cuts(texts: Sequence[Sequence[str]]) -> tuple[Tokenization, Tokenization]:
    """Return the tokenization of each side that suits most training texts.

    Texts without blanks are split into characters, others into words. If one side is characters, the blanks of the
    other side belong to a notation (HH AH0 L OW1), and it is split only at blanks.
    """
    spaced = [_spaced(side) for side in texts]
    words = Tokenization("words", blanks=not all(spaced))
    return (words if spaced[0] else Tokenization("characters")), (words if spaced[1] else Tokenization("characters"))


def _cuts(settings: DataSettings, suggested: tuple[Tokenization, Tokenization]) -> tuple[Tokenization, Tokenization]:
    """Return the tokenization of each side: from the settings, or as the data suggests.

    Sentences with a joint tokenizer are split by byte pair encoding, so that related words of both sides share tokens.
    """
    if settings.tokenizer != "auto":
        return Tokenization(settings.tokenizer), Tokenization(settings.tokenizer)
    if settings.joint_vocab and suggested == (Tokenization("words"), Tokenization("words")):
        return Tokenization("bpe"), Tokenization("bpe")
    return suggested


def _fit_preprocessing(
    texts: Sequence[Sequence[str]],
    cuts: tuple[Tokenization, Tokenization],
    settings: DataSettings,
    lower: bool,
    column: str,
    sentences: bool,
) -> tuple[PairPreprocessing, list[str]]:
    """Fit tokenizers on the training texts, and return them with notes."""
    joint, notes = bool(settings.joint_vocab), []
    if joint and cuts[0] != cuts[1]:
        joint = False
        notes = [
            f"The two sides share no tokenizer, as sources are cut into {cuts[0]} and targets into {cuts[1]}: "
            "tokenizer=bpe cuts both alike."
        ]
    if joint:
        ours = theirs = _tokenizer([*texts[0], *texts[1]], cuts[0], settings, lower, "texts")
        notes = [f"Both sides share a tokenizer: they are cut into {cuts[0]}, {len(ours) - 2:,} different ones"]
    else:
        ours, theirs = (
            _tokenizer(of_side, cut, settings, lower, side)
            for of_side, cut, side in zip(texts, cuts, ("sources", "targets"))
        )
        notes.append(
            f"Sources are cut into {cuts[0]}, {len(ours) - 2:,} different ones, and targets into {cuts[1]}, "
            f"{len(theirs) - 2:,} different ones"
        )
    notes[-1] += f"{', all in lower case' if lower else ''}."
    target = Tokens(len(theirs) + SHIFT, BEGIN, END, 1, column, sentences=sentences, lower=lower)
    vocab_size = target.vocab_size if joint else len(ours)
    return PairPreprocessing(PairSpec(vocab_size, 1, target, joint), ours, theirs), notes


def _pretrained_preprocessing(
    tokenizer: Tokenizer, settings: DataSettings, column: str, sentences: bool
) -> tuple[PairPreprocessing, list[str]]:
    """Return the preprocessing with one pretrained tokenizer for both sides, and a note.

    Raises SettingError if the sides should have separate tokenizers.
    """
    if settings.joint_vocab is False:
        raise IncompatibleSettingError(
            "joint_vocab=false is for tokenizers that are fitted here, and that of "
            f"tokenizer={settings.tokenizer} is one for both sides: leave joint_vocab out."
        )
    target = dataclasses.replace(token_target(tokenizer, settings), column=column, sentences=sentences)
    note = f"Both sides are cut by the tokenizer of {settings.tokenizer}, which tells {len(tokenizer):,} tokens apart."
    return PairPreprocessing(PairSpec(target.vocab_size, 1, target, True), tokenizer, tokenizer), [note]


def token_target(tokenizer: Tokenizer, settings: DataSettings) -> Tokens:
    """Return the target for this tokenizer, which is pretrained or was fitted here."""
    if tokenizer.kind == PRETRAINED:
        return pretrained_target(tokenizer, Path(settings.tokenizer).expanduser())
    return Tokens(len(tokenizer) + SHIFT, BEGIN, END, 1, lower=tokenizer.lower)


def _tokenizer(texts: Sequence[str], cut: Tokenization, settings: DataSettings, lower: bool, side: str) -> Tokenizer:
    try:
        return train_tokenizer(cut.kind, texts, settings.vocab_size, settings.min_count, lower, blanks=cut.blanks)
    except DataError as error:
        raise DataError(f"The {side} of the training split cannot be tokenized. {error}", code=error.code) from error


def _drop_long_pairs(
    pairs: Pairs, indices: Mapping[str, Rows], preprocessing: PairPreprocessing, length: int | None
) -> tuple[dict[str, Rows], list[str]]:
    """Return the pairs with at most `length` tokens on either side, and a note that counts the others."""
    if length is None:
        return dict(indices), []
    kept: dict[str, Rows] = {}
    left: list[str] = []
    for split, rows in indices.items():
        sources = preprocessing.sources([pairs.sources[i] for i in rows])[1].numpy()
        targets = preprocessing.targets([pairs.targets[i] for i in rows])[1].numpy() - 1  # without `end`
        kept[split] = rows[np.maximum(sources, targets) <= length]
        if not len(kept[split]):
            raise NotEnoughDataError(
                f"length={length} leaves no pair to the {split} split: the shortest has "
                f"{np.maximum(sources, targets).min():,} tokens on one side.",
                fix="Give a larger length.",
            )
        if len(kept[split]) < len(rows):
            left.append(f"{len(rows) - len(kept[split]):,} of {len(rows):,} pairs in {split}")
    note = f"Left out, because a side has more than length={length} tokens: {', '.join(left)}."
    return kept, [note] if left else []


def _unknown_notes(found: Mapping[str, PairsSplit], id: int | None) -> list[str]:
    """Return notes that count examples with tokens outside the vocabulary."""
    notes = []
    for what, side in (
        ("Sources with tokens outside the vocabulary, which are read as one unknown token", "source"),
        ("Targets with tokens outside the vocabulary, which no answer can give", "answers"),
    ):
        counts = {name: count_unknown_texts(getattr(split, side), id) for name, split in found.items()}
        said = [f"{count:,} of {len(found[name]):,} in {name}" for name, count in counts.items() if count]
        notes += [f"{what}: {', '.join(said)}."] if said else []
    return notes
