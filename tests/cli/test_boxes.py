"""Boxes from the command line: files of one's own, checked, learned from, measured, predicted, looked at."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from cutaway.apps.cli import main
from cutaway.core.files import read_json
from cutaway.data.synthetic import media
from cutaway.runs.run import Run

from .conftest import Answer

Cli = Callable[..., Answer]

SMALL = ("model.layers=1,1", "model.width=8", "model.dim=16", "model.head_layers=1")
QUICK = ("epochs=1", "batch_size=8", "tensorboard=false", "workers=0", *SMALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example of images with boxes, with fewer of them."""
    path = tmp_path_factory.mktemp("boxes") / "scenes"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(media, "COUNTS", {"train": 40, "val": 6, "test": 12})
        media.scenes(path)
    return path


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    """A run that has seen little."""
    path = folder.parent / "run"
    assert main(["train", "fcos-resnet18-small", str(folder), *QUICK, "--out", str(path)]) == 0
    return path


def test_from_files_to_a_report_and_to_boxes(cli: Cli, run: Path, folder: Path) -> None:
    evaluation = read_json(run / "evaluation.json")
    assert list(evaluation["metrics"]) == ["map", "map_50", "map_75", "loss"]
    assert evaluation["baseline"] == {"name": "no detections", "value": 0}
    assert evaluation["count"] == 12
    box = evaluation["worst"][0]["boxes"][0]
    assert box["kind"] in ("right", "wrong", "missed")
    assert all(0 <= n <= 1 for n in box["box"])
    page = (run / "report.html").read_text()
    assert "mAP@[.5:.95]" in page
    assert "AP@.5 requires an overlap" in page
    again = cli("evaluate", str(run), "--json")
    assert json.loads(again.out) == evaluation["metrics"]
    rows = [line.split("  ")[0].strip() for line in cli("evaluate", str(run)).out.splitlines()]
    assert [row for row in rows if row] == ["mAP@[.5:.95]", "mAP@.5", "mAP@.75", "loss"]  # as the page has them
    elsewhere = cli("evaluate", str(run), str(folder / "test"), "--json")
    assert json.loads(elsewhere.out) == evaluation["metrics"]

    opened = Run(run)
    opened.task.said = lambda rows: rows[:2, :6]  # type: ignore[attr-defined]  # so little is learned that nothing is sure
    rows = opened.predict([folder / "test" / "0000.png", folder / "test" / "0001.png"])
    assert [set(row) for row in rows] == [{"input", "class", "score", "x1", "y1", "x2", "y2"}] * 4
    assert all(0 <= row["x1"] <= row["x2"] <= 48 for row in rows)


def test_missed_objects_are_reported(cli: Cli, run: Path, folder: Path) -> None:
    answer = cli("predict", str(run), str(folder / "test" / "0000.png"), "--out", "boxes.csv")
    assert answer.status == 0, answer.err
    with Path("boxes.csv").open() as file:
        found = list(csv.DictReader(file))
    assert found or "No objects were detected in 1 image" in answer.said
    with Image.open("boxes-pictures/0000.png") as picture:
        assert (picture.mode, picture.size) == ("RGB", (288, 288))  # 48 × 48, large enough for words
    Path("boxes.csv").unlink()
    again = cli("predict", str(run), str(folder / "test" / "0001.png"), "--out", "boxes.csv")
    assert "boxes-pictures already exists" in again.said


def test_check_names_what_is_wrong_with_file_and_row(cli: Cli, folder: Path) -> None:
    answer = cli("check", "fcos-resnet18-small", str(folder), *SMALL)
    assert answer.status == 0, answer.err
    assert "object detection" in answer.out
    file = folder / "val" / "annotations.json"
    whole = file.read_text()
    document = json.loads(whole)
    document["annotations"][4]["bbox"] = [40, 40, 20, 5]
    file.write_text(json.dumps(document))
    try:
        answer = cli("check", "fcos-resnet18-small", str(folder))
    finally:
        file.write_text(whole)
    assert answer.status == 2
    assert "val/annotations.json, annotation 5 (id 4): the box from 40, 40 to 60, 45 reaches beyond" in answer.said


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("tta=true", "tta=true takes the mean of the answers for an image and for its mirror image"),
        ("mixup=0.2", "mixup=0.2 blends images"),
        ("sampling=balanced", "sampling=balanced is for classes, and boxes is none"),
        ("class_weights=balanced", "class_weights=balanced would change nothing"),
        ("label_smoothing=0.1", "Invalid label_smoothing: only for classes and tokens, not for boxes"),
    ],
)
def test_settings_that_are_not_for_boxes_are_rejected(cli: Cli, folder: Path, given: str, words: str) -> None:
    answer = cli("train", "fcos-resnet18-small", str(folder), given, *QUICK)
    assert answer.status == 2
    assert words in answer.said


def test_a_model_of_classes_says_who_learns_boxes(cli: Cli, folder: Path) -> None:
    answer = cli("train", "lenet5-modern", str(folder))
    assert answer.status == 2
    assert (
        "lenet5-modern does not learn what this image data asks for, boxes: these models learn it: fcos-" in answer.said
    )
