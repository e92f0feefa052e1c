"""What is fitted is fitted on the training split alone: other validation and test examples change no fitted number."""

from __future__ import annotations

import itertools
import json
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from PIL import Image

from cutaway.data.opening import open_data
from cutaway.data.settings import DataSettings

RNG = np.random.default_rng(0)
SPLITS = ("train", "val", "test")


def table(path: Path, odd: dict[str, set[int]]) -> tuple[str, dict[str, Any]]:
    rows = [(f"{x:.4f}", "ab"[i % 2], "yn"[i % 3 > 0]) for i, x in enumerate(np.random.default_rng(1).normal(0, 1, 90))]
    rows = [("999", "new", y) if f"{i}" in odd else (x, k, y) for i, (x, k, y) in enumerate(rows)]
    pl.DataFrame(rows, schema=["x", "k", "y"], orient="row").write_csv(path / "t.csv")
    return str(path / "t.csv"), {"target": "y"}


def texts(path: Path, odd: dict[str, set[int]]) -> tuple[str, dict[str, Any]]:
    rng = np.random.default_rng(1)
    rows = [(" ".join(rng.choice(["one", "two", "three", "four"], 6)), "yn"[i % 3 > 0]) for i in range(90)]
    rows = [("strange strange words", y) if f"{i}" in odd else (text, y) for i, (text, y) in enumerate(rows)]
    pl.DataFrame(rows, schema=["text", "y"], orient="row").write_csv(path / "t.csv")
    return str(path / "t.csv"), {"target": "y", "text": "text", "tokenizer": "words"}


@pytest.mark.parametrize("write", [table, texts])
def test_rows_of_validation_and_test(tmp_path: Path, write: Callable[..., tuple[str, dict[str, Any]]]) -> None:
    source, given = write(tmp_path, {})
    data = open_data(source, DataSettings(**given))
    others = {split.name(i) for name, split in data.splits.items() if name != "train" for i in range(len(split))}
    odd = {str(int(name.split()[1]) - 2): set() for name in others}
    write(tmp_path, odd)
    again = open_data(source, DataSettings(**given))
    assert again.fingerprint != data.fingerprint
    assert fitted(again) == fitted(data)


def images(path: Path, rng: np.random.Generator, other: bool) -> None:
    Image.fromarray(rng.integers(200 if other else 0, 256, (8, 8), np.uint8)).save(path.with_suffix(".png"))


def sounds(path: Path, rng: np.random.Generator, other: bool) -> None:
    with wave.open(str(path.with_suffix(".wav")), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes((rng.normal(0, 9000 if other else 900, 4000)).clip(-32000, 32000).astype("<i2").tobytes())


def videos(path: Path, rng: np.random.Generator, other: bool) -> None:
    path.mkdir()
    for frame in range(4):
        images(path / f"{frame}", rng, other)


@pytest.mark.parametrize("write", [images, sounds, videos])
def test_files_of_validation_and_test(tmp_path: Path, write: Callable[..., None]) -> None:
    found = []
    for other in (False, True):
        for split in SPLITS:
            for kind in "ab":
                folder = tmp_path / f"data{other}" / split / kind
                folder.mkdir(parents=True)
                for i in range(6):
                    rng = np.random.default_rng([i, ord(kind), len(split), other and split != "train"])
                    write(folder / f"{i}", rng, other and split != "train")
        found.append(open_data(str(tmp_path / f"data{other}"), DataSettings()))
    assert found[0].fingerprint != found[1].fingerprint
    assert fitted(found[0]) == fitted(found[1])


def test_later_steps_of_a_forecast(tmp_path: Path) -> None:
    y = np.sin(np.arange(300) / 5) + RNG.normal(0, 0.1, 300)
    found = []
    for later in (y, np.concatenate([y[:220], 50 * y[220:]])):
        pl.DataFrame({"t": np.arange(300), "y": later}).write_csv(tmp_path / "s.csv")
        asked = DataSettings(forecast=("y",), time="t", horizon=4, lookback=8, season_length=7)
        found.append(open_data(str(tmp_path / "s.csv"), asked))
    assert found[0].fingerprint != found[1].fingerprint
    assert fitted(found[0]) == fitted(found[1])


def test_pairs_of_validation_and_test(tmp_path: Path) -> None:
    words = list(itertools.product(["one", "two", "three", "four"], repeat=4))
    lines = [(" ".join(some), " ".join(some[::-1])) for some in words[:120]]  # sources that repeat stay together
    path = tmp_path / "p.tsv"

    def opened(rows: list[tuple[str, str]]) -> Any:
        path.write_text("".join(f"{a}\t{b}\n" for a, b in rows))
        return open_data(str(path), DataSettings(pairs=True, tokenizer="words"))

    data = opened(lines)
    others = {split.name(i) for name, split in data.splits.items() if name != "train" for i in range(len(split))}
    numbers = {int(name.split()[1]) - 1 for name in others}
    again = opened([(f"a new word {i}", f"{i} a new word") if i in numbers else p for i, p in enumerate(lines)])
    assert fitted(again) == fitted(data)


def fitted(data: Any) -> str:
    """Every fitted number, to the last bit; the longest text, which only says how much room a position needs, aside."""
    found = data.preprocessing.to_json()
    found["spec"].pop("longest", None)
    return json.dumps(found, sort_keys=True)
