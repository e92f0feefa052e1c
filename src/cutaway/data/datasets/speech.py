"""Built-in audio data sets: spoken digits, and strings of them composed of real recordings.

Each string is of one speaker: 3 to 7 recordings of the Free Spoken Digit Dataset, concatenated with gaps, with white
noise and mains hum over all of it. Its transcript is the digits' names, "three one four". Recordings, gaps and noise
depend only on the seed. No recording is in the strings of two splits.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ...core.errors import Problem, UnsupportedDataError
from ..dataset_base import DataSet
from ..folders import FolderContents, list_entries
from ..splits import Rows
from ..synthetic.examples import DIGIT_NAMES
from .catalog import NamedSet, Remote, Request
from .published import DIGITS

FSDD_FILE = re.compile(r"(\d)_([a-z]+)_(\d+)\.wav")  # digit, speaker, take
FSDD_TEST_TAKES = 5  # takes 0 to 4 of each digit and speaker
FSDD_COUNT = 3000
# The output of `sha256sum *.wav | sort | sha256sum` in the folder of the published recordings.
FSDD_PUBLISHED = "710951a2589b3ada7d439d4478090cd83b6eed3c738ae7ae04a030fa0f61ed88"


def open_fsdd(request: Request) -> DataSet:
    """Load spoken digits. Takes 0 to 4 of each digit and speaker are the test split, the others are for training."""
    from ..audio.dataset import audio_dataset  # brings a library that only audio needs

    folder = request.place / "recordings"
    found = [(file, match) for file in list_entries(folder) if (match := FSDD_FILE.fullmatch(file.name))]
    if not found:
        raise UnsupportedDataError(f"{folder} holds no recordings named DIGIT_SPEAKER_TAKE.wav.")
    files = [file for file, _ in found]
    takes = np.array([int(match[3]) for _, match in found])
    labels = np.array([int(match[1]) for _, match in found])
    splits = {"train": np.flatnonzero(takes >= FSDD_TEST_TAKES), "test": np.flatnonzero(takes < FSDD_TEST_TAKES)}
    recordings = FolderContents(DIGITS, files, [file.name for file in files], labels, splits)
    data = audio_dataset(recordings, request.name, request.name, request.settings)
    if data.fingerprint != FSDD_PUBLISHED:
        data.notes.append(
            f"These {len(files):,} recordings are not the {FSDD_COUNT:,} published ones: their names and contents have "
            f"the sha256 {data.fingerprint}, and those have {FSDD_PUBLISHED}."
        )
    speakers = sorted({match[2] for _, match in found})
    data.notes.append(
        f"The same {len(speakers)} speakers ({', '.join(speakers)}) speak in every split: a score says how well new "
        "takes of known voices are recognised, and nothing about new voices."
    )
    return data


RECORDINGS = {
    "fsdd": NamedSet(
        title="Free Spoken Digit Dataset",
        kind="audio",
        task="classification",
        sizes="2 700 training and 300 test recordings of 0.1 to 2.3 s, 8 kHz, 10 classes, 6 speakers",
        licence="CC BY-SA 4.0",
        citation="Z. Jackson et al., Free Spoken Digit Dataset, v1.0.10, 2020",
        folder="fsdd",
        files=(
            Remote(
                "v1.0.10.tar.gz",
                "https://github.com/Jakobovski/free-spoken-digit-dataset/archive/v1.0.10.tar.gz",
                "feb479fad3a37883c3d21ed7f982281c2dd1c18d5aefd7e8a5d50f58023392aa",
                15_602_882,
                # The first and the last recording, which stand for all; open_fsdd checks the hash of all.
                members=(
                    (
                        "recordings/0_george_0.wav",
                        "228ab63fccdf262d2e05817b6ec918b15e7d9e4bfb6bb20183c46ae088405240",
                    ),
                    (
                        "recordings/9_yweweler_9.wav",
                        "e46095a15eb3681d441397273c2f91fff3f3d29a409437ae2e2568e375c7aab7",
                    ),
                ),
                whole="free-spoken-digit-dataset-1.0.10/recordings",
            ),
        ),
    ),
}

RECORDING_OPENERS = {"fsdd": open_fsdd}


Samples = npt.NDArray[np.float32]

LEFT_OUT = "yweweler"  # the speaker excluded from training in `fsdd_strings_speaker`
VAL_TAKES = 10  # takes 5 to 9 of each digit and speaker are for validation
SIZES = {"train": 2000, "val": 200, "test": 300}  # strings
FEWEST, MOST = 3, 7  # digits in a string
GAPS = (0.02, 0.25)  # seconds before, between and after them
SNR = (15.0, 30.0)  # signal-to-noise ratio in decibels
HUM = 50.0  # hertz


@dataclass(frozen=True)
class Take:
    """A recording of one digit."""

    digit: int
    speaker: str
    take: int
    file: Path


def open_strings(request: Request) -> DataSet:
    """Compose strings: takes 10 and later are for training, takes 5 to 9 for validation, takes 0 to 4 for the test."""

    def assign_split(take: Take) -> str:
        return "test" if take.take < FSDD_TEST_TAKES else "val" if take.take < VAL_TAKES else "train"

    return _build_dataset(
        request,
        assign_split,
        "The same speakers speak in every split: a score says how well new recordings of known voices are "
        "understood, and nothing about new voices. `fsdd_strings_speaker` leaves one speaker out.",
    )


def open_strings_speaker(request: Request) -> DataSet:
    """Compose test strings of an unseen speaker; takes 5 to 9 of the other speakers are for validation."""

    def assign_split(take: Take) -> str:
        return "test" if take.speaker == LEFT_OUT else "val" if FSDD_TEST_TAKES <= take.take < VAL_TAKES else "train"

    return _build_dataset(
        request,
        assign_split,
        f"All test strings are of one speaker, {LEFT_OUT}, who speaks in no other: a score of one voice alone, whose "
        "interval says nothing of other voices.",
    )


def _build_dataset(request: Request, assign_split: Callable[[Take], str], note: str) -> DataSet:
    """Build the data set of strings. Raises DataError for recordings that are missing or cannot be used."""
    from ..audio.audio_files import (
        AudioFileInfo,
        InMemoryRecording,
        inspect_recording,
        read_samples,
        unusable_audio_error,
    )
    from ..audio.dataset import TranscribedRecordings, transcribed_dataset

    folder = request.place / "recordings"
    matches = [(file, FSDD_FILE.fullmatch(file.name)) for file in list_entries(folder)]
    takes = [Take(int(m[1]), m[2], int(m[3]), file) for file, m in matches if m]
    if not takes:
        raise UnsupportedDataError(f"{folder} holds no recordings named DIGIT_SPEAKER_TAKE.wav.")
    looks, found = [inspect_recording(take.file) for take in takes], [read_samples(take.file) for take in takes]
    bad = [one for one in (*looks, *found) if isinstance(one, Problem)]
    if bad:
        raise unusable_audio_error(bad, len(takes))
    rate = next(look.rate for look in looks if isinstance(look, AudioFileInfo))
    samples = {take: one for take, one in zip(takes, found) if not isinstance(one, Problem)}
    recordings: list[InMemoryRecording] = []
    names: list[str] = []
    texts: list[str] = []
    splits: dict[str, Rows] = {}
    for seed, (split, count) in enumerate(SIZES.items()):
        rng = np.random.default_rng(seed)
        own = [take for take in takes if assign_split(take) == split]
        start = len(names)
        for i, string in enumerate(generate_strings(own, count, rng)):
            recordings.append(InMemoryRecording(join_recordings([samples[take] for take in string], rate, rng), rate))
            names.append(f"{split} {i:04}, {string[0].speaker}: {' '.join(take.file.stem for take in string)}")
            texts.append(" ".join(DIGIT_NAMES[take.digit] for take in string))
        splits[split] = np.arange(start, len(names))
    heard = [look for look in map(inspect_recording, recordings) if isinstance(look, AudioFileInfo)]
    spoken = TranscribedRecordings(recordings, names, texts, heard, splits)
    return transcribed_dataset(spoken, request.name, request.name, request.settings, [note], request.targets)


def generate_strings(takes: Sequence[Take], count: int, rng: np.random.Generator) -> Iterator[list[Take]]:
    """Generate `count` strings, each of one speaker, cycling through speakers.

    A take repeats only after all of its speaker were used.
    """
    speakers = sorted({take.speaker for take in takes})
    decks: dict[str, list[Take]] = {speaker: [] for speaker in speakers}
    for i in range(count):
        speaker = speakers[i % len(speakers)]
        length = int(rng.integers(FEWEST, MOST + 1))
        deck = decks[speaker]
        while len(deck) < length:
            own = [take for take in takes if take.speaker == speaker]
            deck[:0] = [own[k] for k in rng.permutation(len(own))]
        yield [deck.pop() for _ in range(length)]


def join_recordings(parts: Sequence[Samples], rate: int, rng: np.random.Generator) -> Samples:
    """Concatenate recordings (n,) with silence around each, and add noise: (n,) within ±1."""
    pieces = [np.zeros(round(rate * rng.uniform(*GAPS)), np.float32)]
    for part in parts:
        pieces += [part, np.zeros(round(rate * rng.uniform(*GAPS)), np.float32)]
    speech = np.concatenate(pieces)
    noise = rng.normal(size=len(speech))
    loud, phase = rng.uniform(0, 1), rng.uniform()
    # In place, with shared hum cycles, because memory bandwidth dominates.
    hum = _cycles(rate, 1 << len(speech).bit_length())[: len(speech)] + phase
    hum *= 2 * np.pi
    np.sin(hum, out=hum)
    hum *= loud
    noise += hum
    loudness = np.sqrt(np.square(np.concatenate(parts), dtype=np.float64).mean())
    noise *= loudness * 10 ** (-rng.uniform(*SNR) / 20) / np.sqrt(np.square(noise, out=hum).mean())
    noise += speech
    found: Samples = noise.clip(-1, 1, out=noise).astype(np.float32)
    return found


@functools.lru_cache(maxsize=8)
def _cycles(rate: int, count: int) -> npt.NDArray[np.float64]:
    """Return the hum's phase in cycles at each of `count` samples, (count,)."""
    return HUM * (np.arange(count) / rate)


def _named(title: str, sizes: str) -> NamedSet:
    fsdd = RECORDINGS["fsdd"]
    return NamedSet(
        title=title,
        kind="audio",
        task="speech recognition",
        sizes=sizes,
        licence=fsdd.licence,
        citation=fsdd.citation,
        target="transcript",
        folder=fsdd.folder,
        files=fsdd.files,
    )


STRINGS = {
    "fsdd_strings": _named(
        "Strings of spoken digits",
        "2 000 training, 200 validation and 300 test strings of 3 to 7 digits, 8 kHz, 6 speakers",
    ),
    "fsdd_strings_speaker": _named(
        "Strings of spoken digits, a speaker left out",
        "2 000 training and 200 validation strings of 5 speakers, 300 test strings of a sixth, 8 kHz",
    ),
}

STRING_OPENERS = {"fsdd_strings": open_strings, "fsdd_strings_speaker": open_strings_speaker}
NAMED = RECORDINGS | STRINGS
OPENERS = RECORDING_OPENERS | STRING_OPENERS
