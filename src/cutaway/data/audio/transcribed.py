"""Recordings with their transcripts as a data set: speech to text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from ...errors import DataError, Problem
from ...spec import AudioSpec, Spelled, Target, Transcript
from ..assembly import Origin, assemble
from ..folders import NAMED_AT_MOST, fingerprint_of
from ..guard.duplicates import straddle_note
from ..sets import IGNORED, DataSet
from ..settings import DataSettings
from ..splits import Rows, complete_split
from ..unusable import look_through, reject_fill
from .notes import loudest, preparation_notes
from .preprocessing import AudioPreprocessing, look_at_all, spectrograms
from .reading import Look, Recording, commonest
from .sharded import SHARDED
from .transcripts import digest_of, ids_of, outside, read_transcripts, too_long

DROP = "; or missing=drop leaves out what is named"


@dataclass(frozen=True)
class Spoken:
    """Recordings and what is said in each, all usable."""

    recordings: Sequence[Recording]
    names: Sequence[str]  # what a person calls each
    texts: Sequence[str]
    looks: Sequence[Look]
    splits: Mapping[str, Rows] | None = None  # the recordings of each split, where they come with one


def open_transcribed(path: Path, settings: DataSettings, targets: tuple[type[Target], ...] = ()) -> DataSet:
    """Read a folder of recordings with their transcripts; `targets` as in `spoken_dataset`. Raises DataError that names
    every row and file that cannot be used, or SettingError."""
    reject_fill(settings)
    found = read_transcripts(path, bool(settings.lower))
    dropped = list(found.problems)
    _reject(dropped, path, settings, "Give each recording one line with its transcript, and each line a recording")
    wordy = {i: problem for i, text in enumerate(found.texts) if (problem := too_long(found.names[i], text))}
    _reject([*wordy.values()], path, settings, "Split such a recording and its transcript")
    if wordy:
        dropped += wordy.values()
        found = found.without(list(wordy))
    usable = look_through(found.files, SHARDED, lambda files: look_at_all(files, settings.workers), settings)
    if usable.notes:
        found = found.without(np.setdiff1d(np.arange(len(found.files)), usable.rows))
    seen = usable.looks
    long = {i: look.samples / look.rate for i, look in enumerate(seen) if _is_too_long(look, settings.seconds)}
    lengthy = [
        Problem(found.names[i], f"it lasts {s:.2f} s, longer than seconds={settings.seconds:g} allows")
        for i, s in long.items()
    ]
    _reject(lengthy, path, settings, "To cut a recording would cut what is said: split it and its transcript")
    left, kept = found.without(list(long)), [look for i, look in enumerate(seen) if i not in long]
    if not left.files:
        raise DataError(f"missing=drop would leave nothing of {path}:", [*dropped, *lengthy], fix="Fix some of them.")
    note = _dropped([*dropped, *lengthy])
    spoken = Spoken(left.files, left.names, left.texts, kept, left.splits)
    notes = [*([note] if note else []), *usable.notes]
    return spoken_dataset(spoken, path.resolve().name, str(path), settings, notes, targets)


def spoken_dataset(
    spoken: Spoken,
    name: str,
    source: str,
    settings: DataSettings,
    notes: Sequence[str] = (),
    targets: tuple[type[Target], ...] = (),
) -> DataSet:
    """Recordings with transcripts, in memory as log-mel spectrograms, whole; the alphabet is that of the training
    split. Where a model learns `Spelled`, which is then among its `targets`, transcripts are that. Raises DataError, or
    SettingError."""
    names, texts, looks = spoken.names, spoken.texts, spoken.looks
    indices = complete_split(np.zeros(len(names), np.int64), ("transcript",), spoken.splits, settings)
    alphabet = tuple(sorted({character for i in indices["train"] for character in texts[i]}))
    ids, strange = ids_of(texts, alphabet, IGNORED)
    problems = [outside(names[i], strange[i]) for rows in indices.values() for i in rows if i in strange]
    _reject(
        problems, Path(source), settings, "Write it with characters that training knows (lower=true has no capitals)"
    )
    indices = {split: np.setdiff1d(rows, list(strange)).astype(np.int64) for split, rows in indices.items()}
    if empty := [split for split, rows in indices.items() if not len(rows)]:
        raise DataError(f"missing=drop would leave the {empty[0]} split empty:", problems, fix="Fix some of them.")

    rate = settings.rate or commonest(looks[i].rate for i in indices["train"])
    frames, lengths = {}, {}
    for split, rows in indices.items():
        own = [spoken.recordings[i] for i in rows]
        frames[split], lengths[split] = spectrograms(own, rate, settings.n_mels, None, settings.workers)
    peaks = torch.cat([loudest(frames[split], lengths[split]) for split in indices])
    lower = bool(settings.lower)
    longest = max(len(texts[i]) for i in indices["train"]) + 1
    target = (
        Spelled(alphabet, lower=lower, longest=longest) if Spelled in targets else Transcript(alphabet, lower=lower)
    )
    spec = AudioSpec(int(lengths["train"].max()), settings.n_mels, target)
    preprocessing = AudioPreprocessing.fitted(spec, rate, settings.seconds, frames["train"])
    splits = {
        split: preprocessing.split(
            frames.pop(split), lengths[split], torch.tensor([ids[i] for i in rows]), [names[i] for i in rows]
        )
        for split, rows in indices.items()
    }
    sums = [look.digest for look in looks]
    used = np.concatenate(list(indices.values()))
    about = [
        _alphabet(alphabet),
        _dropped(problems),
        *preparation_notes([looks[i] for i in used], [names[i] for i in used], rate, None, peaks),
        straddle_note(sums, indices, names.__getitem__, "recordings"),
    ]
    origin = Origin(name, source, fingerprint_of(names, [digest_of(*one) for one in zip(sums, texts)]), notes)
    return assemble(origin, settings, indices, preprocessing, splits, about)


def _reject(problems: Sequence[Problem], path: Path, settings: DataSettings, fix: str) -> None:
    """Raise DataError that names all of these, unless they are to be left out."""
    if problems and settings.missing == "error":
        count = "One line or file" if len(problems) == 1 else f"{len(problems):,} lines or files"
        raise DataError(f"{count} of {path} cannot be learned from:", problems, fix=f"{fix}{DROP}.")


def _dropped(problems: Sequence[Problem]) -> str | None:
    """A sentence on what was left out."""
    if not problems:
        return None
    more = f"; and {len(problems) - NAMED_AT_MOST:,} more" if len(problems) > NAMED_AT_MOST else ""
    named = "; ".join(map(str, problems[:NAMED_AT_MOST]))
    count = "one line or file" if len(problems) == 1 else f"{len(problems):,} lines or files"
    return f"missing=drop left out {count}: {named}{more}."


def _alphabet(alphabet: Sequence[str]) -> str:
    """A sentence on the characters that are told apart."""
    shown = " ".join(repr(c) if c.isspace() or not c.isprintable() else c for c in alphabet)
    return f"The training transcripts have {len(alphabet):,} characters: {shown}"


def _is_too_long(look: Look, seconds: float | None) -> bool:
    return seconds is not None and look.samples > seconds * look.rate
