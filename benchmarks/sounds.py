"""Sounds a second from .wav files to log-mel frames; beside scipy's reader and transform, which do the same by hand."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import soundfile

from cutaway.data.audio.transforms import FLOOR, hop_length, mel_filters, spectrograms, transform_size, window_length

from .pairs import Pair, race

COUNT, RATE, BANDS = 400, 8000, 64
LENGTHS = (0.25, 0.45, 0.85)  # seconds, as spoken digits have


def recordings(folder: Path) -> list[Path]:
    """Files of 16 bits: tones in noise."""
    rng = np.random.default_rng(0)
    files = []
    for i in range(COUNT):
        time = np.arange(round(LENGTHS[i % len(LENGTHS)] * RATE)) / RATE
        samples = 0.3 * np.sin(2 * np.pi * (200 + 7 * i) * time) + 0.02 * rng.normal(size=len(time))
        files.append(folder / f"{i:04}.wav")
        soundfile.write(files[-1], samples, RATE, subtype="PCM_16")
    return files


def ours(files: list[Path]) -> np.ndarray:
    """Log-mel frames of all files, in one thread."""
    frames, _ = spectrograms(files, RATE, BANDS, None, workers=0)
    return frames.numpy()


def theirs(files: list[Path]) -> Callable[[], np.ndarray]:
    """The same with scipy.io.wavfile, scipy.signal.spectrogram and a product of numpy."""
    from scipy import signal
    from scipy.io import wavfile

    length, hop, size = window_length(RATE), hop_length(RATE), transform_size(RATE, BANDS)
    filters = mel_filters(RATE, BANDS, size).numpy().astype(np.float32)
    window = signal.get_window("hann", length).astype(np.float32)

    def read() -> np.ndarray:
        found = []
        for file in files:
            rate, samples = wavfile.read(file)
            assert rate == RATE
            missing = -(len(samples) - length) % hop
            scaled = np.pad(samples, (0, missing)).astype(np.float32) / 32768
            _, _, magnitude = signal.spectrogram(
                scaled, RATE, window, length, length - hop, size, detrend=False, scaling="spectrum", mode="magnitude"
            )
            found.append(np.log(np.maximum(filters @ magnitude**2, FLOOR)).T)
        return np.concatenate(found)

    return read


def rows() -> list[tuple[Pair, float]]:
    """The one case. The ratio is of times, so below 1 means more sounds a second."""
    with tempfile.TemporaryDirectory() as name:
        files = recordings(Path(name))
        peer = theirs(files)
        assert np.allclose(ours(files), peer(), atol=1e-2)  # both do the same work
        pair = race(f"read: {COUNT} .wav of 8 kHz to log-mel, one thread", lambda: ours(files), peer, runs=11)
        return [(pair, 1.0)]
