"""Audio files: one look at each before anything is learned from them, and their samples."""

from __future__ import annotations

import hashlib
import io
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile

from ...errors import DataError, Problem
from ...files import exists
from ..folders import AUDIO, entries, subfolders
from ..shards.members import Stored, content, stream
from ..unusable import REPAIR

Samples = npt.NDArray[np.float32]

LEAST_RATE, LARGEST_RATE = 1000, 192_000  # samples in a second
LOUDEST = 1e9  # full scale is 1; files of floating-point numbers may go beyond, as whole numbers of 16 bits for one
UNKNOWN_LENGTH = 0x7FFFF000  # written from here on by programs that write to a pipe and cannot know the length


@dataclass(frozen=True)
class Look:
    """What one look at a audio file told."""

    digest: str  # sha256 of its bytes
    rate: int  # samples in a second
    channels: int
    samples: int  # of each channel


@dataclass(frozen=True)
class InMemory:
    """A recording that is no file: one that was composed of others."""

    samples: Samples  # (n,), full scale ±1
    rate: int  # samples in a second


Recording = Path | Stored | InMemory


def look_at(path: Recording) -> Look | Problem:
    """The head and the sum of an audio file; or what is wrong with it."""
    if isinstance(path, InMemory):
        return Look(hashlib.sha256(path.samples.tobytes()).hexdigest(), path.rate, 1, len(path.samples))
    try:
        data = content(path)
    except DataError as error:
        return error.problems[0]
    except OSError as error:
        return Problem(str(path), f"it cannot be read ({error.strerror or error})")
    if not data:
        return Problem(str(path), "it is empty (0 bytes)")
    try:
        head = soundfile.info(io.BytesIO(data))
    except soundfile.LibsndfileError as error:
        return Problem(str(path), f"it is no audio that can be read, whatever its name says ({_words(error)})")
    promised, there = data_bytes(data)
    if there < promised:
        return Problem(
            str(path), f"it is cut short: its head promises {promised:,} bytes of samples, and {there:,} are there"
        )
    if not head.frames:
        return Problem(str(path), "it holds no samples")
    if not LEAST_RATE <= head.samplerate <= LARGEST_RATE:
        return Problem(
            str(path),
            f"its head says {head.samplerate:,} samples a second, and {LEAST_RATE:,} to {LARGEST_RATE:,} are read",
        )
    return Look(hashlib.sha256(data).hexdigest(), head.samplerate, head.channels, head.frames)


def packed(looks: Sequence[Look]) -> dict[str, npt.NDArray[Any]]:
    """What looks told, as arrays: `digest` (n, 32), `rate`, `channels`, `samples` (n,)."""
    return {
        "digest": np.frombuffer(b"".join(bytes.fromhex(look.digest) for look in looks), np.uint8).reshape(-1, 32),
        **{key: np.array([getattr(look, key) for look in looks], np.int64) for key in ("rate", "channels", "samples")},
    }


def unpacked(arrays: Mapping[str, npt.NDArray[Any]]) -> list[Look]:
    """The looks that `packed` wrote."""
    told = (arrays[key].tolist() for key in ("rate", "channels", "samples"))
    return [Look(digest.tobytes().hex(), *numbers) for digest, *numbers in zip(arrays["digest"], *told)]


def data_bytes(data: bytes) -> tuple[int, int]:
    """How many bytes of samples the head of a .wav promises, and how many follow it.

    libsndfile reads what is there and says nothing. Equal where the head does not tell, or where it is no .wav.
    """
    order = {b"RIFF": "little", b"RIFX": "big"}.get(data[:4])
    at = 12
    while order is not None and at + 8 <= len(data):
        size = int.from_bytes(data[at + 4 : at + 8], order)  # type: ignore[arg-type]  # a string of two
        if data[at : at + 4] == b"data":
            there = len(data) - at - 8
            return (there if size >= UNKNOWN_LENGTH or not size else size), there
        at += 8 + size + size % 2
    return 0, 0


