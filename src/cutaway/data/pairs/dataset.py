"""Data sets of pairs of sequences: split, tokenizers fitted on the training split, and preprocessing.

Each side has its own tokenizer, or both share one. A pretrained tokenizer can be used instead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...core.errors import DataError, SettingError
from ...core.files import exists
from ...core.spec import PairSpec, Tokens
from ..build import DataSource, build_dataset
from ..dataset_base import DataSet
from ..findings import duplicate_warning
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
    given = load_named_tokenizer(settings)
    if given is not None:
        lower = given.lower
    elif settings.lower is not None:
        lower = settings.lower
    indices = _split(pairs, settings, lower, splits)
    taught = indices["train"]
    texts = [[side[i] for i in taught] for side in (pairs.sources, pairs.targets)]
    suggested = cuts or _suggest_cuts(texts)
    if sentences is None:
        sentences = _spaced(texts[1]) and not suggested[1].blanks
    if given is not None:
        preprocessing, cut_notes = _pretrained_preprocessing(given, settings, column, sentences)
    else:
        cuts = _cuts(settings, suggested)
        preprocessing, cut_notes = _fit_preprocessing(texts, cuts, settings, lower, column, sentences)
    indices, too_long = _drop_long_pairs(pairs, indices, preprocessing, settings.length)
    most = settings.length or 0
    train, _ = preprocessing.as_split(pairs, indices["train"].tolist(), once=False, most=most)
    longest = dataclasses.replace(preprocessing.spec.target, longest=int(train.answers[1].max()))
    spec = dataclasses.replace(preprocessing.spec, longest=int(train.source[1].max()), target=longest)
    preprocessing = dataclasses.replace(preprocessing, spec=spec)
    found = {"train": train}
    said: list[str | None] = []
    for split, rows in indices.items():
        if split != "train":
            found[split], repeated = preprocessing.as_split(pairs, rows.tolist(), once=splits is None, most=most)
            said += [repeated_note(repeated, split)]
    straddle = None
    if splits is not None:
        straddle = duplicate_warning(
            [preprocessing.normalize_source(text) for text in pairs.sources], indices, pairs.place, "sources"
        )
    notes = (*cut_notes, *too_long, *said, *_unknown_notes(found, preprocessing.unknown), straddle)
    return build_dataset(origin, settings, indices, preprocessing, found, notes)


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
        raise SettingError(
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
        raise DataError(f"The {side} of the training split cannot be tokenized. {error}") from error


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
            raise DataError(
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
