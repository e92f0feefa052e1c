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

from ...core.errors import DataError, NotEnoughDataError, Problem
from ...core.spec import AudioSpec, Classes, Spelled, Target, Transcript
from ..build import DatasetBuilder, DataSource, DuplicateKeys, ExampleClasses
from ..dataset_base import IGNORED, DataSet, SequenceSplit, Split
from ..findings import reject_fill
from ..folders import AUDIO, NAMED_AT_MOST, FolderContents, find_examples, fingerprint_files, missing_class_notes
from ..modalities import reject_changed
from ..settings import DataSettings
from ..splits import Rows
from ..streaming.file_index import select_items
from ..streaming.webdataset import inspect_files, is_sharded, read_folder, read_shards
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
    seen = inspect_recordings(found.files, settings.workers) if seen is None else seen
    origin = DataSource(name, source, fingerprint_files(found.names, [look.digest for look in seen]), found.notes)
    return AudioBuilder(found, seen, origin, settings).build()


class AudioBuilder(DatasetBuilder[AudioPreprocessing, Split]):
    """The steps from recordings in classes to their data set."""

    noun = "recordings"

    def __init__(
        self,
        found: FolderContents[Recording],
        seen: Sequence[AudioFileInfo],
        origin: DataSource,
        settings: DataSettings,
    ) -> None:
        super().__init__(origin, settings)
        self.found, self.seen = found, seen
        self.classes = ExampleClasses(found.labels, found.classes, found.splits)

    def fit(self) -> AudioPreprocessing:
        """Choose a rate, compute spectrograms (of a sample, if not all fit into memory), and fit the scale on them."""
        settings, seen, train = self.settings, self.seen, self.indices["train"]
        rate = settings.rate or most_frequent_rate(seen[i].rate for i in train)
        self.counts = {i: count_frames(seen[i], rate, settings.seconds) for i in self.used.tolist()}
        self.held = self.fits_into_memory(sum(self.counts.values()) * settings.n_mels * BYTES)
        self.heard = self.used if self.held else self.training_sample(SAMPLE)
        own = [self.found.files[i] for i in self.heard]
        self.frames, self.lengths = spectrograms(own, rate, settings.n_mels, settings.seconds, settings.workers)
        frames = select_sequences(self.frames, self.lengths, self.places(train))[0] if self.held else self.frames
        longest = max(self.counts[i] for i in train.tolist())
        spec = AudioSpec(longest, settings.n_mels, Classes(self.found.classes))
        return AudioPreprocessing.fitted(spec, rate, settings.seconds, frames)

    def places(self, rows: Rows) -> Tensor:
        """Return the positions of these recordings among those whose spectrograms were computed."""
        return torch.from_numpy(np.searchsorted(self.heard, rows))

    def encode(self, split: str, rows: Rows) -> Split:
        """Return spectrograms in memory, or files to read in every epoch."""
        target, names = torch.from_numpy(self.found.labels[rows]), select_items(self.found.names, rows)
        if self.held:
            values, own = select_sequences(self.frames, self.lengths, self.places(rows))
            return SequenceSplit(self.preprocessing.normalise(values), own, target, names)
        own, files = torch.tensor([self.counts[i] for i in rows.tolist()]), select_items(self.found.files, rows)
        return self.preprocessing.streamed(files, own, target, names, self.settings.workers)

    def notes(self) -> list[str]:
        """Return notes on absent classes and on how the recordings were changed."""
        found, heard = self.found, self.heard
        return [
            *missing_class_notes(found.labels, found.classes, self.indices, "none"),
            *preparation_notes(
                [self.seen[i] for i in heard],
                [found.names[i] for i in heard],
                self.preprocessing.rate,
                self.settings.seconds,
                max_levels(self.frames, self.lengths),
            ),
        ]

    def duplicate_keys(self) -> DuplicateKeys:
        """Return the digest of each file."""
        return DuplicateKeys([look.digest for look in self.seen], self.found.names.__getitem__)


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
        raise NotEnoughDataError(
            f"missing=drop would leave nothing of {path}:", [*dropped, *lengthy], fix="Repair some of them."
        )
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
    sums = [transcript_digest(look.digest, text) for look, text in zip(spoken.looks, spoken.texts)]
    origin = DataSource(name, source, fingerprint_files(spoken.names, sums), notes)
    return TranscriptBuilder(spoken, origin, settings, targets).build()