def read_samples(path: Recording, rate: int | None = None, seconds: float | None = None) -> Samples | Problem:
    """The samples (n,) of a file, full scale ±1, its channels averaged; or what is wrong with it.

    They are cut to `seconds`, and brought to `rate` where that is not the file's own: by a polyphase filter (Kaiser's
    window, β = 5) that leaves out what the lower of the two rates cannot hold.
    """
    if isinstance(path, InMemory):
        whole = path.samples[: None if seconds is None else max(1, round(seconds * path.rate))]
        return whole if rate is None or rate == path.rate else resampled(whole, path.rate, rate)
    try:
        given = stream(path)
        # Bytes, where the system has them: soundfile encodes a text as UTF-8, which a name need not be.
        name = os.fsencode(given) if isinstance(given, Path) and os.name == "posix" else given
        with soundfile.SoundFile(name) as file:
            own_rate = file.samplerate
            promised = file.frames if seconds is None else min(file.frames, max(1, round(seconds * own_rate)))
            samples = file.read(-1 if seconds is None else promised, dtype="float32", always_2d=True)
    except DataError as error:
        return error.problems[0]
    except (soundfile.SoundFileError, OSError) as error:
        return Problem(str(path), f"it is damaged or cannot be read ({_words(error)})")
    if len(samples) < promised:
        return Problem(
            str(path), f"it is cut short: its head promises {promised:,} samples, and {len(samples):,} are there"
        )
    peak = float(np.abs(samples).max(initial=0))  # NaN where one of them is
    if not math.isfinite(peak):
        bad = int((~np.isfinite(samples)).sum())
        return Problem(str(path), f"{bad:,} of its {samples.size:,} samples are not finite numbers")
    if peak > LOUDEST:
        return Problem(str(path), f"its samples reach {peak:.3g}, where full scale is 1")
    mono: Samples = samples[:, 0] if samples.shape[1] == 1 else samples.mean(1)
    return mono if rate is None or rate == own_rate else resampled(mono, own_rate, rate)


def read_whole(path: Recording, look: Look) -> Problem | None:
    """Read all samples; return what is wrong with them, where something is."""
    samples = read_samples(path)
    return samples if isinstance(samples, Problem) else None


def resampled(samples: Samples, own_rate: int, rate: int) -> Samples:
    """Samples (n,) at another rate: (⌈n · rate / own_rate⌉,)."""
    from scipy import signal  # here, because it takes half a second and is seldom needed

    common = math.gcd(own_rate, rate)
    found: Samples = signal.resample_poly(samples, rate // common, own_rate // common).astype(np.float32)
    return found


def commonest(rates: Iterable[int]) -> int:
    """The rate that occurs most often; of two that occur equally often the lower, which nothing need be added for."""
    counts = Counter(rates)
    return min(counts, key=lambda rate: (-counts[rate], rate))


def sound_files(path: Path) -> list[Path]:
    """The audio file itself, or those directly in a folder, sorted. Raises DataError where there is none."""
    if path.is_dir():
        found = [p for p in entries(path) if AUDIO.fits(p)]
        if not found:
            inside = next((p for p in subfolders(path) if any(AUDIO.fits(file) for file in entries(p))), None)
            raise DataError(
                f"{path} is a folder without audio files ({', '.join(AUDIO.suffixes)}).",
                fix=f"Those in its folders are taken where the folder is given: {inside}" if inside else "",
            )
        return found
    if not exists(path):
        raise DataError(f"There is no audio file {str(path)!r}, seen from {Path.cwd()}.")
    if not AUDIO.fits(path):
        raise DataError(f"{path} is not an audio file: those end in {', '.join(AUDIO.suffixes)}.")
    return [path]


def unusable(problems: Sequence[Problem], total: int) -> DataError:
    """The error that names these of `total` audio files."""
    some = f"{len(problems):,} of {total:,} audio files" if total > 1 else "The audio file"
    return DataError(f"{some} cannot be used:", problems, fix=REPAIR)


def _words(error: Any) -> str:
    """libsndfile's words alone, without the name of the file, which stands before them."""
    return str(getattr(error, "error_string", None) or getattr(error, "strerror", None) or error).rstrip(".")
