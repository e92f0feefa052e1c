"""Folders of class folders of recordings as a data set: sounds/yes/1.wav, or sounds/train/yes/1.wav beside test/."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ...errors import Problem
from ...spec import AudioSpec, Classes
from ..assembly import Origin, assemble
from ..folders import AUDIO, NAMED_AT_MOST, Found, absent_notes, find, fingerprint_of
from ..sets import DataSet, SequenceSplit
from ..settings import DataSettings
from ..splits import complete_split, straddle_note
from ..threads import in_threads
from .preprocessing import AudioPreprocessing, all_problems, spectrograms
from .reading import Look, look_at, unusable
from .spectrogram import FLOOR


def open_audio(path: Path, settings: DataSettings) -> DataSet:
    """Read a folder of class folders of .wav files. Raises as `audio_dataset`."""
    return audio_dataset(find(path, AUDIO), path.resolve().name, str(path), settings)


def audio_dataset(found: Found[Path], name: str, source: str, settings: DataSettings) -> DataSet:
    """Audio files, in memory as log-mel spectrograms.

    All recordings are brought to `settings.rate`, or to the rate that most training recordings have. Raises DataError
    that names every file that cannot be used, or SettingError.
    """
    files, names, labels = found.files, found.names, found.labels
    looks = list(in_threads(look_at, files, settings.workers))
    seen = [look for look in looks if not isinstance(look, Problem)]
    if len(seen) < len(looks):
        raise unusable(all_problems(files, looks), len(files))
    indices = complete_split(labels, found.classes, found.splits, settings)
    rate = settings.rate or commonest(seen[i].rate for i in indices["train"])
    used = np.unique(np.concatenate(list(indices.values())))  # `max_samples` may have left files out
    frames, lengths = spectrograms([files[i] for i in used], rate, settings.n_mels, settings.seconds, settings.workers)
    places = {split: torch.from_numpy(np.searchsorted(used, rows)) for split, rows in indices.items()}
    train, train_lengths = taken(frames, lengths, places["train"])
    spec = AudioSpec(int(train_lengths.max()), settings.n_mels, Classes(found.classes))
    preprocessing = AudioPreprocessing.fitted(spec, rate, settings.seconds, train)
    sums = [look.digest for look in seen]
    own_notes = [
        *absent_notes(labels, found.classes, indices, "none"),
        *_notes([seen[i] for i in used], [names[i] for i in used], rate, settings.seconds, frames, lengths),
        straddle_note(sums, indices, names.__getitem__, "recordings"),
    ]
    audio_splits = {}
    for split, rows in indices.items():
        values, own = taken(frames, lengths, places[split])
        target = torch.from_numpy(labels[rows])
        audio_splits[split] = SequenceSplit(preprocessing.normalise(values), own, target, [names[i] for i in rows])
    origin = Origin(name, source, fingerprint_of(names, sums), found.notes)
    return assemble(origin, settings, indices, preprocessing, audio_splits, own_notes)


def commonest(rates: Iterable[int]) -> int:
    """The rate that occurs most often; of two that occur equally often the lower, which nothing need be added for."""
    counts = Counter(rates)
    return min(counts, key=lambda rate: (-counts[rate], rate))


def taken(values: Tensor, lengths: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Of sequences one after another, (Σ lengths, …), those of these numbers; and their lengths."""
    pieces = torch.split(values, lengths.tolist())
    return torch.cat([pieces[i] for i in rows.tolist()]), lengths[rows]


def _notes(
    seen: Sequence[Look], names: Sequence[str], rate: int, seconds: float | None, frames: Tensor, lengths: Tensor
) -> list[str]:
    """What was done to the recordings that a person should know."""
    total = f"{len(seen):} recordings"
    other = [f"{n} ({look.rate:,})" for n, look in zip(names, seen) if look.rate != rate]
    several = [n for n, look in zip(names, seen) if look.channels > 1]
    long = [n for n, look in zip(names, seen) if seconds is not None and look.samples > seconds * look.rate]
    loudest = torch.stack([piece.max() for piece in torch.split(frames, lengths.tolist())])
    silent = [n for n, peak in zip(names, loudest) if peak <= math.log(FLOOR) + 1e-4]
    notes = []
    if other:
        notes.append(
            f"Brought to {rate:,} samples a second by a polyphase filter: {len(other):,} of {total}, {_some(other)}."
        )
        if lower := sum(look.rate < rate for look in seen):
            notes[0] += f" The rate of {lower:,} was lower, and nothing sounds there above half of it."
    if several:
        notes.append(f"Channels averaged to one: {len(several):,} of {total}, {_some(several)}.")
    if long:
        notes.append(f"Cut at {seconds:g} s: {len(long):,} of {total}, {_some(long)}.")
    if silent:
        notes.append(f"Silent throughout: {len(silent):,} of {total}, {_some(silent)}.")
    return notes


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED_AT_MOST:,} more" if len(names) > NAMED_AT_MOST else ""
    return ", ".join(names[:NAMED_AT_MOST]) + more
