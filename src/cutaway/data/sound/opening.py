"""Folders of class folders of sounds as a data set: sounds/yes/1.wav, or sounds/train/yes/1.wav beside test/."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ...errors import Problem
from ...spec import Classes, SoundSpec
from ..applicable import refuse_settings_for_others
from ..folders import NAMED_AT_MOST, SOUNDS, absent_notes, find, fingerprint_of
from ..sets import DataSet, SequencePart
from ..settings import DataSettings
from ..splits import Rows, complete_split, split_hash, straddle_note
from ..threads import in_threads
from .preprocessing import SoundPreprocessing, all_problems, spectrograms
from .reading import Look, look_at, unusable
from .spectrogram import FLOOR


def open_sounds(path: Path, settings: DataSettings) -> DataSet:
    """Read a folder of class folders of .wav files. Raises as `sound_dataset`."""
    refuse_settings_for_others(settings, "sound")
    found = find(path, SOUNDS)
    return sound_dataset(
        found.files,
        found.labels,
        found.classes,
        settings,
        name=path.resolve().name,
        source=str(path),
        names=[str(file.relative_to(path)) for file in found.files],
        parts=found.parts,
        notes=found.notes,
    )


def sound_dataset(
    files: Sequence[Path],
    labels: Rows,
    classes: Sequence[str],
    settings: DataSettings,
    *,
    name: str,
    source: str,
    names: Sequence[str],
    parts: Mapping[str, Rows] | None = None,
    notes: Sequence[str] = (),
) -> DataSet:
    """Sound files with `labels` (n,), class k named `classes[k]`, in memory as log-mel spectrograms.

    `names` is what a person calls each file; `parts` the split that they come with, whose missing parts are drawn from
    its training part. All sounds are brought to `settings.rate`, or to the rate that most training sounds have.
    Raises DataError that names every file that cannot be used, or SettingError.
    """
    refuse_settings_for_others(settings, "sound")
    looks = list(in_threads(look_at, files, settings.workers))
    seen = [look for look in looks if not isinstance(look, Problem)]
    if len(seen) < len(looks):
        raise unusable(all_problems(files, looks), len(files))
    split = complete_split(labels, classes, parts, settings)
    rate = settings.rate or commonest(seen[i].rate for i in split["train"])
    used = np.unique(np.concatenate(list(split.values())))  # `max_samples` may have left files out
    frames, lengths = spectrograms([files[i] for i in used], rate, settings.n_mels, settings.seconds, settings.workers)
    places = {part: torch.from_numpy(np.searchsorted(used, rows)) for part, rows in split.items()}
    train, train_lengths = taken(frames, lengths, places["train"])
    spec = SoundSpec(int(train_lengths.max()), settings.n_mels, Classes(tuple(classes)))
    preprocessing = SoundPreprocessing.fitted(spec, rate, settings.seconds, train)
    sums = [look.digest for look in seen]
    own_notes = [
        *absent_notes(labels, classes, split, "none"),
        *_notes([seen[i] for i in used], [names[i] for i in used], rate, settings.seconds, frames, lengths),
        straddle_note(sums, split, names.__getitem__, "sounds"),
    ]
    sound_parts = {}
    for part, rows in split.items():
        values, own = taken(frames, lengths, places[part])
        target = torch.from_numpy(labels[rows])
        sound_parts[part] = SequencePart(preprocessing.normalise(values), own, target, [names[i] for i in rows])
    return DataSet(
        name=name,
        source=source,
        spec=spec,
        parts={**sound_parts},
        preprocessing=preprocessing,
        fingerprint=fingerprint_of(names, sums),
        split_hash=split_hash(split),
        notes=[*notes, *(note for note in own_notes if note)],
    )


def commonest(rates: Iterable[int]) -> int:
    """The rate that occurs most often; of two that occur equally often the lower, which nothing need be added for."""
    counts = Counter(rates)
    return min(counts, key=lambda rate: (-counts[rate], rate))


def taken(values: Tensor, lengths: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Of sequences one behind another, (Σ lengths, …), those of these numbers; and their lengths."""
    pieces = torch.split(values, lengths.tolist())
    return torch.cat([pieces[i] for i in rows.tolist()]), lengths[rows]


def _notes(
    seen: Sequence[Look], names: Sequence[str], rate: int, seconds: float | None, frames: Tensor, lengths: Tensor
) -> list[str]:
    """What was done to the sounds that a person should know."""
    total = f"{len(seen):,} sounds"
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
