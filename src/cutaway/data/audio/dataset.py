"""Audio data sets: class folders, and recordings with transcripts.

sounds/yes/1.wav, or sounds/train/yes/1.wav with test/    classification
calls/transcripts.tsv with the recordings                 speech recognition
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ...core.errors import DataError, Problem
from ...core.files import MEBIBYTE
from ...core.spec import AudioSpec, Classes, Spelled, Target, Transcript
from ..build import DataSource, build_dataset
from ..dataset_base import IGNORED, DataSet, SequenceSplit, Split
from ..findings import duplicate_warning, reject_fill
from ..folders import AUDIO, NAMED_AT_MOST, FolderContents, find_examples, fingerprint_files, missing_class_notes
from ..modalities import reject_changed
from ..settings import DataSettings
from ..splits import Rows, complete_split, sample_rows
from ..streaming.members import select_items
from ..streaming.tars import inspect_files, is_sharded, read_folder, read_shards
from .audio_files import (
    AudioFileInfo,
    Recording,
    encode_transcripts,
    is_transcribed,
    most_frequent_rate,
    read_transcripts,
    too_long_problem,
    transcript_digest,
    unknown_character_problem,
    unpack_audio_info,
)
from .transforms import FLOOR, SHARDED, AudioPreprocessing, frame_count, inspect_recordings, spectrograms

SAMPLE = 1024  # training recordings used to estimate mean and standard deviation if not all are in memory
BYTES = 4  # per spectrogram value


def open_audio(path: Path, settings: DataSettings, targets: tuple[type[Target], ...] = ()) -> DataSet:
    """Load class folders of recordings, recordings with transcripts, or tar shards of recordings with classes.

    Transcripts become `Spelled` targets if the model's `targets` include it. Raises what `audio_dataset` and
    `read_shards` raise.
    """
    name = path.resolve().name
    if is_sharded(path):
        reject_changed(settings, ("lower",), "is for recordings with transcripts, and these have classes")
        read = read_shards(path, SHARDED, drop=settings.missing == "drop")
        return audio_dataset(read.found, name, str(path), settings, unpack_audio_info(read.looks))
    if is_transcribed(path):
        return open_transcribed(path, settings, targets)
    reject_changed(settings, ("lower",), "is for recordings with transcripts, and these have classes")
    read = read_folder(
        path,
        SHARDED,
        "2",
        lambda: find_examples(path, AUDIO),
        lambda files: inspect_recordings(files, settings.workers),
        settings,
    )
    return audio_dataset(read.found, name, str(path), settings, unpack_audio_info(read.looks))


def audio_dataset(
    found: FolderContents[Recording],
    name: str,
    source: str,
    settings: DataSettings,
    seen: Sequence[AudioFileInfo] | None = None,
) -> DataSet:
    """Build a data set of audio files as log-mel spectrograms.

    The spectrograms are kept in memory if they fit into settings.memory, otherwise they are computed from the files in
    every epoch. Files are checked unless their properties are given as `seen`. All recordings are resampled to
    `settings.rate`, or to the most frequent rate of the training recordings. Raises DataError that names every file
    that cannot be used, or SettingError.
    """
    files, names, labels = found.files, found.names, found.labels
    seen = inspect_recordings(files, settings.workers) if seen is None else seen
    indices = complete_split(labels, found.classes, found.splits, settings)
    rate = settings.rate or most_frequent_rate(seen[i].rate for i in indices["train"])
    used = np.unique(np.concatenate(list(indices.values())))  # `max_samples` may have excluded files
    counts = {i: count_frames(seen[i], rate, settings.seconds) for i in used.tolist()}
    held = sum(counts.values()) * settings.n_mels * BYTES <= settings.memory * MEBIBYTE
    heard = used if held else sample_rows(indices["train"], SAMPLE, seed=settings.split_seed)
    own = [files[i] for i in heard]
    frames, lengths = spectrograms(own, rate, settings.n_mels, settings.seconds, settings.workers)
    places = {split: torch.from_numpy(np.searchsorted(heard, rows)) for split, rows in indices.items()}
    train = select_sequences(frames, lengths, places["train"])[0] if held else frames
    longest = max(counts[i] for i in indices["train"].tolist())
    spec = AudioSpec(longest, settings.n_mels, Classes(found.classes))
    preprocessing = AudioPreprocessing.fitted(spec, rate, settings.seconds, train)
    sums = [look.digest for look in seen]
    own_notes = [
        *missing_class_notes(labels, found.classes, indices, "none"),
        *preparation_notes(
            [seen[i] for i in heard], [names[i] for i in heard], rate, settings.seconds, max_levels(frames, lengths)
        ),
        duplicate_warning(sums, indices, names.__getitem__, "recordings"),
    ]

    def as_split(split: str, rows: Rows) -> Split:
        target, own_names = torch.from_numpy(labels[rows]), select_items(names, rows)
        if held:
            values, own = select_sequences(frames, lengths, places[split])
            return SequenceSplit(preprocessing.normalise(values), own, target, own_names)
        own = torch.tensor([counts[i] for i in rows.tolist()])
        return preprocessing.streamed(select_items(files, rows), own, target, own_names, settings.workers)

    origin = DataSource(name, source, fingerprint_files(names, sums), found.notes)
    splits = {split: as_split(split, rows) for split, rows in indices.items()}
    return build_dataset(origin, settings, indices, preprocessing, splits, own_notes)


def count_frames(look: AudioFileInfo, rate: int, seconds: float | None) -> int:
    """Return the number of frames of a recording after it is cut and resampled to `rate`."""
    samples = look.samples if seconds is None else min(look.samples, max(1, round(seconds * look.rate)))
    return frame_count(-(-samples * rate // look.rate), rate)


def select_sequences(values: Tensor, lengths: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Select the sequences `rows` from concatenated ones (Σ lengths, …), with their lengths."""
    pieces = torch.split(values, lengths.tolist())
    return torch.cat([pieces[i] for i in rows.tolist()]), lengths[rows]


