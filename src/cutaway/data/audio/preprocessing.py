"""From any recording to the tensor that the network takes: fitted on the training split, saved as JSON with the model.

x[t, m] = (y[t, m] − mean[m]) / std[m],   y the log-mel spectrogram, mean and standard deviation for each band
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from ... import spec as specs
from ...errors import DataError, Problem
from ...schema import COUNT, NUMBER
from ...settings import build
from ...spec import AudioSpec, Spelled, Transcript
from ..folders import AUDIO, labelled
from ..sets import IGNORED, SequenceSplit
from ..settings import DataSettings
from ..shards.indexing import all_of, labelled_shards
from ..shards.members import Stored
from ..shards.tars import is_sharded
from ..threads import in_threads
from .reading import Look, Recording, Samples, look_at, read_samples, sound_files, unusable
from .sharded import SHARDED
from .spectrogram import log_mel
from .spelled import SpelledSplit
from .streamed import StreamedSplit
from .transcripts import AS_IT_IS, TABLE, ids_of, is_transcribed, outside, read_transcripts, too_long


@dataclass(frozen=True)
class AudioPreprocessing:
    """How a recording becomes a tensor (T, F)."""

    spec: AudioSpec
    rate: int  # samples in a second that recordings are brought to
    seconds: float | None  # what they are cut to, transcribed ones aside; None keeps them whole
    mean: tuple[float, ...]  # per band, over all frames of the training recordings
    std: tuple[float, ...]

    SCHEMA: ClassVar[Mapping[str, Any]] = {
        "spec": specs.SCHEMA, "rate": COUNT, "seconds": NUMBER | None, "mean": [NUMBER], "std": [NUMBER],
    }  # fmt: skip

    @classmethod
    def fitted(cls, spec: AudioSpec, rate: int, seconds: float | None, frames: Tensor) -> AudioPreprocessing:
        """Fit it on the frames (Σ T, F) of all training recordings together."""
        mean = frames.mean(0, dtype=torch.float64)
        std = torch.stack([(band.double() - m).square().mean().sqrt() for band, m in zip(frames.T, mean)])
        std = torch.where(std > 1e-6, std, 1.0)  # a band in which nothing sounds stays at 0
        return cls(spec, rate, seconds, tuple(mean.tolist()), tuple(std.tolist()))

    def normalise(self, frames: Tensor) -> Tensor:
        """Log-mel frames (…, F) to float32 of the same shape: mean 0 and standard deviation 1 in training."""
        mean, std = (torch.tensor(v, dtype=torch.float32) for v in (self.mean, self.std))
        return (frames - mean).div_(std)

    def split(self, frames: Tensor, lengths: Tensor, target: Tensor | None, names: Sequence[str]) -> SequenceSplit:
        """Log-mel frames (Σ lengths, F) of recordings one after another, of these lengths (n,), as examples."""
        kind = SpelledSplit if isinstance(self.spec.target, Spelled) else SequenceSplit
        return kind(self.normalise(frames), lengths, target, names)

    def examples(self, sources: Sequence[Any]) -> SequenceSplit:
        """Recordings without targets: paths of audio files, or of folders of them; or such files in memory (`Sent`).

        Raises DataError that names every file that is no usable recording.
        """
        found = [file for source in sources for file in _recordings(source)]
        if not found:
            raise DataError("No recording was given.")
        return self._as_split(found, None, [str(file) for file in found])

    def labelled(self, source: str | Path) -> SequenceSplit:
        """The recordings of a folder of class folders, or of one with transcripts, with targets.

        Raises DataError where it holds none, or a class or character that training did not know.
        """
        if isinstance(self.spec.target, Transcript):
            return self._transcribed(Path(source).expanduser(), self.spec.target)
        if is_sharded(path := Path(source).expanduser()):
            shards = labelled_shards(path, SHARDED, self.spec.target.classes).found
            return self._as_split(shards.files, torch.from_numpy(shards.labels), shards.names)
        files, labels, names = labelled(source, AUDIO, self.spec.target.classes)
        return self._as_split(files, torch.tensor(labels), names)

    def _transcribed(self, path: Path, target: Transcript) -> SequenceSplit:
        """The recordings of a folder with their transcripts."""
        if not path.is_dir() or not is_transcribed(path):
            raise DataError(f"{path} is no folder with {TABLE}.", fix=AS_IT_IS)
        found = read_transcripts(path, target.lower)
        if found.splits:
            raise DataError(f"{path} has several splits.", fix=f"Give one of them, as in {path / 'test'}.")
        wordy = [problem for name, text in zip(found.names, found.texts) if (problem := too_long(name, text))]
        ids, strange = ids_of([] if wordy else found.texts, target.alphabet, IGNORED)
        problems = [*found.problems, *wordy, *(outside(found.names[i], c) for i, c in strange.items())]
        if problems:
            raise DataError(f"{path} cannot be evaluated on:", problems, fix="Correct or leave out what is named.")
        return self._as_split(found.files, torch.tensor(ids), found.names)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` gives an equal object back."""
        return {
            "kind": "audio",
            "spec": specs.to_json(self.spec),
            "rate": self.rate,
            "seconds": self.seconds,
            "mean": list(self.mean),
            "std": list(self.std),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> AudioPreprocessing:
        """The object that `to_json` wrote. Raises ValueError where the document, which is as SCHEMA says, cannot be."""
        spec = specs.read_as(data["spec"], AudioSpec)
        build(DataSettings, {"rate": data["rate"], "seconds": data["seconds"], "n_mels": spec.n_mels})
        return cls(spec, data["rate"], data["seconds"], *specs.scales(data["mean"], data["std"], spec.n_mels))

    def streamed(
        self,
        files: Sequence[Recording],
        lengths: Tensor,
        target: Tensor | None,
        names: Sequence[str],
        workers: int | None = None,
    ) -> StreamedSplit:
        """A split whose recordings, of so many frames each, are read when a batch needs them, in `workers` threads."""

        def frames(index: Sequence[int]) -> tuple[Tensor, Tensor]:
            own = [files[i] for i in index]
            made, counts = spectrograms(own, self.rate, self.spec.n_mels, self.seconds, workers)
            return self.normalise(made), counts

        return StreamedSplit(frames, lengths, target, names, workers)

    def _as_split(self, files: Sequence[Recording], target: Tensor | None, names: Sequence[str]) -> SequenceSplit:
        look_at_all(files)
        most = None if isinstance(self.spec.target, Transcript) else self.seconds
        frames, lengths = spectrograms(files, self.rate, self.spec.n_mels, most)
        return self.split(frames, lengths, target, names)


def _recordings(source: str | Path | Stored) -> Sequence[Recording]:
    """The recordings of a path: a file, those directly in a folder, or those in tar shards; or one in memory."""
    if isinstance(source, Stored):
        return [source]
    path = Path(source).expanduser()
    return all_of(path, SHARDED) if is_sharded(path) else sound_files(path)


def spectrograms(
    files: Sequence[Recording], rate: int, bands: int, seconds: float | None, workers: int | None = None
) -> tuple[Tensor, Tensor]:
    """The log-mel frames of these files one after another, (Σ T, bands) float32, and how many each has, (n,).

    Files are read in `workers` threads (None: one for each processor). Raises DataError that names every file whose
    samples cannot be used.
    """

    def read(path: Recording) -> Samples | Problem:
        return read_samples(path, rate, seconds)

    found: list[Tensor] = []
    problems: list[Problem] = []
    for samples in in_threads(read, files, workers):
        if isinstance(samples, Problem):
            problems.append(samples)
        elif not problems:
            found.append(log_mel(torch.from_numpy(samples), rate, bands))
    if problems:
        raise unusable(problems, len(files))
    return torch.cat(found), torch.tensor([len(frames) for frames in found])


def look_at_all(files: Sequence[Recording], workers: int | None = None) -> list[Look]:
    """A look at each, in `workers` threads. Raises DataError that names every file that cannot be used, where a look
    finds one: then those that look well are read through too."""
    looks = list(in_threads(look_at, files, workers))
    problems = [look for look in looks if isinstance(look, Problem)]
    if problems:
        well = [file for file, look in zip(files, looks) if isinstance(look, Look)]
        problems += [read for read in in_threads(read_samples, well) if isinstance(read, Problem)]
        raise unusable(problems, len(files))
    return [look for look in looks if isinstance(look, Look)]
