"""Pairs of sequences as a data set: split, fit a tokenizer for each side on the training part, prepare every part."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...errors import DataError
from ...spec import PairSpec, Tokens
from ..applicable import refuse_settings_for_others
from ..sets import DataSet
from ..settings import DataSettings
from ..splits import Rows, complete_split, draw, split_hash, straddle_note
from ..text.tokenizers import Tokenizer, train_tokenizer
from .part import PairsPart
from .preprocessing import BEGIN, END, SHIFT, PairPreprocessing, repeated_note, unknown
from .reading import Pairs, read_pairs


@dataclass(frozen=True)
class Cut:
    """How one side is cut into tokens."""

    kind: str  # characters, words, bpe, wordpiece
    blanks: bool = False  # words are what stands between blanks

    def __str__(self) -> str:
        return "what stands between blanks" if self.blanks else {"bpe": "byte pairs"}.get(self.kind, self.kind)


def open_pairs(source: str, settings: DataSettings) -> DataSet:
    """The data set in a file with a tab on each line, or, of `a,b`, in two files line by line.

    Raises FileError, SettingError, or DataError with every line that is no pair in `problems`.
    """
    refuse_settings_for_others(settings, "pairs")
    pairs = read_pairs(source)
    first = Path(source if Path(source).exists() else source.split(",")[0])
    return pairs_dataset(pairs, settings, name=first.name.split(".")[0], source=source)


def pairs_dataset(
    pairs: Pairs,
    settings: DataSettings,
    *,
    name: str,
    source: str,
    column: str = "target",
    lower: bool = False,
    cuts: tuple[Cut, Cut] | None = None,
    parts: Mapping[str, Rows] | None = None,
    notes: Sequence[str] = (),
) -> DataSet:
    """The data set of these pairs. `column` is what predictions are called; `lower` and `cuts` (of source and target)
    are for where the settings leave it open; `parts` are fixed ones, instead of a split by `split_seed`.

    A split keeps all pairs with one source in one part; validation and test ask each source once, and hold the answer
    to the nearest of its targets. Raises DataError where a part would be empty.
    """
    lower = settings.lower if settings.lower is not None else lower
    split = _split(pairs, settings, lower, parts)
    taught = split["train"]
    texts = [[side[i] for i in taught] for side in (pairs.sources, pairs.targets)]
    cuts = _cuts(settings, texts, cuts)
    ours, theirs = (
        _tokenizer(of_side, cut, settings, lower, side)
        for of_side, cut, side in zip(texts, cuts, ("sources", "targets"))
    )
    target = Tokens(len(theirs) + SHIFT, BEGIN, END, 1, column)
    preprocessing = PairPreprocessing(PairSpec(len(ours), 1, target), ours, theirs)
    split, too_long = _short_enough(pairs, split, preprocessing, settings.length)
    train, _ = preprocessing.part(pairs, split["train"].tolist(), once=False)
    longest = dataclasses.replace(target, longest=int(train.answers[1].max()))
    spec = PairSpec(len(ours), int(train.source[1].max()), longest)
    preprocessing = dataclasses.replace(preprocessing, spec=spec)
    found = {"train": train}
    said: list[str | None] = []
    for part, rows in split.items():
        if part != "train":
            found[part], repeated = preprocessing.part(pairs, rows.tolist(), once=parts is None)
            said += [repeated_note(repeated, part)]
    straddle = None
    if parts is not None:
        straddle = straddle_note([preprocessing.seen(text) for text in pairs.sources], split, pairs.place, "sources")
    cut_note = (
        f"Sources are cut into {cuts[0]}, {len(ours) - 2:,} different ones, and targets into {cuts[1]}, "
        f"{len(theirs) - 2:,} different ones{', all in lower case' if lower else ''}."
    )
    return DataSet(
        name=name,
        source=source,
        spec=spec,
        parts={**found},
        preprocessing=preprocessing,
        fingerprint=pairs.fingerprint,
        split_hash=split_hash(split),
        notes=[*notes, cut_note, *(note for note in (*too_long, *said, *_unknown(found), straddle) if note)],
    )


def _split(pairs: Pairs, settings: DataSettings, lower: bool, parts: Mapping[str, Rows] | None) -> dict[str, Rows]:
    """The pairs of each part: those that are given, else sources drawn at random, each with all its targets."""
    if parts is None:
        sources = (text.lower() if lower else text for text in pairs.sources)
        number: dict[str, int] = {}
        group = np.array([number.setdefault(text, len(number)) for text in sources])
        whole = dataclasses.replace(settings, limit=None)
        drawn = complete_split(np.zeros(len(number), np.int64), ["source"], None, whole)
        split = {part: np.flatnonzero(np.isin(group, of_part)) for part, of_part in drawn.items()}
    else:
        split = dict(parts)
    if settings.limit is not None:
        split["train"] = draw(split["train"], settings.limit, seed=settings.split_seed)
    return split


def _cuts(settings: DataSettings, texts: Sequence[Sequence[str]], cuts: tuple[Cut, Cut] | None) -> tuple[Cut, Cut]:
    """How each side is cut: as the settings say, else as the data set does, else as most of its training texts suggest.

    Texts without a blank are cut into characters, others into words. Where one side is characters, the blanks of the
    other are those of a notation (HH AH0 L OW1), and it is cut at them and nowhere else.
    """
    if settings.tokenizer != "auto":
        return Cut(settings.tokenizer), Cut(settings.tokenizer)
    if cuts is not None:
        return cuts
    spaced = [2 * sum(len(text.split()) > 1 for text in side) > len(side) for side in texts]
    words = Cut("words", blanks=not all(spaced))
    return (words if spaced[0] else Cut("characters")), (words if spaced[1] else Cut("characters"))


def _tokenizer(texts: Sequence[str], cut: Cut, settings: DataSettings, lower: bool, side: str) -> Tokenizer:
    try:
        return train_tokenizer(cut.kind, texts, settings.vocabulary, settings.min_count, lower, blanks=cut.blanks)
    except DataError as error:
        raise DataError(f"The {side} of the training part cannot be told apart. {error}") from error


def _short_enough(
    pairs: Pairs, split: Mapping[str, Rows], preprocessing: PairPreprocessing, length: int | None
) -> tuple[dict[str, Rows], list[str]]:
    """The pairs with at most `length` tokens on either side, and a note that counts the others."""
    if length is None:
        return dict(split), []
    kept: dict[str, Rows] = {}
    left: list[str] = []
    for part, rows in split.items():
        sources = preprocessing.sources([pairs.sources[i] for i in rows])[1].numpy()
        targets = preprocessing.targets([pairs.targets[i] for i in rows])[1].numpy() - 1  # without `end`
        kept[part] = rows[np.maximum(sources, targets) <= length]
        if not len(kept[part]):
            raise DataError(
                f"length={length} leaves no pair to the {part} part: the shortest has "
                f"{np.maximum(sources, targets).min():,} tokens on one side.",
                mend="Give a larger length.",
            )
        if len(kept[part]) < len(rows):
            left.append(f"{len(rows) - len(kept[part]):,} of {len(rows):,} pairs in {part}")
    note = f"Left out, because a side has more than length={length} tokens: {', '.join(left)}."
    return kept, [note] if left else []


def _unknown(found: Mapping[str, PairsPart]) -> list[str]:
    """Notes that count what stands in the parts and in no vocabulary."""
    notes = []
    for what, side in (
        ("Sources with tokens outside the vocabulary, which are read as one unknown token", "source"),
        ("Targets with tokens outside the vocabulary, which no answer can give", "answers"),
    ):
        counts = {name: unknown(getattr(part, side)) for name, part in found.items()}
        said = [f"{count:,} of {len(found[name]):,} in {name}" for name, count in counts.items() if count]
        notes += [f"{what}: {', '.join(said)}."] if said else []
    return notes