def max_levels(frames: Tensor, lengths: Tensor) -> Tensor:
    """Return the maximum (n,) of each recording's log-mel frames, which are concatenated to (Σ lengths, F)."""
    return torch.stack([piece.max() for piece in torch.split(frames, lengths.tolist())])


def preparation_notes(
    seen: Sequence[AudioFileInfo], names: Sequence[str], rate: int, seconds: float | None, peaks: Tensor
) -> list[str]:
    """Return notes on how the recordings were changed: resampled, averaged, cut to `seconds` if not None.

    `peaks` (n,) are the maxima of each recording, which reveal silent ones.
    """
    total = f"{len(seen):} recordings"
    other = [f"{n} ({look.rate:,})" for n, look in zip(names, seen) if look.rate != rate]
    several = [n for n, look in zip(names, seen) if look.channels > 1]
    long = [n for n, look in zip(names, seen) if seconds is not None and look.samples > seconds * look.rate]
    silent = [n for n, peak in zip(names, peaks) if peak <= math.log(FLOOR) + 1e-4]
    notes = []
    if other:
        notes.append(
            f"Brought to {rate:,} samples a second by a polyphase filter: {len(other):,} of {total}, {_shorten(other)}."
        )
        if lower := sum(look.rate < rate for look in seen):
            notes[0] += f" The rate of {lower:,} was lower, and nothing sounds there above half of it."
    if several:
        notes.append(f"Channels averaged to one: {len(several):,} of {total}, {_shorten(several)}.")
    if long:
        notes.append(f"Cut at {seconds:g} s: {len(long):,} of {total}, {_shorten(long)}.")
    if silent:
        notes.append(f"Silent throughout: {len(silent):,} of {total}, {_shorten(silent)}.")
    return notes


def _shorten(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED_AT_MOST:,} more" if len(names) > NAMED_AT_MOST else ""
    return ", ".join(names[:NAMED_AT_MOST]) + more


DROP = "; or missing=drop leaves these files out"


@dataclass(frozen=True)
class TranscribedRecordings:
    """Usable recordings with their transcripts."""

    recordings: Sequence[Recording]
    names: Sequence[str]  # display names
    texts: Sequence[str]
    looks: Sequence[AudioFileInfo]
    splits: Mapping[str, Rows] | None = None  # recordings of each predefined split, if there are any


