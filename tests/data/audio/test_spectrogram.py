"""The log-mel spectrogram: held to its formula written twice more, and to what sounds do."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import signal

from cutaway.data.audio.audio_files import resample
from cutaway.data.audio.transforms import (
    FLOOR,
    band_edges,
    frame_count,
    hop_length,
    hz_to_mel,
    log_mel,
    mel_filters,
    transform_size,
    window_length,
)

Array = npt.NDArray[np.float64]
RATES = st.sampled_from([1000, 8000, 11025, 16000, 44100])


def noise(seed: int, count: int) -> Array:
    return np.random.default_rng(seed).normal(size=count) * 0.1


def tone(frequency: float, rate: int, seconds: float = 0.5) -> Array:
    return 0.5 * np.sin(2 * math.pi * frequency * np.arange(round(seconds * rate)) / rate)


def spectrum_of(samples: Array, rate: int, bands: int) -> Array:
    return log_mel(torch.from_numpy(samples), rate, bands).numpy()


def by_hand(samples: Array, rate: int, bands: int) -> Array:
    """The formula of the module's first lines, one frame and one band at a time."""
    length, hop = round(0.025 * rate), round(0.010 * rate)
    top = 2595 * math.log10(1 + rate / 2 / 700)
    points = [700 * (10 ** (top * i / (bands + 1) / 2595) - 1) for i in range(bands + 2)]
    size = 1
    while size < length or rate / size > points[1]:
        size *= 2
    window = np.array([0.5 - 0.5 * math.cos(2 * math.pi * n / length) for n in range(length)])
    frequencies = [k * rate / size for k in range(size // 2 + 1)]
    rows = []
    start = 0
    while True:
        frame = np.zeros(length)
        there = samples[start : start + length]
        frame[: len(there)] = there
        turns = np.exp(-2j * math.pi * np.outer(np.arange(size // 2 + 1), np.arange(length)) / size)
        power = np.abs(turns @ (frame * window) / window.sum()) ** 2
        energy = [float(np.interp(frequencies, points[m : m + 3], [0, 1, 0]) @ power) for m in range(bands)]
        rows.append([math.log(max(e, 1e-10)) for e in energy])
        if start + length >= len(samples):
            return np.array(rows)
        start += hop


@pytest.mark.parametrize(
    ("rate", "bands", "count"), [(8000, 64, 1501), (8000, 20, 200), (16000, 40, 3), (11025, 13, 999)]
)
def test_it_is_the_published_formula(rate: int, bands: int, count: int) -> None:
    samples = noise(0, count)
    found = spectrum_of(samples, rate, bands)
    expected = by_hand(samples, rate, bands)
    assert found.shape == expected.shape == (frame_count(count, rate), bands)
    assert np.abs(found - expected).max() < 1e-6


@pytest.mark.parametrize("rate", [8000, 22050])
def test_its_transform_is_scipys(rate: int) -> None:
    samples, bands = noise(1, rate // 2), 30
    length, hop, size = window_length(rate), hop_length(rate), transform_size(rate, bands)
    _, _, spectrum = signal.stft(
        samples, rate, "hann", length, length - hop, size, boundary=None, padded=False, scaling="spectrum"
    )
    filters = mel_filters(rate, bands, size).numpy()
    expected = np.log(np.maximum(filters @ np.abs(spectrum) ** 2, FLOOR)).T
    found = spectrum_of(samples, rate, bands)[: len(expected)]  # scipy leaves out what completes no frame
    assert len(expected) == 1 + (len(samples) - length) // hop
    assert np.abs(found - expected).max() < 1e-6


def test_single_precision_is_enough() -> None:
    samples = noise(2, 4000)
    single = log_mel(torch.from_numpy(samples).float(), 8000, 64)
    assert single.dtype == torch.float32
    assert np.abs(single.numpy() - spectrum_of(samples, 8000, 64)).max() < 1e-3


def test_the_mel_scale_has_its_known_values() -> None:
    assert hz_to_mel(0) == 0
    assert hz_to_mel(700) == pytest.approx(2595 * math.log10(2))
    assert hz_to_mel(1000) == pytest.approx(1000, abs=0.1)  # 1 000 Hz are 1 000 mel, by definition of the unit
    edges = band_edges(8000, 40)
    assert edges[0] == 0
    assert float(edges[-1]) == pytest.approx(4000)
    steps = np.diff([hz_to_mel(float(f)) for f in edges])
    assert np.allclose(steps, steps[0])


@settings(max_examples=30, deadline=None)
@given(rate=RATES, bands=st.integers(1, 256))
def test_every_band_hears_something(rate: int, bands: int) -> None:
    filters = mel_filters(rate, bands, transform_size(rate, bands))
    assert float(filters.max(1).values.min()) >= 0.5
    assert float(filters.max()) <= 1
    assert float(filters.sum(0).max()) <= 1 + 1e-9  # neighbours share a frequency, and give it no more than once


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 99), gain=st.floats(0.01, 100), count=st.integers(300, 1500))
def test_a_gain_only_shifts_it(seed: int, gain: float, count: int) -> None:
    samples = noise(seed, count)
    plain, louder = spectrum_of(samples, 8000, 24), spectrum_of(gain * samples, 8000, 24)
    heard = (plain > math.log(FLOOR)) & (louder > math.log(FLOOR))
    assert heard.mean() > 0.9
    np.testing.assert_allclose((louder - plain)[heard], 2 * math.log(gain), atol=1e-7)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 99), count=st.integers(1, 1500), silence=st.integers(0, 900))
def test_silence_behind_changes_no_frame_that_was_there(seed: int, count: int, silence: int) -> None:
    samples, rate = noise(seed, count), 8000
    plain = spectrum_of(samples, rate, 16)
    longer = spectrum_of(np.concatenate([samples, np.zeros(silence)]), rate, 16)
    np.testing.assert_allclose(longer[: len(plain)], plain, atol=1e-9)
    starts = hop_length(rate) * np.arange(len(longer))
    np.testing.assert_allclose(longer[starts >= count], math.log(FLOOR))


@settings(max_examples=40, deadline=None)
@given(rate=st.sampled_from([8000, 16000]), fraction=st.floats(0.1, 0.9))
def test_a_tone_sounds_in_the_band_of_its_frequency(rate: int, fraction: float) -> None:
    frequency, bands = fraction * rate / 2, 20
    loudest = int(spectrum_of(tone(frequency, rate), rate, bands)[5:-5].mean(0).argmax())
    edges = band_edges(rate, bands)
    assert float(edges[loudest]) < frequency < float(edges[loudest + 2])


@settings(max_examples=30, deadline=None)
@given(own_rate=RATES.filter(lambda r: r >= 8000), rate=RATES.filter(lambda r: r >= 8000), fraction=st.floats(0.1, 0.8))
def test_another_rate_keeps_a_tone_where_and_as_loud_as_it_was(own_rate: int, rate: int, fraction: float) -> None:
    frequency = fraction * min(own_rate, rate) / 2
    there = tone(frequency, own_rate).astype(np.float32)
    brought = resample(there, own_rate, rate).astype(np.float64)
    assert len(brought) == -(-len(there) * rate // own_rate)
    found, expected = (spectrum_of(s, rate, 20)[5:-5].mean(0) for s in (brought, tone(frequency, rate)))
    assert found.argmax() == expected.argmax()
    assert found.max() == pytest.approx(expected.max(), abs=0.05)
    far = np.abs(np.arange(20) - expected.argmax()) > 3  # nothing sounds where nothing was
    assert (found[far] < found.max() - math.log(1e4)).all()


@settings(max_examples=30, deadline=None)
@given(rate=RATES, count=st.integers(1, 5000))
def test_every_sample_stands_in_a_frame_and_no_frame_is_empty(rate: int, count: int) -> None:
    length, hop, frames = window_length(rate), hop_length(rate), frame_count(count, rate)
    assert hop * (frames - 1) + length >= count
    assert frames == 1 or hop * (frames - 2) + length < count
