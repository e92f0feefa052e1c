"""Log-mel spectrograms of recordings, fitted on the training split and saved as JSON with the model.

    x[t, m] = (y[t, m] − mean[m]) / std[m],   y the log-mel spectrogram, mean and standard deviation for each band

With frames of L = 25 ms every H = 10 ms, a periodic Hann window w, and M bands:

    X[t, k] = Σ_n w[n] s[tH + n] e^(−2πi kn / K) / Σ_n w[n]            the short-time Fourier transform
    y[t, m] = ln max( Σ_k W[m, k] |X[t, k]|², 10⁻¹⁰ )

W[m, ·] is a triangular filter that rises from f_{m−1} to 1 at f_m and falls to f_{m+1}. The M + 2 points f are equally
spaced on the mel scale from 0 to half the sampling rate, with

    mel(f) = 2595 log₁₀(1 + f / 700)

as in S. Young et al., The HTK book, section 5.4 (the formula is D. O'Shaughnessy's, Speech communication, 1987).

- Division by Σ w makes levels independent of the rate: a tone of amplitude 1 has the power 1/4 in its band.
- HTK's triangles have straight sides on the mel scale. Here, as in librosa and torchaudio, they have straight sides on
  the frequency scale. All have height 1; Slaney's, librosa's default, have equal areas and another mel scale.
- The first frame begins with the first sample, without reflection padding. Zeros after the last sample complete the
  last frame, so that every sample is covered.
- K, the transform size, is the smallest power of two from L on for which each triangle's upper half contains a
  frequency bin. If there are more bands than the window can resolve, neighboring bands are correlated.

Splits read recordings and compute spectrograms during training.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ...core import spec as specs
from ...core.config import build
from ...core.errors import DataError, FolderLayoutError, NotEnoughDataError, Problem
from ...core.schema import COUNT, NUMBER
from ...core.spec import AudioSpec, Spelled, Transcript
from ..dataset_base import IGNORED, Batch, SequenceSplit, Split
from ..folders import AUDIO, find_labelled
from ..parallel import Progress, find_unreadable, map_in_threads, prefetch
from ..samplers import bucket_batches
from ..settings import DataSettings
from ..streaming.file_index import Stored
from ..streaming.webdataset import FileInspector, all_members, is_sharded, labelled_shards
from .audio_files import (
    AS_IT_IS,
    TABLE,
    AudioFileInfo,
    Recording,
    Samples,
    check_decodable,
    encode_transcripts,
    inspect_recording,
    is_transcribed,
    list_audio_files,
    pack_audio_info,
    read_samples,
    read_transcripts,
    too_long_problem,
    unknown_character_problem,
    unusable_audio_error,
)


@dataclass(frozen=True)
class AudioPreprocessing:
    """Preprocessing of a recording to a tensor (T, F)."""

    spec: AudioSpec
    rate: int  # samples per second after resampling
    seconds: float | None  # maximal duration, except with transcripts; None keeps recordings whole
    mean: tuple[float, ...]  # per band, over all frames of the training recordings
    std: tuple[float, ...]

    SCHEMA: ClassVar[Mapping[str, Any]] = {
        "spec": specs.SCHEMA, "rate": COUNT, "seconds": NUMBER | None, "mean": [NUMBER], "std": [NUMBER],
    }  # fmt: skip

    @classmethod
    def fitted(cls, spec: AudioSpec, rate: int, seconds: float | None, frames: Tensor) -> AudioPreprocessing:
        """Fit the preprocessing on the frames (Σ T, F) of all training recordings."""
        mean = frames.mean(0, dtype=torch.float64)
        std = torch.stack([(band.double() - m).square().mean().sqrt() for band, m in zip(frames.T, mean)])
        std = torch.where(std > 1e-6, std, 1.0)  # a silent band stays at 0
        return cls(spec, rate, seconds, tuple(mean.tolist()), tuple(std.tolist()))

    def normalise(self, frames: Tensor) -> Tensor:
        """Normalise log-mel frames (…, F) to float32 of the same shape, with training statistics."""
        mean, std = (torch.tensor(v, dtype=torch.float32) for v in (self.mean, self.std))
        return (frames - mean).div_(std)

    def split(self, frames: Tensor, lengths: Tensor, target: Tensor | None, names: Sequence[str]) -> SequenceSplit:
        """Build a split from concatenated log-mel frames (Σ lengths, F) of recordings with lengths (n,)."""
        kind = SpelledSplit if isinstance(self.spec.target, Spelled) else SequenceSplit
        return kind(self.normalise(frames), lengths, target, names)

    def examples(self, sources: Sequence[Any]) -> SequenceSplit:
        """Build a split of recordings without targets from paths of audio files or folders, or files in memory
        (`UploadedFile`).

        Raises DataError that names every unusable file.
        """
        found = [file for source in sources for file in _recordings(source)]
        if not found:
            raise NotEnoughDataError("No recording was given.")
        return self._as_split(found, None, [str(file) for file in found])

    def labelled(self, source: str | Path) -> SequenceSplit:
        """Load a folder of class folders, or one with transcripts, with targets.

        Raises DataError if it holds no recordings, or a class or character that is not in training.
        """
        if isinstance(self.spec.target, Transcript):
            return self._transcribed(Path(source).expanduser(), self.spec.target)
        if is_sharded(path := Path(source).expanduser()):
            shards = labelled_shards(path, SHARDED, self.spec.target.classes).found
            return self._as_split(shards.files, torch.from_numpy(shards.labels), shards.names)
        files, labels, names = find_labelled(source, AUDIO, self.spec.target.classes)
        return self._as_split(files, torch.tensor(labels), names)

    def _transcribed(self, path: Path, target: Transcript) -> SequenceSplit:
        """Load the recordings of a folder with their transcripts."""
        if not path.is_dir() or not is_transcribed(path):
            raise DataError(f"{path} is not a folder with {TABLE}.", fix=AS_IT_IS)
        found = read_transcripts(path, target.lower)
        if found.splits:
            raise FolderLayoutError(f"{path} has several splits.", fix=f"Give one of them, as in {path / 'test'}.")
        wordy = [problem for name, text in zip(found.names, found.texts) if (problem := too_long_problem(name, text))]
        ids, strange = encode_transcripts([] if wordy else found.texts, target.alphabet, IGNORED)
        problems = [
            *found.problems,
            *wordy,
            *(unknown_character_problem(found.names[i], c) for i, c in strange.items()),
        ]
        if problems:
            raise DataError(f"{path} cannot be evaluated on:", problems, fix="Correct or remove these files.")
        return self._as_split(found.files, torch.tensor(ids), found.names)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values that `from_json` accepts."""
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
        """Load an object written by `to_json`. Raises ValueError if a document that matches SCHEMA is inconsistent."""
        spec = specs.read_spec(data["spec"], AudioSpec)
        build(DataSettings, {"rate": data["rate"], "seconds": data["seconds"], "n_mels": spec.n_mels})
        return cls(spec, data["rate"], data["seconds"], *specs.validate_scales(data["mean"], data["std"], spec.n_mels))

    def streamed(
        self,
        files: Sequence[Recording],
        lengths: Tensor,
        target: Tensor | None,
        names: Sequence[str],
        workers: int | None = None,
    ) -> StreamedSplit:
        """Build a split that reads recordings of `lengths` frames on demand, in `workers` threads."""

        def frames(index: Sequence[int]) -> tuple[Tensor, Tensor]:
            own = [files[i] for i in index]
            made, counts = spectrograms(own, self.rate, self.spec.n_mels, self.seconds, workers)
            return self.normalise(made), counts

        return StreamedSplit(frames, lengths, target, names, workers)

    def _as_split(self, files: Sequence[Recording], target: Tensor | None, names: Sequence[str]) -> SequenceSplit:
        inspect_recordings(files)
        most = None if isinstance(self.spec.target, Transcript) else self.seconds
        frames, lengths = spectrograms(files, self.rate, self.spec.n_mels, most)
        return self.split(frames, lengths, target, names)


