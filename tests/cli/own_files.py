"""What a person's own files look like: small ones of text, pairs, series, sound, video and graphs.

Real are the text (the manual of the Python language, which comes with Python), its words with their casing, the English
names of numbers, and the friendships of Zachary's karate club. Reviews, visits, sounds and videos are made up here.
"""

from __future__ import annotations

import csv
import datetime
import re
from itertools import product
from pathlib import Path
from pydoc_data import topics

import av
import numpy as np
import numpy.typing as npt
import soundfile

from cutaway.data.synthetic.examples import karate, spelled

Array = npt.NDArray[np.float64]

RATE = 8000  # samples in a second
FRAMES, SIDE, SQUARE = 12, 32, 8  # of a video: frames, pixels of a side, pixels of the side of what moves


def write(folder: Path) -> list[str]:
    """Write everything into a folder, and give the names of what was written."""
    text = manual()
    reviews(folder / "reviews.tsv")
    (folder / "book.txt").write_text(text, encoding="utf-8")
    tagged(folder / "tagged.conll", text)
    numbers(folder / "pairs.tsv")
    visits(folder / "visits.csv")
    sounds(folder / "sounds")
    spelled(folder / "spelled", count=40)
    videos(folder / "videos")
    karate(folder / "graph")
    tables = ["reviews.tsv", "book.txt", "tagged.conll", "pairs.tsv", "visits.csv"]
    return [*tables, "sounds/", "spelled/", "videos/", "graph/"]


# --- text ---------------------------------------------------------------------------------------------------------


def reviews(path: Path) -> None:
    """300 made-up sentences on what people bought, each with the label good or bad."""
    things = ["kettle", "lamp", "tent", "radio", "chair", "coat", "knife", "clock", "bag", "phone"]
    good = ["works perfectly", "is a joy to use", "arrived early", "looks beautiful", "is worth every penny"]
    bad = ["broke at once", "is a waste of money", "arrived late", "looks cheap", "stopped working"]
    begins = ["The {} {}.", "This {} {}!", "My new {} {}, I must say."]
    verdicts = [*((verdict, "good") for verdict in good), *((verdict, "bad") for verdict in bad)]
    lines = [
        f"{begin.format(thing, verdict)}\t{label}\n"
        for begin, thing, (verdict, label) in product(begins, things, verdicts)
    ]
    path.write_text("".join(["text\tlabel\n", *lines]), encoding="utf-8")


def manual(characters: int = 60_000) -> str:
    """The beginning of the Python manual, as the interpreter's own help has it: whole chapters, in their order."""
    chosen = ""
    for chapter in topics.topics.values():
        chosen += f"{chapter.strip()}\n\n"
        if len(chosen) >= characters:
            break
    return chosen


def tagged(path: Path, text: str, sentences: int = 400) -> None:
    """Sentences of a text, a word or sign on each line, and what it is: CAPITAL, WORD, DIGIT or PUNCT."""
    lines = []
    for sentence in re.split(r"(?<=[.!?])\s+|\n\s*\n", text)[:sentences]:
        lines += [f"{token}\t{_tag(token)}" for token in re.findall(r"\w+|[^\w\s]", sentence)] + [""]
    path.write_text("\n".join(lines), encoding="utf-8")


def _tag(token: str) -> str:
    if token[0].isdigit():
        return "DIGIT"
    if token[0].isalpha():
        return "CAPITAL" if token[0].isupper() else "WORD"
    return "PUNCT"


# --- pairs --------------------------------------------------------------------------------------------------------


def numbers(path: Path) -> None:
    """Numbers below 1000 and their names: 42, a tab, forty two."""
    path.write_text("".join(f"{n}\t{name(n)}\n" for n in range(1000)), encoding="utf-8")


def name(number: int) -> str:
    """A number below 1000 in English words."""
    ones = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
    ones += ["thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
    tens = ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
    hundreds, rest = divmod(number, 100)
    ten, one = divmod(rest, 10)
    words = [f"{ones[hundreds]} hundred"] if hundreds else []
    if rest >= 20:
        words += [tens[ten], *([ones[one]] if one else [])]
    elif rest or not hundreds:
        words.append(ones[rest])
    return " ".join(words)


# --- series -------------------------------------------------------------------------------------------------------


def visits(path: Path, days: int = 60) -> None:
    """Made-up visits to a shop, hour by hour: most at noon, fewer on Sundays, twice as many on days of a sale, which
    are known in advance; and how warm it was."""
    rng = np.random.default_rng(0)
    hours = np.arange(24 * days)
    day, hour = hours // 24, hours % 24
    sale = np.isin(day, rng.choice(days, days // 6, replace=False))
    warm = 15 + 5 * np.sin(2 * np.pi * (hour - 9) / 24) + rng.normal(0, 1, len(hours))
    expected = 60 * np.exp(-(((hour - 13) / 4) ** 2)) * np.where(day % 7 == 6, 0.3, 1) * np.where(sale, 2, 1)
    came = rng.poisson(expected + 1)
    begin = datetime.datetime(2024, 1, 1)  # a Monday
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["time", "visits", "temperature", "sale"])
        for i in hours.tolist():
            time = begin + datetime.timedelta(hours=i)
            writer.writerow([time.isoformat(" ", "minutes"), came[i], f"{warm[i]:.1f}", int(sale[i])])


# --- sound and video ----------------------------------------------------------------------------------------------


def sounds(folder: Path, each: int = 20) -> None:
    """Made-up sounds of about a third of a second as .wav files, in the folders noise, sweep and tone."""
    rng = np.random.default_rng(0)
    for kind in ("noise", "sweep", "tone"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for i in range(each):
            time = np.arange(int(RATE * rng.uniform(0.25, 0.45))) / RATE
            soundfile.write(folder / kind / f"{i:02}.wav", 0.3 * _sound(kind, time, rng), RATE)


def _sound(kind: str, time: Array, rng: np.random.Generator) -> Array:
    """Samples (n,) at these times, at most about 1 in size."""
    pitch = rng.uniform(200, 1500)
    if kind == "noise":
        return rng.normal(0, 0.4, len(time))
    rising = rng.uniform(2000, 4000) if kind == "sweep" else 0.0  # Hz in a second
    return np.sin(2 * np.pi * (pitch + rising * time / 2) * time) + rng.normal(0, 0.02, len(time))


def videos(folder: Path, each: int = 16) -> None:
    """Made-up videos of a white square that goes to the left or to the right, as .avi files in the folders of those
    names. No frame alone tells which."""
    rng = np.random.default_rng(0)
    for way in ("left", "right"):
        (folder / way).mkdir(parents=True, exist_ok=True)
        for i in range(each):
            top, first = rng.integers(0, SIDE - SQUARE, 2)
            places = (first + 2 * np.arange(FRAMES) * (1 if way == "right" else -1)) % (SIDE - SQUARE)
            frames = np.zeros((FRAMES, SIDE, SIDE), np.uint8)
            for frame, left in zip(frames, places):
                frame[top : top + SQUARE, left : left + SQUARE] = 255
            _film(folder / way / f"{i:02}.avi", frames)


def _film(path: Path, frames: npt.NDArray[np.uint8]) -> None:
    """Grey frames (T, H, W) as a video file, nothing lost."""
    with av.open(str(path), "w", options={"fflags": "+bitexact"}) as container:
        stream = container.add_stream("ffv1", rate=12, width=SIDE, height=SIDE, pix_fmt="gray")
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="gray")))
        container.mux(stream.encode(None))
