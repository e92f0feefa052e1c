"""Sound files: every width of samples, and every way in which a file can be none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.core.errors import DataError, Problem
from cutaway.data.audio.audio_files import (
    AudioFileInfo,
    Samples,
    inspect_recording,
    list_audio_files,
    read_samples,
    wav_data_sizes,
)

WAVE = (0.5 * np.sin(np.arange(800) / 5)).astype(np.float32)


def write(path: Path, samples: Samples = WAVE, rate: int = 8000, **how: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, rate, **how)
    return path


def what(found: object) -> str:
    assert isinstance(found, Problem)
    return found.what


def samples_of(path: Path, rate: int | None = None, seconds: float | None = None) -> Samples:
    found = read_samples(path, rate, seconds)
    assert not isinstance(found, Problem)
    return found


@pytest.mark.parametrize(
    ("subtype", "error"),
    [("PCM_U8", 2**-7), ("PCM_16", 2**-15), ("PCM_24", 2**-23), ("PCM_32", 2**-24), ("FLOAT", 0), ("DOUBLE", 0)],
)
def test_samples_of_every_width(tmp_path: Path, subtype: str, error: float) -> None:
    path = write(tmp_path / "a.wav", subtype=subtype)
    look = inspect_recording(path)
    assert isinstance(look, AudioFileInfo)
    assert (look.rate, look.channels, look.samples) == (8000, 1, 800)
    found = samples_of(path)
    assert found.dtype == np.float32
    assert np.abs(found - WAVE).max() <= error


def test_the_other_order_of_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.wav", endian="BIG", subtype="PCM_16")
    assert path.read_bytes()[:4] == b"RIFX"
    assert isinstance(inspect_recording(path), AudioFileInfo)
    assert np.abs(samples_of(path) - WAVE).max() <= 2**-15
    path.write_bytes(path.read_bytes()[:-2])
    assert "cut short" in what(inspect_recording(path))


def test_channels_are_averaged(tmp_path: Path) -> None:
    path = write(tmp_path / "a.wav", np.stack([WAVE, np.zeros_like(WAVE)], 1), subtype="FLOAT")
    look = inspect_recording(path)
    assert isinstance(look, AudioFileInfo)
    assert look.channels == 2
    np.testing.assert_allclose(samples_of(path), WAVE / 2)


def test_a_sound_is_cut_and_brought_to_a_rate(tmp_path: Path) -> None:
    path = write(tmp_path / "a.wav", subtype="FLOAT")
    assert np.array_equal(samples_of(path, seconds=0.05), WAVE[:400])
    assert np.array_equal(samples_of(path, rate=8000), WAVE)
    assert len(samples_of(path, rate=16000)) == 1600
    assert len(samples_of(path, rate=4000, seconds=0.05)) == 200
    assert len(samples_of(path, seconds=100)) == 800


@settings(max_examples=40, deadline=None)
@given(fraction=st.floats(0, 1, exclude_max=True), subtype=st.sampled_from(["PCM_16", "PCM_24", "FLOAT"]))
def test_no_beginning_of_a_file_passes_for_the_whole(
    tmp_path_factory: pytest.TempPathFactory, fraction: float, subtype: str
) -> None:
    path = write(tmp_path_factory.mktemp("cut") / "a.wav", subtype=subtype)
    data = path.read_bytes()
    path.write_bytes(data[: int(fraction * len(data))])
    assert isinstance(inspect_recording(path), Problem)


def test_what_is_missing_is_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.wav", subtype="PCM_16")
    path.write_bytes(path.read_bytes()[:-600])
    assert (
        what(inspect_recording(path))
        == "it is cut short: its head promises 1,600 bytes of samples, and 1,000 are there"
    )


def test_a_head_that_could_not_know_its_length_is_believed_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "a.wav", subtype="PCM_16")
    data = bytearray(path.read_bytes())
    at = data.index(b"data") + 4
    data[4:8] = data[at : at + 4] = b"\xff\xff\xff\xff"
    path.write_bytes(data)
    assert isinstance(inspect_recording(path), AudioFileInfo)
    assert np.abs(samples_of(path) - WAVE).max() <= 2**-15


def test_only_the_chunk_of_samples_counts() -> None:
    chunk = b"LIST" + (3).to_bytes(4, "little") + b"abc\0"  # chunks begin at even places
    head = b"RIFF" + b"\0\0\0\0" + b"WAVE" + chunk
    assert wav_data_sizes(head + b"data" + (10).to_bytes(4, "little") + b"12345678") == (10, 8)
    assert wav_data_sizes(head + b"data" + (8).to_bytes(4, "little") + b"12345678" + chunk) == (8, 8 + len(chunk))
    assert wav_data_sizes(b"fLaC" + head) == (0, 0)


def test_files_that_are_no_sounds_are_named(tmp_path: Path) -> None:
    empty, text = tmp_path / "empty.wav", tmp_path / "text.wav"
    empty.touch()
    text.write_text("This is no sound.\n" * 20)
    assert inspect_recording(empty) == Problem(str(empty), "it is empty (0 bytes)")
    assert "not readable as audio (Format not recognised)" in what(inspect_recording(text))
    assert "cannot be read (No such file" in what(inspect_recording(tmp_path / "none.wav"))
    assert "it holds no samples" in what(inspect_recording(write(tmp_path / "none.wav", WAVE[:0])))
    slow = write(tmp_path / "slow.wav", rate=300)
    assert what(inspect_recording(slow)) == "its head says 300 samples a second, and 1,000 to 192,000 are read"
    assert "damaged or cannot be read" in what(read_samples(text))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_samples_that_are_no_numbers_are_named(tmp_path: Path, bad: float) -> None:
    samples = WAVE.copy()
    samples[[3, 70]] = bad
    path = write(tmp_path / "a.wav", samples, subtype="FLOAT")
    assert read_samples(path) == Problem(str(path), "2 of its 800 samples are not finite numbers")


def test_samples_beyond_all_measure_are_named(tmp_path: Path) -> None:
    assert "reach 5e+19, where full scale is 1" in what(
        read_samples(write(tmp_path / "a.wav", WAVE * np.float32(1e20), subtype="FLOAT"))
    )
    assert (
        samples_of(write(tmp_path / "b.wav", WAVE * 32768, subtype="FLOAT")).max() > 10_000
    )  # whole numbers of 16 bits


def test_the_files_of_a_folder(tmp_path: Path) -> None:
    second, first = write(tmp_path / "b.wav"), write(tmp_path / "a.WAV", format="WAV")
    (tmp_path / "notes.txt").touch()
    assert list_audio_files(tmp_path) == [first, second]
    assert list_audio_files(first) == [first]
    with pytest.raises(DataError, match="There is no audio file"):
        list_audio_files(tmp_path / "c.wav")
    with pytest.raises(DataError, match=r"notes.txt is not an audio file: those end in .wav"):
        list_audio_files(tmp_path / "notes.txt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="a folder without audio files"):
        list_audio_files(tmp_path / "empty")