def _recordings(source: str | Path | Stored) -> Sequence[Recording]:
    """Return the recordings of a path: a file, those directly in a folder, those in tar shards; or one in memory."""
    if isinstance(source, Stored):
        return [source]
    path = Path(source).expanduser()
    return all_members(path, SHARDED) if is_sharded(path) else list_audio_files(path)


def spectrograms(
    files: Sequence[Recording], rate: int, bands: int, seconds: float | None, workers: int | None = None
) -> tuple[Tensor, Tensor]:
    """Compute the concatenated log-mel frames (Σ T, bands), float32, of these files, and the frames per file, (n,).

    Files are read in `workers` threads (None: one per processor). Raises DataError that names every file whose samples
    cannot be used.
    """

    def read(path: Recording) -> Samples | Problem:
        return read_samples(path, rate, seconds)

    found: list[Tensor] = []
    problems: list[Problem] = []
    for samples in map_in_threads(read, files, workers):
        if isinstance(samples, Problem):
            problems.append(samples)
        elif not problems:
            found.append(log_mel(torch.from_numpy(samples), rate, bands))
    if problems:
        raise unusable_audio_error(problems, len(files))
    return torch.cat(found), torch.tensor([len(frames) for frames in found])


def inspect_recordings(files: Sequence[Recording], workers: int | None = None) -> list[AudioFileInfo]:
    """Check every file in `workers` threads. Raises DataError that names every unusable file.

    If a header check fails, the samples of the other files are read too, so that one error names all problems.
    """
    looks = list(map_in_threads(inspect_recording, files, workers))
    problems = [look for look in looks if isinstance(look, Problem)]
    if problems:
        well = [file for file, look in zip(files, looks) if isinstance(look, AudioFileInfo)]
        problems += [read for read in map_in_threads(read_samples, well) if isinstance(read, Problem)]
        raise unusable_audio_error(problems, len(files))
    return [look for look in looks if isinstance(look, AudioFileInfo)]


