"""Folders of class folders of recordings as a data set: sounds/yes/1.wav, or sounds/train/yes/1.wav beside test/."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ...files import MEBIBYTE
from ...spec import AudioSpec, Classes, Target
from ..assembly import Origin, assemble
from ..folders import AUDIO, Found, absent_notes, find, fingerprint_of
from ..guard.duplicates import straddle_note
from ..kinds import reject_changed
from ..sets import DataSet, SequenceSplit, Split
from ..settings import DataSettings
from ..shards.indexed_folders import read_folder
from ..shards.indexing import read_shards
from ..shards.members import chosen
from ..shards.tars import is_sharded
from ..splits import Rows, complete_split, draw
from .notes import loudest, preparation_notes
from .preprocessing import AudioPreprocessing, look_at_all, spectrograms
from .reading import Look, Recording, commonest, unpacked
from .sharded import SHARDED
from .spectrogram import frame_count
from .transcribed import open_transcribed
from .transcripts import is_transcribed

SAMPLE = 1024  # training recordings from which mean and standard deviation are taken, where not all are in memory
BYTES = 4  # of a number of a spectrogram


def open_audio(path: Path, settings: DataSettings, targets: tuple[type[Target], ...] = ()) -> DataSet:
    """Read a folder of class folders of recordings, or of recordings with transcripts, which are spelled where a model
    learns that of the `targets`; or tar shards of recordings with classes. Raises as `audio_dataset`, or
    `read_shards`."""
    name = path.resolve().name
    if is_sharded(path):
        reject_changed(settings, ("lower",), "is for recordings with transcripts, and these have classes")
        read = read_shards(path, SHARDED, drop=settings.missing == "drop")
        return audio_dataset(read.found, name, str(path), settings, unpacked(read.looks))
    if is_transcribed(path):
        return open_transcribed(path, settings, targets)
    reject_changed(settings, ("lower",), "is for recordings with transcripts, and these have classes")
    read = read_folder(
        path, SHARDED, "2", lambda: find(path, AUDIO), lambda files: look_at_all(files, settings.workers), settings
    )
    return audio_dataset(read.found, name, str(path), settings, unpacked(read.looks))


def audio_dataset(
    found: Found[Recording], name: str, source: str, settings: DataSettings, seen: Sequence[Look] | None = None
) -> DataSet:
    """Audio files as log-mel spectrograms: in memory where that takes no more than settings.memory, else made of the
    files anew in every epoch. Each is looked at unless it was `seen` already.

    All recordings are brought to `settings.rate`, or to the rate that most training recordings have. Raises DataError
    that names every file that cannot be used, or SettingError.
    """
    files, names, labels = found.files, found.names, found.labels
    seen = look_at_all(files, settings.workers) if seen is None else seen
    indices = complete_split(labels, found.classes, found.splits, settings)
    rate = settings.rate or commonest(seen[i].rate for i in indices["train"])
    used = np.unique(np.concatenate(list(indices.values())))  # `max_samples` may have left files out
    counts = {i: frames_of(seen[i], rate, settings.seconds) for i in used.tolist()}
    held = sum(counts.values()) * settings.n_mels * BYTES <= settings.memory * MEBIBYTE
    heard = used if held else draw(indices["train"], SAMPLE, seed=settings.split_seed)
    own = [files[i] for i in heard]
    frames, lengths = spectrograms(own, rate, settings.n_mels, settings.seconds, settings.workers)
    places = {split: torch.from_numpy(np.searchsorted(heard, rows)) for split, rows in indices.items()}
    train = taken(frames, lengths, places["train"])[0] if held else frames
    longest = max(counts[i] for i in indices["train"].tolist())
    spec = AudioSpec(longest, settings.n_mels, Classes(found.classes))
    preprocessing = AudioPreprocessing.fitted(spec, rate, settings.seconds, train)
    sums = [look.digest for look in seen]
    own_notes = [
        *absent_notes(labels, found.classes, indices, "none"),
        *preparation_notes(
            [seen[i] for i in heard], [names[i] for i in heard], rate, settings.seconds, loudest(frames, lengths)
        ),
        straddle_note(sums, indices, names.__getitem__, "recordings"),
    ]

    def as_split(split: str, rows: Rows) -> Split:
        target, own_names = torch.from_numpy(labels[rows]), chosen(names, rows)
        if held:
            values, own = taken(frames, lengths, places[split])
            return SequenceSplit(preprocessing.normalise(values), own, target, own_names)
        own = torch.tensor([counts[i] for i in rows.tolist()])
        return preprocessing.streamed(chosen(files, rows), own, target, own_names, settings.workers)

    origin = Origin(name, source, fingerprint_of(names, sums), found.notes)
    splits = {split: as_split(split, rows) for split, rows in indices.items()}
    return assemble(origin, settings, indices, preprocessing, splits, own_notes)


def frames_of(look: Look, rate: int, seconds: float | None) -> int:
    """How many frames a recording has once it is cut and brought to `rate`."""
    samples = look.samples if seconds is None else min(look.samples, max(1, round(seconds * look.rate)))
    return frame_count(-(-samples * rate // look.rate), rate)


def taken(values: Tensor, lengths: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Of sequences one after another, (Σ lengths, …), those of these numbers; and their lengths."""
    pieces = torch.split(values, lengths.tolist())
    return torch.cat([pieces[i] for i in rows.tolist()]), lengths[rows]
