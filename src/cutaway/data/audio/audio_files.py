"""Audio files and the transcripts of recordings.

A folder with transcripts has transcripts.tsv, or the layout of LJ Speech:

    calls/transcripts.tsv        01.wav<tab>please call back        next to 01.wav, or parts/01.wav below
    calls/train/transcripts.tsv  if there are val/ or test/ next to it, each with its own
    LJSpeech-1.1/metadata.csv    LJ001-0001|Printing, in 1450|Printing, in fourteen fifty        and wavs/LJ001-0001.wav

If the first line of transcripts.tsv is `file<tab>transcript`, it is the header. metadata.csv has no header; the last of
the two transcripts of a line is used, in which numbers are written out. Transcripts are normalised to Unicode's NFC,
and repeated blanks are collapsed to one.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...core.errors import DataError, FolderLayoutError, Problem, UnsupportedDataError, shorten_repr
from ...core.extras import require
from ...core.files import exists, missing_file_error
from ..findings import REPAIR
from ..folders import AUDIO, SPLIT_FOLDERS, list_entries, normalize_name, subfolders
from ..splits import Rows
from ..streaming.file_index import Stored, open_source, read_content
from ..text.text_files import read_lines

Samples = npt.NDArray[np.float32]

LEAST_RATE, LARGEST_RATE = 1000, 192_000  # samples per second
LOUDEST = 1e9  # full scale is 1; floating-point files may exceed it, for example with 16-bit integer values
UNKNOWN_LENGTH = 0x7FFFF000  # written from this size on by programs that write to a pipe and do not know the length


@dataclass(frozen=True)
class AudioFileInfo:
    """Properties of one checked audio file."""

    digest: str  # sha256 of its bytes
    rate: int  # samples per second
    channels: int
    samples: int  # per channel


@dataclass(frozen=True)
class InMemoryRecording:
    """A recording without a file, for example one composed of others."""

    samples: Samples  # (n,), full scale ±1
    rate: int  # samples per second


Recording = Path | Stored | InMemoryRecording


def inspect_recording(path: Recording) -> AudioFileInfo | Problem:
    """Read the header of an audio file and hash it. Returns a Problem if it cannot be used."""
    if isinstance(path, InMemoryRecording):
        return AudioFileInfo(hashlib.sha256(path.samples.tobytes()).hexdigest(), path.rate, 1, len(path.samples))
    try:
        data = read_content(path)
    except OSError as error:
        return Problem(str(path), f"it cannot be read ({error.strerror or error})")
    except DataError as error:
        return error.problems[0]
    if not data:
        return Problem(str(path), "it is empty (0 bytes)")
    soundfile = require("soundfile", "Reading recordings")
    try:
        head = soundfile.info(io.BytesIO(data))
    except soundfile.LibsndfileError as error:
        return Problem(str(path), f"it is not readable as audio ({_error_text(error)})")
    promised, there = wav_data_sizes(data)
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
    return AudioFileInfo(hashlib.sha256(data).hexdigest(), head.samplerate, head.channels, head.frames)


def pack_audio_info(looks: Sequence[AudioFileInfo]) -> dict[str, npt.NDArray[Any]]:
    """Pack file properties into arrays: `digest` (n, 32), `rate`, `channels`, `samples` (n,)."""
    return {
        "digest": np.frombuffer(b"".join(bytes.fromhex(look.digest) for look in looks), np.uint8).reshape(-1, 32),
        **{key: np.array([getattr(look, key) for look in looks], np.int64) for key in ("rate", "channels", "samples")},
    }


def unpack_audio_info(arrays: Mapping[str, npt.NDArray[Any]]) -> list[AudioFileInfo]:
    """Unpack the arrays that `packed` returns."""
    columns = (arrays[key].tolist() for key in ("rate", "channels", "samples"))
    return [AudioFileInfo(digest.tobytes().hex(), *numbers) for digest, *numbers in zip(arrays["digest"], *columns)]


def wav_data_sizes(data: bytes) -> tuple[int, int]:
    """Return the number of sample bytes that a .wav header declares, and the number present.

    libsndfile silently reads truncated files. The numbers are equal if the header does not declare one, or for other
    formats.
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
    """Read the samples (n,) of a file, full scale ±1, averaged over channels. Returns a Problem if that fails.

    The samples are cut to `seconds` and resampled to `rate` if that differs from the file's rate. The polyphase filter
    (Kaiser window, β = 5) removes frequencies that the lower rate cannot represent.
    """
    if isinstance(path, InMemoryRecording):
        whole = path.samples[: None if seconds is None else max(1, round(seconds * path.rate))]
        return whole if rate is None or rate == path.rate else resample(whole, path.rate, rate)
    soundfile = require("soundfile", "Reading recordings")
    try:
        given = open_source(path)
        # Bytes where the system supports them: soundfile encodes str as UTF-8, which a file name need not be.
        name = os.fsencode(given) if isinstance(given, Path) and os.name == "posix" else given
        with soundfile.SoundFile(name) as file:
            own_rate = file.samplerate
            promised = file.frames if seconds is None else min(file.frames, max(1, round(seconds * own_rate)))
            samples = file.read(-1 if seconds is None else promised, dtype="float32", always_2d=True)
    except DataError as error:
        return error.problems[0]
    except (soundfile.SoundFileError, OSError) as error:
        return Problem(str(path), f"it is damaged or cannot be read ({_error_text(error)})")
    if len(samples) < promised:
        return Problem(
            str(path), f"it is cut short: its head promises {promised:,} samples, and {len(samples):,} are there"
        )
    peak = float(np.abs(samples).max(initial=0))  # NaN if any sample is
    if not math.isfinite(peak):
        bad = int((~np.isfinite(samples)).sum())
        return Problem(str(path), f"{bad:,} of its {samples.size:,} samples are not finite numbers")
    if peak > LOUDEST:
        return Problem(str(path), f"its samples reach {peak:.3g}, where full scale is 1")
    mono: Samples = samples[:, 0] if samples.shape[1] == 1 else samples.mean(1)
    return mono if rate is None or rate == own_rate else resample(mono, own_rate, rate)


