"""Folders of class folders of recordings as a data set: sounds/yes/1.wav, or sounds/train/yes/1.wav beside test/."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ...errors import Problem
from ...spec import AudioSpec, Classes, Target
from ..assembly import Origin, assemble
from ..folders import AUDIO, Found, absent_notes, find, fingerprint_of
from ..kinds import reject_changed
from ..sets import DataSet, SequenceSplit
from ..settings import DataSettings
from ..splits import complete_split, straddle_note
from ..threads import in_threads
from .notes import loudest, preparation_notes
from .preprocessing import AudioPreprocessing, all_problems, spectrograms
from .reading import commonest, look_at, unusable
from .transcribed import open_transcribed
from .transcripts import is_transcribed


def open_audio(path: Path, settings: DataSettings, targets: tuple[type[Target], ...] = ()) -> DataSet:
    """Read a folder of class folders of .wav files, or of recordings with transcripts, which are spelled where a model
    learns that of the `targets`. Raises as `audio_dataset`."""
    if is_transcribed(path):
        return open_transcribed(path, settings, targets)
    reject_changed(settings, ("missing", "lower"), "is for recordings with transcripts, and these have classes")
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
        *preparation_notes(
            [seen[i] for i in used], [names[i] for i in used], rate, settings.seconds, loudest(frames, lengths)
        ),
        straddle_note(sums, indices, names.__getitem__, "recordings"),
    ]
    audio_splits = {}
    for split, rows in indices.items():
        values, own = taken(frames, lengths, places[split])
        target = torch.from_numpy(labels[rows])
        audio_splits[split] = SequenceSplit(preprocessing.normalise(values), own, target, [names[i] for i in rows])
    origin = Origin(name, source, fingerprint_of(names, sums), found.notes)
    return assemble(origin, settings, indices, preprocessing, audio_splits, own_notes)


def taken(values: Tensor, lengths: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Of sequences one after another, (Σ lengths, …), those of these numbers; and their lengths."""
    pieces = torch.split(values, lengths.tolist())
    return torch.cat([pieces[i] for i in rows.tolist()]), lengths[rows]
