"""Files and folders whose names are bytes that are not UTF-8: read like all others, or refused in one sentence."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from . import degenerate_files
from .conftest import Answer

Cli = Callable[..., Answer]
NAME = os.fsdecode(b"caf\xe9")
QUICK = ("max_steps=2", "batch_size=8", "tensorboard=false", "--out", "run")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs file names that are any bytes")


def renamed(folder: Path, suffix: str) -> None:
    """Give the class `rare` and one file that name."""
    for path in folder.rglob("rare"):
        first = min(path.glob(f"*{suffix}"))
        first.rename(first.with_name(NAME + suffix))
        path.rename(path.with_name(NAME))


def images(folder: Path) -> str:
    degenerate_files.grey_images(folder)
    renamed(folder / "grey", ".png")
    return "grey"


def audio(folder: Path) -> str:
    degenerate_files.silence(folder)
    renamed(folder / "silence", ".wav")
    return "silence"


def video(folder: Path) -> str:
    degenerate_files.black_videos(folder)
    renamed(folder / "films", ".avi")
    return "films"


def frames(folder: Path) -> str:
    for i in range(12):
        place = folder / "frames" / (NAME if i % 3 == 0 else "usual") / (NAME if i == 0 else f"{i:02}")
        place.mkdir(parents=True)
        for k in range(3):
            Image.fromarray(np.full((16, 16), 20 * i + k, np.uint8)).save(place / f"{NAME if k == 0 else k}.png")
    return "frames"


def masks(folder: Path) -> str:
    degenerate_files.empty_masks(folder)
    for part in ("train/images", "train/masks", "test/images", "test/masks"):
        path = folder / "masks" / part / "0.png"
        path.rename(path.with_name(f"{NAME}.png"))
    (folder / "masks").rename(folder / NAME)
    return NAME


def captions(folder: Path) -> str:
    degenerate_files.one_caption(folder)
    (folder / "captions").rename(folder / NAME)
    return NAME


def speech(folder: Path) -> str:
    degenerate_files.one_transcript(folder)
    (folder / "speech").rename(folder / NAME)
    return NAME


def texts(folder: Path) -> str:
    for i in range(24):
        place = folder / "texts" / (NAME if i % 3 == 0 else "usual") / f"{NAME if i == 0 else i}.txt"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"the words of text {i}", encoding="utf-8")
    return "texts"


def book(folder: Path) -> str:
    (folder / NAME).mkdir()
    for name in ("one", NAME):
        (folder / NAME / f"{name}.txt").write_text(f"some words, {len(name)} times. " * 80, encoding="utf-8")
    return NAME


def graph(folder: Path) -> str:
    degenerate_files.nodes(folder)
    (folder / "nodes").rename(folder / NAME)
    return NAME


def table(folder: Path) -> str:
    degenerate_files.rare_class(folder)
    (folder / "rare.csv").rename(folder / f"{NAME}.csv")
    return f"{NAME}.csv"


HIDDEN = "model.hidden_dim=8"


CASES: list[tuple[Callable[[Path], str], str, tuple[str, ...], str]] = [
    (images, "simplecnn", ("image_size=16",), f"grey/train/{NAME}"),
    (audio, "gru", ("n_mels=8", HIDDEN), f"silence/{NAME}"),
    (video, "cnn-lstm", ("frames=4", "model.channels=2,4", HIDDEN), f"films/{NAME}"),
    (frames, "cnn-lstm", ("frames=3", "model.channels=2,4", HIDDEN), f"frames/{NAME}/{NAME}"),
    (masks, "unet-small", ("image_size=16", "model.width=4"), f"{NAME}/test/images/{NAME}.png"),
    (captions, "show-attend-tell", ("image_size=32", HIDDEN), f"{NAME}/01.png"),
    (speech, "ctc-conv-gru", ("n_mels=8", "model.channels=4,4", HIDDEN), NAME),
    (texts, "textcnn", ("model.dim=8", "model.filters=4"), "some words"),
    (book, "gru", (HIDDEN,), "some words"),
    (graph, "gcn", ("target=kind", HIDDEN), NAME),
    (table, "mlp", ("target=kind", "group=who", "model.hidden_dims=4"), f"{NAME}.csv"),
]


@pytest.mark.parametrize(("make", "model", "given", "asked"), CASES, ids=[case[0].__name__ for case in CASES])
def test_every_kind_of_data(
    cli: Cli, make: Callable[[Path], str], model: str, given: tuple[str, ...], asked: str, tmp_path: Path
) -> None:
    trained = cli("train", model, make(tmp_path), *given, *QUICK)
    assert trained.status == 0, trained.err
    for document in (tmp_path / "run").rglob("*.json"):
        json.loads(document.read_text(encoding="utf-8"))
    (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert cli("evaluate", "run").status == 0
    json.loads(cli("predict", "run", asked, "--json").out)
    predicted = cli("predict", "run", asked, "--out", "predicted.csv")
    assert predicted.status == 0, predicted.err
    (tmp_path / "predicted.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize(("make", "model", "given"), [(images, "simplecnn", ("image_size=16",)), (audio, "gru", ())])
def test_shards(cli: Cli, make: Callable[[Path], str], model: str, given: tuple[str, ...], tmp_path: Path) -> None:
    prepared = cli("prepare", make(tmp_path), "shards")
    assert prepared.status == 0, prepared.err
    trained = cli("train", model, "shards", *given, *QUICK)
    assert trained.status == 0, trained.err
    names = json.loads((tmp_path / "run" / "evaluation.json").read_text(encoding="utf-8"))["classes"]["names"]
    assert sorted(names) == sorted([NAME, "usual"])


@pytest.mark.parametrize(
    "words",
    [
        ("train", "mlp", "iris", "max_steps=1", "--out", NAME),
        ("compare", "mlp", "iris", "max_steps=1", "--out", NAME),
        ("search", "mlp", "iris", "lr=1e-3..1e-2", "--out", NAME),
    ],
    ids=["train", "compare", "search"],
)
def test_a_run_is_refused_before_it_is_trained(cli: Cli, words: tuple[str, ...], tmp_path: Path) -> None:
    answer = cli(*words)
    assert answer.status == 2
    assert r"The name of the folder caf\udce9 is not UTF-8" in answer.said
    assert not [*tmp_path.iterdir()]