def check_decodable(path: Recording, look: AudioFileInfo) -> Problem | None:
    """Read all samples. Returns a Problem if they cannot be read."""
    samples = read_samples(path)
    return samples if isinstance(samples, Problem) else None


def resample(samples: Samples, own_rate: int, rate: int) -> Samples:
    """Resample (n,) samples to another rate: (⌈n · rate / own_rate⌉,)."""
    from scipy import signal  # imported here because it takes half a second and is rarely needed

    common = math.gcd(own_rate, rate)
    found: Samples = signal.resample_poly(samples, rate // common, own_rate // common).astype(np.float32)
    return found


def most_frequent_rate(rates: Iterable[int]) -> int:
    """Return the most frequent rate, the lowest of several with the same count, which needs no upsampling."""
    counts = Counter(rates)
    return min(counts, key=lambda rate: (-counts[rate], rate))


def list_audio_files(path: Path) -> list[Path]:
    """Return the audio file itself, or the sorted audio files directly in a folder.

    Raises DataError if there are none.
    """
    if path.is_dir():
        found = [p for p in list_entries(path) if AUDIO.fits(p)]
        if not found:
            inside = next((p for p in subfolders(path) if any(AUDIO.fits(file) for file in list_entries(p))), None)
            raise UnsupportedDataError(
                f"{path} is a folder without audio files ({', '.join(AUDIO.suffixes)}).",
                fix=f"Those in its folders are taken where the folder is given: {inside}" if inside else "",
            )
        return found
    if not exists(path):
        raise missing_file_error(path, "audio file")
    if not AUDIO.fits(path):
        raise UnsupportedDataError(f"{path} is not an audio file: those end in {', '.join(AUDIO.suffixes)}.")
    return [path]


def unusable_audio_error(problems: Sequence[Problem], total: int) -> DataError:
    """Build the error that names these of `total` audio files."""
    some = f"{len(problems):,} of {total:,} audio files" if total > 1 else "The audio file"
    return DataError(f"{some} cannot be used:", problems, fix=REPAIR)


def _error_text(error: Any) -> str:
    """Return libsndfile's message without the file name before it."""
    return str(getattr(error, "error_string", None) or getattr(error, "strerror", None) or error).rstrip(".")


TABLE, HEADER = "transcripts.tsv", ("file", "transcript")
METADATA, WAVS = "metadata.csv", "wavs"  # layout of LJ Speech
MOST_CHARACTERS = 2048  # limit of a transcript's characters: all others are padded to the longest one
AS_IT_IS = f"{TABLE} has a line for each recording: its file, a tab, its transcript."


@dataclass
class Transcripts:
    """Recordings with transcripts before any is opened, and problems of incomplete entries."""

    files: list[Path] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # display names: the files relative to the folder
    texts: list[str] = field(default_factory=list)
    splits: dict[str, Rows] | None = None  # recordings of each predefined split, if there are any
    problems: list[Problem] = field(default_factory=list)

    def without(self, bad: Sequence[int] | Rows) -> Transcripts:
        """Return the transcripts without the recordings of these indices."""
        left = np.setdiff1d(np.arange(len(self.files)), bad)
        splits = self.splits and {name: np.flatnonzero(np.isin(left, rows)) for name, rows in self.splits.items()}
        files, names, texts = ([of[i] for i in left] for of in (self.files, self.names, self.texts))
        return Transcripts(files, names, texts, splits)


def is_transcribed(path: Path) -> bool:
    """Return whether a folder, or one of its split folders, holds a table of transcripts."""
    return any(_table(home) is not None for home in _homes(path).values())


def read_transcripts(path: Path, lower: bool = False) -> Transcripts:
    """Read the transcripts of a folder. Raises DataError if there are none or a table is not text."""
    homes = _homes(path)
    whole = Transcripts()
    splits: dict[str, Rows] = {}
    for split, home in homes.items():
        start = len(whole.files)
        _read_table(home, path, lower, whole)
        splits[split] = np.arange(start, len(whole.files))
    if not whole.files and not whole.problems:
        raise UnsupportedDataError(f"{path} holds no recording with a transcript.", fix=AS_IT_IS)
    if "" not in splits:
        if "train" not in splits:
            raise FolderLayoutError(
                f"{path} has transcripts for {', '.join(splits)} and none in train/.",
                fix=f"Add train/{TABLE}; or put one {TABLE} into the folder itself, to be split here.",
            )
        whole.splits = splits
    return whole


def normalise_transcript(text: str, lower: bool) -> str:
    """Normalise a transcript: NFC, single blanks between words, no surrounding blanks, optionally lower case."""
    text = " ".join(unicodedata.normalize("NFC", text).split())
    return text.lower() if lower else text


def transcript_digest(look: str, text: str) -> str:
    """Compute the sha256 of a recording's digest and its transcript."""
    return hashlib.sha256(f"{look}\n{text}".encode(errors="surrogatepass")).hexdigest()


def encode_transcripts(
    texts: Sequence[str], alphabet: Sequence[str], padding: int
) -> tuple[list[list[int]], dict[int, str]]:
    """Encode each text as token ids, padded to the longest.

    Also returns, by text index, the first character of a text that is not in the alphabet.
    """
    number = {character: k + 1 for k, character in enumerate(alphabet)}
    longest = max(map(len, texts), default=0)
    strange = {i: c for i, text in enumerate(texts) if (c := next((c for c in text if c not in number), None))}
    return [[*(number.get(c, padding) for c in t), *[padding] * (longest - len(t))] for t in texts], strange


def unknown_character_problem(name: str, character: str) -> Problem:
    """Return the problem of a transcript with a character that no training transcript has."""
    return Problem(
        name, f"its transcript has {shorten_repr(character)} (U+{ord(character):04X}), which no training transcript has"
    )


def too_long_problem(name: str, text: str, most: int = MOST_CHARACTERS) -> Problem | None:
    """Return the problem of a transcript with more than `most` characters, or None."""
    if len(text) <= most:
        return None
    return Problem(name, f"its transcript has {len(text):,} characters, at most {most:,} are read")


def _homes(path: Path) -> dict[str, Path]:
    """Return the folders that hold a table: the folder itself, or its split folders."""
    if _table(path) is not None:
        return {"": path}
    found: dict[str, Path] = {}
    for folder in subfolders(path):
        split = SPLIT_FOLDERS.get(folder.name.lower())
        if split is None or _table(folder) is None:
            continue
        if split in found:
            raise FolderLayoutError(f"{found[split]} and {folder} are both for {split}.", fix="Remove one of them.")
        found[split] = folder
    return found


def _table(home: Path) -> Path | None:
    if (home / TABLE).is_file():
        return home / TABLE
    return home / METADATA if (home / METADATA).is_file() and (home / WAVS).is_dir() else None


def _read_table(home: Path, path: Path, lower: bool, into: Transcripts) -> None:
    """Add the recordings and problems of one table, with names relative to `path`."""
    table = _table(home)
    assert table is not None, "a home has a table"
    title = str(table.relative_to(path))
    folder = home if table.name == TABLE else home / WAVS
    audio = {normalize_name(str(file.relative_to(folder))): file for file in _recordings(folder)}
    waiting = dict(audio)
    for number, line in enumerate(read_lines(table)[0], 1):
        cells = line.split("\t" if table.name == TABLE else "|")
        if not line.strip() or (number == 1 and table.name == TABLE and _is_header(cells)):
            continue
        where = f"{title}, line {number}"
        if len(cells) not in ((2,) if table.name == TABLE else (2, 3)):
            wanted = "a file and a transcript, with one tab between" if table.name == TABLE else "id|transcript"
            into.problems.append(Problem(where, f"it has {len(cells)} cells, not {wanted}"))
            continue
        name = normalize_name(str(Path(cells[0].strip())) if table.name == TABLE else f"{cells[0].strip()}.wav")
        name = name if name in audio else name.replace("\\", "/")  # Windows path separators
        text = normalise_transcript(cells[-1], lower)
        file = waiting.pop(name, None)
        if file is None:
            again = "has a transcript already" if name in audio else f"is not a recording in {folder}"
            into.problems.append(Problem(where, f"{name} {again}"))
        elif not text:
            into.problems.append(Problem(where, f"the transcript of {name} is empty"))
        else:
            into.files.append(file)
            into.names.append(str(file.relative_to(path)))
            into.texts.append(text)
    into.problems += [Problem(str(f.relative_to(path)), f"{title} has no transcript of it") for f in waiting.values()]


def _is_header(cells: Sequence[str]) -> bool:
    return tuple(cell.strip().lower() for cell in cells) == HEADER


def _recordings(folder: Path) -> list[Path]:
    """List the visible recordings in a folder and its subfolders."""
    inside = [p for p in list_entries(folder) if not p.name.startswith(".")]
    below = [file for p in subfolders(folder) for file in _recordings(p)]
    return [p for p in inside if AUDIO.fits(p) and p.is_file()] + below
