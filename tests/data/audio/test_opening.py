"""Folders of class folders of sounds: what is read, told and rejected, and the same tensors for new files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cutaway.core.errors import DataError
from cutaway.core.spec import AudioSpec, Classes
from cutaway.data.audio.audio_files import most_frequent_rate
from cutaway.data.audio.dataset import open_audio
from cutaway.data.audio.transforms import AudioPreprocessing
from cutaway.data.dataset_base import DataSet, SequenceSplit
from cutaway.data.settings import DataSettings

from .test_reading import write


def sound(path: Path, seed: int, pitch: float, count: int = 1200, rate: int = 8000, **how: Any) -> Path:
    rng = np.random.default_rng(seed)
    samples = 0.3 * np.sin(2 * np.pi * pitch * np.arange(count) / rate) + 0.01 * rng.normal(size=count)
    return write(path, samples.astype(np.float32), rate, **how)


@pytest.fixture
def sounds(tmp_path: Path) -> Path:
    """Two classes of ten sounds of different lengths."""
    for i in range(10):
        sound(tmp_path / "sounds" / "high" / f"{i}.wav", i, 2000, 800 + 100 * i)
        sound(tmp_path / "sounds" / "low" / f"{i}.wav", 50 + i, 300, 1800 - 100 * i)
    return tmp_path / "sounds"


def opened(path: Path, **settings: Any) -> DataSet:
    return open_audio(path, DataSettings(**settings))


def split(data: DataSet, name: str) -> SequenceSplit:
    found = data.splits[name]
    assert isinstance(found, SequenceSplit)
    return found


def names(data: DataSet, name: str) -> list[str]:
    return [split(data, name).name(i) for i in range(len(data.splits[name]))]


def test_sounds_become_frames_of_mean_0_and_deviation_1(sounds: Path) -> None:
    data = opened(sounds, n_mels=20)
    assert data.name == "sounds"
    assert {p: len(found) for p, found in data.splits.items()} == {"train": 14, "val": 3, "test": 3}
    assert data.spec == AudioSpec(int(split(data, "train").lengths.max()), 20, Classes(("high", "low")))
    values = split(data, "train").values
    assert values.dtype == torch.float32
    assert values.mean(0).abs().max() < 1e-5
    torch.testing.assert_close(values.std(0, correction=0), torch.ones(20), rtol=1e-4, atol=1e-4)
    assert data.notes == []
    for found in data.splits.values():
        assert isinstance(found, SequenceSplit)
        assert found.target is not None
        assert [["high", "low"][k] for k in found.target] == [found.name(i).split("/")[0] for i in range(len(found))]
    (batch,) = split(data, "val").batches([torch.arange(3)])
    x, mask = batch.inputs
    assert x.shape == (*mask.shape, 20)
    assert mask.sum(1).tolist() == split(data, "val").lengths.tolist()
    assert not x[~mask].any()


def test_mean_and_deviation_are_of_the_training_part_alone(tmp_path: Path) -> None:
    for i in range(3):
        for k, name in enumerate(("a", "b")):
            sound(tmp_path / "train" / name / f"{i}.wav", 10 * k + i, 500 + 900 * k)
            sound(tmp_path / "test" / name / f"{i}.wav", 99 + 10 * k + i, 500 + 900 * k)
    first = opened(tmp_path, val=0)
    for file in (tmp_path / "test").rglob("*.wav"):
        sound(file, 1, 3000, 5000)
    second = opened(tmp_path, val=0)
    assert first.preprocessing.to_json() == second.preprocessing.to_json()
    assert first.fingerprint != second.fingerprint
    assert set(first.splits) == {"train", "test"}


def test_new_files_are_prepared_as_training_was(sounds: Path) -> None:
    data = opened(sounds)
    train, again = split(data, "train"), data.preprocessing.examples([sounds / n for n in names(data, "train")])
    assert isinstance(again, SequenceSplit)
    torch.testing.assert_close(again.values, train.values, rtol=0, atol=0)
    assert again.lengths.tolist() == train.lengths.tolist()
    assert again.target is None
    assert again.name(0) == str(sounds / names(data, "train")[0])
    labelled = data.preprocessing.labelled(sounds)
    assert (len(labelled), labelled.name(0)) == (20, "high/0.wav")
    assert labelled.target is not None
    assert labelled.target.tolist() == [0] * 10 + [1] * 10
    assert len(data.preprocessing.examples([sounds / "high"])) == 10


def test_the_preprocessing_is_json(sounds: Path) -> None:
    preprocessing = opened(sounds, seconds=0.1).preprocessing
    document = preprocessing.to_json()
    assert document["kind"] == "audio"
    assert AudioPreprocessing.from_json(json.loads(json.dumps(document))) == preprocessing
    with pytest.raises(KeyError):
        AudioPreprocessing.from_json({k: v for k, v in document.items() if k != "rate"})
    image = {"kind": "image", "channels": 1, "height": 2, "width": 2, "target": {"kind": "value"}}
    with pytest.raises(ValueError, match="kind image"):
        AudioPreprocessing.from_json({**document, "spec": image})


def test_the_same_whatever_reads_it(sounds: Path) -> None:
    alone, many = opened(sounds, workers=0), opened(sounds, workers=3)
    assert torch.equal(split(alone, "train").values, split(many, "train").values)
    assert (alone.fingerprint, alone.split_hash) == (many.fingerprint, many.split_hash)
    assert opened(sounds, split_seed=1).split_hash != alone.split_hash


def test_what_is_done_to_sounds_is_said(sounds: Path) -> None:
    sound(sounds / "high" / "fast.wav", 1, 2000, 4000, 16000)
    sound(sounds / "high" / "slow.wav", 1, 1000, 900, 4000)
    write(sounds / "low" / "two.wav", np.ones((900, 2), np.float32) * 0.1)
    write(sounds / "low" / "silent.wav", np.zeros(900, np.float32))
    data = opened(sounds, seconds=0.2)
    rates, channels, cut, silent = data.notes
    assert rates == (
        "Brought to 8,000 samples a second by a polyphase filter: 2 of 24 recordings, high/fast.wav (16,000), "
        "high/slow.wav (4,000). The rate of 1 was lower, and nothing sounds there above half of it."
    )
    assert channels == "Channels averaged to one: 1 of 24 recordings, low/two.wav."
    assert cut == "Cut at 0.2 s: 5 of 24 recordings, high/9.wav, high/fast.wav, high/slow.wav and 2 more."
    assert silent == "Silent throughout: 1 of 24 recordings, low/silent.wav."
    assert data.spec.shape[0] == 19  # 1 + ⌈(1 600 − 200) / 80⌉


def test_a_rate_that_is_asked_for(sounds: Path) -> None:
    data = opened(sounds, rate=4000)
    assert data.preprocessing.to_json()["rate"] == 4000
    assert "Brought to 4,000 samples a second by a polyphase filter: 20 of 20 recordings" in data.notes[0]
    assert data.spec.shape[0] == opened(sounds).spec.shape[0]  # frames are told in seconds


def test_the_commonest_rate() -> None:
    assert most_frequent_rate([8000, 16000, 16000]) == 16000
    assert most_frequent_rate([44100, 8000, 44100, 8000]) == 8000


def test_limit_thins_out_training_alone(sounds: Path) -> None:
    data = opened(sounds, max_samples=6)
    assert [len(p) for p in data.splits.values()] == [6, 3, 3]
    assert names(data, "test") == names(opened(sounds), "test")


def test_copies_across_splits_are_told(sounds: Path) -> None:
    data = opened(sounds)
    copy = sounds / names(data, "train")[0]
    (sounds / names(data, "test")[0]).write_bytes(copy.read_bytes())
    (note,) = opened(sounds).notes
    assert note.startswith("Possible leakage by duplicates across splits: 1 of 3 recordings in test")


def test_every_bad_file_is_named_at_once(sounds: Path) -> None:
    (sounds / "high" / "0.wav").write_bytes(b"")
    (sounds / "high" / "1.wav").write_text("no sound at all")
    cut = sounds / "high" / "2.wav"
    cut.write_bytes(cut.read_bytes()[:-50])
    write(sounds / "low" / "3.wav", np.array([0.1, np.nan], np.float32), subtype="FLOAT")
    with pytest.raises(DataError, match=r"^4 of 20 audio files cannot be used: .*Repair, replace") as error:
        opened(sounds)
    assert [Path(p.where).name for p in error.value.problems] == ["0.wav", "1.wav", "2.wav", "3.wav"]
    for file in ("0", "1", "2"):
        sound(sounds / "high" / f"{file}.wav", 1, 2000)
    with pytest.raises(DataError, match=r"^1 of 20 audio files cannot be used: .*3.wav: 1 of its 2 samples"):
        opened(sounds)


def test_bad_new_files_are_named(sounds: Path, tmp_path: Path) -> None:
    preprocessing = opened(sounds).preprocessing
    (tmp_path / "bad.wav").write_text("nothing")
    with pytest.raises(DataError, match=r"^The audio file cannot be used: .*bad.wav"):
        preprocessing.examples([tmp_path / "bad.wav"])
    with pytest.raises(DataError, match="No recording was given"):
        preprocessing.examples([])
    with pytest.raises(DataError, match="There is no folder"):
        preprocessing.labelled(tmp_path / "none")
    sound(tmp_path / "more" / "middle" / "1.wav", 0, 1000)
    with pytest.raises(DataError, match="holds the class 'middle', and the model was trained on high, low"):
        preprocessing.labelled(tmp_path / "more")


def test_a_part_without_a_class_is_told(tmp_path: Path) -> None:
    for i in range(4):
        for k, name in enumerate(("a", "b")):
            sound(tmp_path / "train" / name / f"{i}.wav", 10 * k + i, 500 + 900 * k)
        sound(tmp_path / "test" / "a" / f"{i}.wav", 99 + i, 500)
    assert "The test split has none of b: nothing is measured on them there." in opened(tmp_path, val=0).notes
