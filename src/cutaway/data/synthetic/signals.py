"""Example images, sounds and videos in class folders, and sounds with transcripts."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

Array = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
RATE = 8000  # samples per second
LOW, HIGH = (697, 770, 852, 941), (1209, 1336, 1477)  # Hz, of the rows and columns of a telephone keypad
KEYS = ("1", "2", "3", "4", "5", "6", "7", "8", "9", "star", "0", "hash")
FRAMES, SIDE, SPRITE = 12, 32, 12  # of a video: frames, side in pixels, and side of the moving object in pixels
WAYS = {"left": (0, -1), "right": (0, 1), "up": (-1, 0), "down": (1, 0)}  # rows and columns


def scans(folder: Path) -> None:
    """Write 1 797 scanned handwritten digits as PNG files in the folders zero to nine."""
    from sklearn.datasets import load_digits

    data = load_digits()
    for i, (image, k) in enumerate(zip(data.images, data.target, strict=True)):
        path = folder / DIGITS[k] / f"{i:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.uint8(image * (255 / 16))).resize((32, 32)).save(path)


def sounds(folder: Path, each: int = 25) -> None:
    """Write telephone key tones (ITU-T Q.23) as .wav files in the folders 0 to 9, star and hash.

    They are generated with line effects: hum, hiss and a slightly wrong pitch.
    """
    import soundfile

    rng = np.random.default_rng(0)
    for key, (low, high) in zip(KEYS, product(LOW, HIGH), strict=True):
        (folder / key).mkdir(parents=True, exist_ok=True)
        for i in range(each):
            time = np.arange(int(RATE * rng.uniform(0.15, 0.3))) / RATE
            soundfile.write(folder / key / f"{i:02}.wav", _key_tone(time, low, high, rng), RATE)


def spelled(folder: Path, count: int = 300) -> None:
    """Write telephone numbers of 3 to 8 digits as .wav files, with transcripts.tsv.

    The keys of a number are dialled one after another on the same line.
    """
    import soundfile

    rng = np.random.default_rng(0)
    tones = dict(zip(KEYS, product(LOW, HIGH), strict=True))
    folder.mkdir(parents=True)
    lines = ["file\ttranscript"]
    for i in range(count):
        digits = [str(digit) for digit in rng.integers(0, 10, rng.integers(3, 9))]
        keys = [np.arange(int(RATE * rng.uniform(0.15, 0.3))) / RATE for _ in digits]
        samples = np.concatenate([_key_tone(time, *tones[digit], rng) for time, digit in zip(keys, digits)])
        soundfile.write(folder / f"{i:03}.wav", samples, RATE)
        lines.append(f"{i:03}.wav\t{' '.join(digits)}")
    (folder / "transcripts.tsv").write_text("\n".join([*lines, ""]), encoding="utf-8")


def _key_tone(time: Array, low: int, high: int, rng: np.random.Generator) -> Array:
    """Generate the samples (n,) at these times of a key that is pressed and released, within −1 and 1."""
    tone = np.zeros(len(time))
    for pitch in (low, high):
        heard = pitch * rng.uniform(0.985, 1.015)
        tone += rng.uniform(0.5, 1) * np.sin(2 * np.pi * (heard * time + rng.uniform()))
    down, up = rng.uniform(0, 0.2), rng.uniform(0.7, 1)
    part = np.linspace(0, 1, len(time))
    hum = rng.uniform(0, 0.4) * np.sin(2 * np.pi * (50 * time + rng.uniform()))
    return 0.25 * (tone * ((part > down) & (part < up)) + hum + rng.normal(0, 0.4, len(time))).clip(-4, 4)


def videos(folder: Path, each: int = 80) -> None:
    """Write handwritten digits that move left, right, up or down as .avi files in the folders of those names."""
    from sklearn.datasets import load_digits

    rng = np.random.default_rng(0)
    images = load_digits().images
    room = SIDE - SPRITE
    for way, step in WAYS.items():
        (folder / way).mkdir(parents=True, exist_ok=True)
        for i in range(each):
            digit = Image.fromarray(np.uint8(images[rng.integers(len(images))] * (255 / 16)))
            sprite = np.asarray(digit.resize((SPRITE, SPRITE), Image.Resampling.BILINEAR))
            begin, length = rng.uniform(0, room, 2), rng.uniform(10, room)
            begin = np.where(step, rng.uniform(0, room - length), begin)  # starts so that it stays inside
            frames = rng.normal(20, 10, (FRAMES, SIDE, SIDE)).clip(0, 60).astype(np.uint8)
            for t, frame in enumerate(frames):
                gone = length * t / (FRAMES - 1)
                top, left = (round(b + (gone if s > 0 else length - gone) * bool(s)) for b, s in zip(begin, step))
                frame[top : top + SPRITE, left : left + SPRITE] |= sprite
            _film(folder / way / f"{i:02}.avi", frames)


def _film(path: Path, frames: Bytes) -> None:
    """Write grey frames (T, H, W) as a lossless video file."""
    import av

    stream: Any
    with av.open(str(path), "w", options={"fflags": "+bitexact"}) as container:
        stream = container.add_stream("ffv1", rate=12, width=SIDE, height=SIDE, pix_fmt="gray")
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="gray")))
        container.mux(stream.encode(None))
