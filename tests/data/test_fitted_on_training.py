"""What is fitted is fitted on the training split alone: other validation and test examples change no fitted number, to
the last bit, whatever the kind of data."""

from __future__ import annotations

import itertools
import json
import re
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from PIL import Image

from cutaway.core.spec import ANY_SIZE, Boxes, Classes, Mask, Tokens, Transcript
from cutaway.data.dataset_base import DataSet
from cutaway.data.in_memory.source import InMemorySource
from cutaway.data.modalities import KINDS
from cutaway.data.open_data import open_data
from cutaway.data.settings import DataSettings

SPLITS = ("train", "val", "test")
Numbers = set[int]  # of the examples that are other than they were
Opened = Callable[[Path, Numbers], DataSet]
Odd = bool  # whether an example is other than it was
WORDS = ["one", "two", "three", "four"]
SMILES = ["C" * (1 + i % 9) + "O" * (1 + i // 9 % 3) + "N" * (i // 27) for i in range(60)]  # by which they are called


def drawn(i: int, odd: Odd) -> np.random.Generator:
    return np.random.default_rng([i, odd])


# Of these the splits are drawn, and the examples told by their place in a file.


def table(path: Path, odd: Numbers) -> DataSet:
    rows = [(f"{drawn(i, i in odd).normal():.4f}", "ab"[i % 2], "yn"[i % 3 > 0]) for i in range(90)]
    rows = [("999", "new", y) if i in odd else (x, k, y) for i, (x, k, y) in enumerate(rows)]
    pl.DataFrame(rows, schema=["x", "k", "y"], orient="row").write_csv(path / "t.csv")
    return open_data(str(path / "t.csv"), DataSettings(target="y"))


def values(path: Path, odd: Numbers) -> DataSet:
    rows = [(i % 7, "", 1e6 + i) if i in odd else (i % 5, "" if i % 9 == 0 else i % 4, i + 0.5) for i in range(90)]
    text = "\n".join(["a,b,y", *(f"{a},{b},{y}" for a, b, y in rows)])
    (path / "t.csv").write_text(text + "\n")
    return open_data(str(path / "t.csv"), DataSettings(target="y", scale="quantile"))


def texts(path: Path, odd: Numbers) -> DataSet:
    rows = [(" ".join(drawn(i, False).choice(WORDS, 6)), "yn"[i % 3 > 0]) for i in range(90)]
    rows = [("strange strange words", y) if i in odd else (text, y) for i, (text, y) in enumerate(rows)]
    pl.DataFrame(rows, schema=["text", "y"], orient="row").write_csv(path / "t.csv")
    return open_data(str(path / "t.csv"), DataSettings(target="y", text="text", tokenizer="words"))


def subwords(path: Path, odd: Numbers) -> DataSet:
    rows = [
        ("zebra zebra zoo" if i in odd else " ".join(drawn(i, False).choice(WORDS, 6)), "yn"[i % 2]) for i in range(90)
    ]
    pl.DataFrame(rows, schema=["text", "y"], orient="row").write_csv(path / "t.csv")
    return open_data(str(path / "t.csv"), DataSettings(target="y", text="text", tokenizer="bpe", vocab_size=270))


def tags(path: Path, odd: Numbers) -> DataSet:
    blocks = [
        "\n".join(f"{'odd' if i in odd else word}\t{'ON'[len(word) % 2]}" for word in drawn(i, False).choice(WORDS, 5))
        for i in range(40)
    ]
    (path / "t.conll").write_text("\n\n".join(blocks) + "\n")
    return open_data(str(path / "t.conll"), DataSettings(tokenizer="words"))


def pairs(path: Path, odd: Numbers) -> DataSet:
    some = list(itertools.product(WORDS, repeat=4))[:120]  # sources that repeat stay together
    lines = [(" ".join(words), " ".join(words[::-1])) for words in some]
    lines = [(f"a new word {i}", f"{i} a new word") if i in odd else pair for i, pair in enumerate(lines)]
    (path / "p.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in lines))
    return open_data(str(path / "p.tsv"), DataSettings(pairs=True, tokenizer="words"))


def molecules(path: Path, odd: Numbers) -> DataSet:
    pytest.importorskip("rdkit")
    rows = [("[Na+].[Cl-]" if i in odd else s, 900.0 if i in odd else float(i)) for i, s in enumerate(SMILES)]
    (path / "m.csv").write_text("smiles,y\n" + "".join(f"{s},{y}\n" for s, y in rows))
    return open_data(str(path / "m.csv"), DataSettings(smiles="smiles", target="y", edge_attr=True))


def nodes(path: Path, odd: Numbers) -> DataSet:
    cells = [f"{900 if i in odd else i % 17},{'lima' if i in odd else ('rome', 'oslo')[i % 2]}" for i in range(60)]
    lines = [f"p{i},{own},{'lr'[i % 2]}" for i, own in enumerate(cells)]
    (path / "nodes.csv").write_text("\n".join(["id,age,city,side", *lines]) + "\n")
    links = [f"p{i},p{(i + 1) % 60}" for i in range(60)]
    (path / "edges.csv").write_text("\n".join(["source,target", *links]) + "\n")
    return open_data(str(path), DataSettings(target="side"))


def image_arrays(path: Path, odd: Numbers) -> DataSet:
    pixels = np.stack([drawn(i, i in odd).integers(200 if i in odd else 0, 256, (8, 8), np.uint8) for i in range(60)])
    return given(pixels, "image")


def level_arrays(path: Path, odd: Numbers) -> DataSet:
    return given(np.stack([drawn(i, False).normal(9.0 * (i in odd), 1, (5, 8, 8)) for i in range(60)]), "image")


def series(path: Path, odd: Numbers) -> DataSet:
    return given(np.stack([drawn(i, False).normal(9.0 * (i in odd), 1, (20, 2)) for i in range(60)]), "series")


def given(values: np.ndarray, kind: str) -> DataSet:
    y = np.array(["ab"[i % 2] for i in range(len(values))])
    return open_data(InMemorySource((values, y)), DataSettings(), ANY_SIZE, (), (kind,))


# Of these the splits are folders, and so are told by their names.


def image(path: Path, i: int, odd: Odd) -> None:
    pixels = drawn(i, odd).integers(200 if odd else 0, 256, (12, 12, 3), np.uint8)
    Image.fromarray(pixels).save(path)


def sound(path: Path, i: int, odd: Odd) -> None:
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        samples = drawn(i, odd).normal(0, 9000 if odd else 900, 4000).clip(-32000, 32000)
        file.writeframes(samples.astype("<i2").tobytes())


def classes_of(path: Path, odd: Odd, write: Callable[[Path, int, Odd], None], suffix: str) -> None:
    for i in range(12):
        home = path / "ab"[i % 2]
        home.mkdir(parents=True, exist_ok=True)
        write(home / f"{i}{suffix}", i, odd)


def images(path: Path, odd: Odd) -> None:
    classes_of(path, odd, image, ".png")


def recordings(path: Path, odd: Odd) -> None:
    classes_of(path, odd, sound, ".wav")


def videos(path: Path, odd: Odd) -> None:
    def frames(folder: Path, i: int, odd: Odd) -> None:
        folder.mkdir()
        for frame in range(4):
            image(folder / f"{frame}.png", 4 * i + frame, odd)

    classes_of(path, odd, frames, "")


def masks(path: Path, odd: Odd) -> None:
    for part in ("images", "masks"):
        (path / part).mkdir(parents=True)
    for i in range(8):
        image(path / "images" / f"{i}.png", i, odd)
        mask = np.zeros((12, 12), np.uint8)
        mask[: 2 + i, : 11 if odd else 3] = 1
        Image.fromarray(mask).save(path / "masks" / f"{i}.png")


def boxes(path: Path, odd: Odd) -> None:
    for part in ("images", "labels"):
        (path / part).mkdir(parents=True)
    for i in range(8):
        image(path / "images" / f"{i}.png", i, odd)
        (path / "labels" / f"{i}.txt").write_text(f"{i % 2} 0.5 0.5 {0.8 if odd else 0.2} {0.9 if odd else 0.1}\n")


def captions(path: Path, odd: Odd) -> None:
    path.mkdir(parents=True)
    for i in range(8):
        image(path / f"{i}.png", i, odd)
    said = [f"{i}.png\t{'odd words' if odd else ' '.join(drawn(i, False).choice(WORDS, 4))}" for i in range(8)]
    (path / "captions.tsv").write_text("\n".join(said) + "\n")


def speech(path: Path, odd: Odd) -> None:
    path.mkdir(parents=True)
    for i in range(8):
        sound(path / f"{i}.wav", i, odd)
    said = [f"{i}.wav\t{WORDS[i % 2] if odd else WORDS[i % 4]}" for i in range(8)]
    (path / "transcripts.tsv").write_text("\n".join(said) + "\n")


# Of these the last steps are validation and test.


def forecast(path: Path, odd: Odd) -> DataSet:
    y = np.sin(np.arange(300) / 5) + drawn(0, False).normal(0, 0.1, 300)
    y = np.concatenate([y[:220], 50 * y[220:]]) if odd else y
    pl.DataFrame({"t": np.arange(300), "y": y}).write_csv(path / "s.csv")
    asked = DataSettings(forecast=("y",), time="t", horizon=4, lookback=8, season_length=7)
    return open_data(str(path / "s.csv"), asked)


def corpus(path: Path, odd: Odd) -> DataSet:
    words = drawn(0, False).choice(WORDS, 400).tolist()
    later = [word[::-1] for word in words[340:]] if odd else words[340:]  # as many characters, by which it is split
    (path / "a.txt").write_text(" ".join([*words[:340], *later]))
    return open_data(str(path / "a.txt"), DataSettings(tokenizer="words", length=8, val=0.1, test=0.1))


BY_NUMBER = {  # and the number that the first example goes by
    table: 2, values: 2, texts: 2, subwords: 2, tags: 0, pairs: 1, molecules: 0, nodes: 0, image_arrays: 1,
    level_arrays: 1, series: 1,
}  # fmt: skip
BY_FOLDER = {
    images: Classes, recordings: Classes, videos: Classes, masks: Mask, boxes: Boxes, captions: Tokens,
    speech: Transcript,
}  # fmt: skip
BY_PLACE = (forecast, corpus)


@pytest.mark.parametrize("opened", BY_NUMBER, ids=lambda kind: kind.__name__)
def test_of_splits_that_are_drawn(opened: Opened, tmp_path: Path) -> None:
    data = opened(tmp_path, set())
    others = [split.name(i) for name, split in data.splits.items() if name != "train" for i in range(len(split))]
    first = BY_NUMBER[opened]
    numbers = {SMILES.index(n) if n in SMILES else int(re.findall(r"\d+", n)[0]) - first for n in others}
    assert len(numbers) > 5
    same(opened, data, opened(tmp_path, numbers))


@pytest.mark.parametrize("write", BY_FOLDER, ids=lambda kind: kind.__name__)
def test_of_splits_that_are_given(write: Callable[[Path, Odd], None], tmp_path: Path) -> None:
    found = []
    for other in (False, True):
        for split in SPLITS:
            write(tmp_path / f"{other}" / split, other and split != "train")
        (tmp_path / f"{other}" / "classes.txt").write_text("a\nb\n")
        found.append(open_data(str(tmp_path / f"{other}"), DataSettings(), ANY_SIZE, (BY_FOLDER[write],)))
    assert list(found[0].splits) == list(SPLITS)
    same(write, *found)


@pytest.mark.parametrize("opened", BY_PLACE, ids=lambda kind: kind.__name__)
def test_of_what_comes_later(opened: Callable[[Path, Odd], DataSet], tmp_path: Path) -> None:
    same(opened, opened(tmp_path, False), opened(tmp_path, True))


def same(opened: Callable[..., Any], data: DataSet, again: DataSet) -> None:
    assert opened in OF_KIND[data.spec.kind]
    assert again.fingerprint != data.fingerprint
    assert fitted(again) == fitted(data)


OF_KIND = {
    "table": (table, values),
    "text": (texts, subwords, tags, corpus),
    "seq2seq": (pairs,),
    "graph": (molecules, nodes),
    "image": (image_arrays, level_arrays, images, masks, boxes, captions),
    "series": (series, forecast),
    "audio": (recordings, speech),
    "video": (videos,),
}


def test_no_kind_of_data_is_left_out() -> None:
    assert set(OF_KIND) == set(KINDS)


def fitted(data: DataSet) -> str:
    """Every fitted number, to the last bit; the longest text, which only says how much room a position needs, aside."""
    found: dict[str, Any] = data.preprocessing.to_json()
    found["spec"].pop("longest", None)
    return json.dumps(found, sort_keys=True)
