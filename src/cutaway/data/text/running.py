"""Running text, to learn its language: a .txt, or a folder of them, as one stream of tokens.

It is split by position, never at random: what stands first trains. A folder can say its parts itself, by files or
folders that are named train, valid (val, validation) and test.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from torch import Tensor

from ...errors import DataError, SettingError
from ...spec import Context, NextToken, Target, TextSpec
from ..applicable import refuse_changed, refuse_settings_for_others
from ..sets import DataSet, Part
from ..settings import DataSettings
from ..splits import PARTS
from .running_files import find_texts, joined, read_text
from .running_preprocessing import RunningPreprocessing, pieces_of
from .tokenizers import UNKNOWN, train_tokenizer

__all__ = ["RunningPreprocessing", "open_running", "read_text", "running_dataset", "split_by_position"]

STEPS = {"characters": 64}  # tokens of a step, unless `length` is given
OTHER_STEPS = 35  # of words or pieces of words, as in W. Zaremba et al., 2014 <https://arxiv.org/abs/1409.2329>
ALPHABET = 1000  # more different characters than this are cut into pieces by tokenizer=auto
NOT_FOR_RUNNING_TEXT = ("text", "target", "missing", "group")


def open_running(path: Path, settings: DataSettings, targets: tuple[type[Target], ...] = ()) -> DataSet:
    """Read a .txt or a folder of .txt for language modelling, or for word vectors where those are all that is learned.

    Characters are its tokens, unless `tokenizer` says otherwise; of more than 1 000 different ones bpe makes pieces. A
    step has 64 characters, or 35 tokens of another kind. Raises DataError that names file and line, SettingError.
    """
    refuse_settings_for_others(settings, "text")
    if Context in targets and NextToken not in targets:
        from .context import open_context

        return open_context(path, settings)
    files = find_texts(path)
    read = {part: [read_text(file) for file in of_part] for part, of_part in files.items()}
    texts = {part: joined([r.text for r in of_part]) for part, of_part in read.items()}
    notes = [note for of_part in read.values() for r in of_part for note in r.notes]
    for part, of_part in files.items():
        if len(of_part) > 1:
            first, last = of_part[0].name, of_part[-1].name
            notes.append(
                f"The {len(of_part):,} files of the {part} part are read one behind another, from {first} to {last}."
            )
    kind = settings.tokenizer
    if kind == "auto":
        kind = "characters" if len(set(texts["train"])) <= ALPHABET else "bpe"
        if kind == "bpe":
            notes.append(
                f"The text has more than {ALPHABET:,} different characters: its tokens are pieces of them "
                "(tokenizer=bpe). tokenizer=characters takes each for itself."
            )
    parts, said = split_by_position(texts, settings, whole_words=kind != "characters")
    lines = [f"{r.sha256}  {file.relative_to(path) if path.is_dir() else file.name}\n"
             for part in files for file, r in zip(files[part], read[part])]  # fmt: skip
    return running_dataset(
        parts,
        settings,
        name=path.resolve().name if path.is_dir() else path.stem,
        source=str(path),
        fingerprint=hashlib.sha256("".join(lines).encode()).hexdigest(),
        notes=[*notes, *said],
        tokenizer=kind,
    )


def running_dataset(
    parts: Mapping[str, str],
    settings: DataSettings,
    *,
    name: str,
    source: str,
    fingerprint: str,
    notes: Sequence[str] = (),
    tokenizer: str = "characters",
    blanks: bool = False,
    line_end: str = "",
) -> DataSet:
    """A data set for language modelling from the text of each part; train must be among them.

    `tokenizer` is used where the settings leave it to the data; `blanks` cuts words at blanks, and `line_end` is then
    the word that stands for the end of a line. `limit` keeps the first so many steps of training.
    Raises DataError where a part is too short, SettingError.
    """
    refuse_settings_for_others(settings, "text")
    why = "is for texts with a target each, and this is running text, which is its own target"
    refuse_changed(settings, NOT_FOR_RUNNING_TEXT, why)
    notes = list(notes)
    kind = tokenizer if settings.tokenizer == "auto" else settings.tokenizer
    blanks = blanks and kind == "words"
    line_end = line_end if blanks else ""
    train = parts["train"].replace("\n", f" {line_end}\n") if line_end else parts["train"]
    try:
        found = train_tokenizer(
            kind, pieces_of(train), settings.vocabulary, settings.min_count, bool(settings.lower), blanks=blanks
        )
    except DataError as error:
        raise DataError(f"{source} cannot be learned from. {error}") from error
    length = settings.length or STEPS.get(kind, OTHER_STEPS)
    spec = TextSpec(len(found), length, NextToken(len(found)))
    preprocessing = RunningPreprocessing(spec, found, settings.carry, line_end)
    if not line_end and kind in ("words", "wordpiece"):
        notes.append(f"Tokens are {kind}: blanks and line ends between them are left out.")
    streams = {part: preprocessing.encode(parts[part]) for part in PARTS if part in parts}
    if settings.limit is not None:
        streams["train"] = streams["train"][: settings.limit * length + 1]
    _refuse_short(streams, length, source, kind)
    notes += [note for part, ids in streams.items() if (note := _unknown_note(part, ids))]
    digests = [f"{part} {hashlib.sha256(parts[part].encode()).hexdigest()}" for part in streams]
    held: dict[str, Part] = {part: preprocessing.stream_part(ids) for part, ids in streams.items()}
    return DataSet(
        name=name,
        source=source,
        spec=spec,
        parts=held,
        preprocessing=preprocessing,
        fingerprint=fingerprint,
        split_hash=hashlib.sha256(f"{digests} {len(streams['train'])}".encode()).hexdigest(),
        notes=notes,
    )


def split_by_position(
    texts: Mapping[str, str], settings: DataSettings, *, whole_words: bool
) -> tuple[dict[str, str], list[str]]:
    """The text of each part, and what a person should know of it: parts that are not given are cut from the end of
    the train part, by their shares of its characters; with `whole_words` at the blank before that place.

    Raises SettingError or DataError where nothing would be left to train on, or nothing for another part.
    """
    val = 0.0 if "val" in texts else settings.val
    test = 0.0 if "test" in texts else settings.test
    if val + test >= 1:
        raise SettingError(f"val={val:g} and test={test:g} leave nothing to train on: together they must be below 1.")
    whole = texts["train"]
    shares = {"train": 1 - val - test, "val": val, "test": test}
    cut = [part for part in PARTS if shares[part]]
    places = [0]
    for part in cut:
        place = min(len(whole), places[-1] + round(shares[part] * len(whole)))
        if part == cut[-1]:
            place = len(whole)
        elif whole_words:
            place = max(whole.rfind(blank, places[-1], place) + 1 for blank in (" ", "\n")) or place
        places.append(place)
    parts = {part: whole[begin:end] for part, (begin, end) in zip(cut, pairwise(places))}
    parts |= {part: text for part, text in texts.items() if part != "train"}
    for part, text in parts.items():
        if not text:
            raise DataError(
                f"The {part} part gets no text: val={val:g} and test={test:g} of {len(whole):,} characters.",
                mend="Give more text, or shares that leave some to each part.",
            )
    if len(cut) == 1:
        return parts, []
    said = ", ".join(f"{part} {len(parts[part]):,}" for part in cut)
    return parts, [f"The text is split by position, the training part first (characters: {said})."]


def _refuse_short(streams: Mapping[str, Tensor], length: int, source: str, kind: str) -> None:
    """Raise DataError where a part is too short to be learned from, or measured on."""
    for part, ids in streams.items():
        least = length + 1 if part == "train" else 2
        if len(ids) < least:
            raise DataError(
                f"{source} is too short: its {part} part has {len(ids):,} tokens ({kind}), and at least {least:,} are "
                f"needed{f', a step of {length:,} and the one behind it' if part == 'train' else ''}.",
                mend="Give more text, or a smaller length." if part == "train" else f"Give more text, or {part}=0.",
            )


def _unknown_note(part: str, ids: Tensor) -> str | None:
    """A sentence that counts the unknown tokens of a part; None where there are none."""
    count = int((ids == UNKNOWN).sum())
    if not count:
        return None
    return (
        f"{count:,} of {len(ids):,} tokens of the {part} part ({100 * count / len(ids):.2g} %) are unknown, not being "
        "in the vocabulary of the training part, or written as unknown: they count as one token."
    )
