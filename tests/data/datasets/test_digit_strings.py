"""Strings of spoken digits: of one speaker each, no recording in two splits, the same every time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from cutaway.core.errors import DataError
from cutaway.core.spec import ANY_SIZE, Transcript
from cutaway.data.dataset_base import IGNORED, DataSet, SequenceSplit
from cutaway.data.datasets import speech
from cutaway.data.datasets.catalog import Request
from cutaway.data.open_data import NAMED, OPENERS, where
from cutaway.data.settings import DataSettings

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def opened(place: Path, name: str = "fsdd_strings") -> DataSet:
    return OPENERS[name](Request(name, NAMED[name], place, DataSettings(n_mels=8), ANY_SIZE))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ten digits of three speakers, takes 3 to 11; few strings are made of them."""
    monkeypatch.setattr(speech, "SIZES", {"train": 12, "val": 6, "test": 6})
    (tmp_path / "recordings").mkdir()
    rng = np.random.default_rng(0)
    for digit in range(10):
        for speaker in ("ann", "bob", "yweweler"):
            for take in range(3, 12):
                samples = (0.1 * rng.normal(size=800 + 40 * digit)).astype(np.float32)
                soundfile.write(tmp_path / "recordings" / f"{digit}_{speaker}_{take}.wav", samples, 8000)
    return tmp_path


def recordings(data: DataSet, split: str) -> list[list[str]]:
    found = data.splits[split]
    return [found.name(i).split(": ")[1].split() for i in range(len(found))]


def takes(data: DataSet, split: str) -> set[int]:
    return {int(one.split("_")[2]) for string in recordings(data, split) for one in string}


def said(data: DataSet, split: str, i: int) -> str:
    target, row = data.spec.target, data.splits[split].target
    assert isinstance(target, Transcript)
    assert row is not None
    return "".join(target.alphabet[k - 1] for k in row[i].tolist() if k != IGNORED)


def test_strings_are_of_one_speaker_and_of_one_splits_takes(place: Path) -> None:
    data = opened(place)
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 12, "val": 6, "test": 6}
    assert takes(data, "test") <= {3, 4}
    assert takes(data, "val") <= {5, 6, 7, 8, 9}
    assert takes(data, "train") <= {10, 11}
    for name in data.splits:
        for i, string in enumerate(recordings(data, name)):
            assert 3 <= len(string) <= 7
            assert len({one.split("_")[1] for one in string}) == 1
            assert said(data, name, i) == " ".join(WORDS[int(one[0])] for one in string)
    assert "known voices" in data.notes[0]


def test_one_speaker_is_left_out(place: Path) -> None:
    data = opened(place, "fsdd_strings_speaker")
    speakers = {
        name: {one.split("_")[1] for string in recordings(data, name) for one in string} for name in data.splits
    }
    assert speakers["test"] == {"yweweler"}
    assert speakers["train"] == speakers["val"] == {"ann", "bob"}
    assert takes(data, "test") - {5, 6, 7, 8, 9}
    assert "All test strings are of one speaker, yweweler" in data.notes[0]


def test_strings_are_the_same_every_time(place: Path) -> None:
    first, again = opened(place), opened(place)
    assert first.fingerprint == again.fingerprint
    for name in first.splits:
        one, other = first.splits[name], again.splits[name]
        assert isinstance(one, SequenceSplit)
        assert isinstance(other, SequenceSplit)
        assert torch.equal(one.values, other.values)


def test_a_string_has_gaps_and_a_little_noise() -> None:
    rng, part = np.random.default_rng(0), 0.5 * np.ones(800, np.float32)
    whole = speech.join_recordings([part, part], 8000, rng)
    loud = np.abs(whole - 0.5) < 0.2
    assert 1400 < loud.sum() <= 1700
    quiet = whole[np.abs(whole) < 0.2]
    assert len(quiet) >= 3 * 0.02 * 8000 - 5
    level = 20 * np.log10(0.5 / quiet.std())
    assert 14 < level < 31


def test_every_take_is_used_before_one_comes_again(place: Path) -> None:
    files = [speech.Take(d, "ann", t, place) for d in range(10) for t in range(2)]
    drawn = [take for string in speech.generate_strings(files, 8, np.random.default_rng(0)) for take in string]
    assert len(set(drawn[:20])) == 20


def test_a_folder_without_recordings_is_named(tmp_path: Path) -> None:
    (tmp_path / "recordings").mkdir()
    with pytest.raises(DataError, match="holds no recordings named DIGIT_SPEAKER_TAKE"):
        opened(tmp_path)
    (tmp_path / "recordings" / "1_ann_1.wav").write_bytes(b"")
    with pytest.raises(DataError, match=r"1_ann_1\.wav: it is empty"):
        opened(tmp_path)


def test_the_published_recordings(monkeypatch: pytest.MonkeyPatch) -> None:
    place = where("fsdd_strings")
    if place is None:
        pytest.skip("needs the recordings of fsdd")
    monkeypatch.setattr(speech, "SIZES", {"train": 12, "val": 6, "test": 12})
    data: Any = opened(place)
    assert takes(data, "test") <= set(range(5))
    assert takes(data, "train") <= set(range(10, 50))
    assert {r[0].split("_")[1] for r in recordings(data, "test")} == {
        *("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
    }
