"""cutaway prune: a run in, a smaller one out, and both beside one another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import cutaway
from cutaway.apps.cli import main
from cutaway.training.compression import measure_sparsity

SMALL: dict[str, Any] = {"max_samples": 128, "batch_size": 32, "epochs": 2, "tensorboard": False, "threads": 1}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> cutaway.Run:
    return cutaway.train("lenet5-modern", "digits", out=tmp_path_factory.mktemp("whole") / "run", **SMALL)


def test_both_models_are_shown(run: cutaway.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch_pruning")
    words = ["prune", str(run.folder), str(tmp_path / "small"), "prune_channels=0.5", "sparsity=0.5"]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    before, after = found["before"], found["after"]
    assert before["score"]["value"] == run.evaluate()["accuracy"].value
    assert after["parameters"] < before["parameters"]
    assert after["bytes"] < before["bytes"]
    assert after["sparsity"] == pytest.approx(0.5, abs=1e-3)
    assert set(after["milliseconds"]) == {"1", "32"}
    assert min(after["milliseconds"].values()) > 0
    small = cutaway.load(tmp_path / "small")
    assert small.about["data"]["split_hash"] == run.about["data"]["split_hash"]
    assert (small.folder / "report.html").is_file()


@pytest.mark.parametrize(
    ("settings", "fraction"),
    [
        ({"sparsity": 0.9, "prune_until": 0}, 0.9),
        ({"prune_pattern": "2:4"}, 0.4793),  # the convolutions have 1 and 6 inputs, which stay
    ],
)
def test_from_python(run: cutaway.Run, tmp_path: Path, settings: dict[str, Any], fraction: float) -> None:
    sparse = cutaway.prune(run, tmp_path / "sparse", epochs=1, **settings)
    assert measure_sparsity(sparse.model) == pytest.approx(fraction, abs=1e-3)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["OUT"], "sparsity=0.8 sets"),
        (["OUT", "sparsity=0.5", "weights=RUN"], "Leave it out"),
        (["OUT", "sparsity=1.5"], "must be at least 0 and less than 1"),
        ([], "Missing run or new folder"),
    ],
)
def test_models_that_cannot_be_pruned_are_rejected(
    run: cutaway.Run, tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = [str(tmp_path / "x") if word == "OUT" else word for word in words]
    assert main(["prune", str(run.folder), *typed]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_what_nothing_can_judge_is_pruned_and_not_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = tmp_path / "images"
    images.mkdir()
    for i in range(12):
        Image.new("L", (16, 16), 20 * i).save(images / f"{i}.png")
    given: dict[str, Any] = {"image_size": 32, "batch_size": 4, "epochs": 1, "tensorboard": False, "threads": 1}
    run = cutaway.train("lenet5-modern", str(images), objective="simclr", out=tmp_path / "run", **given)
    assert main(["prune", str(run.folder), str(tmp_path / "pruned"), "sparsity=0.5"]) == 0
    assert "score and time are not measured" in " ".join(capsys.readouterr().err.split())
    assert measure_sparsity(cutaway.load(tmp_path / "pruned").model) > 0.4