class TranscriptBuilder(DatasetBuilder[AudioPreprocessing, Split]):
    """The steps from recordings with transcripts to their data set."""

    noun = "recordings"

    def __init__(
        self,
        spoken: TranscribedRecordings,
        origin: DataSource,
        settings: DataSettings,
        targets: tuple[type[Target], ...] = (),
    ) -> None:
        super().__init__(origin, settings)
        self.spoken, self.targets = spoken, targets
        self.classes = ExampleClasses.without(len(spoken.names), "transcript", spoken.splits)

    def split(self) -> dict[str, Rows]:
        """Split the recordings, and leave out transcripts with characters that training does not have."""
        names, texts = self.spoken.names, self.spoken.texts
        indices = super().split()
        self.alphabet = tuple(sorted({character for i in indices["train"] for character in texts[i]}))
        self.ids, strange = encode_transcripts(texts, self.alphabet, IGNORED)
        self.problems = problems = [
            unknown_character_problem(names[i], strange[i]) for rows in indices.values() for i in rows if i in strange
        ]
        fix = "Write it with characters that training knows (lower=true has no capitals)"
        _reject(problems, Path(self.origin.source), self.settings, fix)
        indices = {split: np.setdiff1d(rows, list(strange)).astype(np.int64) for split, rows in indices.items()}
        if empty := [split for split, rows in indices.items() if not len(rows)]:
            raise NotEnoughDataError(
                f"missing=drop would leave the {empty[0]} split empty:", problems, fix="Repair some of them."
            )
        return indices

    def fit(self) -> AudioPreprocessing:
        """Choose a rate, compute all spectrograms, and fit the scale on those of training."""
        settings, looks, train = self.settings, self.spoken.looks, self.indices["train"]
        rate = settings.rate or most_frequent_rate(looks[i].rate for i in train)
        self.frames: dict[str, Tensor] = {}
        self.lengths: dict[str, Tensor] = {}
        for split, rows in self.indices.items():
            own = [self.spoken.recordings[i] for i in rows]
            self.frames[split], self.lengths[split] = spectrograms(own, rate, settings.n_mels, None, settings.workers)
        self.peaks = torch.cat([max_levels(self.frames[split], self.lengths[split]) for split in self.indices])
        lower = bool(settings.lower)
        longest = max(len(self.spoken.texts[i]) for i in train) + 1
        target = (
            Spelled(self.alphabet, lower=lower, longest=longest)
            if Spelled in self.targets
            else Transcript(self.alphabet, lower=lower)
        )
        spec = AudioSpec(int(self.lengths["train"].max()), settings.n_mels, target)
        return AudioPreprocessing.fitted(spec, rate, settings.seconds, self.frames["train"])

    def encode(self, split: str, rows: Rows) -> Split:
        """Return spectrograms with the ids of their transcripts."""
        ids, names = torch.tensor([self.ids[i] for i in rows]), [self.spoken.names[i] for i in rows]
        return self.preprocessing.split(self.frames.pop(split), self.lengths[split], ids, names)

    def notes(self) -> list[str | None]:
        """Return notes on the alphabet and on recordings that were left out or changed."""
        used = np.concatenate(list(self.indices.values()))
        looks, names = [self.spoken.looks[i] for i in used], [self.spoken.names[i] for i in used]
        return [
            _alphabet_note(self.alphabet),
            _dropped_note(self.problems),
            *preparation_notes(looks, names, self.preprocessing.rate, None, self.peaks),
        ]

    def duplicate_keys(self) -> DuplicateKeys:
        """Return the digest of each file."""
        return DuplicateKeys([look.digest for look in self.spoken.looks], self.spoken.names.__getitem__)


def _reject(problems: Sequence[Problem], path: Path, settings: DataSettings, fix: str) -> None:
    """Raise DataError that names all problems, unless missing="drop"."""
    if problems and settings.missing == "error":
        count = "One line or file" if len(problems) == 1 else f"{len(problems):,} lines or files"
        raise DataError(f"{count} of {path} cannot be used for training:", problems, fix=f"{fix}{DROP}.")


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