def open_transcribed(path: Path, settings: DataSettings, targets: tuple[type[Target], ...] = ()) -> DataSet:
    """Load a folder of recordings with transcripts. `targets` are those of `transcribed_dataset`.

    Raises DataError that names every row and file that cannot be used, or SettingError.
    """
    reject_fill(settings)
    found = read_transcripts(path, bool(settings.lower))
    dropped = list(found.problems)
    _reject(dropped, path, settings, "Give each recording one line with its transcript, and each line a recording")
    wordy = {i: problem for i, text in enumerate(found.texts) if (problem := too_long_problem(found.names[i], text))}
    _reject([*wordy.values()], path, settings, "Split such a recording and its transcript")
    if wordy:
        dropped += wordy.values()
        found = found.without(list(wordy))
    usable = inspect_files(found.files, SHARDED, lambda files: inspect_recordings(files, settings.workers), settings)
    if usable.notes:
        found = found.without(np.setdiff1d(np.arange(len(found.files)), usable.rows))
    seen = usable.looks
    long = {i: look.samples / look.rate for i, look in enumerate(seen) if _is_too_long(look, settings.seconds)}
    lengthy = [
        Problem(found.names[i], f"it lasts {s:.2f} s, longer than seconds={settings.seconds:g} allows")
        for i, s in long.items()
    ]
    _reject(lengthy, path, settings, "Cutting a recording would cut its speech: split it and its transcript")
    left, kept = found.without(list(long)), [look for i, look in enumerate(seen) if i not in long]
    if not left.files:
        raise DataError(f"missing=drop would leave nothing of {path}:", [*dropped, *lengthy], fix="Fix some of them.")
    note = _dropped_note([*dropped, *lengthy])
    spoken = TranscribedRecordings(left.files, left.names, left.texts, kept, left.splits)
    notes = [*([note] if note else []), *usable.notes]
    return transcribed_dataset(spoken, path.resolve().name, str(path), settings, notes, targets)


def transcribed_dataset(
    spoken: TranscribedRecordings,
    name: str,
    source: str,
    settings: DataSettings,
    notes: Sequence[str] = (),
    targets: tuple[type[Target], ...] = (),
) -> DataSet:
    """Build an in-memory data set of recordings with transcripts, as uncut log-mel spectrograms.

    The alphabet is that of the training split. The target is `Spelled` if that is among the model's `targets`,
    otherwise `Transcript`. Raises DataError or SettingError.
    """
    names, texts, looks = spoken.names, spoken.texts, spoken.looks
    indices = complete_split(np.zeros(len(names), np.int64), ("transcript",), spoken.splits, settings)
    alphabet = tuple(sorted({character for i in indices["train"] for character in texts[i]}))
    ids, strange = encode_transcripts(texts, alphabet, IGNORED)
    problems = [
        unknown_character_problem(names[i], strange[i]) for rows in indices.values() for i in rows if i in strange
    ]
    _reject(
        problems, Path(source), settings, "Write it with characters that training knows (lower=true has no capitals)"
    )
    indices = {split: np.setdiff1d(rows, list(strange)).astype(np.int64) for split, rows in indices.items()}
    if empty := [split for split, rows in indices.items() if not len(rows)]:
        raise DataError(f"missing=drop would leave the {empty[0]} split empty:", problems, fix="Fix some of them.")

    rate = settings.rate or most_frequent_rate(looks[i].rate for i in indices["train"])
    frames, lengths = {}, {}
    for split, rows in indices.items():
        own = [spoken.recordings[i] for i in rows]
        frames[split], lengths[split] = spectrograms(own, rate, settings.n_mels, None, settings.workers)
    peaks = torch.cat([max_levels(frames[split], lengths[split]) for split in indices])
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
        _alphabet_note(alphabet),
        _dropped_note(problems),
        *preparation_notes([looks[i] for i in used], [names[i] for i in used], rate, None, peaks),
        duplicate_warning(sums, indices, names.__getitem__, "recordings"),
    ]
    origin = DataSource(
        name, source, fingerprint_files(names, [transcript_digest(*one) for one in zip(sums, texts)]), notes
    )
    return build_dataset(origin, settings, indices, preprocessing, splits, about)


def _reject(problems: Sequence[Problem], path: Path, settings: DataSettings, fix: str) -> None:
    """Raise DataError that names all problems, unless missing="drop"."""
    if problems and settings.missing == "error":
        count = "One line or file" if len(problems) == 1 else f"{len(problems):,} lines or files"
        raise DataError(f"{count} of {path} cannot be learned from:", problems, fix=f"{fix}{DROP}.")


def _dropped_note(problems: Sequence[Problem]) -> str | None:
    """Return a note on the items that were left out."""
    if not problems:
        return None
    more = f"; and {len(problems) - NAMED_AT_MOST:,} more" if len(problems) > NAMED_AT_MOST else ""
    named = "; ".join(map(str, problems[:NAMED_AT_MOST]))
    count = "one line or file" if len(problems) == 1 else f"{len(problems):,} lines or files"
    return f"missing=drop left out {count}: {named}{more}."


def _alphabet_note(alphabet: Sequence[str]) -> str:
    """Return a note that lists the characters of the alphabet."""
    shown = " ".join(repr(c) if c.isspace() or not c.isprintable() else c for c in alphabet)
    return f"The training transcripts have {len(alphabet):,} characters: {shown}"


def _is_too_long(look: AudioFileInfo, seconds: float | None) -> bool:
    return seconds is not None and look.samples > seconds * look.rate