WINDOW = 0.025  # window length in seconds
HOP = 0.010  # seconds between frames
FLOOR = 1e-10  # −100 dB, the lower limit of the power


def log_mel(samples: Tensor, rate: int, bands: int) -> Tensor:
    """Compute the log-mel spectrogram (T, bands) of samples (n,), n ≥ 1, at `rate` samples per second.

    T = 1 + ⌈(n − L) / H⌉, at least 1. The result has the samples' precision.
    """
    window, filters = _window(rate, samples.dtype), _filters(rate, bands, samples.dtype)
    length, hop, size = len(window), hop_length(rate), 2 * (filters.shape[1] - 1)
    missing = length + hop * (frame_count(len(samples), rate) - 1) - len(samples)
    around = size - length  # torch centers the window in the transform
    padded = F.pad(samples, (around // 2, missing + around - around // 2))
    spectrum = torch.stft(padded, size, hop, length, window, center=False, return_complex=True)  # (K/2 + 1, T)
    power = spectrum.real.square() + spectrum.imag.square()
    return (filters @ power).clamp(min=FLOOR).log().T  # (T, bands)


def frame_count(samples: int, rate: int) -> int:
    """Return the number of frames of audio with this number of samples."""
    return 1 + max(0, -(-(samples - window_length(rate)) // hop_length(rate)))


def window_length(rate: int) -> int:
    """Return the window length L in samples."""
    return max(1, round(WINDOW * rate))


def hop_length(rate: int) -> int:
    """Return the hop length H in samples."""
    return max(1, round(HOP * rate))


def hz_to_mel(frequency: float) -> float:
    """Convert a frequency in hertz to mel."""
    return 2595 * math.log10(1 + frequency / 700)


def band_edges(rate: int, bands: int) -> Tensor:
    """Return the points f_0 … f_{M+1} in hertz, float64. Band m (from 0) starts at m, peaks at m + 1, ends at m + 2."""
    mels = torch.linspace(0, hz_to_mel(rate / 2), bands + 2, dtype=torch.float64)
    return 700 * (10 ** (mels / 2595) - 1)


def mel_filters(rate: int, bands: int, size: int) -> Tensor:
    """Return the triangular filters (bands, size/2 + 1), float64, for a transform of `size` samples."""
    edges = band_edges(rate, bands)[:, None]
    frequencies = torch.arange(size // 2 + 1, dtype=torch.float64) * rate / size
    rising = (frequencies - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - frequencies) / (edges[2:] - edges[1:-1])
    return torch.minimum(rising, falling).clamp(min=0)


def transform_size(rate: int, bands: int) -> int:
    """Return K, whose frequency spacing is at most the narrowest side of a triangle, which is the first."""
    narrowest = float(band_edges(rate, bands)[1])
    return 1 << math.ceil(math.log2(max(window_length(rate), rate / narrowest)))


@functools.lru_cache(maxsize=8)
def _window(rate: int, dtype: torch.dtype) -> Tensor:
    window = torch.hann_window(window_length(rate), dtype=torch.float64)
    return (window / window.sum()).to(dtype)


@functools.lru_cache(maxsize=8)
def _filters(rate: int, bands: int, dtype: torch.dtype) -> Tensor:
    return mel_filters(rate, bands, transform_size(rate, bands)).to(dtype)


AHEAD = 1  # batches read ahead during training
Frames = Callable[[Sequence[int]], tuple[Tensor, Tensor]]  # examples → concatenated frames (Σ T, F) and lengths (n,)


class StreamedSplit(Split):
    """A split of recordings whose log-mel spectrograms are computed batch by batch and padded with zeros."""

    def __init__(
        self, frames: Frames, lengths: Tensor, target: Tensor | None, names: Sequence[str], workers: int | None = None
    ) -> None:
        """Store the function `frames`, which returns the normalised frames of examples by index.

        `lengths` (n,) are the frames per example, for the batch plan.
        """
        self.lengths, self.target = lengths, target
        self._frames, self._names, self._held = frames, names, 0 if workers == 0 else AHEAD

    def __len__(self) -> int:
        return len(self._names)

    def plan(self, batch_size: int, generator: torch.Generator | None, tokens: int = 0) -> list[Tensor]:
        """Return batches of recordings with nearly equal length."""
        return bucket_batches(self.lengths, batch_size, generator, tokens)

    def batches(self, order: Iterable[Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield batches (N, T, F) with masks (N, T). Raises DataError naming a recording that cannot be read."""
        del seed
        return prefetch(self._batch, order, self._held)

    def name(self, i: int) -> str:
        """Return the recording's path."""
        return self._names[i]

    def damaged(self, progress: Progress | None = None) -> list[Problem]:
        """Return a problem for every recording that cannot be read."""
        return find_unreadable(lambda k: self._frames([k]), len(self), progress)

    def _batch(self, index: Tensor) -> Batch:
        frames, lengths = self._frames(index.tolist())
        mask = torch.arange(int(lengths.max())) < lengths[:, None]  # (N, T)
        x = pad_sequence([*torch.split(frames, lengths.tolist())], batch_first=True)  # (N, T, F)
        target = torch.empty(len(index), 0) if self.target is None else self.target[index]
        return Batch((x, mask), target)


END = 0  # the token before and after each transcript


class SpelledSplit(SequenceSplit):
    """A split of recordings with teacher-forced transcripts, whose target is the next token at each position.

    Transcripts are stored as characters, (n, S), as in a split without `Spelled` targets.
    """

    def batches(self, order: Iterable[torch.Tensor], seed: int | None = None) -> Iterator[Batch]:
        """Yield batches of recordings with shifted transcripts.

        Inputs are frames (N, T, F), their mask (N, T) and the shifted transcript (N, S), which starts with END. The
        target (N, S) is the next token, IGNORED after the end. Without transcripts S is 1 and the target is empty.
        """
        for inputs, target in super().batches(order, seed):
            if self.target is None:
                yield Batch((*inputs, torch.full((len(target), 1), END)), target)
                continue
            lengths = (target != IGNORED).sum(1)
            target = target[:, : int(lengths.max())]  # (N, S − 1): the longest of this batch
            so_far = F.pad(target.where(target != IGNORED, END), (1, 0), value=END)  # (N, S)
            ended = F.pad(target, (0, 1), value=IGNORED).scatter(1, lengths[:, None], END)  # (N, S)
            yield Batch((*inputs, so_far), ended)


SHARDED = FileInspector(AUDIO, inspect_recording, pack_audio_info, unusable_audio_error, check_decodable)
