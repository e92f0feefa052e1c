"""The model that is trained where none is named: by kind of data, target and size of the examples."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import cutaway
from cutaway.apps.cli import main
from cutaway.core.errors import MissingFileError, MissingSettingError, UnsupportedDataError
from cutaway.data.in_memory.source import to_source
from cutaway.data.synthetic import examples
from cutaway.training.proposal import propose_model


def write_images(folder: Path, size: tuple[int, int], mode: str) -> None:
    """Write three classes of four noise images."""
    rng = np.random.default_rng(0)
    shape = (*size, 3) if mode == "RGB" else size
    for name in ("a", "b", "c"):
        (folder / name).mkdir(parents=True)
        for index in range(4):
            pixels = rng.integers(0, 256, shape).astype(np.uint8)
            Image.fromarray(pixels, mode).save(folder / name / f"{index}.png")


def write_texts(path: Path) -> None:
    """Write a table of sentences of two classes."""
    rows = [f"{word} the ship {number}\t{word}" for number in range(20) for word in ("left", "right")]
    path.write_text("text\tside\n" + "\n".join(rows) + "\n")


def write_tags(path: Path) -> None:
    """Write sentences with a tag for each word."""
    path.write_text("\n\n".join("the D\nship N\nsails V" for _ in range(30)) + "\n")


def write_series(path: Path) -> None:
    """Write a series of hours with a value for each."""
    rows = [f"2026-01-{1 + hour // 24:02d} {hour % 24:02d}:00,{hour % 24}" for hour in range(20 * 24)]
    path.write_text("time,visits\n" + "\n".join(rows) + "\n")


Write = Callable[[Path], Any]
FILES: dict[str, tuple[str, Write, dict[str, Any], str]] = {
    "table": ("wine.csv", examples.wine, {"target": "cultivar"}, "mlp"),
    "gray": ("digits", lambda path: write_images(path, (28, 28), "L"), {}, "lenet5-modern"),
    "color": ("small", lambda path: write_images(path, (32, 32), "RGB"), {}, "resnet20"),
    "one side above": ("wide", lambda path: write_images(path, (28, 33), "L"), {}, "resnet18"),
    "classes of texts": ("texts.tsv", write_texts, {"text": "text", "target": "side"}, "textcnn"),
    "tags": ("tags.conll", write_tags, {}, "lstm"),
    "text": ("plain.txt", lambda path: path.write_text("the ship sails on and on. " * 400), {}, "lstm"),
    "pairs": ("dates.tsv", lambda path: examples.dates(path, 60), {"pairs": True}, "seq2seq-gru"),
    "forecast": ("visits.csv", write_series, {"forecast": "visits", "horizon": 6}, "gru"),
    "nodes": ("graph", examples.karate, {"target": "club"}, "gcn"),
    "links": ("novel", examples.novel, {}, "gae"),
    "graphs": (
        "molecules.csv",
        lambda path: examples.molecules(path, 40),
        {"smiles": "smiles", "target": "weight"},
        "gine",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_the_proposal_follows_the_data(name: str, tmp_path: Path) -> None:
    file, write, settings, expected = FILES[name]
    write(tmp_path / file)
    assert propose_model(str(tmp_path / file), settings).name == expected


FOLDERS: list[tuple[str, Write, str]] = [
    ("masks", examples.masks, "unet-small"),
    ("scenes", examples.scenes, "fcos-resnet18-small"),
    ("captions", examples.captions, "show-attend-tell"),
    ("sounds", lambda path: examples.sounds(path, 4), "gru"),
    ("spelled", lambda path: examples.spelled(path, 30), "ctc-conv-gru"),
    ("videos", lambda path: examples.videos(path, 6), "cnn-lstm"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "write", "expected"), FOLDERS)
def test_the_proposal_follows_folders(name: str, write: Write, expected: str, tmp_path: Path) -> None:
    write(tmp_path / name)
    assert propose_model(str(tmp_path / name), {}).name == expected


def test_the_documentation_lists_the_proposals() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how_do_i.md").read_text()
    rows = page.partition("| data | proposed model |\n| --- | --- |\n")[2].partition("\n\n")[0].splitlines()
    listed = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    assert listed == {expected for *_, expected in [*FILES.values(), *FOLDERS]} | {"cnn1d", "gin"}


def test_arrays_have_a_proposal() -> None:
    source = to_source((np.random.default_rng(0).normal(size=(40, 20, 3)), np.arange(40) % 2))[0]
    assert propose_model(source, {}).name == "cnn1d"


def test_a_command_without_a_model_trains_the_proposal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    examples.wine(tmp_path / "wine.csv")
    assert main(["train", "wine.csv", "target=cultivar", "epochs=1", "--out", "run"]) == 0
    shown = capsys.readouterr()
    assert "Model: mlp, a multilayer perceptron, for a table." in shown.err + shown.out
    assert cutaway.load("run").about["model"] == "mlp"
    assert main(["check", "wine.csv", "target=cultivar"]) == 0
    assert "mlp on wine.csv" in capsys.readouterr().out


def test_python_names_the_proposal_unless_it_is_to_be_quiet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = (np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 2)
    run = cutaway.train(data=data, epochs=1, out=tmp_path / "quiet", verbose=False)
    assert "Model:" not in capsys.readouterr().err
    cutaway.train(data=data, epochs=1, out=tmp_path / "run")
    assert "Model: mlp" in capsys.readouterr().err
    assert run.about["model"] == "mlp"


def test_a_model_that_is_a_path_too_is_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_images(tmp_path / "mlp", (8, 8), "L")
    assert main(["train", "mlp"]) == 2
    assert "Missing data" in capsys.readouterr().err


def test_what_has_no_proposal_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedDataError, match="cutaway list text"):
        propose_model("countdown3", {})
    with pytest.raises(MissingFileError):
        propose_model(str(tmp_path / "missing.csv"), {})
    with pytest.raises(MissingSettingError, match="Missing data"):
        cutaway.train()
