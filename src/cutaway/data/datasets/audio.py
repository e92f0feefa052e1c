"""Built-in audio data set: spoken digits."""

from __future__ import annotations

import re

import numpy as np

from ...core.errors import DataError
from ..dataset_base import DataSet
from ..folders import FolderContents, list_entries
from .catalog import NamedSet, Request
from .download import Remote
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
        raise DataError(f"{folder} holds no recordings named DIGIT_SPEAKER_TAKE.wav.")
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
        "takes of voices that are known are told apart, and nothing of new voices."
    )
    return data


NAMED = {
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

OPENERS = {"fsdd": open_fsdd}
